/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The training itself. A step takes the next `batch` samples of the epoch's shuffled order, which
 * every worker knows from the seed, and each worker has its share of them by rank: no sample is
 * taken twice, and all workers make the same number of steps however the sizes divide. A share may
 * be empty: its push has weight 0. So the result of synchronous training does not depend on the
 * number of workers, up to rounding.
 *
 * A step pulls the weights, computes the gradient and pushes it with the number of its samples as
 * weight; all tensors at once. Synchronously the push waits until it is applied, which is when all
 * workers have pushed.
 *
 * To stop early, a worker leaves the job when its step is done, and a word in a table tells the
 * others to do so too; who has gone on meanwhile is not held up by who has left.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "train_loop.h"

#define POINTS_A_RUN  400 /* on the loss curve */
#define EVALUATE_ROWS 500u

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

static void shuffle(struct train_loop *loop, uint32_t epoch)
{
	uint64_t state = (loop->options->seed + 1) * 0x9e3779b97f4a7c15ull + epoch * 0xd1342543de82ef95ull;

	state |= 1;
	for (uint32_t i = 0; i < loop->data->train.count; i++)
		loop->order[i] = i;
	for (uint32_t i = loop->data->train.count; i > 1; i--) {
		uint32_t j = (uint32_t)(random_next(&state) % i), kept = loop->order[i - 1];

		loop->order[i - 1] = loop->order[j];
		loop->order[j] = kept;
	}
}

static float rate_now(const struct train_loop *loop)
{
	const struct train_options *options = loop->options;
	double done = (double)loop->step / (double)loop->report.steps;

	if (options->schedule == TRAIN_LINEAR)
		return options->rate * (float)(1.0 - done);
	if (options->schedule == TRAIN_COSINE)
		return options->rate * (float)(0.5 * (1.0 + cos(M_PI * done)));
	return options->rate;
}

/* This worker's share of the step's samples, as x and labels. Returns their number. */
static uint32_t share_take(struct train_loop *loop, uint64_t in_epoch)
{
	uint64_t first = in_epoch * loop->batch, count = loop->data->train.count;
	uint64_t n = count - first < loop->batch ? count - first : loop->batch;
	uint64_t from = first + n * loop->rank / loop->workers;
	uint64_t to = first + n * (loop->rank + 1) / loop->workers;
	uint32_t share = (uint32_t)(to - from);

	train_data_batch(&loop->data->train, loop->order + from, share, loop->x);
	for (uint32_t i = 0; i < share; i++)
		loop->labels[i] = loop->data->train.labels[loop->order[from + i]];
	return share;
}

static int evaluate(struct train_loop *loop)
{
	const struct train_set *test = &loop->data->test;
	uint32_t indices[EVALUATE_ROWS], right = 0;
	float *x;

	if (train_pull(loop))
		return -1;
	x = cli_alloc((size_t)EVALUATE_ROWS * test->pixels, sizeof(float));
	for (uint32_t first = 0; first < test->count; first += EVALUATE_ROWS) {
		uint32_t n = test->count - first < EVALUATE_ROWS ? test->count - first : EVALUATE_ROWS;

		for (uint32_t i = 0; i < n; i++)
			indices[i] = first + i;
		train_data_batch(test, indices, n, x);
		right += train_model_right(loop->model, x, test->labels + first, n);
	}
	free(x);
	loop->accuracy = (double)right / test->count;
	return 0;
}

/* The mean loss over the samples counted between two moments. */
static double loss_between(const struct train_totals *from, const struct train_totals *to)
{
	uint64_t images = to->counts[TRAIN_IMAGES] - from->counts[TRAIN_IMAGES];

	return (double)(to->counts[TRAIN_LOSS] - from->counts[TRAIN_LOSS]) * 1e-6 / (double)images;
}

/*
 * Rank 0: a point of the curves, from what all workers have counted; `measured` together with the
 * accuracy. It needs a sample since the one before.
 */
static int point_take(struct train_loop *loop, bool measured)
{
	uint64_t now = train_now_ns(), images;
	struct train_totals totals;
	struct train_point point;

	if (train_counts_pull(loop, &totals))
		return -1;
	images = totals.counts[TRAIN_IMAGES] - loop->seen.counts[TRAIN_IMAGES];
	if (!images)
		return 0;
	point = (struct train_point){
		.seconds = (double)(now - loop->begun_ns) * 1e-9,
		.epoch = (double)loop->step / (double)loop->steps_an_epoch,
		.step = loop->step,
		.loss = loss_between(&loop->seen, &totals),
		.epoch_loss = measured ? loss_between(&loop->epoch_begun, &totals) : -1,
		.accuracy = measured ? loop->accuracy : -1,
		.images_per_s = (double)images / ((double)(now - loop->seen_ns) * 1e-9),
	};
	if (measured)
		loop->epoch_begun = totals;
	train_record_add(loop->record, &point);
	loop->seen = totals;
	loop->seen_ns = now;
	train_report_progress(&loop->report, &point, &totals);
	return 0;
}

static int step_compute(struct train_loop *loop, uint64_t in_epoch, uint32_t *share)
{
	uint64_t begun = train_now_ns();
	uint32_t right = 0;
	double loss;

	*share = share_take(loop, in_epoch);
	loss = train_model_gradient(loop->model, loop->x, loop->labels, *share, &right);
	if (!isfinite(loss)) {
		cli_error("train",
			  "the loss is no number any more at step %llu: give a lower --rate than %g",
			  (unsigned long long)loop->step, (double)loop->options->rate);
		return -1;
	}
	loop->own.counts[TRAIN_IMAGES] += *share;
	loop->own.counts[TRAIN_LOSS] += (uint64_t)llround(loss * 1e6);
	loop->own.counts[TRAIN_COMPUTE_NS] += train_now_ns() - begun;
	return 0;
}

static int step_run(struct train_loop *loop, uint64_t in_epoch)
{
	uint64_t every = loop->report.steps / POINTS_A_RUN + 1;
	uint32_t share;

	if (train_pull(loop) || step_compute(loop, in_epoch, &share) ||
	    train_push(loop, share, rate_now(loop)) || train_wait(loop))
		return -1;
	loop->step++;
	if (loop->step % every != 0 || in_epoch + 1 == loop->steps_an_epoch)
		return 0;
	if (train_counts_push(loop))
		return -1;
	return loop->rank == 0 ? point_take(loop, false) : 0;
}

/* All counts are in at the barrier; then rank 0 measures, the others may go on. */
static int epoch_end(struct train_loop *loop, uint32_t epoch)
{
	uint64_t begun = train_now_ns();

	if (train_counts_push(loop) || train_meet(loop, "the end of the epoch"))
		return -1;
	loop->own.counts[TRAIN_WAIT_NS] += train_now_ns() - begun;
	if (loop->rank != 0)
		return 0;
	if (evaluate(loop) || point_take(loop, true))
		return -1;
	train_report_epoch(&loop->report, epoch,
			   loop->record->points[loop->record->count - 1].epoch_loss, loop->accuracy);
	return 0;
}

/* 0: all epochs; 1: stopped; -1. */
static int epochs_run(struct train_loop *loop)
{
	for (uint32_t epoch = 0; epoch < loop->options->epochs; epoch++) {
		shuffle(loop, epoch);
		for (uint64_t i = 0; i < loop->steps_an_epoch; i++) {
			int stop = train_stop_asked(loop);

			if (stop)
				return stop;
			if (step_run(loop, i))
				return -1;
		}
		if (epoch_end(loop, epoch))
			return -1;
	}
	return 0;
}

static int finish(struct train_loop *loop, bool stopped)
{
	struct train_totals totals;

	if (train_counts_push(loop))
		return -1;
	if (loop->rank == 0) {
		if (stopped && (evaluate(loop) || point_take(loop, true)))
			return -1;
		if (train_counts_pull(loop, &totals))
			return -1;
		train_report_end(&loop->report, &totals, loop->model->name, loop->accuracy, stopped);
	}
	if (ramps_worker_leave(loop->worker, TRAIN_TIMEOUT_MS))
		return train_fail("leaving");
	return 0;
}

static int loop_open(struct train_loop *loop)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	uint32_t count = loop->data->train.count, most;

	if (ramps_worker_info(loop->worker, &info))
		return train_fail("joining");
	loop->rank = info.rank;
	loop->workers = info.workers;
	if (info.workers > count) {
		cli_error("train", "%u workers for %u samples: start fewer", info.workers, count);
		return -1;
	}
	loop->batch = loop->options->batch < count ? loop->options->batch : count;
	loop->steps_an_epoch = (count + loop->batch - 1) / loop->batch;
	most = loop->batch / loop->workers + 1;
	loop->order = cli_alloc(count, sizeof(*loop->order));
	loop->x = cli_alloc((size_t)most * loop->data->train.pixels, sizeof(float));
	loop->labels = cli_alloc(most, 1);
	loop->report.workers = info.workers;
	loop->report.servers = info.servers;
	loop->report.steps = loop->steps_an_epoch * loop->options->epochs;
	train_model_open(loop->model, loop->options->kind, loop->data->train.pixels, loop->options->hidden,
			 loop->data->classes, most > EVALUATE_ROWS ? most : EVALUATE_ROWS);
	train_model_start(loop->model, loop->options->seed);
	return train_tables_open(loop);
}

int train_run(struct ramps_worker *worker, const struct train_options *options,
	      const struct train_data *data, struct train_model *model, struct train_record *record)
{
	struct train_loop loop = {
		.worker = worker,
		.options = options,
		.data = data,
		.model = model,
		.record = record,
	};
	int ret = loop_open(&loop);

	if (!ret)
		ret = train_meet(&loop, "waiting for all workers to begin");
	if (!ret) {
		loop.begun_ns = loop.seen_ns = train_now_ns();
		if (loop.rank == 0)
			train_report_begin(&loop.report, options, model->name);
		train_running = 1;
		ret = epochs_run(&loop);
	}
	if (ret >= 0)
		ret = finish(&loop, ret == 1);
	train_tables_close(&loop);
	free(loop.order);
	free(loop.x);
	free(loop.labels);
	return ret;
}

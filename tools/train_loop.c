/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The training itself. A step takes the next `batch` samples of the epoch's shuffled order, which every
 * worker knows from the seed, and each worker has its share of them by rank: no sample is taken twice, and
 * all workers make the same number of steps however the sizes divide. A share may be empty: its push
 * has weight 0. So the result of synchronous training does not depend on the number of workers, up to rounding.
 *
 * A step pulls the weights, computes the gradient and pushes it with the number of its samples as weight; all
 * tensors at once. Synchronously the push waits until it is applied, which is when all workers have pushed.
 *
 * To stop early, a worker leaves the job when its step is done, and a word in a table tells the others to
 * do so too; who has gone on meanwhile is not held up by who has left.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "train.h"

#define TIMEOUT_MS    30000
#define POINTS_A_RUN  400 /* on the loss curve */
#define EVALUATE_ROWS 500

volatile sig_atomic_t train_stop;

struct loop {
	struct ramps_worker *worker;
	const struct train_options *options;
	const struct train_data *data;
	struct train_model *model;
	struct train_record *record; /* rank 0 */
	struct train_report report;
	uint32_t rank, workers;
	uint64_t steps_an_epoch, step;
	struct ramps_table *tables[TRAIN_MAX_TENSORS];
	struct ramps_table *counts, *losses, *stop;
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;
	uint32_t *order; /* of the samples in this epoch */
	float *x;
	uint8_t *labels;
	struct train_totals own, pushed; /* done, and of that what is in the tables */
	struct train_totals seen;        /* at the last point */
	struct train_totals epoch_begun;
	uint64_t seen_ns, begun_ns;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int fail(const char *doing)
{
	cli_error("train", "%s: %s", doing, ramps_last_error()->text);
	return -1;
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dull;
}

static void shuffle(struct loop *loop, uint32_t epoch)
{
	uint64_t state = (loop->options->seed + 1) * 0x9e3779b97f4a7c15ull + epoch * 0xd1342543de82ef95ull;

	state |= 1;
	for (uint32_t i = 0; i < loop->data->train.count; i++)
		loop->order[i] = i;
	for (uint32_t i = loop->data->train.count - 1; i > 0; i--) {
		uint32_t j = (uint32_t)(random_next(&state) % (i + 1)), kept = loop->order[i];

		loop->order[i] = loop->order[j];
		loop->order[j] = kept;
	}
}

static float rate_at(const struct train_options *options, double done)
{
	if (options->schedule == TRAIN_LINEAR)
		return options->rate * (float)(1.0 - done);
	if (options->schedule == TRAIN_COSINE)
		return options->rate * (float)(0.5 * (1.0 + cos(M_PI * done)));
	return options->rate;
}

/* One table; rank 0 creates it, the others wait for it. */
static int table_open(struct loop *loop, const struct ramps_schema *schema, struct ramps_table **table)
{
	if (loop->rank == 0)
		return ramps_table_create(loop->worker, schema, table);
	return ramps_table_open(loop->worker, schema->name, schema, TIMEOUT_MS, table);
}

static int tables_open(struct loop *loop)
{
	struct ramps_schema counts = RAMPS_SCHEMA_INIT, losses = RAMPS_SCHEMA_INIT,
			    stop = RAMPS_SCHEMA_INIT;

	for (uint32_t i = 0; i < loop->model->tensors; i++) {
		struct train_tensor *tensor = &loop->model->tensor[i];
		struct ramps_schema schema = RAMPS_SCHEMA_INIT;
		char name[RAMPS_NAME_BYTES];

		snprintf(name, sizeof(name), "%s/%s", loop->model->name, tensor->name);
		schema.name = name;
		schema.rows = tensor->rows;
		schema.dim = tensor->dim;
		schema.mode = RAMPS_SLOTS;
		schema.synchronous = loop->options->sync == TRAIN_BSP;
		schema.rate = loop->options->rate;
		schema.initial = tensor->values;
		if (table_open(loop, &schema, &loop->tables[i]))
			return fail("opening the model's tables");
	}
	counts.name = "train/counts";
	counts.type = RAMPS_INT64;
	counts.dim = TRAIN_COUNTS;
	losses.name = "train/losses";
	stop.name = "train/stop";
	stop.type = RAMPS_INT64;
	if (table_open(loop, &counts, &loop->counts) || table_open(loop, &losses, &loop->losses) ||
	    table_open(loop, &stop, &loop->stop))
		return fail("opening the tables of counts");
	if (ramps_barrier_open(loop->worker, "train/epoch", NULL, &loop->barrier) ||
	    ramps_clock_open(loop->worker, "train/steps", &loop->clock))
		return fail("opening the barrier and the clock");
	return 0;
}

static void tables_close(struct loop *loop)
{
	for (uint32_t i = 0; i < loop->model->tensors; i++)
		ramps_table_close(loop->tables[i]);
	ramps_table_close(loop->counts);
	ramps_table_close(loop->losses);
	ramps_table_close(loop->stop);
	ramps_barrier_close(loop->barrier);
	ramps_clock_close(loop->clock);
}

/* Pulls or pushes all tensors at once, and waits for all. */
static int exchange(struct loop *loop, uint32_t kind, const struct ramps_transfer *transfer)
{
	struct ramps_op ops[TRAIN_MAX_TENSORS] = { 0 };
	uint32_t n = loop->model->tensors, left = n;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct train_tensor *tensor = &loop->model->tensor[i];

		ops[i].kind = kind;
		ops[i].table = loop->tables[i];
		ops[i].rows = tensor->rows;
		ops[i].data = kind == RAMPS_PULL ? tensor->values : tensor->gradient;
		ops[i].transfer = *transfer;
		bytes += (uint64_t)tensor->rows * tensor->dim * sizeof(float);
	}
	if (ramps_worker_submit(loop->worker, ops, n) != (int)n)
		return fail("a step");
	while (left) {
		struct ramps_done done[TRAIN_MAX_TENSORS];
		int got = ramps_worker_reap(loop->worker, done, n, TIMEOUT_MS);

		if (got < 0)
			return fail(kind == RAMPS_PULL ? "pulling the weights" : "pushing the gradient");
		for (int i = 0; i < got; i++) {
			if (done[i].status) {
				cli_error("train", "%s: %s",
					  kind == RAMPS_PULL ? "pulling the weights" : "pushing the gradient",
					  strerror(-done[i].status));
				return -1;
			}
		}
		left -= (uint32_t)got;
	}
	loop->own.counts[kind == RAMPS_PULL ? TRAIN_PULLED : TRAIN_PUSHED] += bytes;
	return 0;
}

static int pull_weights(struct loop *loop)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	uint64_t begun = now_ns();
	int ret;

	if (loop->options->sync == TRAIN_BSP)
		transfer.read = RAMPS_SNAPSHOT;
	ret = exchange(loop, RAMPS_PULL, &transfer);
	loop->own.counts[TRAIN_PULL_NS] += now_ns() - begun;
	return ret;
}

/* Adds to the shared counts what this worker did since it last did so. */
static int counts_push(struct loop *loop)
{
	int64_t counts[TRAIN_COUNTS];
	float loss = (float)(loop->own.loss - loop->pushed.loss);

	for (uint32_t i = 0; i < TRAIN_COUNTS; i++)
		counts[i] = (int64_t)(loop->own.counts[i] - loop->pushed.counts[i]);
	if (ramps_table_push(loop->counts, 0, 1, counts, NULL, TIMEOUT_MS) ||
	    ramps_table_push(loop->losses, 0, 1, &loss, NULL, TIMEOUT_MS))
		return fail("counting");
	loop->pushed = loop->own;
	return 0;
}

static int counts_pull(struct loop *loop, struct train_totals *totals)
{
	int64_t counts[TRAIN_COUNTS];
	float loss;

	if (ramps_table_pull(loop->counts, 0, 1, counts, NULL, TIMEOUT_MS) ||
	    ramps_table_pull(loop->losses, 0, 1, &loss, NULL, TIMEOUT_MS))
		return fail("counting");
	for (uint32_t i = 0; i < TRAIN_COUNTS; i++)
		totals->counts[i] = (uint64_t)counts[i];
	totals->loss = (double)loss;
	return 0;
}

/* This worker's share of the step's samples, as x and labels. Returns their number. */
static uint32_t share_take(struct loop *loop, uint64_t in_epoch)
{
	uint64_t first = in_epoch * loop->options->batch, count = loop->data->train.count;
	uint64_t n = count - first < loop->options->batch ? count - first : loop->options->batch;
	uint64_t from = first + n * loop->rank / loop->workers;
	uint64_t to = first + n * (loop->rank + 1) / loop->workers;
	uint32_t share = (uint32_t)(to - from);

	train_data_batch(&loop->data->train, loop->order + from, share, loop->x);
	for (uint32_t i = 0; i < share; i++)
		loop->labels[i] = loop->data->train.labels[loop->order[from + i]];
	return share;
}

static int step_push(struct loop *loop, uint32_t share)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	uint64_t steps = loop->steps_an_epoch * loop->options->epochs, begun = now_ns();
	int ret;

	transfer.weight = (float)share;
	transfer.rate = rate_at(loop->options, (double)loop->step / (double)steps);
	ret = exchange(loop, RAMPS_PUSH, &transfer);
	loop->own.counts[TRAIN_PUSH_NS] += now_ns() - begun;
	return ret;
}

/* Waits for the others as far as the mode asks. */
static int step_wait(struct loop *loop)
{
	uint64_t begun = now_ns();
	int ret = 0;

	if (loop->options->sync == TRAIN_BSP)
		ret = ramps_worker_flush(loop->worker, RAMPS_APPLIED, TIMEOUT_MS);
	if (loop->options->sync == TRAIN_SSP) {
		ret = ramps_clock_advance(loop->clock, TIMEOUT_MS);
		if (!ret)
			ret = ramps_clock_wait(loop->clock, loop->options->staleness, TIMEOUT_MS);
	}
	loop->own.counts[TRAIN_WAIT_NS] += now_ns() - begun;
	return ret ? fail("waiting for the other workers") : 0;
}

/* 1: somebody was asked to stop. */
static int stop_asked(struct loop *loop)
{
	int64_t one = 1, asked = 0;

	if (train_stop && ramps_table_push(loop->stop, 0, 1, &one, NULL, TIMEOUT_MS))
		return fail("stopping");
	if (ramps_table_pull(loop->stop, 0, 1, &asked, NULL, TIMEOUT_MS))
		return fail("stopping");
	return asked != 0;
}

static int evaluate(struct loop *loop, double *accuracy)
{
	const struct train_set *test = &loop->data->test;
	uint32_t indices[EVALUATE_ROWS], right = 0;
	float *x = cli_alloc((size_t)EVALUATE_ROWS * test->pixels, sizeof(float));

	if (pull_weights(loop)) {
		free(x);
		return -1;
	}
	for (uint32_t first = 0; first < test->count; first += EVALUATE_ROWS) {
		uint32_t n = test->count - first < EVALUATE_ROWS ? test->count - first : EVALUATE_ROWS;

		for (uint32_t i = 0; i < n; i++)
			indices[i] = first + i;
		train_data_batch(test, indices, n, x);
		right += train_model_right(loop->model, x, test->labels + first, n);
	}
	free(x);
	*accuracy = (double)right / test->count;
	return 0;
}

/* Rank 0: a point of the curves, from what all workers have counted. */
static int point_take(struct loop *loop, double accuracy)
{
	struct train_totals totals;
	uint64_t now = now_ns(), images;
	struct train_point point;

	if (counts_pull(loop, &totals))
		return -1;
	images = totals.counts[TRAIN_IMAGES] - loop->seen.counts[TRAIN_IMAGES];
	if (!images)
		return 0;
	point = (struct train_point){
		.seconds = (double)(now - loop->begun_ns) * 1e-9,
		.epoch = (double)loop->step / (double)loop->steps_an_epoch,
		.step = loop->step,
		.loss = (totals.loss - loop->seen.loss) / (double)images,
		.epoch_loss = -1,
		.accuracy = accuracy,
		.images_per_s = (double)images / ((double)(now - loop->seen_ns) * 1e-9),
	};
	if (accuracy >= 0) {
		images = totals.counts[TRAIN_IMAGES] - loop->epoch_begun.counts[TRAIN_IMAGES];
		point.epoch_loss = (totals.loss - loop->epoch_begun.loss) / (double)images;
		loop->epoch_begun = totals;
	}
	train_record_add(loop->record, &point);
	loop->seen = totals;
	loop->seen_ns = now;
	train_report_progress(&loop->report, point.step, point.epoch, point.loss, &totals);
	return 0;
}

static int step_run(struct loop *loop, uint64_t in_epoch)
{
	uint64_t every = loop->steps_an_epoch * loop->options->epochs / POINTS_A_RUN + 1, begun;
	uint32_t share, right = 0;

	if (pull_weights(loop))
		return -1;
	begun = now_ns();
	share = share_take(loop, in_epoch);
	loop->own.loss += train_model_gradient(loop->model, loop->x, loop->labels, share, &right);
	loop->own.counts[TRAIN_IMAGES] += share;
	loop->own.counts[TRAIN_COMPUTE_NS] += now_ns() - begun;
	if (step_push(loop, share) || step_wait(loop))
		return -1;
	loop->step++;
	if (loop->step % every == 0 && in_epoch + 1 < loop->steps_an_epoch) {
		if (counts_push(loop))
			return -1;
		if (loop->rank == 0)
			return point_take(loop, -1);
	}
	return 0;
}

/* All counts are in at the barrier; then rank 0 measures, the others may go on. */
static int epoch_end(struct loop *loop, uint32_t epoch)
{
	double accuracy;

	if (counts_push(loop))
		return -1;
	if (ramps_barrier_wait(loop->barrier, TIMEOUT_MS))
		return fail("the end of the epoch");
	if (loop->rank != 0)
		return 0;
	if (evaluate(loop, &accuracy) || point_take(loop, accuracy))
		return -1;
	train_report_epoch(&loop->report, epoch,
			   loop->record->points[loop->record->count - 1].epoch_loss, accuracy);
	return 0;
}

/* 0: all epochs; 1: stopped; -1. */
static int epochs_run(struct loop *loop)
{
	for (uint32_t epoch = 0; epoch < loop->options->epochs; epoch++) {
		shuffle(loop, epoch);
		for (uint64_t i = 0; i < loop->steps_an_epoch; i++) {
			int stop = stop_asked(loop);

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

static int finish(struct loop *loop, bool stopped)
{
	struct train_totals totals;
	double accuracy = 0;

	if (loop->rank == 0) {
		if (evaluate(loop, &accuracy) || counts_push(loop) || counts_pull(loop, &totals))
			return -1;
		train_report_end(&loop->report, &totals, loop->model->name, accuracy, stopped);
	}
	if (ramps_worker_leave(loop->worker, TIMEOUT_MS))
		return fail("leaving");
	return 0;
}

static int loop_open(struct loop *loop)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	uint32_t count = loop->data->train.count;

	if (ramps_worker_info(loop->worker, &info))
		return fail("joining");
	loop->rank = info.rank;
	loop->workers = info.workers;
	if (info.workers > count) {
		cli_error("train", "%u workers for %u samples: start fewer", info.workers, count);
		return -1;
	}
	loop->steps_an_epoch = (count + loop->options->batch - 1) / loop->options->batch;
	loop->order = cli_alloc(count, sizeof(*loop->order));
	loop->x = cli_alloc((size_t)loop->options->batch * loop->data->train.pixels, sizeof(float));
	loop->labels = cli_alloc(loop->options->batch, 1);
	loop->report.workers = info.workers;
	loop->report.servers = info.servers;
	loop->report.steps = loop->steps_an_epoch * loop->options->epochs;
	train_model_start(loop->model, loop->options->seed);
	return tables_open(loop);
}

int train_run(struct ramps_worker *worker, const struct train_options *options,
	      const struct train_data *data, struct train_model *model, struct train_record *record)
{
	struct loop loop = {
		.worker = worker,
		.options = options,
		.data = data,
		.model = model,
		.record = record,
	};
	int ret = loop_open(&loop);

	if (!ret && ramps_barrier_wait(loop.barrier, TIMEOUT_MS))
		ret = fail("waiting for all workers to begin");
	if (!ret) {
		loop.begun_ns = loop.seen_ns = now_ns();
		if (loop.rank == 0)
			train_report_begin(&loop.report, options, model->name);
		ret = epochs_run(&loop);
	}
	if (ret >= 0)
		ret = finish(&loop, ret == 1) ? -1 : ret;
	tables_close(&loop);
	free(loop.order);
	free(loop.x);
	free(loop.labels);
	return ret;
}

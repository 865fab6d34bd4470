/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The timing of one size.
 *
 * A latency is the difference of consecutive time stamps, as in perftest, over the operations between
 * them. Where an operation is long enough that is one. Over shared memory it may take no longer than a
 * time stamp does: then so many operations go between two stamps that these take 16 times as long as a
 * stamp, whose measured cost is taken off. Each such batch is one sample, its operations' mean; a
 * row's last column says how many they were.
 *
 * A bandwidth is what was done between the first rank's beginning and the last one's end. Its peak is
 * the best run of whole batches. For a duration rank 0 looks at what all ranks have done, at the two
 * margins.
 *
 * Nothing else happens between the stamps: a few operations before, of which the server's counts know
 * nothing (adds of 0) or which are taken off, show how long one takes. Afterwards what the server has
 * counted must be what was done.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/word.h"
#include "bench_measure.h"
#include "cli.h"

#define STAMP_SHARE    16 /* a batch takes so many times its time stamp */
#define BW_STAMP_SHARE 64
#define WARM           4
#define MEETING        16 /* operations to calibrate by, where ranks wait for each other */
#define TRY_US         20
#define GOAL_US        250000 /* how long to measure where nobody says */
#define MOST_BATCH     1024

void bench_row_free(struct bench_row *row)
{
	free(row->samples);
	free(row->raw);
	row->samples = NULL;
	row->raw = NULL;
}

static void units_left(struct bench_run *run, uint64_t operations)
{
	for (uint64_t i = 0; i < run->options->qps; i++)
		run->qps[i].left = operations;
}

/* Tries some operations: how many units of the clock one takes, or -errno. */
static int try_some(struct bench_run *run, double *ticks)
{
	const struct bench_clock *clock = &run->clock;
	uint64_t n = run->test->meets ? MEETING : 1, begun;
	double took;
	int64_t done;

	bench_counting(run, false);
	units_left(run, UINT64_MAX);
	done = run->test->advance(run, WARM * run->options->qps);
	if (done >= 0 && run->options->warm_up)
		done = run->test->advance(run, 100 * run->options->qps);
	for (;; n *= 2) {
		if (done < 0)
			return (int)done;
		begun = bench_clock_read(clock);
		done = run->test->advance(run, n);
		took = (double)(bench_clock_read(clock) - begun);
		if (done >= 0 && (run->test->meets || took > TRY_US * clock->per_us))
			break;
	}
	*ticks = took > clock->cost ? (took - clock->cost) / (double)n : 1;
	return 0;
}

/* 1000 as in perftest; over shared memory as many as take a quarter of a second, as a power of ten. */
static uint64_t choose_iters(const struct bench_run *run, double ticks)
{
	double goal = GOAL_US * run->clock.per_us / ticks / (double)run->options->qps;
	uint64_t iters = 1000;

	if (run->options->iters)
		return run->options->iters;
	if (!run->options->verbs)
		while ((double)(iters * 10) <= goal && iters < 10000000)
			iters *= 10;
	return run->test->latency ? iters : iters * run->list;
}

static uint64_t choose_batch(const struct bench_run *run, double ticks)
{
	double least = (run->test->latency ? STAMP_SHARE : BW_STAMP_SHARE) * run->clock.cost;
	uint64_t batch = 1;

	if (run->options->batch)
		return run->options->batch;
	while ((double)batch * ticks < least && batch < MOST_BATCH)
		batch *= 2;
	return batch;
}

/* Depth and moderation, by perftest's rules where nobody says. */
static void choose_depth(struct bench_run *run)
{
	const struct bench_options *options = run->options;

	run->list = options->list ? options->list : 1;
	run->depth = options->depth ? options->depth : options->verbs ? BENCH_DEPTH : 1;
	if (options->iters && options->iters < run->depth)
		run->depth = options->iters;
	run->cq_mod = options->cq_mod ? options->cq_mod : run->bytes > 8192 ? 1 : 100;
	if (run->cq_mod > run->depth)
		run->cq_mod = run->depth;
}

void bench_measure_plan(struct bench_run *run, uint64_t bytes)
{
	run->bytes = bytes;
	choose_depth(run);
}

/* All ranks get ready together, and do what rank 0 has chosen. */
static int prepare(struct bench_run *run)
{
	double ticks = 1;
	int ret = try_some(run, &ticks);

	if (ret)
		return ret;
	if (!run->rank) {
		word_publish(&run->shared->batch, choose_batch(run, ticks));
		word_publish(&run->shared->iters, choose_iters(run, ticks));
		word_publish(&run->shared->limit, UINT64_MAX);
	}
	/* What was tried must be applied before it is noted. */
	ret = ramps_barrier_wait(run->meet, BENCH_TIMEOUT_MS);
	if (!ret)
		ret = bench_note(run);
	bench_counting(run, true);
	word_publish(&run->shared->ranks[run->rank].done, 0);
	return ret ? ret : ramps_barrier_wait(run->meet, BENCH_TIMEOUT_MS);
}

static int stopped(const struct bench_run *run)
{
	return word_acquire(&run->shared->stop) ? bench_fail(-EINTR, "interrupted") : 0;
}

static int measure_latency(struct bench_run *run, struct bench_row *row)
{
	struct bench_rank *mine = &run->shared->ranks[run->rank];
	const struct bench_clock *clock = &run->clock;
	uint64_t left = word_acquire(&run->shared->iters), batch = word_acquire(&run->shared->batch);
	uint64_t n = 0, done = 0, before;
	double sum = 0;

	row->iters = left;
	row->batch = batch;
	row->samples = cli_alloc((left + batch - 1) / batch, sizeof(double));
	/* The first touch of a page must not be in a sample. */
	memset(row->samples, 0xff, (left + batch - 1) / batch * sizeof(double));
	before = bench_clock_read(clock);
	while (left) {
		uint64_t part = left < batch ? left : batch, now;
		int64_t did = run->test->advance(run, part);
		double took;

		if (did < 0)
			return (int)did;
		now = bench_clock_read(clock);
		took = (double)(now - before) - clock->cost;
		if (took < 0)
			took = 0;
		row->samples[n++] = took / (double)part;
		sum += took;
		done += (uint64_t)did;
		left -= part;
		before = now;
		if (__builtin_expect(word_acquire(&run->shared->stop) != 0, 0))
			return stopped(run);
	}
	row->mean = sum / (double)row->iters;
	row->stats.count = n;
	word_publish(&mine->done, done);
	return 0;
}

/* What was done until when, for the peak. */
struct points {
	double *time_at, *done_at;
	size_t count, room;
};

static void point_add(struct points *points, double time_at, double done_at)
{
	if (points->count == points->room)
		return;
	points->time_at[points->count] = time_at;
	points->done_at[points->count++] = done_at;
}

static int measure_bandwidth(struct bench_run *run, struct bench_row *row)
{
	struct bench_rank *mine = &run->shared->ranks[run->rank];
	uint64_t iters = word_acquire(&run->shared->iters), batch = word_acquire(&run->shared->batch);
	uint64_t lists = (iters + run->list - 1) / run->list * run->options->qps;
	uint64_t done = 0, total = iters * run->options->qps;
	struct points points = { .room = BENCH_POINTS + 2 };
	double under_way = run->depth > 1 ? (double)(run->depth * run->options->qps) : 0;
	int ret = 0;

	if (batch < lists / BENCH_POINTS + 1)
		batch = lists / BENCH_POINTS + 1;
	points.time_at = cli_alloc(points.room, sizeof(double));
	points.done_at = cli_alloc(points.room, sizeof(double));
	units_left(run, iters);
	row->iters = total;
	row->batch = batch;
	mine->begin = bench_clock_read(&run->clock);
	point_add(&points, 0, 0);
	while (done < total && !ret) {
		uint64_t part = lists < batch ? lists : batch;
		int64_t did = run->depth > 1 ? bench_pipeline(run, part * run->list) :
					       run->test->advance(run, part);

		if (did < 0) {
			ret = (int)did;
			break;
		}
		done += (uint64_t)did;
		lists -= part;
		mine->end = bench_clock_read(&run->clock);
		point_add(&points, (double)(mine->end - mine->begin), (double)done);
		ret = stopped(run);
	}
	if (!run->options->no_peak)
		row->peak = base_stats_peak(points.time_at, points.done_at, points.count, under_way);
	free(points.time_at);
	free(points.done_at);
	word_publish(&mine->done, done);
	return ret;
}

/* The sum of what all ranks did, and the time from the first's beginning to the last one's end. */
static uint64_t bandwidth_of_all(struct bench_run *run, double *ticks)
{
	uint64_t done = 0, begin = UINT64_MAX, end = 0;

	for (uint32_t rank = 0; rank < run->options->workers; rank++) {
		const struct bench_rank *part = &run->shared->ranks[rank];

		done += word_acquire(&part->done);
		if (part->begin < begin)
			begin = part->begin;
		if (part->end > end)
			end = part->end;
	}
	*ticks = end > begin ? (double)(end - begin) : 1;
	return done;
}

void bench_row_bandwidth(const struct bench_run *run, struct bench_row *row, uint64_t done, double ticks)
{
	double seconds = ticks / run->clock.per_us * 1e-6;
	double unit = run->options->gbits ? 1e9 / 8 : 1024.0 * 1024;

	row->iters = done;
	row->seconds = seconds;
	row->per_second = (double)done / seconds;
	row->average = row->per_second * (double)run->bytes / unit;
	row->rate = row->per_second * 1e-6;
	/* What several ranks reach together at best is not known. */
	row->peak *= run->options->workers > 1 ? 0 : run->clock.per_us * 1e6 * (double)run->bytes / unit;
}

/* From the clock's units to those of the output. */
void bench_row_latency(const struct bench_run *run, struct bench_row *row)
{
	double unit = run->options->cycles ? 1 : run->clock.per_us;
	size_t bytes = row->stats.count * sizeof(double);

	for (size_t i = 0; i < row->stats.count; i++)
		row->samples[i] /= unit;
	row->per_second = run->clock.per_us * 1e6 / (row->mean > 0 ? row->mean : 1);
	row->mean /= unit;
	if (run->options->unsorted && row->samples) {
		row->raw = cli_alloc(row->stats.count, sizeof(double));
		memcpy(row->raw, row->samples, bytes);
	}
	base_stats_of(row->samples, row->stats.count, &row->stats);
}

/* All that was done is applied; counts it where the server can tell. */
int bench_measure_check(struct bench_run *run)
{
	uint64_t done = word_acquire(&run->shared->ranks[run->rank].done);
	double ticks;
	int ret = ramps_barrier_wait(run->meet, BENCH_TIMEOUT_MS);

	if (ret)
		return ret;
	if (!run->test->meets)
		done = bandwidth_of_all(run, &ticks);
	if (!run->rank || !(run->test->adds || run->test->pushes))
		ret = bench_verify(run, done);
	return ret ? ret : ramps_barrier_wait(run->meet, BENCH_TIMEOUT_MS);
}

int bench_measure(struct bench_run *run, const struct bench_row_sink *sink)
{
	struct bench_row row = { .bytes = run->bytes };
	double ticks;
	int ret = prepare(run);

	if (ret)
		return ret;
	if (run->options->duration > 0 || run->options->infinite)
		ret = bench_measure_duration(run, &row, sink);
	else if (run->test->latency)
		ret = measure_latency(run, &row);
	else
		ret = measure_bandwidth(run, &row);
	if (!ret)
		ret = bench_measure_check(run);
	if (!ret && !run->rank && !run->options->infinite) {
		if (run->test->latency) {
			bench_row_latency(run, &row);
		} else if (!row.timed) {
			uint64_t done = bandwidth_of_all(run, &ticks);

			bench_row_bandwidth(run, &row, done, ticks);
		}
		ret = sink->emit(sink->ctx, &row);
	}
	bench_row_free(&row);
	return ret;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measuring for a duration. Rank 0 keeps the time and ends it for all; what counts is what was done
 * between the margins. Where the ranks wait for each other all must do equally many operations: rank 0
 * then names a limit that nobody can have passed. The others have begun at most `staleness` + 1
 * operations more than rank 0 has, and look at the limit before each batch.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/word.h"
#include "bench_measure.h"
#include "cli.h"

#define MOST_SAMPLES (1u << 24)

struct duration {
	double begin, end, stop; /* since the start, in the clock's units */
	uint64_t start;
	double counted_from, counted_to; /* times at which was counted */
	uint64_t done_from, done_to;
	int phase; /* 0: before the first margin, 1: between, 2: after the second */
	size_t room;
	double sum; /* of samples, and how many operations are in them */
	uint64_t sampled;
};

static uint64_t done_by_all(const struct bench_run *run)
{
	uint64_t done = 0;

	for (uint32_t rank = 0; rank < run->options->workers; rank++)
		done += word_acquire(&run->shared->ranks[rank].done);
	return done;
}

static void sample_add(struct duration *duration, struct bench_row *row, double took, uint64_t part)
{
	duration->sum += took;
	duration->sampled += part;
	if (row->stats.count == MOST_SAMPLES)
		return;
	if (row->stats.count == duration->room) {
		duration->room = duration->room ? 2 * duration->room : 65536;
		row->samples = cli_grow(row->samples, duration->room, sizeof(double));
	}
	row->samples[row->stats.count++] = took / (double)part;
}

static int row_emit(struct bench_run *run, const struct duration *duration,
		    const struct bench_row_sink *sink)
{
	struct bench_row row = { .bytes = run->bytes, .timed = true };

	bench_row_bandwidth(run, &row, duration->done_to - duration->done_from,
			    duration->counted_to - duration->counted_from);
	return sink->emit(sink->ctx, &row);
}

/* Rank 0, after each batch: is it time for the next thing? */
static int keep_time(struct bench_run *run, struct duration *duration, double now,
		     const struct bench_row_sink *sink)
{
	int ret = 0;

	if (duration->phase == 0 && now >= duration->begin) {
		duration->counted_from = now;
		duration->done_from = done_by_all(run);
		duration->phase = 1;
	} else if (duration->phase == 1 && now >= duration->end) {
		duration->counted_to = now;
		duration->done_to = done_by_all(run);
		if (!run->options->infinite) {
			duration->phase = 2;
			return 0;
		}
		ret = row_emit(run, duration, sink);
		duration->counted_from = now;
		duration->done_from = duration->done_to;
		duration->end += duration->stop;
	} else if (duration->phase == 2 && now >= duration->stop) {
		word_publish(&run->shared->limit, word_acquire(&run->shared->ranks[0].done) + 1 +
							  run->options->staleness +
							  word_acquire(&run->shared->batch));
		duration->phase = 3;
	}
	return ret;
}

static void duration_begin(const struct bench_run *run, struct duration *duration)
{
	const struct bench_options *options = run->options;
	double second = run->clock.per_us * 1e6;

	duration->stop = options->duration * second;
	duration->begin = options->infinite ? 0 : options->margin * second;
	duration->end = options->infinite ? duration->stop :
					    (options->duration - options->margin) * second;
	duration->start = bench_clock_read(&run->clock);
}

/* How many operations to do next; 0: it is over. */
static uint64_t next_part(const struct bench_run *run, uint64_t done, uint64_t batch)
{
	uint64_t limit = word_acquire(&run->shared->limit);

	if (word_acquire(&run->shared->stop))
		return 0;
	if (!run->test->meets)
		return limit == UINT64_MAX ? batch : 0;
	if (done >= limit)
		return 0;
	return limit - done < batch ? limit - done : batch;
}

static int finish(struct bench_run *run, struct bench_row *row, const struct duration *duration)
{
	row->timed = true;
	if (run->rank)
		return 0;
	if (!run->options->infinite && duration->phase < 2)
		return bench_fail(-EINTR, "interrupted");
	if (run->test->latency) {
		row->iters = duration->sampled;
		row->mean = duration->sampled ? duration->sum / (double)duration->sampled : 0;
	} else if (!run->options->infinite) {
		bench_row_bandwidth(run, row, duration->done_to - duration->done_from,
				    duration->counted_to - duration->counted_from);
	}
	return 0;
}

int bench_measure_duration(struct bench_run *run, struct bench_row *row, const struct bench_row_sink *sink)
{
	struct bench_rank *mine = &run->shared->ranks[run->rank];
	struct duration duration = { .phase = 0 };
	uint64_t batch = word_acquire(&run->shared->batch), done = 0, part, before, now;
	bool pipelined = !run->test->latency && run->depth > 1;
	int64_t did;
	int ret;

	row->batch = batch;
	for (uint64_t i = 0; i < run->options->qps; i++)
		run->qps[i].left = UINT64_MAX;
	duration_begin(run, &duration);
	before = duration.start;
	while ((part = next_part(run, done, batch)) != 0) {
		did = pipelined ? bench_pipeline(run, part * run->list) : run->test->advance(run, part);
		if (did < 0)
			return (int)did;
		now = bench_clock_read(&run->clock);
		done += (uint64_t)did;
		word_publish(&mine->done, done);
		if (run->rank)
			continue;
		if (run->test->latency && duration.phase == 1) {
			double took = (double)(now - before) - run->clock.cost;

			sample_add(&duration, row, took > 0 ? took : 0, part);
		}
		ret = keep_time(run, &duration, (double)(now - duration.start), sink);
		if (ret)
			return ret;
		before = now;
	}
	for (uint64_t i = 0; i < run->options->qps; i++)
		run->qps[i].left = 0;
	did = pipelined ? bench_pipeline(run, UINT64_MAX >> 1) : 0;
	if (did < 0)
		return (int)did;
	word_publish(&mine->done, done + (uint64_t)did);
	return finish(run, row, &duration);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a rank of the client does: joins, measures size after size, leaves. Rank 0 reports. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/word.h"
#include "bench.h"
#include "bench_measure.h"
#include "cli.h"

/* Rank 0's rows so far. */
struct rows {
	struct bench_run *run;
	struct bench_row *rows;
	size_t count;
	bool keep;  /* samples, for the plot of a distribution */
	bool below; /* a limit */
};

static int take_row(void *ctx, struct bench_row *row)
{
	struct rows *rows = ctx;
	const struct bench_options *options = rows->run->options;

	bench_report_row(rows->run, row);
	if (!rows->run->test->latency && row->average < options->limit_bw) {
		cli_error("bench", "BW average is below the limit of %g", options->limit_bw);
		rows->below = true;
	}
	if (!rows->run->test->latency && row->rate < options->limit_rate) {
		cli_error("bench", "message rate is below the limit of %g M/s", options->limit_rate);
		rows->below = true;
	}
	rows->rows = cli_grow(rows->rows, rows->count + 1, sizeof(*row));
	rows->rows[rows->count] = *row;
	rows->rows[rows->count].raw = NULL;
	if (rows->keep)
		row->samples = NULL;
	else
		rows->rows[rows->count].samples = NULL;
	rows->count++;
	return 0;
}

static int join(struct bench_run *run)
{
	const struct bench_options *options = run->options;
	struct ramps_worker_options how = RAMPS_WORKER_OPTIONS_INIT;
	char job[RAMPS_NAME_BYTES];
	int ret;

	bench_job_name(options, job);
	how.servers = run->address;
	how.job = job;
	how.rank = run->rank;
	how.workers = options->workers;
	how.timeout_ms = BENCH_TIMEOUT_MS;
	ret = ramps_worker_join(&how, &run->qps->worker);
	for (uint64_t i = 1; i < options->qps && !ret; i++)
		ret = ramps_worker_clone(run->qps->worker, &run->qps[i].worker);
	if (!ret)
		ret = ramps_barrier_open(run->qps->worker, "bench.meet", NULL, &run->meet);
	if (!ret && run->test->meets && !run->test->sized) {
		ret = ramps_barrier_open(run->qps->worker, "bench.barrier", NULL, &run->barrier);
		if (!ret && !strcmp(run->test->name, "clock_lat"))
			ret = ramps_clock_open(run->qps->worker, "bench.clock", &run->steps);
	}
	return ret;
}

static int measure_size(struct bench_run *run, uint64_t bytes, const struct bench_row_sink *sink)
{
	int ret;

	bench_measure_plan(run, bytes);
	ret = bench_size_open(run, bytes);
	if (!ret)
		ret = ramps_barrier_wait(run->meet, BENCH_TIMEOUT_MS);
	if (!ret)
		ret = bench_measure(run, sink);
	bench_size_close(run);
	return ret;
}

static int measure_sizes(struct bench_run *run, struct rows *rows)
{
	const struct bench_options *options = run->options;
	const struct bench_row_sink sink = { take_row, rows };
	uint64_t bytes = options->all ? sizeof(float) : options->bytes;
	int ret = 0;

	bench_measure_plan(run, bytes);
	if (!run->rank)
		bench_report_head(run);
	if (!options->all)
		return measure_size(run, bytes, &sink);
	for (; bytes <= BENCH_MAX_BYTES && !ret; bytes *= 2)
		ret = measure_size(run, bytes, &sink);
	return ret;
}

static void leave(struct bench_run *run, bool well)
{
	ramps_clock_close(run->steps);
	ramps_barrier_close(run->barrier);
	ramps_barrier_close(run->meet);
	if (well)
		ramps_worker_leave(run->qps->worker, BENCH_TIMEOUT_MS);
	for (uint64_t i = run->options->qps; i-- > 0;)
		ramps_worker_close(run->qps[i].worker);
}

/* What is written when all is measured. */
static int write_files(const struct bench_run *run, const struct rows *rows)
{
	int status = 0;

	bench_report_tail(run);
	if (rows->count && run->options->json)
		status = bench_json_write(run, rows->rows, rows->count);
	if (rows->count && run->options->plot && !status)
		status = bench_plot_write(run, rows->rows, rows->count);
	return status;
}

int bench_work(const struct bench_options *options, struct bench_shared *shared, uint32_t rank,
	       const char *address)
{
	struct bench_run run = {
		.options = options,
		.test = options->test,
		.shared = shared,
		.rank = rank,
	};
	struct rows rows = { .run = &run,
			     .keep = options->plot && !options->all && options->test->latency };
	int ret = bench_pin(options, options->self ? rank + 1 : rank);

	snprintf(run.address, sizeof(run.address), "%s", address);
	run.qps = cli_alloc(options->qps, sizeof(*run.qps));
	if (!rank)
		bench_report_listen();
	bench_clock_open(&run.clock);
	if (!ret)
		ret = join(&run);
	if (!ret)
		ret = measure_sizes(&run, &rows);
	if (ret)
		bench_note_failure(shared, rank, ret);
	leave(&run, !ret);
	if (!ret && !rank)
		ret = write_files(&run, &rows);
	if (!ret && rows.below)
		ret = 1;
	for (size_t i = 0; i < rows.count; i++)
		bench_row_free(&rows.rows[i]);
	free(rows.rows);
	free(run.qps);
	return ret;
}

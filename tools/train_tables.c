/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the workers of a training share: a table for each of the model's tensors, one of counts for
 * the report, a word that says to stop, a barrier and a clock. Rank 0 makes the tables.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "train_loop.h"

volatile sig_atomic_t train_stop, train_running;

uint64_t train_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int train_fail(const char *doing)
{
	if (train_stop < 2 && (train_running || !train_stop))
		cli_error("train", "%s: %s", doing, ramps_last_error()->text);
	return -1;
}

static int table_open(struct train_loop *loop, const struct ramps_schema *schema,
		      struct ramps_table **table)
{
	if (loop->rank == 0)
		return ramps_table_create(loop->worker, schema, table);
	return ramps_table_open(loop->worker, schema->name, schema, TRAIN_TIMEOUT_MS, table);
}

int train_tables_open(struct train_loop *loop)
{
	struct ramps_schema counts = RAMPS_SCHEMA_INIT, stop = RAMPS_SCHEMA_INIT;

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
			return train_fail("opening the model's tables");
	}
	counts.name = "train/counts";
	counts.type = RAMPS_INT64;
	counts.dim = TRAIN_COUNTS;
	stop.name = "train/stop";
	stop.type = RAMPS_INT64;
	if (table_open(loop, &counts, &loop->counts) || table_open(loop, &stop, &loop->stop))
		return train_fail("opening the tables of counts");
	if (ramps_barrier_open(loop->worker, "train/epoch", NULL, &loop->barrier) ||
	    ramps_clock_open(loop->worker, "train/steps", &loop->clock))
		return train_fail("opening the barrier and the clock");
	return 0;
}

void train_tables_close(struct train_loop *loop)
{
	for (uint32_t i = 0; i < loop->model->tensors; i++)
		ramps_table_close(loop->tables[i]);
	ramps_table_close(loop->counts);
	ramps_table_close(loop->stop);
	ramps_barrier_close(loop->barrier);
	ramps_clock_close(loop->clock);
}

/* Waits for all of n operations. */
static int reap(struct train_loop *loop, uint32_t n, const char *doing)
{
	uint32_t left = n;

	while (left) {
		struct ramps_done done[TRAIN_MAX_TENSORS];
		int got = ramps_worker_reap(loop->worker, done, n, TRAIN_TIMEOUT_MS);

		if (got < 0)
			return train_fail(doing);
		for (int i = 0; i < got; i++) {
			if (!done[i].status)
				continue;
			if (train_stop < 2)
				cli_error("train", "%s: %s", doing,
					  done[i].status == -EOWNERDEAD ? "another worker died" :
									  strerror(-done[i].status));
			return -1;
		}
		left -= (uint32_t)got;
	}
	return 0;
}

/* Pulls or pushes all tensors at once. */
static int exchange(struct train_loop *loop, uint32_t kind, const struct ramps_transfer *transfer)
{
	const char *doing = kind == RAMPS_PULL ? "pulling the weights" : "pushing the gradient";
	struct ramps_op ops[TRAIN_MAX_TENSORS] = { 0 };
	uint32_t n = loop->model->tensors;
	uint64_t bytes = 0, begun = train_now_ns();

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
		return train_fail(doing);
	if (reap(loop, n, doing))
		return -1;
	loop->own.counts[kind == RAMPS_PULL ? TRAIN_PULLED : TRAIN_PUSHED] += bytes;
	loop->own.counts[kind == RAMPS_PULL ? TRAIN_PULL_NS : TRAIN_PUSH_NS] += train_now_ns() - begun;
	return 0;
}

int train_pull(struct train_loop *loop)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;

	if (loop->options->sync == TRAIN_BSP)
		transfer.read = RAMPS_SNAPSHOT;
	return exchange(loop, RAMPS_PULL, &transfer);
}

int train_push(struct train_loop *loop, uint32_t share, float rate)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;

	transfer.weight = (float)share;
	transfer.rate = rate;
	return exchange(loop, RAMPS_PUSH, &transfer);
}

int train_wait(struct train_loop *loop)
{
	uint64_t begun = train_now_ns();
	int ret = 0;

	if (loop->options->sync == TRAIN_BSP)
		ret = ramps_worker_flush(loop->worker, RAMPS_APPLIED, TRAIN_TIMEOUT_MS);
	if (loop->options->sync == TRAIN_SSP) {
		ret = ramps_clock_advance(loop->clock, TRAIN_TIMEOUT_MS);
		if (!ret)
			ret = ramps_clock_wait(loop->clock, loop->options->staleness, TRAIN_TIMEOUT_MS);
	}
	loop->own.counts[TRAIN_WAIT_NS] += train_now_ns() - begun;
	return ret ? train_fail("waiting for the other workers") : 0;
}

int train_meet(struct train_loop *loop, const char *doing)
{
	return ramps_barrier_wait(loop->barrier, TRAIN_TIMEOUT_MS) ? train_fail(doing) : 0;
}

int train_counts_push(struct train_loop *loop)
{
	int64_t counts[TRAIN_COUNTS];

	for (uint32_t i = 0; i < TRAIN_COUNTS; i++)
		counts[i] = (int64_t)(loop->own.counts[i] - loop->pushed.counts[i]);
	if (ramps_table_push(loop->counts, 0, 1, counts, NULL, TRAIN_TIMEOUT_MS))
		return train_fail("counting");
	loop->pushed = loop->own;
	return 0;
}

int train_counts_pull(struct train_loop *loop, struct train_totals *totals)
{
	int64_t counts[TRAIN_COUNTS];

	if (ramps_table_pull(loop->counts, 0, 1, counts, NULL, TRAIN_TIMEOUT_MS))
		return train_fail("counting");
	for (uint32_t i = 0; i < TRAIN_COUNTS; i++)
		totals->counts[i] = (uint64_t)counts[i];
	return 0;
}

int train_stop_asked(struct train_loop *loop)
{
	int64_t one = 1, asked = 0;

	if (train_stop && ramps_table_push(loop->stop, 0, 1, &one, NULL, TRAIN_TIMEOUT_MS))
		return train_fail("stopping");
	if (ramps_table_pull(loop->stop, 0, 1, &asked, NULL, TRAIN_TIMEOUT_MS))
		return train_fail("stopping");
	return asked != 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tests' operations, by the public interface alone, so that a figure is what a program gets.
 * Loops are here and not in bench_measure.c: a call through a pointer for every operation would be
 * a tenth of the shortest of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "bench.h"
#include "cli.h"

#define SUM_WORDS 131072u /* pulled at a time */

static inline struct bench_qp *next_qp(struct bench_run *run)
{
	struct bench_qp *qp = &run->qps[run->turn];

	if (++run->turn == run->options->qps)
		run->turn = 0;
	return qp;
}

static int64_t pull_advance(struct bench_run *run, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct bench_qp *qp = next_qp(run);
		int ret = ramps_table_pull(qp->table, 0, run->rows, qp->buffer, NULL, BENCH_TIMEOUT_MS);

		if (ret)
			return ret;
	}
	return (int64_t)n;
}

static void pull_fill(struct bench_run *run, struct bench_qp *qp, struct ramps_op *op)
{
	qp->left--;
	op->kind = RAMPS_PULL;
	op->rows = run->rows;
	op->data = qp->buffer;
	op->tag = 1;
}

static int64_t push_advance(struct bench_run *run, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct bench_qp *qp = next_qp(run);
		int ret = ramps_table_push(qp->table, 0, run->rows, qp->buffer, &run->transfer,
					   BENCH_TIMEOUT_MS);

		if (ret)
			return ret;
	}
	return (int64_t)n;
}

static void push_fill(struct bench_run *run, struct bench_qp *qp, struct ramps_op *op)
{
	qp->left--;
	op->kind = RAMPS_PUSH;
	op->rows = run->rows;
	op->data = qp->buffer;
	op->transfer = run->transfer;
	op->tag = 1;
}

/* The next list of a connection: its length, and in *ids where it begins. */
static inline uint64_t next_list(struct bench_run *run, struct bench_qp *qp, const uint64_t **ids)
{
	uint64_t n = qp->left < run->list ? qp->left : run->list;

	*ids = run->ids + qp->next;
	qp->left -= n;
	qp->next += run->list;
	if (qp->next == run->ids_count)
		qp->next = 0;
	return n;
}

static int64_t add_advance(struct bench_run *run, uint64_t n)
{
	int64_t done = 0;

	for (uint64_t i = 0; i < n; i++) {
		struct bench_qp *qp = next_qp(run);
		const uint64_t *ids;
		uint64_t count = next_list(run, qp, &ids);
		int ret = ramps_table_push_rows(qp->table, ids, count, run->addends, NULL,
						BENCH_TIMEOUT_MS);

		if (ret)
			return ret;
		done += (int64_t)count;
	}
	return done;
}

static void add_fill(struct bench_run *run, struct bench_qp *qp, struct ramps_op *op)
{
	op->kind = RAMPS_PUSH_ROWS;
	op->rows = next_list(run, qp, &op->row_ids);
	op->data = run->addends;
	op->tag = op->rows;
}

static int64_t barrier_advance(struct bench_run *run, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		int ret = ramps_barrier_wait(run->barrier, BENCH_TIMEOUT_MS);

		if (ret)
			return ret;
	}
	return (int64_t)n;
}

static int64_t clock_advance(struct bench_run *run, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		int ret = ramps_clock_advance(run->steps, BENCH_TIMEOUT_MS);

		if (!ret)
			ret = ramps_clock_wait(run->steps, run->options->staleness, BENCH_TIMEOUT_MS);
		if (ret)
			return ret;
	}
	return (int64_t)n;
}

/* Every rank pushes, the server sums and takes SGD's step, every rank pulls what came out. */
static int64_t round_advance(struct bench_run *run, uint64_t n)
{
	struct bench_qp *qp = run->qps;

	for (uint64_t i = 0; i < n; i++) {
		int ret = ramps_table_push(qp->table, 0, run->rows, qp->buffer, &run->transfer,
					   BENCH_TIMEOUT_MS);

		if (!ret)
			ret = ramps_table_pull(qp->table, 0, run->rows, qp->buffer, NULL,
					       BENCH_TIMEOUT_MS);
		if (ret)
			return ret;
	}
	return (int64_t)n;
}

#define PULL \
	.sized = true, .mode = RAMPS_SLOTS, .type = RAMPS_FLOAT32, .advance = pull_advance, .fill = pull_fill
#define PUSH                                                                       \
	.sized = true, .pushes = true, .mode = RAMPS_SLOTS, .type = RAMPS_FLOAT32, \
	.advance = push_advance, .fill = push_fill
#define ADD                                                                          \
	.adds = true, .mode = RAMPS_DIRECT, .type = RAMPS_INT64, .default_bytes = 8, \
	.advance = add_advance, .fill = add_fill

static const struct bench_test tests[] = {
	{ "pull_lat", "Pull Latency Test", .latency = true, .default_bytes = 8, PULL },
	{ "pull_bw", "Pull BW Test", .default_bytes = 65536, PULL },
	{ "push_lat", "Push Latency Test", .latency = true, .default_bytes = 8, PUSH },
	{ "push_bw", "Push BW Test", .default_bytes = 65536, PUSH },
	{ "add_lat", "Fetch-Add Latency Test", .latency = true, ADD },
	{ "add_bw", "Fetch-Add BW Test", ADD },
	{ "barrier_lat", "Barrier Latency Test", .latency = true, .meets = true,
	  .default_workers = 2, .advance = barrier_advance },
	{ "clock_lat", "Clock Latency Test", .latency = true, .meets = true, .default_workers = 2,
	  .advance = clock_advance },
	{ "round_lat", "Training Round Latency Test", .latency = true, .sized = true, .meets = true,
	  .default_bytes = 65536, .default_workers = 2, .mode = RAMPS_SLOTS, .type = RAMPS_FLOAT32,
	  .advance = round_advance },
};

#define TESTS (sizeof(tests) / sizeof(tests[0]))

const struct bench_test *bench_test_of(const char *name)
{
	for (size_t i = 0; i < TESTS; i++)
		if (!strcmp(name, tests[i].name))
			return &tests[i];
	return NULL;
}

void bench_test_names(FILE *out)
{
	for (size_t i = 0; i < TESTS; i++)
		fprintf(out, "%s%s", i ? i + 1 == TESTS ? " and " : ", " : "", tests[i].name);
}

/* What a table of the sized tests begins with: a pull can be told from one that did nothing. */
static float pattern(uint64_t i)
{
	return (float)(i % 65521 + 1);
}

/* Words that the adds go to, one after another, in lists of run->list. */
static void ids_make(struct bench_run *run, uint64_t words)
{
	static const uint64_t steps[] = { [BENCH_ONE] = 1, [BENCH_STRIDE8] = 1, [BENCH_STRIDE64] = 8 };
	uint32_t kind = run->options->pattern;
	uint64_t random = 0x9e3779b97f4a7c15u + run->rank;
	uint64_t places = kind == BENCH_RANDOM ? (words < 1u << 20 ? words : 1u << 20) :
						 words / steps[kind];

	run->ids_count = (places + run->list - 1) / run->list * run->list;
	run->ids = cli_alloc(run->ids_count, sizeof(*run->ids));
	for (uint64_t i = 0; i < run->ids_count; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		run->ids[i] = kind == BENCH_RANDOM ? random % words : i % places * steps[kind];
	}
	run->addends = cli_alloc(run->list, sizeof(*run->addends));
}

void bench_counting(struct bench_run *run, bool on)
{
	for (uint64_t i = 0; run->addends && i < run->list; i++)
		run->addends[i] = on;
}

/* Past the caches for random, within the second for strides. */
uint64_t bench_span(const struct bench_options *options)
{
	if (options->pattern == BENCH_ONE)
		return sizeof(uint64_t);
	if (options->span)
		return options->span;
	return options->pattern == BENCH_RANDOM ? 64u << 20 : 1u << 20;
}

static int table_open(struct bench_run *run, struct bench_qp *qp, const struct ramps_schema *schema)
{
	if (!run->rank && qp == run->qps)
		return ramps_table_create(qp->worker, schema, &qp->table);
	return ramps_table_open(qp->worker, schema->name, schema, BENCH_TIMEOUT_MS, &qp->table);
}

int bench_size_open(struct bench_run *run, uint64_t bytes)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	const struct bench_test *test = run->test;
	float *initial = NULL;
	char name[RAMPS_NAME_BYTES];
	int ret = 0;

	run->bytes = bytes;
	run->rows = test->adds ? bench_span(run->options) / sizeof(uint64_t) : bytes / sizeof(float);
	run->transfer = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
	run->transfer.level = test->meets ? RAMPS_APPLIED : run->options->level;
	if (test->adds)
		ids_make(run, run->rows);
	if (!test->mode)
		return 0;
	snprintf(name, sizeof(name), "%s.%llu", test->name, (unsigned long long)run->rows);
	schema.name = name;
	schema.rows = run->rows;
	schema.type = test->type;
	schema.mode = test->mode;
	schema.synchronous = test->meets;
	if (test->sized) {
		initial = cli_alloc(run->rows, sizeof(*initial));
		for (uint64_t i = 0; i < run->rows; i++)
			initial[i] = pattern(i);
		schema.initial = initial;
	}
	for (uint64_t i = 0; i < run->options->qps && !ret; i++) {
		/* Blocks of malloc(), as a program's are. */
		run->qps[i].buffer = cli_alloc(bytes, 1);
		memset(run->qps[i].buffer, test->pushes || test->meets ? 0 : 0xff, bytes);
		ret = table_open(run, &run->qps[i], &schema);
	}
	free(initial);
	return ret;
}

void bench_size_close(struct bench_run *run)
{
	for (uint64_t i = 0; i < run->options->qps; i++) {
		ramps_table_close(run->qps[i].table);
		free(run->qps[i].buffer);
		run->qps[i].table = NULL;
		run->qps[i].buffer = NULL;
	}
	free(run->ids);
	free(run->addends);
	run->ids = NULL;
	run->addends = NULL;
}

static int count_adds(struct bench_run *run, uint64_t *count)
{
	uint64_t *words = cli_alloc(SUM_WORDS, sizeof(*words)), n;
	int ret = 0;

	for (uint64_t at = 0; at < run->rows && !ret; at += n) {
		n = run->rows - at < SUM_WORDS ? run->rows - at : SUM_WORDS;
		ret = ramps_table_pull(run->qps->table, at, n, words, NULL, BENCH_TIMEOUT_MS);
		for (uint64_t i = 0; i < n; i++)
			*count += words[i];
	}
	free(words);
	return ret;
}

static int count_steps(struct bench_run *run, uint64_t *count)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	void *values = cli_alloc(run->rows, sizeof(float));
	int ret = ramps_table_pull(run->qps->table, 0, run->rows, values, &transfer, BENCH_TIMEOUT_MS);

	*count = transfer.steps;
	free(values);
	return ret;
}

static int count(struct bench_run *run, uint64_t *count)
{
	*count = 0;
	if (run->test->adds)
		return count_adds(run, count);
	if (run->test->pushes || (run->test->meets && run->test->sized))
		return count_steps(run, count);
	if (run->steps)
		return ramps_clock_read(run->steps, count, NULL);
	return 0;
}

int bench_note(struct bench_run *run)
{
	return count(run, &run->counted);
}

static int verify_pulled(const struct bench_run *run)
{
	for (uint64_t q = 0; q < run->options->qps; q++) {
		const float *values = run->qps[q].buffer;

		for (uint64_t i = 0; i < run->rows; i++)
			if (values[i] != pattern(i))
				return bench_fail(-EBADMSG, "pulled a wrong value: %g at %llu, not %g",
						  (double)values[i], (unsigned long long)i,
						  (double)pattern(i));
	}
	return 0;
}

int bench_verify(struct bench_run *run, uint64_t done)
{
	uint64_t now;
	int ret = count(run, &now);

	if (ret)
		return ret;
	if (run->test->advance == pull_advance)
		return verify_pulled(run);
	if (run->test->advance == barrier_advance || now - run->counted == done)
		return 0;
	return bench_fail(-EBADMSG, "%llu operations were done, but the server has %llu",
			  (unsigned long long)done, (unsigned long long)(now - run->counted));
}

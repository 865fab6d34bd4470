/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Sums in direct tables, by many processes at once; clones of one rank. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define RANKS  8u
#define ROWS   100000u
#define DIM    3u
#define LIST   300u /* above the library's block of 256 */
#define CLONES 4u

static uint32_t rounds;

static struct ramps_schema schema_words(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "words";
	schema.rows = 5;
	schema.type = RAMPS_INT64;
	return schema;
}

static struct ramps_schema schema_rows(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "rows";
	schema.rows = ROWS;
	schema.dim = DIM;
	schema.type = RAMPS_INT64;
	return schema;
}

/* The list of rows of round i of a rank, with many of them twice, and its values. */
static void make_list(uint32_t rank, uint32_t i, uint64_t rows[LIST], int64_t values[LIST * DIM])
{
	uint64_t random = (uint64_t)rank << 32 | i;

	for (uint32_t k = 0; k < LIST; k++) {
		bool twice = k && job_random(&random) % 4 == 0;

		rows[k] = twice ? rows[job_random(&random) % k] : job_random(&random) % ROWS;
		for (uint32_t d = 0; d < DIM; d++)
			values[k * DIM + d] = (int64_t)(job_random(&random) % 2001) - 1000 +
					      ((int64_t)rank << 40);
	}
}

static void expect_rows(struct ramps_table *table)
{
	int64_t *sum = calloc(ROWS * DIM, sizeof(*sum)), *got = malloc(ROWS * DIM * sizeof(*got));
	static uint64_t rows[LIST];
	static int64_t values[LIST * DIM];

	CHECK(sum && got);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		for (uint32_t i = 0; i < rounds; i++) {
			make_list(rank, i, rows, values);
			for (uint32_t k = 0; k < LIST; k++)
				for (uint32_t d = 0; d < DIM; d++)
					sum[rows[k] * DIM + d] += values[k * DIM + d];
		}
	OK(ramps_table_pull(table, 0, ROWS, got, NULL, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < ROWS * DIM; i++)
		if (got[i] != sum[i])
			job_fail(__FILE__, __LINE__, "row %u value %u: %lld, not %lld", i / DIM,
				 i % DIM, (long long)got[i], (long long)sum[i]);
	/* The same through a list, where a row stands twice. */
	make_list(3, 0, rows, values);
	OK(ramps_table_pull_rows(table, rows, LIST, values, NULL, JOB_TIMEOUT_MS));
	for (uint32_t k = 0; k < LIST * DIM; k++)
		CHECK(values[k] == sum[rows[k / DIM] * DIM + k % DIM]);
	free(sum);
	free(got);
}

static void add_rows(uint32_t rank)
{
	struct ramps_schema schema = schema_rows();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	static uint64_t rows[LIST];
	static int64_t values[LIST * DIM];

	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < rounds; i++) {
		make_list(rank, i, rows, values);
		if (i % 3 == 0) { /* one by one */
			for (uint32_t k = 0; k < LIST; k++)
				OK(ramps_table_push(table, rows[k], 1, values + (size_t)k * DIM,
						    NULL, JOB_TIMEOUT_MS));
			continue;
		}
		OK(ramps_table_push_rows(table, rows, LIST, values, NULL, JOB_TIMEOUT_MS));
	}
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	if (rank == 5)
		expect_rows(table);
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	job_leave(worker);
}

static void add_words(uint32_t rank)
{
	struct ramps_schema schema = schema_words();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	const uint64_t same[4] = { 2, 2, 4, 2 };
	const int64_t one = 1, values[4] = { 1, 10, 100, 1000 }, all[5] = { -1, 0, 0, INT64_MAX, 0 };
	int64_t got[5];

	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < rounds * 50; i++) {
		OK(ramps_table_push(table, 1, 1, &one, NULL, JOB_TIMEOUT_MS));
		OK(ramps_table_push_rows(table, same, 4, values, NULL, JOB_TIMEOUT_MS));
		OK(ramps_table_push(table, 0, 5, all, NULL, JOB_TIMEOUT_MS));
	}
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	OK(ramps_table_pull(table, 0, 5, got, NULL, JOB_TIMEOUT_MS));
	CHECK(got[0] == -(int64_t)(RANKS * rounds * 50));
	CHECK(got[1] == (int64_t)RANKS * rounds * 50);
	CHECK(got[2] == (int64_t)RANKS * rounds * 50 * 1011);
	CHECK((uint64_t)got[3] == (uint64_t)INT64_MAX * RANKS * rounds * 50);
	CHECK(got[4] == (int64_t)RANKS * rounds * 50 * 100);
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	job_leave(worker);
}

static void many_processes(uint32_t servers, job_function *function)
{
	rounds = job_rounds(1000, 60);
	job_start(servers, RANKS);
	job_run(RANKS, function, 100000);
	job_stop();
}

static void adds_of_eight_processes_to_few_words_are_exact(void **state)
{
	(void)state;
	many_processes(1, add_words);
}

static void adds_of_eight_processes_to_few_words_on_three_servers_are_exact(void **state)
{
	(void)state;
	many_processes(3, add_words);
}

static void adds_of_eight_processes_to_scattered_rows_are_exact(void **state)
{
	(void)state;
	many_processes(1, add_rows);
}

static void adds_of_eight_processes_to_scattered_rows_on_three_servers_are_exact(void **state)
{
	(void)state;
	many_processes(3, add_rows);
}

static struct ramps_schema schema_slots(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "slots";
	schema.rows = 3;
	schema.dim = 10000; /* two chunks, borders within rows */
	schema.mode = RAMPS_SLOTS;
	schema.rate = 1.0f;
	return schema;
}

struct clone {
	struct ramps_worker *worker;
	uint32_t rank, index;
};

static void *push_in_clone(void *arg)
{
	struct clone *clone = arg;
	struct ramps_schema rows = schema_rows(), slots = schema_slots();
	struct ramps_table *direct, *staged;
	float *gradient = malloc(slots.dim * sizeof(*gradient));
	uint64_t list[3] = { 7, clone->index + 10, 7 };
	int64_t values[3 * DIM] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	CHECK(gradient);
	OK(ramps_table_open(clone->worker, "rows", &rows, JOB_TIMEOUT_MS, &direct));
	OK(ramps_table_open(clone->worker, "slots", &slots, JOB_TIMEOUT_MS, &staged));
	for (uint32_t i = 0; i < slots.dim; i++)
		gradient[i] = -(float)(i % 3 + 1);
	for (uint32_t i = 0; i < rounds; i++) {
		OK(ramps_table_push_rows(direct, list, 3, values, NULL, JOB_TIMEOUT_MS));
		OK(ramps_table_push(staged, i % 3, 1, gradient, NULL, JOB_TIMEOUT_MS));
	}
	OK(ramps_worker_flush(clone->worker, RAMPS_APPLIED, JOB_TIMEOUT_MS));
	if (clone->index % 2) {
		ramps_table_close(direct);
		ramps_table_close(staged);
		ramps_worker_close(clone->worker);
	} else {
		ramps_worker_close(clone->worker);
		EXPECT(ramps_table_push(staged, 0, 1, gradient, NULL, 0), -ENOTCONN);
		ramps_table_close(staged);
		ramps_table_close(direct);
	}
	free(gradient);
	return NULL;
}

static void expect_clones(struct ramps_table *direct, struct ramps_table *staged)
{
	const uint32_t n = job.workers * CLONES * rounds;
	float *got = malloc(30000 * sizeof(*got));
	int64_t row[DIM];

	CHECK(got);
	OK(ramps_table_pull(direct, 7, 1, row, NULL, JOB_TIMEOUT_MS));
	CHECK(row[0] == 8 * (int64_t)n && row[1] == 10 * (int64_t)n && row[2] == 12 * (int64_t)n);
	for (uint32_t i = 0; i < CLONES; i++) {
		OK(ramps_table_pull(direct, 10 + i, 1, row, NULL, JOB_TIMEOUT_MS));
		CHECK(row[1] == 5 * (int64_t)(n / CLONES));
	}
	OK(ramps_table_pull(staged, 0, 3, got, NULL, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < 30000; i++) {
		uint64_t sum = n / 3 * (i % 10000 % 3 + 1);

		CHECK(got[i] == (float)sum);
	}
	free(got);
}

/* Clones are made by the rank's first worker, which rank 1 closes before they have done their work. */
static void push_in_clones(uint32_t rank)
{
	struct ramps_schema rows = schema_rows(), slots = schema_slots();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *direct = job_table(worker, &rows), *staged = job_table(worker, &slots);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	struct ramps_worker *last;
	struct clone clones[CLONES];
	pthread_t threads[CLONES];

	for (uint32_t i = 0; i < CLONES; i++) {
		clones[i] = (struct clone){ .rank = rank, .index = i };
		OK(ramps_worker_clone(worker, &clones[i].worker));
	}
	OK(ramps_worker_clone(worker, &last));
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < CLONES; i++)
		CHECK(!pthread_create(&threads[i], NULL, push_in_clone, &clones[i]));
	ramps_barrier_close(barrier);
	ramps_table_close(direct);
	ramps_table_close(staged);
	if (rank)
		ramps_worker_close(worker);
	for (uint32_t i = 0; i < CLONES; i++)
		CHECK(!pthread_join(threads[i], NULL));
	if (!rank)
		ramps_worker_close(worker);
	barrier = job_barrier(last, "all");
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	OK(ramps_table_open(last, "rows", &rows, JOB_TIMEOUT_MS, &direct));
	OK(ramps_table_open(last, "slots", &slots, JOB_TIMEOUT_MS, &staged));
	expect_clones(direct, staged);
	ramps_table_close(staged);
	ramps_barrier_close(barrier);
	job_leave(last);
	ramps_table_close(direct);
}

static void clones_of(uint32_t servers)
{
	rounds = job_rounds(6000, 600);
	job_start(servers, 2);
	job_run(2, push_in_clones, 100000);
	job_stop();
}

static void pushes_of_four_clones_at_once_are_exact(void **state)
{
	(void)state;
	clones_of(1);
}

static void pushes_of_four_clones_at_once_to_three_servers_are_exact(void **state)
{
	(void)state;
	clones_of(3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(adds_of_eight_processes_to_few_words_are_exact),
		job_test(adds_of_eight_processes_to_few_words_on_three_servers_are_exact),
		job_test(adds_of_eight_processes_to_scattered_rows_are_exact),
		job_test(adds_of_eight_processes_to_scattered_rows_on_three_servers_are_exact),
		job_test(pushes_of_four_clones_at_once_are_exact),
		job_test(pushes_of_four_clones_at_once_to_three_servers_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/*
 * Servers killed at random moments and started again: every push that its caller was told, or told in the
 * end, has landed counts exactly once. Callers repeat the same call while a server is gone.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define RANKS     4u
#define SERVERS   2u
#define VALUES    (5u * 16384u + 4000u)
#define DIRECT    7000u
#define NOTICE_US 1000000u

static uint64_t *stop, *pushes, *landed; /* pushes: of all; landed: of each rank */
static uint64_t *limits; /* synchronous: pushes to be made; 1: there will be no more */
static uint64_t *again;  /* calls that were repeated */
static uint64_t *opened;
static uint32_t synchronous;

static struct ramps_schema schema_slots(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "slots";
	schema.rows = VALUES;
	schema.mode = RAMPS_SLOTS;
	schema.synchronous = synchronous;
	schema.rate = 1.0f;
	return schema;
}

static struct ramps_schema schema_direct(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "direct";
	schema.rows = 1000;
	schema.dim = 7;
	schema.type = RAMPS_INT64;
	return schema;
}

/* Whole numbers, so that sums are exact; other ones in each push. */
static float gradient_of(uint32_t rank, uint64_t push, uint32_t value)
{
	return (float)((value + 3 * push + rank) % 5) - 2.0f;
}

static int64_t add_of(uint32_t rank, uint64_t push, uint32_t value)
{
	return (int64_t)((value + 7 * push + rank) % 11) - 5;
}

static bool once_more(int ret)
{
	if (ret < 0)
		job_add(again, 1);
	return job_again(ret);
}

static void push_all(struct ramps_table *slots, struct ramps_table *direct, uint32_t rank, uint64_t push)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	static float gradient[VALUES];
	static int64_t adds[DIRECT];

	transfer.level = (push + rank) % 3 ? RAMPS_LANDED : RAMPS_APPLIED;
	/* A synchronous step takes the mean: this way it is a sum of whole numbers. */
	for (uint32_t i = 0; i < VALUES; i++)
		gradient[i] = gradient_of(rank, push, i) * (synchronous ? (float)RANKS : 1.0f);
	while (once_more(ramps_table_push(slots, 0, VALUES, gradient, &transfer, JOB_TIMEOUT_MS)))
		;
	for (uint32_t i = 0; i < DIRECT; i++)
		adds[i] = add_of(rank, push, i);
	while (once_more(ramps_table_push(direct, 0, 1000, adds, NULL, JOB_TIMEOUT_MS)))
		;
}

/* Ranks of a synchronous table make the same number of pushes: rank 0 says how many. */
static bool another(uint32_t rank, uint64_t push)
{
	bool more = !job_get(stop);

	if (!synchronous)
		return more;
	if (!rank) {
		job_set(more ? &limits[0] : &limits[1], more ? push + 1 : 1);
		return more;
	}
	while (job_get(&limits[0]) <= push && !job_get(&limits[1]))
		sched_yield();
	return job_get(&limits[0]) > push;
}

/* The sums follow from how often each residue was added. */
static void expect_all(float weights[VALUES], int64_t sums[DIRECT])
{
	uint64_t gradients[5] = { 0 }, adds[11] = { 0 };

	for (uint32_t rank = 0; rank < RANKS; rank++)
		for (uint64_t push = 0; push < job_get(&landed[rank]); push++) {
			gradients[(3 * push + rank) % 5]++;
			adds[(7 * push + rank) % 11]++;
		}
	memset(weights, 0, VALUES * sizeof(*weights));
	memset(sums, 0, DIRECT * sizeof(*sums));
	for (uint32_t i = 0; i < VALUES; i++)
		for (uint32_t k = 0; k < 5; k++)
			weights[i] -= (float)gradients[k] * gradient_of(k, 0, i);
	for (uint32_t i = 0; i < DIRECT; i++)
		for (uint32_t k = 0; k < 11; k++)
			sums[i] += (int64_t)adds[k] * add_of(k, 0, i);
}

static void compare(struct ramps_table *slots, struct ramps_table *direct)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	static float weights[VALUES], expected[VALUES];
	static int64_t sums[DIRECT], adds[DIRECT];
	uint64_t steps = 0;

	for (uint32_t rank = 0; rank < RANKS; rank++)
		steps += job_get(&landed[rank]);
	expect_all(expected, sums);
	transfer.read = RAMPS_SNAPSHOT;
	while (once_more(ramps_table_pull(slots, 0, VALUES, weights, &transfer, JOB_TIMEOUT_MS)))
		;
	for (uint32_t i = 0; i < VALUES; i++)
		if (weights[i] != expected[i])
			job_fail(__FILE__, __LINE__, "value %u: %g, not %g", i, (double)weights[i],
				 (double)expected[i]);
	CHECK_U64(transfer.steps, synchronous ? steps / RANKS : steps);
	while (once_more(ramps_table_pull(direct, 0, 1000, adds, NULL, JOB_TIMEOUT_MS)))
		;
	for (uint32_t i = 0; i < DIRECT; i++)
		if (adds[i] != sums[i])
			job_fail(__FILE__, __LINE__, "direct value %u: %lld, not %lld", i,
				 (long long)adds[i], (long long)sums[i]);
}

static void push_on(uint32_t rank)
{
	struct ramps_schema slots = schema_slots(), direct = schema_direct();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *tables[2] = { job_table(worker, &slots), job_table(worker, &direct) };
	struct ramps_barrier *barrier = job_barrier(worker, "end");

	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	job_add(opened, 1);
	for (uint64_t push = 0; another(rank, push); push++) {
		push_all(tables[0], tables[1], rank, push);
		job_add(&landed[rank], 1);
		job_add(pushes, 1);
	}
	while (once_more(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS)))
		;
	if (rank == 1)
		compare(tables[0], tables[1]);
	ramps_barrier_close(barrier);
	ramps_table_close(tables[0]);
	ramps_table_close(tables[1]);
	while (once_more(ramps_worker_leave(worker, JOB_TIMEOUT_MS)))
		;
	ramps_worker_close(worker);
}

static void kill_servers_of(uint32_t ranks, job_function *function, uint32_t kills)
{
	uint64_t random = 5;

	stop = job_shared(sizeof(*stop));
	pushes = job_shared(sizeof(*pushes));
	again = job_shared(sizeof(*again));
	opened = job_shared(sizeof(*opened));
	landed = job_shared(RANKS * sizeof(*landed));
	limits = job_shared(2 * sizeof(*limits));
	job.options.slots_bytes = 4u << 16;
	job_start(SERVERS, ranks);
	for (uint32_t i = 0; i < ranks; i++)
		job_spawn(i, function);
	AWAIT(opened, ranks);
	for (uint32_t i = 0; i < kills; i++) {
		uint32_t server = (uint32_t)(job_random(&random) % SERVERS);

		AWAIT(pushes, job_get(pushes) + job_random(&random) % 4 + 1);
		for (uint32_t k = 0; k < ranks; k++)
			job_has_ended(k);
		job_dither(&random, 700);
		job_server_kill(server);
		if (i % 16 == 7)
			job_dither(&random, 30000);
		job_server_spawn(server);
	}
	AWAIT(pushes, job_get(pushes) + 10);
	job_set(stop, 1);
	job_wait(60000);
	print_message("%llu pushes of %u kills, %llu calls repeated\n",
		      (unsigned long long)job_get(pushes), kills, (unsigned long long)job_get(again));
	CHECK(job_get(again) >= kills / 8);
	job_stop();
}

static void pushes_count_once_over_kills_of_servers(void **state)
{
	(void)state;
	synchronous = 0;
	kill_servers_of(RANKS, push_on, job_rounds(500, 20));
}

static void synchronous_pushes_count_once_over_kills_of_servers(void **state)
{
	(void)state;
	synchronous = 1;
	kill_servers_of(RANKS, push_on, job_rounds(500, 20));
}

#define UNDER_WAY 12u

/* Pushes to all rows or from some row on; one in five is a pull. */
static void make_ops(struct ramps_op *ops, struct ramps_table *table)
{
	static float ones[VALUES], got[UNDER_WAY][VALUES];

	for (uint32_t i = 0; i < VALUES; i++)
		ones[i] = -1.0f;
	memset(ops, 0, UNDER_WAY * sizeof(*ops));
	for (uint32_t i = 0; i < UNDER_WAY; i++) {
		ops[i].kind = i % 5 == 2 ? RAMPS_PULL : RAMPS_PUSH;
		ops[i].table = table;
		ops[i].tag = i;
		ops[i].first_row = i % 3 ? 0 : 1000 * i;
		ops[i].rows = VALUES - ops[i].first_row;
		ops[i].data = ops[i].kind == RAMPS_PULL ? got[i] : ones;
	}
}

/* All operations, each once. A server that is gone is the caller's affair, not the operations'. */
static void submit_all(struct ramps_worker *worker, struct ramps_op *ops)
{
	struct ramps_done done[UNDER_WAY];
	uint32_t taken = 0, reaped = 0;
	bool had[UNDER_WAY] = { false };

	while (reaped < UNDER_WAY) {
		int n = ramps_worker_submit(worker, ops + taken, UNDER_WAY - taken);

		if (once_more(n))
			continue;
		taken += (uint32_t)n;
		n = ramps_worker_reap(worker, done, UNDER_WAY, JOB_TIMEOUT_MS);
		if (once_more(n))
			continue;
		CHECK(n > 0);
		for (int i = 0; i < n; i++) {
			CHECK(!done[i].status && !had[done[i].tag]);
			had[done[i].tag] = true;
		}
		reaped += (uint32_t)n;
	}
}

static void submit_on(uint32_t rank)
{
	struct ramps_schema slots = schema_slots();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &slots);
	struct ramps_op ops[UNDER_WAY];
	static float got[VALUES];
	uint64_t rounds = 0;

	make_ops(ops, table);
	job_add(opened, 1);
	for (; !job_get(stop); rounds++) {
		submit_all(worker, ops);
		job_add(pushes, 1);
	}
	while (once_more(ramps_worker_flush(worker, RAMPS_APPLIED, JOB_TIMEOUT_MS)))
		;
	while (once_more(ramps_table_pull(table, 0, VALUES, got, NULL, JOB_TIMEOUT_MS)))
		;
	for (uint32_t i = 0; i < VALUES; i++) {
		uint64_t expected = 0;

		for (uint32_t k = 0; k < UNDER_WAY; k++)
			if (ops[k].kind == RAMPS_PUSH && ops[k].first_row <= i)
				expected += rounds;
		if (got[i] != (float)expected)
			job_fail(__FILE__, __LINE__, "value %u: %g, not %llu", i, (double)got[i],
				 (unsigned long long)expected);
	}
	ramps_table_close(table);
	while (once_more(ramps_worker_leave(worker, JOB_TIMEOUT_MS)))
		;
	ramps_worker_close(worker);
}

static void submitted_pushes_count_once_over_kills_of_servers(void **state)
{
	(void)state;
	synchronous = 0;
	kill_servers_of(1, submit_on, job_rounds(400, 20));
}

/* The rest: what waits learns of the death within a second. */

static uint64_t *killed_at, *ready;

static void learn(int ret)
{
	uint64_t at = job_get(killed_at), now = job_now_us();

	CHECK(at);
	if (ret != -ENOTCONN)
		job_fail(__FILE__, __LINE__, "%d, not -ENOTCONN: %s", ret, ramps_last_error()->text);
	CHECK(*ramps_last_error()->text && *ramps_last_error()->peer);
	if (now - at > NOTICE_US)
		job_fail(__FILE__, __LINE__, "%llu us later", (unsigned long long)(now - at));
}

static void wait_in_barrier(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "never");

	job_add(ready, 1);
	learn(ramps_barrier_wait(barrier, -1));
	ramps_barrier_close(barrier);
	ramps_worker_close(worker);
}

static void wait_for_clock(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_clock *clock;

	OK(ramps_clock_open(worker, "time", &clock));
	OK(ramps_clock_advance(clock, JOB_TIMEOUT_MS));
	job_add(ready, 1);
	learn(ramps_clock_wait(clock, 0, -1));
	ramps_clock_close(clock);
	ramps_worker_close(worker);
}

static void pull_or_push(uint32_t rank)
{
	struct ramps_schema slots = schema_slots(), direct = schema_direct();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table;
	static float values[VALUES];
	static int64_t rows[DIRECT];
	int ret = 0;

	OK(ramps_table_create(worker, rank % 2 ? &slots : &direct, &table));
	job_add(ready, 1);
	while (!ret) {
		uint64_t at = job_get(killed_at);

		CHECK(!at || job_now_us() < at + 5 * NOTICE_US);
		if (rank % 2)
			ret = rank % 4 == 3 ? ramps_table_pull(table, 0, VALUES, values, NULL, -1) :
					      ramps_table_push(table, 0, VALUES, values, NULL, -1);
		else
			ret = rank % 4 == 2 ? ramps_table_pull(table, 0, 1000, rows, NULL, -1) :
					      ramps_table_push(table, 0, 1000, rows, NULL, -1);
	}
	learn(ret);
	ramps_table_close(table);
	ramps_worker_close(worker);
}

/* A push that waits: nobody else takes part in the step. */
static void wait_for_step(uint32_t rank)
{
	struct ramps_schema schema = schema_slots();
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table;
	static float values[VALUES];

	schema.name = "alone";
	schema.synchronous = 1;
	transfer.level = RAMPS_APPLIED;
	OK(ramps_table_create(worker, &schema, &table));
	job_add(ready, 1);
	learn(ramps_table_push(table, 0, VALUES, values, &transfer, -1));
	ramps_table_close(table);
	ramps_worker_close(worker);
}

static void waits_end_within_a_second_of_a_servers_death(void **state)
{
	(void)state;
	synchronous = 0;
	killed_at = job_shared(sizeof(*killed_at));
	ready = job_shared(sizeof(*ready));
	job_start(1, 9);
	for (uint32_t rank = 0; rank < 4; rank++)
		job_spawn(rank, pull_or_push);
	job_spawn(4, wait_for_step);
	job_spawn(5, wait_in_barrier);
	job_spawn(6, wait_for_clock);
	AWAIT(ready, 7);
	job_pause(50); /* so that those who wait sleep */
	job_set(killed_at, job_now_us());
	job_server_kill(0);
	job_wait(20000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(waits_end_within_a_second_of_a_servers_death),
		job_test(submitted_pushes_count_once_over_kills_of_servers),
		job_test(pushes_count_once_over_kills_of_servers),
		job_test(synchronous_pushes_count_once_over_kills_of_servers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

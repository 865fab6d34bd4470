/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/*
 * Workers killed at random moments: what they were told has landed counts, what they had begun counts once
 * or not at all. Each rank notes in shared memory what it is about to push and what it was told has landed;
 * the difference when it dies is unknown.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define RANKS      4u
#define LIST       40u
#define ROWS       (RANKS + 1 + 1000)
#define SHARED_ROW RANKS
#define CHUNK      16384u
#define VALUES     (2 * CHUNK + 100)

struct oracle {
	uint64_t started, acked; /* pushes of this rank, over its lives */
	uint64_t incarnation;
	uint64_t reserved[5];
};

static struct oracle *oracles;
static uint64_t *stop, unknown[RANKS];

static struct ramps_schema schema_of(uint32_t mode)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = mode == RAMPS_DIRECT ? "direct" : "slots";
	schema.rows = mode == RAMPS_DIRECT ? ROWS : VALUES;
	schema.type = mode == RAMPS_DIRECT ? RAMPS_INT64 : RAMPS_FLOAT32;
	schema.mode = mode;
	schema.rate = 1.0f;
	return schema;
}

static void check_life(struct ramps_worker *worker, struct oracle *oracle)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;

	OK(ramps_worker_info(worker, &info));
	CHECK(info.incarnation > job_get(&oracle->incarnation));
	job_set(&oracle->incarnation, info.incarnation);
}

/* One push adds 1 to the rank's own row and LIST - 1 in all to the others. */
static void push_direct(uint32_t rank)
{
	struct oracle *oracle = &oracles[rank];
	struct ramps_worker *worker = job_join(rank);
	struct ramps_schema schema = schema_of(RAMPS_DIRECT);
	struct ramps_table *table = job_table(worker, &schema);
	uint64_t random = rank + 1000 * job_get(&oracle->incarnation), rows[LIST];
	int64_t ones[LIST];

	check_life(worker, oracle);
	for (uint32_t i = 0; i < LIST; i++)
		ones[i] = 1;
	while (!job_get(stop)) {
		rows[0] = rank;
		rows[1] = rows[2] = SHARED_ROW;
		for (uint32_t i = 3; i < LIST; i++)
			rows[i] = SHARED_ROW + 1 + job_random(&random) % 1000;
		job_add(&oracle->started, 1);
		OK(ramps_table_push_rows(table, rows, LIST, ones, NULL, JOB_TIMEOUT_MS));
		job_add(&oracle->acked, 1);
	}
	ramps_table_close(table);
	job_leave(worker);
}

/* One push adds 1 to all values. */
static void push_slots(uint32_t rank)
{
	struct oracle *oracle = &oracles[rank];
	struct ramps_worker *worker = job_join(rank);
	struct ramps_schema schema = schema_of(RAMPS_SLOTS);
	struct ramps_table *table = job_table(worker, &schema);
	static float gradient[VALUES];

	check_life(worker, oracle);
	for (uint32_t i = 0; i < VALUES; i++)
		gradient[i] = -1.0f;
	while (!job_get(stop)) {
		job_add(&oracle->started, 1);
		OK(ramps_table_push(table, 0, VALUES, gradient, NULL, JOB_TIMEOUT_MS));
		job_add(&oracle->acked, 1);
	}
	ramps_table_close(table);
	job_leave(worker);
}

static uint64_t acked_of_all(uint64_t *in_doubt)
{
	uint64_t acked = 0;

	*in_doubt = 0;
	for (uint32_t i = 0; i < RANKS; i++) {
		acked += job_get(&oracles[i].acked);
		*in_doubt += unknown[i];
	}
	return acked;
}

static void check_direct(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_schema schema = schema_of(RAMPS_DIRECT);
	struct ramps_table *table = job_table(worker, &schema);
	uint64_t in_doubt, acked = acked_of_all(&in_doubt), all = 0;
	static uint64_t got[ROWS];

	OK(ramps_table_pull(table, 0, ROWS, got, NULL, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < RANKS; i++) {
		uint64_t own = job_get(&oracles[i].acked);

		if (got[i] < own || got[i] > own + unknown[i])
			job_fail(__FILE__, __LINE__, "rank %u: %llu, acknowledged %llu, unknown %llu",
				 i, (unsigned long long)got[i], (unsigned long long)own,
				 (unsigned long long)unknown[i]);
	}
	CHECK(got[SHARED_ROW] >= 2 * acked && got[SHARED_ROW] <= 2 * (acked + in_doubt));
	for (uint32_t i = 0; i < ROWS; i++)
		all += got[i];
	CHECK(all >= LIST * acked && all <= LIST * (acked + in_doubt));
	print_message("%llu acknowledged, %llu unknown\n", (unsigned long long)acked,
		      (unsigned long long)in_doubt);
	ramps_table_close(table);
	job_leave(worker);
}

static void check_slots(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_schema schema = schema_of(RAMPS_SLOTS);
	struct ramps_table *table = job_table(worker, &schema);
	uint64_t in_doubt, acked = acked_of_all(&in_doubt);
	static float got[VALUES];

	OK(ramps_table_pull(table, 0, VALUES, got, NULL, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < VALUES; i++) {
		float chunk = got[i / CHUNK * CHUNK];

		CHECK(got[i] == chunk);
		if (chunk < (float)acked || chunk > (float)(acked + in_doubt))
			job_fail(__FILE__, __LINE__,
				 "value %u: %g, acknowledged %llu, unknown %llu", i, (double)chunk,
				 (unsigned long long)acked, (unsigned long long)in_doubt);
	}
	print_message("%llu acknowledged, %llu unknown\n", (unsigned long long)acked,
		      (unsigned long long)in_doubt);
	ramps_table_close(table);
	job_leave(worker);
}

static void kill_one(uint32_t rank, job_function *push)
{
	job_kill(rank);
	unknown[rank] += job_get(&oracles[rank].started) - job_get(&oracles[rank].acked);
	job_set(&oracles[rank].started, job_get(&oracles[rank].acked));
	/* What is unknown stays so: only what a later life is told counts as acknowledged. */
	job_spawn(rank, push);
}

static void kill_workers(uint32_t servers, job_function *push, job_function *check)
{
	uint32_t kills = job_rounds(200, 20);
	uint64_t random = servers;

	oracles = job_shared(RANKS * sizeof(*oracles));
	stop = job_shared(sizeof(*stop));
	memset(unknown, 0, sizeof(unknown));
	job.options.on_death = RAMPS_ON_DEATH_CONTINUE;
	job_start(servers, RANKS + 1);
	for (uint32_t i = 0; i < RANKS; i++)
		job_spawn(i, push);
	for (uint32_t i = 0; i < kills; i++) {
		uint32_t rank = (uint32_t)(job_random(&random) % RANKS);

		/* Some lives end while they join. */
		if (job_random(&random) % 8)
			AWAIT(&oracles[rank].acked,
			      job_get(&oracles[rank].acked) + job_random(&random) % 20 + 1);
		job_dither(&random, 2000);
		kill_one(rank, push);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		AWAIT(&oracles[i].acked, job_get(&oracles[i].acked) + 1);
	job_set(stop, 1);
	job_wait(60000);
	job_spawn(RANKS, check);
	job_wait(60000);
	job_stop();
}

static void direct_pushes_of_killed_workers_count_at_most_once(void **state)
{
	(void)state;
	kill_workers(1, push_direct, check_direct);
}

static void direct_pushes_of_killed_workers_to_three_servers_count_at_most_once(void **state)
{
	(void)state;
	kill_workers(3, push_direct, check_direct);
}

static void slots_pushes_of_killed_workers_count_at_most_once(void **state)
{
	(void)state;
	kill_workers(2, push_slots, check_slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(direct_pushes_of_killed_workers_count_at_most_once),
		job_test(direct_pushes_of_killed_workers_to_three_servers_count_at_most_once),
		job_test(slots_pushes_of_killed_workers_count_at_most_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

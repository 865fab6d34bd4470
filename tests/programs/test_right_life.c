/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* How workers and tables begin and end: leaving, closing, forking, initial values. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define VALUES (3u * 16384u + 10u)
#define LARGE  (40u * 16384u)
#define DIM    64u

static uint64_t *ready, *lives;

static struct ramps_schema schema_sync(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "sync";
	schema.rows = VALUES;
	schema.mode = RAMPS_SLOTS;
	schema.synchronous = 1;
	schema.rate = 1.0f;
	return schema;
}

static void push_step(struct ramps_table *table, float value)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	static float gradient[VALUES];

	for (uint32_t i = 0; i < VALUES; i++)
		gradient[i] = -value;
	transfer.level = RAMPS_APPLIED;
	OK(ramps_table_push(table, 0, VALUES, gradient, &transfer, JOB_TIMEOUT_MS));
}

static void expect_all(struct ramps_table *table, float value)
{
	static float got[VALUES];

	OK(ramps_table_pull(table, 0, VALUES, got, NULL, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < VALUES; i++)
		if (got[i] != value)
			job_fail(__FILE__, __LINE__, "value %u is %g, not %g", i, (double)got[i],
				 (double)value);
}

static uint32_t live_ranks(struct ramps_worker *worker)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;

	OK(ramps_worker_info(worker, &info));
	return info.live;
}

/* Three ranks make steps of the mean; rank 2 leaves and comes back. */
static void leave_and_return(uint32_t rank)
{
	struct ramps_schema schema = schema_sync();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	struct ramps_clock *clock;

	OK(ramps_clock_open(worker, "time", &clock));
	push_step(table, (float)rank); /* mean 1 */
	expect_all(table, 1);
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	if (rank == 2) {
		OK(ramps_worker_leave(worker, JOB_TIMEOUT_MS));
		ramps_barrier_close(barrier);
		ramps_clock_close(clock);
		ramps_table_close(table);
		ramps_worker_close(worker);
		job_add(ready, 1);
		AWAIT(ready, 3);
		worker = job_join(rank);
		CHECK(live_ranks(worker) == 3);
		OK(ramps_table_open(worker, "sync", NULL, 0, &table));
		barrier = job_barrier(worker, "all");
		OK(ramps_clock_open(worker, "time", &clock));
		job_add(ready, 1);
	} else {
		AWAIT(ready, 1);
		CHECK(live_ranks(worker) == 2);
		for (uint32_t i = 0; i < 10; i++) {
			push_step(table, (float)rank * 2); /* mean 1 */
			expect_all(table, (float)i + 2);
			OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
			OK(ramps_clock_advance(clock, JOB_TIMEOUT_MS));
			OK(ramps_clock_wait(clock, 0, JOB_TIMEOUT_MS));
			OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
		}
		job_add(ready, 1);
		AWAIT(ready, 4);
	}
	expect_all(table, 11);
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	push_step(table, (float)rank);
	expect_all(table, 12);
	OK(ramps_clock_wait(clock, 0, 0));
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	ramps_clock_close(clock);
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	job_leave(worker);
}

static void who_left_is_not_waited_for_and_may_come_back(void **state)
{
	(void)state;
	ready = job_shared(sizeof(*ready));
	job_start(2, 3);
	job_run(3, leave_and_return, 30000);
	job_stop();
}

static void close_first(uint32_t rank)
{
	struct ramps_schema sync = schema_sync(), direct = RAMPS_SCHEMA_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *slots = job_table(worker, &sync), *words;
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	struct ramps_clock *clock;
	float value = 0;
	const uint64_t row = 0;
	uint64_t own;

	direct.name = "words";
	words = job_table(worker, &direct);
	OK(ramps_clock_open(worker, "time", &clock));
	OK(ramps_worker_leave(worker, JOB_TIMEOUT_MS));
	ramps_worker_close(worker);
	EXPECT(ramps_table_pull(slots, 0, 1, &value, NULL, 0), -ENOTCONN);
	EXPECT(ramps_table_pull(words, 0, 1, &value, NULL, 0), -ENOTCONN);
	EXPECT(ramps_table_push(words, 0, 1, &value, NULL, -1), -ENOTCONN);
	EXPECT(ramps_table_push_rows(words, &row, 1, &value, NULL, -1), -ENOTCONN);
	EXPECT(ramps_barrier_arrive(barrier, -1), -ENOTCONN);
	EXPECT(ramps_barrier_wait(barrier, -1), -ENOTCONN);
	EXPECT(ramps_clock_advance(clock, -1), -ENOTCONN);
	EXPECT(ramps_clock_wait(clock, 0, -1), -ENOTCONN);
	EXPECT(ramps_clock_read(clock, &own, NULL), -ENOTCONN);
	CHECK(*ramps_last_error()->text);
	ramps_clock_close(clock);
	ramps_barrier_close(barrier);
	ramps_table_close(words);
	ramps_table_close(slots);
}

static void calls_after_the_workers_close_say_so(void **state)
{
	(void)state;
	job_start(2, 1);
	job_run(1, close_first, 30000);
	job_stop();
}

static void in_the_child(struct ramps_worker *worker, struct ramps_table *table,
			 struct ramps_barrier *barrier)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_done done;
	struct ramps_worker *own;
	int64_t value = 1000, all[3];

	EXPECT(ramps_table_pull(table, 0, 1, &value, NULL, 0), -ENOTCONN);
	EXPECT(ramps_table_push(table, 0, 1, &value, NULL, 0), -ENOTCONN);
	EXPECT(ramps_barrier_wait(barrier, 1000), -ENOTCONN);
	EXPECT(ramps_worker_flush(worker, RAMPS_APPLIED, 1000), -ENOTCONN);
	EXPECT(ramps_worker_info(worker, &info), -ENOTCONN);
	EXPECT(ramps_worker_reap(worker, &done, 1, 0), -ENOTCONN);
	EXPECT(ramps_worker_leave(worker, 1000), -ENOTCONN);
	own = job_join(1);
	ramps_table_close(table);
	ramps_barrier_close(barrier);
	ramps_worker_close(worker);
	OK(ramps_table_open(own, "words", NULL, 1000, &table));
	OK(ramps_table_push(table, 1, 1, &value, NULL, JOB_TIMEOUT_MS));
	OK(ramps_table_pull(table, 0, 3, all, NULL, JOB_TIMEOUT_MS));
	CHECK(all[1] == 1000);
	barrier = job_barrier(own, "all");
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	job_leave(own);
}

static void fork_once(uint32_t rank)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	struct ramps_table *table;
	int64_t value = 1;
	int status;
	pid_t child;

	schema.name = "words";
	schema.rows = 3;
	schema.type = RAMPS_INT64;
	table = job_table(worker, &schema);
	OK(ramps_table_push(table, 0, 1, &value, NULL, JOB_TIMEOUT_MS));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		in_the_child(worker, table, barrier);
		exit(0);
	}
	for (uint32_t i = 0; i < 100; i++) /* the parent's stays as good as it was */
		OK(ramps_table_push(table, 0, 1, &value, NULL, JOB_TIMEOUT_MS));
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	CHECK(waitpid(child, &status, 0) == child && !status);
	CHECK(live_ranks(worker) == 1);
	OK(ramps_table_push(table, 0, 1, &value, NULL, JOB_TIMEOUT_MS));
	OK(ramps_table_pull(table, 0, 1, &value, NULL, JOB_TIMEOUT_MS));
	CHECK(value == 102);
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	ramps_table_close(table);
	ramps_barrier_close(barrier);
	job_leave(worker);
}

static void child_after_fork_may_only_close_and_join_anew(void **state)
{
	(void)state;
	job_start(2, 2);
	job_spawn(0, fork_once);
	job_wait(30000);
	job_stop();
}

static uint32_t large(void)
{
	return job_quick() ? LARGE / 5 : LARGE;
}

static struct ramps_schema schema_with(uint32_t kind, const void *initial)
{
	static const char *const names[3] = { "words", "fixed", "slots" };
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = names[kind];
	schema.rows = large() / DIM;
	schema.dim = DIM;
	schema.type = kind ? RAMPS_FLOAT32 : RAMPS_INT64;
	schema.mode = kind == 2 ? RAMPS_SLOTS : RAMPS_DIRECT;
	schema.initial = initial;
	return schema;
}

static int64_t words[LARGE];
static float floats[LARGE];

static void make_initial(void)
{
	for (uint32_t i = 0; i < LARGE; i++) {
		words[i] = ((int64_t)i << 35) - 12345;
		floats[i] = (float)((int32_t)i - 300000) / 64.0f;
	}
}

static const void *initial_of(uint32_t kind)
{
	return kind ? (const void *)floats : words;
}

static void expect_initial(struct ramps_table *table, uint32_t kind)
{
	static int64_t got[LARGE];
	size_t bytes = large() * (kind ? sizeof(*floats) : sizeof(*words));

	OK(ramps_table_pull(table, 0, large() / DIM, got, NULL, JOB_TIMEOUT_MS));
	CHECK(!memcmp(got, initial_of(kind), bytes));
}

/* Every rank creates all tables, as if it were the first. */
static void create_all(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *tables[3];
	uint64_t random = rank * 77;

	job_add(ready, 1);
	AWAIT(ready, job.workers);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t kind = (i + rank) % 3;
		struct ramps_schema schema = schema_with(kind, initial_of(kind));

		job_dither(&random, 20000);
		OK(ramps_table_create(worker, &schema, &tables[kind]));
		expect_initial(tables[kind], kind);
	}
	for (uint32_t kind = 0; kind < 3; kind++)
		ramps_table_close(tables[kind]);
	job_leave(worker);
}

static void create_together(uint32_t servers)
{
	make_initial();
	for (uint32_t round = 0; round < job_rounds(10, 2); round++) {
		ready = job_shared(sizeof(*ready));
		job.options.slots_bytes = 4u << 16;
		job_start(servers, 4);
		job_run(4, create_all, 60000);
		job_stop();
		job_teardown(NULL);
		job_setup(NULL);
	}
}

static void tables_created_by_all_at_once_have_their_initial_values(void **state)
{
	(void)state;
	create_together(1);
}

static void tables_created_on_three_servers_at_once_have_their_initial_values(void **state)
{
	(void)state;
	create_together(3);
}

static uint32_t wanted;

static void create_one(uint32_t rank)
{
	struct ramps_schema schema = schema_with(wanted, initial_of(wanted));
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table;

	job_add(lives, 1);
	OK(ramps_table_create(worker, &schema, &table));
	job_add(ready, 1);
	expect_initial(table, wanted);
	ramps_table_close(table);
	job_leave(worker);
}

/* Where the policy is to fail, waiting ends with the creator's death: then it is asked again. */
static void open_one(uint32_t rank)
{
	struct ramps_schema schema = schema_with(wanted, NULL);
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table;
	uint64_t deadline = job_now_us() + JOB_TIMEOUT_MS * 1000ull;
	int ret;

	while ((ret = ramps_table_open(worker, schema.name, &schema, JOB_TIMEOUT_MS, &table))) {
		if (ret != -EOWNERDEAD || job.options.on_death != RAMPS_ON_DEATH_FAIL)
			OK(ret);
		CHECK(job_now_us() < deadline && ramps_last_error()->rank_count == 1);
		CHECK(ramps_last_error()->ranks[0] == 0);
		sched_yield();
	}
	expect_initial(table, wanted);
	ramps_table_close(table);
	job_leave(worker);
}

/* The creator is killed, mostly while it fills the table in, and its next life completes it. */
static void kill_the_creator(uint32_t kind, uint32_t servers)
{
	uint64_t random = kind;
	uint32_t halves = 0;

	wanted = kind;
	make_initial();
	for (uint32_t round = 0; round < job_rounds(24, 4); round++) {
		ready = job_shared(sizeof(*ready));
		lives = job_shared(sizeof(*lives));
		job.options.on_death = round % 2 ? RAMPS_ON_DEATH_CONTINUE : RAMPS_ON_DEATH_FAIL;
		job.options.slots_bytes = 4u << 16;
		job_start(servers, 3);
		job_spawn(0, create_one);
		job_spawn(1, open_one);
		job_spawn(2, open_one);
		AWAIT(lives, 1);
		job_dither(&random, (kind ? 3000 : 12000) * large() / LARGE);
		halves += !job_get(ready);
		job_kill(0);
		job_spawn(0, create_one);
		job_wait(60000);
		job_stop();
		job_teardown(NULL);
		job_setup(NULL);
	}
	print_message("%u creators killed before they were done\n", halves);
	CHECK(halves);
}

static void direct_table_of_a_killed_creator_is_completed(void **state)
{
	(void)state;
	kill_the_creator(0, 2);
}

static void slots_table_of_a_killed_creator_is_completed(void **state)
{
	(void)state;
	kill_the_creator(2, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(who_left_is_not_waited_for_and_may_come_back),
		job_test(calls_after_the_workers_close_say_so),
		job_test(child_after_fork_may_only_close_and_join_anew),
		job_test(tables_created_by_all_at_once_have_their_initial_values),
		job_test(tables_created_on_three_servers_at_once_have_their_initial_values),
		job_test(direct_table_of_a_killed_creator_is_completed),
		job_test(slots_table_of_a_killed_creator_is_completed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

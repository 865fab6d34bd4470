/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* What readers see: snapshots, views, and what was pushed before. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define PUSHERS 3u
#define CHUNK   16384u
#define CHUNKS  4u
#define VALUES  (3 * CHUNK + 1000)

static uint64_t *stop, *ready, *applied;
static uint32_t rounds, synchronous;

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

/* Each update adds one to all values of a chunk: the values say how many updates they are of. */
static void push_ones(uint32_t rank)
{
	struct ramps_schema schema = schema_slots();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema);
	static float gradient[VALUES];

	for (uint32_t i = 0; i < VALUES; i++)
		gradient[i] = -1.0f;
	job_add(ready, 1);
	AWAIT(ready, job.workers);
	for (uint32_t i = 0; synchronous ? i < rounds : !job_get(stop); i++)
		OK(ramps_table_push(table, 0, VALUES, gradient, NULL, JOB_TIMEOUT_MS));
	ramps_table_close(table);
	if (synchronous) /* leaving waits for the applying of pushes, as long as another reads */
		AWAIT(stop, 1);
	job_leave(worker);
}

struct reader {
	uint64_t random, steps, torn_pulls, pulls, moved;
	float last[CHUNKS];
};

/* A snapshot of some rows: whole chunks, parts of them, single values. */
static void read_some(struct ramps_table *table, struct reader *reader)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	uint64_t first = job_random(&reader->random) % VALUES;
	uint64_t n = job_random(&reader->random) % (VALUES - first) + 1;
	static float got[VALUES];
	float least = INFINITY;
	int ret;

	if (job_random(&reader->random) % 4 == 0) {
		first = 0;
		n = VALUES;
	}
	transfer.read = RAMPS_SNAPSHOT;
	ret = ramps_table_pull(table, first, n, got, &transfer, JOB_TIMEOUT_MS);
	if (ret == -EAGAIN) {
		reader->torn_pulls++;
		return;
	}
	OK(ret);
	reader->pulls++;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t chunk = (first + i) / CHUNK, start = chunk * CHUNK;
		float value = got[start > first ? start - first : 0];

		if (got[i] != value)
			job_fail(__FILE__, __LINE__, "value %llu: %g beside %g",
				 (unsigned long long)(first + i), (double)got[i], (double)value);
		if (i && (first + i) % CHUNK)
			continue;
		CHECK(value >= reader->last[chunk]); /* never goes back */
		reader->moved += value > reader->last[chunk];
		reader->last[chunk] = value;
		least = value < least ? value : least;
	}
	/* The steps are of the data that came with them. */
	CHECK_U64(transfer.steps, (uint64_t)least);
}

static void read_snapshots(uint32_t rank)
{
	struct ramps_schema schema = schema_slots();
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema);
	struct reader reader = { .random = rank };

	job_add(ready, 1);
	AWAIT(ready, job.workers);
	while (reader.pulls + reader.torn_pulls < rounds || reader.moved < 20)
		read_some(table, &reader);
	CHECK(reader.pulls > reader.torn_pulls / 100);
	print_message("%llu snapshots, %llu tries given up, %llu times news\n",
		      (unsigned long long)reader.pulls, (unsigned long long)reader.torn_pulls,
		      (unsigned long long)reader.moved);
	job_add(applied, 1);
	ramps_table_close(table);
	job_leave(worker);
}

static void read_while_pushed(uint32_t servers)
{
	synchronous = 0;
	rounds = job_rounds(20000, 600);
	stop = job_shared(sizeof(*stop));
	ready = job_shared(sizeof(*ready));
	applied = job_shared(sizeof(*applied));
	job_start(servers, PUSHERS + 2);
	for (uint32_t i = 0; i < PUSHERS; i++)
		job_spawn(i, push_ones);
	for (uint32_t i = PUSHERS; i < PUSHERS + 2; i++)
		job_spawn(i, read_snapshots);
	AWAIT(applied, 2);
	job_set(stop, 1);
	job_wait(60000);
	job_stop();
}

static void snapshot_is_never_torn(void **state)
{
	(void)state;
	read_while_pushed(1);
}

static void snapshot_over_three_servers_is_never_torn(void **state)
{
	(void)state;
	read_while_pushed(3);
}

static void *read_in_clone(void *arg)
{
	struct ramps_schema schema = schema_slots();
	struct ramps_worker *worker = arg;
	struct reader reader = { .random = 9 };
	struct ramps_table *table;

	OK(ramps_table_open(worker, "slots", &schema, JOB_TIMEOUT_MS, &table));
	while (reader.last[0] < (float)rounds || reader.last[CHUNKS - 1] < (float)rounds)
		read_some(table, &reader);
	CHECK(reader.last[0] == (float)rounds && reader.last[CHUNKS - 1] == (float)rounds);
	job_set(stop, 1);
	ramps_table_close(table);
	ramps_worker_close(worker);
	return NULL;
}

static void push_and_read(uint32_t rank)
{
	struct ramps_schema schema = schema_slots();
	struct ramps_worker *worker = job_join(rank), *clone;
	struct ramps_table *table = job_table(worker, &schema);
	static float gradient[VALUES];
	pthread_t thread;

	for (uint32_t i = 0; i < VALUES; i++)
		gradient[i] = -1.0f;
	OK(ramps_worker_clone(worker, &clone));
	CHECK(!pthread_create(&thread, NULL, read_in_clone, clone));
	job_add(ready, 1);
	AWAIT(ready, job.workers);
	for (uint32_t i = 0; i < rounds; i++)
		OK(ramps_table_push(table, 0, VALUES, gradient, NULL, JOB_TIMEOUT_MS));
	CHECK(!pthread_join(thread, NULL));
	ramps_table_close(table);
	job_leave(worker);
}

static void snapshot_of_synchronous_steps_is_never_torn(void **state)
{
	(void)state;
	synchronous = 1;
	rounds = job_rounds(1000, 100);
	stop = job_shared(sizeof(*stop));
	ready = job_shared(sizeof(*ready));
	job_start(1, PUSHERS);
	job_spawn(0, push_and_read);
	job_spawn(1, push_ones);
	job_spawn(2, push_ones);
	job_wait(100000);
	job_stop();
}

static void await_value(const float *value, float expected)
{
	uint64_t deadline = job_now_us() + 20000000u;
	float now;

	for (;;) {
		__atomic_load(value, &now, __ATOMIC_ACQUIRE);
		if (now == expected)
			return;
		if (job_now_us() > deadline)
			job_fail(__FILE__, __LINE__, "%g, not %g", (double)now, (double)expected);
	}
}

static void push_one(struct ramps_table *table, float value)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	static float gradient[VALUES];

	for (uint32_t i = 0; i < VALUES; i++)
		gradient[i] = -value;
	while (job_again(ramps_table_push(table, 0, VALUES, gradient, &transfer, JOB_TIMEOUT_MS)))
		;
}

/* Takes what address space becomes free, so that nothing that was unmapped comes back to its place by luck. */
static void *occupy(void *arg)
{
	const uint64_t *end = arg;

	while (!job_get(end)) {
		void *at = mmap(NULL, 1u << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		void *large = mmap(NULL, 256u << 20, PROT_READ,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		sched_yield();
		CHECK(at != MAP_FAILED && large != MAP_FAILED);
		munmap(at, 1u << 16);
		munmap(large, 256u << 20);
	}
	return NULL;
}

/* Rank 1 pushes, rank 0 looks on; between the rounds the server is killed and started again. */
static void look_on(uint32_t rank)
{
	struct ramps_schema schema = schema_slots(), counters = RAMPS_SCHEMA_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema), *words;
	const void *view = NULL, *tail = NULL, *word = NULL;
	const int64_t five = 5;
	static float copy[VALUES];
	uint64_t end = 0;
	pthread_t occupier;

	CHECK(!pthread_create(&occupier, NULL, occupy, &end));
	counters.name = "counters";
	counters.rows = 3;
	counters.type = RAMPS_INT64;
	words = job_table(worker, &counters);
	OK(ramps_table_view(table, 0, VALUES, &view));
	OK(ramps_table_view(table, VALUES - 1, 1, &tail));
	CHECK((const float *)tail == (const float *)view + VALUES - 1);
	OK(ramps_table_view(words, 1, 1, &word));
	for (uint32_t round = 0; round < rounds; round++) {
		if (rank) {
			push_one(table, 1.0f);
			while (job_again(ramps_table_push(words, 1, 1, &five, NULL, JOB_TIMEOUT_MS)))
				;
		}
		await_value((const float *)tail, (float)(round + 1));
		await_value(view, (float)(round + 1));
		AWAIT((const uint64_t *)word, 5 * (round + 1));
		CHECK_U64(job_get(word), 5 * (round + 1));
		job_add(ready, 1);
		AWAIT(stop, round + 1);
	}
	while (job_again(ramps_table_pull(table, 0, VALUES, copy, NULL, JOB_TIMEOUT_MS)))
		;
	CHECK(!memcmp(copy, view, sizeof(copy)));
	job_set(&end, 1);
	CHECK(!pthread_join(occupier, NULL));
	/* A view holds until its own table is closed. */
	ramps_table_close(words);
	await_value(tail, (float)rounds);
	ramps_table_close(table);
	while (job_again(ramps_worker_leave(worker, JOB_TIMEOUT_MS)))
		;
	ramps_worker_close(worker);
}

static void views_see_updates_before_and_after_a_servers_restart(void **state)
{
	(void)state;
	synchronous = 0;
	rounds = job_rounds(40, 15);
	stop = job_shared(sizeof(*stop));
	ready = job_shared(sizeof(*ready));
	job_start(1, 2);
	job_spawn(0, look_on);
	job_spawn(1, look_on);
	for (uint32_t round = 0; round < rounds; round++) {
		AWAIT(ready, 2 * round + 2);
		job_server_kill(0);
		job_server_spawn(0);
		job_set(stop, round + 1);
	}
	job_wait(60000);
	job_stop();
}

static void view_what_can_not_be(uint32_t rank)
{
	struct ramps_schema slots = schema_slots(), fixed = RAMPS_SCHEMA_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &slots), *direct;
	const void *view;

	fixed.name = "fixed";
	fixed.rows = 10;
	direct = job_table(worker, &fixed);
	EXPECT(ramps_table_view(table, 0, VALUES, &view), -EXDEV);
	OK(ramps_table_view(table, 0, 1, &view));
	OK(ramps_table_view(table, VALUES - 1, 1, &view));
	EXPECT(ramps_table_view(table, VALUES - 1, 2, &view), -ERANGE);
	EXPECT(ramps_table_view(direct, 0, 1, &view), -EOPNOTSUPP);
	ramps_table_close(direct);
	ramps_table_close(table);
	job_leave(worker);
}

static void view_over_servers_or_of_fixed_point_is_refused(void **state)
{
	(void)state;
	synchronous = 0;
	job_start(3, 1);
	job_run(1, view_what_can_not_be, 30000);
	job_stop();
}

/* Each rank in turn pushes to the level that should do, and says so; the others then read. */
static void applied_then_pull(uint32_t rank)
{
	struct ramps_schema slots = schema_slots(), words = RAMPS_SCHEMA_INIT;
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &slots), *direct;
	static float values[VALUES];
	int64_t word, one = 1;

	words.name = "words";
	words.rows = 100;
	words.type = RAMPS_INT64;
	direct = job_table(worker, &words);
	for (uint32_t i = 0; i < rounds; i++) {
		if (i % job.workers == rank) {
			for (uint32_t k = 0; k < VALUES; k++)
				values[k] = -1.0f;
			transfer.level = i % 3 ? RAMPS_APPLIED : RAMPS_LANDED;
			OK(ramps_table_push(table, 0, VALUES, values, &transfer, JOB_TIMEOUT_MS));
			if (transfer.level != RAMPS_APPLIED)
				OK(ramps_worker_flush(worker, RAMPS_APPLIED, JOB_TIMEOUT_MS));
			transfer.level = i % 2 ? RAMPS_APPLIED : RAMPS_LANDED;
			OK(ramps_table_push(direct, 99, 1, &one, &transfer, JOB_TIMEOUT_MS));
			job_add(applied, 1);
		}
		AWAIT(applied, i + 1);
		OK(ramps_table_pull(table, 0, VALUES, values, NULL, JOB_TIMEOUT_MS));
		for (uint32_t k = 0; k < VALUES; k++)
			CHECK(values[k] == (float)(i + 1));
		OK(ramps_table_pull(direct, 99, 1, &word, NULL, JOB_TIMEOUT_MS));
		CHECK(word == i + 1);
		job_add(ready, 1);
		AWAIT(ready, (i + 1) * job.workers);
	}
	ramps_table_close(direct);
	ramps_table_close(table);
	job_leave(worker);
}

static void applied_push_is_in_a_later_pull_of_another(void **state)
{
	(void)state;
	synchronous = 0;
	rounds = job_rounds(600, 60);
	ready = job_shared(sizeof(*ready));
	applied = job_shared(sizeof(*applied));
	job_start(2, 2);
	job_run(2, applied_then_pull, 60000);
	job_stop();
}

/* All push at levels of chance, meet, and read; then meet again, so that nobody pushes while others read. */
static void meet_then_pull(uint32_t rank)
{
	struct ramps_schema slots = schema_slots(), words = RAMPS_SCHEMA_INIT;
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &slots), *direct;
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	static float values[VALUES], gradient[VALUES];
	static int64_t ones[2000], got[2000];
	uint64_t random = rank;

	words.name = "words";
	words.rows = 2000;
	words.type = RAMPS_INT64;
	direct = job_table(worker, &words);
	for (uint32_t k = 0; k < VALUES; k++)
		gradient[k] = -(float)job.workers; /* synchronous: the mean adds workers */
	for (uint32_t k = 0; k < 2000; k++)
		ones[k] = 1;
	for (uint32_t i = 0; i < rounds; i++) {
		float expected = (float)((i + 1) * job.workers * (synchronous ? 1 : job.workers));

		transfer.level = job_random(&random) % 2 ? RAMPS_POSTED : RAMPS_LANDED;
		OK(ramps_table_push(table, 0, VALUES, gradient, &transfer, JOB_TIMEOUT_MS));
		transfer.level = job_random(&random) % 2 ? RAMPS_POSTED : RAMPS_LANDED;
		OK(ramps_table_push(direct, 0, 2000, ones, &transfer, JOB_TIMEOUT_MS));
		OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
		OK(ramps_table_pull(table, 0, VALUES, values, NULL, JOB_TIMEOUT_MS));
		for (uint32_t k = 0; k < VALUES; k++)
			if (values[k] != expected)
				job_fail(__FILE__, __LINE__, "round %u value %u: %g, not %g", i, k,
					 (double)values[k], (double)expected);
		OK(ramps_table_pull(direct, 0, 2000, got, NULL, JOB_TIMEOUT_MS));
		for (uint32_t k = 0; k < 2000; k++)
			CHECK(got[k] == (i + 1) * job.workers);
		OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	}
	ramps_barrier_close(barrier);
	ramps_table_close(direct);
	ramps_table_close(table);
	job_leave(worker);
}

static void meet(uint32_t servers, uint32_t workers, uint32_t in_steps)
{
	synchronous = in_steps;
	rounds = job_rounds(300, 30);
	job_start(servers, workers);
	job_run(workers, meet_then_pull, 60000);
	job_stop();
}

static void barrier_makes_all_pushes_visible(void **state)
{
	(void)state;
	meet(1, 4, 0);
}

static void barrier_makes_all_pushes_to_three_servers_visible(void **state)
{
	(void)state;
	meet(3, 3, 0);
}

static void barrier_makes_all_synchronous_pushes_visible(void **state)
{
	(void)state;
	meet(3, 4, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(snapshot_is_never_torn),
		job_test(snapshot_over_three_servers_is_never_torn),
		job_test(snapshot_of_synchronous_steps_is_never_torn),
		job_test(views_see_updates_before_and_after_a_servers_restart),
		job_test(view_over_servers_or_of_fixed_point_is_refused),
		job_test(applied_push_is_in_a_later_pull_of_another),
		job_test(barrier_makes_all_pushes_visible),
		job_test(barrier_makes_all_pushes_to_three_servers_visible),
		job_test(barrier_makes_all_synchronous_pushes_visible),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

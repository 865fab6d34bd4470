/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fixed runs for counting instructions (tests/perf/instructions starts this under callgrind). Each
 * is counted by itself, ROUNDS times, of which the least counts: now and then a call looks whether
 * its server is still there, by the clock.
 *
 * The server is stepped by a thread only while things are set up. While anything is counted it
 * stands still, so that nothing depends on how far it is.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_ZERO_STATS          abort()
#define CALLGRIND_TOGGLE_COLLECT      abort()
#define CALLGRIND_DUMP_STATS_AT(name) abort()
#endif

#include <ramps/ramps.h>

#include "core/arena.h"
#include "ps/ps.h"
#include "shm/shm.h"

#define ROUNDS    9
#define LIST_ROWS 256
#define CHUNK     (CORE_CHUNK_BYTES / sizeof(float))
#define VALUES    (1u << 16)

static struct ps_server *server;
static uint32_t stop;

static struct ramps_worker *workers[2];
static struct ramps_table *counters, *weights;
static struct ramps_barrier *barriers[2];
static struct ramps_clock *clock_of_0;
static uint64_t rows[LIST_ROWS];
static int64_t ones[LIST_ROWS], words[512];
static float gradient[CHUNK];
static uint32_t calls_failed;

static void need(const char *what, int ret)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, ramps_last_error()->text);
	exit(1);
}

static void *serve(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		if (!ps_step(server))
			sched_yield();
	return NULL;
}

static void set_up_worker(uint32_t rank, const char *address)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;

	options.servers = address;
	options.rank = rank;
	options.workers = 2;
	options.timeout_ms = 60000;
	need("join", ramps_worker_join(&options, &workers[rank]));
	need("barrier", ramps_barrier_open(workers[rank], "b", NULL, &barriers[rank]));
}

static void set_up_tables(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "counters";
	schema.rows = VALUES;
	schema.type = RAMPS_INT64;
	need("table", ramps_table_create(workers[0], &schema, &counters));
	schema.name = "weights";
	schema.dim = 1;
	schema.rows = CHUNK;
	schema.type = RAMPS_FLOAT32;
	schema.mode = RAMPS_SLOTS;
	need("table", ramps_table_create(workers[0], &schema, &weights));
	need("clock", ramps_clock_open(workers[0], "c", &clock_of_0));
	for (uint32_t i = 0; i < LIST_ROWS; i++) {
		rows[i] = (i * 40503u) % VALUES;
		ones[i] = 1;
	}
	for (uint32_t i = 0; i < CHUNK; i++)
		gradient[i] = 1e-3f;
}

static void calls(int ret)
{
	calls_failed += ret < 0;
}

/* The calls of each, which the names below repeat. */
#define REPEAT(n) for (int i = 0; i < (n); i++)

static void measure_pull_8(void)
{
	REPEAT(64)
	calls(ramps_table_pull(counters, 7, 1, words, NULL, -1));
}

static void measure_pull_4096(void)
{
	REPEAT(64)
	calls(ramps_table_pull(counters, 512, 512, words, NULL, -1));
}

static void measure_pull_64K(void)
{
	REPEAT(4)
	calls(ramps_table_pull(weights, 0, CHUNK, gradient, NULL, -1));
}

static void measure_push_8(void)
{
	REPEAT(64)
	calls(ramps_table_push(counters, 7, 1, ones, NULL, -1));
}

static void measure_push_rows_256(void)
{
	REPEAT(4)
	calls(ramps_table_push_rows(counters, rows, LIST_ROWS, ones, NULL, -1));
}

/* A fetch-add as others name it: one word anywhere. */
static void measure_fetch_add(void)
{
	REPEAT(64)
	calls(ramps_table_push_rows(counters, rows + i, 1, ones, NULL, -1));
}

static void measure_push_chunk_posted(void)
{
	struct ramps_transfer how = RAMPS_TRANSFER_INIT;

	how.level = RAMPS_POSTED;
	REPEAT(4)
	calls(ramps_table_push(weights, 0, CHUNK, gradient, &how, -1));
}

static void measure_barrier_last(void)
{
	calls(ramps_barrier_wait(barriers[0], -1));
}

static void measure_clock_read(void)
{
	uint64_t own, slowest;

	REPEAT(64)
	calls(ramps_clock_read(clock_of_0, &own, &slowest));
}

static void others_arrive(void)
{
	calls(ramps_barrier_arrive(barriers[1], -1));
}

static void others_leave(void)
{
	calls(ramps_barrier_wait(barriers[1], -1));
}

static void none(void)
{
}

static const struct {
	const char *name;
	int calls;
	void (*before)(void), (*measured)(void), (*after)(void);
} runs[] = {
	{ "pull_8", 64, none, measure_pull_8, none },
	{ "pull_4096", 64, none, measure_pull_4096, none },
	{ "pull_64K", 4, none, measure_pull_64K, none },
	{ "push_8", 64, none, measure_push_8, none },
	{ "push_rows_256", 4, none, measure_push_rows_256, none },
	{ "fetch_add", 64, none, measure_fetch_add, none },
	{ "barrier_last", 1, others_arrive, measure_barrier_last, others_leave },
	{ "clock_read", 64, none, measure_clock_read, none },
	/* Last: it leaves pushes that nobody applies. */
	{ "push_chunk_posted", 4, none, measure_push_chunk_posted, none },
};

static void measure(void)
{
	for (size_t r = 0; r < sizeof(runs) / sizeof(runs[0]); r++) {
		printf("%s %d\n", runs[r].name, runs[r].calls);
		for (int round = 0; round < ROUNDS; round++) {
			runs[r].before();
			CALLGRIND_ZERO_STATS;
			CALLGRIND_TOGGLE_COLLECT;
			runs[r].measured();
			CALLGRIND_TOGGLE_COLLECT;
			CALLGRIND_DUMP_STATS_AT(runs[r].name);
			runs[r].after();
		}
	}
}

int main(void)
{
	const char *address = "shm://instructions";
	char directory[256];
	struct core_arena_options options = {
		.directory = directory,
		.job = "default",
		.arena_bytes = 256u << 20,
		.max_workers = 2,
		.cells = 8 * ROUNDS,
		.fresh = true,
	};
	struct core_arena *arena;
	struct fabric *fabric;
	pthread_t thread;

	if (shm_directory(address, directory, sizeof(directory)) ||
	    core_arena_open(&options, &arena) || shm_open_fabric(&fabric) ||
	    ps_open(fabric, arena, address, &server) || pthread_create(&thread, NULL, serve, NULL)) {
		fprintf(stderr, "no server\n");
		return 1;
	}
	set_up_worker(0, address);
	set_up_worker(1, address);
	set_up_tables();
	calls(ramps_table_push(weights, 0, CHUNK, gradient, NULL, -1));
	need("flush", ramps_worker_flush(workers[0], RAMPS_APPLIED, -1));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	measure();
	ramps_worker_close(workers[0]);
	ramps_worker_close(workers[1]);
	ps_close(server);
	fabric_close(fabric);
	core_arena_close(arena, true);
	if (calls_failed)
		fprintf(stderr, "%u calls failed: %s\n", calls_failed, ramps_last_error()->text);
	return calls_failed != 0;
}

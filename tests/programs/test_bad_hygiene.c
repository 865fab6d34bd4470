/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 240 s */
/* What is opened and closed a thousand times, in good order or with errors, leaves nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/bad_peer.h"
#include "programs/bad_support.h"

#include <cmocka.h>

#define TIMES 1000u
#define SLACK 65536 /* bytes of heap that a thousand rounds may leave in caches */

static struct bad_job job;

static int begin(void **state)
{
	int ret = bad_setup(state);

	if (!ret)
		bad_job_begin(&job);
	return ret;
}

static int end(void **state)
{
	bad_job_end(&job);
	return bad_teardown(state);
}

struct holdings {
	int descriptors, mappings;
	size_t heap_bytes;
};

static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	must(dir != NULL);
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* Of files: what the allocator and sanitizers map is their own affair. */
static int count_mappings(pid_t pid)
{
	char path[64], line[512];
	int count = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	must(maps != NULL);
	while (fgets(line, sizeof(line), maps))
		count += strchr(line, '/') != NULL;
	fclose(maps);
	return count;
}

static struct holdings look(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	return (struct holdings){
		.descriptors = count_entries(path),
		.mappings = count_mappings(pid),
		.heap_bytes = mallinfo2().uordblks,
	};
}

/* The server takes a moment to see that somebody has gone. */
static void wait_for_server(const struct holdings *wanted)
{
	const int64_t deadline = bad_now_ms() + 10000;
	struct holdings now;

	do {
		now = look(job.server.pid);
		must(bad_now_ms() < deadline);
	} while (now.descriptors > wanted->descriptors || now.mappings > wanted->mappings);
}

/* Rounds that are all alike: the first few may open what stays, the others nothing. */
static void leaves_nothing(void (*round)(void), uint32_t times)
{
	struct holdings server, before, after;

	for (int i = 0; i < 3; i++)
		round();
	bad_job_check(&job);
	server = look(job.server.pid);
	before = look(getpid());
	for (uint32_t i = 0; i < times; i++)
		round();
	after = look(getpid());
	if (after.heap_bytes > before.heap_bytes + SLACK)
		print_error("heap: %zu, then %zu bytes\n", before.heap_bytes, after.heap_bytes);
	assert_int_equal(after.descriptors, before.descriptors);
	assert_int_equal(after.mappings, before.mappings);
	assert_true(after.heap_bytes <= before.heap_bytes + SLACK);
	wait_for_server(&server);
	bad_job_check(&job);
}

static void join_and_leave(void)
{
	struct ramps_worker *worker;

	must_work(bad_join(job.address, 1, BAD_WORKERS, &worker));
	must_work(ramps_worker_leave(worker, 20000));
	ramps_worker_close(worker);
}

static void joining_and_leaving_leaves_nothing(void **state)
{
	(void)state;
	leaves_nothing(join_and_leave, bad_rounds(TIMES));
}

static void join_and_use(void)
{
	const float zeros[BAD_DIM] = { 0 };
	struct ramps_worker *worker, *clone;
	struct ramps_table *plain, *grad;
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;
	const void *view;

	must_work(bad_join(job.address, 2, BAD_WORKERS, &worker));
	must_work(ramps_worker_clone(worker, &clone));
	must_work(ramps_table_open(worker, "plain", NULL, 1000, &plain));
	must_work(ramps_table_open(clone, "grad", NULL, 1000, &grad));
	must_work(ramps_barrier_open(worker, "hygiene", NULL, &barrier));
	must_work(ramps_clock_open(clone, "hygiene", &clock));
	must_work(ramps_table_push(plain, 0, 1, zeros, NULL, 20000));
	must_work(ramps_table_push(grad, 0, 1, zeros, NULL, 20000));
	must_work(ramps_table_view(grad, 0, 1, &view));
	ramps_worker_close(worker);
	ramps_clock_close(clock);
	ramps_worker_close(clone);
	ramps_table_close(grad);
	ramps_barrier_close(barrier);
	ramps_table_close(plain);
}

static void joining_and_closing_without_leaving_leaves_nothing(void **state)
{
	(void)state;
	leaves_nothing(join_and_use, bad_rounds(TIMES / 2));
}

static void fail_to_join(void)
{
	static const char *const servers[] = { "shm://nowhere", "tcp://x", "shm://a b" };
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;

	options.servers = job.address;
	options.workers = BAD_WORKERS;
	options.rank = 0; /* taken */
	must_fail(ramps_worker_join(&options, &worker), EADDRINUSE, "");
	options.rank = 3;
	options.workers = 5;
	must_fail(ramps_worker_join(&options, &worker), EPROTO, "");
	options.workers = BAD_WORKERS;
	options.job = "other";
	must_fail(ramps_worker_join(&options, &worker), EPROTO, "");
	options.timeout_ms = 0;
	for (int i = 0; i < 3; i++) {
		options.servers = servers[i];
		must(ramps_worker_join(&options, &worker) < 0);
	}
}

static void joining_in_vain_leaves_nothing(void **state)
{
	(void)state;
	leaves_nothing(fail_to_join, bad_rounds(TIMES / 2));
}

static void open_and_fail_to_open(void)
{
	const uint32_t ranks[] = { 0, 1 };
	const struct ramps_group group = { ranks, 2 };
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	float bad[BAD_DIM] = { 0, __builtin_nanf("") };
	struct ramps_barrier *barrier;
	struct ramps_table *table;
	struct ramps_clock *clock;

	must_work(ramps_table_open(job.worker, "grad", NULL, 0, &table));
	ramps_table_close(table);
	must_work(ramps_barrier_open(job.worker, "again", NULL, &barrier));
	ramps_barrier_close(barrier);
	must_work(ramps_clock_open(job.worker, "again", &clock));
	ramps_clock_close(clock);
	schema.name = "plain";
	must_fail(ramps_table_create(job.worker, &schema, &table), EEXIST, "");
	must_fail(ramps_table_open(job.worker, "plain", &schema, 0, &table), EEXIST, "");
	must_fail(ramps_table_open(job.worker, "none", NULL, 0, &table), ENOENT, "");
	must_fail(ramps_barrier_open(job.worker, "again", &group, &barrier), EEXIST, "");
	must_fail(ramps_table_push(job.plain, 0, 1, bad, NULL, 1000), EDOM, "");
	schema.name = "none";
	schema.dim = BAD_DIM;
	schema.initial = bad;
	must_fail(ramps_table_create(job.worker, &schema, &table), EDOM, "");
	schema.rows = 1u << 30;
	schema.initial = NULL;
	must_fail(ramps_table_create(job.worker, &schema, &table), ENOSPC, "");
}

static void opening_in_vain_leaves_nothing(void **state)
{
	(void)state;
	leaves_nothing(open_and_fail_to_open, bad_rounds(TIMES));
}

static void connect_and_talk(void)
{
	struct core_request request;
	struct bad_peer peer;

	bad_peer_open(&peer, job.address);
	memset(&request, 0x5a, sizeof(request));
	must_work(fabric_send(peer.ep, &request, sizeof(request)));
	bad_peer_close(&peer);
}

static void connecting_to_say_rubbish_leaves_nothing(void **state)
{
	(void)state;
	leaves_nothing(connect_and_talk, bad_rounds(TIMES));
}

static void serve_alone(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_worker *worker;
	struct ramps_table *table;

	must_work(bad_join("embed:", 0, 1, &worker));
	schema.name = "own";
	schema.mode = RAMPS_SLOTS;
	must_work(ramps_table_create(worker, &schema, &table));
	ramps_worker_close(worker);
	ramps_table_close(table);
}

static void start_in_vain(void)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_server *server;

	serve_alone();
	options.address = "shm://a b";
	must_fail(ramps_server_start(&options, &server), EINVAL, "");
	options.address = NULL;
	options.slots_bytes = 1ull << 40;
	options.arena_bytes = 1ull << 42;
	must_fail(ramps_server_start(&options, &server), EINVAL, "");
}

/* Last: this process has had threads then. */
static void a_program_that_runs_alone_leaves_nothing(void **state)
{
	(void)state;
	leaves_nothing(start_in_vain, bad_rounds(TIMES / 10));
	assert_int_equal(count_entries(bad_root), 1); /* the job's own */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joining_and_leaving_leaves_nothing),
		cmocka_unit_test(joining_and_closing_without_leaving_leaves_nothing),
		cmocka_unit_test(joining_in_vain_leaves_nothing),
		cmocka_unit_test(opening_in_vain_leaves_nothing),
		cmocka_unit_test(connecting_to_say_rubbish_leaves_nothing),
		cmocka_unit_test(a_program_that_runs_alone_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

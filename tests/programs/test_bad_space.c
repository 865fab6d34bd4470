/* SPDX-License-Identifier: BSD-2-Clause */
/* No room: a full file system, a full arena, no descriptors left. Told as errors; what is there goes on. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/bad_support.h"

#include <cmocka.h>

#define MIB (1ull << 20)

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

static struct ramps_schema schema_of(const char *name, uint64_t rows, uint32_t mode)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = name;
	schema.rows = rows;
	schema.mode = mode;
	return schema;
}

static void a_table_larger_than_the_arena_is_refused_with_the_size_it_needs(void **state)
{
	static const struct {
		uint64_t rows;
		const char *words[2]; /* bytes of a direct table, and of slots */
	} cases[] = {
		{ 8 * MIB, { "67108864", "33554432" } },
		{ 1ull << 40, { "8796093022208", "43980465" } },
		{ (1ull << 44) - 1, { "140737488355328", "70368744177664" } },
	};
	struct ramps_schema schema;
	struct ramps_table *table;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		schema = schema_of("too/large", cases[i].rows, RAMPS_DIRECT);
		must_fail(ramps_table_create(job.worker, &schema, &table), ENOSPC, cases[i].words[0]);
		must_fail(ramps_table_create(job.worker, &schema, &table), ENOSPC, "too/large");
		schema = schema_of("too/large", cases[i].rows, RAMPS_SLOTS);
		must_fail(ramps_table_create(job.worker, &schema, &table), ENOSPC, "too/large");
	}
	must_fail(ramps_table_open(job.worker, "too/large", NULL, 0, &table), ENOENT, "too/large");
	bad_job_check(&job);
	schema = schema_of("fits", 1000, RAMPS_DIRECT);
	must_work(ramps_table_create(job.worker, &schema, &table));
	ramps_table_close(table);
}

static void an_arena_that_fills_up_keeps_what_it_has(void **state)
{
	struct ramps_schema schema;
	struct ramps_barrier *barrier;
	struct ramps_table *table;
	char name[32];
	int tables = 0, ret;

	(void)state;
	do {
		snprintf(name, sizeof(name), "filling/%d", tables);
		schema = schema_of(name, MIB / 16, tables % 2 ? RAMPS_DIRECT : RAMPS_SLOTS);
		ret = ramps_table_create(job.worker, &schema, &table);
		if (ret == 0)
			ramps_table_close(table);
	} while (ret == 0 && ++tables < 1000);
	assert_int_equal(ret, -ENOSPC);
	assert_true(tables > 10);
	assert_non_null(strstr(ramps_last_error()->text, name));
	must_fail(ramps_table_create(job.worker, &schema, &table), ENOSPC, name);
	must_work(ramps_table_open(job.worker, "filling/0", NULL, 0, &table));
	ramps_table_close(table);
	must_work(ramps_barrier_open(job.worker, "small", NULL, &barrier));
	ramps_barrier_close(barrier);
	bad_job_check(&job);
}

/* A file system of so many bytes at RAMPS_SHM_DIR, in this process and its children only. */
static bool small_file_system(uint64_t bytes)
{
	char options[64];

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	snprintf(options, sizeof(options), "mode=0700,size=%llu", (unsigned long long)bytes);
	return mount("none", bad_root, "tmpfs", 0, options) == 0;
}

#define NO_MOUNT 77

static struct ramps_server_options small_options(void)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;

	options.address = "shm://small";
	options.arena_bytes = 1024 * MIB;
	options.slots_bytes = MIB;
	options.max_workers = 4;
	return options;
}

static void start_where_nothing_fits(void *bytes)
{
	struct ramps_server_options options = small_options();
	struct ramps_server *server;

	if (!small_file_system(*(uint64_t *)bytes))
		_exit(NO_MOUNT);
	must_fail(ramps_server_start(&options, &server), ENOSPC, bad_root);
	/* nothing is left that would be in the way when there is room */
	must(rmdir(bad_directory(options.address)) < 0 && errno == ENOENT);
	must(mount("none", bad_root, NULL, MS_REMOUNT, "size=64m") == 0);
	must_work(ramps_server_start(&options, &server));
	ramps_server_stop(server);
}

static void run_or_skip(void (*function)(void *), void *arg)
{
	int status = bad_fork(function, arg);

	if (status >> 8 == NO_MOUNT) {
		print_message("SKIP: no file system can be mounted here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void a_server_does_not_start_where_its_arena_does_not_fit(void **state)
{
	uint64_t sizes[] = { 4096, 65536, MIB, 4 * MIB };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run_or_skip(start_where_nothing_fits, &sizes[i]);
}

/* The server is in this process: a SIGBUS of its would end it. */
static void fill_file_system(void *unused)
{
	struct ramps_server_options options = small_options();
	struct ramps_schema schema;
	struct ramps_server *server;
	struct ramps_worker *worker, *second;
	struct ramps_table *first, *table;
	float values[1000], back[1000];

	(void)unused;
	if (!small_file_system(16 * MIB))
		_exit(NO_MOUNT);
	for (int i = 0; i < 1000; i++)
		values[i] = (float)i;
	must_work(ramps_server_start(&options, &server));
	must_work(bad_join(options.address, 0, 4, &worker));
	schema = schema_of("first", 1000, RAMPS_DIRECT);
	schema.initial = values;
	must_work(ramps_table_create(worker, &schema, &first));
	for (uint32_t mode = RAMPS_DIRECT; mode <= RAMPS_SLOTS; mode++) {
		schema = schema_of("large", 8 * MIB, mode);
		must_fail(ramps_table_create(worker, &schema, &table), ENOSPC, "bytes");
		must_fail(ramps_table_create(worker, &schema, &table), ENOSPC, bad_root);
	}
	/* fills it to the last page */
	for (uint64_t rows = MIB; rows >= 512; rows /= 2) {
		char name[64];
		int i = 0;

		do
			snprintf(name, sizeof(name), "fill/%llu/%d", (unsigned long long)rows, i++);
		while (schema = schema_of(name, rows, RAMPS_DIRECT),
		       ramps_table_create(worker, &schema, &table) == 0 &&
			       (ramps_table_close(table), i < 10000));
		must(ramps_last_error()->code == ENOSPC);
	}
	must_fail(bad_join(options.address, 1, 4, &second), ENOSPC, "");
	must_work(ramps_table_pull(first, 0, 1000, back, NULL, 5000));
	must(memcmp(values, back, sizeof(back)) == 0);
	must_work(ramps_table_push(first, 0, 1000, values, NULL, 5000));
	must_work(ramps_table_pull(first, 0, 1000, back, NULL, 5000));
	for (int i = 0; i < 1000; i++)
		must(back[i] == 2 * values[i]);
	must(mount("none", bad_root, NULL, MS_REMOUNT, "size=64m") == 0);
	must_work(bad_join(options.address, 1, 4, &second));
	schema = schema_of("large", MIB, RAMPS_DIRECT);
	must_work(ramps_table_create(second, &schema, &table));
	ramps_table_close(table);
	ramps_worker_close(second);
	ramps_table_close(first);
	ramps_worker_close(worker);
	ramps_server_stop(server);
}

static void a_full_file_system_is_an_error_and_never_a_signal(void **state)
{
	(void)state;
	run_or_skip(fill_file_system, NULL);
}

static void limit_descriptors(rlim_t descriptors)
{
	struct rlimit limit;

	must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = descriptors;
	must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static int open_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Takes the lowest limit at which a call works, having seen it fail by -EMFILE at each below. */
static void count_up(int (*call)(void), rlim_t plenty)
{
	int before = open_descriptors(), failures = 0;

	for (rlim_t limit = 0; limit <= plenty; limit++) {
		limit_descriptors(limit);
		if (call() == 0)
			break;
		must(ramps_last_error()->code == EMFILE);
		must(*ramps_last_error()->text && !strchr(ramps_last_error()->text, '\n'));
		must(open_descriptors() == before);
		failures++;
	}
	limit_descriptors(plenty);
	must_work(call());
	must(failures > 2);
	must(open_descriptors() == before);
}

static int start_and_stop(void)
{
	struct ramps_server *server;
	int ret = ramps_server_start(NULL, &server);

	if (ret == 0)
		ramps_server_stop(server);
	return ret;
}

static int join_and_leave(void)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;
	int ret;

	options.servers = job.address;
	options.rank = 3;
	options.workers = BAD_WORKERS;
	ret = ramps_worker_join(&options, &worker);
	if (ret == 0) {
		must_work(ramps_worker_leave(worker, 5000));
		ramps_worker_close(worker);
	}
	return ret;
}

static void start_with_few_descriptors(void *unused)
{
	(void)unused;
	count_up(start_and_stop, 256);
}

static void join_with_few_descriptors(void *unused)
{
	(void)unused;
	count_up(join_and_leave, 256);
}

static void without_descriptors_a_server_does_not_start_but_does_later(void **state)
{
	(void)state;
	bad_child(start_with_few_descriptors, NULL);
}

static void without_descriptors_nobody_joins_but_does_later(void **state)
{
	(void)state;
	bad_child(join_with_few_descriptors, NULL);
	bad_job_check(&job);
}

static void crowd_a_server(void *unused)
{
	struct ramps_server_options options = small_options();
	struct ramps_worker *workers[4];
	struct ramps_server *server;
	int joined = 0, ret = 0;

	(void)unused;
	must_work(ramps_server_start(&options, &server));
	limit_descriptors((rlim_t)open_descriptors() + 12);
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct ramps_worker_options join = RAMPS_WORKER_OPTIONS_INIT;

		join.servers = options.address;
		join.rank = rank;
		join.workers = 4;
		join.timeout_ms = 300;
		ret = ramps_worker_join(&join, &workers[joined]);
		if (ret)
			break;
		joined++;
	}
	must(ret < 0 && *ramps_last_error()->text);
	must(joined > 0);
	limit_descriptors(256);
	must_work(bad_join(options.address, 3, 4, &workers[joined]));
	for (; joined >= 0; joined--) {
		must_work(ramps_worker_leave(workers[joined], 5000));
		ramps_worker_close(workers[joined]);
	}
	ramps_server_stop(server);
}

static void a_server_without_descriptors_turns_workers_away_and_keeps_those_it_has(void **state)
{
	(void)state;
	bad_child(crowd_a_server, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_larger_than_the_arena_is_refused_with_the_size_it_needs),
		cmocka_unit_test(a_server_does_not_start_where_its_arena_does_not_fit),
		cmocka_unit_test(a_full_file_system_is_an_error_and_never_a_signal),
		cmocka_unit_test(without_descriptors_a_server_does_not_start_but_does_later),
		cmocka_unit_test(without_descriptors_nobody_joins_but_does_later),
		cmocka_unit_test(a_server_without_descriptors_turns_workers_away_and_keeps_those_it_has),
		/* after it nobody else can join */
		cmocka_unit_test(an_arena_that_fills_up_keeps_what_it_has),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

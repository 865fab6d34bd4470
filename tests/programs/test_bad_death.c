/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 240 s */
/* A server killed under its workers: every call says so within a second, and works again when it is back. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs/bad_support.h"

#include <cmocka.h>

#define DIM     8u
#define LONG_MS 60000

/* Two ranks of one job in this process: [0] makes the calls, [1] is the one that is waited for. */
static struct bad_server server;
static struct ramps_server_options options;
static char address[64];
static struct ramps_worker *workers[2];
static struct ramps_table *direct[2], *slots[2], *steps[2];
static struct ramps_barrier *barriers[2];
static struct ramps_clock *clocks[2];
static float values[DIM];

static struct ramps_table *make(struct ramps_worker *worker, const char *name)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_table *table;

	schema.name = name;
	schema.rows = 100;
	schema.dim = DIM;
	schema.mode = strcmp(name, "direct") ? RAMPS_SLOTS : RAMPS_DIRECT;
	schema.synchronous = !strcmp(name, "sync");
	if (schema.synchronous)
		schema.rows = 1;
	must_work(ramps_table_create(worker, &schema, &table));
	return table;
}

static int begin(void **state)
{
	int ret = bad_setup(state);

	if (ret)
		return ret;
	snprintf(address, sizeof(address), "%s", bad_address());
	options = (struct ramps_server_options)RAMPS_SERVER_OPTIONS_INIT;
	options.address = address;
	options.arena_bytes = 16u << 20;
	options.slots_bytes = 4u << 16;
	options.max_workers = 4;
	bad_server_start(&server, &options);
	for (uint32_t rank = 0; rank < 2; rank++) {
		must_work(bad_join(address, rank, 2, &workers[rank]));
		direct[rank] = make(workers[rank], "direct");
		slots[rank] = make(workers[rank], "slots");
		steps[rank] = make(workers[rank], "sync");
		must_work(ramps_barrier_open(workers[rank], "barrier", NULL, &barriers[rank]));
		must_work(ramps_clock_open(workers[rank], "clock", &clocks[rank]));
	}
	return 0;
}

static int end(void **state)
{
	return bad_teardown(state);
}

/* The calls. What one opens it closes. */

static int call_pull(void)
{
	return ramps_table_pull(direct[0], 3, 1, values, NULL, LONG_MS);
}

static int call_pull_rows(void)
{
	const uint64_t rows[] = { 5, 3 };
	float two[2 * DIM];

	return ramps_table_pull_rows(direct[0], rows, 2, two, NULL, LONG_MS);
}

static int call_pull_slots(void)
{
	return ramps_table_pull(slots[0], 3, 1, values, NULL, LONG_MS);
}

static int call_snapshot(void)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;

	transfer.read = RAMPS_SNAPSHOT;
	return ramps_table_pull(slots[0], 3, 1, values, &transfer, LONG_MS);
}

static int call_push(void)
{
	const float zeros[DIM] = { 0 };

	return ramps_table_push(direct[0], 3, 1, zeros, NULL, LONG_MS);
}

static int call_push_rows(void)
{
	const uint64_t rows[] = { 5, 3 };
	const float zeros[2 * DIM] = { 0 };

	return ramps_table_push_rows(direct[0], rows, 2, zeros, NULL, LONG_MS);
}

static int call_push_slots(void)
{
	const float zeros[DIM] = { 0 };

	return ramps_table_push(slots[0], 3, 1, zeros, NULL, LONG_MS);
}

static int call_push_applied(void)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	const float zeros[DIM] = { 0 };

	transfer.level = RAMPS_APPLIED;
	return ramps_table_push(slots[0], 3, 1, zeros, &transfer, LONG_MS);
}

/* What an earlier one submitted, and could not reap, is reaped by a later one. */
static int call_submit(void)
{
	static uint64_t tag;
	struct ramps_op op = {
		.kind = RAMPS_PULL,
		.table = direct[0],
		.rows = 1,
		.data = values,
		.tag = tag + 1,
	};
	struct ramps_done done;
	int ret = ramps_worker_submit(workers[0], &op, 1);

	if (ret < 0)
		return ret;
	must(ret == 1);
	tag++;
	do {
		ret = ramps_worker_reap(workers[0], &done, 1, LONG_MS);
		if (ret < 0)
			return ret;
		must(ret == 1);
	} while (done.tag != tag);
	return done.status;
}

static int call_info(void)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;

	return ramps_worker_info(workers[0], &info);
}

static int call_clone(void)
{
	struct ramps_worker *clone;
	int ret = ramps_worker_clone(workers[0], &clone);

	if (ret == 0)
		ramps_worker_close(clone);
	return ret;
}

static int call_create(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_table *table;
	int ret;

	schema.name = "created";
	ret = ramps_table_create(workers[0], &schema, &table);
	if (ret == 0)
		ramps_table_close(table);
	return ret;
}

static int call_open(void)
{
	struct ramps_table *table;
	int ret = ramps_table_open(workers[0], "slots", NULL, LONG_MS, &table);

	if (ret == 0)
		ramps_table_close(table);
	return ret;
}

static int call_barrier_open(void)
{
	struct ramps_barrier *barrier;
	int ret = ramps_barrier_open(workers[0], "another", NULL, &barrier);

	if (ret == 0)
		ramps_barrier_close(barrier);
	return ret;
}

static int call_clock_open(void)
{
	struct ramps_clock *clock;
	int ret = ramps_clock_open(workers[0], "another", &clock);

	if (ret == 0)
		ramps_clock_close(clock);
	return ret;
}

static int call_advance(void)
{
	return ramps_clock_advance(clocks[0], LONG_MS);
}

static int call_clock_read(void)
{
	return ramps_clock_read(clocks[0], NULL, NULL);
}

struct call {
	const char *name;
	int (*make)(void);
};

static const struct call calls[] = {
	{ "pull", call_pull },
	{ "pull_rows", call_pull_rows },
	{ "pull of slots", call_pull_slots },
	{ "snapshot", call_snapshot },
	{ "push", call_push },
	{ "push_rows", call_push_rows },
	{ "push to slots", call_push_slots },
	{ "push, applied", call_push_applied },
	{ "submit and reap", call_submit },
	{ "info", call_info },
	{ "clone", call_clone },
	{ "create", call_create },
	{ "open", call_open },
	{ "barrier open", call_barrier_open },
	{ "clock open", call_clock_open },
	{ "advance", call_advance },
	{ "clock read", call_clock_read },
};

/* Calls until it fails, as it must within a second: in shared memory much works for a moment more. */
static void fails_soon(const struct call *call)
{
	const int64_t start = bad_now_ms();
	int64_t took;
	int ret;

	do {
		ret = call->make();
		took = bad_now_ms() - start;
	} while (ret == 0 && took < bad_soon_ms());
	if (ret != -ENOTCONN || took >= bad_soon_ms())
		print_error("%s: %d after %lld ms: %s\n", call->name, ret, (long long)took,
			    ramps_last_error()->text);
	must(ret == -ENOTCONN);
	must(took < bad_soon_ms());
	must(strstr(ramps_last_error()->text, address) != NULL);
	must(strcmp(ramps_last_error()->peer, address) == 0);
}

static void every_call_fails_soon_and_works_when_the_server_is_back(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (int round = 0; round < 3; round++)
			must_work(calls[i].make());
		bad_server_kill(&server);
		for (int round = 0; round < 3; round++)
			fails_soon(&calls[i]);
		bad_server_start(&server, &options);
		if (calls[i].make() < 0)
			print_error("%s: %s\n", calls[i].name, ramps_last_error()->text);
		must_work(calls[i].make());
		must_work(ramps_table_pull(direct[1], 0, 1, values, NULL, LONG_MS));
	}
}

/* The waits: the server is killed while they last. */

static int wait_for_table(void)
{
	struct ramps_table *table;

	return ramps_table_open(workers[0], "never", NULL, LONG_MS, &table);
}

static int wait_at_barrier(void)
{
	return ramps_barrier_wait(barriers[0], LONG_MS);
}

static int wait_for_clock(void)
{
	return ramps_clock_wait(clocks[0], 0, LONG_MS);
}

static int wait_for_step(void)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	const float zeros[DIM] = { 0 };

	transfer.level = RAMPS_APPLIED;
	return ramps_table_push(steps[0], 0, 1, zeros, &transfer, LONG_MS);
}

static int wait_for_flush(void)
{
	return ramps_worker_flush(workers[0], RAMPS_APPLIED, LONG_MS);
}

static int wait_to_leave(void)
{
	return ramps_worker_leave(workers[0], LONG_MS);
}

/* Kills the server in 100 ms, from a process that has nothing else to do. */
static pid_t kill_later(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		kill(server.pid, SIGKILL);
		_exit(0);
	}
	return pid;
}

static void ends_by_death(const char *name, int (*wait)(void))
{
	pid_t killer = kill_later();
	struct ramps_table *table;
	int64_t start = bad_now_ms(), took;
	int ret = wait();

	took = bad_now_ms() - start;
	if (ret != -ENOTCONN || took >= 100 + bad_soon_ms())
		print_error("%s: %d after %lld ms: %s\n", name, ret, (long long)took,
			    ramps_last_error()->text);
	must(ret == -ENOTCONN);
	must(took >= 99 && took < 100 + bad_soon_ms());
	must(waitpid(killer, NULL, 0) == killer);
	must(waitpid(server.pid, NULL, 0) == server.pid);
	close(server.hold);
	/* and once more, with nobody there */
	start = bad_now_ms();
	must(wait() == -ENOTCONN);
	must(bad_now_ms() - start < bad_soon_ms());
	bad_server_start(&server, &options);
	/* the other rank learns of it now, by the first call that asks the server */
	ret = ramps_table_open(workers[1], "slots", NULL, LONG_MS, &table);
	must(ret == -ENOTCONN);
	must_work(ramps_table_open(workers[1], "slots", NULL, LONG_MS, &table));
	ramps_table_close(table);
}

static void a_wait_ends_soon_and_goes_on_when_the_server_is_back(void **state)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	const float zeros[DIM] = { 0 };
	struct ramps_table *table;

	(void)state;
	ends_by_death("open", wait_for_table);
	must_fail(ramps_table_open(workers[0], "never", NULL, 0, &table), ENOENT, "never");

	must_work(ramps_clock_advance(clocks[0], LONG_MS));
	ends_by_death("clock", wait_for_clock);
	for (uint64_t own = 0, other = 0; other < own || own == 0;) {
		must_work(ramps_clock_advance(clocks[1], LONG_MS));
		must_work(ramps_clock_read(clocks[0], &own, NULL));
		must_work(ramps_clock_read(clocks[1], &other, NULL));
	}
	must_work(wait_for_clock());

	ends_by_death("barrier", wait_at_barrier);
	must_work(ramps_barrier_arrive(barriers[1], LONG_MS));
	must_work(wait_at_barrier());
	must_work(ramps_barrier_wait(barriers[1], LONG_MS));

	ends_by_death("push", wait_for_step);
	must_work(ramps_table_push(steps[1], 0, 1, zeros, NULL, LONG_MS));
	must_work(wait_for_step());
	must_work(ramps_table_pull(steps[1], 0, 1, values, &transfer, LONG_MS));
	must(transfer.steps == 1); /* the push that was made again is the same one */

	must_work(ramps_table_push(steps[0], 0, 1, zeros, NULL, LONG_MS));
	ends_by_death("flush", wait_for_flush);
	ends_by_death("leave", wait_to_leave);
	must_work(ramps_table_push(steps[1], 0, 1, zeros, NULL, LONG_MS));
	must_work(wait_for_flush());
	must_work(ramps_table_pull(steps[0], 0, 1, values, &transfer, LONG_MS));
	must(transfer.steps == 2);
}

static void a_server_that_comes_back_without_its_memory_is_an_error(void **state)
{
	struct ramps_server_options fresh = options;

	(void)state;
	fresh.fresh = 1;
	bad_server_kill(&server);
	bad_server_start(&server, &fresh);
	for (int round = 0; round < 3; round++) {
		int64_t deadline = bad_now_ms() + bad_soon_ms();
		int ret;

		do
			ret = call_pull();
		while ((ret == 0 || ret == -ENOTCONN) && bad_now_ms() < deadline);
		must(ret == -ESTALE);
		must_fail(ramps_table_pull(direct[0], 3, 1, values, NULL, LONG_MS), ESTALE, "");
	}
}

static void closing_does_not_wait_for_a_dead_server(void **state)
{
	int64_t start;

	(void)state;
	bad_server_kill(&server);
	start = bad_now_ms();
	for (int rank = 0; rank < 2; rank++) {
		ramps_barrier_close(barriers[rank]);
		ramps_worker_close(workers[rank]);
		ramps_clock_close(clocks[rank]);
		ramps_table_close(direct[rank]);
		ramps_table_close(slots[rank]);
		ramps_table_close(steps[rank]);
	}
	must(bad_now_ms() - start < bad_soon_ms());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_fails_soon_and_works_when_the_server_is_back),
		cmocka_unit_test(a_wait_ends_soon_and_goes_on_when_the_server_is_back),
		cmocka_unit_test(a_server_that_comes_back_without_its_memory_is_an_error),
		cmocka_unit_test(closing_does_not_wait_for_a_dead_server),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

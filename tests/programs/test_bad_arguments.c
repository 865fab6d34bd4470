/* SPDX-License-Identifier: BSD-2-Clause */
/* Wrong arguments: NULL where a pointer has to be, sizes not set, numbers without a meaning, calls at the wrong time. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "programs/bad_support.h"

#include <cmocka.h>

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

static void every_failure_has_a_line_of_its_own_until_the_next_one(void **state)
{
	const struct ramps_error *error;
	char text[256];

	(void)state;
	must_fail(ramps_worker_flush(job.worker, 7, 0), EINVAL, "7");
	snprintf(text, sizeof(text), "%s", ramps_last_error()->text);
	must_work(ramps_worker_flush(job.worker, RAMPS_LANDED, 1000));
	error = ramps_last_error();
	assert_string_equal(error->text, text);
	assert_int_equal(error->code, EINVAL);
	assert_int_equal(error->rank_count, 0);
	assert_int_equal(error->unknown_ops, 0);
}

static void null_is_refused_by_servers_and_workers(void **state)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_done done;
	struct ramps_op op = { 0 };
	char buf[64];

	(void)state;
	must_fail(ramps_server_start(NULL, NULL), EINVAL, "server");
	must_fail(ramps_server_address(NULL, buf, sizeof(buf)), EINVAL, "server");
	ramps_server_stop(NULL);
	must_fail(ramps_worker_join(NULL, NULL), EINVAL, "worker");
	must_fail(ramps_worker_clone(NULL, NULL), EINVAL, "worker");
	must_fail(ramps_worker_clone(job.worker, NULL), EINVAL, "clone");
	must_fail(ramps_worker_info(NULL, &info), EINVAL, "worker");
	must_fail(ramps_worker_info(job.worker, NULL), EINVAL, "INIT");
	must_fail(ramps_worker_flush(NULL, RAMPS_LANDED, 0), EINVAL, "worker");
	must_fail(ramps_worker_leave(NULL, 0), EINVAL, "worker");
	must_fail(ramps_worker_submit(NULL, &op, 1), EINVAL, "worker");
	must_fail(ramps_worker_submit(job.worker, NULL, 1), EINVAL, "operations");
	must_fail(ramps_worker_reap(NULL, &done, 1, 0), EINVAL, "worker");
	must_fail(ramps_worker_reap(job.worker, NULL, 1, 0), EINVAL, "done");
	ramps_worker_interrupt(NULL);
	ramps_worker_close(NULL);
}

static void null_is_refused_by_tables(void **state)
{
	struct ramps_table_info info = RAMPS_TABLE_INFO_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	const uint64_t row = 0;
	struct ramps_table *table;
	const void *view;
	float values[BAD_DIM] = { 0 };

	(void)state;
	schema.name = "null";
	must_fail(ramps_table_create(NULL, &schema, &table), EINVAL, "worker");
	must_fail(ramps_table_create(job.worker, NULL, &table), EINVAL, "schema");
	must_fail(ramps_table_create(job.worker, &schema, NULL), EINVAL, "table");
	schema.name = NULL;
	must_fail(ramps_table_create(job.worker, &schema, &table), EINVAL, "name");
	must_fail(ramps_table_open(NULL, "plain", NULL, 0, &table), EINVAL, "worker");
	must_fail(ramps_table_open(job.worker, NULL, NULL, 0, &table), EINVAL, "name");
	must_fail(ramps_table_open(job.worker, "plain", NULL, 0, NULL), EINVAL, "table");
	must_fail(ramps_table_info(NULL, &info), EINVAL, "table");
	must_fail(ramps_table_info(job.plain, NULL), EINVAL, "INIT");
	must_fail(ramps_table_pull(NULL, 0, 1, values, NULL, 0), EINVAL, "table");
	must_fail(ramps_table_pull(job.plain, 0, 1, NULL, NULL, 0), EINVAL, "plain");
	must_fail(ramps_table_pull(job.grad, 0, 1, NULL, NULL, 0), EINVAL, "grad");
	must_fail(ramps_table_push(NULL, 0, 1, values, NULL, 0), EINVAL, "table");
	must_fail(ramps_table_push(job.plain, 0, 1, NULL, NULL, 0), EINVAL, "plain");
	must_fail(ramps_table_push(job.grad, 0, 1, NULL, NULL, 0), EINVAL, "grad");
	must_fail(ramps_table_pull_rows(NULL, &row, 1, values, NULL, 0), EINVAL, "table");
	must_fail(ramps_table_pull_rows(job.plain, NULL, 1, values, NULL, 0), EINVAL, "plain");
	must_fail(ramps_table_pull_rows(job.plain, &row, 1, NULL, NULL, 0), EINVAL, "plain");
	must_fail(ramps_table_push_rows(NULL, &row, 1, values, NULL, 0), EINVAL, "table");
	must_fail(ramps_table_push_rows(job.plain, NULL, 1, values, NULL, 0), EINVAL, "plain");
	must_fail(ramps_table_push_rows(job.plain, &row, 1, NULL, NULL, 0), EINVAL, "plain");
	must_fail(ramps_table_view(NULL, 0, 1, &view), EINVAL, "table");
	must_fail(ramps_table_view(job.grad, 0, 1, NULL), EINVAL, "view");
	ramps_table_close(NULL);
	bad_job_check(&job);
}

static void null_is_refused_by_barriers_and_clocks(void **state)
{
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;

	(void)state;
	must_fail(ramps_barrier_open(NULL, "b", NULL, &barrier), EINVAL, "worker");
	must_fail(ramps_barrier_open(job.worker, NULL, NULL, &barrier), EINVAL, "name");
	must_fail(ramps_barrier_open(job.worker, "b", NULL, NULL), EINVAL, "barrier");
	must_fail(ramps_barrier_arrive(NULL, 0), EINVAL, "barrier");
	must_fail(ramps_barrier_wait(NULL, 0), EINVAL, "barrier");
	ramps_barrier_close(NULL);
	must_fail(ramps_clock_open(NULL, "c", &clock), EINVAL, "worker");
	must_fail(ramps_clock_open(job.worker, NULL, &clock), EINVAL, "name");
	must_fail(ramps_clock_open(job.worker, "c", NULL), EINVAL, "clock");
	must_fail(ramps_clock_advance(NULL, 0), EINVAL, "clock");
	must_fail(ramps_clock_wait(NULL, 0, 0), EINVAL, "clock");
	must_fail(ramps_clock_read(NULL, NULL, NULL), EINVAL, "clock");
	ramps_clock_close(NULL);
	must_work(ramps_clock_open(job.worker, "c", &clock));
	must_work(ramps_clock_read(clock, NULL, NULL));
	ramps_clock_close(clock);
}

static void structs_without_their_size_are_refused(void **state)
{
	struct ramps_server_options server_options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_worker_options worker_options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker_info worker_info = { .size = 0 };
	struct ramps_table_info table_info = { .size = 0 };
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_server *server;
	struct ramps_worker *worker;
	struct ramps_table *table;
	float values[BAD_DIM] = { 1 };

	(void)state;
	server_options.size = 0;
	must_fail(ramps_server_start(&server_options, &server), EINVAL, "INIT");
	worker_options.size = 0;
	must_fail(ramps_worker_join(&worker_options, &worker), EINVAL, "INIT");
	must_fail(ramps_worker_info(job.worker, &worker_info), EINVAL, "INIT");
	must_fail(ramps_table_info(job.plain, &table_info), EINVAL, "INIT");
	schema.size = 0;
	schema.name = "plain";
	must_fail(ramps_table_create(job.worker, &schema, &table), EINVAL, "INIT");
	must_fail(ramps_table_open(job.worker, "plain", &schema, 0, &table), EINVAL, "INIT");
	transfer.size = 0;
	must_fail(ramps_table_push(job.plain, 0, 1, values, &transfer, 1000), EINVAL, "INIT");
	must_fail(ramps_table_pull(job.plain, 0, 1, values, &transfer, 1000), EINVAL, "INIT");
	bad_job_check(&job);
}

static void settings_of_a_server_out_of_range_are_refused(void **state)
{
	static const char *const addresses[] = { "tcp://host", "shm://",    "shm",
						 "",           "shm://a b", "shm://../a" };
	const struct ramps_server_options defaults = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_server_options options = defaults;
	struct ramps_server *server;
	char name[400];

	(void)state;
	options.max_workers = 16385;
	must_fail(ramps_server_start(&options, &server), EINVAL, "16384|16385");
	options = defaults;
	options.on_death = 2;
	must_fail(ramps_server_start(&options, &server), EINVAL, "on_death");
	options = defaults;
	options.arena_bytes = UINT64_MAX;
	must_fail(ramps_server_start(&options, &server), EINVAL, "arena");
	options.arena_bytes = 1;
	must_fail(ramps_server_start(&options, &server), EINVAL, "arena");
	options = defaults;
	options.slots_bytes = UINT64_MAX;
	must_fail(ramps_server_start(&options, &server), EINVAL, "slots");
	options = defaults;
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		options.address = addresses[i];
		must_fail(ramps_server_start(&options, &server), EINVAL, "");
	}
	memset(name, 'a', sizeof(name));
	memcpy(name, "shm://", 6);
	name[sizeof(name) - 1] = '\0';
	options.address = name;
	must_fail(ramps_server_start(&options, &server), ENAMETOOLONG, "");
}

static void start_and_measure(void *unused)
{
	struct ramps_server *server;
	char address[64];
	int length;

	(void)unused;
	must_work(ramps_server_start(NULL, &server));
	length = ramps_server_address(server, address, sizeof(address));
	must(length == (int)strlen(address));
	must_fail(ramps_server_address(server, address, (size_t)length), ENOSPC, "bytes");
	must_fail(ramps_server_address(server, address, 0), ENOSPC, "bytes");
	must_fail(ramps_server_address(server, NULL, 64), EINVAL, "address");
	must(ramps_server_address(server, address, (size_t)length + 1) == length);
	ramps_server_stop(server);
}

static void a_buffer_too_short_for_an_address_is_refused(void **state)
{
	(void)state;
	bad_child(start_and_measure, NULL);
}

static void numbers_without_a_meaning_are_refused(void **state)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	float values[BAD_DIM] = { 1 };
	struct ramps_table *table;

	(void)state;
	must_fail(ramps_worker_flush(job.worker, 3, 0), EINVAL, "level");
	must_fail(ramps_worker_flush(job.worker, UINT32_MAX, 0), EINVAL, "level");
	transfer.level = 3;
	must_fail(ramps_table_push(job.plain, 0, 1, values, &transfer, 1000), EINVAL, "level");
	must_fail(ramps_table_push(job.grad, 0, 1, values, &transfer, 1000), EINVAL, "level");
	transfer.level = RAMPS_LANDED;
	transfer.read = 2;
	must_fail(ramps_table_pull(job.grad, 0, 1, values, &transfer, 1000), EINVAL, "read");
	must_fail(ramps_table_pull(job.plain, 0, 1, values, &transfer, 1000), EINVAL, "read");
	transfer.read = RAMPS_SNAPSHOT;
	must_fail(ramps_table_pull(job.plain, 0, 1, values, &transfer, 1000), EOPNOTSUPP, "plain");
	must_fail(ramps_table_open(job.worker, "none", NULL, -2, &table), EINVAL, "timeout");
	bad_job_check(&job);
}

static void what_a_mode_lacks_is_refused(void **state)
{
	const uint64_t row = 1;
	float values[BAD_DIM] = { 1 };
	const void *view;

	(void)state;
	must_fail(ramps_table_push_rows(job.grad, &row, 1, values, NULL, 1000), EOPNOTSUPP, "grad");
	must_fail(ramps_table_pull_rows(job.grad, &row, 1, values, NULL, 1000), EOPNOTSUPP, "grad");
	must_fail(ramps_table_view(job.plain, 0, 1, &view), EOPNOTSUPP, "plain");
	bad_job_check(&job);
}

static void schemas_out_of_range_are_refused(void **state)
{
	const struct ramps_schema defaults = RAMPS_SCHEMA_INIT;
	const float bad_rates[] = { NAN, INFINITY, -INFINITY, -0.5f };
	struct ramps_schema schema[9];
	struct ramps_table *table;

	(void)state;
	for (int i = 0; i < 9; i++) {
		schema[i] = defaults;
		schema[i].name = "wrong/schema";
	}
	schema[0].rows = 0;
	schema[1].dim = 0;
	schema[2].type = 0;
	schema[3].type = 3;
	schema[4].mode = 0;
	schema[5].mode = 3;
	schema[6].fraction_bits = 63;
	schema[7].type = RAMPS_INT64;
	schema[7].mode = RAMPS_SLOTS;
	schema[8].mode = RAMPS_SLOTS;
	schema[8].synchronous = 2;
	for (int i = 0; i < 9; i++)
		must_fail(ramps_table_create(job.worker, &schema[i], &table), EINVAL, "wrong/schema");
	for (int i = 0; i < 4; i++) {
		schema[8].synchronous = 0;
		schema[8].rate = bad_rates[i];
		must_fail(ramps_table_create(job.worker, &schema[8], &table), EINVAL, "rate");
	}
	must_fail(ramps_table_open(job.worker, "wrong/schema", NULL, 0, &table), ENOENT, "wrong/schema");
}

/* Submits one operation and gives the status that it is reaped with. */
static int status_of(struct ramps_op *op)
{
	struct ramps_done done = { 0 };

	op->tag = 4711;
	must(ramps_worker_submit(job.worker, op, 1) == 1);
	must(ramps_worker_reap(job.worker, &done, 1, 5000) == 1);
	must(done.tag == 4711);
	return done.status;
}

static void wrong_operations_are_taken_and_reaped_with_their_error(void **state)
{
	float values[BAD_DIM] = { 0 };
	struct ramps_worker *other;
	struct ramps_table *others;
	const struct ramps_op good = {
		.kind = RAMPS_PUSH,
		.table = job.plain,
		.first_row = 3,
		.rows = 1,
		.data = values,
	};
	struct ramps_op op = good;

	(void)state;
	must_work(bad_join(job.address, 1, BAD_WORKERS, &other));
	must_work(ramps_table_open(other, "plain", NULL, 0, &others));
	assert_int_equal(status_of(&op), 0);
	values[0] = 1;
	op.kind = 0;
	assert_int_equal(status_of(&op), -EINVAL);
	op.kind = 5;
	assert_int_equal(status_of(&op), -EINVAL);
	op = good;
	op.flags = 1u << 31;
	assert_int_equal(status_of(&op), -EINVAL);
	op = good;
	op.table = NULL;
	assert_int_equal(status_of(&op), -EINVAL);
	op.table = others;
	assert_int_equal(status_of(&op), -EINVAL);
	op = good;
	op.data = NULL;
	assert_int_equal(status_of(&op), -EINVAL);
	op = good;
	op.kind = RAMPS_PUSH_ROWS;
	assert_int_equal(status_of(&op), -EINVAL);
	op = good;
	op.first_row = BAD_ROWS;
	assert_int_equal(status_of(&op), -ERANGE);
	op = good;
	values[0] = NAN;
	assert_int_equal(status_of(&op), -EDOM);
	values[0] = 1;
	op.transfer = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
	op.transfer.level = 9;
	assert_int_equal(status_of(&op), -EINVAL);
	ramps_table_close(others);
	must_work(ramps_worker_leave(other, 5000));
	ramps_worker_close(other);
	bad_job_check(&job);
}

static void a_wrong_operation_does_not_stop_those_beside_it(void **state)
{
	float plus[BAD_DIM] = { 1 }, minus[BAD_DIM] = { -1 };
	struct ramps_op ops[3] = {
		{ .kind = RAMPS_PUSH, .table = job.plain, .rows = 1, .data = plus, .tag = 0 },
		{ .kind = 77, .table = job.plain, .rows = 1, .data = plus, .tag = 1 },
		{ .kind = RAMPS_PUSH, .table = job.plain, .rows = 1, .data = minus, .tag = 2 },
	};
	const int wanted[3] = { 0, -EINVAL, 0 };
	struct ramps_done done[3];
	uint32_t seen = 0;

	(void)state;
	assert_int_equal(ramps_worker_submit(job.worker, ops, 3), 3);
	while (seen != 7) {
		int n = ramps_worker_reap(job.worker, done, 3, 5000);

		must_work(n);
		assert_true(n > 0);
		for (int i = 0; i < n; i++) {
			assert_int_equal(done[i].status, wanted[done[i].tag]);
			seen |= 1u << done[i].tag;
		}
	}
	assert_int_equal(ramps_worker_reap(job.worker, done, 3, 0), 0);
	bad_job_check(&job);
}

static void what_outlives_its_worker_says_that_it_was_closed(void **state)
{
	float values[BAD_DIM] = { 1 };
	struct ramps_worker *worker;
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;
	struct ramps_table *table, *slots;
	const uint64_t row = 0;
	const void *view;
	uint64_t own;

	(void)state;
	must_work(bad_join(job.address, 2, BAD_WORKERS, &worker));
	must_work(ramps_table_open(worker, "plain", NULL, 0, &table));
	must_work(ramps_table_open(worker, "grad", NULL, 0, &slots));
	must_work(ramps_barrier_open(worker, "outlives", NULL, &barrier));
	must_work(ramps_clock_open(worker, "outlives", &clock));
	must_work(ramps_worker_leave(worker, 5000));
	ramps_worker_close(worker);
	must_fail(ramps_table_pull(table, 0, 1, values, NULL, -1), ENOTCONN, "closed");
	must_fail(ramps_table_push(table, 0, 1, values, NULL, -1), ENOTCONN, "closed");
	must_fail(ramps_table_push(slots, 0, 1, values, NULL, -1), ENOTCONN, "closed");
	must_fail(ramps_table_pull_rows(table, &row, 1, values, NULL, -1), ENOTCONN, "closed");
	must_fail(ramps_table_push_rows(table, &row, 1, values, NULL, -1), ENOTCONN, "closed");
	must_fail(ramps_table_view(slots, 0, 1, &view), ENOTCONN, "closed");
	must_fail(ramps_barrier_arrive(barrier, -1), ENOTCONN, "closed");
	must_fail(ramps_barrier_wait(barrier, -1), ENOTCONN, "closed");
	must_fail(ramps_clock_advance(clock, -1), ENOTCONN, "closed");
	must_fail(ramps_clock_wait(clock, 0, -1), ENOTCONN, "closed");
	must_fail(ramps_clock_read(clock, &own, NULL), ENOTCONN, "closed");
	ramps_clock_close(clock);
	ramps_barrier_close(barrier);
	ramps_table_close(slots);
	ramps_table_close(table);
	bad_job_check(&job);
}

/* Until it got in: it may come while the other thread is in a call. */
static void *wait_for_a_table(void *arg)
{
	struct ramps_table *table;
	int ret;

	(void)arg;
	do
		ret = ramps_table_open(job.worker, "never", NULL, 60000, &table);
	while (ret == -EBUSY);
	return (void *)(intptr_t)ret;
}

/*
 * What is seen is a thread that stays; two that come in at the very same moment may miss each other. So the
 * second one does not hurry, and if it sees nothing in a while they begin again.
 */
static bool second_thread_is_told(void)
{
	const int64_t deadline = bad_now_ms() + 5000;
	float values[BAD_DIM];
	pthread_t thread;
	void *result;
	int ret;

	assert_int_equal(pthread_create(&thread, NULL, wait_for_a_table, NULL), 0);
	do {
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
		ret = ramps_table_pull(job.plain, 0, 1, values, NULL, 1000);
	} while (ret == 0 && bad_now_ms() < deadline);
	if (ret) {
		must_fail(ramps_table_pull(job.plain, 0, 1, values, NULL, 1000), EBUSY, "thread");
		must_fail(ramps_worker_flush(job.worker, RAMPS_LANDED, 1000), EBUSY, "thread");
	}
	ramps_worker_interrupt(job.worker);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, -EINTR);
	return ret == -EBUSY;
}

static void a_second_thread_in_a_worker_is_told_that_it_is_busy(void **state)
{
	int tries = 0;

	(void)state;
	while (!second_thread_is_told())
		assert_true(++tries < 5);
	bad_job_check(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_failure_has_a_line_of_its_own_until_the_next_one),
		cmocka_unit_test(null_is_refused_by_servers_and_workers),
		cmocka_unit_test(null_is_refused_by_tables),
		cmocka_unit_test(null_is_refused_by_barriers_and_clocks),
		cmocka_unit_test(structs_without_their_size_are_refused),
		cmocka_unit_test(settings_of_a_server_out_of_range_are_refused),
		cmocka_unit_test(a_buffer_too_short_for_an_address_is_refused),
		cmocka_unit_test(numbers_without_a_meaning_are_refused),
		cmocka_unit_test(what_a_mode_lacks_is_refused),
		cmocka_unit_test(schemas_out_of_range_are_refused),
		cmocka_unit_test(wrong_operations_are_taken_and_reaped_with_their_error),
		cmocka_unit_test(a_wrong_operation_does_not_stop_those_beside_it),
		cmocka_unit_test(what_outlives_its_worker_says_that_it_was_closed),
		cmocka_unit_test(a_second_thread_in_a_worker_is_told_that_it_is_busy),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

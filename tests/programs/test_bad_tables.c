/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables that are not there or are others than expected, rows beyond their end, sizes that wrap around, names that are none. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/bad_support.h"

#include <cmocka.h>

#define LENGTH_63 "a23456789.123456789_123456789-123456789/123456789.123456789B123"

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

static struct ramps_schema schema_of(const char *name)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = name;
	schema.rows = BAD_ROWS;
	schema.dim = BAD_DIM;
	return schema;
}

static void an_unknown_table_is_told_at_once_or_in_time(void **state)
{
	struct ramps_table *table;
	int64_t start = bad_now_ms();

	(void)state;
	must_fail(ramps_table_open(job.worker, "unknown", NULL, 0, &table), ENOENT, "unknown");
	must(bad_now_ms() - start < bad_soon_ms());
	start = bad_now_ms();
	must_fail(ramps_table_open(job.worker, "unknown", NULL, 50, &table), ETIMEDOUT, "unknown");
	must(bad_now_ms() - start >= 49);
	must(bad_now_ms() - start < 50 + bad_soon_ms());
	bad_job_check(&job);
}

static void a_barrier_or_clock_is_no_table(void **state)
{
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;
	struct ramps_table *table;

	(void)state;
	must_work(ramps_barrier_open(job.worker, "shared/name", NULL, &barrier));
	must_work(ramps_clock_open(job.worker, "shared/name", &clock));
	must_fail(ramps_table_open(job.worker, "shared/name", NULL, 0, &table), ENOENT, "shared/name");
	ramps_barrier_close(barrier);
	ramps_clock_close(clock);
}

struct other {
	const char *table;
	struct ramps_schema schema;
	const char *words; /* of both */
	bool only_create;  /* what open does not compare */
};

static void another_schema_is_refused_and_both_are_named(void **state)
{
	struct other others[] = {
		{ .table = "plain", .words = "100 x 8|50 x 8" },
		{ .table = "plain", .words = "100 x 8|100 x 9" },
		{ .table = "plain", .words = "8 x 100|100 x 8" },
		{ .table = "plain", .words = "float32|int64" },
		{ .table = "plain", .words = "direct|slots" },
		{ .table = "plain", .words = "32|16", .only_create = true },
		{ .table = "counts", .words = "int64|float32" },
		{ .table = "grad", .words = "asynchronous|synchronous" },
		{ .table = "grad", .words = "slots|direct" },
	};
	struct ramps_table *table;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		others[i].schema = schema_of(others[i].table);
	others[0].schema.rows = 50;
	others[1].schema.dim = 9;
	others[2].schema.rows = 8;
	others[2].schema.dim = 100;
	others[3].schema.type = RAMPS_INT64;
	others[4].schema.mode = RAMPS_SLOTS;
	others[5].schema.fraction_bits = 16;
	others[7].schema.mode = RAMPS_SLOTS;
	others[7].schema.synchronous = 1;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		const struct other *other = &others[i];

		must_fail(ramps_table_create(job.worker, &other->schema, &table), EEXIST, other->table);
		must_fail(ramps_table_create(job.worker, &other->schema, &table), EEXIST, other->words);
		if (other->only_create)
			continue;
		must_fail(ramps_table_open(job.worker, other->table, &other->schema, 0, &table),
			  EEXIST, other->table);
		must_fail(ramps_table_open(job.worker, other->table, &other->schema, 1000, &table),
			  EEXIST, other->words);
	}
	bad_job_check(&job);
}

static void the_same_schema_is_opened_and_its_initial_values_are_not_used(void **state)
{
	struct ramps_schema schema = schema_of("plain");
	float values[BAD_ROWS * BAD_DIM] = { 17 };
	struct ramps_table *table;

	(void)state;
	schema.initial = values;
	must_work(ramps_table_create(job.worker, &schema, &table));
	ramps_table_close(table);
	must_work(ramps_table_open(job.worker, "plain", &schema, 0, &table));
	ramps_table_close(table);
	bad_job_check(&job);
}

static void rows_beyond_the_end_are_refused(void **state)
{
	static const struct {
		uint64_t first, rows;
	} spans[] = {
		{ BAD_ROWS, 1 },       { BAD_ROWS - 1, 2 },        { 0, BAD_ROWS + 1 },
		{ UINT64_MAX, 1 },     { UINT64_MAX, UINT64_MAX }, { 1, UINT64_MAX },
		{ 2, UINT64_MAX - 1 }, { 0, UINT64_MAX },          { 0, UINT64_MAX / 32 + 2 },
		{ UINT64_MAX - 1, 3 }, { 1ull << 63, 1ull << 63 }, { BAD_ROWS + 1, 0 },
	};
	struct ramps_table *const tables[] = { job.plain, job.counts, job.grad };
	static const char *const names[] = { "plain", "counts", "grad" };
	static int64_t values[2 * BAD_ROWS * BAD_DIM];
	const void *view;

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		values[i] = 1;
	for (size_t i = 0; i < 3 * sizeof(spans) / sizeof(spans[0]); i++) {
		uint64_t first = spans[i / 3].first, rows = spans[i / 3].rows;
		struct ramps_table *table = tables[i % 3];
		const char *name = names[i % 3];

		must_fail(ramps_table_pull(table, first, rows, values, NULL, 1000), ERANGE, name);
		must_fail(ramps_table_push(table, first, rows, values, NULL, 1000), ERANGE, name);
		if (table != job.plain)
			must_fail(ramps_table_view(table, first, rows, &view), ERANGE, name);
	}
	must_work(ramps_table_pull(job.plain, BAD_ROWS, 0, values, NULL, 1000));
	must_work(ramps_table_push(job.plain, 0, 0, values, NULL, 1000));
	bad_job_check(&job);
}

static void one_row_beyond_the_end_stops_all(void **state)
{
	static const uint64_t wrong[] = { BAD_ROWS, UINT64_MAX, 1ull << 63, 1ull << 32 };
	int64_t counts[64 * BAD_DIM];
	float values[64 * BAD_DIM];
	uint64_t rows[64];

	(void)state;
	for (size_t i = 0; i < 64 * BAD_DIM; i++) {
		counts[i] = 1;
		values[i] = 1;
	}
	for (size_t at = 0; at < 64; at += 21) {
		for (size_t i = 0; i < 64; i++)
			rows[i] = i;
		rows[at] = wrong[at / 21 % 4];
		must_fail(ramps_table_push_rows(job.plain, rows, 64, values, NULL, 1000), ERANGE, "plain");
		must_fail(ramps_table_push_rows(job.counts, rows, 64, counts, NULL, 1000), ERANGE,
			  "counts");
		must_fail(ramps_table_pull_rows(job.counts, rows, 64, counts, NULL, 1000), ERANGE,
			  "counts");
	}
	must_fail(ramps_table_push_rows(job.plain, rows, SIZE_MAX, values, NULL, 1000), EOVERFLOW, "");
	must_fail(ramps_table_pull_rows(job.plain, rows, SIZE_MAX / 2, values, NULL, 1000),
		  EOVERFLOW, "");
	bad_job_check(&job);
}

static void sizes_that_overflow_are_refused(void **state)
{
	static const struct {
		uint64_t rows, dim;
	} sizes[] = {
		{ 1ull << 32, 1ull << 32 }, { UINT64_MAX, 1 },          { 1, UINT64_MAX },
		{ UINT64_MAX, UINT64_MAX }, { 1ull << 44, 1 },          { 1ull << 22, 1ull << 22 },
		{ 1ull << 63, 2 },          { (1ull << 61) + 1, 8 },    { 3, UINT64_MAX / 3 + 1 },
		{ 1ull << 43, 2 },          { 1ull << 33, 1ull << 31 }, { UINT64_MAX / 4, 8 },
	};
	struct ramps_schema schema = schema_of("huge");
	struct ramps_table *table;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		schema.rows = sizes[i].rows;
		schema.dim = sizes[i].dim;
		schema.mode = RAMPS_DIRECT;
		must_fail(ramps_table_create(job.worker, &schema, &table), EOVERFLOW, "huge");
		schema.mode = RAMPS_SLOTS;
		must_fail(ramps_table_create(job.worker, &schema, &table), EOVERFLOW, "huge");
	}
	must_fail(ramps_table_open(job.worker, "huge", NULL, 0, &table), ENOENT, "huge");
	bad_job_check(&job);
}

static const char length_64[] = LENGTH_63 "4";

static const char *const wrong_names[] = {
	"",   length_64,      ".hidden",     "/root", "a..b", "..", "a/../b", "two words",
	" a", "na\xc3\xafve", "line\nbreak", "tab\t", "a\\b", "a*", "quote'", "\x7f",
};

static void wrong_names_are_refused_everywhere(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_worker_options join = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_barrier *barrier;
	struct ramps_server *server;
	struct ramps_worker *worker;
	struct ramps_clock *clock;
	struct ramps_table *table;

	(void)state;
	join.servers = job.address;
	join.rank = 3;
	join.workers = BAD_WORKERS;
	for (size_t i = 0; i < sizeof(wrong_names) / sizeof(wrong_names[0]); i++) {
		const char *name = wrong_names[i];
		struct ramps_schema schema = schema_of(name);

		must_fail(ramps_table_create(job.worker, &schema, &table), EINVAL, "table");
		must_fail(ramps_table_open(job.worker, name, NULL, -1, &table), EINVAL, "table");
		must_fail(ramps_barrier_open(job.worker, name, NULL, &barrier), EINVAL, "barrier");
		must_fail(ramps_clock_open(job.worker, name, &clock), EINVAL, "clock");
		options.job = join.job = name;
		must_fail(ramps_server_start(&options, &server), EINVAL, "job");
		must_fail(ramps_worker_join(&join, &worker), EINVAL, "job");
	}
	bad_job_check(&job);
}

static void open_and_close(const char *name)
{
	struct ramps_schema schema = schema_of(name);
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;
	struct ramps_table *table;

	must_work(ramps_table_create(job.worker, &schema, &table));
	ramps_table_close(table);
	must_work(ramps_table_open(job.worker, name, &schema, 0, &table));
	ramps_table_close(table);
	must_work(ramps_barrier_open(job.worker, name, NULL, &barrier));
	ramps_barrier_close(barrier);
	must_work(ramps_clock_open(job.worker, name, &clock));
	ramps_clock_close(clock);
}

static void join_and_leave(void *name)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_worker_options join = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_server *server;
	struct ramps_worker *worker;

	options.address = join.servers = "shm://" LENGTH_63;
	options.job = join.job = name;
	join.rank = 0;
	join.workers = 1;
	must_work(ramps_server_start(&options, &server));
	must_work(ramps_worker_join(&join, &worker));
	must_work(ramps_worker_leave(worker, 5000));
	ramps_worker_close(worker);
	ramps_server_stop(server);
}

static void names_of_63_bytes_and_with_slashes_are_names(void **state)
{
	static char longest[] = LENGTH_63, nested[] = "layer/1/weights.v2_b-c";

	(void)state;
	assert_int_equal(strlen(longest), 63);
	open_and_close(longest);
	open_and_close(nested);
	open_and_close("Z");
	bad_child(join_and_leave, longest);
	bad_child(join_and_leave, nested);
	bad_job_check(&job);
}

static void wrong_groups_of_barriers_are_refused(void **state)
{
	static const uint32_t beyond[] = { 0, BAD_WORKERS }, twice[] = { 0, 1, 1 },
			      down[] = { 0, 2, 1 }, without_me[] = { 1, 2 }, good[] = { 0, 2 },
			      less[] = { 0 };
	const struct ramps_group wrong[] = {
		{ beyond, 2 },     { twice, 3 }, { down, 3 },
		{ without_me, 2 }, { good, 0 },  { NULL, 2 },
	};
	const struct ramps_group group = { good, 2 }, other = { less, 1 };
	struct ramps_barrier *barrier, *same;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		must_fail(ramps_barrier_open(job.worker, "group", &wrong[i], &barrier), EINVAL, "group");
	must_work(ramps_barrier_open(job.worker, "group", &group, &barrier));
	must_fail(ramps_barrier_open(job.worker, "group", &other, &same), EEXIST, "group");
	must_fail(ramps_barrier_open(job.worker, "group", NULL, &same), EEXIST, "group");
	must_work(ramps_barrier_arrive(barrier, 1000));
	must_fail(ramps_barrier_arrive(barrier, 1000), EALREADY, "group");
	ramps_barrier_close(barrier);
	bad_job_check(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unknown_table_is_told_at_once_or_in_time),
		cmocka_unit_test(a_barrier_or_clock_is_no_table),
		cmocka_unit_test(another_schema_is_refused_and_both_are_named),
		cmocka_unit_test(the_same_schema_is_opened_and_its_initial_values_are_not_used),
		cmocka_unit_test(rows_beyond_the_end_are_refused),
		cmocka_unit_test(one_row_beyond_the_end_stops_all),
		cmocka_unit_test(sizes_that_overflow_are_refused),
		cmocka_unit_test(wrong_names_are_refused_everywhere),
		cmocka_unit_test(names_of_63_bytes_and_with_slashes_are_names),
		cmocka_unit_test(wrong_groups_of_barriers_are_refused),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

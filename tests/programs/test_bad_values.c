/* SPDX-License-Identifier: BSD-2-Clause */
/* Values that no parameter may have: refused before anything is sent, however far back they stand. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/bad_support.h"

#include <cmocka.h>

#define LARGE_ROWS 4000u
#define LARGE_DIM  65u /* no multiple of any vector */
#define LARGE      ((size_t)LARGE_ROWS * LARGE_DIM)

static struct bad_job job;
static float *values, *seen;

static int begin(void **state)
{
	int ret = bad_setup(state);

	values = calloc(LARGE, sizeof(*values));
	seen = calloc(LARGE, sizeof(*seen));
	if (!ret)
		bad_job_begin(&job);
	return ret;
}

static int end(void **state)
{
	bad_job_end(&job);
	free(values);
	free(seen);
	return bad_teardown(state);
}

static struct ramps_schema large_schema(const char *name, uint32_t mode)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = name;
	schema.rows = LARGE_ROWS;
	schema.dim = LARGE_DIM;
	schema.mode = mode;
	return schema;
}

static void fill(float value)
{
	for (size_t i = 0; i < LARGE; i++)
		values[i] = value;
}

/* The table is still all zeros, also when what may be on its way has come to rest. */
static void check_zeros(struct ramps_table *table)
{
	must_work(ramps_worker_flush(job.worker, RAMPS_APPLIED, 20000));
	must_work(ramps_table_pull(table, 0, LARGE_ROWS, seen, NULL, 20000));
	for (size_t i = 0; i < LARGE; i++)
		must(seen[i] == 0);
}

static const size_t places[] = { 0, 1, LARGE / 2 + 3, 16384, LARGE - 2, LARGE - 1 };
#define PLACES (sizeof(places) / sizeof(places[0]))

static void a_bad_value_anywhere_in_a_large_push_stops_all_of_it(void **state)
{
	const float bad[] = { NAN, INFINITY, -INFINITY, -NAN };
	static const char *const names[] = { "large/direct", "large/slots" };

	(void)state;
	for (uint32_t mode = RAMPS_DIRECT; mode <= RAMPS_SLOTS; mode++) {
		const char *name = names[mode - RAMPS_DIRECT];
		struct ramps_schema schema = large_schema(name, mode);
		struct ramps_table *table;

		must_work(ramps_table_create(job.worker, &schema, &table));
		fill(1);
		for (size_t i = 0; i < 4 * PLACES; i++) {
			values[places[i / 4]] = bad[i % 4];
			must_fail(ramps_table_push(table, 0, LARGE_ROWS, values, NULL, 20000), EDOM, name);
			values[places[i / 4]] = 1;
		}
		check_zeros(table);
		fill(0);
		must_work(ramps_table_push(table, 0, LARGE_ROWS, values, NULL, 20000));
		ramps_table_close(table);
	}
	bad_job_check(&job);
}

static void a_value_beyond_fixed_point_stops_all_of_a_push(void **state)
{
	const float limit = ldexpf(1, 63 - 32), bad[] = { limit, -2 * limit, 1e30f, -3.4e38f };
	struct ramps_schema schema = large_schema("large/fixed", RAMPS_DIRECT);
	struct ramps_table *table;
	float value;

	(void)state;
	must_work(ramps_table_create(job.worker, &schema, &table));
	fill(1);
	for (size_t i = 0; i < 4 * PLACES; i++) {
		values[places[i / 4]] = bad[i % 4];
		must_fail(ramps_table_push(table, 0, LARGE_ROWS, values, NULL, 20000), EDOM,
			  "large/fixed");
		values[places[i / 4]] = 1;
	}
	check_zeros(table);
	ramps_table_close(table);
	value = nextafterf(limit, 0);
	must_work(ramps_table_open(job.worker, "plain", NULL, 0, &table));
	for (int i = 0; i < 2; i++, value = -value) {
		float row[BAD_DIM] = { value };

		must_work(ramps_table_push(table, 9, 1, row, NULL, 20000));
	}
	ramps_table_close(table);
	bad_job_check(&job);
}

static void the_largest_fraction_leaves_room_for_values_below_two(void **state)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	const float fits = nextafterf(2, 0), beyond = 2;
	struct ramps_table *table;
	float read_back;

	(void)state;
	schema.name = "fine";
	schema.fraction_bits = 62;
	must_work(ramps_table_create(job.worker, &schema, &table));
	must_fail(ramps_table_push(table, 0, 1, &beyond, NULL, 20000), EDOM, "fine");
	must_work(ramps_table_push(table, 0, 1, &fits, NULL, 20000));
	must_work(ramps_table_pull(table, 0, 1, &read_back, NULL, 20000));
	must(read_back == fits);
	ramps_table_close(table);
}

static void a_bad_value_in_one_of_many_rows_stops_all(void **state)
{
	const float bad[] = { NAN, INFINITY, 1e20f };
	float rows_of[64 * BAD_DIM];
	uint64_t rows[64];

	(void)state;
	for (size_t i = 0; i < 64 * BAD_DIM; i++)
		rows_of[i] = 1;
	for (uint64_t i = 0; i < 64; i++)
		rows[i] = (i * 37) % BAD_ROWS;
	for (size_t i = 0; i < 3; i++) {
		rows_of[64 * BAD_DIM - 1] = bad[i];
		must_fail(ramps_table_push_rows(job.plain, rows, 64, rows_of, NULL, 20000), EDOM, "plain");
	}
	bad_job_check(&job);
}

static void a_bad_initial_value_makes_no_table(void **state)
{
	const float bad[] = { NAN, INFINITY, 1e20f };

	(void)state;
	for (uint32_t mode = RAMPS_DIRECT; mode <= RAMPS_SLOTS; mode++) {
		const char *name = mode == RAMPS_DIRECT ? "initial/direct" : "initial/slots";
		struct ramps_schema schema = large_schema(name, mode);
		struct ramps_table *table;

		fill(0.5f);
		schema.initial = values;
		for (size_t i = 0; i < (mode == RAMPS_DIRECT ? 3 : 2); i++) {
			values[LARGE - 1] = bad[i];
			must_fail(ramps_table_create(job.worker, &schema, &table), EDOM, name);
		}
		must_fail(ramps_table_open(job.worker, name, NULL, 0, &table), ENOENT, name);
		values[LARGE - 1] = 0.5f;
		must_work(ramps_table_create(job.worker, &schema, &table));
		must_work(ramps_table_pull(table, 0, LARGE_ROWS, seen, NULL, 20000));
		must(memcmp(seen, values, LARGE * sizeof(*seen)) == 0);
		ramps_table_close(table);
	}
	bad_job_check(&job);
}

static void weights_and_rates_without_a_meaning_are_refused(void **state)
{
	const float weights[] = { -1, -1e-30f, NAN, INFINITY, -INFINITY };
	const float rates[] = { INFINITY };
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	float gradient[BAD_ROWS * BAD_DIM];

	(void)state;
	for (size_t i = 0; i < BAD_ROWS * BAD_DIM; i++)
		gradient[i] = 1;
	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
		transfer.weight = weights[i];
		must_fail(ramps_table_push(job.grad, 0, BAD_ROWS, gradient, &transfer, 20000),
			  EINVAL, "weight");
	}
	transfer.weight = 1;
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		transfer.rate = rates[i];
		must_fail(ramps_table_push(job.grad, 0, BAD_ROWS, gradient, &transfer, 20000),
			  EINVAL, "rate");
	}
	bad_job_check(&job);
}

static void a_rate_that_is_no_number_means_the_table_s(void **state)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	const float one = 1, rates[] = { NAN, -NAN, -1 };
	struct ramps_table *table;
	float now = 0;

	(void)state;
	schema.name = "rate";
	schema.mode = RAMPS_SLOTS;
	schema.rate = 0.5f;
	transfer.level = RAMPS_APPLIED;
	must_work(ramps_table_create(job.worker, &schema, &table));
	for (int i = 0; i < 3; i++) {
		transfer.rate = rates[i];
		must_work(ramps_table_push(table, 0, 1, &one, &transfer, 20000));
		must_work(ramps_table_pull(table, 0, 1, &now, NULL, 20000));
		must(now == -0.5f * (float)(i + 1));
	}
	ramps_table_close(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_value_anywhere_in_a_large_push_stops_all_of_it),
		cmocka_unit_test(a_value_beyond_fixed_point_stops_all_of_a_push),
		cmocka_unit_test(the_largest_fraction_leaves_room_for_values_below_two),
		cmocka_unit_test(a_bad_value_in_one_of_many_rows_stops_all),
		cmocka_unit_test(a_bad_initial_value_makes_no_table),
		cmocka_unit_test(weights_and_rates_without_a_meaning_are_refused),
		cmocka_unit_test(a_rate_that_is_no_number_means_the_table_s),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

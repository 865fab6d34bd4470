/* SPDX-License-Identifier: BSD-2-Clause */
/* Buffers: memory that pulls and pushes move without a copy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ramps/ramps.h>

#include "support/support.h"

static int setup(void **state)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;

	options.servers = "embed:";
	options.rank = 0;
	options.workers = 1;
	return ramps_worker_join(&options, (struct ramps_worker **)state);
}

static int teardown(void **state)
{
	ramps_worker_close(*state);
	return 0;
}

static void buffer_of_its_own_memory_is_zeroed_and_moves_values(void **state)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_buffer *buffer;
	struct ramps_table *table;
	int64_t *values, copy[1000];

	schema.name = "own";
	schema.rows = 1000;
	schema.type = RAMPS_INT64;
	assert_ok(ramps_table_create(*state, &schema, &table));
	assert_ok(ramps_buffer_create(*state, NULL, sizeof(copy), &buffer));
	values = ramps_buffer_data(buffer);
	assert_int_equal((uintptr_t)values % 4096, 0);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(values[i], 0);
		values[i] = i;
	}
	assert_ok(ramps_table_push(table, 0, 1000, values, NULL, 1000));
	memset(values, 0, sizeof(copy));
	assert_ok(ramps_table_pull(table, 0, 1000, values, NULL, 1000));
	for (int i = 0; i < 1000; i++)
		assert_int_equal(values[i], i);
	ramps_buffer_close(buffer);
	ramps_table_close(table);
}

static void buffer_of_the_callers_memory_stays_the_callers(void **state)
{
	struct ramps_buffer *buffer;
	char *memory = malloc(5000);

	memset(memory, 7, 5000);
	assert_ok(ramps_buffer_create(*state, memory, 5000, &buffer));
	assert_ptr_equal(ramps_buffer_data(buffer), memory);
	ramps_buffer_close(buffer);
	assert_int_equal(memory[4999], 7);
	free(memory);
}

static void buffer_outlives_its_worker_and_is_closed_after_it(void **state)
{
	struct ramps_buffer *buffer;

	assert_ok(ramps_buffer_create(*state, NULL, 1, &buffer));
	ramps_worker_close(*state);
	memset(ramps_buffer_data(buffer), 1, 1);
	ramps_buffer_close(buffer);
	assert_ok(setup(state));
}

static void buffer_of_nothing_is_refused(void **state)
{
	struct ramps_buffer *buffer;

	assert_int_equal(ramps_buffer_create(*state, NULL, 0, &buffer), -EINVAL);
	assert_int_equal(ramps_buffer_create(*state, NULL, 1, NULL), -EINVAL);
	assert_int_equal(ramps_buffer_create(NULL, NULL, 1, &buffer), -EINVAL);
	assert_int_equal(ramps_buffer_create(*state, NULL, SIZE_MAX, &buffer), -ENOMEM);
	assert_null(ramps_buffer_data(NULL));
	ramps_buffer_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(buffer_of_its_own_memory_is_zeroed_and_moves_values,
						setup, teardown),
		cmocka_unit_test_setup_teardown(buffer_of_the_callers_memory_stays_the_callers,
						setup, teardown),
		cmocka_unit_test_setup_teardown(buffer_outlives_its_worker_and_is_closed_after_it,
						setup, teardown),
		cmocka_unit_test_setup_teardown(buffer_of_nothing_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, support_shm_setup, support_shm_teardown);
}

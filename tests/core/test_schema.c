/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/schema.h"

static struct ramps_schema slots(uint64_t rows, uint64_t dim)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "weights";
	schema.rows = rows;
	schema.dim = dim;
	schema.mode = RAMPS_SLOTS;
	return schema;
}

static int check(struct ramps_schema schema)
{
	struct core_table table;

	return core_schema_check(&schema, &table);
}

static void a_schema_out_of_range_is_refused(void **state)
{
	struct ramps_schema s = slots(10, 10);

	(void)state;
	assert_int_equal(check(s), 0);
	s.rows = 0;
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 0);
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 10);
	s.type = RAMPS_INT64;
	assert_int_equal(check(s), -EINVAL);
	s.mode = RAMPS_DIRECT;
	assert_int_equal(check(s), 0);
	s.synchronous = 1;
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 10);
	s.synchronous = 2;
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 10);
	s.mode = 3;
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 10);
	s.type = 0;
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 10);
	s.name = "../up";
	assert_int_equal(check(s), -EINVAL);
	s = slots(10, 10);
	s.mode = RAMPS_DIRECT;
	s.fraction_bits = 62;
	assert_int_equal(check(s), 0);
	s.fraction_bits = 63;
	assert_int_equal(check(s), -EINVAL);
}

static void a_rate_must_be_finite_and_not_negative(void **state)
{
	const float bad[] = { NAN, INFINITY, -INFINITY, -1e-30f };
	struct ramps_schema s = slots(1, 1);

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		s.rate = bad[i];
		assert_int_equal(check(s), -EINVAL);
	}
	s.rate = 0;
	assert_int_equal(check(s), 0);
}

static void a_table_beyond_the_address_space_overflows(void **state)
{
	const uint64_t limit = 1ull << 44; /* values, times 8 bytes: 2^47 */

	(void)state;
	assert_int_equal(check(slots(limit - 1, 1)), 0);
	assert_int_equal(check(slots(1, limit - 1)), 0);
	assert_int_equal(check(slots(limit, 1)), -EOVERFLOW);
	assert_int_equal(check(slots(1, limit)), -EOVERFLOW);
	assert_int_equal(check(slots(1ull << 22, 1ull << 22)), -EOVERFLOW);
	assert_int_equal(check(slots((1ull << 22) - 1, 1ull << 22)), 0);
	assert_int_equal(check(slots(limit / 3, 3)), 0);
	assert_int_equal(check(slots(limit / 3 + 1, 3)), -EOVERFLOW);
	/* products that wrap to something small */
	assert_int_equal(check(slots(1ull << 32, 1ull << 32)), -EOVERFLOW);
	assert_int_equal(check(slots(UINT64_MAX, UINT64_MAX)), -EOVERFLOW);
	assert_int_equal(check(slots((1ull << 63) + 1, 2)), -EOVERFLOW);
}

static void a_chunk_is_whole_rows_where_a_row_fits(void **state)
{
	const uint64_t dims[] = { 1, 2, 3, 10, 784, 1000, 8192, 8193, 16383, 16384, 16385, 1u << 30 };

	(void)state;
	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
		struct ramps_schema s = slots(7, dims[i]);

		for (uint32_t mode = RAMPS_DIRECT; mode <= RAMPS_SLOTS; mode++) {
			struct core_table t;
			uint64_t most;

			s.mode = mode;
			assert_int_equal(core_schema_check(&s, &t), 0);
			most = CORE_CHUNK_BYTES / core_value_bytes(&t);
			assert_in_range(t.chunk_elements, 1, most);
			if (dims[i] <= most) {
				assert_int_equal(t.chunk_elements % dims[i], 0);
				assert_true(t.chunk_elements + dims[i] > most);
			} else {
				assert_int_equal(t.chunk_elements, most);
			}
		}
	}
}

static void schemas_are_the_same_but_for_the_rate(void **state)
{
	struct ramps_schema s = slots(10, 10);
	struct core_table a, b;
	char one[128], two[128];

	(void)state;
	assert_int_equal(core_schema_check(&s, &a), 0);
	s.rate = 3;
	assert_int_equal(core_schema_check(&s, &b), 0);
	assert_true(core_schema_same(&a, &b));
	for (int i = 0; i < 4; i++) {
		s = slots(10, 10);
		s.rows += i == 0;
		s.dim += i == 1;
		s.mode = i == 2 ? RAMPS_DIRECT : RAMPS_SLOTS;
		s.synchronous = i == 3;
		assert_int_equal(core_schema_check(&s, &b), 0);
		assert_false(core_schema_same(&a, &b));
		assert_string_not_equal(core_schema_text(&a, one, sizeof(one)),
					core_schema_text(&b, two, sizeof(two)));
	}
	assert_string_equal(one, "10 x 10 float32 slots asynchronous");
	assert_string_equal(two, "10 x 10 float32 slots synchronous");
	s = slots(10, 10);
	s.mode = RAMPS_DIRECT;
	assert_int_equal(core_schema_check(&s, &a), 0);
	s.fraction_bits = 20;
	assert_int_equal(core_schema_check(&s, &b), 0);
	assert_false(core_schema_same(&a, &b));
	assert_string_equal(core_schema_text(&b, two, sizeof(two)),
			    "10 x 10 float32 direct with 20 fraction bits");
	assert_string_equal(core_schema_text(&b, two, 8), "10 x 10");
}

/* Walks the shards from the first on; each range must begin where the one before ended. */
static void check_parts(const struct core_table *t, const char *name, uint32_t shards)
{
	uint32_t start = core_first_shard(name, shards);
	uint64_t total = t->rows * t->dim, next = 0, least = UINT64_MAX, most = 0;

	assert_in_range(start, 0, shards - 1);
	for (uint32_t i = 0; i < shards; i++) {
		uint64_t first, elements, chunks;

		core_part(t, name, (start + i) % shards, shards, &first, &elements);
		assert_int_equal(first, next);
		if (elements)
			assert_int_equal(first % t->chunk_elements, 0);
		next += elements;
		assert_true(next == total || next % t->chunk_elements == 0);
		chunks = (elements + t->chunk_elements - 1) / t->chunk_elements;
		least = chunks < least ? chunks : least;
		most = chunks > most ? chunks : most;
		assert_true(i > 0 || elements > 0);
	}
	assert_int_equal(next, total);
	assert_true(most - least <= 1);
}

static void parts_cover_every_element_exactly_once(void **state)
{
	int rounds = getenv("QUICK") || getenv("SAN") ? 20000 : 200000;
	uint64_t seed = 42;

	(void)state;
	for (int i = 0; i < rounds; i++) {
		char name[32];
		struct core_table t;
		struct ramps_schema s;
		uint64_t r = seed = seed * 6364136223846793005ull + 1442695040888963407ull;

		s = slots(1 + (r >> 32) % (i % 2 ? 100 : 1000000), 1 + (r >> 20) % (i % 3 ? 70 : 40000));
		s.mode = i % 5 ? RAMPS_SLOTS : RAMPS_DIRECT;
		snprintf(name, sizeof(name), "t%d", i);
		s.name = name;
		assert_int_equal(core_schema_check(&s, &t), 0);
		check_parts(&t, name, 1 + (uint32_t)(r >> 58));
	}
}

static void parts_of_sizes_around_a_chunk(void **state)
{
	(void)state;
	for (uint64_t chunks = 1; chunks <= 9; chunks++)
		for (int64_t off = -1; off <= 1; off++)
			for (uint32_t shards = 1; shards <= 64; shards++) {
				struct ramps_schema s = slots(chunks * 16384 + (uint64_t)off, 1);
				struct core_table t;

				assert_int_equal(core_schema_check(&s, &t), 0);
				check_parts(&t, s.name, shards);
			}
}

static void small_tables_spread_over_the_servers(void **state)
{
	uint32_t count[8] = { 0 };
	char name[32];

	(void)state;
	for (int i = 0; i < 8000; i++) {
		snprintf(name, sizeof(name), "layer%d/bias", i);
		count[core_first_shard(name, 8)]++;
	}
	for (int i = 0; i < 8; i++)
		assert_in_range(count[i], 700, 1300);
}

static void the_layout_hash_is_stable(void **state)
{
	(void)state;
	assert_int_equal(core_layout_hash(), core_layout_hash());
	assert_int_not_equal(core_layout_hash(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_schema_out_of_range_is_refused),
		cmocka_unit_test(a_rate_must_be_finite_and_not_negative),
		cmocka_unit_test(a_table_beyond_the_address_space_overflows),
		cmocka_unit_test(a_chunk_is_whole_rows_where_a_row_fits),
		cmocka_unit_test(schemas_are_the_same_but_for_the_rate),
		cmocka_unit_test(parts_cover_every_element_exactly_once),
		cmocka_unit_test(parts_of_sizes_around_a_chunk),
		cmocka_unit_test(small_tables_spread_over_the_servers),
		cmocka_unit_test(the_layout_hash_is_stable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

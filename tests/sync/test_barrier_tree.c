/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sync/barrier_tree.h"

#include <cmocka.h>

static const uint32_t fan_ins[] = { 2, 3, 8, 32 };

static void check_tree(uint32_t members, uint32_t fan_in)
{
	struct core_barrier where = { .members = members, .fan_in = fan_in, .nodes_offset = 640 };
	struct barrier_tree tree;
	uint64_t nodes = 0, offset = 640;
	uint32_t children = members;

	assert_int_equal(barrier_tree_init(&tree, &where), 0);
	for (uint32_t level = 0; level < tree.levels; level++) {
		uint32_t bits[1024] = { 0 };

		assert_int_equal(tree.offset[level], offset);
		assert_int_equal(tree.width[level], (children + fan_in - 1) / fan_in);
		for (uint32_t i = 0; i < children; i++) {
			assert_true(i / fan_in < tree.width[level]);
			assert_int_equal(bits[i / fan_in] & barrier_bit(&tree, i), 0);
			bits[i / fan_in] |= barrier_bit(&tree, i);
		}
		for (uint32_t i = 0; i < tree.width[level]; i++)
			assert_int_equal(barrier_full(&tree, level, i), bits[i]);
		children = tree.width[level];
		nodes += children;
		offset += children * sizeof(struct core_node);
	}
	assert_int_equal(children, 1);
	assert_int_equal(sync_barrier_nodes(members, fan_in), nodes);
}

static void every_child_has_a_bit_of_its_own_up_to_one_root(void **state)
{
	(void)state;
	for (uint32_t f = 0; f < 4; f++)
		for (uint32_t members = 1; members <= 1100; members++)
			check_tree(members, fan_ins[f]);
	assert_int_equal(sync_barrier_nodes(16384, 2), 16383);
	assert_int_equal(sync_barrier_nodes(32, 32), 1);
	assert_int_equal(sync_barrier_nodes(33, 32), 3);
}

static void impossible_trees_are_refused(void **state)
{
	struct core_barrier where = { .members = 0, .fan_in = 32 };
	struct barrier_tree tree;

	(void)state;
	assert_int_equal(barrier_tree_init(&tree, &where), -EINVAL);
	where.members = CORE_MAX_WORKERS + 1;
	assert_int_equal(barrier_tree_init(&tree, &where), -EINVAL);
	where.members = 4;
	for (where.fan_in = 0; where.fan_in < 40; where.fan_in++)
		assert_int_equal(barrier_tree_init(&tree, &where),
				 where.fan_in >= 2 && where.fan_in <= 32 ? 0 : -EINVAL);
}

static void inspect_tells_who_has_arrived_at_the_open_generation(void **state)
{
	struct core_barrier where = { .members = 5, .fan_in = 2 };
	struct core_node nodes[6]; /* leaves 0, 1, 2; then 3, 4; root 5 */
	uint32_t generation;
	bool arrived[5];

	(void)state;
	memset(nodes, 0, sizeof(nodes));
	assert_int_equal(sync_barrier_inspect(&where, nodes, &generation, arrived), 0);
	assert_int_equal(generation, 0);

	nodes[0].word = barrier_word(0, 3);
	nodes[1].word = barrier_word(0, 2);
	nodes[3].word = barrier_word(0, 1);
	assert_int_equal(sync_barrier_inspect(&where, nodes, &generation, arrived), 3);
	assert_int_equal(generation, 0);
	assert_memory_equal(arrived, ((bool[]){ true, true, false, true, false }), 5);

	/* Released: leaf 2 is already in the next. */
	nodes[0].word = nodes[1].word = nodes[3].word = nodes[5].word = barrier_word(UINT32_MAX, 3);
	nodes[4].word = barrier_word(UINT32_MAX, 1);
	nodes[2].word = barrier_word(0, 1);
	assert_int_equal(sync_barrier_inspect(&where, nodes, &generation, arrived), 1);
	assert_int_equal(generation, 0);
	assert_memory_equal(arrived, ((bool[]){ false, false, false, false, true }), 5);
}

static void comparisons_hold_where_generations_wrap(void **state)
{
	(void)state;
	assert_true(barrier_later(barrier_word(0, 0), UINT32_MAX));
	assert_false(barrier_later(barrier_word(UINT32_MAX, 3), 0));
	assert_true(barrier_has(barrier_word(2, 0), UINT32_MAX, 3));
	assert_false(barrier_has(barrier_word(UINT32_MAX, 3), 0, 1));
	assert_true(barrier_covers(0, UINT32_MAX));
	assert_false(barrier_covers(0, 0));
	assert_false(barrier_covers(UINT32_MAX, UINT32_MAX));
	assert_true(barrier_covers(1ull << 32 | 5, 4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_child_has_a_bit_of_its_own_up_to_one_root),
		cmocka_unit_test(impossible_trees_are_refused),
		cmocka_unit_test(inspect_tells_who_has_arrived_at_the_open_generation),
		cmocka_unit_test(comparisons_hold_where_generations_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

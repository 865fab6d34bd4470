/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Completions that get lost: between any two operations, and after the last. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/word.h"
#include "sync/barrier_tree.h"
#include "sync/world.h"

#include <cmocka.h>

struct member {
	struct memory_endpoint ep;
	struct sync_peer peer;
	struct sync_barrier *barrier;
	uint32_t entered, left;
};

static struct member members[WORLD_MAX];

static void open_all(struct world *w, uint32_t workers, uint32_t fan_in, uint32_t first_generation)
{
	world_open(w, false, workers, fan_in, first_generation);
	for (uint32_t i = 0; i < workers; i++) {
		members[i] = (struct member){ 0 };
		world_peer(w, &members[i].ep, &members[i].peer);
		assert_int_equal(sync_barrier_open(&members[i].peer, &w->barrier, i, NULL, 0,
						   &members[i].barrier),
				 0);
	}
}

static void close_all(struct world *w)
{
	for (uint32_t i = 0; i < w->workers; i++)
		sync_barrier_close(members[i].barrier);
	world_close(w);
}

static void check_words(struct world *w)
{
	struct barrier_tree tree;

	assert_int_equal(barrier_tree_init(&tree, &w->barrier), 0);
	for (uint32_t level = 0, n = 0; level < tree.levels; level++)
		for (uint32_t i = 0; i < tree.width[level]; i++, n++)
			assert_int_equal(barrier_arrived(world_nodes(w)[n].word) &
						 ~barrier_full(&tree, level, i),
					 0);
}

/* One call that does not block. Checks that who leaves does so after all have entered. */
static int try_wait(struct world *w, struct member *m)
{
	int ret;

	if (m->entered == m->left)
		m->entered++;
	ret = sync_barrier_wait(&m->peer, m->barrier, 0);
	if (ret)
		return ret;
	m->left++;
	assert_int_equal(m->entered, m->left);
	for (uint32_t i = 0; i < w->workers; i++)
		CHECK_OP(w, members[i].entered, >=, m->left);
	return 0;
}

static uint32_t least_left(const struct world *w)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < w->workers; i++)
		least = members[i].left < least ? members[i].left : least;
	return least;
}

/* Any interleaving of calls, with breaks anywhere. A member that is done waits for no other. */
static void run_random(uint32_t workers, uint32_t fan_in, uint32_t target, uint64_t seed)
{
	uint64_t calls = 0, most = (uint64_t)target * workers * 40;
	struct world w;

	open_all(&w, workers, fan_in, 0xfffffff0u);
	while (least_left(&w) < target) {
		struct member *m = &members[world_random(&seed) % workers];
		int ret;

		CHECK_OP(&w, ++calls, <, most);
		if (m->left == target)
			continue;
		if (world_random(&seed) % 4 == 0)
			m->ep.break_after = world_random(&seed) % 8;
		ret = try_wait(&w, m);
		if (ret == -ENOTCONN)
			memory_repair(&m->ep);
		else if (ret)
			CHECK_EQ(&w, ret, -ETIMEDOUT);
		m->ep.break_after = MEMORY_NEVER;
		check_words(&w);
	}
	close_all(&w);
}

static void lost_completions_anywhere_neither_release_nor_block(void **state)
{
	uint32_t target = world_rounds(20000, 300);

	(void)state;
	run_random(1, 32, target, 1);
	run_random(2, 32, target, 2);
	run_random(5, 32, target, 3);
	run_random(3, 2, target, 4);
	run_random(7, 2, target, 5);
	run_random(17, 4, target, 6);
	run_random(33, 32, target / 4, 7);
	run_random(64, 32, target / 8, 8);
}

/* The list of an arrival is cut off after k operations; the retry counts it once. */
static void arrival_of_unknown_fate_counts_once(void **state)
{
	(void)state;
	for (uint32_t k = 0; k <= 2; k++) {
		for (uint32_t who = 0; who < 3; who++) {
			struct world w;

			open_all(&w, 3, 32, 0);
			for (uint32_t round = 0; round < 4; round++) {
				uint32_t lists;

				for (uint32_t i = 0; i < 2; i++)
					assert_int_equal(try_wait(&w, &members[(who + 1 + i) % 3]),
							 -ETIMEDOUT);
				members[who].ep.break_after = k;
				assert_int_equal(try_wait(&w, &members[who]), -ENOTCONN);
				memory_repair(&members[who].ep);
				lists = members[who].ep.lists;
				assert_int_equal(try_wait(&w, &members[who]), 0);
				assert_int_not_equal(members[who].ep.lists, lists);
				for (uint32_t i = 0; i < 2; i++)
					assert_int_equal(try_wait(&w, &members[(who + 1 + i) % 3]), 0);
				check_words(&w);
			}
			close_all(&w);
		}
	}
}

/* A list that is still under way at the deadline is waited for before it is made up for. */
static void arrival_still_under_way_is_not_repeated(void **state)
{
	struct world w;

	(void)state;
	open_all(&w, 2, 32, 0);
	for (uint32_t i = 0; i < 2; i++)
		try_wait(&w, &members[i]);
	assert_int_equal(try_wait(&w, &members[0]), 0);
	members[0].ep.stalled = true;
	assert_int_equal(try_wait(&w, &members[0]), -ETIMEDOUT);
	assert_int_equal(try_wait(&w, &members[0]), -ETIMEDOUT);
	members[0].ep.stalled = false;
	assert_int_equal(try_wait(&w, &members[0]), -ETIMEDOUT);
	check_words(&w);
	assert_int_equal(world_nodes(&w)->word, barrier_word(1, 1));
	assert_int_equal(try_wait(&w, &members[1]), 0);
	assert_int_equal(try_wait(&w, &members[0]), 0);
	close_all(&w);
}

/* A leaf's filler breaks off before each operation of its climb, and never comes back. */
static void others_climb_for_who_does_not(void **state)
{
	(void)state;
	for (uint32_t k = 2; k < 8; k++) {
		struct world w;

		open_all(&w, 8, 2, 0);
		for (uint32_t round = 0; round < 2; round++)
			for (uint32_t turn = 0; turn < 2; turn++)
				for (uint32_t i = 0; i < 8; i++)
					if (members[i].left == round)
						try_wait(&w, &members[i]);
		assert_int_equal(least_left(&w), 2);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(sync_barrier_arrive(&members[i].peer, members[i].barrier, 0), 0);
		members[7].entered++;
		for (uint32_t i = 0; i < 7; i++)
			members[i].entered++;
		members[7].ep.break_after = k;
		sync_barrier_wait(&members[7].peer, members[7].barrier, 0);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(try_wait(&w, &members[i]), 0);
		memory_repair(&members[7].ep);
		assert_int_equal(try_wait(&w, &members[7]), 0);
		check_words(&w);
		close_all(&w);
	}
}

/* What a barrier costs when nothing goes wrong. */
static void arrival_is_one_list_and_release_one_wait(void **state)
{
	struct world w;

	(void)state;
	open_all(&w, 32, 32, 0);
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 32; i++)
			assert_int_equal(sync_barrier_arrive(&members[i].peer, members[i].barrier, 0), 0);
		for (uint32_t i = 0; i < 32; i++)
			members[i].entered++;
		for (uint32_t i = 0; i < 32; i++) {
			assert_int_equal(try_wait(&w, &members[i]), 0);
			if (!round)
				members[i].ep.lists = members[i].ep.ops = members[i].ep.waits = 0;
		}
	}
	for (uint32_t i = 0; i < 32; i++) {
		/* Who comes last wakes the others, and does not wait for that. */
		assert_int_equal(members[i].ep.lists, i < 31 ? 1 : 2);
		assert_int_equal(members[i].ep.ops, i < 31 ? 2 : 3); /* with the last round's waking */
		assert_int_equal(members[i].ep.waits, i < 31 ? 1 : 0);
	}
	close_all(&w);
}

/* Who fills the root wakes whoever sleeps there; who climbed then wakes the leaf. Nobody else wakes anyone. */
static void only_a_release_wakes(void **state)
{
	struct world w;

	(void)state;
	for (uint32_t fan_in = 3; fan_in <= 32; fan_in += 29) {
		open_all(&w, 9, fan_in, 0);
		for (uint32_t round = 0; round < 2; round++) {
			for (uint32_t i = 0; i < 9; i++) {
				members[i].ep.wakes = 0;
				assert_int_equal(
					sync_barrier_arrive(&members[i].peer, members[i].barrier, 0), 0);
				assert_int_equal(members[i].ep.wakes, i == 8);
				members[i].entered++;
			}
			for (uint32_t k = 0; k < 9; k++) {
				uint32_t i = k % 3 * 3 + 2 - k / 3; /* climbers first */

				members[i].ep.wakes = 0;
				assert_int_equal(try_wait(&w, &members[i]), 0);
				assert_int_equal(members[i].ep.wakes, fan_in == 3 && i % 3 == 2);
			}
		}
		close_all(&w);
	}
}

static uint32_t rounds;

static void enter_with_breaks(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	struct memory_endpoint *ep = (struct memory_endpoint *)peer->ep;
	struct sync_barrier *barrier;
	uint64_t seed = rank;
	int ret;

	CHECK_EQ(w, sync_barrier_open(peer, &w->barrier, rank, NULL, BASE_FOREVER, &barrier), 0);
	for (uint32_t round = 1; round <= rounds; round++) {
		word_store(&w->shared->line[rank].entered, round);
		do {
			ep->break_after = world_random(&seed) % 16 ? MEMORY_NEVER :
								     world_random(&seed) % 6;
			ret = sync_barrier_wait(peer, barrier, BASE_FOREVER);
			if (ret) {
				CHECK_EQ(w, ret, -ENOTCONN);
				memory_repair(ep);
			}
		} while (ret);
		for (uint32_t i = 0; i < w->workers; i++)
			CHECK_OP(w, word_load(&w->shared->line[i].entered), >=, round);
	}
}

static void run_processes(uint32_t workers, uint32_t fan_in, uint32_t full)
{
	struct world w;

	rounds = world_rounds(full, 500);
	world_open(&w, false, workers, fan_in, 0);
	for (uint32_t i = 0; i < workers; i++)
		world_spawn(&w, i, enter_with_breaks);
	world_join_all(&w, 100);
	check_words(&w);
	world_close(&w);
}

static void processes_that_lose_completions_go_on(void **state)
{
	(void)state;
	run_processes(3, 32, 200000);
	run_processes(7, 2, 100000);
	run_processes(12, 8, 50000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrival_of_unknown_fate_counts_once),
		cmocka_unit_test(arrival_still_under_way_is_not_repeated),
		cmocka_unit_test(others_climb_for_who_does_not),
		cmocka_unit_test(arrival_is_one_list_and_release_one_wait),
		cmocka_unit_test(only_a_release_wakes),
		cmocka_unit_test(lost_completions_anywhere_neither_release_nor_block),
		cmocka_unit_test(processes_that_lose_completions_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

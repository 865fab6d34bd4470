/* SPDX-License-Identifier: BSD-2-Clause */
/* Timeouts, interrupts, and the two halves of a wait. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/word.h"
#include "sync/world.h"

#include <cmocka.h>

#define MS 1000000ull

struct member {
	struct memory_endpoint ep;
	struct sync_peer peer;
	struct sync_barrier *barrier;
};

static struct member members[WORLD_MAX];
static const uint32_t odd_ranks[WORLD_MAX] = { 1, 3, 5, 7, 9, 11, 13, 15 };

static void open_members(struct world *w, uint32_t workers, uint32_t fan_in, const uint32_t *ranks)
{
	world_open(w, false, workers, fan_in, 0);
	for (uint32_t i = 0; i < workers; i++) {
		world_peer(w, &members[i].ep, &members[i].peer);
		assert_int_equal(sync_barrier_open(&members[i].peer, &w->barrier, i, ranks, 0,
						   &members[i].barrier),
				 0);
	}
}

static void close_members(struct world *w)
{
	for (uint32_t i = 0; i < w->workers; i++)
		sync_barrier_close(members[i].barrier);
	world_close(w);
}

static int wait_ms(uint32_t i, uint64_t ms)
{
	struct member *m = &members[i];

	return base_end("test", sync_barrier_wait(&m->peer, m->barrier, world_now() + ms * MS));
}

static void timeout_names_who_has_not_arrived(void **state)
{
	const struct ramps_error *error;
	struct world w;
	uint64_t started;

	(void)state;
	open_members(&w, 8, 2, odd_ranks);
	assert_int_equal(wait_ms(2, 0), -ETIMEDOUT);
	assert_int_equal(wait_ms(6, 0), -ETIMEDOUT);
	started = world_now();
	assert_int_equal(wait_ms(0, 50), -ETIMEDOUT);
	assert_in_range(world_now() - started, 50 * MS, 1000 * MS);
	error = base_last_error();
	assert_int_equal(error->code, ETIMEDOUT);
	assert_int_equal(error->rank_count, 5);
	assert_memory_equal(error->ranks, ((uint32_t[]){ 3, 7, 9, 11, 15 }), 5 * sizeof(uint32_t));
	assert_non_null(strstr(error->text, "barrier: waited "));
	assert_non_null(strstr(error->text, "ms for ranks 3, 7, 9, 11, 15"));
	close_members(&w);
}

static void text_counts_whom_it_does_not_list(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 40, 32, NULL);
	assert_int_equal(wait_ms(1, 0), -ETIMEDOUT);
	assert_int_equal(base_last_error()->rank_count, 39);
	assert_non_null(strstr(base_last_error()->text,
			       "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 27 more"));
	close_members(&w);
}

static void arrival_stands_after_a_timeout(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 3, 32, NULL);
	for (uint32_t round = 0; round < 5; round++) {
		assert_int_equal(wait_ms(0, 1), -ETIMEDOUT);
		assert_int_equal(wait_ms(0, 30), -ETIMEDOUT);
		assert_int_equal(wait_ms(1, 0), -ETIMEDOUT);
		assert_int_equal(base_last_error()->rank_count, 1);
		assert_int_equal(base_last_error()->ranks[0], 2);
		assert_non_null(strstr(base_last_error()->text, "for rank 2"));
		assert_int_equal(wait_ms(2, 0), 0);
		assert_int_equal(wait_ms(0, 0), 0);
		assert_int_equal(wait_ms(1, 0), 0);
	}
	close_members(&w);
}

static void arriving_twice_is_refused(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 2, 32, NULL);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 2; i++) {
			assert_int_equal(sync_barrier_arrive(&members[i].peer, members[i].barrier, 0), 0);
			assert_int_equal(sync_barrier_arrive(&members[i].peer, members[i].barrier, 0),
					 -EALREADY);
		}
		for (uint32_t i = 0; i < 2; i++)
			assert_int_equal(wait_ms(i, 0), 0);
	}
	close_members(&w);
}

static void interrupt_ends_one_wait(void **state)
{
	uint32_t interrupt = 1;
	struct world w;

	(void)state;
	open_members(&w, 2, 32, NULL);
	members[0].peer.interrupt = &interrupt;
	assert_int_equal(wait_ms(0, 1000), -EINTR);
	assert_int_equal(interrupt, 0);
	assert_int_equal(wait_ms(0, 1), -ETIMEDOUT);
	assert_int_equal(wait_ms(1, 0), 0);
	interrupt = 1;
	assert_int_equal(wait_ms(0, 0), -EINTR);
	assert_int_equal(wait_ms(0, 0), 0);
	close_members(&w);
}

static void be_interrupted(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	struct sync_barrier *barrier;

	peer->interrupt = (uint32_t *)&w->shared->line[0].values[0];
	CHECK_EQ(w, sync_barrier_open(peer, &w->barrier, rank, NULL, BASE_FOREVER, &barrier), 0);
	word_store(&w->shared->line[rank].entered, 1);
	CHECK_EQ(w, sync_barrier_wait(peer, barrier, BASE_FOREVER), -EINTR);
	CHECK_EQ(w, sync_barrier_wait(peer, barrier, world_now() + 5 * WORLD_S), 0);
}

static void interrupt_reaches_a_wait_within_50_ms(void **state)
{
	struct world w;
	uint64_t started;

	(void)state;
	open_members(&w, 2, 32, NULL);
	world_spawn(&w, 1, be_interrupted);
	while (world_nodes(&w)->word != 2)
		assert_int_equal(world_next_end(&w, world_now() + MS), -1);
	started = world_now();
	__atomic_store_n((uint32_t *)&w.shared->line[0].values[0], 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n((uint32_t *)&w.shared->line[0].values[0], __ATOMIC_SEQ_CST))
		assert_int_equal(world_next_end(&w, world_now() + MS), -1);
	assert_true(world_now() - started < 50 * MS);
	assert_int_equal(wait_ms(0, 0), 0);
	world_join_all(&w, 5);
	close_members(&w);
}

static void word_of_another_is_an_error(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 2, 32, NULL);
	wait_ms(0, 0);
	wait_ms(1, 0);
	assert_int_equal(wait_ms(0, 0), 0);
	world_nodes(&w)->word = 77ull << 32;
	assert_int_equal(wait_ms(0, 0), -EPROTO);
	close_members(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timeout_names_who_has_not_arrived),
		cmocka_unit_test(text_counts_whom_it_does_not_list),
		cmocka_unit_test(arrival_stands_after_a_timeout),
		cmocka_unit_test(arriving_twice_is_refused),
		cmocka_unit_test(interrupt_ends_one_wait),
		cmocka_unit_test(interrupt_reaches_a_wait_within_50_ms),
		cmocka_unit_test(word_of_another_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 200 s */
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
	struct sync_clock *clock;
};

static struct member members[8];

static void open_member(struct world *w, uint32_t i)
{
	world_peer(w, &members[i].ep, &members[i].peer);
	assert_int_equal(sync_clock_open(&members[i].peer, &w->clock, i, 0, &members[i].clock), 0);
}

static void open_members(struct world *w, uint32_t workers, uint32_t on_death)
{
	world_open(w, false, workers, 32, 0);
	w->on_death = on_death;
	for (uint32_t i = 0; i < workers; i++)
		open_member(w, i);
}

static void close_members(struct world *w)
{
	for (uint32_t i = 0; i < w->workers; i++)
		sync_clock_close(members[i].clock);
	world_close(w);
}

static int advance(uint32_t i)
{
	return sync_clock_advance(&members[i].peer, members[i].clock, 0);
}

static void advance_by(uint32_t i, uint32_t steps)
{
	while (steps--)
		assert_int_equal(advance(i), 0);
}

static int wait_for(uint32_t i, uint64_t staleness)
{
	return base_end("test", sync_clock_wait(&members[i].peer, members[i].clock, staleness, 0));
}

static void step_counts_once_whatever_is_lost(void **state)
{
	uint64_t own = 0, expected = 0, least, seed = 1;
	struct world w;

	(void)state;
	open_members(&w, 1, 0);
	for (uint32_t i = 0; i < 2000; i++) {
		int ret;

		members[0].ep.break_after = world_random(&seed) % 3 ? MEMORY_NEVER :
								      world_random(&seed) % 2;
		ret = advance(0);
		if (ret) {
			assert_int_equal(ret, -ENOTCONN);
			memory_repair(&members[0].ep);
			i--;
			continue;
		}
		expected++;
		assert_int_equal(sync_clock_read(&members[0].peer, members[0].clock, &own, &least, 0), 0);
		assert_int_equal(own, expected);
		assert_int_equal(least, expected);
		assert_int_equal(*world_clock_word(&w, 0), expected);
	}
	close_members(&w);
}

static void wait_holds_until_all_are_near_enough(void **state)
{
	struct world w;
	uint64_t own, least;

	(void)state;
	open_members(&w, 3, 0);
	advance_by(0, 5);
	advance_by(1, 4);
	advance_by(2, 2);
	assert_int_equal(wait_for(0, 2), -ETIMEDOUT);
	assert_int_equal(base_last_error()->rank_count, 1);
	assert_int_equal(base_last_error()->ranks[0], 2);
	assert_non_null(strstr(base_last_error()->text, "for rank 2 to reach 3"));
	assert_int_equal(wait_for(0, 0), -ETIMEDOUT);
	assert_int_equal(base_last_error()->rank_count, 2);
	assert_int_equal(wait_for(0, 3), 0);
	assert_int_equal(wait_for(0, UINT64_MAX), 0);
	assert_int_equal(wait_for(2, 0), 0);
	assert_int_equal(sync_clock_read(&members[0].peer, members[0].clock, &own, &least, 0), 0);
	assert_int_equal(own, 5);
	assert_int_equal(least, 2);
	advance_by(2, 1);
	assert_int_equal(wait_for(0, 2), 0);
	close_members(&w);
}

/* What was found before holds on: no READ where it is enough. */
static void wait_that_is_known_to_be_over_costs_nothing(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 2, 0);
	advance_by(1, 10);
	advance_by(0, 1);
	assert_int_equal(wait_for(0, 0), 0);
	members[0].ep.lists = 0;
	advance_by(0, 1);
	assert_int_equal(wait_for(0, 1), 0);
	assert_int_equal(members[0].ep.lists, 1);
	close_members(&w);
}

static void ranks_that_are_not_live_are_skipped(void **state)
{
	const uint32_t states[] = { CORE_ABSENT, CORE_LEFT, CORE_DEAD };
	struct world w;

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		open_members(&w, 3, RAMPS_ON_DEATH_CONTINUE);
		advance_by(0, 5);
		advance_by(1, 5);
		assert_int_equal(wait_for(0, 0), -ETIMEDOUT);
		world_set_state(&w, 2, states[i]);
		assert_int_equal(wait_for(0, 0), 0);
		close_members(&w);
	}
}

static void own_count_counts_whatever_the_states_say(void **state)
{
	uint64_t own, least;
	struct world w;

	(void)state;
	open_members(&w, 2, 0);
	advance_by(0, 3);
	world_set_state(&w, 0, CORE_ABSENT);
	world_set_state(&w, 1, CORE_ABSENT);
	assert_int_equal(sync_clock_read(&members[0].peer, members[0].clock, &own, &least, 0), 0);
	assert_int_equal(least, 3);
	assert_int_equal(wait_for(0, 0), 0);
	close_members(&w);
}

static void dead_rank_fails_who_would_leave_it_behind(void **state)
{
	uint64_t least;
	struct world w;

	(void)state;
	open_members(&w, 3, RAMPS_ON_DEATH_FAIL);
	advance_by(0, 3);
	advance_by(1, 9);
	advance_by(2, 2);
	world_set_state(&w, 2, CORE_DEAD);
	assert_int_equal(wait_for(0, 1), 0);
	assert_int_equal(sync_clock_read(&members[0].peer, members[0].clock, NULL, &least, 0), 0);
	assert_int_equal(least, 3);
	advance_by(0, 1);
	assert_int_equal(wait_for(0, 1), -EOWNERDEAD);
	assert_int_equal(base_last_error()->rank_count, 1);
	assert_int_equal(base_last_error()->ranks[0], 2);
	assert_int_equal(wait_for(0, 2), 0);
	close_members(&w);
}

static void late_rank_is_raised_to_the_least_of_the_live(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 4, RAMPS_ON_DEATH_CONTINUE);
	world_set_state(&w, 3, CORE_ABSENT);
	world_set_state(&w, 2, CORE_DEAD);
	advance_by(0, 7);
	advance_by(1, 5);
	advance_by(2, 1);
	assert_int_equal(sync_clock_raise(&w.server, &w.clock, 3, 0), 0);
	assert_int_equal(*world_clock_word(&w, 3), 5);
	assert_int_equal(sync_clock_raise(&w.server, &w.clock, 3, 0), 0);
	assert_int_equal(*world_clock_word(&w, 3), 5);
	sync_clock_close(members[3].clock);
	open_member(&w, 3);
	world_set_state(&w, 3, CORE_LIVE);
	assert_int_equal(wait_for(0, 1), -ETIMEDOUT);
	assert_int_equal(base_last_error()->rank_count, 2);
	advance_by(3, 1);
	advance_by(1, 1);
	assert_int_equal(*world_clock_word(&w, 3), 6);
	assert_int_equal(wait_for(0, 1), 0);
	/* Ahead of the others: left as it is. Nobody live: too. */
	assert_int_equal(sync_clock_raise(&w.server, &w.clock, 0, 0), 0);
	assert_int_equal(*world_clock_word(&w, 0), 7);
	for (uint32_t i = 0; i < 4; i++)
		world_set_state(&w, i, CORE_DEAD);
	assert_int_equal(sync_clock_raise(&w.server, &w.clock, 2, 0), 0);
	assert_int_equal(*world_clock_word(&w, 2), 1);
	close_members(&w);
}

static void interrupt_ends_a_wait(void **state)
{
	uint32_t interrupt = 1;
	struct world w;

	(void)state;
	open_members(&w, 2, 0);
	members[0].peer.interrupt = &interrupt;
	assert_int_equal(wait_for(0, 0), 0); /* need not wait */
	advance_by(0, 1);
	assert_int_equal(wait_for(0, 0), -EINTR);
	assert_int_equal(wait_for(0, 0), -ETIMEDOUT);
	close_members(&w);
}

static void rank_that_is_none_is_refused(void **state)
{
	struct sync_clock *clock;
	struct world w;

	(void)state;
	open_members(&w, 2, 0);
	assert_int_equal(sync_clock_open(&members[0].peer, &w.clock, 2, 0, &clock), -EINVAL);
	close_members(&w);
}

static uint32_t steps;

/* value[0] of a line: count at which the rank is; published after advancing. */
static void step_at_random(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	uint64_t staleness = 3, seed = rank, own;
	struct sync_clock *clock;

	CHECK_EQ(w, sync_clock_open(peer, &w->clock, rank, BASE_FOREVER, &clock), 0);
	for (uint32_t i = 1; i <= steps; i++) {
		CHECK_EQ(w, sync_clock_advance(peer, clock, BASE_FOREVER), 0);
		if (world_random(&seed) % 64 == 0)
			sync_clock_wait(peer, clock, 0, world_now() + world_random(&seed) % 100000);
		staleness = world_random(&seed) % 4;
		CHECK_EQ(w, sync_clock_wait(peer, clock, staleness, BASE_FOREVER), 0);
		for (uint32_t k = 0; k < w->workers; k++)
			CHECK_OP(w, word_acquire(world_clock_word(w, k)) + staleness, >=, i);
		for (uint32_t spins = world_random(&seed) % 200; spins > 0; spins--)
			__asm__ volatile("" ::: "memory");
	}
	CHECK_EQ(w, sync_clock_read(peer, clock, &own, NULL, BASE_FOREVER), 0);
	CHECK_EQ(w, own, steps);
	sync_clock_close(clock);
}

static void nobody_is_further_ahead_than_it_asked_for(void **state)
{
	struct world w;

	(void)state;
	steps = world_rounds(200000, 10000);
	world_open(&w, true, 4, 32, 0);
	for (uint32_t i = 0; i < 4; i++)
		world_spawn(&w, i, step_at_random);
	world_join_all(&w, 100);
	world_close(&w);
}

/* Waits for rank 1, which dies; `values` tell what became of the wait. */
static void wait_for_the_dead(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	struct sync_clock *clock;
	int ret;

	CHECK_EQ(w, sync_clock_open(peer, &w->clock, rank, BASE_FOREVER, &clock), 0);
	CHECK_EQ(w, sync_clock_advance(peer, clock, BASE_FOREVER), 0);
	ret = base_end("test", sync_clock_wait(peer, clock, 0, world_now() + 5 * WORLD_S));
	CHECK_EQ(w, ret, w->on_death == RAMPS_ON_DEATH_FAIL ? -EOWNERDEAD : 0);
	if (ret)
		CHECK_EQ(w, base_last_error()->ranks[0], 1);
}

static void death_ends_waits_within_a_second(void **state)
{
	(void)state;
	for (uint32_t on_death = 0; on_death < 2; on_death++) {
		struct world w;

		world_open(&w, true, 2, 32, 0);
		w.on_death = on_death;
		world_spawn(&w, 0, wait_for_the_dead);
		while (!word_load(world_clock_word(&w, 0)))
			assert_int_equal(world_next_end(&w, world_now() + MS), -1);
		assert_int_equal(world_next_end(&w, world_now() + 50 * MS), -1);
		world_set_state(&w, 1, CORE_DEAD);
		world_join_all(&w, 1);
		world_close(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(step_counts_once_whatever_is_lost),
		cmocka_unit_test(wait_holds_until_all_are_near_enough),
		cmocka_unit_test(wait_that_is_known_to_be_over_costs_nothing),
		cmocka_unit_test(ranks_that_are_not_live_are_skipped),
		cmocka_unit_test(own_count_counts_whatever_the_states_say),
		cmocka_unit_test(dead_rank_fails_who_would_leave_it_behind),
		cmocka_unit_test(late_rank_is_raised_to_the_least_of_the_live),
		cmocka_unit_test(interrupt_ends_a_wait),
		cmocka_unit_test(rank_that_is_none_is_refused),
		cmocka_unit_test(nobody_is_further_ahead_than_it_asked_for),
		cmocka_unit_test(death_ends_waits_within_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

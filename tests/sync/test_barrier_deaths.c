/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Members that die, a server that arrives for them, and their next lives. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/word.h"
#include "sync/barrier_tree.h"
#include "sync/world.h"

#include <cmocka.h>

static uint32_t rounds, survivors, fatal_op;

static int stand_in(struct world *w)
{
	int ret = sync_barrier_stand_in(&w->server, &w->barrier, w->absent, BASE_FOREVER);

	if (ret < 0)
		CHECK_EQ(w, ret, 0);
	return ret;
}

/* All but the survivors die somewhere within some rounds. */
static void live_and_die(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	struct memory_endpoint *ep = (struct memory_endpoint *)peer->ep;
	uint64_t seed = world_now() + rank;
	struct sync_barrier *barrier;
	uint32_t round;

	CHECK_EQ(w, sync_barrier_open(peer, &w->barrier, rank, NULL, BASE_FOREVER, &barrier), 0);
	if (rank >= survivors)
		ep->kill_after = world_random(&seed) % 200;
	while ((round = sync_barrier_generation(barrier) + 1) <= rounds) {
		word_store(&w->shared->line[rank].entered, round);
		CHECK_EQ(w, sync_barrier_wait(peer, barrier, BASE_FOREVER), 0);
		for (uint32_t i = 0; i < survivors; i++)
			CHECK_OP(w, word_load(&w->shared->line[i].entered), >=, round);
	}
}

static void run_deaths(uint32_t workers, uint32_t fan_in, uint32_t full, uint32_t quick)
{
	uint64_t until = world_now() + 100 * WORLD_S, seed = workers, deaths = 0;
	uint64_t back_ns[WORLD_MAX] = { 0 };
	struct world w;
	int rank;

	rounds = world_rounds(full, quick);
	world_open(&w, false, workers, fan_in, 0);
	for (uint32_t i = 0; i < workers; i++)
		world_spawn(&w, i, live_and_die);
	while (world_running(&w) && world_now() < until) {
		rank = world_next_end(&w, world_now() + 100000);
		if (rank >= 0 && w.status[rank]) {
			w.absent[rank] = true;
			world_set_state(&w, (uint32_t)rank, CORE_DEAD);
			back_ns[rank] = world_now() + world_random(&seed) % 3000000;
			deaths++;
		}
		stand_in(&w);
		for (uint32_t i = 0; i < workers; i++) {
			if (!w.absent[i] || world_now() < back_ns[i])
				continue;
			w.absent[i] = false;
			world_set_state(&w, i, CORE_LIVE);
			world_spawn(&w, i, live_and_die);
		}
	}
	world_join_all(&w, 5);
	assert_true(deaths > 10);
	world_close(&w);
}

static void others_go_on_without_the_dead_and_with_their_next_lives(void **state)
{
	(void)state;
	survivors = 2;
	run_deaths(4, 32, 50000, 2000);
	survivors = 3;
	run_deaths(8, 2, 20000, 1000);
	run_deaths(12, 4, 20000, 1000);
}

/* Dies in generation 3, `fatal_op` operations into it. Rank 3 comes last, so it fills its leaf. */
static void last_rank_dies(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	struct memory_endpoint *ep = (struct memory_endpoint *)peer->ep;
	struct sync_barrier *barrier;
	int ret;

	CHECK_EQ(w, sync_barrier_open(peer, &w->barrier, rank, NULL, BASE_FOREVER, &barrier), 0);
	for (uint32_t round = 1; round <= 3; round++) {
		if (rank == 3 && round == 3) {
			while (world_nodes(w)[1].word != barrier_word(2, 1) ||
			       world_nodes(w)[0].word != barrier_word(2, 3))
				sched_yield();
			ep->kill_after = fatal_op;
		}
		CHECK_EQ(w, sync_barrier_wait(peer, barrier, BASE_FOREVER), 0);
		word_store(&w->shared->line[rank].entered, round);
	}
	ret = sync_barrier_wait(peer, barrier, world_now() + 5 * WORLD_S);
	base_end("test", ret);
	if (w->on_death == RAMPS_ON_DEATH_CONTINUE)
		_exit(0);
	CHECK_EQ(w, ret, -EOWNERDEAD);
	CHECK_EQ(w, base_last_error()->rank_count, 1);
	CHECK_EQ(w, base_last_error()->ranks[0], 3);
	CHECK_EQ(w, strncmp(base_last_error()->text, "barrier: rank 3 died", 20), 0);
}

static uint64_t least_done(const struct world *w, uint32_t ranks)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < ranks; i++)
		if (word_load(&w->shared->line[i].entered) < least)
			least = word_load(&w->shared->line[i].entered);
	return least;
}

static void run_last_rank_dies(uint32_t on_death, uint32_t k)
{
	uint64_t died;
	struct world w;

	fatal_op = k;
	world_open(&w, false, 4, 2, 0);
	w.on_death = on_death;
	for (uint32_t i = 0; i < 4; i++)
		world_spawn(&w, i, last_rank_dies);
	assert_int_equal(world_next_end(&w, world_now() + 10 * WORLD_S), 3);
	assert_int_not_equal(w.status[3], 0);
	died = world_now();
	if (on_death == RAMPS_ON_DEATH_FAIL)
		world_set_state(&w, 3, CORE_DEAD);
	while (on_death == RAMPS_ON_DEATH_CONTINUE && least_done(&w, 3) < 3 && world_now() < died + WORLD_S)
		sched_yield();
	if (on_death == RAMPS_ON_DEATH_FAIL) {
		world_join_all(&w, 1);
	} else {
		assert_int_equal(least_done(&w, 3), 3);
		for (uint32_t i = 0; i < 3; i++)
			kill(w.pids[i], SIGKILL);
		world_join_all(&w, 5);
	}
	world_close(&w);
}

/* It had arrived, so its generation is released although nobody stands in; k: 2 before, 3 within its climb. */
static void generation_of_a_rank_that_died_after_arriving_is_released(void **state)
{
	(void)state;
	for (uint32_t k = 2; k <= 5; k++)
		run_last_rank_dies(RAMPS_ON_DEATH_CONTINUE, k);
}

static void waits_fail_within_a_second_and_name_the_dead(void **state)
{
	(void)state;
	for (uint32_t k = 2; k <= 5; k++)
		run_last_rank_dies(RAMPS_ON_DEATH_FAIL, k);
}

struct member {
	struct memory_endpoint ep;
	struct sync_peer peer;
	struct sync_barrier *barrier;
};

static struct member members[WORLD_MAX];

static void open_member(struct world *w, uint32_t i)
{
	world_peer(w, &members[i].ep, &members[i].peer);
	assert_int_equal(
		sync_barrier_open(&members[i].peer, &w->barrier, i, NULL, 0, &members[i].barrier), 0);
}

static void open_members(struct world *w, uint32_t workers, uint32_t fan_in, uint32_t first_generation)
{
	world_open(w, false, workers, fan_in, first_generation);
	for (uint32_t i = 0; i < workers; i++)
		open_member(w, i);
}

static void close_members(struct world *w)
{
	for (uint32_t i = 0; i < w->workers; i++)
		sync_barrier_close(members[i].barrier);
	world_close(w);
}

static int arrive(uint32_t i)
{
	return sync_barrier_arrive(&members[i].peer, members[i].barrier, 0);
}

static int wait_for(uint32_t i)
{
	return sync_barrier_wait(&members[i].peer, members[i].barrier, 0);
}

static void server_arrives_only_after_a_live_member(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 6, 2, UINT32_MAX);
	w.absent[1] = w.absent[2] = w.absent[3] = true;
	for (uint32_t round = 0; round < 4; round++) {
		assert_int_equal(stand_in(&w), 0);
		assert_int_equal(arrive(4), 0);
		assert_int_equal(stand_in(&w), 3);
		assert_int_equal(stand_in(&w), 0);
		assert_int_equal(wait_for(4), -ETIMEDOUT);
		assert_int_equal(wait_for(5), -ETIMEDOUT);
		assert_int_equal(wait_for(0), 0);
		assert_int_equal(wait_for(4), 0);
		assert_int_equal(wait_for(5), 0);
	}
	close_members(&w);
}

/* An arrival by one that died since is no reason to go on. */
static void server_does_not_follow_the_dead(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 3, 32, 0);
	assert_int_equal(arrive(1), 0);
	w.absent[1] = w.absent[2] = true;
	assert_int_equal(stand_in(&w), 0);
	assert_int_equal(arrive(0), 0);
	assert_int_equal(stand_in(&w), 1);
	assert_int_equal(wait_for(0), 0);
	close_members(&w);
}

/* Whatever operation a member dies before, after which the others only wait where they are. */
static void server_completes_climbs_and_releases(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 10; k++) {
		struct world w;

		open_members(&w, 8, 2, 0);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(arrive(i), 0);
		members[7].ep.break_after = k;
		wait_for(7);
		w.absent[7] = true;
		stand_in(&w);
		for (uint32_t n = 0; n < 6; n++)
			assert_int_equal(world_nodes(&w)[n].released, 1);
		assert_int_equal(world_nodes(&w)[6].word, barrier_word(0, 3));
		assert_int_equal(stand_in(&w), 0);
		close_members(&w);
	}
}

static void next_life_begins_where_the_last_one_ended(void **state)
{
	struct world w;

	(void)state;
	open_members(&w, 4, 2, 0);
	assert_int_equal(arrive(0), 0);
	assert_int_equal(arrive(1), 0);
	/* Rank 1 had arrived: its next life waits that generation out before it arrives again. */
	sync_barrier_close(members[1].barrier);
	open_member(&w, 1);
	assert_int_equal(sync_barrier_generation(members[1].barrier), 1);
	assert_int_equal(arrive(1), -ETIMEDOUT);
	/* Rank 2 had not. */
	sync_barrier_close(members[2].barrier);
	open_member(&w, 2);
	assert_int_equal(sync_barrier_generation(members[2].barrier), 0);
	assert_int_equal(wait_for(2), -ETIMEDOUT);
	assert_int_equal(wait_for(3), 0);
	assert_int_equal(wait_for(2), 0);
	assert_int_equal(wait_for(0), 0);
	assert_int_equal(arrive(1), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(wait_for(i), -ETIMEDOUT);
	assert_int_equal(wait_for(3), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(wait_for(i), 0);
	close_members(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(server_arrives_only_after_a_live_member),
		cmocka_unit_test(server_does_not_follow_the_dead),
		cmocka_unit_test(server_completes_climbs_and_releases),
		cmocka_unit_test(next_life_begins_where_the_last_one_ended),
		cmocka_unit_test(generation_of_a_rank_that_died_after_arriving_is_released),
		cmocka_unit_test(waits_fail_within_a_second_and_name_the_dead),
		cmocka_unit_test(others_go_on_without_the_dead_and_with_their_next_lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Nobody leaves a barrier before all have entered it: processes over the fabric that is shipped. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/word.h"
#include "sync/world.h"

#include <cmocka.h>

static uint32_t rounds;

static void enter_and_check(struct world *w, struct sync_peer *peer, uint32_t rank)
{
	uint32_t first = w->barrier.first_generation;
	struct sync_barrier *barrier;

	CHECK_EQ(w, sync_barrier_open(peer, &w->barrier, rank, NULL, BASE_FOREVER, &barrier), 0);
	for (uint32_t round = 1; round <= rounds; round++) {
		word_store(&w->shared->line[rank].entered, round);
		CHECK_EQ(w, sync_barrier_wait(peer, barrier, BASE_FOREVER), 0);
		for (uint32_t i = 0; i < w->workers; i++)
			CHECK_OP(w, word_load(&w->shared->line[i].entered), >=, round);
	}
	CHECK_EQ(w, sync_barrier_generation(barrier), (uint32_t)(first + rounds));
	sync_barrier_close(barrier);
}

static void run_rounds(uint32_t workers, uint32_t fan_in, uint32_t first_generation, uint32_t full,
		       uint32_t quick)
{
	struct world w;
	uint64_t started;

	rounds = world_rounds(full, quick);
	world_open(&w, true, workers, fan_in, first_generation);
	started = world_now();
	for (uint32_t i = 0; i < workers; i++)
		world_spawn(&w, i, enter_and_check);
	world_join_all(&w, 200);
	printf("%u processes, fan-in %u: %u rounds, %.2f us each\n", workers, fan_in, rounds,
	       (double)(world_now() - started) / rounds / 1000);
	world_close(&w);
}

static void nobody_leaves_before_all_have_entered(void **state)
{
	(void)state;
	run_rounds(1, 32, 0, 1000000, 20000);
	run_rounds(2, 32, 0, 1000000, 20000);
	run_rounds(3, 32, 0, 1000000, 20000);
	run_rounds(8, 32, 0, 1000000, 20000);
}

static void nobody_leaves_a_tree_before_all_have_entered(void **state)
{
	(void)state;
	run_rounds(5, 2, 0, 200000, 5000);
	run_rounds(40, 8, 0, 100000, 1000);
	run_rounds(40, 32, 0, 100000, 1000);
}

static void generations_wrap(void **state)
{
	(void)state;
	run_rounds(3, 32, 0xffffff00u, 2000, 2000);
	run_rounds(7, 2, 0xffffff00u, 2000, 2000);
	run_rounds(2, 32, 0x7fffff00u, 2000, 2000);
}

/* Processes that are stopped anywhere, and go on. */
static void nobody_leaves_while_another_is_stopped(void **state)
{
	uint64_t seed = 1, until;
	struct world w;

	(void)state;
	rounds = world_rounds(60000, 4000);
	world_open(&w, true, 6, 2, 0);
	for (uint32_t i = 0; i < w.workers; i++)
		world_spawn(&w, i, enter_and_check);
	until = world_now() + 20 * WORLD_S;
	while (world_running(&w) && world_now() < until) {
		uint32_t rank = world_random(&seed) % w.workers;

		if (!w.pids[rank])
			rank = 0;
		if (w.pids[rank])
			kill(w.pids[rank], SIGSTOP);
		world_next_end(&w, world_now() + world_random(&seed) % 2000000);
		if (w.pids[rank])
			kill(w.pids[rank], SIGCONT);
		world_next_end(&w, world_now() + world_random(&seed) % 2000000);
	}
	world_join_all(&w, 60);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_leaves_before_all_have_entered),
		cmocka_unit_test(nobody_leaves_a_tree_before_all_have_entered),
		cmocka_unit_test(generations_wrap),
		cmocka_unit_test(nobody_leaves_while_another_is_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Clocks between processes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define RANKS 4u

static uint64_t *counts; /* at least what each rank's clock shows */
static uint64_t *stop, *ready;
static uint32_t staleness;

static struct ramps_clock *open_clock(struct ramps_worker *worker)
{
	struct ramps_clock *clock;

	OK(ramps_clock_open(worker, "time", &clock));
	return clock;
}

static void run(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_clock *clock = open_clock(worker);
	uint64_t own, slowest, last = 0;

	job_add(ready, 1);
	AWAIT(ready, RANKS);
	for (uint64_t step = 1; !job_get(stop); step++) {
		job_set(&counts[rank], step);
		OK(ramps_clock_advance(clock, JOB_TIMEOUT_MS));
		OK(ramps_clock_wait(clock, staleness, JOB_TIMEOUT_MS));
		for (uint32_t i = 0; i < RANKS; i++)
			if (job_get(&counts[i]) + staleness < step)
				job_fail(__FILE__, __LINE__, "at %llu while rank %u is at %llu",
					 (unsigned long long)step, i,
					 (unsigned long long)job_get(&counts[i]));
		OK(ramps_clock_read(clock, &own, &slowest));
		CHECK_U64(own, step);
		CHECK(slowest >= last && slowest <= own && slowest + staleness >= own);
		for (uint32_t i = 0; i < RANKS; i++)
			CHECK(slowest <= job_get(&counts[i]));
		last = slowest;
	}
	job_set(&counts[rank], UINT32_MAX); /* it is not waited for any more */
	job_leave(worker);
	ramps_clock_close(clock);
}

/* Ranks are stopped at random: the others come up to the bound and wait. */
static void run_with_stops(uint32_t bound)
{
	uint32_t stops = job_rounds(60, 10);
	uint64_t random = bound;

	staleness = bound;
	counts = job_shared(RANKS * sizeof(*counts));
	stop = job_shared(sizeof(*stop));
	ready = job_shared(sizeof(*ready));
	job_start(2, RANKS);
	for (uint32_t i = 0; i < RANKS; i++)
		job_spawn(i, run);
	for (uint32_t i = 0; i < RANKS; i++)
		AWAIT(&counts[i], 10);
	for (uint32_t k = 0; k < stops; k++) {
		uint32_t rank = (uint32_t)(job_random(&random) % RANKS), other = (rank + 1) % RANKS;
		uint64_t at;

		job_signal(rank, SIGSTOP);
		at = job_get(&counts[rank]);
		AWAIT(&counts[other], at + staleness);
		job_dither(&random, 5000);
		CHECK(job_get(&counts[other]) <= at + staleness + 1);
		job_signal(rank, SIGCONT);
		AWAIT(&counts[other], at + staleness + 2);
	}
	job_set(stop, 1);
	job_wait(30000);
	job_stop();
}

static void nobody_is_further_ahead_than_the_bound(void **state)
{
	(void)state;
	run_with_stops(3);
}

static void bound_of_zero_goes_step_by_step(void **state)
{
	(void)state;
	run_with_stops(0);
}

static void advance_by(struct ramps_clock *clock, uint32_t steps)
{
	for (uint32_t i = 0; i < steps; i++)
		OK(ramps_clock_advance(clock, JOB_TIMEOUT_MS));
}

/* Ranks 0 and 1 are at 12 and 10 when rank 2 comes; rank 3 never does. */
static void come_late(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_clock *clock = open_clock(worker);
	uint64_t own, slowest;

	OK(ramps_clock_read(clock, &own, NULL));
	if (rank == 2) {
		CHECK_U64(own, 10);
		OK(ramps_clock_wait(clock, 0, 0));
		job_add(ready, 1);
		advance_by(clock, 5);
		EXPECT(ramps_clock_wait(clock, 4, 50), -ETIMEDOUT);
		CHECK_U64(ramps_last_error()->rank_count, 1);
		CHECK(ramps_last_error()->ranks[0] == 1);
		EXPECT(ramps_clock_wait(clock, 0, 0), -ETIMEDOUT);
		CHECK_U64(ramps_last_error()->rank_count, 2);
		OK(ramps_clock_wait(clock, 5, 0));
	} else {
		CHECK_U64(own, 0);
		job_add(ready, 1);
		AWAIT(ready, 2);
		advance_by(clock, rank ? 10 : 12);
		job_add(ready, 1);
		AWAIT(ready, 5);
		if (rank)
			EXPECT(ramps_clock_wait(clock, 0, 0), 0);
		OK(ramps_clock_wait(clock, 2, JOB_TIMEOUT_MS));
	}
	job_add(ready, 1);
	AWAIT(ready, 8);
	OK(ramps_clock_read(clock, NULL, &slowest));
	CHECK(slowest <= 10);
	job_add(ready, 1);
	AWAIT(ready, 11);
	ramps_clock_close(clock);
	job_leave(worker);
}

static void who_comes_late_begins_at_the_least(void **state)
{
	(void)state;
	ready = job_shared(sizeof(*ready));
	job_start(1, 4);
	job_spawn(0, come_late);
	job_spawn(1, come_late);
	AWAIT(ready, 4);
	job_spawn(2, come_late);
	job_wait(30000);
	job_stop();
}

/* Rank 1 dies two steps behind: with the policy to go on it is not waited for; then its next life begins where
 * the living are. */
static void outlive(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_clock *clock = open_clock(worker);
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	uint64_t own;

	OK(ramps_worker_info(worker, &info));
	OK(ramps_clock_read(clock, &own, NULL));
	if (rank && info.incarnation > 1) {
		CHECK_U64(own, 9);
		job_add(ready, 1);
	} else if (rank) {
		job_add(ready, 1);
		AWAIT(ready, UINT64_MAX);
	} else {
		job_add(ready, 1);
		AWAIT(ready, 2);
		advance_by(clock, 9);
		EXPECT(ramps_clock_wait(clock, 8, 20), -ETIMEDOUT);
		job_add(ready, 1);
		OK(ramps_clock_wait(clock, 0, 20000));
		job_add(ready, 1);
		AWAIT(ready, 5);
	}
	ramps_clock_close(clock);
	job_leave(worker);
}

static void the_dead_are_not_waited_for_and_begin_anew_at_the_least(void **state)
{
	(void)state;
	ready = job_shared(sizeof(*ready));
	job.options.on_death = RAMPS_ON_DEATH_CONTINUE;
	job_start(2, 2);
	job_spawn(0, outlive);
	job_spawn(1, outlive);
	AWAIT(ready, 3);
	job_pause(20);
	job_kill(1);
	AWAIT(ready, 4);
	job_spawn(1, outlive);
	job_wait(30000);
	job_stop();
}

static void wait_for_dead(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_clock *clock = open_clock(worker);

	job_add(ready, 1);
	AWAIT(ready, rank ? UINT64_MAX : 2);
	advance_by(clock, 3);
	OK(ramps_clock_wait(clock, 3, JOB_TIMEOUT_MS));
	job_add(ready, 1);
	EXPECT(ramps_clock_wait(clock, 2, 20000), -EOWNERDEAD);
	CHECK(job_get(stop) && job_now_us() - job_get(stop) < 1000000u);
	CHECK(ramps_last_error()->rank_count == 1 && ramps_last_error()->ranks[0] == 1);
	ramps_clock_close(clock);
	ramps_worker_close(worker);
}

static void death_ends_the_wait_within_a_second(void **state)
{
	(void)state;
	ready = job_shared(sizeof(*ready));
	stop = job_shared(sizeof(*stop));
	job_start(1, 2);
	job_spawn(0, wait_for_dead);
	job_spawn(1, wait_for_dead);
	AWAIT(ready, 3);
	job_pause(20);
	job_set(stop, job_now_us());
	job_kill(1);
	job_wait(30000);
	job_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(nobody_is_further_ahead_than_the_bound),
		job_test(bound_of_zero_goes_step_by_step),
		job_test(who_comes_late_begins_at_the_least),
		job_test(the_dead_are_not_waited_for_and_begin_anew_at_the_least),
		job_test(death_ends_the_wait_within_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

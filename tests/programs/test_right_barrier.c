/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Barriers between processes. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/time.h>

#include "programs/job_harness.h"
#include <cmocka.h>

static uint64_t *arrived; /* rounds that each rank has begun to wait for */
static uint64_t *told, *died_at;
static uint32_t rounds, victim;

static void check_all_arrived(uint64_t round)
{
	for (uint32_t i = 0; i < job.workers; i++)
		if (job_get(&arrived[i]) < round)
			job_fail(__FILE__, __LINE__, "left round %llu before rank %u came",
				 (unsigned long long)round, i);
}

static void meet(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	uint64_t random = rank;

	for (uint64_t round = 1; round <= rounds; round++) {
		uint64_t kind = job_random(&random) % 64;

		if (kind == 0)
			job_dither(&random, 30);
		job_set(&arrived[rank], round);
		if (kind < 16)
			OK(ramps_barrier_arrive(barrier, JOB_TIMEOUT_MS));
		if (kind == 1) {
			EXPECT(ramps_barrier_arrive(barrier, JOB_TIMEOUT_MS), -EALREADY);
			job_dither(&random, 30);
		}
		if (kind == 2)
			for (int ret = -ETIMEDOUT; ret; ret = ramps_barrier_wait(barrier, 0))
				CHECK(ret == -ETIMEDOUT);
		else
			OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
		check_all_arrived(round);
	}
	ramps_barrier_close(barrier);
	job_leave(worker);
}

static void meet_of(uint32_t workers)
{
	uint64_t start = job_now_us();

	rounds = job_rounds(10000, 1000);
	arrived = job_shared(workers * sizeof(*arrived));
	job_start(1, workers);
	job_run(workers, meet, 100000);
	job_stop();
	print_message("%.1f us a round\n", (double)(job_now_us() - start) / rounds);
}

static void nobody_of_two_leaves_early(void **state)
{
	(void)state;
	meet_of(2);
}

static void nobody_of_three_leaves_early(void **state)
{
	(void)state;
	meet_of(3);
}

static void nobody_of_eight_leaves_early(void **state)
{
	(void)state;
	meet_of(8);
}

/* More than one leaf: a tree of two levels. */
static void nobody_of_forty_leaves_early(void **state)
{
	(void)state;
	rounds = job_rounds(200, 20);
	arrived = job_shared(40 * sizeof(*arrived));
	job_start(2, 40);
	job_run(40, meet, 100000);
	job_stop();
}

/* Rank 0 arrives and pushes a step before it waits; rank 1 pushes its part of the step later. */
static void push_between(uint32_t rank)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	struct ramps_table *table;
	const float value = 1;

	schema.name = "step";
	schema.mode = RAMPS_SLOTS;
	schema.synchronous = 1;
	table = job_table(worker, &schema);
	for (uint32_t round = 0; round < 100; round++) {
		if (rank) {
			OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
			AWAIT(told, round + 1);
			OK(ramps_table_push(table, 0, 1, &value, NULL, JOB_TIMEOUT_MS));
		} else {
			OK(ramps_barrier_arrive(barrier, JOB_TIMEOUT_MS));
			OK(ramps_table_push(table, 0, 1, &value, NULL, JOB_TIMEOUT_MS));
			OK(ramps_barrier_wait(barrier, 10000));
			job_add(told, 1);
		}
	}
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	job_leave(worker);
}

static void pushes_after_arriving_do_not_hold_up_the_wait(void **state)
{
	(void)state;
	told = job_shared(sizeof(*told));
	job_start(1, 2);
	job_run(2, push_between, 30000);
	job_stop();
}

static uint64_t *in_group[2];

static void meet_in_groups(uint32_t rank)
{
	static const uint32_t members[2][3] = { { 0, 2, 4 }, { 1, 2, 3 } };
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barriers[2] = { NULL, NULL }, *all = job_barrier(worker, "all"), *other;

	for (uint32_t g = 0; g < 2; g++) {
		struct ramps_group group = { .ranks = members[g], .count = 3 };
		bool member = false;

		for (uint32_t i = 0; i < 3; i++)
			member |= members[g][i] == rank;
		if (!member)
			EXPECT(ramps_barrier_open(worker, g ? "odd" : "even", &group, &other), -EINVAL);
		else
			OK(ramps_barrier_open(worker, g ? "odd" : "even", &group, &barriers[g]));
	}
	for (uint64_t round = 1; round <= rounds; round++)
		for (uint32_t g = 0; g < 2; g++) {
			if (!barriers[g])
				continue;
			job_set(&in_group[g][rank], round);
			OK(ramps_barrier_wait(barriers[g], JOB_TIMEOUT_MS));
			for (uint32_t i = 0; i < 3; i++)
				CHECK(job_get(&in_group[g][members[g][i]]) >= round);
		}
	OK(ramps_barrier_wait(all, JOB_TIMEOUT_MS));
	if (rank == 2)
		EXPECT(ramps_barrier_open(worker, "odd", NULL, &other), -EEXIST);
	if (rank == 0)
		EXPECT(ramps_barrier_open(worker, "all",
					  &(struct ramps_group){ .ranks = members[0], .count = 3 },
					  &other),
		       -EEXIST);
	ramps_barrier_close(barriers[0]);
	ramps_barrier_close(barriers[1]);
	OK(ramps_barrier_wait(all, JOB_TIMEOUT_MS));
	ramps_barrier_close(all);
	job_leave(worker);
}

static void groups_meet_by_themselves(void **state)
{
	(void)state;
	rounds = job_rounds(1000, 100);
	in_group[0] = job_shared(8 * sizeof(uint64_t));
	in_group[1] = job_shared(8 * sizeof(uint64_t));
	job_start(2, 5);
	job_run(5, meet_in_groups, 60000);
	job_stop();
}

static void expect_ranks(uint32_t n, uint32_t first, uint32_t second)
{
	const struct ramps_error *error = ramps_last_error();

	CHECK_U64(error->rank_count, n);
	CHECK(error->ranks[0] == first && (n < 2 || error->ranks[1] == second));
	CHECK(*error->text);
}

/* Ranks 1 and 3 come later than the others' patience lasts. */
static void come_late(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "late");

	if (rank % 2) {
		AWAIT(told, 2);
	} else {
		uint64_t start = job_now_us();

		/* The other even rank may be a moment behind. */
		OK(ramps_barrier_arrive(barrier, JOB_TIMEOUT_MS));
		job_add(&told[1], 1);
		AWAIT(&told[1], 2);
		EXPECT(ramps_barrier_wait(barrier, 0), -ETIMEDOUT);
		EXPECT(ramps_barrier_wait(barrier, 60), -ETIMEDOUT);
		CHECK(job_now_us() - start >= 60000u);
		expect_ranks(2, 1, 3);
		job_add(told, 1);
	}
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	ramps_barrier_close(barrier);
	job_leave(worker);
}

static void timeout_names_who_is_missing_and_the_arrival_stands(void **state)
{
	(void)state;
	told = job_shared(2 * sizeof(*told));
	job_start(1, 4);
	job_run(4, come_late, 30000);
	job_stop();
}

static struct ramps_worker *interrupted;
static uint64_t interrupted_at;

static void interrupt_now(int number)
{
	(void)number;
	job_set(&interrupted_at, job_now_us());
	ramps_worker_interrupt(interrupted);
}

static void *interrupt_soon(void *arg)
{
	(void)arg;
	job_pause(30);
	interrupt_now(0);
	return NULL;
}

static void expect_interrupt(struct ramps_barrier *barrier)
{
	uint64_t taken;

	EXPECT(ramps_barrier_wait(barrier, 20000), -EINTR);
	taken = job_now_us() - job_get(&interrupted_at);
	if (taken > 500000u)
		job_fail(__FILE__, __LINE__, "%llu us later", (unsigned long long)taken);
	/* Once only, and the arrival stands. */
	EXPECT(ramps_barrier_wait(barrier, 100), -ETIMEDOUT);
	EXPECT(ramps_barrier_arrive(barrier, 100), -EALREADY);
}

static void be_interrupted(uint32_t rank)
{
	struct itimerval timer = { .it_value = { .tv_usec = 30000 } };
	struct sigaction action = { .sa_handler = interrupt_now };
	struct ramps_barrier *barrier;
	pthread_t thread;

	interrupted = job_join(rank);
	barrier = job_barrier(interrupted, "all");
	if (!rank) {
		CHECK(!pthread_create(&thread, NULL, interrupt_soon, NULL));
		expect_interrupt(barrier);
		CHECK(!pthread_join(thread, NULL));
		action.sa_flags = SA_RESTART; /* the library has to look by itself */
		CHECK(!sigaction(SIGALRM, &action, NULL));
		CHECK(!setitimer(ITIMER_REAL, &timer, NULL));
		expect_interrupt(barrier);
		interrupt_now(0); /* before the call */
		expect_interrupt(barrier);
		job_add(told, 1);
	}
	AWAIT(told, 1);
	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	ramps_barrier_close(barrier);
	job_leave(interrupted);
}

static void interrupt_ends_a_wait_at_once(void **state)
{
	(void)state;
	told = job_shared(sizeof(*told));
	job_start(1, 2);
	job_run(2, be_interrupted, 30000);
	job_stop();
}

/* Rank `victim` is killed before it arrives; the others wait. */
static void learn_of_death(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "all");
	uint64_t now;

	OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
	job_add(told, 1);
	if (rank == victim)
		AWAIT(told, UINT64_MAX);
	EXPECT(ramps_barrier_wait(barrier, 30000), -EOWNERDEAD);
	now = job_now_us();
	expect_ranks(1, victim, 0);
	CHECK(job_get(died_at) && now - job_get(died_at) < 1000000u);
	ramps_barrier_close(barrier);
	ramps_worker_close(worker);
}

static void death_ends_waits_within_a_second_and_is_named(void **state)
{
	(void)state;
	for (victim = 0; victim < 3; victim++) {
		told = job_shared(sizeof(*told));
		died_at = job_shared(sizeof(*died_at));
		job_start(1, 3);
		for (uint32_t i = 0; i < 3; i++)
			job_spawn(i, learn_of_death);
		AWAIT(told, 3);
		job_pause(victim ? 30 : 0); /* so that the others sleep, or do not */
		job_set(died_at, job_now_us());
		job_kill(victim);
		job_wait(20000);
		job_stop();
		job_teardown(NULL);
		job_setup(NULL);
	}
}

/* With the policy to go on: the others' rounds go on; who is there again takes part again. */
static void go_on(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "all");

	while (job_get(told) != 1) {
		OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
		job_add(&arrived[rank], 1);
	}
	job_leave(worker);
	ramps_barrier_close(barrier);
}

/* A second part in step: the last incarnation takes part, so that nobody leaves early. */
static void meet_again(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_barrier *barrier = job_barrier(worker, "again");

	job_add(told, 1);
	AWAIT(told, job.workers);
	for (uint64_t round = 1; round <= 200; round++) {
		job_set(&arrived[rank], round);
		OK(ramps_barrier_wait(barrier, JOB_TIMEOUT_MS));
		check_all_arrived(round);
	}
	ramps_barrier_close(barrier);
	job_leave(worker);
}

static void the_living_go_on_and_the_next_life_takes_part(void **state)
{
	uint32_t kills = job_rounds(200, 20);
	uint64_t random = 1;

	(void)state;
	told = job_shared(sizeof(*told));
	arrived = job_shared(4 * sizeof(*arrived));
	job.options.on_death = RAMPS_ON_DEATH_CONTINUE;
	job_start(2, 4);
	for (uint32_t i = 0; i < 4; i++)
		job_spawn(i, go_on);
	for (uint32_t i = 0; i < 4; i++)
		AWAIT(&arrived[i], 10);
	for (uint32_t k = 0; k < kills; k++) {
		uint32_t rank = (uint32_t)(job_random(&random) % 4), other = (rank + 1) % 4;

		job_dither(&random, 300);
		job_kill(rank);
		if (k % 2) /* the others go on without it */
			AWAIT(&arrived[other], job_get(&arrived[other]) + 5);
		job_spawn(rank, go_on);
		AWAIT(&arrived[rank], job_get(&arrived[rank]) + job_random(&random) % 20 + 1);
	}
	job_set(told, 1);
	job_wait(60000);
	job_set(told, 0);
	memset(arrived, 0, 4 * sizeof(*arrived));
	job_run(4, meet_again, 30000);
	job_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(nobody_of_two_leaves_early),
		job_test(nobody_of_three_leaves_early),
		job_test(nobody_of_eight_leaves_early),
		job_test(nobody_of_forty_leaves_early),
		job_test(pushes_after_arriving_do_not_hold_up_the_wait),
		job_test(groups_meet_by_themselves),
		job_test(timeout_names_who_is_missing_and_the_arrival_stands),
		job_test(interrupt_ends_a_wait_at_once),
		job_test(death_ends_waits_within_a_second_and_is_named),
		job_test(the_living_go_on_and_the_next_life_takes_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server does when there is nothing to do, and for ranks that are not there. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ps/job.h"

static struct job job;
static struct member m[3];

static int open_with(uint32_t on_death)
{
	job_open(&job, on_death);
	for (uint32_t rank = 0; rank < 3; rank++)
		if (member_join(&m[rank], &job, rank, 3))
			return -1;
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return open_with(RAMPS_ON_DEATH_FAIL);
}

static int setup_continue(void **state)
{
	(void)state;
	return open_with(RAMPS_ON_DEATH_CONTINUE);
}

static int teardown(void **state)
{
	(void)state;
	for (uint32_t rank = 0; rank < 3; rank++)
		member_close(&m[rank]);
	job_close(&job);
	return 0;
}

static uint64_t sleeps_until(void)
{
	uint64_t deadline;

	ps_wait(job.server, BASE_FOREVER);
	fake_waits(job.fabric, &deadline);
	return deadline;
}

static void an_idle_server_sleeps_until_it_is_called(void **state)
{
	(void)state;
	job_run(&job);
	assert_true(sleeps_until() == BASE_FOREVER);
	assert_int_equal(job.server->header->asleep, 0);
	ps_wait(job.server, 12345);
	assert_true(sleeps_until() == BASE_FOREVER);
}

static void a_server_does_not_sleep_over_a_commit(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 0, 1);
	uint64_t deadline;
	uint32_t waits;

	(void)state;
	job_run(&job);
	waits = fake_waits(job.fabric, &deadline);
	member_push(&m[2], t, 0, 0, 5, 1);
	ps_wait(job.server, BASE_FOREVER);
	assert_int_equal(fake_waits(job.fabric, &deadline), waits);
	assert_int_equal(ps_step(job.server), 1);
	assert_int_equal(job_head(&job, 2), 1);
}

static void a_wake_up_message_has_no_answer(void **state)
{
	struct core_request wake = { .magic = CORE_MESSAGE_MAGIC, .kind = CORE_WAKE };

	(void)state;
	assert_int_equal(fabric_send(m[0].ep, &wake, 8), 0);
	job_run(&job);
	assert_int_equal(fabric_recv(m[0].ep, &m[0].reply, sizeof(m[0].reply), 0), -EAGAIN);
}

static void a_busy_server_looks_for_messages_now_and_then(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 0, 1);
	uint32_t looks;

	(void)state;
	job_run(&job);
	assert_int_equal(ps_step(job.server), 0);
	member_push(&m[0], t, 0, 0, 5, 1);
	assert_int_equal(ps_step(job.server), 1);
	looks = fake_looks(job.fabric);
	for (int i = 0; i < 100; i++) {
		fake_advance(job.fabric, 1000);
		member_push(&m[0], t, 0, 0, 5, 1);
		assert_int_equal(ps_step(job.server), 1);
	}
	assert_in_range(fake_looks(job.fabric) - looks, 1, 3);
	assert_int_equal(job_head(&job, 0), 101);
}

static void a_live_rank_of_before_a_restart_is_looked_after(void **state)
{
	(void)state;
	job_restart(&job);
	job_run(&job);
	assert_in_range(sleeps_until() - fabric_now(job.fabric), 50 * NS_PER_MS, 100 * NS_PER_MS);
	for (uint64_t process = 1; process <= 3; process++)
		fake_kill(job.fabric, process);
	fake_advance(job.fabric, 100 * NS_PER_MS);
	job_run(&job);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_int_equal(job_state(&job, rank), CORE_DEAD);
	assert_true(sleeps_until() == BASE_FOREVER);
}

static void a_connection_that_resists_is_cut_again(void **state)
{
	(void)state;
	fake_resist(job.fabric, 3, true);
	fake_kill(job.fabric, 3);
	job_run(&job);
	assert_int_equal(job_state(&job, 2), CORE_LIVE);
	assert_true(sleeps_until() - fabric_now(job.fabric) <= NS_PER_MS);
	fake_resist(job.fabric, 3, false);
	fake_advance(job.fabric, NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 2), CORE_DEAD);
	assert_true(sleeps_until() == BASE_FOREVER);
}

static struct core_barrier *make_barrier(uint64_t group, uint32_t members)
{
	struct core_entry *e = &m[0].request.entry;

	memset(e, 0, sizeof(*e));
	e->kind = CORE_BARRIER;
	strcpy(e->name, "b");
	e->barrier.members = members;
	e->barrier.fan_in = 2;
	m[0].request.group[0] = group;
	assert_int_equal(member_ask(&m[0], CORE_CREATE), 0);
	return &job.server->entries[m[0].reply.entry.index].barrier;
}

/* A peer for the rank's own part in barriers and clocks. */
static struct sync_peer peer_of(const struct member *who)
{
	return (struct sync_peer){
		.fabric = job.fabric,
		.ep = who->ep,
		.workers = 3,
		.on_death = job.options.on_death,
		.states_offset = job.server->header->states_offset,
	};
}

static uint32_t arrived(const struct core_barrier *where, uint32_t *generation)
{
	bool who[3];

	return sync_barrier_inspect(where, core_arena_at(job.arena, CORE_WORDS, where->nodes_offset),
				    generation, who);
}

static void let_time_pass(void)
{
	fake_advance(job.fabric, 10 * NS_PER_MS);
	job_run(&job);
}

static void barriers_go_on(bool leaves)
{
	struct core_barrier *where = make_barrier(0, 3);
	struct sync_peer peer[2] = { peer_of(&m[0]), peer_of(&m[1]) };
	struct sync_barrier *place[2];
	uint32_t generation;

	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(sync_barrier_open(&peer[i], where, i, NULL, BASE_FOREVER, &place[i]), 0);
	if (leaves)
		assert_int_equal(member_leave(&m[2]), 0);
	else
		fake_kill(job.fabric, 3);
	let_time_pass();
	/* nobody has arrived: nor does the server */
	assert_int_equal(arrived(where, &generation), 0);
	assert_int_equal(generation, 0);
	assert_in_range(sleeps_until() - fabric_now(job.fabric), 1, 5 * NS_PER_MS);
	for (uint32_t round = 0; round < 3; round++) {
		assert_int_equal(sync_barrier_arrive(&peer[0], place[0], BASE_FOREVER), 0);
		let_time_pass();
		assert_int_equal(arrived(where, &generation), 2);
		assert_int_equal(generation, round);
		assert_int_equal(sync_barrier_arrive(&peer[1], place[1], BASE_FOREVER), 0);
		let_time_pass();
		assert_int_equal(sync_barrier_wait(&peer[0], place[0], 0), 0);
		assert_int_equal(sync_barrier_wait(&peer[1], place[1], 0), 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		sync_barrier_close(place[i]);
}

static void barriers_go_on_without_a_rank_that_left(void **state)
{
	(void)state;
	barriers_go_on(true);
}

static void barriers_go_on_without_a_dead_rank_by_policy(void **state)
{
	(void)state;
	barriers_go_on(false);
}

static void nobody_arrives_for_a_dead_rank_where_the_policy_is_to_fail(void **state)
{
	struct core_barrier *where = make_barrier(6, 2); /* ranks 1 and 2 */
	struct sync_peer peer = peer_of(&m[1]);
	struct sync_barrier *place;
	uint32_t generation;

	(void)state;
	assert_int_equal(sync_barrier_open(&peer, where, 0, (uint32_t[]){ 1, 2 }, BASE_FOREVER, &place),
			 0);
	fake_kill(job.fabric, 3);
	assert_int_equal(sync_barrier_arrive(&peer, place, BASE_FOREVER), 0);
	let_time_pass();
	assert_int_equal(arrived(where, &generation), 1);
	assert_true(sleeps_until() == BASE_FOREVER);
	/* rank 0 is of another group: its leaving changes nothing here */
	assert_int_equal(member_leave(&m[0]), 0);
	let_time_pass();
	assert_int_equal(arrived(where, &generation), 1);
	sync_barrier_close(place);
}

static void a_rank_that_comes_late_begins_at_the_least_of_the_live(void **state)
{
	struct core_entry *e = &m[0].request.entry;
	struct sync_peer peer[2] = { peer_of(&m[0]), peer_of(&m[1]) };
	struct sync_clock *clock[2];
	const uint64_t *counts;

	(void)state;
	memset(e, 0, sizeof(*e));
	e->kind = CORE_CLOCK;
	strcpy(e->name, "c");
	e->clock.members = 3;
	assert_int_equal(member_ask(&m[0], CORE_CREATE), 0);
	counts = core_arena_at(job.arena, CORE_WORDS, m[0].reply.entry.clock.words_offset);
	fake_kill(job.fabric, 3);
	job_run(&job);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(sync_clock_open(&peer[i], &m[0].reply.entry.clock, i, BASE_FOREVER,
						 &clock[i]),
				 0);
		for (uint32_t k = 0; k < 5 + i; k++)
			assert_int_equal(sync_clock_advance(&peer[i], clock[i], BASE_FOREVER), 0);
		sync_clock_close(clock[i]);
	}
	assert_int_equal(counts[2], 0);
	member_close(&m[2]);
	job.generation = 1;
	assert_int_equal(member_join(&m[2], &job, 2, 3), 0);
	assert_int_equal(counts[0], 5);
	assert_int_equal(counts[1], 6);
	assert_int_equal(counts[2], 5);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define C(name) cmocka_unit_test_setup_teardown(name, setup_continue, teardown)
	const struct CMUnitTest tests[] = {
		T(an_idle_server_sleeps_until_it_is_called),
		T(a_server_does_not_sleep_over_a_commit),
		T(a_wake_up_message_has_no_answer),
		T(a_busy_server_looks_for_messages_now_and_then),
		T(a_live_rank_of_before_a_restart_is_looked_after),
		T(a_connection_that_resists_is_cut_again),
		T(barriers_go_on_without_a_rank_that_left),
		C(barriers_go_on_without_a_dead_rank_by_policy),
		T(nobody_arrives_for_a_dead_rank_where_the_policy_is_to_fail),
		T(a_rank_that_comes_late_begins_at_the_least_of_the_live),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

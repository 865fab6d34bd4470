/* SPDX-License-Identifier: BSD-2-Clause */
/* Over a network: connections that break while the process lives, and ranks that fall silent. */
#include <errno.h>

#include "support/support.h"

#include "base/clock.h"
#include "ps/fake.h"
#include "ps/job.h"

#define LEASE_NS (3 * NS_PER_S)

static struct job job;

static int setup(void **state)
{
	(void)state;
	job_open(&job, RAMPS_ON_DEATH_CONTINUE);
	job.fabric->sees_deaths = false;
	job.fabric->lease_ns = LEASE_NS;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	job_close(&job);
	return 0;
}

/* The member connects again, and names the connection that this one replaces. */
static int again(struct member *m, uint64_t replaces)
{
	uint32_t incarnation = m->incarnation;

	member_prepare(m, &job, m->rank, m->workers);
	m->request.how = CORE_JOIN_AGAIN;
	m->request.arena_id = job.server->header->arena_id;
	m->request.incarnation = m->incarnation = incarnation;
	m->request.replaces = replaces;
	return member_ask(m, CORE_JOIN);
}

static void silent_rank_is_dead_when_its_lease_ends(void **state)
{
	struct member m;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	fake_break(job.fabric, 1);
	job_run(&job);
	fake_advance(job.fabric, LEASE_NS - NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	fake_advance(job.fabric, NS_PER_MS + 100 * NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_DEAD);
	member_close(&m);
}

static void rank_that_closes_is_dead_at_once(void **state)
{
	struct member m;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	member_close(&m);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_DEAD);
}

static void rank_that_connects_again_in_time_lives_on(void **state)
{
	struct member m;
	struct fabric_endpoint *before;
	uint64_t number;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	number = m.reply.connection;
	before = m.ep;
	fake_break(job.fabric, 1);
	job_run(&job);
	fake_advance(job.fabric, LEASE_NS / 2);
	assert_int_equal(again(&m, number), 0);
	assert_true(m.reply.connection && m.reply.connection != number);
	fake_advance(job.fabric, 2 * LEASE_NS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	fabric_endpoint_close(before);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	member_close(&m);
}

static void replaced_connection_is_cut_before_the_new_one_is_admitted(void **state)
{
	struct member m;
	struct fabric_endpoint *before;
	uint64_t number;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	number = m.reply.connection;
	before = m.ep;
	/* the server has not heard that it broke; and what was posted on it may still land */
	fake_resist(job.fabric, 1, true);
	assert_int_equal(again(&m, number), -EAGAIN);
	assert_int_equal(member_ask(&m, CORE_JOIN), -EAGAIN);
	fake_resist(job.fabric, 1, false);
	assert_int_equal(member_ask(&m, CORE_JOIN), 0);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	assert_true(LIST_NEXT(LIST_FIRST(&job.server->ranks[0].links), siblings) == NULL);
	fabric_endpoint_close(before);
	member_close(&m);
}

static void other_connections_of_the_rank_stay_when_one_is_replaced(void **state)
{
	struct member m, clone;
	struct fabric_endpoint *before;
	uint64_t number;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	number = m.reply.connection;
	clone = m;
	assert_int_equal(again(&clone, 0), 0);
	assert_true(clone.reply.connection != number);
	before = m.ep;
	assert_int_equal(again(&m, number), 0);
	assert_int_equal(member_ask(&clone, CORE_LOOKUP), -EINVAL); /* of no name; it is heard */
	fabric_endpoint_close(before);
	member_close(&clone);
	member_close(&m);
}

static void next_life_is_admitted_as_soon_as_the_broken_one_is_cut(void **state)
{
	struct member m, next;
	struct fabric_endpoint *before;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	before = m.ep;
	fake_break(job.fabric, 1);
	job_run(&job);
	job.generation = 1;
	assert_int_equal(member_join(&next, &job, 0, 2), 0);
	assert_int_equal(next.reply.incarnation, 2);
	/* and the old one is told so */
	job.generation = 0;
	assert_int_equal(again(&m, m.reply.connection), -ESTALE);
	fabric_endpoint_close(before);
	member_close(&m);
	member_close(&next);
}

static void ranks_of_before_a_restart_have_a_lease_to_come_back(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	assert_int_equal(member_join(&b, &job, 1, 2), 0);
	job_restart(&job);
	member_close(&a);
	member_close(&b);
	job_run(&job);
	fake_advance(job.fabric, LEASE_NS / 2);
	job_run(&job);
	assert_int_equal(again(&a, 0), 0);
	fake_advance(job.fabric, LEASE_NS / 2 + 100 * NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	assert_int_equal(job_state(&job, 1), CORE_DEAD);
	member_close(&a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(silent_rank_is_dead_when_its_lease_ends),
		TEST(rank_that_closes_is_dead_at_once),
		TEST(rank_that_connects_again_in_time_lives_on),
		TEST(replaced_connection_is_cut_before_the_new_one_is_admitted),
		TEST(other_connections_of_the_rank_stay_when_one_is_replaced),
		TEST(next_life_is_admitted_as_soon_as_the_broken_one_is_cut),
		TEST(ranks_of_before_a_restart_have_a_lease_to_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

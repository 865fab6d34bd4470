/* SPDX-License-Identifier: BSD-2-Clause */
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

static int setup(void **state)
{
	(void)state;
	job_open(&job, RAMPS_ON_DEATH_FAIL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	job_close(&job);
	return 0;
}

static void refused(struct member *m, int code, const char *word, const char *other)
{
	assert_int_equal(member_ask(m, CORE_JOIN), code);
	assert_non_null(strstr(m->reply.text, word));
	assert_non_null(strstr(m->reply.text, other));
	member_close(m);
	job_run(&job);
	assert_int_equal(job.server->header->members, 0);
	assert_int_equal(job.server->header->workers, 0);
}

static void a_worker_that_does_not_fit_is_refused_and_changes_nothing(void **state)
{
	struct member m;

	(void)state;
	member_prepare(&m, &job, 0, 2);
	m.request.version = 77;
	refused(&m, -EPROTONOSUPPORT, "version 77", "version 2");
	member_prepare(&m, &job, 0, 2);
	m.request.layout_hash ^= 1;
	refused(&m, -EPROTONOSUPPORT, "layout", "version 2");
	member_prepare(&m, &job, 0, 2);
	strcpy(m.request.job, "other");
	refused(&m, -EPROTO, "test", "other");
	member_prepare(&m, &job, 0, 2);
	m.request.shard = 3;
	m.request.shards = 3;
	refused(&m, -EPROTO, "server 3", "3");
	member_prepare(&m, &job, 0, 2);
	m.request.shards = 0;
	refused(&m, -EPROTO, "server 0", "0");
	member_prepare(&m, &job, 2, 2);
	refused(&m, -ERANGE, "rank 2", "2");
	member_prepare(&m, &job, 0, 65);
	refused(&m, -ERANGE, "65", "64");
	member_prepare(&m, &job, 0, 0);
	refused(&m, -ERANGE, "rank 0", "0");
	member_prepare(&m, &job, 0, 2);
	m.request.how = 2;
	refused(&m, -EPROTO, "join", "2");
	member_prepare(&m, &job, 0, 2);
	m.request.how = CORE_JOIN_AGAIN;
	refused(&m, -ESTALE, "another arena", "rank 0");
	member_prepare(&m, &job, 0, 2);
	memset(m.request.job, 'x', sizeof(m.request.job));
	refused(&m, -EPROTO, "test", "xxx");
}

static void the_first_join_fixes_the_job(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 1, 3), 0);
	assert_int_equal(a.incarnation, 1);
	assert_int_equal(a.arena_id, job.server->header->arena_id);
	assert_int_equal(job.server->header->workers, 3);
	assert_int_equal(job_state(&job, 1), CORE_LIVE);
	assert_int_equal(job_state(&job, 0), CORE_ABSENT);

	assert_int_equal(member_join(&b, &job, 0, 2), -EPROTO);
	assert_non_null(strstr(b.reply.text, "3 workers"));
	assert_non_null(strstr(b.reply.text, "not 2"));
	member_close(&b);
	member_prepare(&b, &job, 0, 3);
	b.request.shards = 2;
	assert_int_equal(member_ask(&b, CORE_JOIN), -EPROTO);
	assert_non_null(strstr(b.reply.text, "0 of 1"));
	assert_non_null(strstr(b.reply.text, "0 of 2"));
	member_close(&b);
	member_close(&a);

	job_restart(&job);
	assert_int_equal(member_join(&b, &job, 0, 2), -EPROTO);
	member_close(&b);
	assert_int_equal(member_join(&b, &job, 0, 3), 0);
	member_close(&b);
}

static void a_live_rank_is_not_given_away(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	job.generation = 1;
	assert_int_equal(member_join(&b, &job, 0, 2), -EADDRINUSE);
	assert_non_null(strstr(b.reply.text, "rank 0"));
	assert_non_null(strstr(b.reply.text, "incarnation 1"));
	assert_non_null(strstr(b.reply.text, "process 77"));
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	assert_int_equal(job.server->rank_info[0].pid, 77);
	member_close(&b);
	member_close(&a);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_DEAD);
	assert_int_equal(member_join(&b, &job, 0, 2), 0);
	assert_int_equal(b.incarnation, 2);
	member_close(&b);
}

static void a_process_that_died_unheard_makes_room(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	/* its end and the new one's request come in the wrong order */
	job.generation = 1;
	member_prepare(&b, &job, 0, 2);
	b.request.kind = CORE_JOIN;
	assert_int_equal(fabric_send(b.ep, &b.request, sizeof(b.request)), 0);
	fake_kill(job.fabric, 1);
	job_run(&job);
	assert_int_equal(fabric_recv(b.ep, &b.reply, sizeof(b.reply), 0), sizeof(b.reply));
	assert_int_equal(b.reply.status, 0);
	assert_int_equal(b.reply.incarnation, 2);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	member_close(&a);
	member_close(&b);
}

static void nobody_is_admitted_before_the_old_life_is_fenced(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	fake_resist(job.fabric, 1, true);
	fake_kill(job.fabric, 1);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE); /* it may still land */
	job.generation = 1;
	assert_int_equal(member_join(&b, &job, 0, 2), -EAGAIN);
	assert_int_equal(member_ask(&b, CORE_JOIN), -EAGAIN);
	fake_resist(job.fabric, 1, false);
	fake_advance(job.fabric, NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_DEAD);
	assert_int_equal(member_ask(&b, CORE_JOIN), 0);
	assert_int_equal(b.reply.incarnation, 2);
	member_close(&a);
	member_close(&b);
}

static void other_shards_take_the_incarnation_that_they_are_told(void **state)
{
	struct member a, b;

	(void)state;
	member_prepare(&a, &job, 0, 2);
	a.request.shard = 1;
	a.request.shards = 2;
	a.request.incarnation = 4;
	assert_int_equal(member_ask(&a, CORE_JOIN), 0);
	assert_int_equal(a.reply.incarnation, 4);

	job.generation = 1;
	member_prepare(&b, &job, 0, 2);
	b.request.shard = 1;
	b.request.shards = 2;
	b.request.incarnation = 4;
	assert_int_equal(member_ask(&b, CORE_JOIN), -ESTALE);
	/* a newer one fences the old, which may take its time */
	b.request.incarnation = 5;
	fake_resist(job.fabric, 1, true);
	assert_int_equal(member_ask(&b, CORE_JOIN), -EAGAIN);
	fake_resist(job.fabric, 1, false);
	assert_int_equal(member_ask(&b, CORE_JOIN), 0);
	assert_int_equal(b.reply.incarnation, 5);
	assert_int_equal(core_incarnation_of(job.server->states[0]), 5);
	member_close(&a);
	member_close(&b);
}

static void a_clone_and_a_reconnect_join_again(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	assert_int_equal(member_ask(&a, CORE_JOIN), -EPROTO); /* twice on one connection */
	member_prepare(&b, &job, 0, 2);
	b.request.how = CORE_JOIN_AGAIN;
	b.request.arena_id = a.arena_id;
	b.request.incarnation = 2;
	assert_int_equal(member_ask(&b, CORE_JOIN), -ESTALE);
	b.request.incarnation = 1;
	assert_int_equal(member_ask(&b, CORE_JOIN), 0);
	assert_int_equal(job.server->header->members, 1);
	/* the rank lives while one of its connections does */
	member_close(&a);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	/* the same process connects anew and ends its last connection: it is not dead */
	member_prepare(&a, &job, 0, 2);
	member_close(&b);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	a.request.how = CORE_JOIN_AGAIN;
	a.request.arena_id = job.server->header->arena_id;
	a.request.incarnation = 1;
	assert_int_equal(member_ask(&a, CORE_JOIN), 0);
	member_close(&a);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_DEAD);
}

static void a_connection_that_never_joins_does_not_keep_a_rank_alive(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	member_prepare(&b, &job, 0, 2); /* the same process */
	member_close(&a);
	job_run(&job);
	member_close(&b);
	job_run(&job);
	fake_advance(job.fabric, 200 * NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_DEAD);
}

static void a_process_that_closed_joins_anew_at_once(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	member_prepare(&b, &job, 0, 2);
	member_close(&a);
	assert_int_equal(member_ask(&b, CORE_JOIN), 0);
	assert_int_equal(b.reply.incarnation, 2);
	member_close(&b);
}

static void after_a_restart_live_ranks_reconnect_or_are_found_dead(void **state)
{
	struct member a, b, c;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 3), 0);
	assert_int_equal(member_join(&b, &job, 1, 3), 0);
	job_restart(&job);
	member_close(&a);
	member_close(&b);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	fake_advance(job.fabric, 200 * NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);

	/* another process does not get the rank of one that is alive */
	job.generation = 1;
	assert_int_equal(member_join(&c, &job, 0, 3), -EADDRINUSE);
	member_close(&c);
	job.generation = 0;
	member_prepare(&a, &job, 0, 3);
	a.request.how = CORE_JOIN_AGAIN;
	a.request.arena_id = job.server->header->arena_id;
	a.request.incarnation = 1;
	assert_int_equal(member_ask(&a, CORE_JOIN), 0);

	fake_kill(job.fabric, 2);
	fake_advance(job.fabric, 200 * NS_PER_MS);
	job_run(&job);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	assert_int_equal(job_state(&job, 1), CORE_DEAD);
	member_close(&a);
}

static void a_rank_that_left_is_replaced_when_its_process_has_closed(void **state)
{
	struct member a, b;

	(void)state;
	assert_int_equal(member_join(&a, &job, 0, 2), 0);
	assert_int_equal(member_leave(&a), 0);
	assert_int_equal(member_leave(&a), 0);
	assert_int_equal(job_state(&job, 0), CORE_LEFT);
	job.generation = 1;
	assert_int_equal(member_join(&b, &job, 0, 2), -EADDRINUSE);
	member_close(&a);
	assert_int_equal(member_ask(&b, CORE_JOIN), 0);
	assert_int_equal(b.reply.incarnation, 2);
	assert_int_equal(job_state(&job, 0), CORE_LIVE);
	member_close(&b);
}

static void requests_before_a_join_and_rubbish_are_refused(void **state)
{
	struct member a;
	unsigned char junk[100];

	(void)state;
	member_prepare(&a, &job, 0, 2);
	assert_int_equal(member_ask(&a, CORE_CREATE), -EPROTO);
	assert_int_equal(member_ask(&a, CORE_LEAVE), -EPROTO);
	assert_int_equal(member_ask(&a, CORE_SET_READY), -EPROTO);
	memset(junk, 0xa5, sizeof(junk));
	assert_int_equal(fabric_send(a.ep, junk, sizeof(junk)), 0);
	assert_int_equal(fabric_send(a.ep, junk, 1), 0);
	job_run(&job);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fabric_recv(a.ep, &a.reply, sizeof(a.reply), 0), sizeof(a.reply));
		assert_int_equal(a.reply.status, -EPROTO);
	}
	assert_int_equal(member_ask(&a, CORE_JOIN), 0);
	assert_int_equal(member_ask(&a, 99), -EPROTO);
	member_close(&a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_worker_that_does_not_fit_is_refused_and_changes_nothing),
		T(the_first_join_fixes_the_job),
		T(a_live_rank_is_not_given_away),
		T(a_process_that_died_unheard_makes_room),
		T(nobody_is_admitted_before_the_old_life_is_fenced),
		T(other_shards_take_the_incarnation_that_they_are_told),
		T(a_clone_and_a_reconnect_join_again),
		T(a_connection_that_never_joins_does_not_keep_a_rank_alive),
		T(a_process_that_closed_joins_anew_at_once),
		T(after_a_restart_live_ranks_reconnect_or_are_found_dead),
		T(a_rank_that_left_is_replaced_when_its_process_has_closed),
		T(requests_before_a_join_and_rubbish_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

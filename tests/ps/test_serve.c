/* SPDX-License-Identifier: BSD-2-Clause */
/* A server in a process of its own, over shared memory. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/copy.h"
#include "ps/job.h"
#include "shm/shm.h"

#define ADDRESS "shm://ps"
#define VALUES  16384u

static struct job job;
static pid_t server;
static bool quick;

/* The process that serves, until it is killed. */
static void serve(void)
{
	struct fabric *fabric;
	struct core_arena *arena;
	struct ps_server *ps;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (shm_open_fabric(&fabric) || core_arena_open(&job.options, &arena) ||
	    ps_open(fabric, arena, ADDRESS, &ps))
		_exit(1);
	for (;;) {
		int ret = ps_step(ps);

		if (ret == 0)
			ret = ps_wait(ps, BASE_FOREVER);
		if (ret < 0)
			_exit(2);
	}
}

/* Starts it, and returns when it takes connections. */
static void start_server(void)
{
	struct fabric_endpoint *ep;
	uint64_t deadline = base_now_ns() + 10 * NS_PER_S;

	server = fork();
	if (server == 0)
		serve();
	while (fabric_connect(job.fabric, ADDRESS, deadline, &ep) < 0) {
		assert_int_equal(waitpid(server, NULL, WNOHANG), 0);
		assert_true(base_now_ns() < deadline);
	}
	fabric_endpoint_close(ep);
}

static void kill_server(void)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

static int setup(void **state)
{
	(void)state;
	quick = getenv("QUICK") || getenv("SAN");
	job_prepare(&job, RAMPS_ON_DEATH_FAIL);
	setenv("RAMPS_SHM_DIR", job.root, 1);
	job.address = ADDRESS;
	assert_int_equal(shm_directory(ADDRESS, job.directory, sizeof(job.directory)), 0);
	assert_int_equal(shm_open_fabric(&job.fabric), 0);
	start_server();
	return core_arena_attach(job.directory, &job.arena);
}

static int teardown(void **state)
{
	(void)state;
	kill_server();
	core_arena_close(job.arena, false);
	fabric_close(job.fabric);
	job_remove(&job);
	return 0;
}

static void wake(struct member *m)
{
	struct core_request request = { .magic = CORE_MESSAGE_MAGIC, .kind = CORE_WAKE };

	int ret;

	if (!__atomic_load_n(&core_arena_header(job.arena)->asleep, __ATOMIC_SEQ_CST))
		return;
	ret = fabric_send(m->ep, &request, sizeof(request));
	assert_true(ret == 0 || ret == -EAGAIN); /* full: it has been woken often enough */
}

static void wait_head(uint32_t rank, uint64_t head)
{
	uint64_t deadline = base_now_ns() + 10 * NS_PER_S;

	while (job_head(&job, rank) < head)
		assert_true(base_now_ns() < deadline);
}

static void wait_state(uint32_t rank, uint32_t state, uint64_t within_ns)
{
	uint64_t deadline = base_now_ns() + within_ns;

	while (job_state(&job, rank) != state)
		assert_true(base_now_ns() < deadline);
}

static void a_commit_wakes_a_sleeping_server_every_time(void **state)
{
	int rounds = quick ? 300 : 5000;
	struct member m;
	uint32_t t;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 1), 0);
	t = member_table(&m, "w", 10, 0, 1);
	for (int i = 0; i < rounds; i++) {
		member_push(&m, t, 0, 0, 10, 1);
		wake(&m);
		wait_head(0, (uint64_t)i + 1);
		/* it falls asleep, or is just about to */
		for (int k = 0; k < i % 50 * 20; k++)
			__asm__ volatile("");
	}
	assert_true(job_values(&job, t)[9] == (float)-rounds);
	member_close(&m);
}

static void an_idle_server_takes_no_time(void **state)
{
	struct member m;
	char path[64], text[512], *at;
	unsigned long ticks[2][2];
	FILE *file;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	member_table(&m, "w", 10, 0, 1);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)server);
	for (int i = 0; i < 2; i++) {
		file = fopen(path, "r");
		assert_non_null(file);
		assert_non_null(fgets(text, sizeof(text), file));
		fclose(file);
		at = strrchr(text, ')');
		assert_int_equal(sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
					&ticks[i][0], &ticks[i][1]),
				 2);
		if (i == 0)
			sleep(2); /* what is measured is what happens meanwhile */
	}
	/* ticks of 10 ms: 1 % of 2 s is two */
	assert_in_range(ticks[1][0] + ticks[1][1] - ticks[0][0] - ticks[0][1], 0, 2);
	member_close(&m);
}

static void a_killed_worker_is_dead_at_once_and_what_it_committed_counts(void **state)
{
	struct member m;
	uint32_t t;
	pid_t child;
	int pipe_fds[2];
	char c;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 2), 0);
	t = member_table(&m, "w", 10, 0, 1);
	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	if (child == 0) {
		struct member own;

		if (shm_open_fabric(&job.fabric) || core_arena_attach(job.directory, &job.arena))
			_exit(1);
		if (member_join(&own, &job, 1, 2))
			_exit(1);
		for (int i = 0; i < 5; i++)
			member_push(&own, t, 0, 0, 10, 1);
		if (write(pipe_fds[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(pipe_fds[0], &c, 1), 1);
	kill(child, SIGKILL);
	wait_state(1, CORE_DEAD, NS_PER_S);
	assert_int_equal(job_head(&job, 1), 5);
	assert_true(job_values(&job, t)[0] == -5);
	waitpid(child, NULL, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	member_close(&m);
}

/* Reads the chunk as a snapshot pull does. Whether it was whole. */
static bool snapshot(const struct core_chunk *chunk, const float *values, float *to, uint64_t *steps)
{
	uint64_t before = word_acquire(&chunk->version);

	if (before & 1)
		return false;
	*steps = word_load(&chunk->steps);
	base_copy(to, values, VALUES * sizeof(float));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return word_load(&chunk->version) == before;
}

static void check_whole(const float *values, uint64_t steps)
{
	for (uint32_t i = 0; i < VALUES; i++)
		if (values[i] != -(float)steps)
			fail_msg("value %u is %g after %lu steps", i, (double)values[i],
				 (unsigned long)steps);
}

/* Joins as the next life, or again where the server was restarted. */
static void join_again(struct member *m)
{
	uint64_t deadline = base_now_ns() + 10 * NS_PER_S;
	uint32_t incarnation = m->incarnation;
	uint64_t arena_id = m->arena_id, tail = m->tail;
	int ret;

	member_close(m);
	do {
		member_prepare(m, &job, 0, 1);
		m->request.how = CORE_JOIN_AGAIN;
		m->request.incarnation = m->incarnation = incarnation;
		m->request.arena_id = m->arena_id = arena_id;
		m->tail = tail;
		ret = member_ask(m, CORE_JOIN);
		if (ret)
			member_close(m);
	} while (ret == -EAGAIN && base_now_ns() < deadline);
	assert_int_equal(ret, 0);
}

static void a_reader_never_sees_a_torn_chunk_also_across_crashes(void **state)
{
	int lives = quick ? 5 : 40, seen = 0;
	static float copy[VALUES];
	uint64_t last = 0, steps;
	struct member m;
	uint32_t t;

	(void)state;
	assert_int_equal(member_join(&m, &job, 0, 1), 0);
	t = member_table(&m, "w", VALUES, 0, 1);
	for (int life = 0; life < lives; life++) {
		uint64_t end = base_now_ns() + 30 * NS_PER_MS + (uint64_t)life * 12345;

		while (base_now_ns() < end) {
			while (m.tail - job_head(&job, 0) < JOB_CELLS)
				member_push(&m, t, 0, 0, VALUES, 1);
			wake(&m);
			if (!snapshot(job_chunk(&job, t, 0), job_values(&job, t), copy, &steps))
				continue;
			check_whole(copy, steps);
			assert_true(steps >= last);
			last = steps;
			seen++;
		}
		kill_server();
		start_server();
		join_again(&m);
	}
	wait_head(0, m.tail);
	assert_true(snapshot(job_chunk(&job, t, 0), job_values(&job, t), copy, &steps));
	assert_int_equal(steps, m.tail);
	check_whole(copy, steps);
	assert_true(seen > lives);
	member_close(&m);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_commit_wakes_a_sleeping_server_every_time),
		T(an_idle_server_takes_no_time),
		T(a_killed_worker_is_dead_at_once_and_what_it_committed_counts),
		T(a_reader_never_sees_a_torn_chunk_also_across_crashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

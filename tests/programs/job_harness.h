/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job of whole programs: servers and workers are child processes that a test starts, kills and starts
 * again. There is one job at a time. Servers listen in a directory of the test's own, under names that stay
 * the same over restarts. What the processes know of each other's deeds is in memory from job_shared().
 *
 * A check that fails in a child prints the place and ends the child with status 1; in the test itself it
 * fails the test. Every wait has a deadline, and every child dies with the test.
 */
#ifndef TESTS_JOB_HARNESS_H
#define TESTS_JOB_HARNESS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <ramps/ramps.h>

#define JOB_MAX_SERVERS 8
#define JOB_MAX_RANKS   64
#define JOB_TIMEOUT_MS  60000 /* for a call that is not expected to take long */

typedef void job_function(uint32_t rank);

struct job {
	struct ramps_server_options options; /* of every server; address and job are the harness's */
	uint32_t servers, workers;
	char addresses[JOB_MAX_SERVERS * 64]; /* with commas between */
	pid_t server[JOB_MAX_SERVERS], rank[JOB_MAX_RANKS];
	int server_fd[JOB_MAX_SERVERS], rank_fd[JOB_MAX_RANKS]; /* pidfds */
};

extern struct job job;

/* cmocka fixtures of a test: a fresh directory; ends all children and removes it. */
int job_setup(void **state);
int job_teardown(void **state);

#define job_test(f) cmocka_unit_test_setup_teardown(f, job_setup, job_teardown)

/* True where there should be fewer rounds. */
bool job_quick(void);
static inline uint32_t job_rounds(uint32_t full, uint32_t quick)
{
	return job_quick() ? quick : full;
}

/* Starts `servers` servers, with job.options as the test may have set them, for a job of `workers`. */
void job_start(uint32_t servers, uint32_t workers);
/* Ends the servers in good order and checks that they do. */
void job_stop(void);
void job_server_kill(uint32_t server);
void job_server_spawn(uint32_t server);

/* Runs function(rank) in a child process. */
void job_spawn(uint32_t rank, job_function *function);
void job_kill(uint32_t rank);
void job_signal(uint32_t rank, int number);
/* True when the rank's process has ended; then its status must be 0. */
bool job_has_ended(uint32_t rank);
/* Waits until all ranks that run have ended, with status 0. */
void job_wait(int timeout_ms);
void job_wait_for(uint32_t rank, int timeout_ms);
/* Runs function in ranks 0 .. n-1 and waits for them. */
void job_run(uint32_t n, job_function *function, int timeout_ms);

/* Zeroed memory that all processes forked later share; released at the test's end. */
void *job_shared(size_t bytes);

/* For workers. */
struct ramps_worker *job_join(uint32_t rank);
/* Creates in rank 0 and opens elsewhere. */
struct ramps_table *job_table(struct ramps_worker *worker, const struct ramps_schema *schema);
struct ramps_barrier *job_barrier(struct ramps_worker *worker, const char *name);
void job_leave(struct ramps_worker *worker);
/* True when a call is to be repeated: a server was gone that is started again in a moment. Any other error
 * fails the test. */
bool job_again(int ret);

uint64_t job_now_us(void);
uint64_t job_random(uint64_t *state);
/* Stops for a moment of chance: up to most_us. */
void job_dither(uint64_t *state, uint32_t most_us);
/* For what can't be seen: that another process sleeps in the library. */
void job_pause(uint32_t ms);

/* Shared counters. */
static inline uint64_t job_get(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void job_set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static inline uint64_t job_add(uint64_t *word, uint64_t value)
{
	return __atomic_add_fetch(word, value, __ATOMIC_SEQ_CST);
}

/* Waits until *word is at least value. */
void job_await(const uint64_t *word, uint64_t value, const char *file, int line);
#define AWAIT(word, value) job_await((word), (value), __FILE__, __LINE__)

_Noreturn void job_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define CHECK(condition)                                                          \
	do {                                                                      \
		if (!(condition))                                                 \
			job_fail(__FILE__, __LINE__, "not true: %s", #condition); \
	} while (0)

#define CHECK_U64(a, b)                                                                           \
	do {                                                                                      \
		unsigned long long a_ = (a), b_ = (b);                                            \
		if (a_ != b_)                                                                     \
			job_fail(__FILE__, __LINE__, "%s is %llu, not %s, %llu", #a, a_, #b, b_); \
	} while (0)

/* A call that returns 0 or a count. */
#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_ < 0)                                                                      \
			job_fail(__FILE__, __LINE__, "%s: %s (%s)", #call, strerrorname_np(-ret_), \
				 ramps_last_error()->text);                                        \
	} while (0)

#define EXPECT(call, code)                                                                      \
	do {                                                                                    \
		int ret_ = (call);                                                              \
		if (ret_ != (code))                                                             \
			job_fail(__FILE__, __LINE__, "%s: %d, not %s (%s)", #call, ret_, #code, \
				 ramps_last_error()->text);                                     \
	} while (0)

#endif

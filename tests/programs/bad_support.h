/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of bad input share: checks that also work in a forked child, servers in processes of their
 * own (this one stays without threads, so that it may fork), and a job whose data must not come to harm.
 */
#ifndef TESTS_PROGRAMS_BAD_SUPPORT_H
#define TESTS_PROGRAMS_BAD_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ramps/ramps.h>

/* Each prints what was there instead and ends the test, or the child. */
#define must(condition) bad_must((condition), #condition, __FILE__, __LINE__)
#define must_work(call) bad_must_work((call), #call, __FILE__, __LINE__)

/*
 * The call returned -code and said so in one line: its own name, and every one of the words, with '|'
 * between them, in its text.
 */
#define must_fail(ret, code, words) bad_must_fail((ret), (code), (words), #ret, __FILE__, __LINE__)

void bad_must(bool good, const char *what, const char *file, int line);
void bad_must_work(int ret, const char *what, const char *file, int line);
void bad_must_fail(int ret, int code, const char *words, const char *what, const char *file, int line);

/* n, or less under a sanitizer and with QUICK. */
uint32_t bad_rounds(uint32_t n);

/* Milliseconds since a moment; times of calls that must not take long are held against bad_soon_ms(). */
int64_t bad_now_ms(void);
int64_t bad_soon_ms(void);

/* cmocka setup and teardown of a group: RAMPS_SHM_DIR is fresh, no launcher's variables are set. */
extern char bad_root[64];
int bad_setup(void **state);
int bad_teardown(void **state);

/* "shm://bad-N", another at each call, in one of a few static buffers. */
const char *bad_address(void);

/* Where a server at this address has its files. */
const char *bad_directory(const char *address);

/* A number over a file, or all files of a directory: names, modes, times and every byte. */
uint64_t bad_digest(const char *path);

void bad_remove(const char *path);

/* Runs function in a child, to its end or 60 s: its wait status. */
int bad_fork(void (*function)(void *), void *arg);

/* The same, for a child that must find everything as it should be. */
void bad_child(void (*function)(void *), void *arg);

struct bad_server {
	pid_t pid;
	int hold; /* a byte here ends it */
};

/* Starts a server in a process; returns when workers can join. Options as for ramps_server_start(). */
void bad_server_start(struct bad_server *server, const struct ramps_server_options *options);
void bad_server_stop(struct bad_server *server);
void bad_server_kill(struct bad_server *server);

int bad_join(const char *servers, uint32_t rank, uint32_t workers, struct ramps_worker **worker);

#define BAD_WORKERS 8u
#define BAD_ROWS    100u
#define BAD_DIM     8u

struct bad_job {
	char address[64];
	struct bad_server server;
	struct ramps_worker *worker; /* rank 0 */
	struct ramps_table *plain;   /* float32, direct */
	struct ramps_table *counts;  /* int64, direct */
	struct ramps_table *grad;    /* float32, slots, asynchronous */
};

/* A server, rank 0 of BAD_WORKERS and three tables of BAD_ROWS x BAD_DIM, "plain", "counts" and "grad". */
void bad_job_begin(struct bad_job *job);
void bad_job_end(struct bad_job *job);

/* Every value is as it was, and the server still serves: it answers, and applies what is pushed. */
void bad_job_check(struct bad_job *job);

#endif

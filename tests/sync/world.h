/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job without its server and workers: an arena of one barrier and one clock, processes that are its ranks,
 * and this process, which keeps their states and acts for them as the server would. Over the memory fabric
 * or, with `shm`, over the product's.
 */
#ifndef TESTS_SYNC_WORLD_H
#define TESTS_SYNC_WORLD_H

#include <signal.h>
#include <sys/types.h>

#include "sync/barrier.h"
#include "sync/clock.h"
#include "sync/memory_fabric.h"

#define WORLD_MAX 64u
#define WORLD_S   1000000000ull

struct world_line {
	uint64_t entered; /* generations that this rank has entered */
	uint64_t clock;   /* steps of its own */
	uint64_t values[6];
};

/* Shared by all processes. */
struct world_shared {
	struct world_line line[WORLD_MAX];
	uint64_t failed;
	char report[512]; /* of the first failure */
};

struct world {
	uint32_t workers, on_death;
	bool shm;
	struct world_shared *shared;
	struct fabric_memory words, published;
	struct core_barrier barrier;
	struct core_clock clock;
	uint64_t states_offset;
	pid_t pids[WORLD_MAX]; /* 0: not running */
	int status[WORLD_MAX]; /* as waitpid() says, once it ended */
	bool absent[WORLD_MAX];
	struct fabric *fabric;
	struct fabric_listener *listener;
	struct sync_peer server; /* of this process */
	struct memory_endpoint server_memory;
	char directory[64];
};

/* world_shm.c: the product's fabric. serve: takes what connections there are, then waits for more or SIGCHLD. */
void world_shm_open(struct world *w);
void world_shm_serve(struct world *w, uint64_t deadline_ns);
void world_shm_connect(struct world *w, struct sync_peer *peer);
void world_shm_close(struct world *w);
void world_peer_init(struct world *w, struct fabric *fabric, struct fabric_endpoint *ep,
		     struct sync_peer *peer);

/* first_generation is the barrier's. All ranks are CORE_LIVE. Fails the test if it can't. */
void world_open(struct world *w, bool shm, uint32_t workers, uint32_t fan_in, uint32_t first_generation);
void world_close(struct world *w);

void world_set_state(struct world *w, uint32_t rank, uint32_t state);

/* Starts a process that does body() as `rank` and exits with 0 if that returns. */
void world_spawn(struct world *w, uint32_t rank,
		 void (*body)(struct world *w, struct sync_peer *peer, uint32_t rank));

/*
 * Serves connections until a process ends, and returns its rank, or -1 at the deadline. Only processes that ended
 * by themselves or by this process's signals: a failed check fails the test here.
 */
int world_next_end(struct world *w, uint64_t deadline_ns);

/* Until all have ended well; kills them and fails the test after timeout_s. */
void world_join_all(struct world *w, uint32_t timeout_s);

uint32_t world_running(const struct world *w);

/* In this process: a peer of its own over plain memory. */
void world_peer(struct world *w, struct memory_endpoint *ep, struct sync_peer *peer);

uint64_t *world_clock_word(struct world *w, uint32_t rank);
struct core_node *world_nodes(struct world *w);

/* Fails the process, or the test where there is no process: shows the values. */
void world_fail(struct world *w, const char *file, int line, const char *what, int64_t a, int64_t b);

#define CHECK_OP(w, a, op, b)                                                                   \
	do {                                                                                    \
		int64_t check_a = (int64_t)(a), check_b = (int64_t)(b);                         \
		if (!(check_a op check_b))                                                      \
			world_fail(w, __FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
	} while (0)
#define CHECK_EQ(w, a, b) CHECK_OP(w, a, ==, b)

/* full, or fewer in quick runs and under a sanitizer. */
uint32_t world_rounds(uint32_t full, uint32_t quick);

uint64_t world_now(void);

/* A small random generator, for choices that a seed repeats. */
uint32_t world_random(uint64_t *state);

#endif

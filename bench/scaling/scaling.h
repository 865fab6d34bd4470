/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scale study: synchronisation and transfers of thousands of workers, in the simulator, under
 * the costs of real network cards. What is timed is the code that ships; see docs/scaling.md.
 */
#ifndef SCALING_H
#define SCALING_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/sim.h"
#include "sync/barrier.h"
#include "sync/clock.h"

#define STUDY_WAIT_NS 10000000000ull /* longer than anything here takes */

extern const struct sim_costs study_costs;

/* What is to be timed. */
struct study_case {
	uint32_t workers;
	uint32_t rounds;
	uint32_t fan_in;  /* of a barrier */
	uint64_t late_ns; /* one worker, another in each round, comes so much later than the rest */
};

/* Of the rounds but the first: means. */
struct study_result {
	double time_us;    /* from the last arrival until all are through */
	double serial_us;  /* what the busiest device served in a round */
	double operations; /* that each worker posted in a round */
	bool failed;
};

struct study;

/* One worker's part in a study. */
struct study_worker {
	struct study *study;
	uint32_t index;
	struct sync_peer peer;
	void *state; /* the method's */
};

/* A way to synchronise: words of memory, and what a worker does with them. */
struct study_method {
	const char *name;
	uint64_t (*words_bytes)(const struct study_case *what);
	int (*open)(struct study_worker *worker);
	int (*round)(struct study_worker *worker, uint32_t round);
	void (*close)(struct study_worker *worker);
};

extern const struct study_method study_barrier; /* src/sync/barrier.c */
extern const struct study_method study_counter; /* all add to one word, and wait for another */
extern const struct study_method study_dissemination;
extern const struct study_method study_clock; /* src/sync/clock.c: each reads all */

struct study_result study_run(const struct study_method *method, const struct study_case *what);

const struct study_case *study_case_of(const struct study_worker *worker);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The harness around the simulated cluster: a job of workers and servers whose shape, faults and
 * work all follow from one seed, and an oracle that knows what may be in the servers' memory.
 *
 *   plan.c       what a seed decides
 *   world.c      runs one seed: opens the world, lets it run, ends it
 *   host.c       a server's process
 *   actor.c      a worker's process: its lives and its rounds
 *   calls.c      every call of the library goes through here: deadlines, errors, counts
 *   workload_*.c what a worker does
 *   chaos.c      kills, stalls, interrupts, and starts again
 *   oracle*.c    what must hold
 *   jobs.c, report.c, shrink.c, prog_sim.c   many seeds, and what became of them
 */
#ifndef SIM_HARNESS_H
#define SIM_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <ramps/ramps.h>

#include "base/clock.h"
#include "core/arena.h"
#include "sim/sim.h"

#define MAX_WORKERS 8u
#define MAX_SERVERS 3u
#define MAX_TABLES  6u
#define MAX_HOT     128u /* elements of a table that are pushed, so that the oracle stays small */
#define MAX_CHUNKS  4u
#define MAX_NAME    16u

/* A lane of 7 bits counts what one rank has added to an element. */
#define LANE_BITS 7u
#define LANE_MOST 120u
#define LANE_MASK 127u

enum table_kind {
	TABLE_INT,   /* direct int64: every rank adds to a lane of its own */
	TABLE_FIXED, /* direct fixed point, the same; up to 3 workers */
	TABLE_PART,  /* slots, each push a step: any rows; counts pushes */
	TABLE_WHOLE, /* slots, each push a step: whole chunks, so that a torn one shows */
	TABLE_STEP,  /* slots, synchronous */
	TABLE_KINDS,
};

/*
 * A table's rows, and which of them are pushed: blocks around the borders of its chunks. Hot
 * elements are numbered through the blocks.
 */
struct plan_table {
	enum table_kind kind;
	char name[MAX_NAME];
	uint64_t rows;
	uint32_t dim, chunk_elements, chunks;
	bool initial;
	uint32_t blocks, block_rows;
	uint64_t block_first[3];
};

struct plan {
	uint64_t seed;
	uint32_t workers, servers, cells, on_death;
	uint32_t rounds, ops; /* ops: of a worker in a round */
	uint32_t tables;
	struct plan_table table[MAX_TABLES];
	bool barrier, group, clock;
	uint32_t group_mask; /* of ranks */
	uint32_t fan_in;     /* of the barriers' trees */
	uint32_t staleness;
	uint32_t leave, interrupt, short_timeout, submit, posted; /* chances, of 1000 */
	uint32_t kills, server_kills;                             /* at most */
	bool rebirth;      /* of killed workers, all; else some */
	bool one_node;     /* all on one device */
	uint64_t pause_ns; /* longest between stores of a server's update */
	uint64_t think_ns; /* longest between a worker's calls */
	uint64_t lease_ns;
	uint32_t rate[SIM_FAULTS];
};

/* What the command line says; what is 0 does not matter. */
struct options {
	uint64_t first, seeds, seed;
	uint32_t jobs;
	bool one, trace, quiet, no_shrink, speed;
	uint32_t off; /* bits of faults that do not happen */
	uint32_t most_workers, most_servers, most_rounds, most_ops;
	uint32_t tables_off; /* bits of kinds of tables */
	uint32_t things_off; /* bits of enum plan_thing */
	uint32_t seconds;    /* of real time for a seed */
	uint32_t most_failures;
};

enum plan_thing {
	THING_BARRIER,
	THING_GROUP,
	THING_CLOCK,
	THING_LEAVE,
	THING_SUBMIT,
	THING_POSTED,
	THING_TIMEOUT,
	THING_INTERRUPT,
	THINGS,
};

enum call {
	CALL_JOIN,
	CALL_CLOSE,
	CALL_LEAVE,
	CALL_CREATE,
	CALL_OPEN,
	CALL_PUSH,
	CALL_PUSH_ROWS,
	CALL_PULL,
	CALL_PULL_ROWS,
	CALL_SNAPSHOT,
	CALL_FLUSH,
	CALL_SUBMIT,
	CALL_REAP,
	CALL_BARRIER_OPEN,
	CALL_BARRIER_ARRIVE,
	CALL_BARRIER_WAIT,
	CALL_CLOCK_OPEN,
	CALL_CLOCK_ADVANCE,
	CALL_CLOCK_WAIT,
	CALL_CLOCK_READ,
	CALL_INFO,
	CALLS,
};

enum result {
	RESULT_OK,
	RESULT_TIMEDOUT,
	RESULT_INTR,
	RESULT_NOTCONN,
	RESULT_OWNERDEAD,
	RESULT_IO,
	RESULT_AGAIN,
	RESULT_STALE,
	RESULT_OTHER,
	RESULTS,
};

enum event {
	EVENT_RECONNECT,
	EVENT_POSTED_AGAIN,
	EVENT_UNKNOWN,
	EVENT_RESTART,
	EVENT_UNDO,
	EVENT_STAND_IN,
	EVENT_PARKED,
	EVENT_SNAPSHOT_RETRY,
	EVENT_DROPPED,
	EVENT_RING_FULL,
	EVENT_ASLEEP,
	EVENT_DEATH,
	EVENT_FENCED_ALIVE,
	EVENT_LEFT,
	EVENT_REJOINED,
	EVENT_RESUMED,
	EVENT_KILLED_IN_STORE,
	EVENT_STEP_WITHOUT,
	EVENTS,
};

extern const char *const call_names[CALLS];
extern const char *const result_names[RESULTS];
extern const char *const event_names[EVENTS];
extern const char *const thing_names[THINGS];
extern const char *const table_kind_names[TABLE_KINDS];

struct totals {
	uint64_t seeds, failed, calls_made, virtual_ns, cpu_ns;
	uint64_t calls[CALLS][RESULTS];
	uint64_t events[EVENTS];
	uint64_t faults[SIM_FAULTS];
	uint64_t seeds_with[SIM_FAULTS];
	uint64_t operations, lists, messages, switches, sim_events;
};

/* What became of a seed. */
struct verdict {
	bool failed;
	char invariant[32];
	char text[400];
	uint64_t hash; /* over every call, when it was made, and what it returned */
	uint64_t calls, now_ns;
};

struct table_state {
	/* by hot element (chunk, for whole ones) and rank: pushes begun; those that must count */
	uint32_t attempted[MAX_HOT * MAX_WORKERS];
	uint32_t certain[MAX_HOT * MAX_WORKERS];
	uint64_t version[MAX_CHUNKS]; /* last seen */
	uint32_t entry[MAX_SERVERS];  /* in the directory, + 1; 0: not found yet */
};

struct ramps_worker;
struct ps_server;

/* A rank, over all its lives. */
struct rank {
	struct world *world;
	uint32_t number, lives, round;
	struct sim_process *process;
	struct ramps_worker *worker; /* while interrupts may be sent to it */
	bool finished, dead;         /* dead: for good */
	bool was_killed;
	uint64_t start_at;   /* its next life; 0: none is due */
	uint64_t unknown;    /* additions reported as of unknown fate, not settled */
	bool cut_off;        /* a life ended in the midst of something */
	uint64_t interrupts; /* sent and not yet seen */
	enum call call;
	bool in_call;
	uint64_t call_at, call_until, stalled_ns;
	uint64_t joined_at, absent_until; /* when others may have gone on without it */
	uint32_t begun[2]; /* generations that it has begun to arrive at, per barrier */
	uint64_t rng;
};

struct host {
	struct world *world;
	uint32_t number;
	struct sim_process *process;
	struct ps_server *ps;
	bool up;
	uint64_t start_at;
	uint32_t lives;
	char address[64], directory[128];
	struct core_arena *seen; /* read-only, for the oracle */
	const uint64_t *watched; /* while it starts: the version of the chunk in the undo copy */
	uint64_t watched_at;
	uint64_t checked; /* undo.version + chunk of the commit that was checked last */
	uint32_t state[MAX_WORKERS];
	uint64_t fenced[MAX_WORKERS]; /* the state that fence_... are of */
	uint64_t fence_tail[MAX_WORKERS], fence_sum[MAX_WORKERS];
};

struct barrier_state {
	uint64_t opened_at[256]; /* when the first began to arrive at a generation */
};

#define MAX_PROCESSES 1024u

struct world {
	struct plan plan;
	const struct options *options;
	struct sim *sim;
	struct rank ranks[MAX_WORKERS];
	struct host hosts[MAX_SERVERS];
	struct table_state tables[MAX_TABLES];
	struct barrier_state barriers[2];
	uint32_t rounds_begun; /* the furthest of all */
	bool stopping, calm;
	uint64_t progress_at;
	struct sim_process *processes[MAX_PROCESSES];
	uint32_t process_count;
	struct verdict verdict;
	struct totals *totals;
};

/* plan.c */
void plan_make(struct plan *plan, uint64_t seed, const struct options *options);
void plan_print(const struct plan *plan, FILE *to);
/* A generator of its own for all that is not the fabric's, so that fewer of one leave the others. */
uint64_t draw(uint64_t *state, uint64_t n);
static inline bool draw_chance(uint64_t *state, uint32_t of_1000)
{
	return draw(state, 1000) < of_1000;
}

/* world.c */
void world_run(uint64_t seed, const struct options *options, struct totals *totals,
	       struct verdict *verdict);
void world_spawn(struct world *world, struct sim_process **process, const char *name, uint32_t node,
		 void (*main)(void *), void *arg);
/* The first failure is the seed's verdict. */
void world_fail(struct world *world, const char *invariant, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
uint32_t world_state(const struct world *world, uint32_t server, uint32_t rank);
/* Whether others could go on without the rank at some time since `since`. */
bool world_absent(const struct world *world, uint32_t rank, uint64_t since);
static inline void world_event(struct world *world, enum event event)
{
	world->totals->events[event]++;
}
/* It has been killed, and is none of those whose leaks are looked for. */
void world_forget(struct world *world, const struct sim_process *process);

/* host.c, chaos.c */
void host_main(void *arg);
void chaos_main(void *arg);
void host_killed(struct host *host, uint64_t start_at);

/* What a push does, by hot elements, or chunks of whole ones. */
struct push {
	struct ramps_table *table;
	uint32_t index; /* of the table */
	uint32_t n;
	uint64_t first_row, rows;
	uint64_t *row_ids; /* or NULL */
	void *data;
	uint64_t data_bytes;
	struct ramps_transfer how;
	struct push *next;
	bool in_doubt;             /* a try of it returned -EIO */
	uint64_t step[MAX_CHUNKS]; /* synchronous: what each of its chunks is for */
	uint16_t at[MAX_HOT];
};

/* One life of a rank. */
struct actor {
	struct world *world;
	struct rank *rank;
	struct ramps_worker *worker;
	struct ramps_table *table[MAX_TABLES];
	struct ramps_barrier *barrier[2];
	struct ramps_clock *clock;
	bool was_broken;                       /* when its call began */
	struct push *posted;                   /* whose fate the next flush settles */
	struct batch *batch;                   /* submitted and not all reaped */
	uint64_t seen[MAX_TABLES][MAX_CHUNKS]; /* steps of the last snapshot */
	bool ended;                            /* fenced, or the world has failed */
	bool fenced;
};

void actor_main(void *arg);

/* calls.c */
void call_begin(struct actor *actor, enum call call, int timeout_ms);
int call_end(struct actor *actor, int ret);
/* Whether a call that returned ret is to be made again; waits a moment before. */
bool call_again(struct actor *actor, int ret);
#define CALL(actor, what, timeout_ms, made) \
	(call_begin(actor, what, timeout_ms), call_end(actor, made))

int actor_timeout(struct actor *actor);
/* All that was posted has landed; or what of it may not have is in the rank's `unknown`. */
void actor_settled(struct actor *actor);
void actor_unsettled(struct actor *actor);

/* workload_tables.c */
void work_push(struct actor *actor);
void work_pull(struct actor *actor);
void work_flush(struct actor *actor);
bool work_make_push(struct actor *actor, struct push *push);
void work_free_push(struct push *push);
struct push *work_keep_push(const struct push *push);
int work_push_run(struct actor *actor, struct push *push);

/* workload_pull.c */
struct pull {
	uint32_t index, n; /* hot elements from `first` on */
	uint32_t first;
	bool snapshot;
	uint64_t first_row, rows;
	uint64_t *row_ids;
	void *data;
	struct ramps_transfer how;
	uint16_t at[MAX_HOT];
	uint32_t certain[MAX_HOT * MAX_WORKERS];
};
void work_free_pull(struct pull *pull);
bool work_make_pull(struct actor *actor, struct pull *pull);
void work_check_pull(struct actor *actor, struct pull *pull);

/* workload_submit.c, workload_steps.c */
void work_submit(struct actor *actor);
void work_free_batch(struct actor *actor);
void work_steps(struct actor *actor);
void work_barrier(struct actor *actor, uint32_t which);
void work_clock(struct actor *actor);
/* The other ranks before this one joins: their states, and the least count of those that live. */
struct clock_view {
	uint64_t states[MAX_WORKERS], least; /* UINT64_MAX: none lives */
};
void work_clock_view(struct world *world, uint32_t rank, struct clock_view *view);
void work_clock_check(struct world *world, uint32_t rank, const struct clock_view *before);

/* oracle.c */
void oracle_attempt(struct world *world, uint32_t rank, const struct push *push);
void oracle_certain(struct world *world, uint32_t rank, const struct push *push);
void oracle_new_life(struct world *world, uint32_t rank);
/* What a rank has in an element (chunk) by the server's memory; UINT64_MAX: it is not there. */
uint64_t oracle_count(struct world *world, uint32_t table, uint32_t hot, uint32_t rank);
const void *oracle_memory(struct world *world, uint32_t table, uint64_t element, uint32_t *server);
const struct core_entry *oracle_entry(struct world *world, uint32_t server, uint32_t kind,
				      const char *name);
uint64_t oracle_hot_element(const struct plan_table *table, uint32_t hot);
bool oracle_full(const struct world *world, uint32_t table, uint32_t hot, uint32_t rank);
/* Of values as the arena or a pull has them. */
uint64_t oracle_lane(const struct plan_table *table, const void *value, uint32_t rank);
void oracle_fences(struct world *world);
/* Notes at once what a rank that has just died has on this server. */
void oracle_deaths(struct world *world, uint32_t server);
void oracle_own_applied(struct actor *actor);
void oracle_end(struct world *world);
/* What the servers' memory says of every rank and chunk. */
void oracle_print(struct world *world, FILE *to);

/* oracle_commit.c */
void oracle_commit(struct host *host);
void oracle_started(struct host *host);
float step_value(uint32_t position, uint32_t workers, uint32_t rank, uint64_t step);
#define STEP_RATE   840.0f /* divides by every number of workers */
#define START_PART  5.0f
#define START_INT   (3ull << 56)
#define START_FIXED (3ull << 21)
#define FIXED_BITS  12u
#define FIXED_DOWN  4u /* a lane's unit is 2^-4 */

/* jobs.c */
int jobs_run(const struct options *options, struct totals *totals);
/* Runs a seed in a process of its own: what would stop this one, stops that. */
void jobs_one(uint64_t seed, const struct options *options, struct verdict *verdict);

/* report.c, shrink.c */
void report_totals(const struct totals *totals, const struct options *options, double seconds);
void report_command(const struct options *options, uint64_t seed, FILE *to);
void shrink(uint64_t seed, const struct options *options, const struct verdict *verdict);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member is a rank's life in a job: what its threads share. A worker is one thread's part of
 * it, with a link (endpoint) to every server. Tables, barriers and clocks are children of one
 * worker.
 *
 * Closing a worker takes it from its children, whose calls then find none; each child is freed by
 * its own close. A member goes with its last worker.
 */
#ifndef WORKER_PRIVATE_H
#define WORKER_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/message.h"
#include "core/schema.h"
#include "sync/barrier.h"
#include "sync/clock.h"
#include "worker/worker.h"

#define WORKER_BLOCK \
	256u /* values that are converted and added at a time: they stay in the first cache */
#define WORKER_BOUNCE_BYTES 8192u
#define WORKER_AGAIN        1
#define WORKER_OP_ASSIGN    (1u << 31)        /* a flag of ramps_op: initial values */
#define WORKER_RUN          64u               /* chunks of which a snapshot is taken together */
#define WORKER_CELL_OPS     4u                /* in the list that commits a cell */
#define WORKER_DRAIN_NS     (20 * NS_PER_MS)  /* for what is under way when a call gives up */
#define WORKER_LAND_NS      (500 * NS_PER_MS) /* for a list that others wait for */

/* What was posted for a position of the ring, to be posted again if a connection breaks. */
struct worker_flight {
	struct core_cell cell;
	const float *src;
	float *copy; /* src, where the caller of a push that failed has its memory back */
	const struct worker_request *request; /* NULL: src holds until a flush */
};

/* The rank's ring on one server. Guarded by worker_member.lock where the rank has clones. */
struct worker_ring {
	uint64_t tail;      /* positions committed */
	uint64_t head;      /* positions known to be consumed */
	uint64_t landed;    /* positions known to be in the server's memory; flight.c */
	uint64_t sync_tail; /* one above the last position that carries a synchronous push */
	uint32_t cells;
	struct worker_flight *flights; /* cells of them; NULL where the fabric loses nothing */
	struct ramps_worker *poster;   /* whose connection carries what has not landed */
	bool abandoned;                /* that one was closed before it had landed */
};

/* What a rank has pushed to a synchronous table, for all its clones. */
struct worker_steps {
	struct worker_steps *next;
	char name[RAMPS_NAME_BYTES];
	uint64_t next_step[]; /* of every chunk of the table */
};

/* A barrier or a clock of the rank, for all handles of that name: a rank arrives once. */
struct worker_object {
	struct worker_object *next;
	uint32_t kind, shard;
	uint32_t busy; /* a call is in it */
	/* Its connection broke in a call: until it is replaced an operation may still land. */
	struct ramps_worker *doubter;
	bool abandoned; /* the doubter was closed */
	char name[RAMPS_NAME_BYTES];
	union {
		struct sync_barrier *barrier;
		struct sync_clock *clock;
	};
};

struct worker_member {
	uint32_t refs; /* workers */
	pthread_mutex_t lock;
	uint32_t rank, workers, shards;
	uint32_t incarnation;
	uint32_t fan_in; /* of barriers that it makes */
	bool left;
	char job[RAMPS_NAME_BYTES];
	struct worker_steps *steps;
	struct worker_object *objects;
	struct ramps_server *server; /* in this program; stopped with the member */
	void (*stop_server)(struct ramps_server *);
	struct worker_ring rings[CORE_MAX_SERVERS];
};

struct worker_link {
	struct fabric_endpoint *ep; /* stays until another replaces it, so that views hold */
	bool broken;
	uint64_t connection; /* its number at the server */
	char address[256];
	struct core_header header; /* as of joining */
	struct sync_peer peer;
	uint64_t unlanded; /* additions not yet counted in this rank's landed word */
	uint64_t scratch;  /* results of atomics that nobody wants */
	uint64_t asleep;   /* the server's, as last read */
};

enum worker_child_kind {
	WORKER_TABLE,
	WORKER_BARRIER,
	WORKER_CLOCK,
};

struct worker_child {
	struct ramps_worker *worker; /* NULL once that is closed */
	struct worker_child *next, **back;
};

#define WORKER_FOR_COMPLETION FABRIC_MAX_REGIONS

/* Why a request can't go on now: a word is as seen, or a list is under way. */
struct worker_wait {
	uint32_t shard, region; /* or WORKER_FOR_COMPLETION */
	uint64_t offset, seen;
	bool needs_ranks; /* a dead rank can hold this up */
};

struct worker_request {
	struct ramps_op op;
	struct ramps_table *table;
	struct fabric_completion completion;
	struct worker_wait wait;
	uint64_t values;    /* that the operation moves */
	uint64_t cursor;    /* values done */
	uint64_t done_mask; /* push to shared words: servers that have the block at cursor */
	uint64_t cell_mask; /* push to slots: servers that it has posted cells to */
	uint64_t in_doubt;  /* additions posted since nothing was pending */
	uint64_t unknown;   /* additions that a broken connection left in doubt for good */
	uint64_t steps;
	uint64_t run_first, dirty; /* snapshot: first value of the run, bits of chunks not had */
	uint32_t run_chunks, round, state;
	int32_t status;
	bool checked;  /* its values are finite and fit */
	bool posted;   /* all of it is handed over */
	bool complete; /* status holds */
	struct worker_request *next;
	uint64_t target[]; /* push to slots: one above its last position per server, or 0 */
};

/* Values gathered for one server. */
struct worker_adds {
	uint32_t n;
	uint64_t offsets[WORKER_BLOCK];
	uint64_t addends[WORKER_BLOCK];
};

struct ramps_worker {
	struct worker_member *member;
	struct fabric *fabric;
	uint32_t interrupt;
	uint32_t inside;
	uint32_t block; /* additions in one list, up to WORKER_BLOCK */
	bool any_broken;
	const uint64_t *alive; /* a word that is zero in a child after fork() */
	struct worker_child *children;
	struct worker_request *requests; /* RAMPS_SUBMIT_MAX of them */
	struct worker_adds *adds; /* one a server, empty between posts; made with the first direct table */
	struct worker_request *first, **last; /* under way, in order of submission */
	struct worker_request *free;
	struct worker_request *bounce_owner; /* whose data is in bounce, before and after */
	struct fabric_completion posted;     /* of pushes that did not ask to wait */
	uint64_t posted_in_doubt;            /* additions among them since nothing was pending */
	struct worker_request *blocking;     /* for calls that wait */
	struct core_chunk before[WORKER_RUN], after[WORKER_RUN]; /* of a snapshot */
	struct core_chunk current[WORKER_RUN]; /* of a relaxed pull, which may come between */
	struct worker_flight flight;           /* of a fabric that loses nothing */
	_Alignas(64) char bounce[WORKER_BOUNCE_BYTES];
	struct worker_link links[];
};

struct worker_part {
	uint64_t first, elements;
	uint64_t data_offset, chunks_offset;
	uint32_t entry;
};

struct ramps_table {
	struct worker_child child;
	char name[RAMPS_NAME_BYTES];
	struct core_table core; /* of the whole: rows, dim, type ... */
	uint64_t elements, chunks;
	uint32_t value_shift; /* log2 of a value's bytes in the arena */
	uint32_t holders;     /* servers with a part */
	uint32_t last_part;
	double scale, unscale;      /* direct float32 */
	struct worker_steps *steps; /* synchronous */
	struct worker_adds *adds;   /* direct: the worker's */
	/* A push that failed after some of it had landed; see request.c */
	uint64_t resume_fingerprint, resume_cursor, resume_mask;
	struct worker_part parts[];
};

struct ramps_barrier {
	struct worker_child child;
	struct worker_object *object;
};

struct ramps_clock {
	struct worker_child child;
	struct worker_object *object;
};

/* link.c */
int worker_link_connect(struct ramps_worker *worker, uint32_t shard, uint32_t how, uint64_t deadline_ns);
int worker_links_repair(struct ramps_worker *worker);
int worker_lost(struct ramps_worker *worker, uint32_t shard);
/* After a list failed: finds out which servers are lost. -ENOTCONN */
int worker_find_lost(struct ramps_worker *worker);
/* Breaks the link, so that nothing under way on it touches memory any more. */
void worker_link_break(struct ramps_worker *worker, uint32_t shard);
/* Looks whether the servers are there, and connects again where one was lost. */
int worker_links_check(struct ramps_worker *worker);

/* member.c */
void worker_child_add(struct ramps_worker *worker, struct worker_child *child);
void worker_child_remove(struct worker_child *child);

/* rpc.c */
int worker_call(struct ramps_worker *worker, uint32_t shard, struct core_request *request,
		struct core_reply *reply, uint64_t deadline_ns);
int worker_read(struct ramps_worker *worker, uint32_t shard, uint32_t region, uint64_t offset,
		void *dst, uint64_t len_bytes);
int worker_add(struct ramps_worker *worker, uint32_t shard, uint64_t offset, uint64_t addend);
int worker_execute(struct ramps_worker *worker, uint32_t shard, const struct fabric_op *op);
uint64_t worker_deadline(struct ramps_worker *worker, int timeout_ms);
bool worker_interrupted(struct ramps_worker *worker);

/* wait.c */
int worker_wait(struct ramps_worker *worker, struct worker_wait *wait, uint64_t deadline_ns);
/* Moves on whatever is under way on any link; returns when some of it is done, or at the deadline. */
int worker_poll(struct ramps_worker *worker, uint64_t deadline_ns);
/* The same until `completion` has nothing pending, or so long. Links that hold it up are closed. */
void worker_drain(struct ramps_worker *worker, struct fabric_completion *completion, uint64_t limit_ns);

/* flight.c */
int worker_flights_make(struct worker_member *member, const struct worker_link *link, uint32_t shard);
void worker_flights_free(struct worker_member *member);
void worker_flights_abandon(struct ramps_worker *worker);
int worker_flights_turn(struct ramps_worker *worker, uint32_t shard);
void worker_flights_landed(struct ramps_worker *worker, const struct worker_request *request);
void worker_flights_all_landed(struct ramps_worker *worker, uint32_t shard);
int worker_flights_keep(struct ramps_worker *worker, const struct worker_request *request);
int worker_flights_again(struct ramps_worker *worker, uint32_t shard, uint64_t deadline_ns);

/* request.c */
int worker_request_begin(struct worker_request *request, struct ramps_table *table);
int worker_request_progress(struct ramps_worker *worker, struct worker_request *request);
int worker_request_give_up(struct ramps_worker *worker, struct worker_request *request, int ret);
void worker_request_reset(struct worker_request *request);
int worker_await(struct worker_request *request, uint32_t shard);

/* object.c */
void worker_objects_abandon(struct ramps_worker *worker);

/* queue.c */
int worker_request_run(struct ramps_worker *worker, struct worker_request *request, int timeout_ms);
int worker_flush_until(struct ramps_worker *worker, uint32_t level, uint64_t deadline_ns);
void worker_requests_fail(struct ramps_worker *worker, struct ramps_table *table);

/*
 * Moves a request on as far as it can go: 0 complete, WORKER_AGAIN request->wait says for what,
 * or its error. pull.c, snapshot.c, push_direct.c, push_slots.c
 */
int worker_pull(struct ramps_worker *worker, struct worker_request *request);
int worker_pull_rows(struct ramps_worker *worker, struct worker_request *request);
int worker_snapshot(struct ramps_worker *worker, struct worker_request *request);
int worker_push_direct(struct ramps_worker *worker, struct worker_request *request);
int worker_push_slots(struct ramps_worker *worker, struct worker_request *request);
int worker_push_slots_settle(struct ramps_worker *worker, struct worker_request *request);
void worker_wake_server(struct ramps_worker *worker, uint32_t shard);
/* The list that commits a cell. */
void worker_cell_ops(struct ramps_worker *worker, uint32_t shard, struct worker_flight *flight,
		     struct fabric_op ops[WORKER_CELL_OPS]);
int worker_ring_consumed(struct ramps_worker *worker, uint32_t shard, uint64_t position,
			 struct worker_wait *wait);
int worker_land(struct ramps_worker *worker);

/* table.c: a table in the making, for open and create */
int worker_table_make(struct ramps_worker *worker, const char *name, struct ramps_table **table);
int worker_table_take(struct ramps_table *table, uint32_t shard, const struct core_entry *entry);
int worker_table_finish(struct ramps_worker *worker, struct ramps_table *table);
void worker_table_free(struct ramps_table *table);
int worker_await_ready(struct ramps_worker *worker, uint32_t shard, uint32_t index, uint64_t deadline_ns);
uint32_t worker_part_of(struct ramps_table *table, uint64_t element);

static inline bool worker_is_push(const struct worker_request *request)
{
	return request->op.kind == RAMPS_PUSH || request->op.kind == RAMPS_PUSH_ROWS;
}

static inline bool worker_pending(const struct fabric_completion *completion)
{
	return __builtin_expect(completion->pending != 0, 0);
}

static inline struct worker_link *worker_link(struct ramps_worker *worker, uint32_t shard)
{
	return &worker->links[shard];
}

/* Offset of a field of this rank's struct core_rank_words. */
static inline uint64_t worker_word(struct ramps_worker *worker, uint32_t shard, size_t field)
{
	return worker_link(worker, shard)->header.rank_words_offset +
	       worker->member->rank * sizeof(struct core_rank_words) + field;
}

/* Guards the rank's rings, at no cost where the rank has no clones. */
static inline bool worker_lock(struct worker_member *member)
{
	if (__atomic_load_n(&member->refs, __ATOMIC_ACQUIRE) == 1)
		return false;
	pthread_mutex_lock(&member->lock);
	return true;
}

static inline void worker_unlock(struct worker_member *member, bool locked)
{
	if (locked)
		pthread_mutex_unlock(&member->lock);
}

#endif

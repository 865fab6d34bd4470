/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share. */
#ifndef PS_PRIVATE_H
#define PS_PRIVATE_H

#include <sys/queue.h>

#include "base/word.h"
#include "core/message.h"
#include "core/schema.h"
#include "ps/ps.h"
#include "sync/barrier.h"
#include "sync/clock.h"

#define PS_NO_RANK     UINT32_MAX
#define PS_LOOPBACK_NS 1000000000ull /* our own memory answers in less */
#define PS_LEASE_NS    5000000000ull

/* A connection. One that has not joined belongs to no rank. */
struct ps_link {
	LIST_ENTRY(ps_link) siblings; /* of its rank, or of those that have not joined */
	LIST_ENTRY(ps_link) closing;
	struct fabric_endpoint *ep;
	uint64_t number; /* once it has joined */
	uint32_t rank;
	bool is_closing; /* its peer is gone or fenced; waits for fabric_cut() */
	bool is_broken;  /* its process may live, and connect again */
};
LIST_HEAD(ps_links, ps_link);

enum ps_cell_state {
	PS_CELL_FREE = 0,
	PS_CELL_PARKED,  /* for a later step of its chunk */
	PS_CELL_PENDING, /* waits for the other ranks of its step */
	PS_CELL_DONE,    /* consumed, but not the oldest */
};

/* Our own copy of a cell's header: the rank may overwrite its own by mistake. */
struct ps_cell {
	struct core_cell header;
	uint32_t state;
};

struct ps_rank {
	struct ps_links links;
	uint64_t head, scanned;      /* positions consumed; looked at */
	struct fabric_memory *slots; /* NULL: it never had any */
	struct ps_cell *cells;
	uint32_t parked;
	uint32_t active_at; /* in ps_server.active */
	bool active;
	bool orphan;            /* live, without a connection */
	bool waits_for_process; /* an orphan of an earlier life of the server: until that is gone */
	uint64_t lease_end_ns;  /* an orphan whose process may live: then it counts as dead */
	bool complained;        /* of it, once */
};

/* A table of slots. */
struct ps_table {
	struct core_entry *entry;
	const struct core_table *shape;
	float *data;
	struct core_chunk *chunks;
	uint64_t *applied; /* [chunk][workers] */
	uint32_t chunk_count;
	uint32_t *pending; /* synchronous: [chunk][workers], cell + 1 of the step that the chunk waits for */
	uint32_t *pending_count;
};

struct ps_barrier {
	const struct core_barrier *where;
	uint64_t seen; /* sum of its words when we last stood in */
};

struct ps_server {
	struct fabric *fabric;
	struct fabric_listener *listener;
	struct core_arena *arena;
	struct core_header *header;
	uint64_t *states;
	struct core_rank *rank_info;
	struct core_rank_words *rank_words;
	struct core_entry *entries;
	struct core_private *undo;
	struct core_rank_private *rank_private;
	struct sync_peer self; /* through the loopback */
	bool registered[CORE_REGIONS];

	struct ps_rank *ranks;                  /* max_workers */
	uint32_t *active, active_count, cursor; /* ranks whose tails may move */
	struct ps_links strangers, closing;
	uint32_t orphans, excused;

	struct ps_table **tables; /* by entry */
	uint32_t *names;          /* hash table of entry + 1 */
	struct ps_barrier *barriers;
	uint32_t barrier_count;
	uint64_t ends[CORE_REGIONS];    /* used by directory entries */
	uint64_t granted[CORE_REGIONS]; /* bytes that all peers have; where fabric.grants_ready */
	uint64_t pending;               /* cells, of all tables */
	uint64_t connections;           /* numbers given out */
	bool *absent;                   /* scratch: max_workers */
	float *scratch;                 /* a chunk */

	uint64_t events_ns, orphans_ns, stand_in_ns; /* when last, when next, when next */
	bool idle, stand_in_all;
	struct fabric_event event;
	struct core_request request;
	struct core_reply reply;

	void (*point)(void *ctx); /* tests: called after each store of the update protocol */
	void *point_ctx;
};

static inline void ps_point(struct ps_server *server)
{
	if (__builtin_expect(server->point != NULL, 0))
		server->point(server->point_ctx);
}

/* Stores made before are made, and seen, before those made after. */
static inline void ps_store_fence(void)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline uint32_t ps_workers(const struct ps_server *server)
{
	return server->header->workers;
}

static inline uint32_t ps_state(const struct ps_server *server, uint32_t rank)
{
	return core_state_of(word_load(&server->states[rank]));
}

/* Whether the others go on without this rank. */
static inline bool ps_is_excused(const struct ps_server *server, uint32_t state)
{
	return state == CORE_LEFT ||
	       (state == CORE_DEAD && server->self.on_death == RAMPS_ON_DEATH_CONTINUE);
}

static inline uint32_t ps_chunk_values(const struct ps_table *table, uint32_t chunk)
{
	uint64_t rest = table->shape->elements - (uint64_t)chunk * table->shape->chunk_elements;

	return rest < table->shape->chunk_elements ? (uint32_t)rest : table->shape->chunk_elements;
}

/* server.c */
int ps_open_points(struct fabric *fabric, struct core_arena *arena, const char *address,
		   void (*point)(void *ctx), void *ctx, struct ps_server **server);
void ps_notify(struct ps_server *server, const uint64_t *published_word);

/* control.c: takes the events that there are. Their number, or negative */
int ps_control(struct ps_server *server);

/* members.c */
int ps_join(struct ps_server *server, struct ps_link *link, const struct core_request *request,
	    struct core_reply *reply);
int ps_leave(struct ps_server *server, struct ps_link *link);
void ps_set_state(struct ps_server *server, uint32_t rank, uint32_t state, uint32_t incarnation);
/* Gives a peer what every worker may do with words or published. */
int ps_grant(struct ps_server *server, struct fabric_endpoint *ep, uint32_t region);
/* To all peers again, after the region has grown. */
int ps_grant_again(struct ps_server *server, uint32_t region);
void ps_set_active(struct ps_server *server, uint32_t rank, bool active);

/* links.c */
void ps_link_closed(struct ps_server *server, struct ps_link *link);
void ps_link_broken(struct ps_server *server, struct ps_link *link);
/* Ends the rank's connection of that number, if it is there. 0, or -EAGAIN: not yet */
int ps_link_replace(struct ps_server *server, uint32_t rank, uint64_t number);
void ps_link_joined(struct ps_server *server, struct ps_link *link, uint32_t rank);
void ps_link_drop(struct ps_server *server, struct ps_link *link);
/* Ends the rank's life for `successor`. 0, or -EAGAIN: not yet */
int ps_fence(struct ps_server *server, uint32_t rank, const struct ps_link *successor);
int ps_retry_cuts(struct ps_server *server);
void ps_orphan(struct ps_server *server, uint32_t rank, bool orphan);
void ps_lease_begin(struct ps_server *server, uint32_t rank);
int ps_look_after_orphans(struct ps_server *server);
bool ps_process_gone(struct ps_server *server, uint32_t rank);

/* stand_in.c: moves barriers on for absent ranks. 1: some moved */
int ps_stand_in(struct ps_server *server);
int ps_barrier_add(struct ps_server *server, const struct core_barrier *where);

/* directory.c */
/* Adds to a word, as a client of ourselves, what it lacks. */
int ps_raise_word(struct ps_server *server, uint64_t offset, uint64_t value);
int ps_create(struct ps_server *server, uint32_t rank, const struct core_request *request,
	      struct core_entry *entry);
int ps_lookup(struct ps_server *server, const struct core_request *request, struct core_entry *entry);
int ps_set_ready(struct ps_server *server, uint32_t rank, uint32_t index);
/* Makes a published entry known to this process. */
int ps_entry_open(struct ps_server *server, uint32_t index);
bool ps_entry_is_right(const struct ps_server *server, uint32_t index);

/* table.c */
int ps_table_open(struct ps_server *server, struct core_entry *entry);
void ps_table_close(struct ps_table *table);

/* ring.c */
int ps_ring_open(struct ps_server *server, uint32_t rank);
bool ps_ring_moved(const struct ps_server *server, uint32_t rank);
/* Takes up to `limit` new cells; returns how many. */
uint32_t ps_ring_scan(struct ps_server *server, uint32_t rank, uint32_t limit);
/* The cell is consumed: publishes the rank's head as far as that goes. */
void ps_ring_consume(struct ps_server *server, uint32_t rank, uint32_t cell);
/*
 * Between two lives of a rank: takes what the old one has committed. A tail that it left where no
 * tail can be comes back to what was looked at, as nobody would ever get past it.
 */
int ps_ring_settle(struct ps_server *server, uint32_t rank);
/* After ranks have become excused: applies what waited for them. */
void ps_ring_recheck(struct ps_server *server);

/* apply.c */
void ps_apply_one(struct ps_server *server, struct ps_table *table, uint32_t rank, uint32_t cell);
void ps_apply_step(struct ps_server *server, struct ps_table *table, uint32_t chunk);

/* restart.c */
int ps_restart(struct ps_server *server);

#endif

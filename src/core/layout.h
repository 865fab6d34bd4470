/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The arena: what lies where in a server's memory. Both sides and `ramps stat` agree by this file;
 * core_layout_hash() folds it into one number that arena, join and stat compare.
 *
 * Every byte has one kind of writer:
 *
 *   words      clients, by fetch-add and compare-and-swap only. The server changes a word only as
 *              a client of itself, through a loopback endpoint. Words only grow, modulo 2^64;
 *              fresh ones are zero.
 *   published  the server's CPU. Clients read.
 *   slots      one rank, by WRITE. A region per rank: its ring of cells.
 *   private    the server's CPU. Never granted.
 *
 * Each region is a file (or, in the simulator, plain memory) as long as it may grow; offsets are
 * from the region's start, and 0 is never the offset of an object. Memory is handed out from the
 * front and never taken back: how far a region is used follows from its directory entries.
 *
 *   words      core_rank_words[max_workers], then direct parameters, barrier nodes, clocks
 *   published  core_header, states[max_workers], core_rank[max_workers],
 *              core_entry[CORE_MAX_ENTRIES], then groups of barriers, chunk states and weights
 *   slots      core_cell[cells], then the cells' data from core_cell_data() on
 *   private    core_private, core_rank_private[max_workers], the undo copy, then each table's
 *              applied counts
 *
 * The ring. A rank stages pushes of slots tables in the cells of its ring: position p lies in
 * cell p mod cells. Its word `tail` counts the positions committed: it is the one commit word of
 * the rank. The server publishes `head`: positions below it are consumed and their cells the
 * rank's again. In doubt after a broken connection the rank reads tail, once its old connection
 * is cut, and knows what has landed.
 */
#ifndef CORE_LAYOUT_H
#define CORE_LAYOUT_H

#include <stdint.h>

#include <ramps/ramps.h>

#define CORE_MAGIC       0x73706d6172000001ull /* arena, layout family 1 */
#define CORE_VERSION     2u
#define CORE_LINE_BYTES  64u
#define CORE_PAGE_BYTES  4096u
#define CORE_CHUNK_BYTES 65536u /* of parameters, and of one ring cell */
#define CORE_MAX_ENTRIES 16384u
#define CORE_MAX_SERVERS 64u
#define CORE_MAX_WORKERS 16384u
#define CORE_MAX_FAN_IN  32u
#define CORE_QUEUE_PAIRS 4u /* landed counters of a rank */

enum core_region {
	CORE_WORDS = 0,
	CORE_PUBLISHED = 1,
	CORE_SLOTS = 2,   /* the rank's own */
	CORE_PRIVATE = 3, /* never granted */
	CORE_REGIONS = 4,
};

/* published, offset 0 */
struct core_header {
	uint64_t magic; /* stored last when an arena is made */
	uint32_t version, layout_hash;
	uint64_t arena_id; /* random */
	char job[RAMPS_NAME_BYTES];
	uint32_t max_workers, cells; /* cells of each ring */
	uint32_t on_death;           /* enum ramps_on_death */
	uint32_t workers; /* of the job; 0 until the first join fixes workers, shard and shards */
	uint32_t shard, shards;
	uint64_t arena_bytes; /* most that regions may use together */
	uint64_t states_offset, ranks_offset, entries_offset; /* in published */
	uint64_t rank_words_offset;                           /* in words */
	uint64_t server_pid, lives; /* lives: how often a server has taken this arena */
	uint64_t entries;           /* directory entries published so far; waitable */
	uint64_t members;           /* grows with every change of a rank's state; waitable */
	uint64_t asleep;     /* 1: the server sleeps, a commit must be followed by CORE_WAKE */
	uint64_t used_bytes; /* of arena_bytes, for people */
};

enum core_rank_state {
	CORE_ABSENT = 0, /* never joined */
	CORE_LIVE = 1,
	CORE_LEFT = 2,
	CORE_DEAD = 3, /* fenced: nothing of this incarnation can land any more */
};

/*
 * published: uint64_t states[max_workers], each enum core_rank_state << 32 | incarnation. All are
 * read in one READ.
 */

/* published, one a rank */
struct core_rank {
	uint64_t head;    /* ring positions consumed; waitable */
	uint64_t applied; /* pushes to slots applied, for people */
	uint64_t dropped; /* pushes consumed but older than their step */
	uint64_t pid;     /* of the process, 0 where the fabric can't tell */
	uint64_t reserved[4];
};

/* words, one a rank; only that rank changes it */
struct core_rank_words {
	uint64_t tail; /* ring positions committed */
	uint64_t heartbeat;
	uint64_t landed[CORE_QUEUE_PAIRS]; /* additions by complete lists, per queue pair */
	uint64_t reserved[2];
};

enum core_kind {
	CORE_TABLE = 1,
	CORE_BARRIER = 2,
	CORE_CLOCK = 3,
};

enum core_entry_state {
	CORE_PREPARING = 1, /* memory is there; the creator still fills in initial values */
	CORE_READY = 2,
};

struct core_table {
	uint64_t rows, dim;
	uint32_t type, mode, fraction_bits, synchronous;
	float rate;
	uint32_t chunk_elements;
	uint64_t first_element, elements; /* of this server's part; elements may be 0 */
	uint64_t data_offset;             /* direct: int64 in words; slots: float in published */
	uint64_t chunks_offset;  /* slots: core_chunk[] in published, one a chunk of this part */
	uint64_t applied_offset; /* slots: uint64_t[chunk][workers] in private */
};

/*
 * A tree of core_node: level 0 has ceil(members/fan_in) leaves, each level above
 * ceil(below/fan_in) nodes, up to one root; levels follow one another from nodes_offset on.
 * Member i (index in the group) is bit i mod fan_in of leaf i / fan_in; node j is bit j mod
 * fan_in of node j / fan_in of the level above.
 */
struct core_barrier {
	uint32_t members, fan_in;
	uint64_t nodes_offset; /* in words */
	uint64_t group_offset; /* in published: bits of the ranks, uint64_t[(workers+63)/64]; 0: all */
	uint32_t first_generation, reserved;
};

struct core_clock {
	uint64_t words_offset; /* in words: uint64_t[workers] */
	uint32_t members, reserved;
};

/* published */
struct core_entry {
	uint64_t state; /* enum core_entry_state; waitable */
	uint32_t kind, index;
	char name[RAMPS_NAME_BYTES];
	union {
		struct core_table table;
		struct core_barrier barrier;
		struct core_clock clock;
	};
	uint64_t steps;                                 /* slots: chunk updates done, for people */
	uint64_t words_end, published_end, private_end; /* use of regions, this entry included */
	uint64_t creator; /* while CORE_PREPARING: core_state(rank, incarnation) of who fills it in */
	uint8_t reserved[56];
};

/* published, one a chunk of a slots table */
struct core_chunk {
	uint64_t version; /* odd while the chunk changes; never goes back */
	uint64_t steps; /* updates in the weights; for a synchronous table the step it waits for */
};

/* words, a barrier's node: see sync/barrier.c */
struct core_node {
	uint64_t word;     /* generation << 32 | arrived */
	uint64_t released; /* generation + 1 in the low 32 bits, passed down the tree */
	uint64_t reserved[6];
};

enum core_cell_kind {
	CORE_CELL_PUSH = 1,
	CORE_CELL_ASSIGN = 2, /* initial values; counts only while the table is CORE_PREPARING */
};

/* slots, one a ring cell */
struct core_cell {
	uint64_t position; /* of the ring, so that a cell names itself */
	uint64_t step;     /* synchronous: the chunk's step that this is for; else the position */
	uint32_t kind, entry;  /* entry: index in the directory */
	uint32_t chunk;        /* index in this server's part */
	uint32_t first, count; /* values, within the chunk */
	float weight, rate;    /* rate: negative: the table's */
	uint32_t reserved[5];
};

/* private, offset 0: the undo copy of the one chunk that is being changed. See ps/apply.c */
struct core_private {
	uint64_t magic, arena_id;
	uint64_t valid;
	uint64_t version, steps;             /* of the chunk, before */
	uint32_t entry, chunk, first, count; /* of the values copied */
	uint32_t first_rank, ranks;          /* whose applied counts are copied */
	uint64_t undo_data_offset;           /* float[CORE_CHUNK_BYTES / 4] in private */
	uint64_t undo_applied_offset;        /* uint64_t[max_workers] in private */
	uint64_t rank_private_offset;
};

/* private, one a rank */
struct core_rank_private {
	unsigned char identity[32]; /* fabric_identity() of its process */
	uint64_t left_at; /* ring positions from here on came after it left, and do not count */
	uint64_t reserved[3];
};

_Static_assert(sizeof(struct core_rank) == CORE_LINE_BYTES, "one line a rank");
_Static_assert(sizeof(struct core_rank_words) == CORE_LINE_BYTES, "one line a rank");
_Static_assert(sizeof(struct core_node) == CORE_LINE_BYTES, "one line a node");
_Static_assert(sizeof(struct core_cell) == CORE_LINE_BYTES, "one line a cell");
_Static_assert(sizeof(struct core_entry) == 4 * CORE_LINE_BYTES, "directory entries are whole lines");
_Static_assert(sizeof(struct core_chunk) == 16, "versions are read as an array");

/* A number that changes when any offset or size above does. */
uint32_t core_layout_hash(void);

static inline uint64_t core_round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* Offset in slots of the data of cell `cell`, of a ring of `cells`. */
static inline uint64_t core_cell_data(uint32_t cells, uint32_t cell)
{
	return core_round_up((uint64_t)cells * sizeof(struct core_cell), CORE_PAGE_BYTES) +
	       (uint64_t)cell * CORE_CHUNK_BYTES;
}

static inline uint64_t core_slots_bytes(uint32_t cells)
{
	return core_cell_data(cells, cells);
}

static inline uint64_t core_state(uint32_t state, uint32_t incarnation)
{
	return (uint64_t)state << 32 | incarnation;
}

static inline uint32_t core_state_of(uint64_t state)
{
	return (uint32_t)(state >> 32);
}

static inline uint32_t core_incarnation_of(uint64_t state)
{
	return (uint32_t)state;
}

#endif

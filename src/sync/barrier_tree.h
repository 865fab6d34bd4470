/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Private to src/sync: the geometry of a barrier's tree and the moves on its nodes, which members
 * and the server share. Why the moves are as they are is told in barrier.c.
 */
#ifndef SYNC_BARRIER_TREE_H
#define SYNC_BARRIER_TREE_H

#include <stdbool.h>

#include "sync/barrier.h"

struct barrier_tree {
	uint32_t members, fan_in, levels;
	uint32_t width[SYNC_MAX_LEVELS];  /* nodes of each level */
	uint64_t offset[SYNC_MAX_LEVELS]; /* in words, of each level's first node */
};

/* -EINVAL: no such tree. */
int barrier_tree_init(struct barrier_tree *tree, const struct core_barrier *where);

/* The bits of all children of node `index`. */
uint32_t barrier_full(const struct barrier_tree *tree, uint32_t level, uint32_t index);

static inline uint32_t barrier_bit(const struct barrier_tree *tree, uint32_t child)
{
	return 1u << (child % tree->fan_in);
}

static inline uint64_t barrier_node(const struct barrier_tree *tree, uint32_t level, uint32_t index)
{
	return tree->offset[level] + (uint64_t)index * sizeof(struct core_node);
}

static inline uint64_t barrier_word(uint32_t generation, uint32_t arrived)
{
	return (uint64_t)generation << 32 | arrived;
}

static inline uint32_t barrier_generation(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline uint32_t barrier_arrived(uint64_t word)
{
	return (uint32_t)word;
}

static inline bool barrier_later(uint64_t word, uint32_t generation)
{
	return (int32_t)(barrier_generation(word) - generation) > 0;
}

/* Whether a node's children `bits` have all arrived at `generation`. */
static inline bool barrier_has(uint64_t word, uint32_t generation, uint32_t bits)
{
	return barrier_later(word, generation) ||
	       (barrier_generation(word) == generation && (barrier_arrived(word) & bits) == bits);
}

/* Whether a node's `released` covers `generation`. */
static inline bool barrier_covers(uint64_t released, uint32_t generation)
{
	return (int32_t)((uint32_t)released - (generation + 1)) >= 0;
}

struct barrier_place {
	uint32_t level, index;
};

/* Of an arrival at a node of `level`. */
uint8_t barrier_flags(const struct barrier_tree *tree, uint32_t level);

/* To be called by who filled a node: wakes who sleeps at the root, if it is that. */
void barrier_filled(struct sync_peer *peer, const struct barrier_tree *tree, uint32_t level);

enum barrier_set {
	BARRIER_FULL = 1, /* all children have arrived, or a later generation is open */
	BARRIER_MINE = 2, /* this call set the bit */
};

/*
 * The arrival that may be done by anyone, any number of times: sets the bit of child `child` in
 * its node of level `level`, by swap, and, where others are about to set theirs, theirs too.
 * Returns enum barrier_set flags.
 */
int barrier_set(struct sync_peer *peer, const struct barrier_tree *tree, uint32_t level,
		uint32_t child, uint32_t generation, uint64_t deadline_ns);

/*
 * Carries a node that is full at `generation` upwards as far as nodes become full: with needs
 * BARRIER_FULL whoever filled them, with BARRIER_MINE added only where this call did. Returns the
 * level that it ended at, or tree->levels when the root is full: the generation is released.
 */
int barrier_climb(struct sync_peer *peer, const struct barrier_tree *tree, struct barrier_place from,
		  uint32_t generation, uint32_t needs, uint64_t deadline_ns);

/*
 * Does on the path from member's leaf to the root what others may have left undone: climbs. 1:
 * the generation is released there, which the caller may pass down; 0: it is not.
 */
int barrier_walk(struct sync_peer *peer, const struct barrier_tree *tree, uint32_t member,
		 uint32_t generation, uint64_t deadline_ns);

/*
 * Opens a node, which is not the root, for the generation after `generation`, and moves its
 * `released` word on to `generation`; *seen is what the caller believes that word to be, and is set.
 */
int barrier_release(struct sync_peer *peer, const struct barrier_tree *tree, struct barrier_place place,
		    uint32_t generation, uint64_t *seen, uint64_t deadline_ns);

/* Reads a node's two words into peer->result. */
int barrier_read(struct sync_peer *peer, uint64_t node, uint64_t deadline_ns);

/* A node holds what the protocol does not allow. */
int barrier_corrupt(uint64_t word, uint32_t generation);

#endif

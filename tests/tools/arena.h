/* SPDX-License-Identifier: BSD-2-Clause */
/* An arena made by hand, for `ramps stat` to look at: this process is its server. */
#ifndef TESTS_TOOLS_ARENA_H
#define TESTS_TOOLS_ARENA_H

#include <jansson.h>

#include "core/arena.h"

#define ARENA_ADDRESS "shm://hand"

struct hand_arena {
	char root[64], directory[256];
	struct core_arena *arena;
};

/* Sets RAMPS_SHM_DIR to a directory of its own. workers of 2 * workers at most. */
void hand_arena_make(struct hand_arena *hand, uint32_t workers);
void hand_arena_kill(struct hand_arena *hand); /* its server dies, the arena stays */
void hand_arena_remove(struct hand_arena *hand);

struct core_header *hand_header(struct hand_arena *hand);
uint64_t *hand_states(struct hand_arena *hand);
struct core_rank *hand_ranks(struct hand_arena *hand);
struct core_rank_words *hand_words(struct hand_arena *hand);
struct core_entry *hand_entry(struct hand_arena *hand, uint32_t index);

/* Appends to the directory. Memory is taken for clocks, barriers and chunk states, not for a table's values. */
struct core_entry *hand_table(struct hand_arena *hand, const char *name, uint32_t mode,
			      uint64_t rows, uint64_t dim);
struct core_chunk *hand_chunks(struct hand_arena *hand, const struct core_entry *entry);
uint64_t *hand_clock(struct hand_arena *hand, const char *name);
/* group NULL: all; else bits of the ranks. */
struct core_node *hand_barrier(struct hand_arena *hand, const char *name, const uint64_t *group,
			       uint32_t members);

/* Runs `ramps ARGUMENTS` in a shell, stderr to stdout. Returns its wait status; output is the caller's to free. */
int run_ramps(const char *arguments, char **output);

/* Runs `ramps stat --json ARGUMENTS`; fails unless that is one strict object. */
json_t *stat_json_of(const char *arguments);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's arena as `ramps stat` sees it. A sample is a private copy, checked while it was made: nobody
 * changes it, and every count in it is within its limits.
 */
#ifndef STAT_H
#define STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "core/layout.h"

#define STAT_UNKNOWN UINT64_MAX /* of steps */

struct stat_object { /* an entry of the directory */
	struct core_entry entry;
	uint64_t bytes;   /* a table's part in this arena, without versions and staging */
	uint64_t step;    /* slots: steps that all chunks of this part have seen, or STAT_UNKNOWN */
	uint64_t *counts; /* a clock's, by rank */
	uint32_t *ranks;  /* a barrier's members, ascending */
	bool *arrived;    /* of each member */
	uint32_t generation, arrivals;
};

struct stat_sample {
	uint64_t time_ns;
	bool alive; /* a process holds the arena's lock */
	struct core_header header;
	uint32_t workers; /* 0: none has joined yet */
	uint64_t *states; /* workers of each */
	struct core_rank *ranks;
	struct core_rank_words *words;
	struct stat_object *objects;
	uint32_t count;
	uint32_t damaged; /* entries that make no sense */
};

/* Reads the arena in `directory`. -ENOENT: there is none; else as core_arena_attach(), -EBADMSG: it is damaged. */
int stat_take(const char *directory, struct stat_sample **sample);
void stat_free(struct stat_sample *sample);

/* `before`, if it is of the same arena and job as `now`; else NULL: there is nothing to compare with. */
const struct stat_sample *stat_comparable(const struct stat_sample *before,
					  const struct stat_sample *now);

/* How much more `now` is than `before`, a second; 0 where it is less. */
double stat_rate(const struct stat_sample *before, const struct stat_sample *now,
		 uint64_t before_count, uint64_t now_count);

uint64_t stat_landed(const struct core_rank_words *words);
uint64_t stat_staged(const struct stat_sample *sample, uint32_t rank);

/* The object of this index in `before`, if it is the same one; else NULL. before may be NULL. */
const struct stat_object *stat_before(const struct stat_sample *before, const struct stat_object *object);

/* Ranks in `state` into ranks[workers]; those whose clock stands at `value`; members that have not arrived. */
uint32_t stat_in_state(const struct stat_sample *sample, uint32_t state, uint32_t *ranks);
uint32_t stat_at_count(const struct stat_sample *sample, const struct stat_object *clock,
		       uint64_t value, uint32_t *ranks);
uint32_t stat_missing(const struct stat_object *barrier, uint32_t *ranks);

/* Least and most of a clock over the live ranks, or over all if none lives. */
void stat_clock_range(const struct stat_sample *sample, const struct stat_object *clock,
		      uint64_t *least, uint64_t *most);

/* Names as they are printed. */
const char *stat_rank_state(uint64_t state);
const char *stat_type(const struct core_table *table);
const char *stat_mode(const struct core_table *table);
const char *stat_entry_state(const struct core_entry *entry);

/* One server for people. before may be NULL: no rates. all: don't limit the lists. */
void stat_print(FILE *out, const char *address, const struct stat_sample *before,
		const struct stat_sample *now, bool all);

/* The same as an object. */
json_t *stat_json(const char *address, const struct stat_sample *before, const struct stat_sample *now);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The files of an arena: a directory, mode 0700, with `words`, `published`, `private`,
 * `slots-RANK` and `lock`. Files are as long as their region may grow, but hold memory only as
 * far as core_arena_extend() has allocated it, so that a full /dev/shm is an error there and not
 * a SIGBUS later.
 */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <stdbool.h>

#include "core/layout.h"
#include "fabric/fabric.h"

#define CORE_MAX_ARENA_BYTES (1ull << 44)
#define CORE_MAX_CELLS       (1u << 20)

struct core_arena_options {
	const char *directory; /* absolute; made if it is not there, its parent must be */
	const char *job;
	uint64_t arena_bytes;
	uint32_t max_workers, cells;
	uint32_t on_death;
	bool fresh; /* discard what is there, if it is an arena and not in use */
};

struct core_arena {
	struct fabric_memory memory[CORE_REGIONS]; /* [CORE_SLOTS] is not used */
	struct fabric_memory *slots;      /* one a rank; base is NULL until core_arena_slots() */
	uint64_t allocated[CORE_REGIONS]; /* bytes; [CORE_SLOTS]: of all ranks together */
	uint64_t arena_bytes;
	uint32_t max_workers, cells;
	bool resumed; /* it was there, an earlier server left it */
	int directory_fd, lock_fd;
	char directory[256];
};

/*
 * Makes an arena, or takes over the one that is there; holds its lock until closed, and waits up
 * to a second for a dying server to give it up. A new arena has its header, rank arrays and
 * (empty) directory; magic is stored last. A resumed arena keeps its own sizes; where
 * max_workers, cells or on_death were asked differently the arena's hold, except on_death and a
 * larger arena_bytes, which are taken over.
 *
 * -EADDRINUSE  a server has it (text names the process)
 * -EEXIST      the directory or a file in it is no arena, is empty, a link, another user's, of
 *              another job, version or layout: nothing was changed, text says which and how to
 *              remove it
 * -ENOSPC, -EACCES, -EMFILE, -ENAMETOOLONG
 */
int core_arena_open(const struct core_arena_options *options, struct core_arena **arena);

/*
 * Allocates region up to byte `end`. Fresh memory is zero. -ENOSPC: above arena_bytes, or the
 * file system is full; text names both sizes.
 */
int core_arena_extend(struct core_arena *arena, uint32_t region, uint64_t end);

/* Gives back what a region holds beyond `end`: it is zero when it is extended again. */
void core_arena_trim(struct core_arena *arena, uint32_t region, uint64_t end);

/*
 * Where every arena's fixed part of a region (headers, ranks, directory) ends; arena_bytes counts
 * from there.
 */
uint64_t core_arena_fixed(const struct core_arena *arena, uint32_t region);

/* Bytes of arena_bytes that are not allocated. */
uint64_t core_arena_free(const struct core_arena *arena);

/* Publishes used_bytes. */
void core_arena_account(struct core_arena *arena);

/* The slots region of a rank, made, allocated and mapped at first use. */
int core_arena_slots(struct core_arena *arena, uint32_t rank, struct fabric_memory **slots);

/*
 * Unmaps and unlocks. remove: deletes the files and the directory (other files in it stay, and so
 * does it then). NULL is allowed.
 */
void core_arena_close(struct core_arena *arena, bool remove);

/*
 * Read-only, for `ramps stat`: maps words and published of a live or dead server's arena. No lock
 * is taken. Errors as above, -ENOENT: nothing there.
 */
int core_arena_attach(const char *directory, struct core_arena **arena);

static inline struct core_header *core_arena_header(const struct core_arena *arena)
{
	return arena->memory[CORE_PUBLISHED].base;
}

static inline void *core_arena_at(const struct core_arena *arena, uint32_t region, uint64_t offset)
{
	return (char *)arena->memory[region].base + offset;
}

#endif

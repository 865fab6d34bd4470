/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CORE_ARENA_PRIVATE_H
#define CORE_ARENA_PRIVATE_H

#include <sys/types.h>

#include "core/arena.h"

/* Offsets that follow from max_workers alone. */
struct arena_plan {
	uint64_t rank_words;
	uint64_t states, ranks, entries;
	uint64_t rank_private, undo_data, undo_applied;
	uint64_t fixed[CORE_REGIONS]; /* end of the part that every arena has */
};

void arena_plan(uint32_t max_workers, struct arena_plan *plan);

extern const char *const arena_names[CORE_REGIONS]; /* of the files; NULL for slots */

/* What a directory holds of ours. */
struct arena_found {
	bool lock, region[CORE_REGIONS], slots;
	char foreign[64]; /* a name that is not ours nor the fabric's, or "" */
};

/*
 * Opens the directory, made if `make`; *made tells. -EEXIST: a link, no directory, another
 * user's. -ENOENT
 */
int arena_open_directory(const char *path, bool make, bool *made, int *fd);

/* Looks at all names; -EEXIST with text if one of ours is no regular file of this user. */
int arena_scan(int dir_fd, const char *path, struct arena_found *found);

/*
 * The lock file says "new PID" while an arena is made or removed, and "PID" else: what its holder
 * left half done is discarded by the next one.
 */
int arena_lock(int dir_fd, const char *path, bool make, int *fd);
/* alone: there is nothing but the lock, so that an empty one means the same. */
bool arena_lock_says_new(int lock_fd, bool alone);
int arena_lock_write(int lock_fd, bool is_new);

/*
 * Opens a file of ours with `flags`, checked to be a regular file of this user of at least
 * min_bytes.
 */
int arena_open_file(const struct core_arena *arena, const char *name, int flags, uint64_t min_bytes,
		    int *fd);
/* Makes a file that must not be there, len_bytes long and without memory. */
int arena_make_file(const struct core_arena *arena, const char *name, uint64_t len_bytes, int *fd);
int arena_allocate(const struct core_arena *arena, int fd, uint64_t from, uint64_t end);
/* Maps len_bytes of memory->fd. */
int arena_map(struct fabric_memory *memory, uint64_t len_bytes, int protection);
void arena_unmap(struct fabric_memory *memory);

/* Removes all files with our names but the lock, `published` first. */
int arena_discard(int dir_fd);

/*
 * arena_header.c: 0, or -EEXIST with text for a header that is not of this job, version, layout
 * or size.
 */
int arena_check_header(const struct core_arena *arena, const struct core_header *header, const char *job);
/* Fills header and private of a new arena, the magic last. */
int arena_write_header(struct core_arena *arena, const struct core_arena_options *options);
/* How far a region is used, by the directory's last entry. */
uint64_t arena_used(const struct core_arena *arena, uint32_t region);

#endif

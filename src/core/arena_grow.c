/* SPDX-License-Identifier: BSD-2-Clause */
/* Handing out an arena's memory. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/word.h"
#include "core/arena_private.h"

uint64_t core_arena_free(const struct core_arena *arena)
{
	uint64_t used = 0;

	for (uint32_t r = 0; r < CORE_REGIONS; r++)
		if (r != CORE_SLOTS)
			used += arena->allocated[r] - core_arena_fixed(arena, r);
	return arena->arena_bytes - used;
}

void core_arena_account(struct core_arena *arena)
{
	word_store(&core_arena_header(arena)->used_bytes, arena->arena_bytes - core_arena_free(arena));
}

int core_arena_extend(struct core_arena *arena, uint32_t region, uint64_t end)
{
	uint64_t have = arena->allocated[region], left = core_arena_free(arena);
	int ret;

	if (end <= have)
		return 0;
	if (end - have > left)
		return base_fail(-ENOSPC,
				 "the arena of %" PRIu64 " bytes has %" PRIu64 " left, %" PRIu64
				 " are needed; start the server with a larger arena",
				 arena->arena_bytes, left, end - have);
	ret = arena_allocate(arena, arena->memory[region].fd, have, end);
	if (ret < 0) {
		core_arena_trim(arena, region, have);
		return ret;
	}
	arena->allocated[region] = arena->memory[region].ready_bytes = end;
	core_arena_account(arena);
	return 0;
}

void core_arena_trim(struct core_arena *arena, uint32_t region, uint64_t end)
{
	struct fabric_memory *memory = &arena->memory[region];
	uint64_t page = core_round_up(end, CORE_PAGE_BYTES);

	if (page > memory->len_bytes)
		page = memory->len_bytes;
	if (page < memory->len_bytes)
		fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)page,
			  (off_t)(memory->len_bytes - page));
	/*
	 * the rest of the last page; where it has no memory it is zero already, and touching
	 * might kill
	 */
	if (page > end && posix_fallocate(memory->fd, (off_t)end, (off_t)(page - end)) == 0)
		memset((char *)memory->base + end, 0, page - end);
	arena->allocated[region] = memory->ready_bytes = end;
	core_arena_account(arena);
}

/* The file of a rank's slots, made if it is not there or was left half made. */
static int open_slots(struct core_arena *arena, uint32_t rank, uint64_t len, int *fd)
{
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "slots-%u", rank);
	if (faccessat(arena->directory_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return arena_make_file(arena, name, len, fd);
	ret = arena_open_file(arena, name, O_RDWR, 0, fd);
	if (ret == 0 && ftruncate(*fd, (off_t)len) < 0) {
		ret = base_fail(-errno, "%s/%s: %s", arena->directory, name, strerror(errno));
		close(*fd);
		*fd = -1;
	}
	return ret;
}

int core_arena_slots(struct core_arena *arena, uint32_t rank, struct fabric_memory **slots)
{
	struct fabric_memory *memory = &arena->slots[rank];
	uint64_t len = core_slots_bytes(arena->cells);
	int ret;

	if (!memory->base) {
		ret = open_slots(arena, rank, len, &memory->fd);
		if (ret == 0)
			ret = arena_allocate(arena, memory->fd, 0, len);
		if (ret == 0)
			ret = arena_map(memory, len, PROT_READ | PROT_WRITE);
		if (ret < 0) {
			arena_unmap(memory);
			return ret;
		}
		arena->allocated[CORE_SLOTS] += len;
	}
	*slots = memory;
	return 0;
}

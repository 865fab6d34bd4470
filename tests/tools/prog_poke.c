/* SPDX-License-Identifier: BSD-2-Clause */
/* prog_poke DIRECTORY TABLE: adds 1 to the first word of a direct table, behind the back of all. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/arena.h"

static int poke(const char *directory, uint64_t offset)
{
	uint64_t page = offset / CORE_PAGE_BYTES * CORE_PAGE_BYTES;
	char path[512];
	char *at;
	int fd;

	snprintf(path, sizeof(path), "%s/words", directory);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	at = mmap(NULL, CORE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page);
	close(fd);
	if (at == MAP_FAILED)
		return -1;
	__atomic_fetch_add((uint64_t *)(at + (offset - page)), 1, __ATOMIC_SEQ_CST);
	return munmap(at, CORE_PAGE_BYTES);
}

int main(int argc, char **argv)
{
	struct core_arena *arena;
	const struct core_header *header;
	const struct core_entry *entries;
	int status = 1;

	if (argc != 3 || core_arena_attach(argv[1], &arena))
		return 2;
	header = core_arena_header(arena);
	entries = core_arena_at(arena, CORE_PUBLISHED, header->entries_offset);
	for (uint64_t i = 0; i < header->entries; i++)
		if (entries[i].kind == CORE_TABLE && !strcmp(entries[i].name, argv[2]))
			status = poke(argv[1], entries[i].table.data_offset) ? 1 : 0;
	core_arena_close(arena, false);
	return status;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An arena comes into being in this order: the directory; the lock file, held, saying "new"; the
 * region files; headers, the magic last; the lock file says whose it is. It goes in the reverse
 * order. So whoever gets the lock and finds "new" without a magic knows that nobody ever used
 * what is there, and discards it. Before a file is changed all that is found has been checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/name.h"
#include "base/word.h"
#include "core/arena_private.h"

#define MAX_TRIES          100 /* each is a server that came or went meanwhile */
#define MAGIC_FAMILY_SHIFT 24

static const uint32_t mapped[] = { CORE_WORDS, CORE_PUBLISHED, CORE_PRIVATE };
#define MAPPED 3

uint64_t core_arena_fixed(const struct core_arena *arena, uint32_t region)
{
	struct arena_plan plan;

	arena_plan(arena->max_workers, &plan);
	return plan.fixed[region];
}

static int new_arena(const char *directory, struct core_arena **out)
{
	struct core_arena *arena;

	if (strlen(directory) >= sizeof(arena->directory)) {
		base_fail(-ENAMETOOLONG, "the path of the arena is too long: %s", directory);
		return -ENAMETOOLONG;
	}
	arena = calloc(1, sizeof(*arena));
	if (!arena) {
		base_fail(-ENOMEM, "no memory for an arena");
		return -ENOMEM;
	}
	strcpy(arena->directory, directory);
	arena->directory_fd = -1;
	arena->lock_fd = -1;
	for (uint32_t r = 0; r < CORE_REGIONS; r++)
		arena->memory[r].fd = -1;
	*out = arena;
	return 0;
}

static int new_slots(struct core_arena *arena)
{
	arena->slots = calloc(arena->max_workers, sizeof(*arena->slots));
	if (!arena->slots)
		return base_fail(-ENOMEM, "no memory for %u ranks", arena->max_workers);
	for (uint32_t rank = 0; rank < arena->max_workers; rank++)
		arena->slots[rank].fd = -1;
	return 0;
}

static void free_arena(struct core_arena *arena)
{
	for (uint32_t rank = 0; arena->slots && rank < arena->max_workers; rank++)
		arena_unmap(&arena->slots[rank]);
	free(arena->slots);
	for (uint32_t i = 0; i < MAPPED; i++)
		arena_unmap(&arena->memory[mapped[i]]);
	if (arena->lock_fd >= 0)
		close(arena->lock_fd);
	if (arena->directory_fd >= 0)
		close(arena->directory_fd);
	free(arena);
}

static int make_regions(struct core_arena *arena, const struct core_arena_options *options)
{
	int ret = new_slots(arena);

	for (uint32_t i = 0; ret == 0 && i < MAPPED; i++) {
		struct fabric_memory *memory = &arena->memory[mapped[i]];
		uint64_t fixed = core_arena_fixed(arena, mapped[i]);

		ret = arena_make_file(arena, arena_names[mapped[i]], fixed + arena->arena_bytes,
				      &memory->fd);
		if (ret == 0)
			ret = arena_allocate(arena, memory->fd, 0, fixed);
		if (ret == 0)
			ret = arena_map(memory, fixed + arena->arena_bytes, PROT_READ | PROT_WRITE);
		arena->allocated[mapped[i]] = memory->ready_bytes = fixed;
	}
	return ret ? ret : arena_write_header(arena, options);
}

/* The lock is held; what has our names is nobody's. */
static int make_new(struct core_arena *arena, const struct core_arena_options *options)
{
	int ret = arena_lock_write(arena->lock_fd, true);

	if (ret < 0)
		return base_fail(ret, "%s/lock: %s", arena->directory, strerror(-ret));
	ret = arena_discard(arena->directory_fd);
	if (ret < 0)
		return base_fail(ret, "%s: %s", arena->directory, strerror(-ret));
	arena->max_workers = options->max_workers;
	arena->cells = options->cells;
	arena->arena_bytes = options->arena_bytes;
	ret = make_regions(arena, options);
	if (ret < 0) {
		arena_discard(arena->directory_fd);
		unlinkat(arena->directory_fd, "lock", 0);
	}
	return ret;
}

/* The header as it lies in the file. */
static int read_header(const struct core_arena *arena, struct core_header *header)
{
	int fd, ret;

	ret = arena_open_file(arena, arena_names[CORE_PUBLISHED], O_RDONLY, sizeof(*header), &fd);
	if (ret < 0)
		return ret;
	if (pread(fd, header, sizeof(*header), 0) != sizeof(*header))
		ret = base_fail(-EIO, "%s/published can't be read", arena->directory);
	close(fd);
	return ret;
}

/* Whether the lock's last holder died while it made or removed an arena. */
static bool half_made(const struct core_arena *arena, bool alone)
{
	uint64_t magic = 0;
	int fd;

	if (!arena_lock_says_new(arena->lock_fd, alone))
		return false;
	fd = openat(arena->directory_fd, arena_names[CORE_PUBLISHED],
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	if (pread(fd, &magic, sizeof(magic), 0) < 0)
		magic = UINT64_MAX;
	close(fd);
	return magic == 0;
}

static int open_regions(struct core_arena *arena)
{
	int ret = new_slots(arena);

	for (uint32_t i = 0; ret == 0 && i < MAPPED; i++) {
		struct fabric_memory *memory = &arena->memory[mapped[i]];
		uint64_t len = core_arena_fixed(arena, mapped[i]) + arena->arena_bytes;

		ret = arena_open_file(arena, arena_names[mapped[i]], O_RDWR, len, &memory->fd);
		if (ret == 0)
			ret = arena_map(memory, len, PROT_READ | PROT_WRITE);
	}
	return ret;
}

static int check_used(const struct core_arena *arena)
{
	const struct core_private *priv = arena->memory[CORE_PRIVATE].base;
	bool good = priv->magic == CORE_MAGIC && priv->arena_id == core_arena_header(arena)->arena_id;

	for (uint32_t i = 0; i < MAPPED; i++) {
		uint64_t used = arena_used(arena, mapped[i]);

		good = good && used >= core_arena_fixed(arena, mapped[i]) &&
		       used <= arena->memory[mapped[i]].len_bytes;
	}
	if (!good)
		return base_fail(-EEXIST,
				 "%s: the files are damaged or of different arenas: nothing was "
				 "changed; use another address, or start afresh to discard it",
				 arena->directory);
	return 0;
}

/* Makes room for a larger arena_bytes; the header is told last. */
static int grow(struct core_arena *arena, uint64_t arena_bytes)
{
	for (uint32_t i = 0; i < MAPPED; i++) {
		struct fabric_memory *memory = &arena->memory[mapped[i]];
		uint64_t len = core_arena_fixed(arena, mapped[i]) + arena_bytes;
		int fd = memory->fd, ret;

		if (ftruncate(fd, (off_t)len) < 0)
			return base_fail(-errno, "%s: %s", arena->directory, strerror(errno));
		munmap(memory->base, memory->len_bytes);
		memory->base = NULL;
		ret = arena_map(memory, len, PROT_READ | PROT_WRITE);
		if (ret < 0)
			return ret;
	}
	arena->arena_bytes = arena_bytes;
	word_publish(&core_arena_header(arena)->arena_bytes, arena_bytes);
	return 0;
}

/* Checks all, then takes it over. */
static int resume(struct core_arena *arena, const struct core_arena_options *options)
{
	struct core_header header = { 0 };
	int ret = read_header(arena, &header);

	if (ret == 0)
		ret = arena_check_header(arena, &header, options->job);
	if (ret < 0)
		return ret;
	arena->resumed = true;
	arena->max_workers = header.max_workers;
	arena->cells = header.cells;
	arena->arena_bytes = header.arena_bytes;
	ret = open_regions(arena);
	if (ret == 0)
		ret = check_used(arena);
	if (ret < 0)
		return ret;
	if (options->arena_bytes > arena->arena_bytes) {
		ret = grow(arena, options->arena_bytes);
		if (ret < 0)
			return ret;
	}
	for (uint32_t i = 0; i < MAPPED; i++) {
		uint64_t used = arena_used(arena, mapped[i]);

		/* what an unfinished entry left is handed out again, as zeros */
		core_arena_trim(arena, mapped[i], used);
		ret = arena_allocate(arena, arena->memory[mapped[i]].fd, 0, used);
		if (ret < 0)
			return ret;
	}
	__atomic_store_n(&core_arena_header(arena)->on_death, options->on_death, __ATOMIC_RELAXED);
	return 0;
}

/*
 * Whether `fresh` may discard it: an arena of any job and version of this layout's family, or
 * none.
 */
static int check_fresh(const struct core_arena *arena)
{
	struct core_header header = { 0 };
	int ret = read_header(arena, &header);

	if (ret < 0)
		return ret;
	if (header.magic >> MAGIC_FAMILY_SHIFT != CORE_MAGIC >> MAGIC_FAMILY_SHIFT)
		return base_fail(-EEXIST,
				 "%s is no arena: nothing was changed; use another address, or "
				 "remove it",
				 arena->directory);
	return 0;
}

static bool has_files(const struct arena_found *found)
{
	return found->region[CORE_WORDS] || found->region[CORE_PUBLISHED] ||
	       found->region[CORE_PRIVATE] || found->slots;
}

/* One try; -EAGAIN: a server came or went meanwhile. */
static int try_open(struct core_arena *arena, const struct core_arena_options *options)
{
	struct arena_found found = { 0 };
	bool made, ours;
	int ret;

	ret = arena_open_directory(options->directory, true, &made, &arena->directory_fd);
	if (ret == 0)
		ret = arena_scan(arena->directory_fd, arena->directory, &found);
	if (ret < 0)
		return ret;
	ours = has_files(&found);
	if (!found.lock && (ours || found.foreign[0]))
		return base_fail(-EEXIST,
				 "%s is no arena, it has no lock%s%s: nothing was changed; use "
				 "another address, or remove it",
				 arena->directory, found.foreign[0] ? " but " : "", found.foreign);
	ret = arena_lock(arena->directory_fd, arena->directory, !found.lock, &arena->lock_fd);
	if (ret == 0) /* again, now that nobody else changes it */
		ret = arena_scan(arena->directory_fd, arena->directory, &found);
	if (ret < 0)
		goto err_directory;
	if (half_made(arena, !has_files(&found) && !found.foreign[0]))
		ret = make_new(arena, options);
	else if (options->fresh)
		ret = check_fresh(arena) ?: make_new(arena, options);
	else
		ret = resume(arena, options);
err_directory:
	if (ret < 0 && made)
		rmdir(arena->directory);
	return ret;
}

static int check_options(const struct core_arena_options *o)
{
	int ret = base_name_check("job", o->job);

	if (ret < 0)
		return ret;
	if (o->max_workers == 0 || o->max_workers > CORE_MAX_WORKERS)
		return base_fail(-EINVAL, "max_workers is %u, not 1 to %u", o->max_workers,
				 CORE_MAX_WORKERS);
	if (o->cells == 0 || o->cells > CORE_MAX_CELLS)
		return base_fail(-EINVAL, "a worker's slots are %u cells of %u bytes, not 1 to %u",
				 o->cells, CORE_CHUNK_BYTES, CORE_MAX_CELLS);
	if (o->arena_bytes == 0 || o->arena_bytes > CORE_MAX_ARENA_BYTES)
		return base_fail(-EINVAL, "arena_bytes is %" PRIu64 ", not 1 to 2^44", o->arena_bytes);
	if (o->on_death > RAMPS_ON_DEATH_CONTINUE)
		return base_fail(-EINVAL, "no such policy on_death: %u", o->on_death);
	return 0;
}

int core_arena_open(const struct core_arena_options *options, struct core_arena **out)
{
	struct core_arena *arena = NULL;
	struct core_header *header;
	int ret = check_options(options);

	for (int i = 0; ret == 0 && !arena; i++) {
		if (i == MAX_TRIES)
			return base_fail(-EADDRINUSE, "servers come and go at %s", options->directory);
		ret = new_arena(options->directory, &arena);
		if (ret < 0)
			return ret;
		ret = try_open(arena, options);
		if (ret < 0) {
			free_arena(arena);
			arena = NULL;
		}
		if (ret == -EAGAIN)
			ret = 0;
	}
	if (!arena)
		return ret;
	header = core_arena_header(arena);
	word_store(&header->asleep, 0);
	word_store(&header->server_pid, (uint64_t)getpid());
	word_store(&header->lives, word_load(&header->lives) + 1);
	core_arena_account(arena);
	ret = arena_lock_write(arena->lock_fd, false);
	if (ret < 0) {
		free_arena(arena);
		return base_fail(ret, "%s/lock: %s", options->directory, strerror(-ret));
	}
	*out = arena;
	return 0;
}

void core_arena_close(struct core_arena *arena, bool remove)
{
	if (!arena)
		return;
	if (remove) {
		arena_lock_write(arena->lock_fd, true);
		arena_discard(arena->directory_fd);
		unlinkat(arena->directory_fd, "lock", 0);
		rmdir(arena->directory);
	}
	free_arena(arena);
}

int core_arena_attach(const char *directory, struct core_arena **out)
{
	struct core_arena *arena;
	struct core_header header = { 0 };
	bool made;
	int ret = new_arena(directory, &arena);

	if (ret < 0)
		return ret;
	ret = arena_open_directory(directory, false, &made, &arena->directory_fd);
	if (ret == 0 &&
	    faccessat(arena->directory_fd, arena_names[CORE_PUBLISHED], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		ret = base_fail(-ENOENT, "%s: there is no arena", directory);
	if (ret == 0)
		ret = read_header(arena, &header);
	if (ret == 0 && header.magic == 0)
		ret = base_fail(-ENOENT, "%s: the arena is being made", directory);
	if (ret == 0)
		ret = arena_check_header(arena, &header, NULL);
	if (ret < 0)
		goto err;
	arena->resumed = true;
	arena->max_workers = header.max_workers;
	arena->cells = header.cells;
	arena->arena_bytes = header.arena_bytes;
	for (uint32_t r = CORE_WORDS; ret == 0 && r <= CORE_PUBLISHED; r++) {
		uint64_t len = core_arena_fixed(arena, r) + arena->arena_bytes;

		ret = arena_open_file(arena, arena_names[r], O_RDONLY, len, &arena->memory[r].fd);
		if (ret == 0)
			ret = arena_map(&arena->memory[r], len, PROT_READ);
	}
	if (ret < 0)
		goto err;
	*out = arena;
	return 0;
err:
	free_arena(arena);
	return ret;
}

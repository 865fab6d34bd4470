/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads an arena that its server and workers go on changing, and that may be damaged. Everything is copied
 * by value first, by read(2): it stops at the end of a file and leaves its holes unallocated, where a
 * mapping would raise SIGBUS or take memory of the arena. Only the copy is checked and used.
 */
#include "stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/name.h"
#include "cli.h"
#include "core/arena.h"
#include "core/schema.h"
#include "sync/barrier.h"

#define CHUNKS_AT_ONCE 4096u
#define MAX_CHUNKS     (1u << 20) /* a table of 64 GiB; more are not looked at */

static bool read_region(const struct core_arena *arena, uint32_t region, uint64_t offset, void *to,
			uint64_t len_bytes)
{
	const struct fabric_memory *memory = &arena->memory[region];
	uint64_t done = 0;

	if (offset % sizeof(uint64_t) || offset > memory->len_bytes ||
	    len_bytes > memory->len_bytes - offset)
		return false;
	while (done < len_bytes) {
		ssize_t n = pread(memory->fd, (char *)to + done, len_bytes - done,
				  (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		done += (uint64_t)n;
	}
	return true;
}

/* Whether a server holds the lock. A shared try for a moment does not hinder one that starts: it tries again. */
static bool is_locked(const struct core_arena *arena)
{
	int fd = openat(arena->directory_fd, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	bool locked;

	if (fd < 0)
		return false;
	locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	close(fd);
	return locked;
}

static int read_header(const struct core_arena *arena, struct stat_sample *sample)
{
	struct core_header *header = &sample->header;

	if (!read_region(arena, CORE_PUBLISHED, 0, header, sizeof(*header)) ||
	    header->magic != CORE_MAGIC || header->version != CORE_VERSION ||
	    header->layout_hash != core_layout_hash())
		return base_fail(-EBADMSG, "%s: the arena's header is damaged", arena->directory);
	header->job[sizeof(header->job) - 1] = '\0';
	if (header->max_workers < 1 || header->max_workers > CORE_MAX_WORKERS ||
	    header->workers > header->max_workers || base_name_check("job", header->job))
		return base_fail(-EBADMSG, "%s: the arena's header is damaged", arena->directory);
	sample->workers = header->workers;
	return 0;
}

/* What moves is read in the order that keeps differences positive: consumed before committed. */
static int read_ranks(const struct core_arena *arena, struct stat_sample *sample)
{
	const struct core_header *header = &sample->header;
	uint32_t n = sample->workers;

	sample->states = cli_alloc(n, sizeof(*sample->states));
	sample->ranks = cli_alloc(n, sizeof(*sample->ranks));
	sample->words = cli_alloc(n, sizeof(*sample->words));
	if (!read_region(arena, CORE_PUBLISHED, header->states_offset, sample->states,
			 n * sizeof(*sample->states)) ||
	    !read_region(arena, CORE_PUBLISHED, header->ranks_offset, sample->ranks,
			 n * sizeof(*sample->ranks)) ||
	    !read_region(arena, CORE_WORDS, header->rank_words_offset, sample->words,
			 n * sizeof(*sample->words)))
		return base_fail(-EBADMSG, "%s: the arena's header is damaged", arena->directory);
	return 0;
}

static uint64_t least_step(const struct core_arena *arena, const struct core_table *table)
{
	uint64_t chunks = core_round_up(table->elements, table->chunk_elements) / table->chunk_elements;
	uint64_t least = STAT_UNKNOWN;
	struct core_chunk *some;

	if (chunks > MAX_CHUNKS)
		return STAT_UNKNOWN;
	some = cli_alloc(CHUNKS_AT_ONCE, sizeof(*some));
	for (uint64_t i = 0; i < chunks; i += CHUNKS_AT_ONCE) {
		uint64_t n = chunks - i < CHUNKS_AT_ONCE ? chunks - i : CHUNKS_AT_ONCE;

		if (!read_region(arena, CORE_PUBLISHED, table->chunks_offset + i * sizeof(*some),
				 some, n * sizeof(*some))) {
			least = STAT_UNKNOWN;
			break;
		}
		for (uint64_t j = 0; j < n; j++)
			if (some[j].steps < least)
				least = some[j].steps;
	}
	free(some);
	return least;
}

static bool read_table(const struct core_arena *arena, struct stat_object *object)
{
	const struct core_table *table = &object->entry.table;
	uint64_t values;

	if ((table->type != RAMPS_FLOAT32 && table->type != RAMPS_INT64) ||
	    (table->mode != RAMPS_DIRECT && table->mode != RAMPS_SLOTS) ||
	    __builtin_mul_overflow(table->rows, table->dim, &values) || !values || values >> 44 ||
	    table->elements > values || table->first_element > values - table->elements ||
	    !table->chunk_elements)
		return false;
	object->bytes = table->elements * core_value_bytes(table);
	object->step = STAT_UNKNOWN;
	if (table->mode == RAMPS_SLOTS)
		object->step = least_step(arena, table);
	return true;
}

static bool read_clock(const struct core_arena *arena, const struct stat_sample *sample,
		       struct stat_object *object)
{
	uint32_t n = sample->workers;

	if (object->entry.clock.members != n)
		return false;
	object->counts = cli_alloc(n, sizeof(*object->counts));
	return read_region(arena, CORE_WORDS, object->entry.clock.words_offset, object->counts,
			   n * sizeof(*object->counts));
}

/* The ranks of a barrier's members. */
static bool read_group(const struct core_arena *arena, uint32_t workers, struct stat_object *object)
{
	const struct core_barrier *barrier = &object->entry.barrier;
	uint64_t bits[CORE_MAX_WORKERS / 64];
	uint32_t n = 0;

	object->ranks = cli_alloc(barrier->members, sizeof(*object->ranks));
	if (barrier->group_offset && !read_region(arena, CORE_PUBLISHED, barrier->group_offset,
						  bits, (workers + 63) / 64 * sizeof(*bits)))
		return false;
	for (uint32_t rank = 0; rank < workers; rank++) {
		if (barrier->group_offset && !(bits[rank / 64] >> rank % 64 & 1))
			continue;
		if (n == barrier->members)
			return false;
		object->ranks[n++] = rank;
	}
	return n == barrier->members;
}

static bool read_barrier(const struct core_arena *arena, const struct stat_sample *sample,
			 struct stat_object *object)
{
	const struct core_barrier *barrier = &object->entry.barrier;
	struct core_node *nodes;
	uint64_t count;
	bool good;

	if (barrier->members < 1 || barrier->members > sample->workers || barrier->fan_in < 2 ||
	    barrier->fan_in > CORE_MAX_FAN_IN || !read_group(arena, sample->workers, object))
		return false;
	count = sync_barrier_nodes(barrier->members, barrier->fan_in);
	nodes = cli_alloc(count, sizeof(*nodes));
	object->arrived = cli_alloc(barrier->members, sizeof(*object->arrived));
	good = read_region(arena, CORE_WORDS, barrier->nodes_offset, nodes, count * sizeof(*nodes));
	if (good)
		object->arrivals = sync_barrier_inspect(barrier, nodes, &object->generation,
							object->arrived);
	free(nodes);
	return good && object->arrivals <= barrier->members;
}

static void free_object(struct stat_object *object)
{
	free(object->counts);
	free(object->ranks);
	free(object->arrived);
}

static bool read_object(const struct core_arena *arena, const struct stat_sample *sample,
			uint32_t index, struct stat_object *object)
{
	struct core_entry *entry = &object->entry;

	entry->name[sizeof(entry->name) - 1] = '\0';
	if (entry->index != index || base_name_check("entry", entry->name) ||
	    (entry->state != CORE_PREPARING && entry->state != CORE_READY))
		return false;
	switch (entry->kind) {
	case CORE_TABLE:
		return read_table(arena, object);
	case CORE_CLOCK:
		return read_clock(arena, sample, object);
	case CORE_BARRIER:
		return read_barrier(arena, sample, object);
	default:
		return false;
	}
}

static void read_directory(const struct core_arena *arena, struct stat_sample *sample)
{
	uint64_t entries = sample->header.entries;
	struct stat_object object;

	if (entries > CORE_MAX_ENTRIES) {
		sample->damaged++;
		entries = CORE_MAX_ENTRIES;
	}
	for (uint32_t i = 0; i < entries; i++) {
		memset(&object, 0, sizeof(object));
		if (!read_region(arena, CORE_PUBLISHED,
				 sample->header.entries_offset + i * sizeof(object.entry),
				 &object.entry, sizeof(object.entry))) {
			sample->damaged++;
			break;
		}
		if (!read_object(arena, sample, i, &object)) {
			free_object(&object);
			sample->damaged++;
			continue;
		}
		sample->objects = cli_grow(sample->objects, sample->count + 1, sizeof(object));
		sample->objects[sample->count++] = object;
	}
}

int stat_take(const char *directory, struct stat_sample **result)
{
	struct stat_sample *sample;
	struct core_arena *arena;
	int ret;

	ret = core_arena_attach(directory, &arena);
	if (ret)
		return base_end("core_arena_attach", ret);
	sample = cli_alloc(1, sizeof(*sample));
	sample->alive = is_locked(arena);
	ret = read_header(arena, sample);
	if (!ret)
		ret = read_ranks(arena, sample);
	if (!ret) {
		sample->time_ns = base_now_ns();
		read_directory(arena, sample);
		*result = sample;
	} else {
		stat_free(sample);
	}
	core_arena_close(arena, false);
	return base_end("stat_take", ret);
}

void stat_free(struct stat_sample *sample)
{
	if (!sample)
		return;
	for (uint32_t i = 0; i < sample->count; i++)
		free_object(&sample->objects[i]);
	free(sample->objects);
	free(sample->words);
	free(sample->ranks);
	free(sample->states);
	free(sample);
}

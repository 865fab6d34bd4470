/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/word.h"
#include "core/schema.h"
#include "shm/shm.h"
#include "sync/barrier.h"

#include <cmocka.h>

static void open_arena(struct hand_arena *hand, uint32_t max_workers)
{
	struct core_arena_options options = {
		.directory = hand->directory,
		.job = "by-hand",
		.arena_bytes = 64ull << 20,
		.max_workers = max_workers,
		.cells = 16,
	};

	assert_int_equal(core_arena_open(&options, &hand->arena), 0);
}

void hand_arena_make(struct hand_arena *hand, uint32_t workers)
{
	struct core_header *header;

	strcpy(hand->root, "/dev/shm/ramps-test.XXXXXX");
	assert_non_null(mkdtemp(hand->root));
	setenv("RAMPS_SHM_DIR", hand->root, 1);
	assert_int_equal(shm_directory(ARENA_ADDRESS, hand->directory, sizeof(hand->directory)), 0);
	open_arena(hand, 2 * workers);
	header = hand_header(hand);
	header->workers = workers;
	header->shards = 1;
}

void hand_arena_kill(struct hand_arena *hand)
{
	core_arena_close(hand->arena, false);
	hand->arena = NULL;
}

void hand_arena_remove(struct hand_arena *hand)
{
	if (!hand->arena)
		open_arena(hand, 1);
	core_arena_close(hand->arena, true);
	assert_int_equal(rmdir(hand->root), 0);
}

struct core_header *hand_header(struct hand_arena *hand)
{
	return core_arena_header(hand->arena);
}

uint64_t *hand_states(struct hand_arena *hand)
{
	return core_arena_at(hand->arena, CORE_PUBLISHED, hand_header(hand)->states_offset);
}

struct core_rank *hand_ranks(struct hand_arena *hand)
{
	return core_arena_at(hand->arena, CORE_PUBLISHED, hand_header(hand)->ranks_offset);
}

struct core_rank_words *hand_words(struct hand_arena *hand)
{
	return core_arena_at(hand->arena, CORE_WORDS, hand_header(hand)->rank_words_offset);
}

struct core_entry *hand_entry(struct hand_arena *hand, uint32_t index)
{
	struct core_entry *entries = core_arena_at(hand->arena, CORE_PUBLISHED,
						   hand_header(hand)->entries_offset);

	return &entries[index];
}

static uint64_t take(struct hand_arena *hand, uint32_t region, uint64_t len_bytes)
{
	uint64_t offset = core_round_up(hand->arena->allocated[region], CORE_LINE_BYTES);

	assert_int_equal(core_arena_extend(hand->arena, region, offset + len_bytes), 0);
	return offset;
}

static struct core_entry *new_entry(struct hand_arena *hand, uint32_t kind, const char *name)
{
	uint32_t index = (uint32_t)hand_header(hand)->entries;
	struct core_entry *entry = hand_entry(hand, index);

	entry->kind = kind;
	entry->index = index;
	entry->state = CORE_READY;
	strncpy(entry->name, name, sizeof(entry->name) - 1);
	return entry;
}

static void publish(struct hand_arena *hand, struct core_entry *entry)
{
	entry->words_end = hand->arena->allocated[CORE_WORDS];
	entry->published_end = hand->arena->allocated[CORE_PUBLISHED];
	entry->private_end = hand->arena->allocated[CORE_PRIVATE];
	word_publish(&hand_header(hand)->entries, entry->index + 1);
}

struct core_entry *hand_table(struct hand_arena *hand, const char *name, uint32_t mode,
			      uint64_t rows, uint64_t dim)
{
	struct core_entry *entry = new_entry(hand, CORE_TABLE, name);
	struct core_table *table = &entry->table;

	table->rows = rows;
	table->dim = dim;
	table->type = RAMPS_FLOAT32;
	table->mode = mode;
	table->rate = 0.5f;
	table->elements = rows * dim;
	table->chunk_elements = CORE_CHUNK_BYTES / core_value_bytes(table);
	if (mode == RAMPS_SLOTS) {
		uint64_t chunks = table->elements / table->chunk_elements + 1;

		table->chunks_offset = take(hand, CORE_PUBLISHED, chunks * sizeof(struct core_chunk));
	}
	publish(hand, entry);
	return entry;
}

struct core_chunk *hand_chunks(struct hand_arena *hand, const struct core_entry *entry)
{
	return core_arena_at(hand->arena, CORE_PUBLISHED, entry->table.chunks_offset);
}

uint64_t *hand_clock(struct hand_arena *hand, const char *name)
{
	struct core_entry *entry = new_entry(hand, CORE_CLOCK, name);
	uint32_t workers = hand_header(hand)->workers;

	entry->clock.members = workers;
	entry->clock.words_offset = take(hand, CORE_WORDS, workers * sizeof(uint64_t));
	publish(hand, entry);
	return core_arena_at(hand->arena, CORE_WORDS, entry->clock.words_offset);
}

struct core_node *hand_barrier(struct hand_arena *hand, const char *name, const uint64_t *group,
			       uint32_t members)
{
	struct core_entry *entry = new_entry(hand, CORE_BARRIER, name);
	struct core_barrier *barrier = &entry->barrier;
	uint32_t words = (hand_header(hand)->workers + 63) / 64;

	barrier->members = members;
	barrier->fan_in = SYNC_DEFAULT_FAN_IN;
	barrier->nodes_offset = take(hand, CORE_WORDS,
				     sync_barrier_nodes(members, barrier->fan_in) *
					     sizeof(struct core_node));
	if (group) {
		barrier->group_offset = take(hand, CORE_PUBLISHED, words * sizeof(uint64_t));
		memcpy(core_arena_at(hand->arena, CORE_PUBLISHED, barrier->group_offset), group,
		       words * sizeof(uint64_t));
	}
	publish(hand, entry);
	return core_arena_at(hand->arena, CORE_WORDS, barrier->nodes_offset);
}

int run_ramps(const char *arguments, char **output)
{
	const char *build = getenv("BUILD");
	size_t length = 0, n;
	char command[1024], part[4096];
	FILE *out, *in;
	int status;

	snprintf(command, sizeof(command), "{ %s/ramps %s; } 2>&1", build ? build : "build", arguments);
	out = open_memstream(output, &length);
	assert_non_null(out);
	in = popen(command, "r");
	assert_non_null(in);
	while ((n = fread(part, 1, sizeof(part), in)) > 0)
		fwrite(part, 1, n, out);
	status = pclose(in);
	fclose(out);
	return status;
}

json_t *stat_json_of(const char *arguments)
{
	char line[512], *output;
	json_error_t error;
	json_t *json;

	snprintf(line, sizeof(line), "stat --json %s", arguments);
	assert_int_equal(run_ramps(line, &output), 0);
	json = json_loads(output, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		print_error("%s: %s\n", error.text, output);
	assert_non_null(json);
	free(output);
	return json;
}

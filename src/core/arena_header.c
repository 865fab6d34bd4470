/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "base/word.h"
#include "core/arena_private.h"

void arena_plan(uint32_t max_workers, struct arena_plan *plan)
{
	uint64_t n = max_workers;

	memset(plan, 0, sizeof(*plan));
	plan->rank_words = CORE_LINE_BYTES;
	plan->fixed[CORE_WORDS] = core_round_up(plan->rank_words + n * sizeof(struct core_rank_words),
						CORE_PAGE_BYTES);

	plan->states = core_round_up(sizeof(struct core_header), CORE_LINE_BYTES);
	plan->ranks = core_round_up(plan->states + n * sizeof(uint64_t), CORE_LINE_BYTES);
	plan->entries = plan->ranks + n * sizeof(struct core_rank);
	plan->fixed[CORE_PUBLISHED] = core_round_up(
		plan->entries + CORE_MAX_ENTRIES * sizeof(struct core_entry), CORE_PAGE_BYTES);

	plan->rank_private = core_round_up(sizeof(struct core_private), CORE_LINE_BYTES);
	plan->undo_data = core_round_up(plan->rank_private + n * sizeof(struct core_rank_private),
					CORE_PAGE_BYTES);
	plan->undo_applied = plan->undo_data + CORE_CHUNK_BYTES;
	plan->fixed[CORE_PRIVATE] = core_round_up(plan->undo_applied + n * sizeof(uint64_t),
						  CORE_PAGE_BYTES);
}

static int refuse(const struct core_arena *arena, const char *why)
{
	return base_fail(-EEXIST,
			 "%s %s: nothing was changed; use another address, or start afresh to "
			 "discard it",
			 arena->directory, why);
}

static int check_sizes(const struct core_arena *arena, const struct core_header *h)
{
	struct arena_plan plan;

	if (h->max_workers == 0 || h->max_workers > CORE_MAX_WORKERS || h->cells == 0 ||
	    h->cells > CORE_MAX_CELLS || h->arena_bytes == 0 || h->arena_bytes > CORE_MAX_ARENA_BYTES)
		return refuse(arena, "has a damaged header");
	arena_plan(h->max_workers, &plan);
	if (h->states_offset != plan.states || h->ranks_offset != plan.ranks ||
	    h->entries_offset != plan.entries || h->rank_words_offset != plan.rank_words ||
	    h->entries > CORE_MAX_ENTRIES || h->workers > h->max_workers ||
	    h->shards > CORE_MAX_SERVERS || (h->workers && h->shard >= h->shards))
		return refuse(arena, "has a damaged header");
	return 0;
}

int arena_check_header(const struct core_arena *arena, const struct core_header *h, const char *job)
{
	if (h->magic != CORE_MAGIC)
		return refuse(arena, "is no arena");
	if (h->version != CORE_VERSION || h->layout_hash != core_layout_hash())
		return base_fail(-EEXIST,
				 "%s is an arena of version %u, layout %08x; this is version %u, "
				 "layout %08x: nothing was changed; use that version, or start afresh "
				 "to discard it",
				 arena->directory, h->version, h->layout_hash, CORE_VERSION,
				 core_layout_hash());
	if (job && strncmp(h->job, job, sizeof(h->job)) != 0)
		return base_fail(-EEXIST,
				 "%s is an arena of job %.63s, this is job %s: nothing was changed; "
				 "use another address, or start afresh to discard it",
				 arena->directory, h->job, job);
	return check_sizes(arena, h);
}

static int random_id(uint64_t *id)
{
	do {
		if (getrandom(id, sizeof(*id), 0) != sizeof(*id))
			return base_fail(-EIO, "the system gives no random numbers");
	} while (*id == 0);
	return 0;
}

int arena_write_header(struct core_arena *arena, const struct core_arena_options *options)
{
	struct core_private *priv = arena->memory[CORE_PRIVATE].base;
	struct core_header *h = core_arena_header(arena);
	struct arena_plan plan;
	uint64_t id;
	int ret = random_id(&id);

	if (ret < 0)
		return ret;
	arena_plan(arena->max_workers, &plan);
	priv->arena_id = id;
	priv->undo_data_offset = plan.undo_data;
	priv->undo_applied_offset = plan.undo_applied;
	priv->rank_private_offset = plan.rank_private;
	priv->magic = CORE_MAGIC;
	h->version = CORE_VERSION;
	h->layout_hash = core_layout_hash();
	h->arena_id = id;
	strncpy(h->job, options->job, sizeof(h->job) - 1);
	h->max_workers = arena->max_workers;
	h->cells = arena->cells;
	h->on_death = options->on_death;
	h->arena_bytes = arena->arena_bytes;
	h->states_offset = plan.states;
	h->ranks_offset = plan.ranks;
	h->entries_offset = plan.entries;
	h->rank_words_offset = plan.rank_words;
	word_publish(&h->magic, CORE_MAGIC);
	return 0;
}

uint64_t arena_used(const struct core_arena *arena, uint32_t region)
{
	const struct core_header *h = core_arena_header(arena);
	const struct core_entry *last;

	if (h->entries == 0)
		return core_arena_fixed(arena, region);
	last = core_arena_at(arena, CORE_PUBLISHED, h->entries_offset);
	last += h->entries - 1;
	switch (region) {
	case CORE_WORDS:
		return last->words_end;
	case CORE_PUBLISHED:
		return last->published_end;
	default:
		return last->private_end;
	}
}

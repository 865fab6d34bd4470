/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the servers' memory may hold. Each push is counted when it begins and, once the library has
 * said so, as certain; every value in memory then is between the two. A rank's pushes are told from
 * the others' by the lane of an element, or its place in a chunk. When a new life has joined, what is
 * there of the old one is final: it is taken for both, so that nothing may be lost or land afterwards.
 */
#include <errno.h>
#include <string.h>

#include "harness.h"

static const struct plan_table *plan_of(const struct world *world, uint32_t table)
{
	return &world->plan.table[table];
}

uint64_t oracle_hot_element(const struct plan_table *t, uint32_t hot)
{
	uint32_t block = t->block_rows * t->dim;

	return t->block_first[hot / block] * t->dim + hot % block;
}

static uint32_t hot_count(const struct plan_table *t)
{
	return t->kind >= TABLE_WHOLE ? t->chunks : t->blocks * t->block_rows * t->dim;
}

const struct core_entry *oracle_entry(struct world *world, uint32_t server, uint32_t kind,
				      const char *name)
{
	const struct core_arena *arena = world->hosts[server].seen;
	const struct core_header *header = core_arena_header(arena);
	const struct core_entry *entries = core_arena_at(arena, CORE_PUBLISHED, header->entries_offset);

	for (uint64_t i = 0; i < header->entries; i++)
		if (entries[i].kind == kind && !strcmp(entries[i].name, name))
			return &entries[i];
	return NULL;
}

static const struct core_entry *table_entry(struct world *world, uint32_t table, uint32_t server)
{
	const struct core_arena *arena = world->hosts[server].seen;
	const struct core_header *header = core_arena_header(arena);
	const struct core_entry *entries = core_arena_at(arena, CORE_PUBLISHED, header->entries_offset);
	uint32_t *at = &world->tables[table].entry[server];
	const struct core_entry *entry;

	if (*at)
		return &entries[*at - 1];
	entry = oracle_entry(world, server, CORE_TABLE, plan_of(world, table)->name);
	*at = entry ? (uint32_t)(entry - entries) + 1 : 0;
	return entry;
}

const void *oracle_memory(struct world *world, uint32_t table, uint64_t element, uint32_t *server)
{
	bool direct = plan_of(world, table)->kind <= TABLE_FIXED;

	for (uint32_t s = 0; s < world->plan.servers; s++) {
		const struct core_entry *entry = table_entry(world, table, s);
		const struct core_table *part = entry ? &entry->table : NULL;

		/* its initial values may not be in yet */
		if (!part || entry->state != CORE_READY || element - part->first_element >= part->elements)
			continue;
		*server = s;
		return core_arena_at(world->hosts[s].seen, direct ? CORE_WORDS : CORE_PUBLISHED,
				     part->data_offset +
					     (element - part->first_element) * (direct ? 8 : 4));
	}
	return NULL;
}

uint64_t oracle_lane(const struct plan_table *t, const void *value, uint32_t rank)
{
	uint64_t word;

	if (t->kind == TABLE_INT)
		word = *(const uint64_t *)value - (t->initial ? START_INT : 0);
	else /* as pulled */
		word = (uint64_t)(int64_t)(*(const float *)value * (1u << FIXED_DOWN)) -
		       (t->initial ? START_FIXED : 0);
	return word >> LANE_BITS * rank & LANE_MASK;
}

uint64_t oracle_count(struct world *world, uint32_t table, uint32_t hot, uint32_t rank)
{
	const struct plan_table *t = plan_of(world, table);
	uint32_t server;
	const void *at;
	uint64_t word;

	if (t->kind == TABLE_WHOLE) {
		at = oracle_memory(world, table, (uint64_t)hot * t->chunk_elements + rank, &server);
		return at ? (uint64_t)((t->initial ? START_PART : 0) - *(const float *)at) : UINT64_MAX;
	}
	at = oracle_memory(world, table, oracle_hot_element(t, hot), &server);
	if (!at)
		return UINT64_MAX;
	if (t->kind == TABLE_INT)
		return oracle_lane(t, at, rank);
	word = (*(const uint64_t *)at >> (FIXED_BITS - FIXED_DOWN)) - (t->initial ? START_FIXED : 0);
	return word >> LANE_BITS * rank & LANE_MASK;
}

bool oracle_full(const struct world *world, uint32_t table, uint32_t hot, uint32_t rank)
{
	return plan_of(world, table)->kind <= TABLE_FIXED &&
	       world->tables[table].attempted[hot * world->plan.workers + rank] >= LANE_MOST;
}

static void raise_to(uint32_t *value, uint64_t least)
{
	if (*value < least)
		*value = (uint32_t)least;
}

void oracle_attempt(struct world *world, uint32_t rank, const struct push *push)
{
	bool step = plan_of(world, push->index)->kind == TABLE_STEP;

	for (uint32_t i = 0; i < push->n; i++) {
		uint32_t *at = &world->tables[push->index].attempted[push->at[i] * world->plan.workers + rank];

		if (step)
			raise_to(at, push->step[i] + 1);
		else
			++*at;
	}
}

void oracle_certain(struct world *world, uint32_t rank, const struct push *push)
{
	bool step = plan_of(world, push->index)->kind == TABLE_STEP;

	for (uint32_t i = 0; i < push->n; i++) {
		uint32_t *at = &world->tables[push->index].certain[push->at[i] * world->plan.workers + rank];

		if (step)
			raise_to(at, push->step[i] + 1);
		else
			++*at;
	}
}

/* Whether a count is between what is certain and what was begun; says so if it is not. */
static bool check_count(struct world *world, uint32_t table, uint32_t hot, uint32_t rank, uint64_t count)
{
	const struct plan_table *t = plan_of(world, table);
	uint32_t i = hot * world->plan.workers + rank;
	uint32_t certain = world->tables[table].certain[i],
		 attempted = world->tables[table].attempted[i];
	const char *where = t->kind == TABLE_WHOLE ? "chunk" : "element";

	if (count < certain)
		world_fail(world, "lost push",
			   "%s %u of %s holds %llu pushes of rank %u, of %u that it was told had landed",
			   where, hot, t->name, (unsigned long long)count, rank, certain);
	if (count > attempted)
		world_fail(world, "push twice",
			   "%s %u of %s holds %llu pushes of rank %u, which has begun %u", where,
			   hot, t->name, (unsigned long long)count, rank, attempted);
	return count >= certain && count <= attempted;
}

void oracle_new_life(struct world *world, uint32_t rank)
{
	for (uint32_t table = 0; table < world->plan.tables; table++) {
		const struct plan_table *t = plan_of(world, table);
		struct table_state *state = &world->tables[table];

		if (t->kind == TABLE_PART || t->kind == TABLE_STEP)
			continue;
		for (uint32_t hot = 0; hot < hot_count(t); hot++) {
			uint64_t count = oracle_count(world, table, hot, rank);
			uint32_t i = hot * world->plan.workers + rank;

			if (count == UINT64_MAX || !check_count(world, table, hot, rank, count))
				continue;
			state->attempted[i] = state->certain[i] = (uint32_t)count;
		}
	}
	world->ranks[rank].unknown = 0;
}

static const struct core_chunk *chunk_at(struct world *world, uint32_t table, uint32_t chunk)
{
	const struct plan_table *t = plan_of(world, table);
	uint64_t element = (uint64_t)chunk * t->chunk_elements;

	for (uint32_t s = 0; s < world->plan.servers; s++) {
		const struct core_entry *entry = table_entry(world, table, s);
		const struct core_chunk *chunks;

		if (!entry || element - entry->table.first_element >= entry->table.elements)
			continue;
		chunks = core_arena_at(world->hosts[s].seen, CORE_PUBLISHED, entry->table.chunks_offset);
		return &chunks[(element - entry->table.first_element) / t->chunk_elements];
	}
	return NULL;
}

/* After a call that had this rank's pushes applied. */
void oracle_own_applied(struct actor *actor)
{
	struct world *world = actor->world;
	uint32_t rank = actor->rank->number;

	for (uint32_t table = 0; table < world->plan.tables; table++) {
		const struct plan_table *t = plan_of(world, table);
		const struct table_state *state = &world->tables[table];

		for (uint32_t hot = 0; t->kind >= TABLE_WHOLE && hot < t->chunks; hot++) {
			uint32_t certain = state->certain[hot * world->plan.workers + rank];
			const struct core_chunk *chunk = chunk_at(world, table, hot);
			uint64_t have = t->kind == TABLE_STEP ? chunk->steps :
								oracle_count(world, table, hot, rank);

			if (have < certain)
				world_fail(world, "applied",
					   "rank %u: after %s chunk %u of %s has %llu of its %u pushes",
					   rank, call_names[actor->rank->call], hot, t->name,
					   (unsigned long long)have, certain);
		}
	}
}

/* What a rank has in direct tables on one server, added up. */
static uint64_t sum_of(struct world *world, uint32_t server, uint32_t rank)
{
	uint64_t sum = 0;

	for (uint32_t table = 0; table < world->plan.tables; table++) {
		const struct plan_table *t = plan_of(world, table);
		uint32_t at;

		for (uint32_t hot = 0; t->kind <= TABLE_FIXED && hot < hot_count(t); hot++)
			if (oracle_memory(world, table, oracle_hot_element(t, hot), &at) && at == server)
				sum = sum * 31 + oracle_count(world, table, hot, rank);
	}
	return sum;
}

static bool fence_holds(struct world *world, uint32_t server, uint32_t rank, uint64_t state)
{
	struct host *host = &world->hosts[server];
	const struct core_rank_words *words = core_arena_at(
		host->seen, CORE_WORDS, core_arena_header(host->seen)->rank_words_offset);
	uint64_t tail = words[rank].tail, sum = sum_of(world, server, rank);
	bool is_known = host->fenced[rank] == state;

	if (is_known && host->fence_tail[rank] == tail && host->fence_sum[rank] == sum)
		return true;
	host->fenced[rank] = state;
	host->fence_tail[rank] = tail;
	host->fence_sum[rank] = sum;
	return !is_known;
}

/* Of a rank that a server has said to be dead nothing changes there any more. */
void oracle_fences(struct world *world)
{
	for (uint32_t s = 0; s < world->plan.servers; s++) {
		const struct core_arena *arena = world->hosts[s].seen;
		const uint64_t *states = core_arena_at(arena, CORE_PUBLISHED,
						       core_arena_header(arena)->states_offset);

		for (uint32_t r = 0; r < world->plan.workers; r++)
			if (core_state_of(states[r]) == CORE_DEAD &&
			    !fence_holds(world, s, r, states[r]))
				world_fail(world, "fence",
					   "server %u: rank %u is dead, and its ring or what it added changed after that",
					   s, r);
	}
}

void oracle_deaths(struct world *world, uint32_t server)
{
	const struct core_arena *arena = world->hosts[server].seen;
	const uint64_t *states;

	if (!arena)
		return;
	states = core_arena_at(arena, CORE_PUBLISHED, core_arena_header(arena)->states_offset);
	for (uint32_t r = 0; r < world->plan.workers; r++)
		if (core_state_of(states[r]) == CORE_DEAD && world->hosts[server].fenced[r] != states[r])
			fence_holds(world, server, r, states[r]);
}

static void end_counts(struct world *world, uint32_t table, uint64_t missing[MAX_WORKERS])
{
	const struct plan_table *t = plan_of(world, table);

	for (uint32_t hot = 0; hot < hot_count(t); hot++)
		for (uint32_t r = 0; r < world->plan.workers; r++) {
			uint64_t count = oracle_count(world, table, hot, r);
			uint32_t i = hot * world->plan.workers + r;

			if (count == UINT64_MAX)
				continue;
			check_count(world, table, hot, r, count);
			missing[r] += world->tables[table].attempted[i] - count;
		}
}

static void end_sums(struct world *world, uint32_t table)
{
	const struct plan_table *t = plan_of(world, table);
	float start = t->initial ? START_PART : 0;
	bool exact = true;
	uint32_t server;

	for (uint32_t r = 0; r < world->plan.workers; r++)
		exact &= !world->ranks[r].cut_off;
	for (uint32_t hot = 0; hot < hot_count(t); hot++) {
		const float *at = oracle_memory(world, table, oracle_hot_element(t, hot), &server);
		uint64_t certain = 0, attempted = 0;

		for (uint32_t r = 0; r < world->plan.workers; r++) {
			certain += world->tables[table].certain[hot * world->plan.workers + r];
			attempted += world->tables[table].attempted[hot * world->plan.workers + r];
		}
		if (exact)
			certain = attempted;
		if (at && (start - *at < (float)certain || start - *at > (float)attempted))
			world_fail(world, start - *at < (float)certain ? "lost push" : "push twice",
				   "element %u of %s holds %g pushes: %llu have landed, %llu were begun",
				   hot, t->name, (double)(start - *at), (unsigned long long)certain,
				   (unsigned long long)attempted);
	}
}

/* What nobody pushed is as it was. */
static void end_rest(struct world *world, uint32_t table)
{
	const struct plan_table *t = plan_of(world, table);
	uint32_t hot = 0, server;

	for (uint64_t e = 0; t->chunks > 1 && t->kind < TABLE_WHOLE && e < t->rows * t->dim; e++) {
		const void *at = oracle_memory(world, table, e, &server);
		bool right;

		for (hot = 0; hot < hot_count(t) && oracle_hot_element(t, hot) != e;)
			hot++;
		if (!at || hot < hot_count(t))
			continue;
		if (t->kind == TABLE_PART)
			right = *(const float *)at == (t->initial ? START_PART : 0);
		else
			right = *(const uint64_t *)at == 0;
		if (!right)
			world_fail(world, "stray write",
				   "element %llu of %s, which nobody pushes, has changed",
				   (unsigned long long)e, t->name);
	}
}

static void end_chunks(struct world *world, uint32_t table)
{
	const struct plan_table *t = plan_of(world, table);

	for (uint32_t c = 0; t->kind >= TABLE_PART && c < t->chunks; c++) {
		const struct core_chunk *chunk = chunk_at(world, table, c);

		if (chunk && chunk->version & 1)
			world_fail(world, "odd version", "chunk %u of %s ends at version %llu", c,
				   t->name, (unsigned long long)chunk->version);
		for (uint32_t r = 0; chunk && t->kind == TABLE_STEP && r < world->plan.workers; r++)
			if (!world->ranks[r].dead &&
			    chunk->steps < world->tables[table].certain[c * world->plan.workers + r])
				world_fail(world, "lost step",
					   "chunk %u of %s ends at step %llu, rank %u has pushed %u",
					   c, t->name, (unsigned long long)chunk->steps, r,
					   world->tables[table].certain[c * world->plan.workers + r]);
	}
}

static void end_rings(struct world *world, uint32_t s)
{
	const struct core_arena *arena = world->hosts[s].seen;
	const struct core_header *header = core_arena_header(arena);
	const struct core_rank *ranks = core_arena_at(arena, CORE_PUBLISHED, header->ranks_offset);
	const struct core_rank_words *words = core_arena_at(arena, CORE_WORDS, header->rank_words_offset);

	for (uint32_t r = 0; r < world->plan.workers; r++) {
		world->totals->events[EVENT_DROPPED] += ranks[r].dropped;
		if (world_state(world, s, r) == CORE_LEFT && ranks[r].head != words[r].tail)
			world_fail(world, "ring",
				   "server %u: rank %u left at tail %llu, consumed up to %llu", s, r,
				   (unsigned long long)words[r].tail, (unsigned long long)ranks[r].head);
	}
}

void oracle_end(struct world *world)
{
	uint64_t missing[MAX_WORKERS] = { 0 };

	oracle_fences(world);
	for (uint32_t table = 0; table < world->plan.tables; table++) {
		enum table_kind kind = plan_of(world, table)->kind;

		if (kind == TABLE_PART)
			end_sums(world, table);
		else if (kind != TABLE_STEP)
			end_counts(world, table, missing);
		end_rest(world, table);
		end_chunks(world, table);
	}
	for (uint32_t r = 0; r < world->plan.workers; r++)
		if (!world->ranks[r].dead && missing[r] > world->ranks[r].unknown)
			world_fail(world, "unreported loss",
				   "%llu additions of rank %u have not landed, it was told of %llu in doubt",
				   (unsigned long long)missing[r], r,
				   (unsigned long long)world->ranks[r].unknown);
	for (uint32_t s = 0; s < world->plan.servers; s++)
		end_rings(world, s);
}

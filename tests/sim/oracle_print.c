/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of the servers' memory, for whoever looks into a failure. */
#include "harness.h"

static const char *const states[] = { "absent", "live", "left", "dead" };

static void print_ranks(struct world *world, uint32_t s, FILE *to)
{
	const struct core_arena *arena = world->hosts[s].seen;
	const struct core_header *h = core_arena_header(arena);
	const struct core_rank *ranks = core_arena_at(arena, CORE_PUBLISHED, h->ranks_offset);
	const struct core_rank_words *words = core_arena_at(arena, CORE_WORDS, h->rank_words_offset);
	const uint64_t *state = core_arena_at(arena, CORE_PUBLISHED, h->states_offset);

	fprintf(to, "server %u: %s, life %llu%s\n", s, world->hosts[s].up ? "up" : "down",
		(unsigned long long)h->lives, h->asleep ? ", asleep" : "");
	for (uint32_t r = 0; r < world->plan.workers; r++)
		fprintf(to, "  rank %u: %-6s incarnation %u, ring %llu to %llu, %llu applied, %llu dropped; %s %s\n",
			r, states[core_state_of(state[r]) & 3], core_incarnation_of(state[r]),
			(unsigned long long)ranks[r].head, (unsigned long long)words[r].tail,
			(unsigned long long)ranks[r].applied, (unsigned long long)ranks[r].dropped,
			world->ranks[r].in_call ? "in" : "after", call_names[world->ranks[r].call]);
}

static void print_entries(struct world *world, uint32_t s, FILE *to)
{
	const struct core_arena *arena = world->hosts[s].seen;
	const struct core_header *h = core_arena_header(arena);
	const struct core_entry *e = core_arena_at(arena, CORE_PUBLISHED, h->entries_offset);

	for (uint64_t i = 0; i < h->entries; i++, e++) {
		const struct core_chunk *chunks = core_arena_at(arena, CORE_PUBLISHED,
								e->table.chunks_offset);
		const struct core_node *nodes = core_arena_at(arena, CORE_WORDS, e->barrier.nodes_offset);
		const uint64_t *counts = core_arena_at(arena, CORE_WORDS, e->clock.words_offset);

		fprintf(to, "  %s%s:", e->name, e->state == CORE_READY ? "" : " (not ready)");
		if (e->kind == CORE_BARRIER)
			fprintf(to, " root %llx", (unsigned long long)nodes[0].word);
		for (uint32_t r = 0; e->kind == CORE_CLOCK && r < world->plan.workers; r++)
			fprintf(to, " %llu", (unsigned long long)counts[r]);
		for (uint64_t c = 0; e->kind == CORE_TABLE && e->table.mode == RAMPS_SLOTS &&
				     c * e->table.chunk_elements < e->table.elements;
		     c++)
			fprintf(to, " chunk %llu at version %llu, step %llu", (unsigned long long)c,
				(unsigned long long)chunks[c].version,
				(unsigned long long)chunks[c].steps);
		fprintf(to, "\n");
	}
}

void oracle_print(struct world *world, FILE *to)
{
	for (uint32_t s = 0; s < world->plan.servers; s++) {
		if (!world->hosts[s].seen)
			continue;
		print_ranks(world, s, to);
		print_entries(world, s, to);
	}
}

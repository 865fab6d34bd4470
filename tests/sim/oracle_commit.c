/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server has just done to a chunk, seen at the moment of its commit point, when the undo copy
 * still has what was there before.
 */
#include <math.h>
#include <string.h>

#include "harness.h"
#include "ps/ps_private.h"

struct commit {
	struct world *world;
	struct ps_server *ps;
	const struct ps_table *table;
	const struct plan_table *plan;
	struct table_state *state;
	const float *before, *now;
	uint32_t chunk, values; /* chunk: of the whole table */
	uint64_t step;
};

static bool commit_of(struct host *host, struct commit *c)
{
	struct ps_server *ps = host->ps;
	const struct core_private *undo = ps->undo;
	struct world *world = host->world;
	uint64_t key;

	if (!undo->valid)
		return false;
	c->table = ps->tables[undo->entry];
	if (c->table->chunks[undo->chunk].version != undo->version + 2)
		return false;
	key = (undo->version + 2) << 24 | (uint64_t)undo->entry << 12 | undo->chunk;
	if (key == host->checked)
		return false;
	host->checked = key;
	c->world = world;
	c->ps = ps;
	c->plan = NULL;
	for (uint32_t i = 0; i < world->plan.tables; i++)
		if (!strcmp(world->plan.table[i].name, c->table->entry->name)) {
			c->plan = &world->plan.table[i];
			c->state = &world->tables[i];
		}
	if (!c->plan)
		return false;
	c->before = core_arena_at(ps->arena, CORE_PRIVATE, undo->undo_data_offset);
	c->now = c->table->data + (uint64_t)undo->chunk * c->plan->chunk_elements + undo->first;
	c->values = undo->count;
	c->step = undo->steps;
	c->chunk = (uint32_t)(c->table->shape->first_element / c->plan->chunk_elements) + undo->chunk;
	return true;
}

static void check_one(struct commit *c, uint32_t rank)
{
	uint32_t workers = c->world->plan.workers;

	for (uint32_t i = 0; i < c->values; i++) {
		float wanted = c->plan->kind == TABLE_WHOLE && i < workers && i != rank ? 0 : 1;

		if (c->before[i] - c->now[i] == wanted)
			continue;
		world_fail(c->world, "update",
			   "a push of rank %u changed value %u of chunk %u of %s by %g, not %g",
			   rank, i, c->chunk, c->plan->name, (double)(c->before[i] - c->now[i]),
			   (double)wanted);
		return;
	}
}

static void check_needed(struct commit *c, uint32_t rank, bool is_there)
{
	uint32_t at = c->chunk * c->world->plan.workers + rank;
	uint32_t state = ps_state(c->ps, rank);

	if (is_there) {
		if (c->state->attempted[at] <= c->step)
			world_fail(c->world, "step from nowhere",
				   "step %llu of chunk %u of %s has a push of rank %u, which made none",
				   (unsigned long long)c->step, c->chunk, c->plan->name, rank);
		return;
	}
	world_event(c->world, EVENT_STEP_WITHOUT);
	if (!ps_is_excused(c->ps, state))
		world_fail(c->world, "step too early",
			   "step %llu of chunk %u of %s was taken without rank %u, which is needed",
			   (unsigned long long)c->step, c->chunk, c->plan->name, rank);
	else if (c->state->certain[at] > c->step)
		world_fail(c->world, "step without a push",
			   "step %llu of chunk %u of %s has no push of rank %u, which was told it had landed",
			   (unsigned long long)c->step, c->chunk, c->plan->name, rank);
}

static void check_value(struct commit *c, uint32_t i, const bool *is_there, uint32_t n)
{
	uint32_t workers = c->world->plan.workers;
	float sum = 0, scale = -STEP_RATE / (float)n;
	bool first = true;

	for (uint32_t r = 0; r < workers; r++) {
		float value = step_value(i, workers, r, c->step);

		if (!is_there[r])
			continue;
		sum = first ? value : sum + value;
		first = false;
	}
	if (c->now[i] == fmaf(scale, sum, c->before[i]) || c->now[i] == c->before[i] + scale * sum)
		return;
	world_fail(c->world, i == 2 * workers ? "order of a sum" : "step",
		   "step %llu of chunk %u of %s: value %u went from %.9g to %.9g; %u ranks pushed %.9g",
		   (unsigned long long)c->step, c->chunk, c->plan->name, i, (double)c->before[i],
		   (double)c->now[i], n, (double)sum);
}

static void check_step(struct commit *c)
{
	uint32_t workers = c->world->plan.workers, n = 0;
	bool is_there[MAX_WORKERS] = { false };

	for (uint32_t r = 0; r < workers; r++) {
		is_there[r] = c->before[r] != c->now[r];
		n += is_there[r];
	}
	for (uint32_t r = 0; r < workers; r++)
		check_needed(c, r, is_there[r]);
	for (uint32_t i = 0; i < c->values && !c->world->verdict.failed; i++)
		check_value(c, i, is_there, n);
}

void oracle_commit(struct host *host)
{
	uint64_t version;
	struct commit c;

	if (!host->ps || !commit_of(host, &c))
		return;
	version = c.ps->undo->version + 2;
	if (version <= c.state->version[c.chunk] && c.state->version[c.chunk])
		world_fail(c.world, "version back", "chunk %u of %s goes from version %llu to %llu",
			   c.chunk, c.plan->name, (unsigned long long)c.state->version[c.chunk],
			   (unsigned long long)version);
	c.state->version[c.chunk] = version;
	if (c.table->chunks[c.ps->undo->chunk].steps != c.step + 1)
		world_fail(c.world, "steps", "chunk %u of %s goes from step %llu to %llu", c.chunk,
			   c.plan->name, (unsigned long long)c.step,
			   (unsigned long long)c.table->chunks[c.ps->undo->chunk].steps);
	if (c.plan->kind == TABLE_STEP)
		check_step(&c);
	else
		check_one(&c, c.ps->undo->first_rank);
}

/* A server that begins again has no chunk in change, and none whose version has gone back. */
void oracle_started(struct host *host)
{
	struct world *world = host->world;

	for (uint64_t i = 0; i < host->ps->header->entries; i++) {
		const struct ps_table *t = host->ps->tables[i];

		for (uint32_t k = 0; t && k < world->plan.tables; k++) {
			struct table_state *state = &world->tables[k];
			const struct plan_table *plan = &world->plan.table[k];

			if (strcmp(plan->name, t->entry->name) != 0)
				continue;
			for (uint32_t c = 0; c < t->chunk_count; c++) {
				uint64_t at = t->shape->first_element / plan->chunk_elements + c;
				uint64_t version = t->chunks[c].version;

				if (version & 1 || version < state->version[at])
					world_fail(world, "version back",
						   "server %u started again: chunk %u of %s at version %llu, was %llu",
						   host->number, (unsigned)at, plan->name,
						   (unsigned long long)version,
						   (unsigned long long)state->version[at]);
				state->version[at] = version;
			}
		}
	}
}

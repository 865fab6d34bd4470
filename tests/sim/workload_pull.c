/* SPDX-License-Identifier: BSD-2-Clause */
/* Pulls, and whether what they bring can have been there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

bool work_make_pull(struct actor *actor, struct pull *pull)
{
	const struct plan *plan = &actor->world->plan;
	uint64_t *rng = &actor->rank->rng;
	const struct table_state *state;
	const struct plan_table *t;
	uint32_t block;

	if (!plan->tables)
		return false;
	memset(pull, 0, offsetof(struct pull, at));
	pull->index = (uint32_t)draw(rng, plan->tables);
	t = &plan->table[pull->index];
	state = &actor->world->tables[pull->index];
	pull->how = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
	if (t->kind >= TABLE_WHOLE) {
		pull->snapshot = draw(rng, 4) != 0;
		pull->rows = t->rows;
		for (uint32_t i = 0; i < t->chunks; i++)
			pull->at[pull->n++] = (uint16_t)i;
	} else {
		block = (uint32_t)draw(rng, t->blocks);
		pull->first_row = draw(rng, t->block_rows);
		pull->rows = 1 + draw(rng, t->block_rows - pull->first_row);
		pull->first = (block * t->block_rows + (uint32_t)pull->first_row) * t->dim;
		pull->first_row += t->block_first[block];
		for (uint64_t i = 0; i < pull->rows * t->dim; i++)
			pull->at[pull->n++] = (uint16_t)(pull->first + i);
		pull->snapshot = t->kind == TABLE_PART && draw(rng, 2);
	}
	if (t->kind <= TABLE_FIXED && draw(rng, 2)) {
		pull->row_ids = malloc(pull->rows * sizeof(*pull->row_ids));
		for (uint64_t i = 0; i < pull->rows; i++)
			pull->row_ids[i] = pull->first_row + i;
	}
	pull->how.read = pull->snapshot ? RAMPS_SNAPSHOT : RAMPS_RELAXED;
	pull->data = calloc(pull->rows * t->dim, 8);
	for (uint32_t i = 0; i < pull->n; i++)
		for (uint32_t r = 0; r < plan->workers; r++)
			pull->certain[i * plan->workers + r] = state->certain[pull->at[i] * plan->workers + r];
	return true;
}

void work_free_pull(struct pull *pull)
{
	free(pull->data);
	free(pull->row_ids);
}

static void check_bounds(struct actor *actor, struct pull *pull, uint32_t i, uint32_t rank, uint64_t count)
{
	struct world *world = actor->world;
	uint32_t workers = world->plan.workers;
	const struct table_state *state = &world->tables[pull->index];
	uint32_t least = pull->certain[i * workers + rank];
	uint32_t most = state->attempted[pull->at[i] * workers + rank];

	/* landed is not applied: of slots only what is in the weights counts */
	if (world->plan.table[pull->index].kind >= TABLE_PART)
		least = 0;
	if (count < least || count > most)
		world_fail(world, "pulled count",
			   "rank %u pulled %llu pushes of rank %u at %u of %s: %u had to be there, %u "
			   "were begun",
			   actor->rank->number, (unsigned long long)count, rank, pull->at[i],
			   world->plan.table[pull->index].name, least, most);
}

static void check_lanes(struct actor *actor, struct pull *pull)
{
	const struct plan_table *t = &actor->world->plan.table[pull->index];
	uint32_t workers = actor->world->plan.workers;
	uint32_t bytes = t->kind == TABLE_INT ? 8 : 4;

	for (uint32_t i = 0; i < pull->n; i++)
		for (uint32_t r = 0; r < workers; r++)
			check_bounds(actor, pull, i, r,
				     oracle_lane(t, (char *)pull->data + (uint64_t)i * bytes, r));
}

static void check_part(struct actor *actor, struct pull *pull)
{
	struct world *world = actor->world;
	const struct plan_table *t = &world->plan.table[pull->index];
	const struct table_state *state = &world->tables[pull->index];
	uint32_t workers = world->plan.workers;

	for (uint32_t i = 0; i < pull->n; i++) {
		float start = t->initial ? START_PART : 0, count = start - ((float *)pull->data)[i];
		uint64_t most = 0;

		for (uint32_t r = 0; r < workers; r++)
			most += state->attempted[pull->at[i] * workers + r];
		if (!(count >= 0) || count > (float)most || count != (float)(uint64_t)count)
			world_fail(world, "pulled sum",
				   "rank %u pulled %g at %u of %s: %llu pushes were begun",
				   actor->rank->number, (double)((float *)pull->data)[i],
				   pull->at[i], t->name, (unsigned long long)most);
	}
}

/* A chunk is as of one step: all its values say the same one, which is not before the last seen. */
static void check_torn(struct actor *actor, struct pull *pull, uint32_t chunk, uint64_t *least)
{
	struct world *world = actor->world;
	const struct plan_table *t = &world->plan.table[pull->index];
	uint32_t first = t->kind == TABLE_STEP ? 2 * world->plan.workers + 1 : world->plan.workers;
	uint64_t begin = (uint64_t)chunk * t->chunk_elements, end = begin + t->chunk_elements;
	float start = t->initial ? START_PART : 0, one;
	const float *data = pull->data;
	uint64_t steps;

	if (end > t->rows)
		end = t->rows;
	one = data[begin + first];
	for (uint64_t i = begin + first; i < end; i++)
		if (data[i] != one) {
			world_fail(world, "torn snapshot",
				   "rank %u: chunk %u of %s has %g at %llu and %g at %u",
				   actor->rank->number, chunk, t->name, (double)data[i],
				   (unsigned long long)(i - begin), (double)one, first);
			return;
		}
	steps = (uint64_t)((start - one) / (t->kind == TABLE_STEP ? STEP_RATE : 1.0f));
	if (steps < actor->seen[pull->index][chunk])
		world_fail(world, "snapshot back", "rank %u: chunk %u of %s at step %llu, after %llu",
			   actor->rank->number, chunk, t->name, (unsigned long long)steps,
			   (unsigned long long)actor->seen[pull->index][chunk]);
	actor->seen[pull->index][chunk] = steps;
	if (steps < *least)
		*least = steps;
}

static void check_whole(struct actor *actor, struct pull *pull)
{
	struct world *world = actor->world;
	const struct plan_table *t = &world->plan.table[pull->index];
	float start = t->initial ? START_PART : 0;
	uint64_t least = UINT64_MAX;

	for (uint32_t chunk = 0; chunk < t->chunks; chunk++) {
		const float *data = (float *)pull->data + (uint64_t)chunk * t->chunk_elements;

		for (uint32_t r = 0; r < world->plan.workers && t->kind == TABLE_WHOLE; r++)
			check_bounds(actor, pull, chunk, r, (uint64_t)(start - data[r]));
		if (pull->snapshot)
			check_torn(actor, pull, chunk, &least);
	}
	if (pull->snapshot && least != pull->how.steps)
		world_fail(world, "snapshot steps", "rank %u: %s says %llu steps, its values %llu",
			   actor->rank->number, t->name, (unsigned long long)pull->how.steps,
			   (unsigned long long)least);
}

void work_check_pull(struct actor *actor, struct pull *pull)
{
	switch (actor->world->plan.table[pull->index].kind) {
	case TABLE_INT:
	case TABLE_FIXED:
		check_lanes(actor, pull);
		break;
	case TABLE_PART:
		check_part(actor, pull);
		break;
	default:
		check_whole(actor, pull);
	}
}

static int pull_once(struct actor *actor, struct pull *pull, int timeout_ms)
{
	struct ramps_table *table = actor->table[pull->index];

	if (pull->row_ids)
		return CALL(actor, CALL_PULL_ROWS, timeout_ms,
			    ramps_table_pull_rows(table, pull->row_ids, pull->rows, pull->data,
						  &pull->how, timeout_ms));
	return CALL(actor, pull->snapshot ? CALL_SNAPSHOT : CALL_PULL, timeout_ms,
		    ramps_table_pull(table, pull->first_row, pull->rows, pull->data, &pull->how,
				     timeout_ms));
}

void work_pull(struct actor *actor)
{
	struct pull pull;
	int ret;

	if (!work_make_pull(actor, &pull))
		return;
	do {
		ret = pull_once(actor, &pull, actor_timeout(actor));
	} while (ret != -EAGAIN && call_again(actor, ret));
	if (!ret)
		work_check_pull(actor, &pull);
	work_free_pull(&pull);
}

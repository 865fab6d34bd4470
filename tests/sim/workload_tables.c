/* SPDX-License-Identifier: BSD-2-Clause */
/* Pushes, and the flush after those that were only posted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

void work_free_push(struct push *push)
{
	memset(push->data, 0xdb, push->data_bytes); /* whoever still reads it pushes rubbish */
	free(push->data);
	free(push->row_ids);
	free(push);
}

struct push *work_keep_push(const struct push *push)
{
	struct push *kept = malloc(sizeof(*kept));

	*kept = *push;
	return kept;
}

static uint32_t hot_per_row(const struct plan_table *t)
{
	return t->dim;
}

/* A value of element `hot` as one push of this rank adds it. */
static void put_value(const struct plan_table *t, uint32_t rank, struct push *push, uint64_t at)
{
	float *floats = push->data;

	switch (t->kind) {
	case TABLE_INT:
		((int64_t *)push->data)[at] = (int64_t)(1ull << LANE_BITS * rank);
		break;
	case TABLE_FIXED:
		floats[at] = (float)(1u << LANE_BITS * rank) / (1u << FIXED_DOWN);
		break;
	default:
		floats[at] = push->how.weight;
	}
}

/* Rows of one block, or here and there. */
static void choose_rows(struct actor *actor, const struct plan_table *t, struct push *push)
{
	uint64_t *rng = &actor->rank->rng;
	uint32_t block = (uint32_t)draw(rng, t->blocks), dim = hot_per_row(t);

	if (t->kind <= TABLE_FIXED && draw(rng, 2)) {
		push->rows = 1 + draw(rng, 6);
		push->row_ids = malloc(push->rows * sizeof(*push->row_ids));
		for (uint64_t i = 0; i < push->rows; i++) {
			uint32_t row = (uint32_t)draw(rng, t->block_rows);

			block = (uint32_t)draw(rng, t->blocks);
			push->row_ids[i] = t->block_first[block] + row;
			for (uint32_t k = 0; k < dim; k++)
				push->at[push->n++] = (uint16_t)((block * t->block_rows + row) * dim + k);
		}
		return;
	}
	push->first_row = draw(rng, t->block_rows);
	push->rows = 1 + draw(rng, t->block_rows - push->first_row);
	for (uint64_t i = 0; i < push->rows * dim; i++)
		push->at[push->n++] = (uint16_t)((block * t->block_rows + push->first_row) * dim + i);
	push->first_row += t->block_first[block];
}

static void whole_values(const struct plan *plan, const struct plan_table *t, uint32_t rank,
			 struct push *push)
{
	float *floats = push->data;

	push->rows = t->rows;
	for (uint64_t i = 0; i < t->rows; i++) {
		uint32_t position = (uint32_t)(i % t->chunk_elements);

		floats[i] = position < plan->workers && position != rank ? 0 : push->how.weight;
	}
	for (uint32_t chunk = 0; chunk < t->chunks; chunk++)
		push->at[push->n++] = (uint16_t)chunk;
}

/* Chooses a push to any table but a synchronous one. */
bool work_make_push(struct actor *actor, struct push *push)
{
	const struct plan *plan = &actor->world->plan;
	uint64_t *rng = &actor->rank->rng;
	const struct plan_table *t;
	uint32_t rank = actor->rank->number;

	if (!plan->tables)
		return false;
	memset(push, 0, offsetof(struct push, at));
	push->index = (uint32_t)draw(rng, plan->tables);
	t = &plan->table[push->index];
	if (t->kind == TABLE_STEP)
		return false;
	push->table = actor->table[push->index];
	push->how = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
	push->how.level = (uint32_t)(draw(rng, 3) ? RAMPS_LANDED : RAMPS_APPLIED);
	push->how.weight = (float)(1 + draw(rng, 2));
	if (t->kind == TABLE_WHOLE) {
		push->data_bytes = t->rows * sizeof(float);
		push->data = malloc(push->data_bytes);
		whole_values(plan, t, rank, push);
		return true;
	}
	choose_rows(actor, t, push);
	push->data_bytes = (uint64_t)push->n * 8;
	push->data = malloc(push->data_bytes);
	for (uint32_t i = 0; i < push->n; i++) {
		if (oracle_full(actor->world, push->index, push->at[i], rank)) {
			free(push->data);
			free(push->row_ids);
			return false;
		}
		put_value(t, rank, push, i);
	}
	return true;
}

static int push_once(struct actor *actor, struct push *push, int timeout_ms)
{
	if (push->row_ids)
		return CALL(actor, CALL_PUSH_ROWS, timeout_ms,
			    ramps_table_push_rows(push->table, push->row_ids, push->rows,
						  push->data, &push->how, timeout_ms));
	return CALL(actor, CALL_PUSH, timeout_ms,
		    ramps_table_push(push->table, push->first_row, push->rows, push->data,
				     &push->how, timeout_ms));
}

/* After a call that failed its memory is the caller's: the next try is made from elsewhere. */
static void move_data(struct push *push)
{
	void *moved = malloc(push->data_bytes);

	memcpy(moved, push->data, push->data_bytes);
	memset(push->data, 0xdb, push->data_bytes);
	free(push->data);
	push->data = moved;
}

/* Pushes until it is done, as often as it takes; what it then has come to is noted. */
int work_push_run(struct actor *actor, struct push *push)
{
	uint32_t rank = actor->rank->number;
	int ret;

	oracle_attempt(actor->world, rank, push);
	do {
		ret = push_once(actor, push, actor_timeout(actor));
		if (ret == -EIO) {
			push->in_doubt = true;
			actor->rank->unknown += push->how.unknown_ops;
			world_event(actor->world, EVENT_UNKNOWN);
		} else if (ret < 0) {
			world_event(actor->world, EVENT_RESUMED);
		}
		if (ret < 0 && push->how.level != RAMPS_POSTED)
			move_data(push);
	} while (call_again(actor, ret));
	if (push->how.level == RAMPS_POSTED || ret) {
		push->next = actor->posted; /* its memory stays as it is */
		actor->posted = push;
		push->in_doubt |= ret != 0;
		return ret;
	}
	if (!push->in_doubt)
		oracle_certain(actor->world, rank, push);
	work_free_push(push);
	return 0;
}

void work_push(struct actor *actor)
{
	struct push made, *push = &made;

	if (!work_make_push(actor, push))
		return;
	push = work_keep_push(push);
	if (draw_chance(&actor->rank->rng, actor->world->plan.posted))
		push->how.level = RAMPS_POSTED;
	work_push_run(actor, push);
}

void work_flush(struct actor *actor)
{
	uint32_t level = draw(&actor->rank->rng, 2) ? RAMPS_LANDED : RAMPS_APPLIED;
	int ret;

	do {
		int timeout_ms = actor_timeout(actor);

		ret = CALL(actor, CALL_FLUSH, timeout_ms,
			   ramps_worker_flush(actor->worker, level, timeout_ms));
		if (ret == -EIO)
			actor_unsettled(actor);
	} while (call_again(actor, ret));
	if (ret)
		return;
	actor_settled(actor);
	if (level == RAMPS_APPLIED)
		oracle_own_applied(actor);
}

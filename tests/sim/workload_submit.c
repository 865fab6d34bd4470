/* SPDX-License-Identifier: BSD-2-Clause */
/* Many operations at once: submitted together, reaped in any order, each exactly once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define BATCH 8u

struct item {
	struct push *push;
	struct pull *pull;
	bool reaped;
};

struct batch {
	uint32_t count, left;
	struct item items[BATCH];
	struct ramps_op ops[BATCH];
};

static bool make_push(struct actor *actor, struct item *item, struct ramps_op *op)
{
	struct push push;

	if (!work_make_push(actor, &push))
		return false;
	item->push = work_keep_push(&push);
	op->kind = push.row_ids ? RAMPS_PUSH_ROWS : RAMPS_PUSH;
	op->table = push.table;
	op->first_row = push.first_row;
	op->rows = push.rows;
	op->row_ids = push.row_ids;
	op->data = push.data;
	op->transfer = push.how;
	oracle_attempt(actor->world, actor->rank->number, item->push);
	return true;
}

static bool make_pull(struct actor *actor, struct item *item, struct ramps_op *op)
{
	struct pull *pull = malloc(sizeof(*pull));

	if (!work_make_pull(actor, pull)) {
		free(pull);
		return false;
	}
	item->pull = pull;
	op->kind = pull->row_ids ? RAMPS_PULL_ROWS : RAMPS_PULL;
	op->table = actor->table[pull->index];
	op->first_row = pull->first_row;
	op->rows = pull->rows;
	op->row_ids = pull->row_ids;
	op->data = pull->data;
	op->transfer = pull->how;
	return true;
}

void work_free_batch(struct actor *actor)
{
	struct batch *batch = actor->batch;

	if (!batch)
		return;
	for (uint32_t i = 0; i < batch->count; i++) {
		if (batch->items[i].push)
			work_free_push(batch->items[i].push);
		if (batch->items[i].pull) {
			work_free_pull(batch->items[i].pull);
			free(batch->items[i].pull);
		}
	}
	free(batch);
	actor->batch = NULL;
}

static void item_done(struct actor *actor, struct item *item, const struct ramps_done *done)
{
	struct world *world = actor->world;
	struct push *push = item->push;

	if (item->pull) {
		item->pull->how.steps = done->steps;
		if (!done->status)
			work_check_pull(actor, item->pull);
		return;
	}
	if (!done->status) {
		oracle_certain(world, actor->rank->number, push);
		return;
	}
	/* what it was to add and did not is not known: no more than all of it */
	actor->rank->unknown += push->n;
	actor->rank->cut_off = true;
	if (done->status == -EIO)
		world_event(world, EVENT_UNKNOWN);
}

static void take(struct actor *actor, const struct ramps_done *done)
{
	struct batch *batch = actor->batch;
	struct item *item = &batch->items[done->tag % BATCH];

	if (done->tag >= batch->count || item->reaped) {
		world_fail(actor->world, "reaped twice", "rank %u: operation %llu was reaped %s",
			   actor->rank->number, (unsigned long long)done->tag,
			   done->tag < batch->count ? "twice" : "and never submitted");
		return;
	}
	item->reaped = true;
	batch->left--;
	item_done(actor, item, done);
}

static int reap(struct actor *actor)
{
	struct ramps_done done[3];
	int timeout_ms = actor_timeout(actor);
	int ret = CALL(actor, CALL_REAP, timeout_ms,
		       ramps_worker_reap(actor->worker, done, 3, timeout_ms));

	for (int i = 0; i < ret; i++)
		take(actor, &done[i]);
	if (ret == 0)
		world_fail(actor->world, "lost request", "rank %u: reap says that none of %u is under way",
			   actor->rank->number, actor->batch->left);
	return ret;
}

void work_submit(struct actor *actor)
{
	struct batch *batch = calloc(1, sizeof(*batch));
	uint32_t wanted = 1 + (uint32_t)draw(&actor->rank->rng, BATCH), taken = 0;
	int ret;

	actor->batch = batch;
	for (uint32_t i = 0; i < wanted; i++) {
		struct ramps_op *op = &batch->ops[batch->count];
		struct item *item = &batch->items[batch->count];

		*op = (struct ramps_op){ .tag = batch->count };
		op->flags = draw(&actor->rank->rng, 4) ? 0 : RAMPS_OP_FOLLOW;
		batch->count += draw(&actor->rank->rng, 2) ? make_push(actor, item, op) :
							     make_pull(actor, item, op);
	}
	batch->left = batch->count;
	while (taken < batch->count && !actor->ended) {
		ret = CALL(actor, CALL_SUBMIT, 0,
			   ramps_worker_submit(actor->worker, batch->ops + taken, batch->count - taken));
		taken += ret > 0 ? (uint32_t)ret : 0;
		call_again(actor, ret);
	}
	while (batch->left && !actor->ended && !actor->world->verdict.failed)
		call_again(actor, reap(actor));
	if (!batch->left)
		work_free_batch(actor);
}

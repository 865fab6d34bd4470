/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker's process. A life joins, opens what the plan has, and goes on with the rounds where the
 * rank was; one that is fenced, or leaves for a while, is followed by the next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "worker/worker_private.h"

static int join(struct actor *actor)
{
	struct world *world = actor->world;
	const char *addresses[MAX_SERVERS];
	struct worker_join_options options = {
		.addresses = addresses,
		.servers = world->plan.servers,
		.job = "sim",
		.rank = actor->rank->number,
		.workers = world->plan.workers,
		.timeout_ms = 5000,
	};
	struct fabric *fabric;
	int ret;

	for (uint32_t s = 0; s < world->plan.servers; s++)
		addresses[s] = world->hosts[s].address;
	ret = sim_open_fabric(&fabric);
	if (ret) {
		world_fail(world, "error", "rank %u: no fabric: %d", actor->rank->number, ret);
		return ret;
	}
	do {
		struct clock_view others;

		if (world->verdict.failed)
			break;
		work_clock_view(world, actor->rank->number, &others);
		ret = CALL(actor, CALL_JOIN, options.timeout_ms,
			   worker_join(fabric, &options, &actor->worker));
		if (ret)
			sim_pause(1 + draw(&actor->rank->rng, 5 * NS_PER_MS));
		else
			work_clock_check(world, actor->rank->number, &others);
	} while (ret == -EADDRINUSE || ret == -ECONNREFUSED || ret == -ETIMEDOUT ||
		 ret == -ENOTCONN || ret == -ESTALE || ret == -EAGAIN);
	if (ret)
		fabric_close(fabric);
	if (ret && !world->verdict.failed)
		world_fail(world, "error", "rank %u: join returned %d: %s", actor->rank->number,
			   ret, ramps_last_error()->text);
	return ret;
}

static void begin_life(struct actor *actor)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct world *world = actor->world;
	struct rank *rank = actor->rank;

	rank->lives++;
	if (rank->lives > 1) {
		oracle_new_life(world, rank->number);
		sim_count(world->sim, SIM_REBIRTH);
	}
	rank->joined_at = rank->absent_until = sim_now(world->sim);
	rank->worker = actor->worker;
	if (actor->worker)
		actor->worker->member->fan_in = world->plan.fan_in;
	if (CALL(actor, CALL_INFO, 0, ramps_worker_info(actor->worker, &info)) == 0 &&
	    info.incarnation < rank->lives)
		world_fail(world, "incarnation", "rank %u: life %u is incarnation %u", rank->number,
			   rank->lives, info.incarnation);
}

static void schema_of(const struct plan_table *t, struct ramps_schema *schema)
{
	*schema = (struct ramps_schema)RAMPS_SCHEMA_INIT;
	schema->name = t->name;
	schema->rows = t->rows;
	schema->dim = t->dim;
	schema->type = t->kind == TABLE_INT ? RAMPS_INT64 : RAMPS_FLOAT32;
	schema->mode = t->kind <= TABLE_FIXED ? RAMPS_DIRECT : RAMPS_SLOTS;
	schema->fraction_bits = FIXED_BITS;
	schema->synchronous = t->kind == TABLE_STEP;
	schema->rate = t->kind == TABLE_STEP ? STEP_RATE : 1.0f;
}

static void *initial_values(const struct plan_table *t)
{
	uint64_t elements = t->rows * t->dim;
	int64_t *values = malloc(elements * 8);

	for (uint64_t i = 0; i < elements; i++) {
		if (t->kind == TABLE_INT)
			values[i] = (int64_t)START_INT;
		else if (t->kind == TABLE_FIXED)
			((float *)values)[i] = (float)START_FIXED / (1u << FIXED_DOWN);
		else
			((float *)values)[i] = START_PART;
	}
	return values;
}

static bool open_table(struct actor *actor, uint32_t index)
{
	const struct plan_table *t = &actor->world->plan.table[index];
	struct ramps_schema schema;
	void *initial = t->initial ? initial_values(t) : NULL;
	bool create = draw(&actor->rank->rng, 2);
	int ret;

	schema_of(t, &schema);
	schema.initial = initial;
	do {
		int timeout_ms = (int)draw(&actor->rank->rng, 30);

		if (create)
			ret = CALL(actor, CALL_CREATE, -1,
				   ramps_table_create(actor->worker, &schema, &actor->table[index]));
		else
			ret = CALL(actor, CALL_OPEN, timeout_ms,
				   ramps_table_open(actor->worker, t->name, NULL, timeout_ms,
						    &actor->table[index]));
		create |= ret == -ETIMEDOUT || ret == -EOWNERDEAD || ret == -ENOENT;
	} while (ret == -ENOENT || call_again(actor, ret));
	free(initial);
	return ret == 0;
}

static void open_barrier(struct actor *actor, uint32_t which)
{
	struct world *world = actor->world;
	uint32_t ranks[MAX_WORKERS];
	struct ramps_group group = { .ranks = ranks };
	int ret;

	for (uint32_t r = 0; r < world->plan.workers; r++)
		if (world->plan.group_mask >> r & 1)
			ranks[group.count++] = r;
	do {
		ret = CALL(actor, CALL_BARRIER_OPEN, -1,
			   ramps_barrier_open(actor->worker, which ? "group" : "all",
					      which ? &group : NULL, &actor->barrier[which]));
	} while (call_again(actor, ret));
}

static void open_clock(struct actor *actor)
{
	int ret;

	do {
		ret = CALL(actor, CALL_CLOCK_OPEN, -1,
			   ramps_clock_open(actor->worker, "clock", &actor->clock));
	} while (call_again(actor, ret));
}

static void open_all(struct actor *actor)
{
	const struct plan *plan = &actor->world->plan;

	for (uint32_t i = 0; i < plan->tables && !actor->ended; i++)
		open_table(actor, i);
	if (plan->barrier && !actor->ended)
		open_barrier(actor, 0);
	if (plan->group && plan->group_mask >> actor->rank->number & 1 && !actor->ended)
		open_barrier(actor, 1);
	if (plan->clock && !actor->ended)
		open_clock(actor);
}

static void one_operation(struct actor *actor)
{
	const struct plan *plan = &actor->world->plan;
	uint64_t *rng = &actor->rank->rng;

	if (plan->think_ns)
		sim_pause(draw(rng, plan->think_ns));
	if (draw_chance(rng, plan->submit)) {
		work_submit(actor);
		return;
	}
	switch (draw(rng, 12)) {
	case 0:
		work_flush(actor);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		work_pull(actor);
		break;
	default:
		work_push(actor);
	}
}

static void one_round(struct actor *actor)
{
	struct world *world = actor->world;
	struct rank *rank = actor->rank;
	/* who came back late has little time for its own */
	uint32_t ops = rank->round + 1 < world->rounds_begun ? 1 : world->plan.ops;

	if (world->rounds_begun <= rank->round)
		world->rounds_begun = rank->round + 1;
	for (uint32_t i = 0; i < ops && !actor->ended; i++)
		one_operation(actor);
	if (!actor->ended)
		work_steps(actor);
	if (actor->barrier[0] && !actor->ended)
		work_barrier(actor, 0);
	if (actor->barrier[1] && !actor->ended)
		work_barrier(actor, 1);
	if (actor->clock && !actor->ended)
		work_clock(actor);
	actor->ended |= world->verdict.failed;
}

static void leave(struct actor *actor)
{
	int ret;

	actor->rank->absent_until = BASE_FOREVER;
	do {
		int timeout_ms = actor_timeout(actor);

		ret = CALL(actor, CALL_LEAVE, timeout_ms, ramps_worker_leave(actor->worker, timeout_ms));
		if (ret == -EIO)
			actor_unsettled(actor);
	} while (call_again(actor, ret));
	if (ret)
		return;
	actor_settled(actor);
	world_event(actor->world, EVENT_LEFT);
}

static void end_life(struct actor *actor)
{
	actor->rank->worker = NULL;
	actor->rank->cut_off |= actor->fenced;
	actor->rank->absent_until = BASE_FOREVER;
	if (actor->fenced)
		world_event(actor->world, EVENT_FENCED_ALIVE);
	for (uint32_t i = 0; i < MAX_TABLES && !actor->batch && !actor->ended; i++)
		ramps_table_close(actor->table[i]);
	call_begin(actor, CALL_CLOSE, 0);
	ramps_worker_close(actor->worker);
	call_end(actor, 0);
	for (uint32_t i = 0; i < MAX_TABLES && (actor->batch || actor->ended); i++)
		ramps_table_close(actor->table[i]);
	ramps_barrier_close(actor->barrier[0]);
	ramps_barrier_close(actor->barrier[1]);
	ramps_clock_close(actor->clock);
	work_free_batch(actor);
	while (actor->posted) {
		struct push *push = actor->posted;

		actor->posted = push->next;
		work_free_push(push);
	}
}

/* Whether the rank is to have another. */
static bool life(struct rank *rank)
{
	struct world *world = rank->world;
	struct actor *actor = calloc(1, sizeof(*actor));
	bool away = false;

	actor->world = world;
	actor->rank = rank;
	if (join(actor)) {
		free(actor);
		return false;
	}
	begin_life(actor);
	open_all(actor);
	while (rank->round < world->plan.rounds && !actor->ended && !away) {
		one_round(actor);
		rank->round += !actor->ended;
		away = rank->round < world->plan.rounds && draw_chance(&rank->rng, world->plan.leave);
	}
	if (!actor->ended)
		leave(actor);
	end_life(actor);
	away |= actor->fenced;
	free(actor);
	return away && !world->verdict.failed;
}

void actor_main(void *arg)
{
	struct rank *rank = arg;

	while (life(rank)) {
		world_event(rank->world, EVENT_REJOINED);
		sim_pause(1 + draw(&rank->rng, 3 * NS_PER_MS));
	}
	rank->finished = true;
}

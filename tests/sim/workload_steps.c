/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all ranks do together, once a round: a step of each synchronous table, the barriers, the
 * clock. A rank that comes back does of each what its place in it says is still to be done, so
 * that nobody waits for a step that it believes to be over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "worker/worker_private.h"

/*
 * Each rank's value at `position` of a chunk: a one in a place of its own, the step in another, one
 * number that shows the order of a sum, and ones.
 */
float step_value(uint32_t position, uint32_t workers, uint32_t rank, uint64_t step)
{
	if (position < workers)
		return position == rank ? 1 : 0;
	if (position < 2 * workers)
		return position - workers == rank ? (float)(step % 16 + 1) : 0;
	if (position == 2 * workers)
		return (float)((rank * 7919ull + step * 104729ull) % 1000003) * 0.37f;
	return 1;
}

/* Pushes the chunks of the table that are at `least`, all at once where that is all of them. */
static void push_chunks(struct actor *actor, uint32_t index, uint32_t first, uint32_t chunks)
{
	const struct plan *plan = &actor->world->plan;
	const struct plan_table *t = &plan->table[index];
	struct push *push = calloc(1, sizeof(*push));
	uint64_t end = (uint64_t)(first + chunks) * t->chunk_elements;
	float *values;

	push->table = actor->table[index];
	push->index = index;
	push->first_row = (uint64_t)first * t->chunk_elements;
	push->rows = (end < t->rows ? end : t->rows) - push->first_row;
	push->how = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
	push->data_bytes = push->rows * sizeof(float);
	push->data = values = malloc(push->data_bytes);
	for (uint32_t i = 0; i < chunks; i++) {
		push->step[push->n] = push->table->steps->next_step[first + i];
		push->at[push->n++] = (uint16_t)(first + i);
	}
	for (uint64_t i = 0; i < push->rows; i++)
		values[i] = step_value((uint32_t)(i % t->chunk_elements), plan->workers,
				       actor->rank->number, push->step[i / t->chunk_elements]);
	if (draw(&actor->rank->rng, 3) == 0)
		push->how.level = RAMPS_APPLIED;
	else if (draw_chance(&actor->rank->rng, plan->posted))
		push->how.level = RAMPS_POSTED;
	work_push_run(actor, push);
}

static void table_step(struct actor *actor, uint32_t index)
{
	const struct plan_table *t = &actor->world->plan.table[index];
	uint32_t round = actor->rank->round, chunks = t->chunks;

	while (!actor->ended) {
		const uint64_t *next = actor->table[index]->steps->next_step;
		uint32_t i = 0, same = 1;

		while (i < chunks && next[i] > round)
			i++;
		if (i == chunks)
			return;
		while (i + same < chunks && next[i + same] == next[i])
			same++;
		push_chunks(actor, index, i, same);
	}
}

void work_steps(struct actor *actor)
{
	for (uint32_t i = 0; i < actor->world->plan.tables && !actor->ended; i++)
		if (actor->world->plan.table[i].kind == TABLE_STEP)
			table_step(actor, i);
}

static void check_released(struct actor *actor, uint32_t which, uint32_t generation)
{
	struct world *world = actor->world;
	uint64_t opened_at = world->barriers[which].opened_at[generation % 256];

	for (uint32_t r = 0; r < world->plan.workers; r++) {
		if (which && !(world->plan.group_mask >> r & 1))
			continue;
		if (world->ranks[r].begun[which] > generation)
			continue;
		if (world_absent(world, r, opened_at)) {
			world_event(world, EVENT_STAND_IN);
			continue;
		}
		world_fail(world, "left early",
			   "rank %u left generation %u of barrier %u, rank %u has not arrived",
			   actor->rank->number, generation, which, r);
	}
}

static int barrier_call(struct actor *actor, uint32_t which, bool arrive)
{
	struct ramps_barrier *barrier = actor->barrier[which];
	bool flushes = !sync_barrier_arrived(barrier->object->barrier);
	int timeout_ms, ret;

	do {
		timeout_ms = actor_timeout(actor);
		if (arrive)
			ret = CALL(actor, CALL_BARRIER_ARRIVE, timeout_ms,
				   ramps_barrier_arrive(barrier, timeout_ms));
		else
			ret = CALL(actor, CALL_BARRIER_WAIT, timeout_ms,
				   ramps_barrier_wait(barrier, timeout_ms));
		if (ret == -EIO)
			actor_unsettled(actor);
	} while (call_again(actor, ret));
	if (!ret && flushes) {
		actor_settled(actor);
		oracle_own_applied(actor);
	}
	return ret;
}

void work_barrier(struct actor *actor, uint32_t which)
{
	struct world *world = actor->world;
	struct rank *rank = actor->rank;
	uint32_t generation = sync_barrier_generation(actor->barrier[which]->object->barrier);
	uint64_t *opened_at = &world->barriers[which].opened_at[generation % 256];

	if (generation > rank->round)
		return;
	if (!*opened_at)
		*opened_at = sim_now(world->sim);
	if (rank->begun[which] <= generation)
		rank->begun[which] = generation + 1;
	if (draw(&rank->rng, 4) == 0) {
		if (barrier_call(actor, which, true))
			return;
		work_pull(actor);
	}
	if (!actor->ended && !barrier_call(actor, which, false))
		check_released(actor, which, generation);
}

static const uint64_t *clock_words(struct world *world, uint32_t *server)
{
	for (uint32_t s = 0; s < world->plan.servers; s++) {
		const struct core_entry *entry = oracle_entry(world, s, CORE_CLOCK, "clock");

		*server = s;
		if (entry)
			return core_arena_at(world->hosts[s].seen, CORE_WORDS, entry->clock.words_offset);
	}
	return NULL;
}

void work_clock_view(struct world *world, uint32_t rank, struct clock_view *view)
{
	uint32_t server;
	const uint64_t *words = clock_words(world, &server), *states;
	const struct core_arena *arena = world->hosts[server].seen;

	memset(view, 0, sizeof(*view));
	view->least = UINT64_MAX;
	states = core_arena_at(arena, CORE_PUBLISHED, core_arena_header(arena)->states_offset);
	for (uint32_t r = 0; words && r < world->plan.workers; r++) {
		if (r == rank)
			continue;
		view->states[r] = states[r];
		if (core_state_of(states[r]) == CORE_LIVE && words[r] < view->least)
			view->least = words[r];
	}
}

/* Who has joined holds nobody back, where nobody else came or went meanwhile. */
void work_clock_check(struct world *world, uint32_t rank, const struct clock_view *before)
{
	uint32_t server;
	const uint64_t *words = clock_words(world, &server);
	struct clock_view now;

	work_clock_view(world, rank, &now);
	if (words && before->least != UINT64_MAX && words[rank] < before->least &&
	    memcmp(now.states, before->states, sizeof(now.states)) == 0)
		world_fail(world, "clock behind", "rank %u joined at %llu, the others had at least %llu",
			   rank, (unsigned long long)words[rank], (unsigned long long)before->least);
}

static void check_staleness(struct actor *actor, uint64_t begun_at)
{
	struct world *world = actor->world;
	uint32_t server, own = actor->rank->number;
	const uint64_t *words = clock_words(world, &server);

	for (uint32_t r = 0; words && r < world->plan.workers; r++) {
		if (world_state(world, server, r) != CORE_LIVE || world_absent(world, r, begun_at) ||
		    !world->ranks[r].joined_at || world->ranks[r].joined_at >= begun_at)
			continue;
		if (words[r] + world->plan.staleness < words[own])
			world_fail(world, "staleness", "rank %u goes on at %llu, rank %u is at %llu", own,
				   (unsigned long long)words[own], r, (unsigned long long)words[r]);
	}
}

static int clock_advance(struct actor *actor, uint64_t own)
{
	uint32_t server;
	const uint64_t *words;
	int ret;

	do {
		int timeout_ms = actor_timeout(actor);

		ret = CALL(actor, CALL_CLOCK_ADVANCE, timeout_ms,
			   ramps_clock_advance(actor->clock, timeout_ms));
		if (ret == -EIO)
			actor_unsettled(actor);
	} while (call_again(actor, ret));
	if (ret)
		return ret;
	actor_settled(actor);
	oracle_own_applied(actor);
	words = clock_words(actor->world, &server);
	if (words && words[actor->rank->number] != own + 1)
		world_fail(actor->world, "clock step",
			   "rank %u: its clock went from %llu to %llu in a step", actor->rank->number,
			   (unsigned long long)own, (unsigned long long)words[actor->rank->number]);
	return 0;
}

void work_clock(struct actor *actor)
{
	uint64_t own = 0, least = 0, begun_at;
	int ret;

	do {
		ret = CALL(actor, CALL_CLOCK_READ, -1, ramps_clock_read(actor->clock, &own, &least));
	} while (call_again(actor, ret));
	for (; !ret && own <= actor->rank->round; own++)
		ret = clock_advance(actor, own);
	if (ret)
		return;
	begun_at = sim_now(actor->world->sim);
	do {
		int timeout_ms = actor_timeout(actor);

		ret = CALL(actor, CALL_CLOCK_WAIT, timeout_ms,
			   ramps_clock_wait(actor->clock, actor->world->plan.staleness, timeout_ms));
	} while (call_again(actor, ret));
	if (!ret)
		check_staleness(actor, begun_at);
}

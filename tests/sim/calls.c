/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every call of the library that a worker makes goes through here: how long it may take, which
 * errors it may return, and what the caller does about them.
 */
#include <errno.h>

#include "harness.h"
#include "worker/worker_private.h"

/*
 * Beyond its timeout a call may take: a repair of every link (500 ms each, before it begins), the
 * reading that a wait ends with, and what it drains.
 */
#define GRACE_NS (2 * NS_PER_S)

const char *const call_names[CALLS] = {
	"join",         "close",      "leave",         "create",       "open",
	"push",         "push_rows",  "pull",          "pull_rows",    "snapshot",
	"flush",        "submit",     "reap",          "barrier_open", "barrier_arrive",
	"barrier_wait", "clock_open", "clock_advance", "clock_wait",   "clock_read",
	"info",
};

const char *const result_names[RESULTS] = {
	"ok",      "time-out", "interrupt", "not conn", "owner dead",
	"unknown", "again",    "stale",     "other",
};

static enum result result_of(int ret)
{
	switch (ret) {
	case -ETIMEDOUT:
		return RESULT_TIMEDOUT;
	case -EINTR:
		return RESULT_INTR;
	case -ENOTCONN:
		return RESULT_NOTCONN;
	case -EOWNERDEAD:
		return RESULT_OWNERDEAD;
	case -EIO:
		return RESULT_IO;
	case -EAGAIN:
		return RESULT_AGAIN;
	case -ESTALE:
		return RESULT_STALE;
	default:
		return ret < 0 ? RESULT_OTHER : RESULT_OK;
	}
}

static void fold(struct world *world, uint64_t value)
{
	world->verdict.hash = (world->verdict.hash ^ value) * 0x100000001b3ull;
}

/* Cells that were posted and have not landed, where a connection is lost. */
static void count_lost(struct actor *actor)
{
	struct ramps_worker *worker = actor->worker;

	actor->was_broken = worker && worker->any_broken;
	for (uint32_t s = 0; actor->was_broken && s < actor->world->plan.servers; s++) {
		const struct core_arena *arena = actor->world->hosts[s].seen;
		const struct core_rank_words *words = core_arena_at(
			arena, CORE_WORDS, core_arena_header(arena)->rank_words_offset);

		actor->world->totals->events[EVENT_POSTED_AGAIN] += worker->member->rings[s].tail -
								    words[actor->rank->number].tail;
	}
}

static void count_events(struct actor *actor, enum call call)
{
	const struct ramps_worker *worker = actor->worker;

	if (!worker || call == CALL_CLOSE || call == CALL_JOIN)
		return;
	if (actor->was_broken && !worker->any_broken)
		world_event(actor->world, EVENT_RECONNECT);
	if (call == CALL_SNAPSHOT && worker->blocking->round)
		world_event(actor->world, EVENT_SNAPSHOT_RETRY);
}

void call_begin(struct actor *actor, enum call call, int timeout_ms)
{
	struct rank *rank = actor->rank;
	uint64_t now = sim_now(actor->world->sim);

	rank->call = call;
	rank->call_at = now;
	rank->call_until = timeout_ms < 0 ? BASE_FOREVER : now + (uint64_t)timeout_ms * NS_PER_MS;
	rank->stalled_ns = 0;
	rank->in_call = true;
	count_lost(actor);
}

static void check_time(struct actor *actor, int ret)
{
	struct rank *rank = actor->rank;
	uint64_t now = sim_now(actor->world->sim);

	if (rank->call_until == BASE_FOREVER || now <= rank->call_until + rank->stalled_ns + GRACE_NS)
		return;
	world_fail(actor->world, "deadline",
		   "rank %u: %s with %llu ms to wait took %llu ms (of them stalled %llu) and returned %d",
		   rank->number, call_names[rank->call],
		   (unsigned long long)((rank->call_until - rank->call_at) / NS_PER_MS),
		   (unsigned long long)((now - rank->call_at) / NS_PER_MS),
		   (unsigned long long)(rank->stalled_ns / NS_PER_MS), ret);
}

/* Ranks that an error names have to be what it says of them. */
static void check_ranks(struct actor *actor, int ret)
{
	const struct ramps_error *error = ramps_last_error();
	struct world *world = actor->world;

	for (uint32_t i = 0; i < error->rank_count; i++) {
		uint32_t r = error->ranks[i];
		bool right = r < world->plan.workers;

		if (right && ret == -EOWNERDEAD)
			right = world_absent(world, r, actor->rank->call_at) ||
				actor->rank->call <= CALL_OPEN; /* an earlier life of it */
		if (!right)
			world_fail(world, "named rank", "rank %u: %s returned %d and names rank %u: %s",
				   actor->rank->number, call_names[actor->rank->call], ret, r,
				   error->text);
	}
}

static void check_error(struct actor *actor, int ret)
{
	struct world *world = actor->world;
	struct rank *rank = actor->rank;

	if (ret == -EINTR && !rank->interrupts)
		world_fail(world, "interrupt", "rank %u: %s returned -EINTR, and nobody interrupted it",
			   rank->number, call_names[rank->call]);
	if (ret == -EINTR) /* one may have come after the call had taken the other */
		rank->interrupts = actor->worker && actor->worker->interrupt;
	if (ret == -EOWNERDEAD && world->plan.on_death == RAMPS_ON_DEATH_CONTINUE &&
	    rank->call != CALL_OPEN && rank->call != CALL_CREATE)
		world_fail(world, "policy", "rank %u: %s returned -EOWNERDEAD, the policy is to go on: %s",
			   rank->number, call_names[rank->call], ramps_last_error()->text);
	if (ret == -EOWNERDEAD)
		check_ranks(actor, ret);
}

int call_end(struct actor *actor, int ret)
{
	struct world *world = actor->world;
	struct rank *rank = actor->rank;
	uint64_t now = sim_now(world->sim);

	rank->in_call = false;
	world->totals->calls[rank->call][result_of(ret)]++;
	world->totals->calls_made++;
	world->verdict.calls++;
	fold(world, (uint64_t)rank->number << 48 ^ (uint64_t)rank->call << 40 ^ (uint32_t)ret);
	fold(world, now);
	if (world->options->trace)
		sim_trace(world->sim, "%s %s", call_names[rank->call],
			  ret < 0 ? ramps_last_error()->text : "ok");
	count_events(actor, rank->call);
	check_time(actor, ret);
	if (ret < 0)
		check_error(actor, ret);
	else
		world->progress_at = now;
	return ret;
}

bool call_again(struct actor *actor, int ret)
{
	struct world *world = actor->world;
	uint64_t most = NS_PER_MS / 10;

	if (ret >= 0)
		return false;
	if (world->verdict.failed) {
		actor->ended = true;
		return false;
	}
	switch (ret) {
	case -ESTALE:
		actor->ended = actor->fenced = true;
		return false;
	case -ENOTCONN:
	case -EOWNERDEAD:
	case -ECONNREFUSED:
		most = 5 * NS_PER_MS;
		break;
	case -ETIMEDOUT:
	case -EINTR:
	case -EIO:
	case -EAGAIN:
		break;
	default:
		world_fail(world, "error", "rank %u: %s returned %d: %s", actor->rank->number,
			   call_names[actor->rank->call], ret, ramps_last_error()->text);
		actor->ended = true;
		return false;
	}
	sim_pause(1 + draw(&actor->rank->rng, most));
	return true;
}

int actor_timeout(struct actor *actor)
{
	if (!draw_chance(&actor->rank->rng, actor->world->plan.short_timeout))
		return -1;
	return (int)draw(&actor->rank->rng, 30);
}

void actor_settled(struct actor *actor)
{
	while (actor->posted) {
		struct push *push = actor->posted;

		actor->posted = push->next;
		if (!push->in_doubt)
			oracle_certain(actor->world, actor->rank->number, push);
		work_free_push(push);
	}
}

/* -EIO of a call that settles what was posted: additions to direct tables are in doubt. */
void actor_unsettled(struct actor *actor)
{
	actor->rank->unknown += ramps_last_error()->unknown_ops;
	world_event(actor->world, EVENT_UNKNOWN);
	for (struct push *push = actor->posted; push; push = push->next)
		if (actor->world->plan.table[push->index].kind <= TABLE_FIXED)
			push->in_doubt = true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's process: the loop around the step function, over an arena in /dev/shm. At any store of
 * an update it may stand still for a moment, so that others see it half-done, or be killed.
 */
#include <errno.h>

#include "base/error.h"
#include "harness.h"
#include "ps/ps_private.h"

#define RESTART_NS (100 * NS_PER_MS)

void host_killed(struct host *host, uint64_t start_at)
{
	world_forget(host->world, host->process);
	host->ps = NULL;
	host->watched = NULL;
	host->up = false;
	host->process = NULL;
	host->start_at = start_at;
}

/* A version never goes back, not for a moment. */
static void watch(struct host *host)
{
	if (!host->watched)
		return;
	if (*host->watched < host->watched_at)
		world_fail(host->world, "version back",
			   "server %u puts a chunk back from version %llu to %llu", host->number,
			   (unsigned long long)host->watched_at, (unsigned long long)*host->watched);
	host->watched_at = *host->watched;
}

static void at_store(void *ctx)
{
	struct host *host = ctx;
	struct world *world = host->world;
	struct sim *sim = world->sim;

	oracle_commit(host);
	watch(host);
	if (!world->calm && world->plan.server_kills && world->plan.rate[SIM_KILL_SERVER] &&
	    sim_random(sim, SIM_CERTAIN) < world->plan.rate[SIM_KILL_SERVER] / 4) {
		world->plan.server_kills--;
		world_event(world, EVENT_KILLED_IN_STORE);
		sim_trace(sim, "server %u is killed at a store", host->number);
		host_killed(host, sim_now(sim) + 1 + sim_random(sim, RESTART_NS));
		sim_kill(sim_self());
	}
	if (world->plan.pause_ns && sim_random(sim, 4) == 0)
		sim_pause(sim_random(sim, world->plan.pause_ns));
}

static void look_at_rings(struct host *host)
{
	struct ps_server *ps = host->ps;
	struct world *world = host->world;

	for (uint32_t r = 0; r < world->plan.workers; r++) {
		world->totals->events[EVENT_PARKED] += ps->ranks[r].parked > 0;
		world->totals->events[EVENT_RING_FULL] += ps->rank_words[r].tail - ps->ranks[r].head ==
							  world->plan.cells;
	}
}

static void serve(struct host *host)
{
	struct world *world = host->world;

	while (!world->stopping && !world->verdict.failed) {
		int ret = ps_step(host->ps);

		if (ret < 0) {
			world_fail(world, "error", "server %u can't go on: %d: %s", host->number,
				   ret, ramps_last_error()->text);
			return;
		}
		look_at_rings(host);
		oracle_deaths(world, host->number);
		if (ret || sim_random(world->sim, 2)) {
			sim_pause(100 + sim_random(world->sim, 2000));
			if (ret)
				continue;
		}
		world_event(world, EVENT_ASLEEP);
		ps_wait(host->ps, BASE_FOREVER);
	}
	/* what was committed while it stood still */
	while (!world->verdict.failed && ps_step(host->ps) > 0)
		;
}

/* The version of the chunk that the undo copy is of; NULL: it is of none. */
static const uint64_t *version_in_undo(const struct core_arena *arena)
{
	const struct core_private *undo = core_arena_at(arena, CORE_PRIVATE, 0);
	const struct core_header *header = core_arena_header(arena);
	const struct core_entry *entries = core_arena_at(arena, CORE_PUBLISHED, header->entries_offset);
	const struct core_chunk *chunks;

	if (!undo->valid)
		return NULL;
	chunks = core_arena_at(arena, CORE_PUBLISHED, entries[undo->entry].table.chunks_offset);
	return &chunks[undo->chunk].version;
}

static int open_server(struct host *host, struct fabric *fabric, struct core_arena **arena)
{
	struct world *world = host->world;
	struct core_arena_options options = {
		.directory = host->directory,
		.job = "sim",
		.arena_bytes = 64ull << 20,
		.max_workers = MAX_WORKERS,
		.cells = world->plan.cells,
		.on_death = world->plan.on_death,
		.fresh = !host->lives,
	};
	struct ps_server *ps;
	int ret = core_arena_open(&options, arena);

	if (ret)
		return ret;
	if (host->lives++) {
		host->watched = version_in_undo(*arena);
		host->watched_at = host->watched ? *host->watched : 0;
		world_event(world, EVENT_RESTART);
		world->totals->events[EVENT_UNDO] += host->watched != NULL;
		sim_count(world->sim, SIM_REBIRTH);
	}
	ret = ps_open_points(fabric, *arena, host->address, at_store, host, &ps);
	if (ret)
		return ret;
	host->ps = ps;
	host->up = true;
	watch(host);
	host->watched = NULL;
	oracle_started(host);
	return 0;
}

void host_main(void *arg)
{
	struct host *host = arg;
	struct core_arena *arena = NULL;
	struct fabric *fabric;
	int ret = sim_open_fabric(&fabric);

	if (!ret)
		ret = open_server(host, fabric, &arena);
	if (ret) {
		world_fail(host->world, "error", "server %u does not start: %d: %s", host->number,
			   ret, ramps_last_error()->text);
		return;
	}
	serve(host);
	ps_close(host->ps);
	host->ps = NULL;
	host->up = false;
	fabric_close(fabric);
	core_arena_close(arena, false);
}

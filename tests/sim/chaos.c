/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes wrong outside of the fabric: kills, stalls and interrupts at random times; and what is
 * to be started again. When all ranks are done it ends the servers.
 */
#include <string.h>

#include "harness.h"
#include "ps/ps.h"

#define TICK_NS  (NS_PER_MS / 2)
#define QUICK_NS 30000ull /* until the next life of a rank begins */
#define SLOW_NS  (20 * NS_PER_MS)

static bool may_be_killed(const struct rank *rank)
{
	return rank->process && !rank->finished && !rank->dead && sim_alive(rank->process);
}

static void kill_worker(struct world *world)
{
	struct rank *rank = &world->ranks[sim_random(world->sim, world->plan.workers)];
	struct sim_process *process = rank->process;

	if (!world->plan.kills || !may_be_killed(rank))
		return;
	world->plan.kills--;
	rank->worker = NULL;
	rank->absent_until = BASE_FOREVER;
	rank->process = NULL;
	rank->in_call = false;
	rank->cut_off = true;
	world_event(world, EVENT_DEATH);
	/* a rank that has never been there is waited for, whatever the policy */
	if (world->plan.rebirth || !rank->lives || sim_random(world->sim, 2))
		rank->start_at = sim_now(world->sim) + 1 +
				 sim_random(world->sim, sim_random(world->sim, 2) ? QUICK_NS : SLOW_NS);
	else
		rank->dead = true;
	world_forget(world, process);
	sim_kill(process);
}

static void kill_server(struct world *world)
{
	struct host *host = &world->hosts[sim_random(world->sim, world->plan.servers)];
	struct sim_process *process = host->process;

	if (!world->plan.server_kills || !host->up)
		return;
	world->plan.server_kills--;
	host_killed(host, sim_now(world->sim) + 1 + sim_random(world->sim, 100 * NS_PER_MS));
	sim_kill(process);
}

static void interrupt(struct world *world)
{
	struct rank *rank = &world->ranks[sim_random(world->sim, world->plan.workers)];

	if (!rank->worker || sim_random(world->sim, 1000) >= world->plan.interrupt)
		return;
	rank->interrupts++;
	ramps_worker_interrupt(rank->worker);
}

static void start_again(struct world *world)
{
	uint64_t now = sim_now(world->sim);
	char name[24];

	for (uint32_t s = 0; s < world->plan.servers; s++) {
		struct host *host = &world->hosts[s];

		if (!host->start_at || host->start_at > now)
			continue;
		host->start_at = 0;
		snprintf(name, sizeof(name), "server %u", s);
		world_spawn(world, &host->process, name, s, host_main, host);
	}
	for (uint32_t r = 0; r < world->plan.workers; r++) {
		struct rank *rank = &world->ranks[r];

		if (!rank->start_at || rank->start_at > now)
			continue;
		rank->start_at = 0;
		snprintf(name, sizeof(name), "worker %u", r);
		world_spawn(world, &rank->process, name, MAX_SERVERS + r, actor_main, rank);
	}
}

static bool all_done(const struct world *world)
{
	for (uint32_t r = 0; r < world->plan.workers; r++)
		if (!world->ranks[r].finished && !world->ranks[r].dead)
			return false;
	for (uint32_t s = 0; s < world->plan.servers; s++)
		if (!world->hosts[s].up)
			return false;
	return true;
}

void chaos_main(void *arg)
{
	struct world *world = arg;
	const uint32_t *rate = world->plan.rate;

	while (!all_done(world) && !world->verdict.failed) {
		sim_pause(1 + sim_random(world->sim, TICK_NS));
		start_again(world);
		if (sim_random(world->sim, SIM_CERTAIN) < rate[SIM_KILL_WORKER])
			kill_worker(world);
		if (sim_random(world->sim, SIM_CERTAIN) < rate[SIM_KILL_SERVER])
			kill_server(world);
		if (world->plan.interrupt)
			interrupt(world);
	}
	world->stopping = true;
	for (uint32_t s = 0; s < world->plan.servers; s++)
		if (world->hosts[s].ps)
			ps_wake(world->hosts[s].ps);
}

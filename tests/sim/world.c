/* SPDX-License-Identifier: BSD-2-Clause */
/* One seed: opens its world, lets it run while something happens, and looks at what is left. */
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "harness.h"

#define SLICE_NS (5 * NS_PER_MS)
#define HANG_NS  (60 * NS_PER_S) /* without a call that succeeds */

const char *const event_names[EVENTS] = {
	"connected again",    "cells posted again",
	"additions in doubt", "server restarts",
	"undo copies valid",  "stood in for",
	"parked cells",       "snapshot retries",
	"dropped cells",      "rings full",
	"server sleeps",      "deaths",
	"fenced while alive", "left",
	"came back",          "calls resumed",
	"killed in a store",  "steps without a rank",
};

void world_fail(struct world *world, const char *invariant, const char *fmt, ...)
{
	struct verdict *v = &world->verdict;
	va_list args;

	if (v->failed)
		return;
	v->failed = true;
	v->now_ns = sim_now(world->sim);
	snprintf(v->invariant, sizeof(v->invariant), "%s", invariant);
	va_start(args, fmt);
	vsnprintf(v->text, sizeof(v->text), fmt, args);
	va_end(args);
	if (world->options->trace)
		sim_trace(world->sim, "FAILED %s: %s", v->invariant, v->text);
}

uint32_t world_state(const struct world *world, uint32_t server, uint32_t rank)
{
	const struct core_arena *arena = world->hosts[server].seen;
	const struct core_header *header = core_arena_header(arena);
	const uint64_t *states = core_arena_at(arena, CORE_PUBLISHED, header->states_offset);

	return core_state_of(states[rank]);
}

bool world_absent(const struct world *world, uint32_t rank, uint64_t since)
{
	if (world->ranks[rank].absent_until >= since && world->ranks[rank].absent_until)
		return true;
	for (uint32_t s = 0; s < world->plan.servers; s++) {
		uint32_t state = world_state(world, s, rank);

		if (state == CORE_DEAD || state == CORE_LEFT)
			return true;
	}
	return false;
}

void world_spawn(struct world *world, struct sim_process **process, const char *name, uint32_t node,
		 void (*main)(void *), void *arg)
{
	*process = sim_spawn(world->sim, name, world->plan.one_node ? 0 : node, main, arg);
	if (world->process_count < MAX_PROCESSES)
		world->processes[world->process_count++] = *process;
}

void world_forget(struct world *world, const struct sim_process *process)
{
	for (uint32_t i = 0; i < world->process_count; i++)
		if (world->processes[i] == process)
			world->processes[i] = world->processes[--world->process_count];
}

static void print_trace(void *ctx, uint64_t now_ns, const char *who, const char *what)
{
	(void)ctx;
	printf("%12.3f us  %-9s %s\n", (double)now_ns / 1e3, who, what);
}

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char name[512];

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (unlink(name))
			remove_tree(name);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void open_sim(struct world *world)
{
	struct sim_options options = {
		.seed = world->plan.seed,
		.costs = sim_costs_plain,
		.lease_ns = world->plan.lease_ns,
		.trace = world->options->trace ? print_trace : NULL,
	};

	memcpy(options.rate, world->plan.rate, sizeof(options.rate));
	world->sim = sim_open(&options);
	if (!world->sim) {
		fprintf(stderr, "no memory for a world\n");
		exit(2);
	}
}

static bool open_hosts(struct world *world, const char *root)
{
	for (uint32_t s = 0; s < world->plan.servers; s++) {
		struct host *host = &world->hosts[s];
		char name[24];

		host->world = world;
		host->number = s;
		snprintf(host->address, sizeof(host->address), "sim://%u/s%u",
			 world->plan.one_node ? 0 : s, s);
		snprintf(host->directory, sizeof(host->directory), "%s/s%u", root, s);
		snprintf(name, sizeof(name), "server %u", s);
		world_spawn(world, &host->process, name, s, host_main, host);
	}
	sim_run(world->sim, 1000);
	for (uint32_t s = 0; s < world->plan.servers && !world->verdict.failed; s++)
		if (core_arena_attach(world->hosts[s].directory, &world->hosts[s].seen))
			world_fail(world, "error", "no arena of server %u: %s", s,
				   ramps_last_error()->text);
	return !world->verdict.failed;
}

static void open_ranks(struct world *world)
{
	struct sim_process *chaos;

	for (uint32_t r = 0; r < world->plan.workers; r++) {
		struct rank *rank = &world->ranks[r];
		char name[24];

		rank->world = world;
		rank->number = r;
		rank->rng = world->plan.seed * 31 + r;
		snprintf(name, sizeof(name), "worker %u", r);
		world_spawn(world, &rank->process, name, MAX_SERVERS + r, actor_main, rank);
	}
	world_spawn(world, &chaos, "chaos", MAX_SERVERS + MAX_WORKERS, chaos_main, world);
}

static void hang(struct world *world)
{
	char text[300];
	size_t len = 0;

	for (uint32_t r = 0; r < world->plan.workers; r++) {
		const struct rank *rank = &world->ranks[r];

		if (rank->finished || rank->dead || len >= sizeof(text) - 40)
			continue;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%srank %u, round %u, %s %s",
					len ? "; " : "", r, rank->round,
					rank->in_call ? "in" : "after", call_names[rank->call]);
	}
	world_fail(world, "hang", "for %llu s no call has succeeded: %s",
		   (unsigned long long)(HANG_NS / NS_PER_S), len ? text : "all ranks are done");
}

static void let_run(struct world *world)
{
	uint64_t until = SLICE_NS;

	while (sim_run(world->sim, until) && !world->verdict.failed) {
		until += SLICE_NS;
		oracle_fences(world);
		if (sim_now(world->sim) - world->progress_at > HANG_NS)
			hang(world);
	}
}

static void check_leaks(struct world *world)
{
	for (uint32_t i = 0; i < world->process_count; i++) {
		struct sim_process *process = world->processes[i];
		uint64_t leaked = sim_alive(process) ? 0 : sim_leaked(process);

		if (leaked)
			world_fail(world, "leak", "a process ended with %llu bytes, files or endpoints",
				   (unsigned long long)leaked);
	}
}

static void add_totals(struct world *world, struct totals *totals)
{
	struct sim_stats stats;

	sim_get_stats(world->sim, &stats);
	totals->seeds++;
	totals->failed += world->verdict.failed;
	totals->virtual_ns += sim_now(world->sim);
	totals->operations += stats.operations;
	totals->lists += stats.lists;
	totals->messages += stats.messages;
	totals->switches += stats.switches;
	totals->sim_events += stats.events;
	for (uint32_t i = 0; i < SIM_FAULTS; i++) {
		totals->faults[i] += stats.faults[i];
		totals->seeds_with[i] += stats.faults[i] > 0;
	}
	world->verdict.hash ^= stats.operations * 0x9e3779b97f4a7c15ull + stats.events;
}

void world_run(uint64_t seed, const struct options *options, struct totals *totals, struct verdict *verdict)
{
	struct world *world = calloc(1, sizeof(*world));
	char root[64];

	snprintf(root, sizeof(root), "/dev/shm/ramps.sim.%d", (int)getpid());
	mkdir(root, 0700);
	world->options = options;
	world->totals = totals;
	world->verdict.hash = 0xcbf29ce484222325ull;
	plan_make(&world->plan, seed, options);
	open_sim(world);
	if (open_hosts(world, root)) {
		open_ranks(world);
		let_run(world);
	}
	if (!world->verdict.failed) {
		oracle_end(world);
		check_leaks(world);
	}
	if (!world->verdict.failed)
		world->verdict.now_ns = sim_now(world->sim);
	else if (options->one)
		oracle_print(world, stdout);
	add_totals(world, totals);
	sim_close(world->sim);
	for (uint32_t s = 0; s < world->plan.servers; s++)
		core_arena_close(world->hosts[s].seen, false);
	remove_tree(root);
	*verdict = world->verdict;
	free(world);
}

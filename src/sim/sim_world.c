/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock and the loop that moves it. All chance comes from one stream of numbers, so that a seed decides it all.
 * Nothing may depend on addresses, on real time or on the order of a hash.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_private.h"

#define TRACE_BYTES 512

static __thread struct sim *here;

struct sim *sim_here(void)
{
	return here;
}

struct sim_process *sim_self(void)
{
	return here ? here->current : NULL;
}

uint64_t sim_now(const struct sim *sim)
{
	return sim->now;
}

/* Whether nothing can happen any more though somebody waits. */
static bool is_over(struct sim *sim)
{
	return TAILQ_EMPTY(&sim->ready) && sim_next_at(sim) == BASE_FOREVER;
}

void sim_loop(struct sim *sim, const struct sim_process *until, uint64_t until_ns)
{
	sim->current = NULL;
	for (;;) {
		struct sim_process *process;

		while ((process = TAILQ_FIRST(&sim->ready))) {
			TAILQ_REMOVE(&sim->ready, process, ready);
			process->is_ready = false;
			if (until && process == until && process->stalled_until <= sim->now)
				return;
			sim_resume(sim, process);
		}
		if (until && is_over(sim)) {
			fprintf(stderr, "sim: %s waits for ever, and nothing is due\n", until->name);
			abort();
		}
		if (!until && (!sim->live || is_over(sim)))
			return;
		if (!until && sim_next_at(sim) > until_ns) {
			sim->now = sim_later(sim->now, until_ns);
			return;
		}
		sim_run_next(sim);
	}
}

uint32_t sim_run(struct sim *sim, uint64_t until_ns)
{
	struct sim_process *caller = sim->current;

	sim_loop(sim, NULL, until_ns);
	sim->current = caller;
	return sim->live;
}

/* splitmix64 */
static uint64_t next_random(struct sim *sim)
{
	uint64_t z = (sim->random += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t sim_random(struct sim *sim, uint64_t n)
{
	return n > 1 ? (uint64_t)(((unsigned __int128)next_random(sim) * n) >> 64) : 0;
}

uint64_t sim_random_spread(struct sim *sim, uint64_t low, uint64_t high)
{
	uint64_t bits = 0, value;

	while (low << bits < high && bits < 63)
		bits++;
	value = low << sim_random(sim, bits + 1);
	value += sim_random(sim, value);
	return value > high ? high : value;
}

bool sim_chance(struct sim *sim, enum sim_fault kind)
{
	if (!sim->options.rate[kind] || sim_random(sim, SIM_CERTAIN) >= sim->options.rate[kind])
		return false;
	sim->stats.faults[kind]++;
	return true;
}

void sim_count(struct sim *sim, enum sim_fault kind)
{
	sim->stats.faults[kind]++;
}

__attribute__((format(printf, 3, 0))) static void trace(struct sim *sim, const char *who,
							const char *fmt, va_list args)
{
	char text[TRACE_BYTES];

	sim->outside++;
	vsnprintf(text, sizeof(text), fmt, args);
	sim->options.trace(sim->options.ctx, sim->now, who, text);
	sim->outside--;
}

void sim_trace_as(struct sim *sim, const char *who, const char *fmt, ...)
{
	va_list args;

	if (!sim->options.trace)
		return;
	va_start(args, fmt);
	trace(sim, who, fmt, args);
	va_end(args);
}

void sim_trace(struct sim *sim, const char *fmt, ...)
{
	va_list args;

	if (!sim->options.trace)
		return;
	va_start(args, fmt);
	trace(sim, sim->current ? sim->current->name : "world", fmt, args);
	va_end(args);
}

void sim_outside(struct sim *sim, bool outside)
{
	sim->outside += outside ? 1 : -1u;
}

/* What a device can do is part of what the seed decides, where there are faults at all. */
static void choose_limits(struct sim *sim)
{
	static const uint32_t ops[] = { 64, 96, 256, 4096 }, inline_bytes[] = { 0, 32, 64, 256 };

	sim->limits = (struct fabric_limits){
		.max_ops = 4096,
		.outstanding_reads = SIM_MAX_READS,
		.inline_bytes = 256,
		.max_transfer_bytes = 1ull << 30,
	};
	sim->max_lists = 128;
	if (!sim->has_faults)
		return;
	sim->limits.max_ops = ops[sim_random(sim, 4)];
	sim->limits.outstanding_reads = 1 + (uint32_t)sim_random(sim, SIM_MAX_READS);
	sim->limits.inline_bytes = inline_bytes[sim_random(sim, 4)];
	sim->limits.max_transfer_bytes = 65536ull << (8 * sim_random(sim, 3));
	sim->max_lists = 8 + (uint32_t)sim_random(sim, 25);
}

struct sim *sim_open(const struct sim_options *options)
{
	struct sim *sim = sim_raw_alloc(sizeof(*sim));
	const struct sim_costs *costs = &options->costs;

	memset(sim, 0, sizeof(*sim));
	sim->options = *options;
	sim->random = options->seed;
	TAILQ_INIT(&sim->ready);
	sim_context_of_thread(&sim->context);
	for (int i = 0; i < SIM_FAULTS; i++)
		sim->has_faults |= options->rate[i] != 0;
	sim->has_queues = costs->byte_ps || costs->read_ns || costs->write_ns || costs->atomic_ns ||
			  costs->atomic_word_ns || costs->queue_pairs;
	choose_limits(sim);
	here = sim;
	return sim;
}

void sim_close(struct sim *sim)
{
	struct sim_process *process;

	if (!sim)
		return;
	sim->current = NULL;
	while ((process = LIST_FIRST(&sim->processes)))
		sim_process_free(process);
	sim_stacks_end(sim);
	sim_pool_end(sim);
	sim_device_end(sim);
	sim_raw_free(sim->heap.entries);
	if (here == sim)
		here = NULL;
	sim_raw_free(sim);
}

void sim_get_stats(const struct sim *sim, struct sim_stats *stats)
{
	const struct sim_device *device;

	*stats = sim->stats;
	LIST_FOREACH(device, &sim->all_devices, all)
	{
		uint64_t most = sim_later(device->served_ns, sim_later(device->in_ns, device->out_ns));

		stats->busiest_device_ns = sim_later(stats->busiest_device_ns, most);
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock, the events and the order in which they happen: by time, and of those at one time by when
 * they were scheduled. All chance comes from one stream of numbers, so that a seed decides it all.
 * Nothing may depend on addresses, on real time or on the order of a hash.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_private.h"

#define FIRST_CAPACITY 1024
#define TRACE_BYTES    512

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

static bool is_before(const struct sim_due *a, const struct sim_due *b)
{
	return a->at < b->at || (a->at == b->at && a->sequence < b->sequence);
}

static void place(struct sim *sim, uint32_t at, struct sim_due due)
{
	sim->heap[at] = due;
	due.event->index = at;
}

static void sift_up(struct sim *sim, uint32_t at, struct sim_due due)
{
	while (at > 1 && is_before(&due, &sim->heap[at / 2])) {
		place(sim, at, sim->heap[at / 2]);
		at /= 2;
	}
	place(sim, at, due);
}

static void sift_down(struct sim *sim, uint32_t at, struct sim_due due)
{
	for (;;) {
		uint32_t child = 2 * at;

		if (child > sim->due)
			break;
		if (child < sim->due && is_before(&sim->heap[child + 1], &sim->heap[child]))
			child++;
		if (!is_before(&sim->heap[child], &due))
			break;
		place(sim, at, sim->heap[child]);
		at = child;
	}
	place(sim, at, due);
}

static void grow(struct sim *sim)
{
	uint32_t capacity = 2 * sim->heap_capacity;
	struct sim_due *heap = sim_raw_alloc(capacity * sizeof(*heap));

	memcpy(heap, sim->heap, sim->heap_capacity * sizeof(*heap));
	sim_raw_free(sim->heap);
	sim->heap = heap;
	sim->heap_capacity = capacity;
}

void sim_schedule(struct sim *sim, struct sim_event *event, uint64_t at)
{
	struct sim_due due = { .at = sim_later(at, sim->now), .sequence = sim->sequence++, .event = event };

	if (event->index)
		sim_cancel(sim, event);
	if (++sim->due == sim->heap_capacity)
		grow(sim);
	sift_up(sim, sim->due, due);
}

void sim_cancel(struct sim *sim, struct sim_event *event)
{
	uint32_t at = event->index;
	struct sim_due last;

	if (!at)
		return;
	event->index = 0;
	last = sim->heap[sim->due--];
	if (at > sim->due)
		return;
	if (at > 1 && is_before(&last, &sim->heap[at / 2]))
		sift_up(sim, at, last);
	else
		sift_down(sim, at, last);
}

static void run_next(struct sim *sim)
{
	struct sim_due due = sim->heap[1], last = sim->heap[sim->due--];

	due.event->index = 0;
	if (sim->due)
		sift_down(sim, 1, last);
	sim->now = due.at;
	sim->stats.events++;
	due.event->run(sim, due.event);
}

/* Whether nothing can happen any more though somebody waits. */
static bool is_over(const struct sim *sim)
{
	return !sim->due && TAILQ_EMPTY(&sim->ready);
}

void sim_loop(struct sim *sim, const struct sim_process *until, uint64_t until_ns)
{
	sim->current = NULL;
	for (;;) {
		struct sim_process *process;

		while ((process = TAILQ_FIRST(&sim->ready))) {
			TAILQ_REMOVE(&sim->ready, process, ready);
			process->is_ready = false;
			if (process == until && process->stalled_until <= sim->now)
				return;
			sim_resume(sim, process);
		}
		if (until && is_over(sim)) {
			fprintf(stderr, "sim: %s waits for ever, and nothing is due\n", until->name);
			abort();
		}
		if (!until && (!sim->live || is_over(sim)))
			return;
		if (!until && sim->heap[1].at > until_ns) {
			sim->now = sim_later(sim->now, until_ns);
			return;
		}
		run_next(sim);
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
	sim->heap_capacity = FIRST_CAPACITY;
	sim->heap = sim_raw_alloc(FIRST_CAPACITY * sizeof(*sim->heap));
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
	sim_raw_free(sim->heap);
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

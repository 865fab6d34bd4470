/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is due, in a heap by time, and of one time by when it was scheduled.
 *
 * An entry of the heap is that of its event's last scheduling if their numbers are equal; else it is
 * dead, and passed over when its time comes. So cancelling does not look for it, and moving entries
 * touches no event: with many processes that is most of the time. Dead entries outlive their events:
 * memory that was an event's is used for events only (sim_pool.c), so that their numbers can be looked
 * at. They are swept out before they are the most.
 */
#include <string.h>

#include "sim/sim_private.h"

#define FIRST_CAPACITY 1024u
#define FEW            1024u /* dead entries that are not worth a sweep */
#define WAYS           4u

static bool is_before(const struct sim_due *a, const struct sim_due *b)
{
	return a->at < b->at || (a->at == b->at && a->sequence < b->sequence);
}

static void sift_up(struct sim_heap *heap, uint32_t at, struct sim_due due)
{
	struct sim_due *entries = heap->entries;

	while (at && is_before(&due, &entries[(at - 1) / WAYS])) {
		entries[at] = entries[(at - 1) / WAYS];
		at = (at - 1) / WAYS;
	}
	entries[at] = due;
}

static void sift_down(struct sim_heap *heap, uint32_t at, struct sim_due due)
{
	struct sim_due *entries = heap->entries;

	for (;;) {
		uint32_t child = WAYS * at + 1, end = child + WAYS, least = child;

		if (child >= heap->count)
			break;
		end = end < heap->count ? end : heap->count;
		while (++child < end)
			if (is_before(&entries[child], &entries[least]))
				least = child;
		if (!is_before(&entries[least], &due))
			break;
		entries[at] = entries[least];
		at = least;
	}
	entries[at] = due;
}

static void grow(struct sim_heap *heap)
{
	uint32_t capacity = heap->capacity ? 2 * heap->capacity : FIRST_CAPACITY;
	struct sim_due *entries = sim_raw_alloc(capacity * sizeof(*entries));

	if (heap->count)
		memcpy(entries, heap->entries, heap->count * sizeof(*entries));
	sim_raw_free(heap->entries);
	heap->entries = entries;
	heap->capacity = capacity;
}

static bool is_dead(const struct sim_due *due)
{
	return due->event->sequence != due->sequence;
}

static void sweep(struct sim_heap *heap)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < heap->count; i++)
		if (!is_dead(&heap->entries[i]))
			heap->entries[count++] = heap->entries[i];
	heap->count = count;
	heap->dead = 0;
	for (uint32_t i = count / WAYS + 1; i-- > 0;)
		if (i < count)
			sift_down(heap, i, heap->entries[i]);
}

void sim_cancel(struct sim *sim, struct sim_event *event)
{
	if (!event->sequence)
		return;
	event->sequence = 0;
	if (++sim->heap.dead > FEW && 2 * sim->heap.dead > sim->heap.count)
		sweep(&sim->heap);
}

void sim_schedule(struct sim *sim, struct sim_event *event, uint64_t at)
{
	struct sim_heap *heap = &sim->heap;
	struct sim_due due = { .at = sim_later(at, sim->now), .event = event };

	sim_cancel(sim, event);
	event->sequence = due.sequence = ++sim->sequence;
	if (heap->count == heap->capacity)
		grow(heap);
	sift_up(heap, heap->count++, due);
}

static struct sim_due pop(struct sim_heap *heap)
{
	struct sim_due due = heap->entries[0];

	if (--heap->count)
		sift_down(heap, 0, heap->entries[heap->count]);
	return due;
}

uint64_t sim_next_at(struct sim *sim)
{
	struct sim_heap *heap = &sim->heap;

	while (heap->count && is_dead(&heap->entries[0])) {
		pop(heap);
		heap->dead--;
	}
	return heap->count ? heap->entries[0].at : BASE_FOREVER;
}

void sim_run_next(struct sim *sim)
{
	struct sim_due due = pop(&sim->heap);

	if (sim->heap.count) /* it will be wanted next */
		__builtin_prefetch(sim->heap.entries[0].event);
	due.event->sequence = 0;
	sim->now = due.at;
	sim->stats.events++;
	due.event->run(sim, due.event);
}

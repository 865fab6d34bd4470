/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of the world's own: no process owns it, and all of it goes when the world ends. Blocks
 * come from lists by size, and lists from slabs; large ones are made one by one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_private.h"

#define SLAB_BYTES   (1ul << 18)
#define LINE_BYTES   64ul
#define FINE_BYTES   1024ul /* 2 to the 10th: class_of() */
#define FINE_CLASSES 17u

/* Where malloc is wrapped (sim_memory.c), this is the one beneath. */
void *__real_malloc(size_t len_bytes) __attribute__((weak));
void __real_free(void *block) __attribute__((weak));

void *sim_raw_alloc(size_t len_bytes)
{
	void *block = __real_malloc ? __real_malloc(len_bytes) : malloc(len_bytes);

	if (!block) {
		fprintf(stderr, "sim: no memory\n");
		abort();
	}
	return block;
}

void sim_raw_free(void *block)
{
	if (__real_free)
		__real_free(block);
	else
		free(block);
}

/* Slabs are a list through their first bytes. */
static char *new_slab(struct sim *sim, size_t len_bytes)
{
	char *slab = sim_raw_alloc(len_bytes + 16);

	*(void **)slab = sim->slabs;
	sim->slabs = slab;
	return slab + 16;
}

/* Multiples of a cache line, so that objects of one kind do not all lie in the same few sets; then powers of two. */
static unsigned int class_of(size_t len_bytes)
{
	if (len_bytes <= FINE_BYTES)
		return (unsigned int)((len_bytes + LINE_BYTES - 1) / LINE_BYTES);
	return FINE_CLASSES + 53 - (unsigned int)__builtin_clzl(len_bytes - 1);
}

static size_t size_of(unsigned int class)
{
	if (class < FINE_CLASSES)
		return class ? class * LINE_BYTES : LINE_BYTES;
	return FINE_BYTES << (class - FINE_CLASSES + 1);
}

static void *large_alloc(struct sim *sim, size_t len_bytes)
{
	struct sim_large *large = sim_raw_alloc(sizeof(*large) + len_bytes);

	LIST_INSERT_HEAD(&sim->large, large, link);
	return large + 1;
}

static void large_free(void *block)
{
	struct sim_large *large = (struct sim_large *)block - 1;

	LIST_REMOVE(large, link);
	sim_raw_free(large);
}

static void *take(struct sim *sim, struct sim_pool *pools, unsigned int class)
{
	size_t size = size_of(class);
	void *block = pools[class].free;

	if (sim_likely(block != NULL)) {
		memcpy(&pools[class].free, block, sizeof(void *));
		return block;
	}
	if (sim->slab_left < size) {
		sim->slab = new_slab(sim, SLAB_BYTES);
		sim->slab_left = SLAB_BYTES;
	}
	block = sim->slab;
	sim->slab += size;
	sim->slab_left -= size;
	return block;
}

static void give(struct sim_pool *pools, void *block, unsigned int class)
{
	memcpy(block, &pools[class].free, sizeof(void *));
	pools[class].free = block;
}

void *sim_alloc(struct sim *sim, size_t len_bytes)
{
	unsigned int class = class_of(len_bytes);

	return class < SIM_POOL_CLASSES ? take(sim, sim->pools, class) : large_alloc(sim, len_bytes);
}

void sim_free(struct sim *sim, void *block, size_t len_bytes)
{
	unsigned int class = class_of(len_bytes);

	if (block && class < SIM_POOL_CLASSES)
		give(sim->pools, block, class);
	else if (block)
		large_free(block);
}

_Static_assert(offsetof(struct sim_event, sequence) >= sizeof(void *), "a free block keeps it");

void *sim_alloc_event(struct sim *sim, size_t len_bytes)
{
	return take(sim, sim->event_pools, class_of(len_bytes));
}

void sim_free_event(struct sim *sim, void *block, size_t len_bytes)
{
	((struct sim_event *)block)->sequence = 0;
	give(sim->event_pools, block, class_of(len_bytes));
}

void sim_pool_end(struct sim *sim)
{
	while (!LIST_EMPTY(&sim->large))
		large_free(LIST_FIRST(&sim->large) + 1);
	while (sim->slabs) {
		void *slab = sim->slabs;

		memcpy(&sim->slabs, slab, sizeof(void *));
		sim_raw_free(slab);
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of the world's own: no process owns it, and all of it goes when the world ends. Blocks
 * come from lists by size, a power of two, and lists from slabs; large ones are made one by one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_private.h"

#define SLAB_BYTES     (1ul << 18)
#define SMALLEST_SHIFT 5

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

static unsigned int class_of(size_t len_bytes)
{
	if (len_bytes <= 1u << SMALLEST_SHIFT)
		return 0;
	return 64 - (unsigned int)__builtin_clzl(len_bytes - 1) - SMALLEST_SHIFT;
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

void *sim_alloc(struct sim *sim, size_t len_bytes)
{
	unsigned int class = class_of(len_bytes);
	size_t size = 1ul << (class + SMALLEST_SHIFT);
	void *block;

	if (class >= SIM_POOL_CLASSES)
		return large_alloc(sim, len_bytes);
	block = sim->pools[class].free;
	if (sim_likely(block != NULL)) {
		memcpy(&sim->pools[class].free, block, sizeof(void *));
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

void sim_free(struct sim *sim, void *block, size_t len_bytes)
{
	unsigned int class = class_of(len_bytes);

	if (!block)
		return;
	if (class >= SIM_POOL_CLASSES) {
		large_free(block);
		return;
	}
	memcpy(block, &sim->pools[class].free, sizeof(void *));
	sim->pools[class].free = block;
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

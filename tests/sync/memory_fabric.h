/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric over plain memory that processes share by fork, which can lose completions, hold lists back and
 * kill its process between any two operations.
 */
#ifndef TESTS_SYNC_MEMORY_FABRIC_H
#define TESTS_SYNC_MEMORY_FABRIC_H

#include "core/layout.h"
#include "fabric/fabric.h"

#define MEMORY_NEVER UINT32_MAX

struct memory_endpoint {
	struct fabric_endpoint base; /* first */
	char *region[CORE_REGIONS];
	uint64_t len_bytes[CORE_REGIONS];
	uint32_t break_after; /* operations (a wait is one too) until the endpoint breaks; MEMORY_NEVER */
	uint32_t kill_after; /* the same, until the process dies */
	bool stalled;        /* lists are neither done nor completed */
	bool broken;
	uint32_t lists, ops, waits, wakes; /* counted, for tests of cost */
	struct memory_list {
		struct fabric_op ops[16];
		uint32_t n;
		struct fabric_completion *completion;
		bool done;
	} held[4];
	uint32_t held_count;
};

extern struct fabric memory_fabric;

void memory_endpoint_init(struct memory_endpoint *ep);

/* After a break: what was held back is cut off and completes with the error. */
void memory_repair(struct memory_endpoint *ep);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all synchronisation shares: a server's endpoint and how to wait on it. Workers wait on
 * their own endpoint; the server acts for the dead through its loopback endpoint, by the same
 * functions.
 *
 * A call that fails may leave a list under way on peer->completion, into the object's memory: it has
 * to be over, or the endpoint aborted, before the object is closed.
 */
#ifndef SYNC_SYNC_H
#define SYNC_SYNC_H

#include "core/layout.h"
#include "fabric/fabric.h"

#define SYNC_SLICE_NS 20000000ull /* longest sleep between looks at interrupts and deaths */

struct sync_peer {
	struct fabric *fabric;
	struct fabric_endpoint *ep; /* words and published are granted on it */
	uint32_t *interrupt; /* nonzero: end the wait with -EINTR and clear it; NULL: never */
	uint32_t workers;
	uint32_t on_death; /* enum ramps_on_death */
	uint64_t states_offset;
	struct fabric_completion completion;
	uint64_t result[2]; /* of atomics and small READs: the fabric's while a list is under way */
	struct core_node nodes[CORE_MAX_FAN_IN]; /* a barrier's, READ together: likewise */
};

/*
 * One slice of a wait on a word: like fabric_wait_word(), but returns -EAGAIN after
 * SYNC_SLICE_NS, for the caller to look around and come again, -ETIMEDOUT only at the deadline,
 * and -EINTR when interrupted.
 */
int sync_wait_slice(struct sync_peer *peer, uint32_t region, uint64_t offset, uint64_t seen,
		    uint64_t *value, uint64_t deadline_ns);

/* The deadline for looking around: a slice from now, or deadline_ns if that is later. */
uint64_t sync_grace(struct sync_peer *peer, uint64_t deadline_ns);

/* Reads the states of all ranks into states[workers]. */
int sync_read_states(struct sync_peer *peer, uint64_t *states, uint64_t deadline_ns);

/* Reads len_bytes of a region, in as many READs as the fabric needs. */
int sync_read(struct sync_peer *peer, uint32_t region, uint64_t offset, void *dst,
	      uint64_t len_bytes, uint64_t deadline_ns);

#define SYNC_RANKS_TEXT 160

/* Writes "rank 3" or "ranks 3, 7 and 12 more" for an error's text. Returns text. */
const char *sync_ranks_text(char text[SYNC_RANKS_TEXT], const uint32_t *ranks, uint32_t count);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SYNC_BARRIER_H
#define SYNC_BARRIER_H

#include <stdbool.h>

#include "sync/sync.h"

#define SYNC_MAX_LEVELS     16u /* fan-in 2 reaches 16384 members in 14 */
#define SYNC_DEFAULT_FAN_IN 32u

/*
 * One rank's place in a barrier. Belongs to one thread at a time; the peer is passed to each
 * call.
 */
struct sync_barrier;

/* Number of nodes of the tree, for whoever allocates it. */
uint64_t sync_barrier_nodes(uint32_t members, uint32_t fan_in);

/*
 * Takes member `member`'s place: reads its leaf and begins at the leaf's generation, or the one
 * after it if the member's bit is set (then an earlier life has arrived, and the first call waits
 * that generation out). ranks[members] names the members for errors; NULL: member i is rank i. It
 * is copied.
 */
int sync_barrier_open(struct sync_peer *peer, const struct core_barrier *where, uint32_t member,
		      const uint32_t *ranks, uint64_t deadline_ns, struct sync_barrier **barrier);

/* -EALREADY: arrived and not yet waited for. */
int sync_barrier_arrive(struct sync_peer *peer, struct sync_barrier *barrier, uint64_t deadline_ns);

/*
 * Arrives if need be, and waits. -ETIMEDOUT and -EOWNERDEAD: ranks are in the error. -EINTR,
 * -ENOTCONN.
 */
int sync_barrier_wait(struct sync_peer *peer, struct sync_barrier *barrier, uint64_t deadline_ns);

/* Whether this member has arrived and not yet waited. */
bool sync_barrier_arrived(const struct sync_barrier *barrier);

/* The generation that this member is in or enters next. */
uint32_t sync_barrier_generation(const struct sync_barrier *barrier);

void sync_barrier_close(struct sync_barrier *barrier);

/*
 * The server's part: arrives for each member i with absent[i] (dead by a policy to go on, or
 * left; fenced) at the generation that is open, if a member that is not absent has arrived at it;
 * and completes climbs and releases that a dead member left undone. Call it again whenever a
 * member may have arrived. Returns how many it arrived for.
 */
int sync_barrier_stand_in(struct sync_peer *peer, const struct core_barrier *where,
			  const bool *absent, uint64_t deadline_ns);

/*
 * What a reader of the arena's words can say of a barrier: its open generation, and for each
 * member whether it has arrived. nodes points at the tree. Returns the number of members that
 * have.
 */
uint32_t sync_barrier_inspect(const struct core_barrier *where, const struct core_node *nodes,
			      uint32_t *generation, bool *arrived);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SYNC_CLOCK_H
#define SYNC_CLOCK_H

#include "sync/sync.h"

/* One rank's view of a clock. Belongs to one thread at a time. */
struct sync_clock;

int sync_clock_open(struct sync_peer *peer, const struct core_clock *where, uint32_t rank,
		    uint64_t deadline_ns, struct sync_clock **clock);

/* Counts one step of this rank. -ETIMEDOUT: not counted, as far as is known. */
int sync_clock_advance(struct sync_peer *peer, struct sync_clock *clock, uint64_t deadline_ns);

/* -ETIMEDOUT and -EOWNERDEAD: ranks are in the error. -EINTR, -ENOTCONN. */
int sync_clock_wait(struct sync_peer *peer, struct sync_clock *clock, uint64_t staleness,
		    uint64_t deadline_ns);

/* own and least may be NULL. least: a lower bound of the live ranks' least; with none live, own. */
int sync_clock_read(struct sync_peer *peer, struct sync_clock *clock, uint64_t *own,
		    uint64_t *least, uint64_t deadline_ns);

void sync_clock_close(struct sync_clock *clock);

/*
 * The server's part, before it lists `rank` as live: raises its count to the least of the live
 * ranks, if it is below.
 */
int sync_clock_raise(struct sync_peer *peer, const struct core_clock *where, uint32_t rank,
		     uint64_t deadline_ns);

#endif

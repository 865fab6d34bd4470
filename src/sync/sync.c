/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting by slices, reading in pieces, and naming ranks. */
#include "sync/sync.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"

#define RANKS_NAMED 12u /* in a text; the error's array has them all */

static bool interrupted(uint32_t *flag)
{
	return flag && __atomic_load_n(flag, __ATOMIC_RELAXED) &&
	       __atomic_exchange_n(flag, 0, __ATOMIC_RELAXED);
}

int sync_wait_slice(struct sync_peer *peer, uint32_t region, uint64_t offset, uint64_t seen,
		    uint64_t *value, uint64_t deadline_ns)
{
	uint64_t slice_end;
	int ret;

	if (interrupted(peer->interrupt))
		return base_fail(-EINTR, "the wait was interrupted by ramps_worker_interrupt()");
	slice_end = fabric_now(peer->fabric) + SYNC_SLICE_NS;
	if (slice_end >= deadline_ns)
		return fabric_wait_word(peer->ep, region, offset, seen, value, deadline_ns);
	ret = fabric_wait_word(peer->ep, region, offset, seen, value, slice_end);
	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

uint64_t sync_grace(struct sync_peer *peer, uint64_t deadline_ns)
{
	uint64_t least = fabric_now(peer->fabric) + SYNC_SLICE_NS;

	return least > deadline_ns ? least : deadline_ns;
}

int sync_read(struct sync_peer *peer, uint32_t region, uint64_t offset, void *dst,
	      uint64_t len_bytes, uint64_t deadline_ns)
{
	struct fabric_op op = { .opcode = FABRIC_READ, .region = (uint16_t)region };
	uint64_t done, most = peer->ep->limits.max_transfer_bytes / 8 * 8;
	int ret;

	for (done = 0; done < len_bytes; done += op.len_bytes) {
		op.offset = offset + done;
		op.len_bytes = len_bytes - done < most ? len_bytes - done : most;
		op.local = (char *)dst + done;
		ret = fabric_execute(peer->ep, &op, 1, &peer->completion, deadline_ns);
		if (ret)
			return ret;
	}
	return 0;
}

int sync_read_states(struct sync_peer *peer, uint64_t *states, uint64_t deadline_ns)
{
	return sync_read(peer, CORE_PUBLISHED, peer->states_offset, states,
			 (uint64_t)peer->workers * sizeof(*states), deadline_ns);
}

const char *sync_ranks_text(char text[SYNC_RANKS_TEXT], const uint32_t *ranks, uint32_t count)
{
	uint32_t named = count < RANKS_NAMED ? count : RANKS_NAMED;
	size_t len;

	len = (size_t)snprintf(text, SYNC_RANKS_TEXT, count == 1 ? "rank" : "ranks");
	for (uint32_t i = 0; i < named; i++)
		len += (size_t)snprintf(text + len, SYNC_RANKS_TEXT - len, "%s %u", i ? "," : "",
					ranks[i]);
	if (named < count)
		snprintf(text + len, SYNC_RANKS_TEXT - len, " and %u more", count - named);
	return text;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Control messages between a worker and one server. The worker asks, the server answers each
 * request with one core_reply, in order; CORE_WAKE has no answer. All integers are in the
 * machine's byte order: the layout hash differs between machines that do not agree.
 *
 * A worker's first message on a connection is CORE_JOIN. Its reply is preceded by the grants of
 * words, published and the rank's slots.
 */
#ifndef CORE_MESSAGE_H
#define CORE_MESSAGE_H

#include "core/layout.h"

#define CORE_MESSAGE_MAGIC 0x706d6172u /* "ramp" */

enum core_request_kind {
	CORE_JOIN = 1,
	CORE_LEAVE,
	CORE_CREATE,    /* entry: name, kind and parameters; idempotent. Reply: the entry, whole */
	CORE_LOOKUP,    /* entry.name, entry.kind. Reply: the entry, or -ENOENT */
	CORE_SET_READY, /* entry.index: initial values are in */
	CORE_WAKE,
	CORE_LOOK, /* without a rank: grants published, for a look at it. Not followed by a join */
};

enum core_join_how {
	CORE_JOIN_NEW = 0, /* a new life. Shard 0 chooses the incarnation, the others are told it */
	CORE_JOIN_AGAIN = 1, /* the same life reconnects, or a clone of it connects */
};

struct core_request {
	uint32_t magic, kind;
	uint32_t version, layout_hash; /* CORE_JOIN */
	char job[RAMPS_NAME_BYTES];
	uint32_t rank, workers, shard, shards;
	uint32_t how;         /* enum core_join_how */
	uint32_t incarnation; /* CORE_JOIN_NEW to shard 0: 0 */
	uint64_t arena_id;    /* CORE_JOIN_AGAIN: the arena that this worker knows */
	uint64_t replaces; /* CORE_JOIN_AGAIN: number of the connection that is cut for this one, or 0 */
	struct core_entry entry;
	/* CORE_CREATE of a barrier with fewer members than workers: bits of its ranks. */
	uint64_t group[CORE_MAX_WORKERS / 64];
};

struct core_reply {
	uint32_t magic;
	int32_t status; /* 0 or -errno. -EAGAIN to CORE_JOIN: the old life is being fenced, ask again */
	uint32_t version, layout_hash;
	uint32_t incarnation;
	uint32_t reserved;
	uint64_t arena_id;
	uint64_t connection; /* CORE_JOIN: this connection's number, of all lives of the server */
	struct core_entry entry;
	char text[512]; /* when status is negative: what happened and what to do */
};

_Static_assert(sizeof(struct core_request) <= 4096, "a request is one message");
_Static_assert(sizeof(struct core_reply) <= 4096, "a reply is one message");

#endif

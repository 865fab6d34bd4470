/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Barriers go on without ranks that left, or died under a policy to go on: the server arrives for
 * them, through its loopback endpoint, once a rank that is there has arrived. Nobody tells the
 * server that one has; so while some rank is absent it looks, and only where a barrier's words
 * have changed does it act.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "ps/ps_private.h"

int ps_barrier_add(struct ps_server *server, const struct core_barrier *where)
{
	uint32_t n = server->barrier_count;
	struct ps_barrier *more;

	if ((n & (n - 1)) == 0) { /* full at powers of two */
		more = realloc(server->barriers, (n ? 2ull * n : 1) * sizeof(*more));
		if (!more)
			return base_fail(-ENOMEM, "no memory for a barrier");
		server->barriers = more;
	}
	server->barriers[n] = (struct ps_barrier){ .where = where };
	server->barrier_count = n + 1;
	return 0;
}

static uint64_t sum_words(const struct ps_server *server, const struct core_barrier *where)
{
	const struct core_node *nodes = core_arena_at(server->arena, CORE_WORDS, where->nodes_offset);
	uint64_t count = sync_barrier_nodes(where->members, where->fan_in), sum = 1;

	for (uint64_t i = 0; i < count; i++)
		sum = sum * 31 + word_acquire(&nodes[i].word);
	return sum;
}

/* Fills server->absent by member; whether any is. */
static bool find_absent(struct ps_server *server, const struct core_barrier *where)
{
	const uint64_t *group = where->group_offset ? core_arena_at(server->arena, CORE_PUBLISHED,
								    where->group_offset) :
						      NULL;
	uint32_t member = 0;
	bool any = false;

	for (uint32_t rank = 0; rank < ps_workers(server) && member < where->members; rank++) {
		if (group && !(group[rank / 64] >> rank % 64 & 1))
			continue;
		server->absent[member] = ps_is_excused(server, ps_state(server, rank));
		any |= server->absent[member];
		member++;
	}
	return any;
}

int ps_stand_in(struct ps_server *server)
{
	uint64_t deadline = fabric_now(server->fabric) + PS_LOOPBACK_NS;
	int moved = 0, ret;

	for (uint32_t i = 0; i < server->barrier_count; i++) {
		struct ps_barrier *b = &server->barriers[i];
		uint64_t sum = sum_words(server, b->where);

		if (sum == b->seen && !server->stand_in_all)
			continue;
		b->seen = sum;
		if (!find_absent(server, b->where))
			continue;
		ret = sync_barrier_stand_in(&server->self, b->where, server->absent, deadline);
		if (ret < 0) {
			b->seen = 0;
			base_log(RAMPS_LOG_ERROR, "standing in at a barrier: error %d", ret);
		}
		moved |= ret > 0;
	}
	server->stand_in_all = false;
	return moved;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's part in a barrier: it moves words as a client of itself, by the swaps that anyone
 * may make (see barrier.c). It reads the whole tree once and decides from that. The picture may
 * be torn and old: what it shows as arrived or released is so for ever, what it does not show is
 * found out by the swap, or at the next call.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "sync/barrier_tree.h"

struct stand_in {
	struct sync_peer *peer;
	struct barrier_tree tree;
	const bool *absent;
	struct core_node *nodes; /* level after level, as in the arena */
	uint32_t generation;     /* that is open */
	uint64_t deadline_ns;
};

static struct core_node *node_at(const struct stand_in *s, uint32_t level, uint32_t index)
{
	return s->nodes + (barrier_node(&s->tree, level, index) - s->tree.offset[0]) / sizeof(*s->nodes);
}

static bool someone_arrived(const struct stand_in *s)
{
	for (uint32_t i = 0; i < s->tree.members; i++)
		if (!s->absent[i] && barrier_has(node_at(s, 0, i / s->tree.fan_in)->word,
						 s->generation, barrier_bit(&s->tree, i)))
			return true;
	return false;
}

/* Moves `released` of all nodes on to `generation`, from the top. */
static int release_all(const struct stand_in *s, uint32_t generation)
{
	int ret;

	for (uint32_t level = s->tree.levels - 1; level-- > 0;) {
		for (uint32_t i = 0; i < s->tree.width[level]; i++) {
			ret = barrier_release(s->peer, &s->tree, (struct barrier_place){ level, i },
					      generation, &node_at(s, level, i)->released,
					      s->deadline_ns);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* Climbs from each node that is full while its bit above is clear. 1: the root became full. */
static int complete_climbs(const struct stand_in *s)
{
	bool root_full = false;
	uint32_t g = s->generation;
	int ret;

	for (uint32_t level = 0; level + 1 < s->tree.levels; level++) {
		for (uint32_t i = 0; i < s->tree.width[level]; i++) {
			if (!barrier_has(node_at(s, level, i)->word, g, barrier_full(&s->tree, level, i)) ||
			    barrier_has(node_at(s, level + 1, i / s->tree.fan_in)->word, g,
					barrier_bit(&s->tree, i)))
				continue;
			ret = barrier_climb(s->peer, &s->tree, (struct barrier_place){ level, i },
					    g, BARRIER_FULL, s->deadline_ns);
			if (ret < 0)
				return ret;
			root_full |= ret == (int)s->tree.levels;
		}
	}
	return root_full;
}

/* Arrives for the absent. The number; *root_full is set if that released the generation. */
static int arrive_for_absent(const struct stand_in *s, bool *root_full)
{
	uint32_t g = s->generation, leaf;
	int count = 0, ret;

	for (uint32_t i = 0; i < s->tree.members; i++) {
		leaf = i / s->tree.fan_in;
		if (!s->absent[i] || barrier_has(node_at(s, 0, leaf)->word, g, barrier_bit(&s->tree, i)))
			continue;
		ret = barrier_set(s->peer, &s->tree, 0, i, g, s->deadline_ns);
		if (ret < 0)
			return ret;
		count += !!(ret & BARRIER_MINE);
		if (!(ret & BARRIER_FULL))
			continue;
		ret = barrier_climb(s->peer, &s->tree, (struct barrier_place){ 0, leaf }, g,
				    BARRIER_FULL, s->deadline_ns);
		if (ret < 0)
			return ret;
		*root_full |= ret == (int)s->tree.levels;
	}
	return count;
}

static int act(struct stand_in *s)
{
	uint32_t top = s->tree.levels - 1;
	uint64_t root = node_at(s, top, 0)->word;
	bool root_full = false;
	int count = 0, ret;

	s->generation = barrier_generation(root) +
			(barrier_arrived(root) == barrier_full(&s->tree, top, 0));
	ret = release_all(s, s->generation - 1);
	if (ret)
		return ret;
	ret = complete_climbs(s);
	if (ret < 0)
		return ret;
	root_full = ret;
	if (!root_full && someone_arrived(s))
		count = arrive_for_absent(s, &root_full);
	if (count < 0)
		return count;
	ret = root_full ? release_all(s, s->generation) : 0;
	return ret ? ret : count;
}

int sync_barrier_stand_in(struct sync_peer *peer, const struct core_barrier *where,
			  const bool *absent, uint64_t deadline_ns)
{
	struct stand_in s = { .peer = peer, .absent = absent, .deadline_ns = deadline_ns };
	uint64_t len_bytes = sync_barrier_nodes(where->members, where->fan_in) * sizeof(*s.nodes);
	int ret = barrier_tree_init(&s.tree, where);

	if (ret)
		return ret;
	s.nodes = malloc(len_bytes);
	if (!s.nodes)
		return base_fail(-ENOMEM, "barrier: no memory for %u members", where->members);
	ret = sync_read(peer, CORE_WORDS, s.tree.offset[0], s.nodes, len_bytes, deadline_ns);
	if (!ret)
		ret = act(&s);
	else if (ret == -ETIMEDOUT)
		return ret; /* the fabric may still write to the nodes: they stay allocated */
	free(s.nodes);
	return ret;
}

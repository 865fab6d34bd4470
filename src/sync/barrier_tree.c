/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The tree's geometry, the moves on its nodes, and what a bystander can read in it. See
 * barrier.c.
 */
#include "sync/barrier_tree.h"

#include <errno.h>
#include <stddef.h>

#include "base/error.h"
#include "base/word.h"

#define FEW 3u /* bits of a root of two children: at most one waits there when the other comes */

int barrier_tree_init(struct barrier_tree *tree, const struct core_barrier *where)
{
	uint32_t below = where->members, level = 0;
	uint64_t offset = where->nodes_offset;

	if (!where->members || where->members > CORE_MAX_WORKERS || where->fan_in < 2 ||
	    where->fan_in > CORE_MAX_FAN_IN) {
		base_fail(-EINVAL, "barrier: no tree of %u members with fan-in %u", where->members,
			  where->fan_in);
		return -EINVAL;
	}
	tree->members = where->members;
	tree->fan_in = where->fan_in;
	do {
		below = (below + where->fan_in - 1) / where->fan_in;
		tree->width[level] = below;
		tree->offset[level] = offset;
		offset += (uint64_t)below * sizeof(struct core_node);
		level++;
	} while (below > 1);
	tree->levels = level;
	return 0;
}

uint64_t sync_barrier_nodes(uint32_t members, uint32_t fan_in)
{
	struct core_barrier where = { .members = members, .fan_in = fan_in };
	struct barrier_tree tree;

	if (barrier_tree_init(&tree, &where))
		return 0;
	return tree.offset[tree.levels - 1] / sizeof(struct core_node) + 1;
}

uint32_t barrier_full(const struct barrier_tree *tree, uint32_t level, uint32_t index)
{
	uint32_t children = level ? tree->width[level - 1] : tree->members;
	uint32_t rest = children - index * tree->fan_in;

	if (rest > tree->fan_in)
		rest = tree->fan_in;
	return rest == 32 ? UINT32_MAX : (1u << rest) - 1;
}

int barrier_corrupt(uint64_t word, uint32_t generation)
{
	return base_fail(-EPROTO,
			 "barrier: a word holds generation %u, arrived %x where generation %u is open: "
			 "something else wrote to it, or two processes have one rank",
			 barrier_generation(word), barrier_arrived(word), generation);
}

int barrier_read(struct sync_peer *peer, uint64_t node, uint64_t deadline_ns)
{
	_Static_assert(offsetof(struct core_node, released) == sizeof(uint64_t), "read as a pair");

	return sync_read(peer, CORE_WORDS, node, peer->result, sizeof(peer->result), deadline_ns);
}

uint8_t barrier_flags(const struct barrier_tree *tree, uint32_t level)
{
	uint32_t full = barrier_full(tree, level, 0);

	return level + 1 == tree->levels && full <= FEW ? FABRIC_WAITABLE : 0;
}

void barrier_filled(struct sync_peer *peer, const struct barrier_tree *tree, uint32_t level)
{
	struct fabric_op wake = { .opcode = FABRIC_FETCH_ADD,
				  .region = CORE_WORDS,
				  .flags = FABRIC_WAITABLE,
				  .offset = tree->offset[level] };

	if (level + 1 == tree->levels && barrier_full(tree, level, 0) > FEW)
		fabric_post(peer->ep, &wake, 1, &peer->completion);
}

/* READs the children of a node together: the bits of those that are full at `generation`. */
static int full_children(struct sync_peer *peer, const struct barrier_tree *tree,
			 struct barrier_place place, uint32_t generation, uint64_t deadline_ns,
			 uint32_t *bits)
{
	uint32_t below = place.level - 1, first = place.index * tree->fan_in;
	uint32_t n = tree->width[below] - first;
	int ret;

	if (n > tree->fan_in)
		n = tree->fan_in;
	ret = sync_read(peer, CORE_WORDS, barrier_node(tree, below, first), peer->nodes,
			n * sizeof(*peer->nodes), deadline_ns);
	for (uint32_t i = 0; i < n && !ret; i++)
		if (barrier_has(peer->nodes[i].word, generation, barrier_full(tree, below, first + i)))
			*bits |= 1u << i;
	return ret;
}

int barrier_set(struct sync_peer *peer, const struct barrier_tree *tree, uint32_t level,
		uint32_t child, uint32_t generation, uint64_t deadline_ns)
{
	uint32_t index = child / tree->fan_in, bit = barrier_bit(tree, child), bits = bit;
	uint32_t full = barrier_full(tree, level, index);
	uint64_t word = barrier_word(generation, 0), old;
	struct fabric_op ops[2] = {
		{ .opcode = FABRIC_COMPARE_SWAP,
		  .region = CORE_WORDS,
		  .local = &peer->result[0],
		  .compare = barrier_word(generation - 1, full),
		  .operand = word },
		{ .opcode = FABRIC_COMPARE_SWAP,
		  .region = CORE_WORDS,
		  .local = &peer->result[1],
		  .flags = barrier_flags(tree, level) },
	};
	uint32_t opening = level + 1 == tree->levels; /* others are open, or it will be seen */
	int ret;

	ops[0].offset = ops[1].offset = barrier_node(tree, level, index);
	for (;;) {
		ops[1].compare = word;
		ops[1].operand = word | bits;
		ret = fabric_execute(peer->ep, ops + 1 - opening, 1 + opening, &peer->completion,
				     deadline_ns);
		if (ret)
			return ret;
		old = peer->result[1];
		if (old == word) {
			if ((barrier_arrived(word) | bits) != full)
				return BARRIER_MINE;
			barrier_filled(peer, tree, level);
			return BARRIER_FULL | BARRIER_MINE;
		}
		if (barrier_has(old, generation, bit))
			return barrier_has(old, generation, full) ? BARRIER_FULL : 0;
		opening = old == ops[0].compare;
		if (opening)
			continue;
		if (barrier_generation(old) != generation)
			return barrier_corrupt(old, generation);
		word = old;
		if (level)
			ret = full_children(peer, tree, (struct barrier_place){ level, index },
					    generation, deadline_ns, &bits);
		if (ret)
			return ret;
	}
}

int barrier_climb(struct sync_peer *peer, const struct barrier_tree *tree, struct barrier_place from,
		  uint32_t generation, uint32_t needs, uint64_t deadline_ns)
{
	int ret;

	while (++from.level < tree->levels) {
		ret = barrier_set(peer, tree, from.level, from.index, generation, deadline_ns);
		if (ret < 0)
			return ret;
		if (((uint32_t)ret & needs) != needs)
			break;
		from.index /= tree->fan_in;
	}
	return (int)from.level;
}

int barrier_walk(struct sync_peer *peer, const struct barrier_tree *tree, uint32_t member,
		 uint32_t generation, uint64_t deadline_ns)
{
	uint32_t child = member, index;
	bool below_full = false;
	uint64_t word;
	int ret;

	for (uint32_t level = 0; level < tree->levels; level++, child = index) {
		index = child / tree->fan_in;
		ret = barrier_read(peer, barrier_node(tree, level, index), deadline_ns);
		if (ret)
			return ret;
		word = peer->result[0];
		if (barrier_later(word, generation))
			return 1;
		if (level + 1 < tree->levels && barrier_covers(peer->result[1], generation))
			return 1;
		if (below_full && !barrier_has(word, generation, barrier_bit(tree, child))) {
			ret = barrier_climb(peer, tree, (struct barrier_place){ level - 1, child },
					    generation, BARRIER_FULL, deadline_ns);
			if (ret < 0)
				return ret;
			return ret == (int)tree->levels;
		}
		below_full = barrier_has(word, generation, barrier_full(tree, level, index));
	}
	return below_full;
}

int barrier_release(struct sync_peer *peer, const struct barrier_tree *tree, struct barrier_place place,
		    uint32_t generation, uint64_t *seen, uint64_t deadline_ns)
{
	uint64_t node = barrier_node(tree, place.level, place.index);
	uint32_t full = barrier_full(tree, place.level, place.index);
	struct fabric_op ops[2] = {
		{ .opcode = FABRIC_COMPARE_SWAP,
		  .region = CORE_WORDS,
		  .offset = node,
		  .local = &peer->result[0],
		  .compare = barrier_word(generation, full),
		  .operand = barrier_word(generation + 1, 0) },
		{ .opcode = FABRIC_COMPARE_SWAP,
		  .region = CORE_WORDS,
		  .flags = FABRIC_WAITABLE,
		  .offset = node + offsetof(struct core_node, released),
		  .local = &peer->result[1] },
	};
	int ret;

	while (!barrier_covers(*seen, generation)) {
		ops[1].compare = *seen;
		ops[1].operand = *seen + (uint32_t)(generation + 1 - (uint32_t)*seen);
		ret = fabric_execute(peer->ep, ops, 2, &peer->completion, deadline_ns);
		if (ret)
			return ret;
		*seen = peer->result[1] == ops[1].compare ? ops[1].operand : peer->result[1];
	}
	return 0;
}

uint32_t sync_barrier_inspect(const struct core_barrier *where, const struct core_node *nodes,
			      uint32_t *generation, bool *arrived)
{
	struct barrier_tree tree;
	uint32_t count = 0;
	uint64_t word;

	*generation = 0;
	if (barrier_tree_init(&tree, where))
		return 0;
	word = word_acquire(&nodes[sync_barrier_nodes(where->members, where->fan_in) - 1].word);
	*generation = barrier_generation(word);
	if (barrier_arrived(word) == barrier_full(&tree, tree.levels - 1, 0))
		++*generation;
	for (uint32_t i = 0; i < tree.members; i++) {
		word = word_load(&nodes[i / tree.fan_in].word);
		arrived[i] = barrier_has(word, *generation, barrier_bit(&tree, i));
		count += arrived[i];
	}
	return count;
}

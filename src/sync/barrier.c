/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The barrier, and a member's part in it.
 *
 * The tree. Members are the bits of leaves, nodes the bits of the node above, one root
 * (core/layout.h). A node has two words. `word` is generation:32 | arrived:32, and goes through
 * (g, none), (g, some), (g, full), (g+1, none): it only grows, and a value never comes back.
 * `released` counts the generations that are over, as far as this node has been told. Both wrap;
 * they are compared by the sign of a difference. A generation is released when the root is full
 * at it: that is the one moment that decides, all else passes it on.
 *
 * Arriving. Who enters g has seen g-1 released at its leaf, or passes that down itself; either
 * opens the leaf first: (g-1, full) -> (g, none). So it adds its bit, and the value that the add
 * returns tells who filled the leaf. That one climbs: it sets the leaf's bit in the node above,
 * and goes on as long as it fills nodes. (The root has nobody above who would open it: who comes
 * there sends the opening swap ahead, which one wins and the others need not know about.)
 *
 * Why adds only there. An add can't fail under contention, so that the common case is one round
 * trip and one atomic however many arrive. But it may be done once only: a second add of a bit
 * carries into its neighbour. So it is for the one operation of which nobody but its sender can be
 * the author, and which the sender has not tried before. When its fate is not known (`doubt`), when
 * the server stands in, and for all climbing, the bit is set by swap: (g, some) -> (g, some and
 * bit), while the word is at g and the bit clear. Bit set or a later generation: it has been done.
 * Such a move can be made by anyone who sees why, any number of times. A new life of a rank reads
 * its leaf: nothing of its last one can still land, so what it finds clear it may add.
 *
 * Crowds. Swaps of many on one word fail in turn, each for a round trip. So who climbs and fails
 * reads all children of the node, and sets the bits of all that are full: the next swap that
 * succeeds does it for the others. Who finds that it was helped, and the node full, leaves the climb
 * to the helper.
 *
 * Helping. Only one process learns from an add that it must climb, and its completion can be
 * lost, or it can die or be stopped. So nobody relies on it: who has waited for a slice in vain
 * walks from its leaf to the root, and climbs from every node that is full and whose bit above is
 * clear. It does so for the path of a dead member too, if that has arrived, and before it reports
 * a timeout for all. Thus a generation that all have arrived at is released while one of them
 * looks on.
 *
 * Release. Each member waits at the node where its climb ended, not having filled it: at the root
 * on the word itself, below on `released`, so that thousands don't read one word. Then it moves
 * on `released` of the nodes below it, down to its leaf, where those wait who arrived there
 * before it. `released` moves by swap from an older value, so it can't go back, and doing it
 * twice is nothing. A walk that finds any node of its path released passes it down likewise.
 *
 * Waking. A sleeper at the root has no use for (g, some), and 31 arrivals that each wake all who
 * came before take their processors from those who still compute. So arrivals wake nobody; who
 * fills the root adds zero to it to wake all, and does not wait for that. If it dies in between,
 * the sleepers find out after their slice. (A root of two children has one sleeper at most: there
 * the arrival itself wakes.)
 */
#include "sync/barrier.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "sync/barrier_tree.h"

struct sync_barrier {
	struct barrier_tree tree;
	uint32_t member, generation;
	bool arrived;
	bool doubt;  /* an arrival at `generation` may have landed: only a swap is safe */
	bool behind; /* an earlier life arrived at generation-1, which must be released first */
	uint32_t stop; /* level at which this member waits; tree.levels: it knows that it is released */
	uint64_t root;                      /* last seen of the root's word */
	uint32_t path[SYNC_MAX_LEVELS];     /* index of the node at each level */
	uint64_t released[SYNC_MAX_LEVELS]; /* last seen of their `released` */
	uint32_t *ranks;                    /* of each member */
	uint32_t *missing;                  /* members found to be missing, as ranks; for errors */
	uint64_t *states;                   /* of all ranks */
};

static uint64_t path_node(const struct sync_barrier *b, uint32_t level)
{
	return barrier_node(&b->tree, level, b->path[level]);
}

static int read_place(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	const struct barrier_tree *tree = &b->tree;
	uint32_t child = b->member;
	uint64_t leaf = 0;
	int ret;

	for (uint32_t level = 0; level < tree->levels; level++) {
		child /= tree->fan_in;
		b->path[level] = child;
		ret = barrier_read(peer, path_node(b, level), deadline_ns);
		if (ret)
			return ret;
		b->root = peer->result[0];
		b->released[level] = peer->result[1];
		if (!level)
			leaf = peer->result[0];
	}
	b->generation = barrier_generation(leaf);
	b->behind = barrier_arrived(leaf) & barrier_bit(tree, b->member);
	b->generation += b->behind;
	return 0;
}

int sync_barrier_open(struct sync_peer *peer, const struct core_barrier *where, uint32_t member,
		      const uint32_t *ranks, uint64_t deadline_ns, struct sync_barrier **barrier)
{
	struct sync_barrier *b = calloc(1, sizeof(*b));
	int ret;

	if (!b)
		return base_fail(-ENOMEM, "barrier: no memory");
	ret = barrier_tree_init(&b->tree, where);
	if (ret)
		goto fail;
	ret = -EINVAL;
	if (member >= where->members) {
		base_fail(ret, "barrier: member %u of %u", member, where->members);
		goto fail;
	}
	b->member = member;
	b->ranks = calloc(where->members, sizeof(*b->ranks));
	b->missing = calloc(where->members, sizeof(*b->missing));
	b->states = calloc(peer->workers, sizeof(*b->states));
	if (!b->ranks || !b->missing || !b->states) {
		ret = base_fail(-ENOMEM, "barrier: no memory for %u members", where->members);
		goto fail;
	}
	for (uint32_t i = 0; i < where->members; i++)
		b->ranks[i] = ranks ? ranks[i] : i;
	ret = read_place(peer, b, deadline_ns);
	if (ret)
		goto fail;
	*barrier = b;
	return 0;
fail:
	sync_barrier_close(b);
	return ret;
}

void sync_barrier_close(struct sync_barrier *b)
{
	if (!b)
		return;
	free(b->states);
	free(b->missing);
	free(b->ranks);
	free(b);
}

uint32_t sync_barrier_generation(const struct sync_barrier *b)
{
	return b->generation;
}

/*
 * Arriving
 */

/* After the arrival at a leaf that is full. needs: as of barrier_climb(). */
static int climb_from_leaf(struct sync_peer *peer, struct sync_barrier *b, uint32_t needs,
			   uint64_t deadline_ns)
{
	int ret = barrier_climb(peer, &b->tree, (struct barrier_place){ 0, b->path[0] },
				b->generation, needs, deadline_ns);

	if (ret < 0)
		return ret;
	b->stop = (uint32_t)ret;
	return 0;
}

static int arrive_by_add(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	uint32_t bit = barrier_bit(&b->tree, b->member), g = b->generation;
	uint32_t full = barrier_full(&b->tree, 0, b->path[0]);
	struct fabric_op ops[2] = {
		{ .opcode = FABRIC_COMPARE_SWAP,
		  .region = CORE_WORDS,
		  .offset = path_node(b, 0),
		  .local = &peer->result[0],
		  .compare = barrier_word(g - 1, full),
		  .operand = barrier_word(g, 0) },
		{ .opcode = FABRIC_FETCH_ADD,
		  .region = CORE_WORDS,
		  .offset = path_node(b, 0),
		  .flags = barrier_flags(&b->tree, 0),
		  .local = &peer->result[1],
		  .operand = bit },
	};
	uint32_t opening = b->tree.levels == 1; /* a release has opened the leaf, but not the root */
	uint64_t old;
	int ret;

	b->doubt = true;
	b->stop = 0;
	ret = fabric_execute(peer->ep, ops + 1 - opening, 1 + opening, &peer->completion, deadline_ns);
	if (ret)
		return ret;
	old = peer->result[1];
	if (barrier_generation(old) != g || (barrier_arrived(old) & bit))
		return barrier_corrupt(old, g);
	if (b->tree.levels == 1)
		b->root = old + bit;
	if ((barrier_arrived(old) | bit) != full)
		return 0;
	barrier_filled(peer, &b->tree, 0);
	return climb_from_leaf(peer, b, BARRIER_FULL | BARRIER_MINE, deadline_ns);
}

static int arrive_by_swap(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	int ret = barrier_set(peer, &b->tree, 0, b->member, b->generation, deadline_ns);

	if (ret < 0)
		return ret;
	b->stop = 0;
	return ret & BARRIER_FULL ? climb_from_leaf(peer, b, BARRIER_FULL, deadline_ns) : 0;
}

/*
 * Waiting
 */

static bool released(const struct sync_barrier *b, uint32_t generation)
{
	uint32_t top = b->tree.levels - 1;

	if (b->stop > top)
		return true;
	if (b->stop < top)
		return barrier_covers(b->released[b->stop], generation);
	return barrier_has(b->root, generation, barrier_full(&b->tree, top, 0));
}

/* Tells those who wait below. Repeats nothing that it knows to be done. */
static int pass_down(struct sync_peer *peer, struct sync_barrier *b, uint32_t generation,
		     uint64_t deadline_ns)
{
	uint32_t level = b->stop < b->tree.levels - 1 ? b->stop : b->tree.levels - 1;
	int ret;

	while (level-- > 0) {
		ret = barrier_release(peer, &b->tree, (struct barrier_place){ level, b->path[level] },
				      generation, &b->released[level], deadline_ns);
		if (ret)
			return ret;
	}
	return 0;
}

/* Reads leaf `index` into *word; if it is full, helps it up. */
static int look_at_leaf(struct sync_peer *peer, struct sync_barrier *b, uint32_t index,
			uint32_t generation, uint64_t deadline_ns, uint64_t *word)
{
	int ret = barrier_read(peer, barrier_node(&b->tree, 0, index), deadline_ns);

	if (ret)
		return ret;
	*word = peer->result[0];
	if (!barrier_has(*word, generation, barrier_full(&b->tree, 0, index)))
		return 0;
	ret = barrier_walk(peer, &b->tree, index * b->tree.fan_in, generation, deadline_ns);
	if (ret > 0)
		b->stop = b->tree.levels;
	return ret < 0 ? ret : 0;
}

static bool is_dead(const struct sync_peer *peer, const struct sync_barrier *b, uint32_t member)
{
	uint32_t rank = b->ranks[member];

	return rank < peer->workers && core_state_of(b->states[rank]) == CORE_DEAD;
}

/*
 * Collects in b->missing the ranks, of all members or of the dead, that have not arrived; their
 * number, or -errno. States are read before words: what a dead rank did has landed before it is
 * said to be dead.
 */
static int find_missing(struct sync_peer *peer, struct sync_barrier *b, bool only_dead,
			uint32_t generation, uint64_t deadline_ns)
{
	uint32_t leaf = UINT32_MAX;
	uint64_t word = 0;
	int count = 0, ret;

	if (only_dead) {
		ret = sync_read_states(peer, b->states, deadline_ns);
		if (ret)
			return ret;
	}
	for (uint32_t i = 0; i < b->tree.members; i++) {
		if (only_dead && !is_dead(peer, b, i))
			continue;
		if (leaf != i / b->tree.fan_in) {
			leaf = i / b->tree.fan_in;
			ret = look_at_leaf(peer, b, leaf, generation, deadline_ns, &word);
			if (ret)
				return ret;
		}
		if (!barrier_has(word, generation, barrier_bit(&b->tree, i)))
			b->missing[count++] = b->ranks[i];
	}
	return count;
}

/* After a slice that brought nothing: helps, and sees whether somebody died. 0: go on waiting. */
static int look_around(struct sync_peer *peer, struct sync_barrier *b, uint32_t generation,
		       uint64_t deadline_ns)
{
	char text[SYNC_RANKS_TEXT];
	int ret = barrier_walk(peer, &b->tree, b->member, generation, deadline_ns);

	if (ret < 0)
		return ret;
	if (ret)
		b->stop = b->tree.levels;
	if (ret || peer->on_death != RAMPS_ON_DEATH_FAIL)
		return 0;
	ret = find_missing(peer, b, true, generation, deadline_ns);
	if (ret <= 0)
		return ret;
	base_fail(-EOWNERDEAD,
		  "barrier: %s died; start them again, or serve with the policy to go on without",
		  sync_ranks_text(text, b->missing, (uint32_t)ret));
	base_error_ranks(b->missing, (uint32_t)ret);
	return -EOWNERDEAD;
}

/* At the deadline. 0: it turned out to be released. */
static int give_up(struct sync_peer *peer, struct sync_barrier *b, uint32_t generation,
		   uint64_t started_ns, uint64_t deadline_ns)
{
	unsigned long long waited = (fabric_now(peer->fabric) - started_ns) / NS_PER_MS;
	char text[SYNC_RANKS_TEXT];
	int count = find_missing(peer, b, false, generation, deadline_ns);

	if (b->stop == b->tree.levels)
		return 0;
	if (count < 0)
		return count;
	base_fail(-ETIMEDOUT, "barrier: waited %llu ms for %s", waited,
		  sync_ranks_text(text, b->missing, (uint32_t)count));
	base_error_ranks(b->missing, (uint32_t)count);
	return -ETIMEDOUT;
}

/* One slice at the place where this member waits. */
static int wait_here(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	uint64_t node = path_node(b, b->stop);
	int ret;

	peer->ep->crowd = b->stop ? b->tree.width[b->stop - 1] : b->tree.members;
	if (b->stop == b->tree.levels - 1)
		ret = sync_wait_slice(peer, CORE_WORDS, node + offsetof(struct core_node, word),
				      b->root, &b->root, deadline_ns);
	else
		ret = sync_wait_slice(peer, CORE_WORDS, node + offsetof(struct core_node, released),
				      b->released[b->stop], &b->released[b->stop], deadline_ns);
	peer->ep->crowd = 0;
	return ret;
}

static int wait_release(struct sync_peer *peer, struct sync_barrier *b, uint32_t generation,
			uint64_t deadline_ns)
{
	uint64_t started_ns = 0;
	int ret;

	while (!released(b, generation)) {
		if (!started_ns)
			started_ns = fabric_now(peer->fabric);
		ret = wait_here(peer, b, deadline_ns);
		if (!ret)
			continue;
		if (ret == -EAGAIN)
			ret = look_around(peer, b, generation, sync_grace(peer, deadline_ns));
		else if (ret == -ETIMEDOUT)
			ret = give_up(peer, b, generation, started_ns, sync_grace(peer, deadline_ns));
		if (ret)
			return ret;
	}
	ret = pass_down(peer, b, generation, sync_grace(peer, deadline_ns));
	if (ret)
		b->stop = b->tree.levels;
	return ret;
}

/* An earlier life of this rank arrived at the generation before, and may not have climbed. */
static int catch_up(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	int ret = barrier_walk(peer, &b->tree, b->member, b->generation - 1,
			       sync_grace(peer, deadline_ns));

	if (ret < 0)
		return ret;
	b->stop = ret ? b->tree.levels : 0;
	ret = wait_release(peer, b, b->generation - 1, deadline_ns);
	if (!ret)
		b->behind = false;
	return ret;
}

int sync_barrier_arrive(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	int ret = 0;

	if (b->arrived)
		return base_fail(-EALREADY,
				 "barrier: this rank has arrived; wait before it arrives again");
	if (b->behind)
		ret = catch_up(peer, b, deadline_ns);
	if (ret)
		return ret;
	if (b->doubt)
		ret = arrive_by_swap(peer, b, deadline_ns);
	else
		ret = arrive_by_add(peer, b, deadline_ns);
	b->arrived = !ret;
	return ret;
}

bool sync_barrier_arrived(const struct sync_barrier *b)
{
	return b->arrived;
}

int sync_barrier_wait(struct sync_peer *peer, struct sync_barrier *b, uint64_t deadline_ns)
{
	int ret = 0;

	if (!b->arrived)
		ret = sync_barrier_arrive(peer, b, deadline_ns);
	if (ret)
		return ret;
	ret = wait_release(peer, b, b->generation, deadline_ns);
	if (ret)
		return ret;
	b->generation++;
	b->arrived = b->doubt = false;
	return 0;
}

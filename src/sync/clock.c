/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clock: a count for each rank, which its rank adds to, and waits of one on all.
 *
 * The least count of the live ranks is found by reading all counts in one READ and, when that is
 * complete, the states. In this order it can't be too high: a rank that is live by the second
 * READ was counted with what it had, or less, and who joins later is raised to the live ranks'
 * least before it is listed as live. For the same reason what was once found stays a lower bound,
 * so that most waits need no READ. (Who is being listed may be behind by what the others count in
 * that moment.) Where a death is to fail the others, the dead are in that bound.
 *
 * A step is counted by an add. If its fate is not known, the next call makes the same step by a
 * swap from the count before: the word is this rank's own, so either of the two counts, never
 * both.
 */
#include "sync/clock.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"

struct sync_clock {
	uint64_t words_offset;
	uint32_t ranks, rank;
	uint64_t own;
	uint64_t least; /* a lower bound of the live ranks' counts */
	bool doubt;     /* the step to own+1 may have been counted */
	uint64_t *counts, *states;
	uint32_t *behind; /* ranks, for errors */
};

int sync_clock_open(struct sync_peer *peer, const struct core_clock *where, uint32_t rank,
		    uint64_t deadline_ns, struct sync_clock **clock)
{
	struct sync_clock *c;
	int ret = -EINVAL;

	if (rank >= where->members || where->members > peer->workers) {
		base_fail(ret, "clock: rank %u of %u, of a job of %u", rank, where->members,
			  peer->workers);
		return ret;
	}
	ret = -ENOMEM;
	c = calloc(1, sizeof(*c));
	if (!c) {
		base_fail(ret, "clock: no memory");
		return ret;
	}
	c->words_offset = where->words_offset;
	c->ranks = where->members;
	c->rank = rank;
	c->counts = calloc(c->ranks, sizeof(*c->counts));
	c->states = calloc(peer->workers, sizeof(*c->states));
	c->behind = calloc(c->ranks, sizeof(*c->behind));
	if (!c->counts || !c->states || !c->behind) {
		base_fail(ret, "clock: no memory for %u ranks", c->ranks);
		goto fail;
	}
	ret = sync_read(peer, CORE_WORDS, c->words_offset + rank * sizeof(uint64_t), peer->result,
			sizeof(uint64_t), deadline_ns);
	if (ret)
		goto fail;
	c->own = peer->result[0];
	*clock = c;
	return 0;
fail:
	sync_clock_close(c);
	return ret;
}

void sync_clock_close(struct sync_clock *c)
{
	if (!c)
		return;
	free(c->behind);
	free(c->states);
	free(c->counts);
	free(c);
}

int sync_clock_advance(struct sync_peer *peer, struct sync_clock *c, uint64_t deadline_ns)
{
	struct fabric_op op = { .opcode = FABRIC_FETCH_ADD,
				.region = CORE_WORDS,
				.flags = FABRIC_WAITABLE,
				.offset = c->words_offset + c->rank * sizeof(uint64_t),
				.local = &peer->result[0],
				.operand = 1 };
	int ret;

	if (c->doubt) {
		op.opcode = FABRIC_COMPARE_SWAP;
		op.compare = c->own;
		op.operand = c->own + 1;
	}
	ret = fabric_execute(peer->ep, &op, 1, &peer->completion, deadline_ns);
	if (ret) {
		c->doubt = true;
		return ret;
	}
	if (c->doubt && peer->result[0] != c->own)
		c->own = peer->result[0]; /* it had been */
	else
		c->own = peer->result[0] + 1;
	c->doubt = false;
	return 0;
}

static int read_all(struct sync_peer *peer, struct sync_clock *c, uint64_t deadline_ns)
{
	int ret = sync_read(peer, CORE_WORDS, c->words_offset, c->counts,
			    c->ranks * sizeof(uint64_t), deadline_ns);

	if (!ret)
		ret = sync_read_states(peer, c->states, deadline_ns);
	return ret;
}

static bool counts(const struct sync_clock *c, uint32_t rank)
{
	return rank == c->rank || core_state_of(c->states[rank]) == CORE_LIVE;
}

/*
 * The rank with the least count of those that count, by what was read last; of the dead too, if
 * so asked.
 */
static uint32_t slowest(const struct sync_clock *c, bool and_dead)
{
	uint32_t slow = c->rank;

	for (uint32_t i = 0; i < c->ranks; i++)
		if (c->counts[i] < c->counts[slow] &&
		    (counts(c, i) || (and_dead && core_state_of(c->states[i]) == CORE_DEAD)))
			slow = i;
	return slow;
}

/* The dead whose count is below `need`: -EOWNERDEAD if there are any. */
static int check_dead(struct sync_clock *c, uint64_t need)
{
	char text[SYNC_RANKS_TEXT];
	uint32_t count = 0;

	for (uint32_t i = 0; i < c->ranks; i++)
		if (!counts(c, i) && core_state_of(c->states[i]) == CORE_DEAD && c->counts[i] < need)
			c->behind[count++] = i;
	if (!count)
		return 0;
	base_fail(-EOWNERDEAD,
		  "clock: %s died; start them again, or serve with the policy to go on without",
		  sync_ranks_text(text, c->behind, count));
	base_error_ranks(c->behind, count);
	return -EOWNERDEAD;
}

static int give_up(struct sync_peer *peer, struct sync_clock *c, uint64_t need, uint64_t started_ns)
{
	unsigned long long waited = (fabric_now(peer->fabric) - started_ns) / NS_PER_MS;
	char text[SYNC_RANKS_TEXT];
	uint32_t count = 0;

	for (uint32_t i = 0; i < c->ranks; i++)
		if (counts(c, i) && c->counts[i] < need)
			c->behind[count++] = i;
	base_fail(-ETIMEDOUT, "clock: waited %llu ms for %s to reach %llu", waited,
		  sync_ranks_text(text, c->behind, count), (unsigned long long)need);
	base_error_ranks(c->behind, count);
	return -ETIMEDOUT;
}

/* 1: all who count have reached `need`; 0: *slow has not. */
static int look(struct sync_peer *peer, struct sync_clock *c, uint64_t need, uint64_t deadline_ns,
		uint32_t *slow)
{
	bool fail = peer->on_death == RAMPS_ON_DEATH_FAIL;
	int ret = read_all(peer, c, sync_grace(peer, deadline_ns));

	if (!ret && fail)
		ret = check_dead(c, need);
	if (ret)
		return ret;
	*slow = slowest(c, fail);
	if (c->least < c->counts[*slow])
		c->least = c->counts[*slow];
	return c->least >= need;
}

int sync_clock_wait(struct sync_peer *peer, struct sync_clock *c, uint64_t staleness, uint64_t deadline_ns)
{
	uint64_t need = c->own > staleness ? c->own - staleness : 0;
	uint64_t started_ns, value;
	bool late = false;
	uint32_t slow;
	int ret;

	if (c->least >= need)
		return 0;
	started_ns = fabric_now(peer->fabric);
	for (;;) {
		ret = look(peer, c, need, deadline_ns, &slow);
		if (ret)
			return ret < 0 ? ret : 0;
		if (late)
			return give_up(peer, c, need, started_ns);
		ret = sync_wait_slice(peer, CORE_WORDS, c->words_offset + slow * sizeof(uint64_t),
				      c->counts[slow], &value, deadline_ns);
		late = ret == -ETIMEDOUT;
		if (ret && !late && ret != -EAGAIN)
			return ret;
	}
}

int sync_clock_read(struct sync_peer *peer, struct sync_clock *c, uint64_t *own, uint64_t *least,
		    uint64_t deadline_ns)
{
	int ret = read_all(peer, c, sync_grace(peer, deadline_ns));

	if (ret)
		return ret;
	if (own)
		*own = c->counts[c->rank];
	if (least)
		*least = c->counts[slowest(c, false)];
	return 0;
}

/* Swaps the count of `rank` up to `least`. */
static int raise_to(struct sync_peer *peer, uint64_t offset, uint64_t count, uint64_t least,
		    uint64_t deadline_ns)
{
	struct fabric_op op = { .opcode = FABRIC_COMPARE_SWAP,
				.region = CORE_WORDS,
				.flags = FABRIC_WAITABLE,
				.offset = offset,
				.local = &peer->result[0],
				.operand = least };
	int ret;

	for (; count < least; count = peer->result[0]) {
		op.compare = count;
		ret = fabric_execute(peer->ep, &op, 1, &peer->completion, deadline_ns);
		if (ret)
			return ret;
		if (peer->result[0] == count)
			return 0;
	}
	return 0;
}

int sync_clock_raise(struct sync_peer *peer, const struct core_clock *where, uint32_t rank,
		     uint64_t deadline_ns)
{
	uint64_t least = UINT64_MAX;
	struct sync_clock *c;
	int ret = sync_clock_open(peer, where, rank, deadline_ns, &c);

	if (ret)
		return ret;
	ret = read_all(peer, c, deadline_ns);
	for (uint32_t i = 0; !ret && i < c->ranks; i++)
		if (i != rank && core_state_of(c->states[i]) == CORE_LIVE && c->counts[i] < least)
			least = c->counts[i];
	if (!ret && least != UINT64_MAX)
		ret = raise_to(peer, c->words_offset + rank * sizeof(uint64_t), c->counts[rank],
			       least, deadline_ns);
	sync_clock_close(c);
	return ret;
}

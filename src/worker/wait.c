/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting for a server, slice by slice, and telling whom a wait is waiting for. A synchronous
 * step waits for ranks that have not pushed: those are the ones with nothing staged on that
 * server.
 */
#include <errno.h>

#include "worker/worker_private.h"

#define PIECE 64u /* ranks looked at together, and named at most */

struct rank_list {
	uint32_t count, ranks[PIECE];
};

static int read_states(struct ramps_worker *worker, uint32_t shard, uint32_t first, uint32_t n,
		       uint64_t *states)
{
	const struct core_header *header = &worker_link(worker, shard)->header;

	return worker_read(worker, shard, CORE_PUBLISHED, header->states_offset + 8ull * first,
			   states, 8ull * n);
}

static void list_add(struct rank_list *list, uint32_t rank)
{
	if (list->count < PIECE)
		list->ranks[list->count++] = rank;
}

static int list_dead(struct ramps_worker *worker, uint32_t shard, struct rank_list *list)
{
	uint32_t workers = worker->member->workers;
	uint64_t states[PIECE];

	for (uint32_t first = 0; first < workers; first += PIECE) {
		uint32_t n = workers - first < PIECE ? workers - first : PIECE;
		int ret = read_states(worker, shard, first, n, states);

		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			if (core_state_of(states[i]) == CORE_DEAD)
				list_add(list, first + i);
	}
	return 0;
}

/* -EOWNERDEAD with the ranks, where the servers' policy is to fail and some are dead. */
static int fail_if_dead(struct ramps_worker *worker, uint32_t shard)
{
	struct worker_link *link = worker_link(worker, shard);
	struct rank_list dead = { 0 };
	char text[SYNC_RANKS_TEXT];
	int ret;

	if (link->header.on_death != RAMPS_ON_DEATH_FAIL)
		return 0;
	ret = list_dead(worker, shard, &dead);
	if (ret || !dead.count)
		return ret;
	base_fail(-EOWNERDEAD, "%s died: start it again, or let the servers run with --on-death continue",
		  sync_ranks_text(text, dead.ranks, dead.count));
	base_error_peer(link->address);
	base_error_ranks(dead.ranks, dead.count);
	return -EOWNERDEAD;
}

/* Ranks of the job that have nothing staged on this server. */
static int list_missing(struct ramps_worker *worker, uint32_t shard, struct rank_list *list)
{
	const struct core_header *header = &worker_link(worker, shard)->header;
	uint32_t workers = worker->member->workers;
	struct core_rank_words words[PIECE];
	struct core_rank ranks[PIECE];
	uint64_t states[PIECE];

	for (uint32_t first = 0; first < workers; first += PIECE) {
		uint32_t n = workers - first < PIECE ? workers - first : PIECE;
		int ret = read_states(worker, shard, first, n, states);

		if (!ret)
			ret = worker_read(worker, shard, CORE_WORDS,
					  header->rank_words_offset + first * sizeof(*words), words,
					  n * sizeof(*words));
		if (!ret)
			ret = worker_read(worker, shard, CORE_PUBLISHED,
					  header->ranks_offset + first * sizeof(*ranks), ranks,
					  n * sizeof(*ranks));
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			if (core_state_of(states[i]) != CORE_LEFT && words[i].tail == ranks[i].head)
				list_add(list, first + i);
	}
	return 0;
}

static int fail_late(struct ramps_worker *worker, const struct worker_wait *wait)
{
	struct worker_link *link = worker_link(worker, wait->shard);
	struct rank_list missing = { 0 };
	char text[SYNC_RANKS_TEXT];
	int ret = wait->needs_ranks ? list_missing(worker, wait->shard, &missing) : 0;

	if (ret)
		return ret;
	if (missing.count)
		base_fail(-ETIMEDOUT, "server %s waits for a push of %s", link->address,
			  sync_ranks_text(text, missing.ranks, missing.count));
	else
		base_fail(-ETIMEDOUT, "server %s has not done it in time: is it stopped, or overloaded?",
			  link->address);
	base_error_peer(link->address);
	base_error_ranks(missing.ranks, missing.count);
	return -ETIMEDOUT;
}

int worker_poll(struct ramps_worker *worker, uint64_t deadline_ns)
{
	struct fabric_endpoint *busy = NULL;
	uint64_t slice = SYNC_SLICE_NS;

	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		struct fabric_endpoint *ep = worker_link(worker, shard)->ep;
		uint32_t outstanding = ep->outstanding;

		if (!outstanding)
			continue;
		fabric_poll(ep, 0);
		if (ep->outstanding < outstanding)
			return 0;
		if (busy) /* while one is slept on, others may get done */
			slice = NS_PER_MS;
		busy = ep;
	}
	if (!busy)
		return 0;
	slice += fabric_now(worker->fabric);
	return fabric_poll(busy, slice < deadline_ns ? slice : deadline_ns);
}

void worker_drain(struct ramps_worker *worker, struct fabric_completion *completion, uint64_t limit_ns)
{
	uint64_t deadline_ns = fabric_now(worker->fabric) + limit_ns;

	while (worker_pending(completion) && fabric_now(worker->fabric) < deadline_ns)
		worker_poll(worker, deadline_ns);
	for (uint32_t shard = 0; worker_pending(completion) && shard < worker->member->shards; shard++)
		if (worker_link(worker, shard)->ep->outstanding)
			worker_link_break(worker, shard);
}

static int wait_completion(struct ramps_worker *worker, uint64_t deadline_ns)
{
	if (worker_interrupted(worker))
		return -EINTR;
	if (fabric_now(worker->fabric) >= deadline_ns)
		return -ETIMEDOUT;
	worker_poll(worker, deadline_ns);
	return 0;
}

/* Returns 0 when there may be progress. */
int worker_wait(struct ramps_worker *worker, struct worker_wait *wait, uint64_t deadline_ns)
{
	struct worker_link *link = worker_link(worker, wait->shard);
	uint64_t value;
	int ret;

	if (wait->region == WORKER_FOR_COMPLETION)
		ret = wait_completion(worker, deadline_ns);
	else
		ret = sync_wait_slice(&link->peer, wait->region, wait->offset, wait->seen, &value,
				      deadline_ns);
	switch (ret) {
	case -EAGAIN:
		return wait->needs_ranks ? fail_if_dead(worker, wait->shard) : 0;
	case -ENOTCONN:
		return worker_lost(worker, wait->shard);
	case -ETIMEDOUT:
		return fail_late(worker, wait);
	case -EINTR:
		return base_fail(ret, "the wait was interrupted by ramps_worker_interrupt()");
	default:
		return ret;
	}
}

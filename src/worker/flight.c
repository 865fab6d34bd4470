/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cells whose fate is not known. A fabric that can lose track of an operation (limits.fate_known is
 * false) may break a connection between a cell's post and its completion. What the cell held is
 * noted until it is known to have landed, so that it can be posted again:
 *
 *  1. The worker connects anew, and names the connection that broke. The server cuts that one before
 *     it admits the new: nothing of it can land any more.
 *  2. The worker reads `tail`. It is the one commit word, and each list adds 1 to it as its last
 *     change: the cells below it have landed, those from it on have not.
 *  3. It posts those again, at the same positions, in the same order.
 *
 * So every cell lands exactly once, and no call needs to know about it: a push that waits goes on,
 * and one that has failed is not undone. Where a caller has its memory back before that, because
 * its call failed, the values are copied first.
 *
 * The rank's clones share one ring, each with a connection of its own, and nothing orders one
 * connection after another. So what one of them has posted has to land before another posts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/worker_private.h"

int worker_flights_make(struct worker_member *member, const struct worker_link *link, uint32_t shard)
{
	struct worker_ring *ring = &member->rings[shard];

	ring->cells = link->header.cells;
	ring->landed = ring->tail;
	if (link->ep->limits.fate_known || ring->flights)
		return 0;
	ring->flights = calloc(ring->cells, sizeof(*ring->flights));
	return ring->flights ? 0 : -ENOMEM;
}

void worker_flights_free(struct worker_member *member)
{
	for (uint32_t shard = 0; shard < member->shards; shard++) {
		struct worker_ring *ring = &member->rings[shard];

		for (uint32_t i = 0; ring->flights && i < ring->cells; i++)
			free(ring->flights[i].copy);
		free(ring->flights);
	}
}

/*
 * Whether this worker may post to the ring now; the member's lock is held. A clone whose cells have
 * not landed holds the others up until it has called again.
 */
int worker_flights_turn(struct ramps_worker *worker, uint32_t shard)
{
	struct worker_ring *ring = &worker->member->rings[shard];

	if (!ring->flights || ring->poster == worker)
		return 0;
	if (ring->abandoned)
		return base_fail(-ESTALE,
				 "a thread of this rank closed its worker after a push to %s had "
				 "failed half-way: join anew",
				 worker_link(worker, shard)->address);
	if (ring->landed != ring->tail)
		return base_fail(-EBUSY,
				 "another thread of this rank lost its connection to %s in the "
				 "midst of a push: let it repeat the call",
				 worker_link(worker, shard)->address);
	ring->poster = worker;
	return 0;
}

/* The worker is being closed. */
void worker_flights_abandon(struct ramps_worker *worker)
{
	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		struct worker_ring *ring = &worker->member->rings[shard];

		if (ring->poster != worker)
			continue;
		ring->poster = NULL;
		ring->abandoned = ring->landed != ring->tail;
	}
}

/* All lists of the request are complete without an error. */
void worker_flights_landed(struct ramps_worker *worker, const struct worker_request *request)
{
	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		struct worker_ring *ring = &worker->member->rings[shard];
		bool locked;

		if (!ring->flights || !(request->cell_mask >> shard & 1))
			continue;
		locked = worker_lock(worker->member);
		if ((int64_t)(request->target[shard] - ring->landed) > 0)
			ring->landed = request->target[shard];
		worker_unlock(worker->member, locked);
	}
}

/* Nothing of this worker is under way, and all its links are whole. */
void worker_flights_all_landed(struct ramps_worker *worker, uint32_t shard)
{
	struct worker_ring *ring = &worker->member->rings[shard];
	bool locked;

	if (!ring->flights)
		return;
	locked = worker_lock(worker->member);
	if (ring->poster == worker)
		ring->landed = ring->tail;
	worker_unlock(worker->member, locked);
}

static int flight_keep(const struct worker_flight *flight, float **copy)
{
	size_t bytes = flight->cell.count * sizeof(float);

	*copy = malloc(bytes);
	if (!*copy)
		return -ENOMEM;
	memcpy(*copy, flight->src, bytes);
	return 0;
}

static int ring_keep(struct worker_ring *ring, const struct worker_request *request)
{
	for (uint64_t p = ring->landed; ring->flights && p != ring->tail; p++) {
		struct worker_flight *flight = &ring->flights[p % ring->cells];

		if (flight->request != request || flight->copy)
			continue;
		if (flight_keep(flight, &flight->copy)) {
			flight->src = NULL; /* nobody can post this again, nor what follows it */
			return -ENOMEM;
		}
		flight->src = flight->copy;
		flight->request = NULL;
	}
	return 0;
}

/* The caller of this push gets its memory back: keeps what may have to be posted again. */
int worker_flights_keep(struct ramps_worker *worker, const struct worker_request *request)
{
	bool locked = worker_lock(worker->member);
	int ret = 0;

	for (uint32_t shard = 0; shard < worker->member->shards && !ret; shard++)
		ret = ring_keep(&worker->member->rings[shard], request);
	worker_unlock(worker->member, locked);
	return ret;
}

static int flight_post(struct ramps_worker *worker, uint32_t shard, uint64_t position, uint64_t deadline_ns)
{
	struct worker_link *link = worker_link(worker, shard);
	struct worker_ring *ring = &worker->member->rings[shard];
	struct worker_flight *flight = &ring->flights[position % ring->cells];
	struct fabric_op ops[WORKER_CELL_OPS];

	if (!flight->src)
		return base_fail(-ENOMEM, "there was no memory to keep a push to %s that may be lost",
				 link->address);
	worker_cell_ops(worker, shard, flight, ops);
	return fabric_execute(link->ep, ops, WORKER_CELL_OPS, &link->peer.completion, deadline_ns);
}

/* On a new connection, the old one being cut: posts again what did not land. */
int worker_flights_again(struct ramps_worker *worker, uint32_t shard, uint64_t deadline_ns)
{
	struct worker_ring *ring = &worker->member->rings[shard];
	bool locked = worker_lock(worker->member);
	bool is_needed = ring->flights && ring->poster == worker && ring->landed != ring->tail;
	uint64_t tail;
	int ret;

	worker_unlock(worker->member, locked);
	if (!is_needed) /* else no other clone touches the ring until this is done */
		return 0;
	ret = worker_read(worker, shard, CORE_WORDS,
			  worker_word(worker, shard, offsetof(struct core_rank_words, tail)), &tail,
			  sizeof(tail));
	if (ret)
		return ret;
	if ((int64_t)(tail - ring->landed) < 0 || (int64_t)(ring->tail - tail) < 0)
		return base_fail(-EPROTO, "%s says that %llu pushes landed, of %llu",
				 worker_link(worker, shard)->address, (unsigned long long)tail,
				 (unsigned long long)ring->tail);
	for (; tail != ring->tail; tail++) {
		ret = flight_post(worker, shard, tail, deadline_ns);
		if (ret)
			return ret == -ENOTCONN || ret == -ETIMEDOUT ? worker_lost(worker, shard) : ret;
	}
	worker_flights_all_landed(worker, shard);
	return 0;
}

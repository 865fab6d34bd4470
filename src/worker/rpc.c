/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests to a server's CPU, single accesses to its memory, and waiting for it. */
#include <errno.h>
#include <string.h>

#include "worker/worker_private.h"

#define RPC_LIMIT_NS (10 * NS_PER_S)

uint64_t worker_deadline(struct ramps_worker *worker, int timeout_ms)
{
	if (timeout_ms < 0)
		return BASE_FOREVER;
	return base_deadline(fabric_now(worker->fabric), timeout_ms);
}

static bool worker_interrupted(struct ramps_worker *worker)
{
	return __atomic_load_n(&worker->interrupt, __ATOMIC_RELAXED) &&
	       __atomic_exchange_n(&worker->interrupt, 0, __ATOMIC_RELAXED);
}

static int worker_recv(struct ramps_worker *worker, struct worker_link *link,
		       struct core_reply *reply, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now = fabric_now(worker->fabric);
		uint64_t slice = now + SYNC_SLICE_NS < deadline_ns ? now + SYNC_SLICE_NS : deadline_ns;
		int ret = fabric_recv(link->ep, reply, sizeof(*reply), slice);

		if (ret != -EAGAIN)
			return ret;
		if (worker_interrupted(worker))
			return base_fail(-EINTR, "interrupted");
		if (fabric_now(worker->fabric) >= deadline_ns)
			return base_fail(-ETIMEDOUT, "server %s does not answer", link->address);
	}
}

int worker_call(struct ramps_worker *worker, uint32_t shard, struct core_request *request,
		struct core_reply *reply, uint64_t deadline_ns)
{
	struct worker_link *link = worker_link(worker, shard);
	uint64_t limit = fabric_now(worker->fabric) + RPC_LIMIT_NS;
	int ret;

	request->magic = CORE_MESSAGE_MAGIC;
	if (limit > deadline_ns)
		limit = deadline_ns;
	ret = fabric_send(link->ep, request, sizeof(*request));
	if (!ret)
		ret = worker_recv(worker, link, reply, limit);
	if (ret == -ENOTCONN)
		return worker_lost(worker, shard);
	if (ret < 0) {
		/* Its answer may still come: a later request must not take it for its own. */
		link->broken = true;
		worker->any_broken = true;
		base_error_peer(link->address);
		return ret;
	}
	if (ret != (int)sizeof(*reply) || reply->magic != CORE_MESSAGE_MAGIC) {
		base_fail(-EPROTONOSUPPORT, "%s answers as no ramps server of this version does",
			  link->address);
		base_error_peer(link->address);
		return -EPROTONOSUPPORT;
	}
	if (reply->status < 0) {
		reply->text[sizeof(reply->text) - 1] = '\0';
		base_fail(reply->status, "%s", reply->text);
		base_error_peer(link->address);
	}
	return reply->status;
}

static int worker_execute(struct ramps_worker *worker, uint32_t shard, const struct fabric_op *op)
{
	struct worker_link *link = worker_link(worker, shard);
	int ret = fabric_execute(link->ep, op, 1, &link->peer.completion,
				 fabric_now(worker->fabric) + RPC_LIMIT_NS);

	if (ret == -ENOTCONN || ret == -ETIMEDOUT)
		return worker_lost(worker, shard);
	return ret;
}

int worker_read(struct ramps_worker *worker, uint32_t shard, uint32_t region, uint64_t offset,
		void *dst, uint64_t len_bytes)
{
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = (uint16_t)region,
		.offset = offset,
		.local = dst,
		.len_bytes = len_bytes,
	};

	return worker_execute(worker, shard, &op);
}

int worker_add(struct ramps_worker *worker, uint32_t shard, uint64_t offset, uint64_t addend)
{
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.region = CORE_WORDS,
		.offset = offset,
		.operand = addend,
	};

	return worker_execute(worker, shard, &op);
}

/* -EOWNERDEAD with the ranks, where the servers' policy is to fail and some are dead. */
int worker_dead_ranks(struct ramps_worker *worker, uint32_t shard)
{
	struct worker_link *link = worker_link(worker, shard);
	uint32_t dead[64], count = 0;
	uint64_t states[64];

	if (link->header.on_death != RAMPS_ON_DEATH_FAIL)
		return 0;
	for (uint32_t first = 0; first < worker->member->workers; first += 64) {
		uint32_t n = worker->member->workers - first;
		int ret;

		if (n > 64)
			n = 64;
		ret = worker_read(worker, shard, CORE_PUBLISHED,
				  link->header.states_offset + 8ull * first, states, 8ull * n);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n && count < 64; i++)
			if (core_state_of(states[i]) == CORE_DEAD)
				dead[count++] = first + i;
	}
	if (!count)
		return 0;
	base_fail(-EOWNERDEAD,
		  "rank %u%s died: start it again, or let the servers run with "
		  "--on-death continue",
		  dead[0], count > 1 ? " and others" : "");
	base_error_peer(link->address);
	base_error_ranks(dead, count);
	return -EOWNERDEAD;
}

/* Returns 0 when there may be progress. */
int worker_wait(struct ramps_worker *worker, struct worker_wait *wait, uint64_t deadline_ns)
{
	struct worker_link *link = worker_link(worker, wait->shard);
	uint64_t value;
	int ret;

	if (wait->region == WORKER_FOR_COMPLETION) {
		uint64_t now = fabric_now(worker->fabric);

		if (worker_interrupted(worker))
			return base_fail(-EINTR, "interrupted");
		if (now >= deadline_ns)
			return base_fail(-ETIMEDOUT, "server %s takes too long", link->address);
		ret = fabric_poll(link->ep, now + SYNC_SLICE_NS < deadline_ns ? now + SYNC_SLICE_NS :
										deadline_ns);
	} else {
		ret = sync_wait_slice(&link->peer, wait->region, wait->offset, wait->seen, &value,
				      deadline_ns);
		if (ret == -EAGAIN)
			ret = wait->needs_ranks ? worker_dead_ranks(worker, wait->shard) : 0;
	}
	if (ret == -ENOTCONN)
		return worker_lost(worker, wait->shard);
	if (ret == -ETIMEDOUT) {
		base_fail(ret, "server %s has not got there: `ramps stat` shows who is waited for",
			  link->address);
		base_error_peer(link->address);
	} else if (ret == -EINTR) {
		base_fail(ret, "interrupted");
	}
	return ret;
}

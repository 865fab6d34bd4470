/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests to a server's CPU, and single accesses to its memory. */
#include <errno.h>
#include <string.h>

#include "worker/worker_private.h"

#define RPC_LIMIT_NS    (10 * NS_PER_S)
#define ACCESS_LIMIT_NS NS_PER_S /* of a READ or an atomic: then the connection counts as broken */

uint64_t worker_deadline(struct ramps_worker *worker, int timeout_ms)
{
	if (timeout_ms < 0)
		return BASE_FOREVER;
	return base_deadline(fabric_now(worker->fabric), timeout_ms);
}

bool worker_interrupted(struct ramps_worker *worker)
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

int worker_execute(struct ramps_worker *worker, uint32_t shard, const struct fabric_op *op)
{
	struct worker_link *link = worker_link(worker, shard);
	int ret = fabric_execute(link->ep, op, 1, &link->peer.completion,
				 fabric_now(worker->fabric) + ACCESS_LIMIT_NS);

	if (ret == -ETIMEDOUT)
		worker_link_break(worker, shard);
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

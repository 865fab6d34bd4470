/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links to the servers: connecting, losing, and connecting again.
 *
 * A lost server is reached again by the next call on the worker: the same incarnation connects
 * again, to the same arena, and goes on. It names the connection that it lost, which the server cuts
 * before it admits the new one (flight.c). A server that comes back with another arena has lost what
 * the worker relies on, which is an error.
 */
#include <errno.h>
#include <string.h>

#include "worker/worker_private.h"

#define IN_USE_NS     (3 * NS_PER_S) /* for a server to hear that the process before has died */
#define RETRY_NS      (5 * NS_PER_MS)
#define REPAIR_FAR_NS (2 * NS_PER_S)    /* the same over a network, which may have lost a packet */
#define REPAIR_NS     (500 * NS_PER_MS) /* for a server that is there again to answer */

static int link_read_header(struct ramps_worker *worker, uint32_t shard, struct core_header *header)
{
	struct worker_link *link = worker_link(worker, shard);
	int ret = worker_read(worker, shard, CORE_PUBLISHED, 0, header, sizeof(*header));

	if (ret)
		return ret;
	link->peer.workers = worker->member->workers;
	link->peer.on_death = header->on_death;
	link->peer.states_offset = header->states_offset;
	return 0;
}

/* Connects. At a first join a server that is not there yet is asked again until the deadline. */
static int link_reach(struct ramps_worker *worker, struct worker_link *link, uint32_t how,
		      uint64_t deadline_ns)
{
	struct fabric_endpoint *ep;
	int ret;

	for (;;) {
		uint64_t now = fabric_now(worker->fabric);

		ret = fabric_connect(worker->fabric, link->address, deadline_ns, &ep);
		if (ret != -ECONNREFUSED || how != CORE_JOIN_NEW || now >= deadline_ns)
			break;
		fabric_sleep(worker->fabric, now + RETRY_NS);
	}
	if (ret) {
		base_error_peer(link->address);
		return ret;
	}
	link->ep = ep;
	link->broken = false;
	if (ep->limits.max_ops <= worker->block) /* one more operation ends the list */
		worker->block = ep->limits.max_ops - 1;
	link->peer = (struct sync_peer){
		.fabric = worker->fabric,
		.ep = ep,
		.interrupt = &worker->interrupt,
	};
	return 0;
}

static int link_join(struct ramps_worker *worker, uint32_t shard, uint32_t how, uint64_t deadline_ns)
{
	struct worker_member *member = worker->member;
	struct worker_link *link = worker_link(worker, shard);
	struct core_request request = {
		.kind = CORE_JOIN,
		.version = CORE_VERSION,
		.layout_hash = core_layout_hash(),
		.rank = member->rank,
		.workers = member->workers,
		.shard = shard,
		.shards = member->shards,
		.how = how,
		.incarnation = member->incarnation,
		.arena_id = link->header.arena_id,
		.replaces = link->connection,
	};
	uint64_t in_use_ns = fabric_now(worker->fabric) + IN_USE_NS;
	struct core_reply reply;
	int ret;

	memcpy(request.job, member->job, sizeof(request.job));
	for (;;) {
		uint64_t now;

		ret = worker_call(worker, shard, &request, &reply, deadline_ns);
		now = fabric_now(worker->fabric);
		if (now >= deadline_ns)
			break;
		if (ret != -EAGAIN &&
		    (ret != -EADDRINUSE || worker->fabric->sees_deaths || now >= in_use_ns))
			break;
		fabric_sleep(worker->fabric, now + RETRY_NS);
	}
	if (!ret) {
		member->incarnation = reply.incarnation;
		link->connection = reply.connection;
	}
	return ret == -EAGAIN ? -ETIMEDOUT : ret;
}

/*
 * An endpoint before this one is closed last: what it maps stays mapped where it is, under the
 * views.
 */
int worker_link_connect(struct ramps_worker *worker, uint32_t shard, uint32_t how, uint64_t deadline_ns)
{
	struct worker_link *link = worker_link(worker, shard);
	struct fabric_endpoint *before = link->ep;
	struct sync_peer peer;
	int ret;

	if (before && before->outstanding)
		fabric_abort(before);
	peer = link->peer;
	ret = link_reach(worker, link, how, deadline_ns);
	if (ret)
		return ret;
	ret = link_join(worker, shard, how, deadline_ns);
	if (!ret)
		ret = link_read_header(worker, shard, &link->header);
	if (ret && how == CORE_JOIN_AGAIN) {
		fabric_endpoint_close(link->ep);
		link->ep = before;
		link->peer = peer;
		link->broken = true;
		return ret;
	}
	if (before)
		fabric_endpoint_close(before);
	return ret ? ret : worker_flights_again(worker, shard, deadline_ns);
}

int worker_lost(struct ramps_worker *worker, uint32_t shard)
{
	struct worker_link *link = worker_link(worker, shard);

	link->broken = true;
	worker->any_broken = true;
	base_fail(-ENOTCONN, "server %s is gone; when it is started again the next call goes on with it",
		  link->address);
	base_error_peer(link->address);
	return -ENOTCONN;
}

int worker_find_lost(struct ramps_worker *worker)
{
	uint32_t lost = 0, shards = worker->member->shards;

	for (uint32_t shard = 0; shard < shards; shard++) {
		struct worker_link *link = worker_link(worker, shard);

		if (!link->broken && fabric_check(link->ep) == 0)
			continue;
		worker_lost(worker, shard);
		lost++;
	}
	/* a list failed, and no server says that it is gone: believe none */
	for (uint32_t shard = 0; !lost && shard < shards; shard++)
		worker_lost(worker, shard);
	return -ENOTCONN;
}

void worker_link_break(struct ramps_worker *worker, uint32_t shard)
{
	struct worker_link *link = worker_link(worker, shard);

	fabric_abort(link->ep);
	link->broken = true;
	worker->any_broken = true;
}

/* All links are there again, and what was lost of pushes to slots has landed. */
static void forgive(struct ramps_worker *worker)
{
	worker->any_broken = false;
	for (struct worker_request *request = worker->first; request; request = request->next)
		if (worker_is_push(request) && request->table->core.mode == RAMPS_SLOTS)
			request->completion.status = 0;
	if (!worker->posted_in_doubt)
		worker->posted.status = 0;
}

/* Which links are broken, those too that nobody has noticed: -ENOTCONN if any is. */
static int look_at_links(struct ramps_worker *worker)
{
	int ret = 0;

	for (uint32_t shard = 0; shard < worker->member->shards; shard++)
		if (worker_link(worker, shard)->broken || fabric_check(worker_link(worker, shard)->ep))
			ret = worker_lost(worker, shard);
	return ret;
}

int worker_links_repair(struct ramps_worker *worker)
{
	/* lists may have failed on others than the one that a call has seen fail */
	look_at_links(worker);
	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		struct worker_link *link = worker_link(worker, shard);
		uint64_t now = fabric_now(worker->fabric);
		int ret;

		if (!link->broken)
			continue;
		ret = worker_link_connect(worker, shard, CORE_JOIN_AGAIN,
					  now + (worker->fabric->sees_deaths ? REPAIR_NS : REPAIR_FAR_NS));
		if (ret == -ECONNREFUSED)
			ret = worker_lost(worker, shard);
		else if (ret == -ETIMEDOUT)
			ret = base_fail(-ENOTCONN, "server %s can't be reached: %s", link->address,
					base_error_text());
		if (ret) {
			link->broken = true;
			return ret;
		}
	}
	if (look_at_links(worker))
		return -ENOTCONN;
	forgive(worker);
	return 0;
}

/* Looks whether the servers are there, and connects again where one was lost. */
int worker_links_check(struct ramps_worker *worker)
{
	for (uint32_t shard = 0; shard < worker->member->shards; shard++)
		if (fabric_check(worker_link(worker, shard)->ep))
			worker_lost(worker, shard);
	return worker->any_broken ? worker_links_repair(worker) : 0;
}

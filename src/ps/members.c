/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is in the job. The first worker that joins says how many there are, and which shard this is.
 *
 * A new life of a rank is admitted when the fence (links.c) has ended the one before. Server 0
 * numbers it; the others are told the number, which is above what they know. Admission, in this
 * order: the process's identity is noted, so that a restarted server can ask after it; the rank's
 * clocks are raised to the least of those that are live, so that it holds back nobody; memory is
 * granted; the state says LIVE.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "ps/ps_private.h"

void ps_set_active(struct ps_server *server, uint32_t rank, bool active)
{
	struct ps_rank *r = &server->ranks[rank];
	uint32_t last;

	if (r->active == active)
		return;
	r->active = active;
	if (active) {
		r->active_at = server->active_count++;
		server->active[r->active_at] = rank;
		return;
	}
	last = server->active[--server->active_count];
	server->active[r->active_at] = last;
	server->ranks[last].active_at = r->active_at;
}

void ps_set_state(struct ps_server *server, uint32_t rank, uint32_t state, uint32_t incarnation)
{
	uint64_t *members = &server->header->members;

	server->excused -= ps_is_excused(server, ps_state(server, rank));
	server->excused += ps_is_excused(server, state);
	server->stand_in_all = true;
	word_publish(&server->states[rank], core_state(state, incarnation));
	ps_notify(server, &server->states[rank]);
	word_publish(members, word_load(members) + 1);
	ps_notify(server, members);
}

static int check_version(const struct core_request *rq)
{
	if (rq->version == CORE_VERSION && rq->layout_hash == core_layout_hash())
		return 0;
	return base_fail(-EPROTONOSUPPORT,
			 "the server is of version %u (layout %08x), the worker of version %u (layout "
			 "%08x): use the same for both",
			 CORE_VERSION, core_layout_hash(), rq->version, rq->layout_hash);
}

static int check_job(const struct ps_server *server, const struct core_request *rq)
{
	const struct core_header *h = server->header;

	if (strncmp(rq->job, h->job, sizeof(h->job)) != 0)
		return base_fail(-EPROTO,
				 "this is a server of job %.63s, not of job %.63s: check the address "
				 "and RAMPS_JOB",
				 h->job, rq->job);
	if (h->workers && h->workers != rq->workers)
		return base_fail(-EPROTO, "the job has %u workers here, not %u: all must say the same",
				 h->workers, rq->workers);
	if (h->workers && (h->shard != rq->shard || h->shards != rq->shards))
		return base_fail(-EPROTO,
				 "this is server %u of %u, not %u of %u: all workers must name the "
				 "servers in the same order",
				 h->shard, h->shards, rq->shard, rq->shards);
	if (rq->shards == 0 || rq->shards > CORE_MAX_SERVERS || rq->shard >= rq->shards)
		return base_fail(-EPROTO, "there is no server %u of %u, at most %u are possible",
				 rq->shard, rq->shards, CORE_MAX_SERVERS);
	if (rq->workers > h->max_workers)
		return base_fail(-ERANGE,
				 "%u workers, the server takes %u: start it with more max_workers",
				 rq->workers, h->max_workers);
	if (rq->rank >= rq->workers)
		return base_fail(-ERANGE, "rank %u is not below the number of workers, %u",
				 rq->rank, rq->workers);
	return 0;
}

static int taken(struct ps_server *server, uint32_t rank, const char *how)
{
	struct ps_link *link = LIST_FIRST(&server->ranks[rank].links);

	return base_fail(
		-EADDRINUSE,
		"rank %u, incarnation %u, is %s (%s): give each worker a rank of its own, or "
		"end that process",
		rank, core_incarnation_of(word_load(&server->states[rank])), how,
		link ? link->ep->address :
		       "its process is alive, and was connected to the server before it was restarted");
}

static bool has_open_link(const struct ps_server *server, uint32_t rank)
{
	struct ps_link *link;

	LIST_FOREACH(link, &server->ranks[rank].links, siblings)
	if (!link->is_closing)
		return true;
	return false;
}

/* May the rank have a new life? Ends what is left of the old one. */
static int make_room(struct ps_server *server, const struct ps_link *link, const struct core_request *rq)
{
	bool left = ps_state(server, rq->rank) == CORE_LEFT;

	/* an operator's mistake, unless its process died and that was not heard of yet */
	if (has_open_link(server, rq->rank) && (rq->shard == 0 || left) &&
	    !ps_process_gone(server, rq->rank))
		return taken(server, rq->rank,
			     left ? "gone, but its process has not closed it" : "in use");
	if (ps_fence(server, rq->rank, link) == 0)
		return 0;
	if (rq->shard == 0 && LIST_EMPTY(&server->ranks[rq->rank].links) && server->fabric->sees_deaths)
		return taken(server, rq->rank, "in use");
	return base_fail(-EAGAIN, "rank %u: its old process is being fenced", rq->rank);
}

int ps_grant(struct ps_server *server, struct fabric_endpoint *ep, uint32_t region)
{
	return fabric_grant(ep, region, &server->arena->memory[region],
			    region == CORE_WORDS ? FABRIC_MAY_READ | FABRIC_MAY_ATOMIC : FABRIC_MAY_READ);
}

int ps_grant_again(struct ps_server *server, uint32_t region)
{
	int ret = ps_grant(server, server->self.ep, region);
	struct ps_link *link;

	for (uint32_t rank = 0; rank < ps_workers(server); rank++)
		LIST_FOREACH(link, &server->ranks[rank].links, siblings)
		{
			if (ret < 0)
				return ret;
			ret = link->is_closing ? 0 : ps_grant(server, link->ep, region);
			if (ret == -ENOTCONN) /* it will be heard of; whoever comes anew gets all */
				ret = 0;
		}
	return ret;
}

static int grant(struct ps_server *server, struct ps_link *link, uint32_t rank)
{
	int ret = ps_ring_open(server, rank);

	if (ret == 0)
		ret = ps_grant(server, link->ep, CORE_WORDS);
	if (ret == 0)
		ret = ps_grant(server, link->ep, CORE_PUBLISHED);
	if (ret == 0)
		ret = fabric_grant(link->ep, CORE_SLOTS, server->ranks[rank].slots, FABRIC_MAY_WRITE);
	return ret;
}

static int raise_clocks(struct ps_server *server, uint32_t rank)
{
	uint64_t entries = word_load(&server->header->entries);
	int ret = 0;

	for (uint64_t i = 0; i < entries && ret == 0; i++)
		if (server->entries[i].kind == CORE_CLOCK)
			ret = sync_clock_raise(&server->self, &server->entries[i].clock, rank,
					       fabric_now(server->fabric) + PS_LOOPBACK_NS);
	return ret;
}

/* The process's number, where the fabric's address tells it: for people. */
static uint64_t pid_of(const char *address)
{
	const char *digits = strpbrk(address, "0123456789");

	return strstr(address, "process") && digits ? strtoull(digits, NULL, 10) : 0;
}

static void fix_job(struct ps_server *server, const struct core_request *rq)
{
	struct core_header *h = server->header;

	if (h->workers)
		return;
	__atomic_store_n(&h->shard, rq->shard, __ATOMIC_RELAXED);
	__atomic_store_n(&h->shards, rq->shards, __ATOMIC_RELAXED);
	__atomic_store_n(&h->workers, rq->workers, __ATOMIC_RELEASE);
	server->self.workers = rq->workers;
}

static int admit(struct ps_server *server, struct ps_link *link, const struct core_request *rq,
		 uint32_t incarnation)
{
	uint32_t rank = rq->rank;
	int ret;

	fix_job(server, rq);
	ret = grant(server, link, rank);
	if (ret < 0)
		return ret;
	/*
	 * what the life before committed after it left is looked at, and dropped, while it still
	 * counts as left
	 */
	ret = ps_ring_settle(server, rank);
	if (ret < 0)
		return ret;
	fabric_identity(link->ep, server->rank_private[rank].identity);
	ret = raise_clocks(server, rank);
	if (ret < 0)
		return ret;
	word_store(&server->rank_info[rank].pid, pid_of(link->ep->address));
	ps_set_state(server, rank, CORE_LIVE, incarnation);
	ps_link_joined(server, link, rank);
	ps_set_active(server, rank, true);
	base_log(RAMPS_LOG_INFO, "rank %u of %u joined as incarnation %u from %s", rank,
		 ps_workers(server), incarnation, link->ep->address);
	return 0;
}

static int join_new(struct ps_server *server, struct ps_link *link, const struct core_request *rq)
{
	uint32_t known = core_incarnation_of(word_load(&server->states[rq->rank]));
	int ret;

	if (rq->shard != 0 && rq->incarnation <= known)
		return base_fail(-ESTALE, "rank %u: incarnation %u is not new, %u is known here",
				 rq->rank, rq->incarnation, known);
	ret = make_room(server, link, rq);
	if (ret < 0)
		return ret;
	return admit(server, link, rq, rq->shard == 0 ? known + 1 : rq->incarnation);
}

static int join_again(struct ps_server *server, struct ps_link *link, const struct core_request *rq)
{
	uint64_t state = word_load(&server->states[rq->rank]);
	struct ps_link *other;
	int ret;

	if (rq->arena_id != server->header->arena_id)
		return base_fail(-ESTALE,
				 "rank %u knows another arena: the server lost its memory, start the "
				 "job again",
				 rq->rank);
	if (state != core_state(CORE_LIVE, rq->incarnation))
		return base_fail(-ESTALE,
				 "incarnation %u of rank %u is no longer in the job (state %u, "
				 "incarnation %u)",
				 rq->incarnation, rq->rank, core_state_of(state),
				 core_incarnation_of(state));
	ret = ps_link_replace(server, rq->rank, rq->replaces);
	LIST_FOREACH(other, &server->ranks[rq->rank].links, siblings)
	if (other->is_closing)
		ret = -EAGAIN;
	if (ret < 0)
		return base_fail(ret, "rank %u: its old connection is being fenced", rq->rank);
	ret = grant(server, link, rq->rank);
	if (ret < 0)
		return ret;
	ps_link_joined(server, link, rq->rank);
	ps_set_active(server, rq->rank, true);
	return 0;
}

int ps_join(struct ps_server *server, struct ps_link *link, const struct core_request *rq,
	    struct core_reply *reply)
{
	int ret = check_version(rq);

	if (ret == 0)
		ret = check_job(server, rq);
	if (ret == 0 && link->rank != PS_NO_RANK)
		ret = base_fail(-EPROTO, "this connection has joined already");
	if (ret == 0 && rq->how > CORE_JOIN_AGAIN)
		ret = base_fail(-EPROTO, "no such way to join: %u", rq->how);
	if (ret == 0)
		ret = rq->how == CORE_JOIN_NEW ? join_new(server, link, rq) :
						 join_again(server, link, rq);
	if (ret == 0) {
		reply->incarnation = core_incarnation_of(word_load(&server->states[rq->rank]));
		reply->connection = link->number;
	}
	return ret;
}

int ps_leave(struct ps_server *server, struct ps_link *link)
{
	uint64_t state = word_load(&server->states[link->rank]);

	if (core_state_of(state) != CORE_LIVE)
		return 0; /* another clone said so before */
	ps_ring_scan(server, link->rank, UINT32_MAX);
	word_store(&server->rank_private[link->rank].left_at, server->ranks[link->rank].scanned);
	ps_set_state(server, link->rank, CORE_LEFT, core_incarnation_of(state));
	ps_ring_recheck(server);
	base_log(RAMPS_LOG_INFO, "rank %u left", link->rank);
	return 0;
}

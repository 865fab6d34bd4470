/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections, and the fence.
 *
 * A rank is dead when nothing that it posted can land any more: when the last connection of its
 * incarnation is cut. What it had committed until then counts. Only then is it published as dead,
 * and its next life admitted. Where a cut does not succeed at once it is tried again.
 *
 * Each server fences for itself: what it stands in for, and what it admits, are words and rings of
 * its own memory, which only its own connections reach. A new life is told that it has joined when
 * every server has cut the old one.
 *
 * A rank that is live without a connection is an orphan:
 *   - known from an earlier life of this server, until its process is gone or connects again; where
 *     the fabric can't tell, until the lease ends;
 *   - its connection broke and was cut, but its process may live: until it connects again or the
 *     lease ends;
 *   - its process has just ended its connection, and has another one that did not join yet.
 *
 * A worker that connects again names the connection that this one replaces. That is cut first: what
 * the worker then reads of its own words is final.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ps/ps_private.h"

#define ORPHANS_NS (100 * NS_PER_MS)

bool ps_process_gone(struct ps_server *server, uint32_t rank)
{
	return fabric_peer_gone(server->listener, server->rank_private[rank].identity);
}

void ps_orphan(struct ps_server *server, uint32_t rank, bool orphan)
{
	struct ps_rank *r = &server->ranks[rank];

	if (r->orphan == orphan)
		return;
	r->orphan = orphan;
	r->waits_for_process = false;
	r->lease_end_ns = 0;
	server->orphans += orphan ? 1 : -1u;
}

void ps_lease_begin(struct ps_server *server, uint32_t rank)
{
	uint64_t lease_ns = server->fabric->lease_ns;

	server->ranks[rank].lease_end_ns = fabric_now(server->fabric) +
					   (lease_ns ? lease_ns : PS_LEASE_NS);
}

static bool is_process_of(struct ps_server *server, const struct ps_link *link, uint32_t rank)
{
	unsigned char identity[FABRIC_IDENTITY_BYTES];

	fabric_identity(link->ep, identity);
	return memcmp(identity, server->rank_private[rank].identity, sizeof(identity)) == 0;
}

static void rank_died(struct ps_server *server, uint32_t rank)
{
	uint64_t state = word_load(&server->states[rank]);

	ps_orphan(server, rank, false);
	if (core_state_of(state) == CORE_LIVE) {
		ps_ring_scan(server, rank, UINT32_MAX);
		base_log(RAMPS_LOG_INFO, "rank %u, incarnation %u, is dead", rank,
			 core_incarnation_of(state));
		ps_set_state(server, rank, CORE_DEAD, core_incarnation_of(state));
		ps_ring_recheck(server);
	}
	ps_set_active(server, rank, false);
}

/* Whether the rank's process has connected, and not yet joined. */
static bool is_coming_back(struct ps_server *server, uint32_t rank)
{
	struct ps_link *link;

	LIST_FOREACH(link, &server->strangers, siblings)
	if (!link->is_closing && is_process_of(server, link, rank))
		return true;
	return false;
}

void ps_link_drop(struct ps_server *server, struct ps_link *link)
{
	uint32_t rank = link->rank;
	bool is_broken = link->is_broken;

	LIST_REMOVE(link, siblings);
	if (link->is_closing)
		LIST_REMOVE(link, closing);
	fabric_endpoint_close(link->ep);
	free(link);
	if (rank == PS_NO_RANK || !LIST_EMPTY(&server->ranks[rank].links))
		return;
	if (ps_state(server, rank) == CORE_LIVE && (is_broken || is_coming_back(server, rank))) {
		ps_orphan(server, rank, true);
		if (is_broken)
			ps_lease_begin(server, rank);
	} else {
		rank_died(server, rank);
	}
}

void ps_link_joined(struct ps_server *server, struct ps_link *link, uint32_t rank)
{
	link->number = word_load(&server->header->lives) << 32 | ++server->connections;
	LIST_REMOVE(link, siblings);
	LIST_INSERT_HEAD(&server->ranks[rank].links, link, siblings);
	link->rank = rank;
	ps_orphan(server, rank, false);
}

/* 0: it is cut and gone. -EAGAIN */
static int try_cut(struct ps_server *server, struct ps_link *link)
{
	if (fabric_cut(link->ep) < 0) {
		if (!link->is_closing)
			LIST_INSERT_HEAD(&server->closing, link, closing);
		link->is_closing = true;
		return -EAGAIN;
	}
	ps_link_drop(server, link);
	return 0;
}

void ps_link_closed(struct ps_server *server, struct ps_link *link)
{
	if (!link->is_closing)
		try_cut(server, link);
}

void ps_link_broken(struct ps_server *server, struct ps_link *link)
{
	link->is_broken = true;
	ps_link_closed(server, link);
}

int ps_link_replace(struct ps_server *server, uint32_t rank, uint64_t number)
{
	struct ps_link *link;

	LIST_FOREACH(link, &server->ranks[rank].links, siblings)
	if (link->number == number) {
		link->is_broken = true;
		return try_cut(server, link);
	}
	return 0;
}

int ps_retry_cuts(struct ps_server *server)
{
	struct ps_link *link, *next;
	int cut = 0;

	for (link = LIST_FIRST(&server->closing); link; link = next) {
		next = LIST_NEXT(link, closing);
		cut += try_cut(server, link) == 0;
	}
	return cut;
}

int ps_fence(struct ps_server *server, uint32_t rank, const struct ps_link *successor)
{
	struct ps_rank *r = &server->ranks[rank];
	struct ps_link *link, *next;
	int ret = 0;

	if (LIST_EMPTY(&r->links)) {
		if (ps_state(server, rank) != CORE_LIVE)
			return 0;
		/* a process that asks for a new life has ended its old one */
		if (r->waits_for_process && !is_process_of(server, successor, rank) &&
		    !ps_process_gone(server, rank))
			return -EAGAIN;
		rank_died(server, rank);
		return 0;
	}
	for (link = LIST_FIRST(&r->links); link; link = next) {
		next = LIST_NEXT(link, siblings);
		if (try_cut(server, link) < 0)
			ret = -EAGAIN;
	}
	return ret;
}

static bool may_come_back(struct ps_server *server, uint32_t rank, uint64_t now)
{
	const struct ps_rank *r = &server->ranks[rank];

	if (r->waits_for_process && server->fabric->sees_deaths)
		return !ps_process_gone(server, rank);
	return now < r->lease_end_ns || is_coming_back(server, rank);
}

int ps_look_after_orphans(struct ps_server *server)
{
	uint64_t now = fabric_now(server->fabric);
	int died = 0;

	if (!server->orphans || now < server->orphans_ns)
		return 0;
	server->orphans_ns = now + ORPHANS_NS;
	for (uint32_t rank = 0; rank < ps_workers(server) && server->orphans; rank++) {
		if (!server->ranks[rank].orphan || may_come_back(server, rank, now))
			continue;
		rank_died(server, rank);
		died++;
	}
	return died;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's step. What is asked of its CPU by message is looked for by a system call, so that
 * a busy server does so only now and then; what the ranks commit is one load a rank. A step ends
 * after a while, so that messages are not left waiting.
 *
 * Sleep. Nothing but a message wakes the server. It announces that it is asleep, looks once more
 * at all tails, then sleeps; a rank that commits looks at `asleep` after its commit, and sends
 * CORE_WAKE. One of the two sees the other's store.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "base/clock.h"
#include "base/error.h"
#include "ps/ps_private.h"

#define EVENTS_NS     50000ull        /* between looks for events while busy */
#define STEP_NS       200000ull       /* longest run through the rings */
#define STAND_IN_NS   (5 * NS_PER_MS) /* between looks at barriers of absent ranks */
#define CUT_NS        NS_PER_MS       /* between tries to end a connection */
#define CELLS_AT_ONCE 8u              /* of one rank before the next has its turn */

void ps_notify(struct ps_server *server, const uint64_t *published_word)
{
	if (server->listener)
		fabric_notify(server->listener, CORE_PUBLISHED,
			      (uint64_t)((const char *)published_word - (const char *)server->header));
}

static int allocate(struct ps_server *server)
{
	uint32_t n = server->arena->max_workers;

	server->ranks = calloc(n, sizeof(*server->ranks));
	server->active = calloc(n, sizeof(*server->active));
	server->absent = calloc(n, sizeof(*server->absent));
	server->tables = calloc(CORE_MAX_ENTRIES, sizeof(struct ps_table *));
	server->names = calloc(2 * CORE_MAX_ENTRIES, sizeof(*server->names));
	server->scratch = aligned_alloc(CORE_PAGE_BYTES, CORE_CHUNK_BYTES);
	if (!server->ranks || !server->active || !server->absent || !server->tables ||
	    !server->names || !server->scratch)
		return base_fail(-ENOMEM, "no memory for a server of %u workers", n);
	for (uint32_t rank = 0; rank < n; rank++)
		LIST_INIT(&server->ranks[rank].links);
	return 0;
}

static void find_parts(struct ps_server *server)
{
	struct core_arena *arena = server->arena;
	struct core_header *h = core_arena_header(arena);

	server->header = h;
	server->states = core_arena_at(arena, CORE_PUBLISHED, h->states_offset);
	server->rank_info = core_arena_at(arena, CORE_PUBLISHED, h->ranks_offset);
	server->entries = core_arena_at(arena, CORE_PUBLISHED, h->entries_offset);
	server->rank_words = core_arena_at(arena, CORE_WORDS, h->rank_words_offset);
	server->undo = core_arena_at(arena, CORE_PRIVATE, 0);
	server->rank_private = core_arena_at(arena, CORE_PRIVATE, server->undo->rank_private_offset);
	for (uint32_t r = 0; r < CORE_REGIONS; r++)
		if (r != CORE_SLOTS)
			server->ends[r] = core_arena_fixed(arena, r);
	server->self.fabric = server->fabric;
	server->self.on_death = h->on_death;
	server->self.states_offset = h->states_offset;
}

static int open_loopback(struct ps_server *server)
{
	struct fabric_endpoint *ep;
	int ret = fabric_loopback(server->listener, &ep);

	if (ret < 0)
		return ret;
	server->self.ep = ep;
	ret = ps_grant(server, ep, CORE_WORDS);
	if (ret == 0)
		ret = ps_grant(server, ep, CORE_PUBLISHED);
	memcpy(server->granted, server->arena->allocated, sizeof(server->granted));
	return ret;
}

static int start(struct ps_server *server, const char *address)
{
	int ret = allocate(server);

	for (uint32_t r = CORE_WORDS; r <= CORE_PUBLISHED && ret == 0; r++) {
		ret = fabric_register(server->fabric, &server->arena->memory[r]);
		server->registered[r] = ret == 0;
	}
	if (ret == 0)
		ret = ps_restart(server);
	if (ret == 0)
		ret = fabric_listen(server->fabric, address, &server->listener);
	if (ret == 0)
		ret = open_loopback(server);
	return ret;
}

int ps_open_points(struct fabric *fabric, struct core_arena *arena, const char *address,
		   void (*point)(void *ctx), void *ctx, struct ps_server **out)
{
	struct ps_server *server = calloc(1, sizeof(*server));
	int ret;

	if (!server)
		return base_fail(-ENOMEM, "no memory for a server");
	openblas_set_num_threads(1);
	server->fabric = fabric;
	server->arena = arena;
	server->point = point;
	server->point_ctx = ctx;
	LIST_INIT(&server->strangers);
	LIST_INIT(&server->closing);
	find_parts(server);
	ret = start(server, address);
	if (ret < 0) {
		ps_close(server);
		return ret;
	}
	*out = server;
	return 0;
}

int ps_open(struct fabric *fabric, struct core_arena *arena, const char *address, struct ps_server **server)
{
	return ps_open_points(fabric, arena, address, NULL, NULL, server);
}

static bool stands_in(const struct ps_server *server)
{
	return server->excused && server->barrier_count;
}

/* Everything but the rings. */
static int control(struct ps_server *server, uint64_t now)
{
	int ret, work;

	server->events_ns = now;
	work = ps_control(server);
	if (work < 0)
		return work;
	if (!LIST_EMPTY(&server->closing))
		work += ps_retry_cuts(server);
	work += ps_look_after_orphans(server);
	if (stands_in(server) && (server->stand_in_all || now >= server->stand_in_ns)) {
		ret = ps_stand_in(server);
		/* where it moved something, ranks go on and soon need it again */
		server->stand_in_ns = ret ? now : now + STAND_IN_NS;
		work += ret;
	}
	return work;
}

static int scan(struct ps_server *server, uint64_t now)
{
	uint32_t n = server->active_count, at = server->cursor, taken;
	int work = 0;

	for (uint32_t i = 0; i < n; i++, at++) {
		uint32_t rank = server->active[at < n ? at : (at %= n)];

		if (!ps_ring_moved(server, rank))
			continue;
		taken = ps_ring_scan(server, rank, CELLS_AT_ONCE);
		work += taken > 0;
		if (fabric_now(server->fabric) - now >= STEP_NS) {
			at++;
			break;
		}
	}
	server->cursor = n ? at % n : 0;
	return work;
}

int ps_step(struct ps_server *server)
{
	uint64_t now = fabric_now(server->fabric);
	int work = 0;

	if (server->idle || now - server->events_ns >= EVENTS_NS) {
		work = control(server, now);
		if (work < 0)
			return work;
	}
	work += scan(server, now);
	server->idle = work == 0;
	return work > 0;
}

static bool any_moved(const struct ps_server *server)
{
	for (uint32_t i = 0; i < server->active_count; i++)
		if (ps_ring_moved(server, server->active[i]))
			return true;
	return false;
}

/* When we have to look again though nobody calls. */
static uint64_t next_look(const struct ps_server *server)
{
	uint64_t next = BASE_FOREVER, now = fabric_now(server->fabric);

	if (server->orphans)
		next = server->orphans_ns;
	if (stands_in(server) && server->stand_in_ns < next)
		next = server->stand_in_ns;
	if (!LIST_EMPTY(&server->closing) && now + CUT_NS < next)
		next = now + CUT_NS;
	return next;
}

int ps_wait(struct ps_server *server, uint64_t deadline_ns)
{
	uint64_t next = next_look(server);
	int ret = 0;

	word_announce(&server->header->asleep, 1);
	if (!any_moved(server))
		ret = fabric_wait(server->listener, next < deadline_ns ? next : deadline_ns);
	word_publish(&server->header->asleep, 0);
	server->idle = true;
	return ret;
}

void ps_wake(struct ps_server *server)
{
	fabric_wake(server->listener);
}

const char *ps_address(const struct ps_server *server)
{
	return server->listener->address;
}

static void close_links(struct ps_links *links)
{
	struct ps_link *link;

	while ((link = LIST_FIRST(links))) {
		LIST_REMOVE(link, siblings);
		fabric_endpoint_close(link->ep);
		free(link);
	}
}

void ps_close(struct ps_server *server)
{
	uint32_t n;

	if (!server)
		return;
	n = server->ranks ? server->arena->max_workers : 0;
	close_links(&server->strangers);
	for (uint32_t rank = 0; rank < n; rank++)
		close_links(&server->ranks[rank].links);
	if (server->self.ep)
		fabric_endpoint_close(server->self.ep);
	if (server->listener)
		fabric_listener_close(server->listener);
	for (uint32_t rank = 0; rank < n; rank++) {
		if (server->ranks[rank].slots)
			fabric_unregister(server->fabric, server->ranks[rank].slots);
		free(server->ranks[rank].cells);
	}
	for (uint32_t r = 0; r < CORE_REGIONS; r++)
		if (server->registered[r])
			fabric_unregister(server->fabric, &server->arena->memory[r]);
	for (uint32_t i = 0; server->tables && i < CORE_MAX_ENTRIES; i++)
		ps_table_close(server->tables[i]);
	free(server->barriers);
	free(server->scratch);
	free(server->names);
	free(server->tables);
	free(server->absent);
	free(server->active);
	free(server->ranks);
	free(server);
}

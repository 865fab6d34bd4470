/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bringing an arena into order that an earlier server left, perhaps killed in the middle of an
 * update. With v the version in the undo copy (see apply.c):
 *
 *   undo valid, chunk at v      nothing has changed yet
 *   undo valid, chunk at v+1    put values, steps and applied counts back; then valid = 0; then
 *                               the version becomes v+2, for it never goes back: a reader may
 *                               live across the crash
 *   undo valid, chunk at v+2    the update is whole
 *   a version odd, not valid    killed while putting back, after valid = 0: it only lacks its + 1
 *
 * Then the cells that were not consumed are looked at again; the applied counts tell which of
 * them the weights have. Being killed in here changes nothing: every move may be made again.
 */
#include <errno.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/log.h"
#include "ps/ps_private.h"

static int damaged(const struct ps_server *server, const char *what)
{
	return base_fail(-EEXIST, "%s is damaged (%s); use another address, or start afresh to discard it",
			 server->arena->directory, what);
}

static int open_entries(struct ps_server *server)
{
	uint64_t entries = word_load(&server->header->entries);
	int ret = 0;

	for (uint32_t i = 0; i < entries && ret == 0; i++) {
		if (!ps_entry_is_right(server, i))
			return damaged(server, "its directory");
		ret = ps_entry_open(server, i);
	}
	return ret;
}

static void put_back(struct ps_server *server, struct ps_table *t)
{
	const struct core_private *undo = server->undo;
	struct core_chunk *chunk = &t->chunks[undo->chunk];
	uint64_t first = (uint64_t)undo->chunk * t->shape->chunk_elements + undo->first;
	uint64_t rank = (uint64_t)undo->chunk * ps_workers(server) + undo->first_rank;

	base_copy(t->data + first, core_arena_at(server->arena, CORE_PRIVATE, undo->undo_data_offset),
		  undo->count * sizeof(float));
	ps_point(server);
	base_copy(t->applied + rank,
		  core_arena_at(server->arena, CORE_PRIVATE, undo->undo_applied_offset),
		  undo->ranks * sizeof(uint64_t));
	ps_point(server);
	word_store(&chunk->steps, undo->steps);
	ps_store_fence();
	ps_point(server);
}

static int undo_update(struct ps_server *server)
{
	struct core_private *undo = server->undo;
	struct ps_table *t;
	uint64_t version;

	if (!undo->valid)
		return 0;
	if (undo->entry >= word_load(&server->header->entries))
		return damaged(server, "its undo copy");
	t = server->tables[undo->entry];
	if (!t || undo->chunk >= t->chunk_count ||
	    (uint64_t)undo->first + undo->count > ps_chunk_values(t, undo->chunk) ||
	    (uint64_t)undo->first_rank + undo->ranks > ps_workers(server))
		return damaged(server, "its undo copy");
	version = word_load(&t->chunks[undo->chunk].version);
	if (version - undo->version > 2)
		return damaged(server, "its undo copy");
	if (version == undo->version + 1)
		put_back(server, t);
	word_publish(&undo->valid, 0);
	ps_store_fence();
	ps_point(server);
	if (version == undo->version + 1) {
		word_publish(&t->chunks[undo->chunk].version, version + 1);
		ps_point(server);
	}
	return 0;
}

static void end_odd_versions(struct ps_server *server)
{
	uint64_t entries = word_load(&server->header->entries);

	for (uint64_t i = 0; i < entries; i++) {
		struct ps_table *t = server->tables[i];

		for (uint32_t c = 0; t && c < t->chunk_count; c++) {
			uint64_t version = word_load(&t->chunks[c].version);

			if (version & 1)
				word_publish(&t->chunks[c].version, version + 1);
		}
	}
}

/* Every rank that was ever here: live ones are expected back, or found dead. */
static int open_ranks(struct ps_server *server)
{
	int ret = 0;

	for (uint32_t rank = 0; rank < ps_workers(server) && ret == 0; rank++) {
		uint32_t state = ps_state(server, rank);

		server->excused += ps_is_excused(server, state);
		if (state == CORE_ABSENT)
			continue;
		ret = ps_ring_open(server, rank);
		if (ret == 0 && state == CORE_LIVE) {
			ps_orphan(server, rank, true);
			server->ranks[rank].waits_for_process = true;
			ps_lease_begin(server, rank);
			ps_set_active(server, rank, true);
		}
	}
	return ret;
}

int ps_restart(struct ps_server *server)
{
	int ret;

	server->self.workers = ps_workers(server);
	ret = open_entries(server);
	if (ret == 0)
		ret = undo_update(server);
	if (ret < 0)
		return ret;
	end_odd_versions(server);
	ret = open_ranks(server);
	if (ret < 0)
		return ret;
	for (uint32_t rank = 0; rank < ps_workers(server); rank++)
		ps_ring_scan(server, rank, UINT32_MAX);
	ps_ring_recheck(server);
	server->stand_in_all = true;
	base_log(RAMPS_LOG_INFO, "took over the arena in %s", server->arena->directory);
	return 0;
}

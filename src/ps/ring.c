/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rings: which committed cells are taken, parked, or dropped.
 *
 * Each rank's cells are looked at in the order of its tail. A cell of an asynchronous table is
 * applied at once. A cell of a synchronous table is for one step of its chunk: an older one is
 * consumed and dropped, one for the step that the chunk waits for is pending until every rank has
 * one or is excused, one for a later step is parked until the chunk gets there. Cells behind it
 * are looked at meanwhile: ranks may push their chunks in different orders.
 *
 * `head` is published over cells consumed in order. What was consumed out of order is not written
 * down: after a crash the cells from head on are looked at again, and the applied counts tell.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/log.h"
#include "ps/ps_private.h"

int ps_ring_open(struct ps_server *server, uint32_t rank)
{
	struct ps_rank *r = &server->ranks[rank];
	struct fabric_memory *slots;
	int ret;

	if (r->slots)
		return 0;
	ret = core_arena_slots(server->arena, rank, &slots);
	if (ret < 0)
		return ret;
	r->cells = calloc(server->arena->cells, sizeof(*r->cells));
	if (!r->cells)
		return base_fail(-ENOMEM, "no memory for %u cells", server->arena->cells);
	ret = fabric_register(server->fabric, slots);
	if (ret < 0) {
		free(r->cells);
		r->cells = NULL;
		return ret;
	}
	r->slots = slots;
	r->head = r->scanned = word_load(&server->rank_info[rank].head);
	return 0;
}

bool ps_ring_moved(const struct ps_server *server, uint32_t rank)
{
	const struct ps_rank *r = &server->ranks[rank];
	uint64_t tail = word_load(&server->rank_words[rank].tail);

	return tail != r->scanned && tail - r->head <= server->arena->cells;
}

void ps_ring_consume(struct ps_server *server, uint32_t rank, uint32_t cell)
{
	struct ps_rank *r = &server->ranks[rank];
	uint32_t cells = server->arena->cells;
	uint64_t head = r->head;

	r->cells[cell].state = PS_CELL_DONE;
	while (head != r->scanned && r->cells[head % cells].state == PS_CELL_DONE) {
		r->cells[head % cells].state = PS_CELL_FREE;
		head++;
	}
	if (head == r->head)
		return;
	r->head = head;
	word_publish(&server->rank_info[rank].head, head);
	ps_notify(server, &server->rank_info[rank].head);
	ps_point(server);
}

static void drop(struct ps_server *server, uint32_t rank, uint32_t cell)
{
	uint64_t *dropped = &server->rank_info[rank].dropped;

	word_store(dropped, word_load(dropped) + 1);
	ps_ring_consume(server, rank, cell);
}

static void complain(struct ps_server *server, uint32_t rank, const char *what, uint64_t position)
{
	struct ps_rank *r = &server->ranks[rank];

	if (!r->complained)
		base_log(RAMPS_LOG_WARNING, "rank %u: %s at position %llu of its ring", rank, what,
			 (unsigned long long)position);
	r->complained = true;
}

/* The table that a cell is for, or NULL with the reason why it can't be applied. */
static struct ps_table *check_cell(const struct ps_server *server, const struct core_cell *h,
				   uint64_t position, const char **why)
{
	struct ps_table *t;
	uint32_t values;

	*why = "a cell of another position";
	if (h->position != position)
		return NULL;
	*why = "a cell of no table of slots";
	if (h->entry >= word_load(&server->header->entries) || !server->tables[h->entry])
		return NULL;
	t = server->tables[h->entry];
	*why = "a cell beyond its table";
	if (h->chunk >= t->chunk_count)
		return NULL;
	values = ps_chunk_values(t, h->chunk);
	if (h->count == 0 || h->count > values || h->first > values - h->count)
		return NULL;
	*why = "a cell of no known kind";
	if (h->kind == CORE_CELL_ASSIGN)
		return t;
	if (h->kind != CORE_CELL_PUSH)
		return NULL;
	*why = "a weight or rate that is not finite, or a negative weight";
	if (!(h->weight >= 0) || !isfinite(h->weight) || isnan(h->rate) || h->rate == INFINITY)
		return NULL;
	*why = "a step that no push can have";
	if (t->shape->synchronous ? h->count != values : h->step != position)
		return NULL;
	return t;
}

static void assign(struct ps_server *server, const struct ps_table *t, uint32_t rank, uint32_t cell)
{
	const struct core_cell *h = &server->ranks[rank].cells[cell].header;
	const char *slots = server->ranks[rank].slots->base;
	uint64_t first = (uint64_t)h->chunk * t->shape->chunk_elements + h->first;

	if (word_load(&t->entry->state) != CORE_PREPARING) {
		drop(server, rank, cell);
		return;
	}
	base_copy(t->data + first, slots + core_cell_data(server->arena->cells, cell),
		  h->count * sizeof(float));
	ps_store_fence();
	ps_point(server);
	ps_ring_consume(server, rank, cell);
}

/* Whether every rank that the chunk's step needs is there. */
static bool is_complete(const struct ps_server *server, const struct ps_table *t, uint32_t chunk)
{
	uint32_t workers = ps_workers(server), have = t->pending_count[chunk];
	const uint32_t *pending = &t->pending[(uint64_t)chunk * workers];

	if (have == 0 || have + server->excused < workers)
		return false;
	for (uint32_t rank = 0; have < workers && rank < workers; rank++)
		if (!pending[rank] && !ps_is_excused(server, ps_state(server, rank)))
			return false;
	return true;
}

static void make_pending(struct ps_server *server, struct ps_table *t, uint32_t rank, uint32_t cell)
{
	struct ps_cell *c = &server->ranks[rank].cells[cell];

	t->pending[(uint64_t)c->header.chunk * ps_workers(server) + rank] = cell + 1;
	t->pending_count[c->header.chunk]++;
	server->pending++;
	c->state = PS_CELL_PENDING;
}

/* The chunk has got to another step: takes what a rank had parked for it. */
static void unpark(struct ps_server *server, struct ps_table *t, uint32_t rank, uint32_t chunk)
{
	struct ps_rank *r = &server->ranks[rank];
	uint64_t step = word_load(&t->chunks[chunk].steps);
	uint32_t *mine = &t->pending[(uint64_t)chunk * ps_workers(server) + rank];

	for (uint64_t p = r->head; p != r->scanned; p++) {
		uint32_t cell = (uint32_t)(p % server->arena->cells);
		const struct ps_cell *c = &r->cells[cell];

		if (c->state != PS_CELL_PARKED || c->header.entry != t->entry->index ||
		    c->header.chunk != chunk || c->header.step > step)
			continue;
		r->parked--;
		if (c->header.step < step || *mine) {
			drop(server, rank, cell);
			continue;
		}
		make_pending(server, t, rank, cell);
	}
}

static void apply_complete(struct ps_server *server, struct ps_table *t, uint32_t chunk)
{
	while (is_complete(server, t, chunk)) {
		ps_apply_step(server, t, chunk);
		for (uint32_t rank = 0; rank < ps_workers(server); rank++)
			if (server->ranks[rank].parked)
				unpark(server, t, rank, chunk);
	}
}

static void take_synchronous(struct ps_server *server, struct ps_table *t, uint32_t rank, uint32_t cell)
{
	struct ps_cell *c = &server->ranks[rank].cells[cell];
	uint64_t at = (uint64_t)c->header.chunk * ps_workers(server) + rank;
	uint64_t step = word_load(&t->chunks[c->header.chunk].steps);

	if (t->applied[at] > c->header.step && !server->listener) {
		ps_ring_consume(server, rank, cell); /* restarting: it was applied before */
	} else if (c->header.step > step) {
		c->state = PS_CELL_PARKED;
		server->ranks[rank].parked++;
	} else if (c->header.step < step || t->pending[at]) {
		drop(server, rank, cell); /* too late, or the second for its step */
	} else {
		make_pending(server, t, rank, cell);
		apply_complete(server, t, c->header.chunk);
	}
}

static void take(struct ps_server *server, uint32_t rank, uint64_t position)
{
	uint32_t cell = (uint32_t)(position % server->arena->cells);
	struct ps_rank *r = &server->ranks[rank];
	struct ps_cell *c = &r->cells[cell];
	const char *why;
	struct ps_table *t;
	uint64_t applied;

	memcpy(&c->header, (const struct core_cell *)r->slots->base + cell, sizeof(c->header));
	if (ps_state(server, rank) == CORE_LEFT && position >= server->rank_private[rank].left_at) {
		drop(server, rank, cell);
		return;
	}
	t = check_cell(server, &c->header, position, &why);
	if (!t) {
		complain(server, rank, why, position);
		drop(server, rank, cell);
		return;
	}
	if (c->header.kind == CORE_CELL_ASSIGN) {
		assign(server, t, rank, cell);
		return;
	}
	if (word_load(&t->entry->state) != CORE_READY) {
		complain(server, rank, "a push to a table that is not ready", position);
		drop(server, rank, cell);
		return;
	}
	if (t->shape->synchronous) {
		take_synchronous(server, t, rank, cell);
		return;
	}
	applied = t->applied[(uint64_t)c->header.chunk * ps_workers(server) + rank];
	if (position < applied) /* before a crash */
		ps_ring_consume(server, rank, cell);
	else
		ps_apply_one(server, t, rank, cell);
}

uint32_t ps_ring_scan(struct ps_server *server, uint32_t rank, uint32_t limit)
{
	struct ps_rank *r = &server->ranks[rank];
	uint64_t tail = word_acquire(&server->rank_words[rank].tail);
	uint32_t taken = 0;

	if (tail == r->scanned || !r->slots)
		return 0;
	if (tail - r->head > server->arena->cells) {
		complain(server, rank, "more cells committed than the ring has,", tail);
		return 0;
	}
	while (r->scanned != tail && taken < limit) {
		uint64_t position = r->scanned++;

		take(server, rank, position);
		taken++;
	}
	return taken;
}

int ps_ring_settle(struct ps_server *server, uint32_t rank)
{
	uint64_t offset = server->header->rank_words_offset + rank * sizeof(struct core_rank_words) +
			  offsetof(struct core_rank_words, tail);

	ps_ring_scan(server, rank, UINT32_MAX);
	return ps_raise_word(server, offset, server->ranks[rank].scanned);
}

void ps_ring_recheck(struct ps_server *server)
{
	uint64_t entries = word_load(&server->header->entries);

	for (uint64_t i = 0; i < entries && server->pending; i++) {
		struct ps_table *t = server->tables[i];

		for (uint32_t chunk = 0; t && t->pending_count && chunk < t->chunk_count; chunk++)
			if (t->pending_count[chunk])
				apply_complete(server, t, chunk);
	}
}

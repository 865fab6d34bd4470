/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Updates of a chunk, each applied exactly once although this process may be killed anywhere.
 *
 * The chunk's values, its count of steps and the counts of what each rank had applied change
 * together. There is one undo copy, of the one chunk that is being changed. Its version v is
 * even. In this order:
 *
 *   1. the undo copy: values, steps, applied counts, which chunk, v; then undo.valid = 1
 *   2. version = v+1: readers wait. Values, steps and applied counts change
 *   3. version = v+2: the only commit point
 *   4. the cells are consumed: their ranks may overwrite them
 *   5. undo.valid = 0
 *
 * A kill before 3 leaves the cells as they were, and restart.c puts the chunk back; after 3 the
 * applied counts tell that the cells were applied, consumed or not. Were a cell consumed before
 * 3, its rank could overwrite what must be applied again; were undo.valid cleared while the chunk
 * changes, it could not be put back.
 *
 * In these files a kill finds memory as after some store of the program's order, so that stores
 * only have to stay in order: word_publish() keeps earlier ones before it, ps_store_fence() later
 * ones behind. The same two order the values between the two versions for readers (snapshot
 * pull): the values are written by BLAS, which race detectors do not look into.
 *
 * Contributions to a step are added in rank order, chunk by chunk, and a chunk lies whole on one
 * server: so that the result is the same to the bit for any number of servers.
 */
#include <cblas.h>

#include "base/copy.h"
#include "ps/ps_private.h"

/*
 * What changes: values first .. first+count-1 of the chunk, and the applied counts of some ranks.
 */
struct change {
	struct ps_table *table;
	uint32_t chunk, first, count;
	uint32_t first_rank, ranks;
};

static float *values_of(const struct change *c)
{
	return c->table->data + (uint64_t)c->chunk * c->table->shape->chunk_elements + c->first;
}

static uint64_t *applied_of(const struct ps_server *server, const struct ps_table *table,
			    uint32_t chunk, uint32_t rank)
{
	return &table->applied[(uint64_t)chunk * ps_workers(server) + rank];
}

static const float *cell_data(const struct ps_server *server, uint32_t rank, uint32_t cell)
{
	const char *slots = server->ranks[rank].slots->base;

	return (const float *)(slots + core_cell_data(server->arena->cells, cell));
}

/* Steps 1 and 2, up to the odd version. Returns v. */
static uint64_t begin(struct ps_server *server, const struct change *c)
{
	struct core_chunk *chunk = &c->table->chunks[c->chunk];
	struct core_private *undo = server->undo;
	uint64_t version = word_load(&chunk->version);

	base_copy(core_arena_at(server->arena, CORE_PRIVATE, undo->undo_data_offset), values_of(c),
		  c->count * sizeof(float));
	base_copy(core_arena_at(server->arena, CORE_PRIVATE, undo->undo_applied_offset),
		  applied_of(server, c->table, c->chunk, c->first_rank), c->ranks * sizeof(uint64_t));
	undo->version = version;
	undo->steps = word_load(&chunk->steps);
	undo->entry = c->table->entry->index;
	undo->chunk = c->chunk;
	undo->first = c->first;
	undo->count = c->count;
	undo->first_rank = c->first_rank;
	undo->ranks = c->ranks;
	ps_point(server);
	word_publish(&undo->valid, 1);
	ps_store_fence();
	ps_point(server);
	word_store(&chunk->version, version + 1);
	ps_store_fence();
	ps_point(server);
	return version;
}

static void commit(struct ps_server *server, const struct change *c, uint64_t version)
{
	struct core_chunk *chunk = &c->table->chunks[c->chunk];

	word_store(&chunk->steps, word_load(&chunk->steps) + 1);
	ps_point(server);
	word_publish(&chunk->version, version + 2);
	ps_store_fence();
	ps_point(server);
	word_store(&c->table->entry->steps, word_load(&c->table->entry->steps) + 1);
}

static void end(struct ps_server *server)
{
	word_publish(&server->undo->valid, 0);
	ps_store_fence();
	ps_point(server);
}

static float scale_of(const struct ps_table *table, float rate, float weight)
{
	/* A step without samples is a step all the same. */
	return weight > 0 ? -(rate < 0 ? table->shape->rate : rate) / weight : 0;
}

static void count_applied(struct ps_server *server, uint32_t rank)
{
	uint64_t *applied = &server->rank_info[rank].applied;

	word_store(applied, word_load(applied) + 1);
}

void ps_apply_one(struct ps_server *server, struct ps_table *table, uint32_t rank, uint32_t cell)
{
	const struct core_cell *h = &server->ranks[rank].cells[cell].header;
	struct change c = { table, h->chunk, h->first, h->count, rank, 1 };
	uint64_t version = begin(server, &c);

	cblas_saxpy((blasint)h->count, scale_of(table, h->rate, h->weight),
		    cell_data(server, rank, cell), 1, values_of(&c), 1);
	ps_point(server);
	word_store(applied_of(server, table, h->chunk, rank), h->position + 1);
	ps_point(server);
	commit(server, &c, version);
	ps_ring_consume(server, rank, cell);
	end(server);
	count_applied(server, rank);
}

/* Sums the pending cells of a chunk in rank order. Returns the sum, which may be a cell itself. */
static const float *sum_pending(struct ps_server *server, const struct ps_table *table,
				uint32_t chunk, float *scale)
{
	const uint32_t *pending = &table->pending[(uint64_t)chunk * ps_workers(server)];
	blasint n = (blasint)ps_chunk_values(table, chunk);
	const float *sum = NULL;
	float weight = 0, rate = 0;

	for (uint32_t rank = 0; rank < ps_workers(server); rank++) {
		const struct core_cell *h;
		const float *data;

		if (!pending[rank])
			continue;
		h = &server->ranks[rank].cells[pending[rank] - 1].header;
		data = cell_data(server, rank, pending[rank] - 1);
		weight += h->weight;
		if (!sum) {
			rate = h->rate;
			sum = data;
			continue;
		}
		if (sum != server->scratch) {
			cblas_scopy(n, sum, 1, server->scratch, 1);
			sum = server->scratch;
		}
		cblas_saxpy(n, 1.0f, data, 1, server->scratch, 1);
	}
	*scale = scale_of(table, rate, weight);
	return sum;
}

static void consume_pending(struct ps_server *server, struct ps_table *table, uint32_t chunk)
{
	uint32_t *pending = &table->pending[(uint64_t)chunk * ps_workers(server)];

	for (uint32_t rank = 0; rank < ps_workers(server); rank++) {
		uint32_t cell = pending[rank];

		if (!cell)
			continue;
		pending[rank] = 0;
		ps_ring_consume(server, rank, cell - 1);
		count_applied(server, rank);
	}
	server->pending -= table->pending_count[chunk];
	table->pending_count[chunk] = 0;
}

void ps_apply_step(struct ps_server *server, struct ps_table *table, uint32_t chunk)
{
	const uint32_t *pending = &table->pending[(uint64_t)chunk * ps_workers(server)];
	struct change c = { table, chunk, 0, ps_chunk_values(table, chunk), 0, ps_workers(server) };
	uint64_t step = word_load(&table->chunks[chunk].steps);
	float scale;
	const float *sum = sum_pending(server, table, chunk, &scale);
	uint64_t version = begin(server, &c);

	cblas_saxpy((blasint)c.count, scale, sum, 1, values_of(&c), 1);
	ps_point(server);
	for (uint32_t rank = 0; rank < ps_workers(server); rank++)
		if (pending[rank])
			word_store(applied_of(server, table, chunk, rank), step + 1);
	ps_point(server);
	commit(server, &c, version);
	consume_pending(server, table, chunk);
	end(server);
}

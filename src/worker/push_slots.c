/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pushes to slots tables, chunk by chunk through this rank's ring on each server (core/layout.h).
 *
 * One list commits a chunk: WRITE the values into the cell, WRITE the cell's header, add 1 to the
 * rank's tail. Whoever sees the tail sees the cell; the tail is the one commit word. The list's
 * last READ tells whether the server sleeps: then it is woken by a message, for nothing else
 * would wake it.
 *
 * A cell is the rank's again when the server's `head` has passed its position: that is the back
 * pressure, and also how this rank knows that a push is in the weights.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "worker/worker_private.h"

static uint64_t head_offset(struct ramps_worker *worker, uint32_t shard)
{
	return worker_link(worker, shard)->header.ranks_offset +
	       worker->member->rank * sizeof(struct core_rank) + offsetof(struct core_rank, head);
}

/* 0: the server has consumed all positions below `position`. WORKER_AGAIN: *wait says for what. */
int worker_ring_consumed(struct ramps_worker *worker, uint32_t shard, uint64_t position,
			 struct worker_wait *wait)
{
	struct worker_member *member = worker->member;
	struct worker_ring *ring = &member->rings[shard];
	uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED), sync_tail;
	int ret;

	if ((int64_t)(head - position) >= 0)
		return 0;
	ret = worker_read(worker, shard, CORE_PUBLISHED, head_offset(worker, shard), &head, sizeof(head));
	if (ret)
		return ret;
	__atomic_store_n(&ring->head, head, __ATOMIC_RELAXED);
	if ((int64_t)(head - position) >= 0)
		return 0;
	/* a list that nobody has waited for may have found it asleep */
	worker_wake_server(worker, shard);
	sync_tail = __atomic_load_n(&ring->sync_tail, __ATOMIC_RELAXED);
	*wait = (struct worker_wait){
		.shard = shard,
		.region = CORE_PUBLISHED,
		.offset = head_offset(worker, shard),
		.seen = head,
		.needs_ranks = (int64_t)(sync_tail - head) > 0,
	};
	return WORKER_AGAIN;
}

/* The values of the request from its cursor on that lie in one chunk. */
struct slots_piece {
	uint32_t shard, chunk, first, count;
	uint64_t table_chunk; /* index in the whole table */
};

static struct slots_piece piece_at(struct worker_request *request)
{
	struct ramps_table *table = request->table;
	uint64_t element = request->op.first_row * table->core.dim + request->cursor;
	uint32_t shard = worker_part_of(table, element);
	struct worker_part *part = &table->parts[shard];
	uint64_t in_part = element - part->first, size = table->core.chunk_elements;
	uint64_t count = size - in_part % size;

	if (count > part->elements - in_part)
		count = part->elements - in_part;
	if (count > request->values - request->cursor)
		count = request->values - request->cursor;
	return (struct slots_piece){
		.shard = shard,
		.chunk = (uint32_t)(in_part / size),
		.first = (uint32_t)(in_part % size),
		.count = (uint32_t)count,
		.table_chunk = element / size,
	};
}

static void fill_cell(struct core_cell *cell, const struct worker_request *request,
		      const struct slots_piece *piece, uint64_t position)
{
	const struct ramps_table *table = request->table;
	const struct ramps_transfer *transfer = &request->op.transfer;

	*cell = (struct core_cell){
		.position = position,
		.step = table->steps ? table->steps->next_step[piece->table_chunk] : position,
		.kind = request->op.flags & WORKER_OP_ASSIGN ? CORE_CELL_ASSIGN : CORE_CELL_PUSH,
		.entry = table->parts[piece->shard].entry,
		.chunk = piece->chunk,
		.first = piece->first,
		.count = piece->count,
		.weight = transfer->weight,
		.rate = transfer->rate >= 0 ? transfer->rate : -1.0f,
	};
}

void worker_cell_ops(struct ramps_worker *worker, uint32_t shard, struct worker_flight *flight,
		     struct fabric_op ops[WORKER_CELL_OPS])
{
	struct worker_link *link = worker_link(worker, shard);
	uint32_t cells = link->header.cells, cell = (uint32_t)(flight->cell.position % cells);

	ops[0] = (struct fabric_op){
		.opcode = FABRIC_WRITE,
		.region = CORE_SLOTS,
		.offset = core_cell_data(cells, cell),
		.local = (float *)flight->src,
		.len_bytes = flight->cell.count * sizeof(float),
	};
	ops[1] = (struct fabric_op){
		.opcode = FABRIC_WRITE,
		.region = CORE_SLOTS,
		.offset = cell * sizeof(struct core_cell),
		.local = &flight->cell,
		.len_bytes = sizeof(struct core_cell),
	};
	if (link->ep->limits.inline_bytes >= sizeof(struct core_cell))
		ops[1].flags = FABRIC_INLINE;
	ops[2] = (struct fabric_op){
		.opcode = FABRIC_FETCH_ADD,
		.region = CORE_WORDS,
		.offset = worker_word(worker, shard, offsetof(struct core_rank_words, tail)),
		.operand = 1,
	};
	ops[3] = (struct fabric_op){
		.opcode = FABRIC_READ,
		.flags = FABRIC_FENCE,
		.region = CORE_PUBLISHED,
		.offset = offsetof(struct core_header, asleep),
		.local = &link->asleep,
		.len_bytes = sizeof(link->asleep),
	};
}

/*
 * Wakes a server that a completed list found asleep. What was committed has landed whatever comes
 * of it: a server that died looks when it is started again, and one whose channel is full was
 * woken often enough. Where lists are under way the word may be read half-way, which at worst
 * wakes a server for nothing.
 */
void worker_wake_server(struct ramps_worker *worker, uint32_t shard)
{
	struct core_request message = { .magic = CORE_MESSAGE_MAGIC, .kind = CORE_WAKE };
	struct worker_link *link = worker_link(worker, shard);

	if (!link->asleep || link->broken)
		return;
	link->asleep = 0;
	if (fabric_send(link->ep, &message, sizeof(message)) == -ENOTCONN)
		worker_lost(worker, shard);
}

/* What is left to do when the request's lists are complete. */
int worker_push_slots_settle(struct ramps_worker *worker, struct worker_request *request)
{
	for (uint32_t shard = 0; shard < worker->member->shards; shard++)
		worker_wake_server(worker, shard);
	if (request->op.transfer.level != RAMPS_POSTED)
		worker_flights_landed(worker, request);
	if (request->op.transfer.level != RAMPS_APPLIED)
		return 0;
	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		int ret = 0;

		if (request->target[shard])
			ret = worker_ring_consumed(worker, shard, request->target[shard], &request->wait);
		if (ret)
			return ret;
	}
	return 0;
}

/* With clones, what one has posted lands before another may post. */
static int piece_land(struct ramps_worker *worker, struct worker_ring *ring,
		      struct fabric_completion *completion)
{
	worker_drain(worker, completion, WORKER_LAND_NS);
	if (completion->status)
		return worker_find_lost(worker);
	ring->landed = ring->tail;
	return 0;
}

static int piece_post(struct ramps_worker *worker, struct worker_request *request,
		      const struct slots_piece *piece)
{
	struct worker_link *link = worker_link(worker, piece->shard);
	struct worker_ring *ring = &worker->member->rings[piece->shard];
	bool is_posted = request->op.transfer.level == RAMPS_POSTED;
	struct fabric_completion *completion = is_posted ? &worker->posted : &request->completion;
	struct worker_flight *flight = &worker->flight;
	struct fabric_op ops[WORKER_CELL_OPS];
	int ret;

	if (ring->flights) {
		flight = &ring->flights[ring->tail % ring->cells];
		free(flight->copy);
		flight->copy = NULL;
		flight->request = is_posted ? NULL : request;
	}
	flight->src = (const float *)request->op.data + request->cursor;
	fill_cell(&flight->cell, request, piece, ring->tail);
	worker_cell_ops(worker, piece->shard, flight, ops);
	ret = fabric_post(link->ep, ops, WORKER_CELL_OPS, completion);
	if (ret)
		return ret;
	__atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELAXED);
	if (request->table->steps) {
		__atomic_store_n(&ring->sync_tail, ring->tail, __ATOMIC_RELAXED);
		request->table->steps->next_step[piece->table_chunk]++;
	}
	request->target[piece->shard] = ring->tail;
	request->cell_mask |= 1ull << piece->shard;
	request->cursor += piece->count;
	return 0;
}

static int piece_push(struct ramps_worker *worker, struct worker_request *request,
		      const struct slots_piece *piece)
{
	struct worker_ring *ring = &worker->member->rings[piece->shard];
	uint32_t cells = worker_link(worker, piece->shard)->header.cells;
	bool locked = worker_lock(worker->member);
	int ret = worker_flights_turn(worker, piece->shard);

	if (!ret)
		ret = worker_ring_consumed(worker, piece->shard, ring->tail - cells + 1, &request->wait);
	if (!ret)
		ret = piece_post(worker, request, piece);
	if (!ret && locked && ring->flights)
		ret = piece_land(worker, ring,
				 request->op.transfer.level == RAMPS_POSTED ? &worker->posted :
									      &request->completion);
	worker_unlock(worker->member, locked);
	return ret;
}

/* A synchronous push covers whole chunks: each is one contribution to its step. */
static int check_borders(const struct worker_request *request)
{
	const struct ramps_table *table = request->table;
	uint64_t first = request->op.first_row * table->core.dim, end = first + request->values;
	uint64_t size = table->core.chunk_elements;

	if (!table->steps || (first % size == 0 && (end % size == 0 || end == table->elements)))
		return 0;
	return base_fail(-EINVAL,
			 "table %s is synchronous: push all %llu rows, or rows that begin and "
			 "end at a multiple of %llu values",
			 table->name, (unsigned long long)table->core.rows, (unsigned long long)size);
}

static int check_push(struct worker_request *request)
{
	int ret = check_borders(request);

	if (ret)
		return ret;
	if (!base_finite(request->op.data, request->values))
		return base_fail(-EDOM, "a value for table %s is NaN or infinite: nothing was sent",
				 request->table->name);
	request->checked = true;
	return 0;
}

int worker_push_slots(struct ramps_worker *worker, struct worker_request *request)
{
	int ret;

	if (!request->checked && request->values) {
		ret = check_push(request);
		if (ret)
			return ret;
	}
	while (request->cursor < request->values) {
		struct slots_piece piece = piece_at(request);

		ret = piece_push(worker, request, &piece);
		if (ret == -EAGAIN)
			return worker_await(request, piece.shard);
		if (ret == -ENOTCONN)
			return worker_lost(worker, piece.shard);
		if (ret)
			return ret;
		worker_wake_server(worker, piece.shard);
	}
	return 0;
}

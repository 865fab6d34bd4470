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

static void fill_cell(struct ramps_worker *worker, struct worker_request *request,
		      const struct slots_piece *piece, uint64_t position)
{
	struct ramps_table *table = request->table;
	const struct ramps_transfer *transfer = &request->op.transfer;

	worker->cell = (struct core_cell){
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

/*
 * Wakes a server that a completed list found asleep. What was committed has landed whatever comes
 * of it: a server that died looks when it is started again, and one whose channel is full was
 * woken often enough.
 */
static void wake(struct ramps_worker *worker, struct worker_request *request, uint32_t shard)
{
	struct core_request message = { .magic = CORE_MESSAGE_MAGIC, .kind = CORE_WAKE };
	struct worker_link *link = worker_link(worker, shard);

	if (!link->asleep || worker_pending(&request->completion) || worker_pending(&worker->posted))
		return;
	link->asleep = 0;
	if (fabric_send(link->ep, &message, sizeof(message)) == -ENOTCONN)
		worker_lost(worker, shard);
}

/* What is left to do when the request's lists are complete. */
int worker_push_slots_settle(struct ramps_worker *worker, struct worker_request *request)
{
	for (uint32_t shard = 0; shard < worker->member->shards; shard++)
		wake(worker, request, shard);
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

static int piece_post(struct ramps_worker *worker, struct worker_request *request,
		      const struct slots_piece *piece)
{
	struct worker_link *link = worker_link(worker, piece->shard);
	struct worker_ring *ring = &worker->member->rings[piece->shard];
	uint32_t cells = link->header.cells;
	uint32_t cell = (uint32_t)(ring->tail % cells);
	struct fabric_op ops[4] = {
		{
			.opcode = FABRIC_WRITE,
			.region = CORE_SLOTS,
			.offset = core_cell_data(cells, cell),
			.local = (float *)request->op.data + request->cursor,
			.len_bytes = piece->count * sizeof(float),
		},
		{
			.opcode = FABRIC_WRITE,
			.flags = FABRIC_INLINE,
			.region = CORE_SLOTS,
			.offset = cell * sizeof(struct core_cell),
			.local = &worker->cell,
			.len_bytes = sizeof(struct core_cell),
		},
		{
			.opcode = FABRIC_FETCH_ADD,
			.region = CORE_WORDS,
			.offset = link->header.rank_words_offset +
				  worker->member->rank * sizeof(struct core_rank_words) +
				  offsetof(struct core_rank_words, tail),
			.operand = 1,
		},
		{
			.opcode = FABRIC_READ,
			.flags = FABRIC_FENCE,
			.region = CORE_PUBLISHED,
			.offset = offsetof(struct core_header, asleep),
			.local = &link->asleep,
			.len_bytes = sizeof(link->asleep),
		},
	};
	int ret;

	fill_cell(worker, request, piece, ring->tail);
	ret = fabric_post(link->ep, ops, 4,
			  request->op.transfer.level == RAMPS_POSTED ? &worker->posted :
								       &request->completion);
	if (ret)
		return ret;
	__atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELAXED);
	if (request->table->steps) {
		__atomic_store_n(&ring->sync_tail, ring->tail, __ATOMIC_RELAXED);
		request->table->steps->next_step[piece->table_chunk]++;
	}
	if (request->op.transfer.level == RAMPS_APPLIED)
		request->target[piece->shard] = ring->tail;
	request->cursor += piece->count;
	return 0;
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
	struct worker_member *member = worker->member;
	int ret;

	if (!request->checked && request->values) {
		ret = check_push(request);
		if (ret)
			return ret;
	}
	while (request->cursor < request->values) {
		struct slots_piece piece = piece_at(request);
		struct worker_ring *ring = &member->rings[piece.shard];
		uint32_t cells = worker_link(worker, piece.shard)->header.cells;
		bool locked = worker_lock(member);

		ret = worker_ring_consumed(worker, piece.shard, ring->tail - cells + 1, &request->wait);
		if (!ret)
			ret = piece_post(worker, request, &piece);
		worker_unlock(member, locked);
		if (ret == -EAGAIN)
			return worker_await(request, piece.shard);
		if (ret == -ENOTCONN)
			return worker_lost(worker, piece.shard);
		if (ret)
			return ret;
		wake(worker, request, piece.shard);
	}
	return 0;
}

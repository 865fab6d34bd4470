/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Relaxed pulls. Values that the arena holds as the user wants them are read straight into the
 * user's memory; fixed point goes through the worker's bounce block, a piece that stays in the
 * first cache.
 */
#include <errno.h>

#include "worker/worker_private.h"

/* Values from element on, at most n, that lie on the server of *part. */
static uint64_t part_run(const struct worker_part *part, uint64_t element, uint64_t n)
{
	uint64_t left = part->first + part->elements - element;

	return n < left ? n : left;
}

static void from_fixed(float *dst, const int64_t *src, uint64_t n, double unscale)
{
	for (uint64_t i = 0; i < n; i++)
		dst[i] = (float)((double)src[i] * unscale);
}

static bool is_fixed(const struct ramps_table *table)
{
	return table->core.mode == RAMPS_DIRECT && table->core.type == RAMPS_FLOAT32;
}

static uint32_t user_bytes(const struct ramps_table *table)
{
	return table->core.type == RAMPS_INT64 ? 8 : 4;
}

/* Notes the least steps of the chunks that a pull from slots covers. */
static int pull_steps(struct ramps_worker *worker, struct worker_request *request, uint64_t first,
		      uint64_t n)
{
	struct ramps_table *table = request->table;
	uint64_t end = first + n;

	request->steps = UINT64_MAX;
	while (first < end) {
		uint32_t shard = worker_part_of(table, first);
		struct worker_part *part = &table->parts[shard];
		uint64_t run = part_run(part, first, end - first);
		uint64_t chunk = (first - part->first) / table->core.chunk_elements;
		uint64_t last = (first + run - 1 - part->first) / table->core.chunk_elements;

		for (; chunk <= last; chunk += WORKER_RUN) {
			uint64_t count = last - chunk + 1 < WORKER_RUN ? last - chunk + 1 : WORKER_RUN;
			int ret = worker_read(worker, shard, CORE_PUBLISHED,
					      part->chunks_offset + chunk * sizeof(struct core_chunk),
					      worker->current, count * sizeof(struct core_chunk));

			if (ret)
				return ret;
			for (uint64_t i = 0; i < count; i++)
				if (worker->current[i].steps < request->steps)
					request->steps = worker->current[i].steps;
		}
		first += run;
	}
	return 0;
}

static int pull_post(struct ramps_worker *worker, struct worker_request *request, uint64_t element,
		     uint64_t n, void *local)
{
	struct ramps_table *table = request->table;
	uint32_t shard = worker_part_of(table, element);
	struct worker_part *part = &table->parts[shard];
	struct worker_link *link = worker_link(worker, shard);
	uint64_t limit = link->ep->limits.max_transfer_bytes >> table->value_shift;
	uint64_t run = part_run(part, element, n < limit ? n : limit);
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = table->core.mode == RAMPS_DIRECT ? CORE_WORDS : CORE_PUBLISHED,
		.offset = part->data_offset + ((element - part->first) << table->value_shift),
		.local = local,
		.len_bytes = run << table->value_shift,
	};
	int ret = fabric_post(link->ep, &op, 1, &request->completion);

	request->wait.shard = shard;
	if (ret == -EAGAIN)
		return worker_await(request, shard);
	if (ret == -ENOTCONN)
		return worker_lost(worker, shard);
	if (!ret)
		request->cursor += run;
	return ret;
}

/* request->state counts the values that lie in the bounce block. */
static int pull_fixed(struct ramps_worker *worker, struct worker_request *request)
{
	const uint64_t block = WORKER_BOUNCE_BYTES / 8;
	uint64_t first = request->op.first_row * request->table->core.dim;
	float *dst = request->op.data;

	if (worker->bounce_owner && worker->bounce_owner != request) {
		request->wait = worker->bounce_owner->wait;
		return WORKER_AGAIN;
	}
	worker->bounce_owner = request;
	for (;;) {
		uint64_t before, left;
		int ret;

		if (worker_pending(&request->completion))
			return worker_await(request, request->wait.shard);
		from_fixed(dst + request->cursor - request->state, (const int64_t *)worker->bounce,
			   request->state, request->table->unscale);
		request->state = 0;
		left = request->values - request->cursor;
		if (!left || request->completion.status)
			break;
		before = request->cursor;
		ret = pull_post(worker, request, first + before, left < block ? left : block,
				worker->bounce);
		if (ret)
			return ret;
		request->state = (uint32_t)(request->cursor - before);
	}
	worker->bounce_owner = NULL;
	return 0;
}

int worker_pull(struct ramps_worker *worker, struct worker_request *request)
{
	struct ramps_table *table = request->table;
	uint64_t first = request->op.first_row * table->core.dim;
	int ret;

	if (is_fixed(table))
		return pull_fixed(worker, request);
	if (table->core.mode == RAMPS_SLOTS && request->op.transfer.size && !request->checked) {
		ret = pull_steps(worker, request, first, request->values);
		if (ret)
			return ret;
		request->checked = true;
	}
	while (request->cursor < request->values) {
		char *dst = (char *)request->op.data + request->cursor * user_bytes(table);

		ret = pull_post(worker, request, first + request->cursor,
				request->values - request->cursor, dst);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * Rows anywhere. A list of up to WORKER_BLOCK rows that lie on one server one after another in
 * the caller's order is one READ_LIST; a row that lies on two servers is read piece by piece.
 */
static int rows_post(struct ramps_worker *worker, struct worker_request *request, uint64_t row,
		     uint64_t limit, char *local)
{
	struct ramps_table *table = request->table;
	const uint64_t *rows = request->op.row_ids;
	uint64_t dim = table->core.dim, offsets[WORKER_BLOCK];
	uint32_t shard = worker_part_of(table, rows[row] * dim);
	struct worker_part *part = &table->parts[shard];
	struct fabric_op op = {
		.opcode = FABRIC_READ_LIST,
		.region = CORE_WORDS,
		.local = local,
		.len_bytes = dim * 8,
		.offsets = offsets,
	};
	int ret;

	if (limit > worker_link(worker, shard)->ep->limits.max_ops)
		limit = worker_link(worker, shard)->ep->limits.max_ops;
	while (op.count < limit && row + op.count < request->op.rows) {
		uint64_t element = rows[row + op.count] * dim - part->first;

		if (element >= part->elements || dim > part->elements - element)
			break;
		offsets[op.count++] = part->data_offset + element * 8;
	}
	request->wait.shard = shard;
	ret = fabric_post(worker_link(worker, shard)->ep, &op, 1, &request->completion);
	if (ret == -EAGAIN)
		return worker_await(request, shard);
	if (ret == -ENOTCONN)
		return worker_lost(worker, shard);
	if (!ret)
		request->cursor += op.count * dim;
	return ret;
}

/* Reads from the value at cursor on into local: some whole rows, or a piece of one. */
static int rows_step(struct ramps_worker *worker, struct worker_request *request, uint64_t limit,
		     char *local)
{
	struct ramps_table *table = request->table;
	uint64_t dim = table->core.dim, row = request->cursor / dim, in_row = request->cursor % dim;
	uint64_t element = request->op.row_ids[row] * dim + in_row;
	struct worker_part *part = &table->parts[worker_part_of(table, element)];

	if (!in_row && dim <= limit && part_run(part, element, dim) == dim)
		return rows_post(worker, request, row,
				 limit / dim < WORKER_BLOCK ? limit / dim : WORKER_BLOCK, local);
	return pull_post(worker, request, element, dim - in_row < limit ? dim - in_row : limit, local);
}

static int rows_fixed(struct ramps_worker *worker, struct worker_request *request)
{
	float *dst = request->op.data;

	if (worker->bounce_owner && worker->bounce_owner != request) {
		request->wait = worker->bounce_owner->wait;
		return WORKER_AGAIN;
	}
	worker->bounce_owner = request;
	for (;;) {
		uint64_t before = request->cursor;
		int ret;

		if (worker_pending(&request->completion))
			return worker_await(request, request->wait.shard);
		from_fixed(dst + before - request->state, (const int64_t *)worker->bounce,
			   request->state, request->table->unscale);
		request->state = 0;
		if (before == request->values || request->completion.status)
			break;
		ret = rows_step(worker, request, WORKER_BOUNCE_BYTES / 8, worker->bounce);
		if (ret)
			return ret;
		request->state = (uint32_t)(request->cursor - before);
	}
	worker->bounce_owner = NULL;
	return 0;
}

int worker_pull_rows(struct ramps_worker *worker, struct worker_request *request)
{
	if (is_fixed(request->table))
		return rows_fixed(worker, request);
	while (request->cursor < request->values) {
		int ret = rows_step(worker, request, UINT64_MAX,
				    (char *)request->op.data + request->cursor * 8);

		if (ret)
			return ret;
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pushes to direct tables: fetch-adds on the parameters themselves. The values of a block are
 * turned into offsets and addends, one list a server, and each list is one post, so that the
 * working set stays in the first cache. Over a fabric that can lose track of an operation each
 * list ends with an add of its length to this rank's `landed` word, on the same queue pair;
 * elsewhere that count is kept up now and then.
 *
 * The cursor stands at the block; done_mask has the servers that have their list of it. So a push
 * that failed can go on exactly where it stopped.
 */
#include <errno.h>
#include <math.h>

#include "worker/worker_private.h"

#define LAND_AFTER 65536u

/* Values that are finite and below this, scaled, round to an int64. */
#define FIXED_LIMIT 9223372036854774784.0

static int check_fixed(const struct ramps_table *table, const float *src, uint64_t n)
{
	double limit = FIXED_LIMIT * table->unscale;

	for (uint64_t i = 0; i < n; i++)
		if (!(fabs((double)src[i]) <= limit))
			return base_fail(-EDOM, "value %llu is %g; table %s takes finite values below %g",
					 (unsigned long long)i, (double)src[i], table->name, limit);
	return 0;
}

static uint64_t to_fixed(const struct ramps_table *table, float value)
{
	return (uint64_t)llrint((double)value * table->scale);
}

/* Fills the lists with n values from `element` on, which is value `at` of the source. */
static void gather(struct ramps_table *table, const void *src, uint64_t at, uint64_t element, uint64_t n)
{
	while (n) {
		uint32_t shard = worker_part_of(table, element);
		struct worker_part *part = &table->parts[shard];
		struct worker_adds *adds = &table->adds[shard];
		uint64_t left = part->first + part->elements - element;
		uint64_t run = n < left ? n : left;
		uint64_t offset = part->data_offset + (element - part->first) * 8;
		uint32_t k = adds->n;

		if (table->core.type == RAMPS_INT64)
			for (uint64_t i = 0; i < run; i++)
				adds->addends[k + i] = ((const uint64_t *)src)[at + i];
		else
			for (uint64_t i = 0; i < run; i++)
				adds->addends[k + i] = to_fixed(table, ((const float *)src)[at + i]);
		for (uint64_t i = 0; i < run; i++)
			adds->offsets[k + i] = offset + i * 8;
		adds->n += (uint32_t)run;
		element += run;
		at += run;
		n -= run;
	}
}

/* Rows of one value on one server, which need no search. */
static void gather_scattered(struct worker_request *request, uint32_t shard, uint64_t n)
{
	struct ramps_table *table = request->table;
	const struct worker_part *part = &table->parts[shard];
	struct worker_adds *adds = &table->adds[shard];
	const uint64_t *rows = request->op.row_ids + request->cursor;

	for (uint64_t i = 0; i < n; i++)
		adds->offsets[i] = part->data_offset + rows[i] * 8;
	if (table->core.type == RAMPS_INT64) {
		const uint64_t *src = (const uint64_t *)request->op.data + request->cursor;

		for (uint64_t i = 0; i < n; i++)
			adds->addends[i] = src[i];
	} else {
		const float *src = (const float *)request->op.data + request->cursor;

		for (uint64_t i = 0; i < n; i++)
			adds->addends[i] = to_fixed(table, src[i]);
	}
	adds->n = (uint32_t)n;
}

/* Fills the lists with the block of n values at the request's cursor. */
static void gather_block(struct worker_request *request, uint64_t n)
{
	struct ramps_table *table = request->table;
	uint64_t dim = table->core.dim, at = request->cursor, end = at + n;
	uint64_t row, in_row;

	if (request->op.kind == RAMPS_PUSH) {
		gather(table, request->op.data, at, request->op.first_row * dim + at, n);
		return;
	}
	if (dim == 1 && table->holders == 1) {
		gather_scattered(request, table->last_part, n);
		return;
	}
	row = at / dim;
	in_row = at % dim;
	while (at < end) {
		uint64_t run = dim - in_row < end - at ? dim - in_row : end - at;

		gather(table, request->op.data, at, request->op.row_ids[row] * dim + in_row, run);
		at += run;
		row++;
		in_row = 0;
	}
}

static int adds_post(struct ramps_worker *worker, struct worker_request *request, uint32_t shard)
{
	struct worker_link *link = worker_link(worker, shard);
	const struct worker_adds *adds = &request->table->adds[shard];
	bool is_posted = request->op.transfer.level == RAMPS_POSTED;
	struct fabric_completion *completion = is_posted ? &worker->posted : &request->completion;
	struct fabric_op ops[2] = {
		{
			.opcode = FABRIC_FETCH_ADD_LIST,
			.region = CORE_WORDS,
			.count = adds->n,
			.offsets = adds->offsets,
			.addends = adds->addends,
		},
		{
			.opcode = FABRIC_FETCH_ADD,
			.region = CORE_WORDS,
			.offset = worker_word(worker, shard, offsetof(struct core_rank_words, landed)),
			.operand = adds->n,
		},
	};
	bool counted = !link->ep->limits.fate_known;
	int ret;

	if (adds->n == 1) {
		ops[0].opcode = FABRIC_FETCH_ADD;
		ops[0].offset = adds->offsets[0];
		ops[0].operand = adds->addends[0];
		ops[0].compare = 0;
	}
	ret = fabric_post(link->ep, ops, counted ? 2 : 1, completion);
	request->wait.shard = shard;
	if (ret == -EAGAIN)
		return worker_await(request, shard);
	if (ret == -ENOTCONN)
		return worker_lost(worker, shard);
	if (ret)
		return ret;
	if (is_posted)
		worker->posted_in_doubt += adds->n;
	else
		request->in_doubt += adds->n;
	if (!counted)
		link->unlanded += adds->n;
	return 0;
}

static int block_post(struct ramps_worker *worker, struct worker_request *request, uint64_t n)
{
	struct ramps_table *table = request->table;
	uint32_t shards = worker->member->shards;

	gather_block(request, n);
	for (uint32_t shard = 0; shard < shards; shard++) {
		int ret = 0;

		if (table->adds[shard].n && !(request->done_mask >> shard & 1))
			ret = adds_post(worker, request, shard);
		if (ret) {
			for (; shard < shards; shard++)
				table->adds[shard].n = 0;
			return ret;
		}
		request->done_mask |= 1ull << shard;
		table->adds[shard].n = 0;
	}
	request->cursor += n;
	request->done_mask = 0;
	return 0;
}

int worker_push_direct(struct ramps_worker *worker, struct worker_request *request)
{
	struct ramps_table *table = request->table;
	int ret;

	if (!request->checked && table->core.type == RAMPS_FLOAT32) {
		ret = check_fixed(table, request->op.data, request->values);
		if (ret)
			return ret;
	}
	request->checked = true;
	if (!worker_pending(&request->completion))
		request->in_doubt = 0;
	if (!worker_pending(&worker->posted) && !worker->posted.status)
		worker->posted_in_doubt = 0;
	while (request->cursor < request->values) {
		uint64_t left = request->values - request->cursor;

		ret = block_post(worker, request, left < worker->block ? left : worker->block);
		if (ret)
			return ret;
	}
	if (__builtin_expect(worker_link(worker, request->wait.shard)->unlanded > LAND_AFTER, 0))
		return worker_land(worker);
	return 0;
}

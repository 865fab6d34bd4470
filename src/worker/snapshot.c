/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Snapshot pulls: each chunk as of one version. READ the versions; when complete, READ the data;
 * when complete, READ the versions again: a chunk whose version was even and is the same is had,
 * the others are read again. So is one whose count of steps is not the same: version and count are
 * two words of one READ, which may be of different times. READs in one list promise no order among
 * themselves, so that each of the three is a post that is waited for. Chunks are taken in runs of
 * up to WORKER_RUN on one server. A chunk that is found odd is waited for a moment; one that
 * changes under ROUNDS reads is an error.
 */
#include <errno.h>

#include "worker/worker_private.h"

#define ROUNDS      8u
#define ODD_WAIT_NS (2 * NS_PER_MS)

enum snapshot_state {
	SNAPSHOT_BEGIN,
	SNAPSHOT_VERSIONS,
	SNAPSHOT_DATA,
	SNAPSHOT_CHECK,
};

struct snapshot_run {
	struct worker_part *part;
	uint32_t shard;
	uint64_t chunk; /* first of the run, in the part */
};

static struct snapshot_run run_of(struct worker_request *request)
{
	struct ramps_table *table = request->table;
	struct snapshot_run run = { .shard = worker_part_of(table, request->run_first) };

	run.part = &table->parts[run.shard];
	run.chunk = (request->run_first - run.part->first) / table->core.chunk_elements;
	return run;
}

static int snapshot_post(struct ramps_worker *worker, struct worker_request *request,
			 uint32_t shard, const struct fabric_op *op)
{
	int ret = fabric_post(worker_link(worker, shard)->ep, op, 1, &request->completion);

	request->wait.shard = shard;
	if (ret == -EAGAIN)
		return worker_await(request, shard);
	return ret == -ENOTCONN ? worker_lost(worker, shard) : ret;
}

static int post_versions(struct ramps_worker *worker, struct worker_request *request,
			 struct core_chunk *into)
{
	struct snapshot_run run = run_of(request);
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = CORE_PUBLISHED,
		.offset = run.part->chunks_offset + run.chunk * sizeof(struct core_chunk),
		.local = into,
		.len_bytes = request->run_chunks * sizeof(struct core_chunk),
	};

	return snapshot_post(worker, request, run.shard, &op);
}

/* The next run: chunks of one server that the rest of the range touches. */
static void run_begin(struct worker_request *request)
{
	struct ramps_table *table = request->table;
	uint64_t size = table->core.chunk_elements;
	uint64_t end = request->op.first_row * table->core.dim + request->values;
	struct snapshot_run run;
	uint64_t part_end, chunks;

	request->run_first = request->op.first_row * table->core.dim + request->cursor;
	run = run_of(request);
	part_end = run.part->first + run.part->elements;
	if (end > part_end)
		end = part_end;
	chunks = (end - run.part->first + size - 1) / size - run.chunk;
	request->run_chunks = (uint32_t)(chunks < WORKER_RUN ? chunks : WORKER_RUN);
	request->dirty = request->run_chunks == 64 ? UINT64_MAX : (1ull << request->run_chunks) - 1;
	request->round = 0;
	request->state = SNAPSHOT_VERSIONS;
}

/*
 * Values of chunk i of the run that the request wants: [*first, returned), as elements of the
 * table.
 */
static uint64_t chunk_range(struct worker_request *request, const struct snapshot_run *run,
			    uint32_t i, uint64_t *first)
{
	struct ramps_table *table = request->table;
	uint64_t begin = run->part->first + (run->chunk + i) * table->core.chunk_elements;
	uint64_t end = begin + table->core.chunk_elements;
	uint64_t part_end = run->part->first + run->part->elements;
	uint64_t wanted_end = request->op.first_row * table->core.dim + request->values;

	*first = begin > request->run_first ? begin : request->run_first;
	if (end > part_end)
		end = part_end;
	return end < wanted_end ? end : wanted_end;
}

/* Reads the chunks that are not had, neighbours together. */
static int post_data(struct ramps_worker *worker, struct worker_request *request)
{
	struct snapshot_run run = run_of(request);
	uint64_t origin = request->op.first_row * request->table->core.dim;
	struct worker_link *link = worker_link(worker, run.shard);
	uint64_t most = link->ep->limits.max_transfer_bytes / sizeof(float);
	struct fabric_op ops[WORKER_RUN];
	uint32_t n = 0;
	int ret;

	for (uint32_t i = 0; i < request->run_chunks; i++) {
		uint64_t first, end, ignored;

		if (!(request->dirty >> i & 1))
			continue;
		end = chunk_range(request, &run, i, &first);
		while (i + 1 < request->run_chunks && (request->dirty >> (i + 1) & 1) &&
		       end - first + request->table->core.chunk_elements <= most)
			end = chunk_range(request, &run, ++i, &ignored);
		ops[n++] = (struct fabric_op){
			.opcode = FABRIC_READ,
			.region = CORE_PUBLISHED,
			.offset = run.part->data_offset + (first - run.part->first) * sizeof(float),
			.local = (float *)request->op.data + (first - origin),
			.len_bytes = (end - first) * sizeof(float),
		};
	}
	ret = fabric_post(link->ep, ops, n, &request->completion);
	request->wait.shard = run.shard;
	if (ret == -EAGAIN)
		return worker_await(request, run.shard);
	return ret == -ENOTCONN ? worker_lost(worker, run.shard) : ret;
}

/* Which chunks are had; moves on to the next run when all are. */
static int snapshot_check(struct ramps_worker *worker, struct worker_request *request)
{
	struct snapshot_run run = run_of(request);
	uint64_t end, ignored;

	for (uint32_t i = 0; i < request->run_chunks; i++) {
		if (!(request->dirty >> i & 1) || (worker->before[i].version & 1) ||
		    worker->before[i].version != worker->after[i].version ||
		    worker->before[i].steps != worker->after[i].steps)
			continue;
		request->dirty &= ~(1ull << i);
		if (worker->before[i].steps < request->steps)
			request->steps = worker->before[i].steps;
	}
	if (!request->dirty) {
		end = chunk_range(request, &run, request->run_chunks - 1, &ignored);
		request->cursor = end - request->op.first_row * request->table->core.dim;
		request->state = SNAPSHOT_BEGIN;
		return 0;
	}
	if (++request->round == ROUNDS)
		return base_fail(-EAGAIN, "no snapshot of table %s in %u reads: it changes all the time",
				 request->table->name, ROUNDS);
	request->state = SNAPSHOT_VERSIONS;
	return 0;
}

/* A chunk that was odd gets a moment to be done. */
static int await_even(struct ramps_worker *worker, struct worker_request *request)
{
	struct snapshot_run run = run_of(request);
	struct worker_link *link = worker_link(worker, run.shard);

	for (uint32_t i = 0; i < request->run_chunks; i++) {
		uint64_t value, offset = run.part->chunks_offset +
					 (run.chunk + i) * sizeof(struct core_chunk);
		int ret;

		if (!(request->dirty >> i & 1) || !(worker->before[i].version & 1))
			continue;
		ret = fabric_wait_word(link->ep, CORE_PUBLISHED, offset, worker->before[i].version,
				       &value, fabric_now(worker->fabric) + ODD_WAIT_NS);
		if (ret == -ENOTCONN)
			return worker_lost(worker, run.shard);
		request->state = SNAPSHOT_VERSIONS;
		if (++request->round == ROUNDS)
			return base_fail(-EAGAIN,
					 "table %s: a chunk is in change for long, "
					 "is its server alive?",
					 request->table->name);
		break;
	}
	return 0;
}

static int snapshot_step(struct ramps_worker *worker, struct worker_request *request)
{
	int ret = 0;

	switch (request->state) {
	case SNAPSHOT_BEGIN:
		run_begin(request);
		return 0;
	case SNAPSHOT_VERSIONS:
		ret = post_versions(worker, request, worker->before);
		break;
	case SNAPSHOT_DATA:
		ret = await_even(worker, request);
		if (ret || request->state != SNAPSHOT_DATA)
			return ret;
		ret = post_data(worker, request);
		break;
	case SNAPSHOT_CHECK:
		ret = post_versions(worker, request, worker->after);
		break;
	default:
		return snapshot_check(worker, request);
	}
	if (!ret)
		request->state++;
	return ret;
}

int worker_snapshot(struct ramps_worker *worker, struct worker_request *request)
{
	if (worker->bounce_owner && worker->bounce_owner != request) {
		request->wait = worker->bounce_owner->wait;
		return WORKER_AGAIN;
	}
	worker->bounce_owner = request;
	if (!request->checked)
		request->steps = UINT64_MAX;
	request->checked = true;
	while (request->cursor < request->values || request->state != SNAPSHOT_BEGIN) {
		int ret;

		if (worker_pending(&request->completion))
			return worker_await(request, request->wait.shard);
		if (request->completion.status)
			break;
		ret = snapshot_step(worker, request);
		if (ret)
			return ret;
	}
	worker->bounce_owner = NULL;
	return 0;
}

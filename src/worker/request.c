/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests: every pull and push, blocking or submitted, is a request that is moved on until it
 * says what it waits for. queue.c does the moving and waiting.
 *
 * A blocking push that fails (a timeout, an interrupt, a server lost) after some of it has landed
 * leaves a note on its table: what it was (a fingerprint of kind and rows) and how far it came. The same
 * push again goes on from there, so that a caller who just repeats the call counts every value
 * exactly once.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "worker/worker_private.h"

const struct ramps_transfer worker_transfer_defaults = { .weight = 1.0f, .rate = -1.0f };

static bool is_rows(const struct worker_request *request)
{
	return request->op.kind == RAMPS_PULL_ROWS || request->op.kind == RAMPS_PUSH_ROWS;
}

/* FNV-1a; never 0, which stands for no push. */
static uint64_t push_fingerprint(const struct ramps_op *op)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	uint64_t head[3] = { op->kind, op->first_row, op->rows };

	for (uint32_t i = 0; i < 3; i++)
		hash = (hash ^ head[i]) * 0x100000001b3ull;
	if (op->kind == RAMPS_PUSH_ROWS)
		for (uint64_t i = 0; i < op->rows; i++)
			hash = (hash ^ op->row_ids[i]) * 0x100000001b3ull;
	return hash | 1;
}

static int rows_check(const struct ramps_table *table, const struct ramps_op *op)
{
	uint64_t rows = table->core.rows;

	if (op->kind == RAMPS_PULL || op->kind == RAMPS_PUSH) {
		if (op->first_row > rows || op->rows > rows - op->first_row)
			return base_fail(-ERANGE, "rows %llu to %llu of table %s, which has %llu",
					 (unsigned long long)op->first_row,
					 (unsigned long long)(op->first_row + op->rows),
					 table->name, (unsigned long long)rows);
		return 0;
	}
	if (op->rows && !op->row_ids)
		return base_fail(-EINVAL, "no rows given for table %s", table->name);
	if (table->core.mode != RAMPS_DIRECT)
		return base_fail(-EOPNOTSUPP, "table %s is in slots mode: pull or push a range of rows",
				 table->name);
	for (uint64_t i = 0; i < op->rows; i++)
		if (op->row_ids[i] >= rows)
			return base_fail(-ERANGE, "row %llu of table %s, which has %llu",
					 (unsigned long long)op->row_ids[i], table->name,
					 (unsigned long long)rows);
	return 0;
}

static int transfer_check(const struct ramps_table *table, const struct worker_request *request)
{
	const struct ramps_transfer *transfer = &request->op.transfer;

	if (!transfer->size)
		return 0;
	if (transfer->level > RAMPS_APPLIED || transfer->read > RAMPS_SNAPSHOT)
		return base_fail(-EINVAL,
				 "transfer level %u or read %u is not known: begin with "
				 "RAMPS_TRANSFER_INIT",
				 transfer->level, transfer->read);
	if (table->core.mode != RAMPS_SLOTS) {
		if (!worker_is_push(request) && transfer->read == RAMPS_SNAPSHOT)
			return base_fail(-EOPNOTSUPP, "table %s is direct: it has no snapshots",
					 table->name);
		return 0;
	}
	if (worker_is_push(request) &&
	    (!(transfer->weight >= 0) || isinf(transfer->weight) || isinf(transfer->rate)))
		return base_fail(-EINVAL,
				 "weight %g must be at least 0 and rate %g, both finite: begin with "
				 "RAMPS_TRANSFER_INIT",
				 (double)transfer->weight, (double)transfer->rate);
	return 0;
}

/* Positions that must be consumed; what an earlier try had landed lies below the tails. */
static void targets_begin(struct worker_member *member, struct worker_request *request)
{
	for (uint32_t shard = 0; shard < member->shards; shard++)
		request->target[shard] = request->cursor ? member->rings[shard].tail : 0;
}

/* Goes on where the same push failed before, if that was the last push to its table. */
static void request_resume(struct worker_request *request)
{
	struct ramps_table *table = request->table;

	if (push_fingerprint(&request->op) == table->resume_fingerprint) {
		request->cursor = table->resume_cursor;
		request->done_mask = table->resume_mask;
	}
	table->resume_fingerprint = 0;
}

/* What a request has come to, begun anew. A memset() of it all takes longer than a small pull. */
void worker_request_reset(struct worker_request *request)
{
	request->completion = (struct fabric_completion){ 0 };
	request->wait.shard = 0;
	request->cursor = 0;
	request->done_mask = 0;
	request->cell_mask = 0;
	request->in_doubt = 0;
	request->unknown = 0;
	request->steps = 0;
	request->round = 0;
	request->state = 0;
	request->status = 0;
	request->checked = false;
	request->posted = false;
	request->complete = false;
}

/* Begins the operation in request->op. */
int worker_request_begin(struct worker_request *request, struct ramps_table *table)
{
	const struct ramps_op *op = &request->op;
	int ret;

	worker_request_reset(request);
	request->table = table;
	if (op->kind < RAMPS_PULL || op->kind > RAMPS_PUSH_ROWS)
		return base_fail(-EINVAL, "operation %u is not known", op->kind);
	if (op->rows && !op->data)
		return base_fail(-EINVAL, "no memory given for table %s", table->name);
	if (is_rows(request) && op->rows > UINT64_MAX / 8 / table->core.dim)
		return base_fail(-EOVERFLOW, "%llu rows at once", (unsigned long long)op->rows);
	ret = rows_check(table, op);
	if (!ret)
		ret = transfer_check(table, request);
	if (ret)
		return ret;
	request->values = op->rows * table->core.dim;
	if (!worker_is_push(request))
		return 0;
	if (__builtin_expect(table->resume_fingerprint != 0, 0))
		request_resume(request);
	if (table->core.mode == RAMPS_SLOTS)
		targets_begin(table->child.worker->member, request);
	return 0;
}

/* Leaves the note by which the same push goes on. */
static void leave_note(struct worker_request *request)
{
	struct ramps_table *table = request->table;

	if (!worker_is_push(request) || !(request->cursor || request->done_mask))
		return;
	table->resume_fingerprint = push_fingerprint(&request->op);
	table->resume_cursor = request->cursor;
	table->resume_mask = request->done_mask;
}

static bool is_direct_push(const struct worker_request *request)
{
	return worker_is_push(request) && request->table->core.mode == RAMPS_DIRECT;
}

static int fail_in_doubt(const struct worker_request *request)
{
	return base_fail(-EIO, "the connection broke: %llu additions may or may not have landed",
			 (unsigned long long)request->unknown);
}

/* A list of the request failed, and nothing of it is pending any more. */
static int request_broke(struct ramps_worker *worker, struct worker_request *request)
{
	worker_find_lost(worker);
	if (!is_direct_push(request))
		return -ENOTCONN; /* cells are posted again: until then the status stands */
	request->unknown += request->in_doubt;
	request->in_doubt = 0;
	request->completion.status = 0;
	/* a submitted push goes on with what it has not yet posted, and ends with the error */
	if (request != worker->blocking && request->cursor < request->values)
		return -ENOTCONN;
	return fail_in_doubt(request);
}

static int cells_give_up(struct ramps_worker *worker, struct worker_request *request, int ret)
{
	if (request->op.transfer.level == RAMPS_POSTED)
		return ret; /* the memory is not the caller's before a flush */
	if (!request->completion.status)
		worker_flights_landed(worker, request);
	else if (worker_flights_keep(worker, request))
		return base_fail(-ENOMEM, "no memory to keep a push to table %s that may be lost",
				 request->table->name);
	return ret;
}

/*
 * The request ends with the error `ret`, and its memory is the caller's again: nothing of it may be
 * under way. Returns the error to report.
 */
int worker_request_give_up(struct ramps_worker *worker, struct worker_request *request, int ret)
{
	worker_drain(worker, &request->completion, WORKER_DRAIN_NS);
	if (request->completion.status && request_broke(worker, request) == -EIO)
		ret = -EIO;
	if (worker_is_push(request) && !is_direct_push(request))
		ret = cells_give_up(worker, request, ret);
	if (request == worker->blocking)
		leave_note(request);
	if (worker->bounce_owner == request)
		worker->bounce_owner = NULL;
	return ret;
}

int worker_await(struct worker_request *request, uint32_t shard)
{
	request->wait = (struct worker_wait){ .shard = shard, .region = WORKER_FOR_COMPLETION };
	return WORKER_AGAIN;
}

static int request_move(struct ramps_worker *worker, struct worker_request *request)
{
	switch (request->op.kind) {
	case RAMPS_PULL:
		if (request->op.transfer.read == RAMPS_SNAPSHOT)
			return worker_snapshot(worker, request);
		return worker_pull(worker, request);
	case RAMPS_PULL_ROWS:
		return worker_pull_rows(worker, request);
	default:
		if (request->table->core.mode == RAMPS_DIRECT)
			return worker_push_direct(worker, request);
		return worker_push_slots(worker, request);
	}
}

/* The request has nothing more to hand over: waits for what it asked for. */
static int request_settle(struct ramps_worker *worker, struct worker_request *request)
{
	if (worker_pending(&request->completion))
		return worker_await(request, request->wait.shard);
	if (request->completion.status)
		return request_broke(worker, request);
	if (__builtin_expect(request->unknown != 0, 0))
		return fail_in_doubt(request);
	if (worker_is_push(request) && !is_direct_push(request))
		return worker_push_slots_settle(worker, request);
	return 0;
}

int worker_request_progress(struct ramps_worker *worker, struct worker_request *request)
{
	int ret = 0;

	if (__builtin_expect(request->completion.status, 0))
		return request_settle(worker, request);
	if (!request->posted)
		ret = request_move(worker, request);
	if (!ret) {
		request->posted = true;
		ret = request_settle(worker, request);
	}
	return ret;
}

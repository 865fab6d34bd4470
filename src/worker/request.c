/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests: every pull and push, blocking or submitted, is a request that is moved on until it
 * says what it waits for. A blocking call moves one request and waits; submitted ones are moved
 * on by submit and reap.
 *
 * Pushes are handed over in the order submitted: one that waits for room holds back those behind
 * it, so that pushes to one chunk apply in order. Pulls overtake.
 *
 * A push that fails (a timeout, an interrupt, a server lost) after some of it has landed leaves a
 * note on its table: what it was (a fingerprint of kind and rows) and how far it came. The same
 * push again goes on from there, so that a caller who just repeats the call counts every value
 * exactly once.
 *
 * What was submitted outlives a lost server: it stays under way and goes on once the server is
 * there again, pushes from where they were. One note a table would not do for several of them.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "worker/worker_private.h"

const struct ramps_transfer worker_transfer_defaults = { .weight = 1.0f, .rate = -1.0f };

static bool is_push(const struct worker_request *request)
{
	return request->op.kind == RAMPS_PUSH || request->op.kind == RAMPS_PUSH_ROWS;
}

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
		if (!is_push(request) && transfer->read == RAMPS_SNAPSHOT)
			return base_fail(-EOPNOTSUPP, "table %s is direct: it has no snapshots",
					 table->name);
		return 0;
	}
	if (is_push(request) &&
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
static void request_reset(struct worker_request *request)
{
	request->completion = (struct fabric_completion){ 0 };
	request->wait.shard = 0;
	request->cursor = 0;
	request->done_mask = 0;
	request->in_doubt = 0;
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

	request_reset(request);
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
	if (!is_push(request))
		return 0;
	if (__builtin_expect(table->resume_fingerprint != 0, 0))
		request_resume(request);
	if (op->transfer.level == RAMPS_APPLIED && table->core.mode == RAMPS_SLOTS)
		targets_begin(table->child.worker->member, request);
	return 0;
}

/* Leaves the note by which the same push goes on. */
static void request_failed(struct worker_request *request)
{
	struct ramps_table *table = request->table;

	if (!is_push(request) || !(request->cursor || request->done_mask))
		return;
	table->resume_fingerprint = push_fingerprint(&request->op);
	table->resume_cursor = request->cursor;
	table->resume_mask = request->done_mask;
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
	if (request->completion.status) {
		if (is_push(request) && request->table->core.mode == RAMPS_DIRECT) {
			worker_lost(worker, request->wait.shard);
			base_fail(-EIO, "the connection broke: %llu additions may or may not have landed",
				  (unsigned long long)request->in_doubt);
			return -EIO;
		}
		return worker_lost(worker, request->wait.shard);
	}
	if (is_push(request) && request->table->core.mode == RAMPS_SLOTS)
		return worker_push_slots_settle(worker, request);
	return 0;
}

static int request_progress(struct ramps_worker *worker, struct worker_request *request)
{
	int ret = 0;

	if (!request->posted)
		ret = request_move(worker, request);
	if (!ret) {
		request->posted = true;
		ret = request_settle(worker, request);
	}
	return ret;
}

/* Keeps a submitted request whose server was lost. False: it has failed. */
static bool request_park(struct ramps_worker *worker, struct worker_request *request, int ret)
{
	if (ret != -ENOTCONN || worker_pending(&request->completion) || request->completion.status)
		return false;
	if (worker->bounce_owner == request)
		worker->bounce_owner = NULL;
	if (!is_push(request))
		request_reset(request);
	return true;
}

static int queue_lost(struct ramps_worker *worker)
{
	uint32_t shard = 0;

	while (!worker_link(worker, shard)->broken && shard + 1 < worker->member->shards)
		shard++;
	return worker_lost(worker, shard);
}

/*
 * Moves on all that were submitted. Returns how many are not complete; *wait is the first one's
 * reason.
 */
static uint32_t queue_progress(struct ramps_worker *worker, struct worker_wait *wait)
{
	bool push_held = false;
	uint32_t open = 0;

	for (struct worker_request *request = worker->first; request; request = request->next) {
		int ret;

		if (request->complete)
			continue;
		if (((request->op.flags & RAMPS_OP_FOLLOW) && open) ||
		    (push_held && is_push(request) && !request->posted)) {
			open++;
			push_held |= is_push(request);
			continue;
		}
		ret = request_progress(worker, request);
		if (ret == WORKER_AGAIN || request_park(worker, request, ret)) {
			if (!open++)
				*wait = request->wait;
			push_held |= is_push(request) && !request->posted;
			continue;
		}
		if (ret)
			request_failed(request);
		request->status = ret;
		request->complete = true;
		if (worker->bounce_owner == request)
			worker->bounce_owner = NULL;
	}
	return open;
}

/* Whether a submitted request must move before a blocking one may. */
static bool queue_is_ahead(struct ramps_worker *worker, const struct worker_request *request)
{
	for (struct worker_request *other = worker->first; other; other = other->next) {
		if (other->complete)
			continue;
		if (worker->bounce_owner == other ||
		    (is_push(other) && is_push(request) && !other->posted))
			return true;
	}
	return false;
}

int worker_request_run(struct ramps_worker *worker, struct worker_request *request, int timeout_ms)
{
	uint64_t deadline_ns = 0;
	bool timed = false;
	int ret;

	for (;;) {
		struct worker_wait *wait = &request->wait;

		if (__builtin_expect(worker->first != NULL, 0)) {
			struct worker_wait other;
			uint32_t open = queue_progress(worker, &other);

			ret = WORKER_AGAIN;
			if (!open || !queue_is_ahead(worker, request))
				ret = request_progress(worker, request);
			else if (worker->any_broken)
				ret = queue_lost(worker);
			else
				wait = &other;
			request->wait = *wait;
		} else {
			ret = request_progress(worker, request);
		}
		if (ret != WORKER_AGAIN)
			break;
		if (!timed)
			deadline_ns = worker_deadline(worker, timeout_ms);
		timed = true;
		ret = worker_wait(worker, &request->wait, deadline_ns);
		if (ret)
			break;
	}
	if (ret)
		request_failed(request);
	if (worker->bounce_owner == request)
		worker->bounce_owner = NULL;
	return ret;
}

/* It is reaped like any other. */
static int request_refuse(struct worker_request *request, const struct ramps_op *op, const char *why)
{
	request_reset(request);
	request->op = *op;
	return base_fail(-EINVAL, "an operation has a wrong %s", why);
}

static int request_submit(struct worker_request *request, const struct ramps_op *op)
{
	request->op = *op;
	if (!op->transfer.size)
		request->op.transfer = worker_transfer_defaults;
	return worker_request_begin(request, op->table);
}

int worker_submit(struct ramps_worker *worker, const struct ramps_op *ops, size_t n)
{
	struct worker_wait wait;
	size_t taken = 0;

	while (taken < n && worker->free) {
		const struct ramps_op *op = &ops[taken];
		struct worker_request *request = worker->free;
		int ret;

		worker->free = request->next;
		if (!op->table || op->table->child.worker != worker)
			ret = request_refuse(request, op, "table: it names none of this worker");
		else if (op->flags & ~RAMPS_OP_FOLLOW)
			ret = request_refuse(request, op, "flags: there is only RAMPS_OP_FOLLOW");
		else
			ret = request_submit(request, op);
		request->next = NULL;
		request->status = ret;
		request->complete = ret != 0;
		*worker->last = request;
		worker->last = &request->next;
		taken++;
	}
	queue_progress(worker, &wait);
	if (n && !taken)
		return base_fail(-EAGAIN, "%u operations are under way: reap some", RAMPS_SUBMIT_MAX);
	return (int)taken;
}

static size_t queue_collect(struct ramps_worker *worker, struct ramps_done *done, size_t n)
{
	struct worker_request **at = &worker->first;
	size_t taken = 0;

	while (*at && taken < n) {
		struct worker_request *request = *at;

		if (!request->complete) {
			at = &request->next;
			continue;
		}
		done[taken++] = (struct ramps_done){
			.tag = request->op.tag,
			.status = request->status,
			.steps = request->steps,
			.unknown_ops = request->status == -EIO ? request->in_doubt : 0,
		};
		*at = request->next;
		if (!*at)
			worker->last = at;
		request->next = worker->free;
		worker->free = request;
	}
	return taken;
}

int worker_reap(struct ramps_worker *worker, struct ramps_done *done, size_t n, int timeout_ms)
{
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);

	if (n > INT32_MAX)
		n = INT32_MAX;
	for (;;) {
		struct worker_wait wait;
		uint32_t open = queue_progress(worker, &wait);
		size_t taken = queue_collect(worker, done, n);
		uint64_t now, until;
		int ret;

		if (taken || !open || !n)
			return (int)taken;
		if (worker->any_broken)
			return queue_lost(worker);
		now = fabric_now(worker->fabric);
		until = open > 1 && now + NS_PER_MS < deadline_ns ? now + NS_PER_MS : deadline_ns;
		ret = worker_wait(worker, &wait, until);
		if (ret && !(ret == -ETIMEDOUT && until < deadline_ns))
			return ret;
	}
}

/* Ends what was submitted to a table that is being closed. */
void worker_requests_fail(struct ramps_worker *worker, struct ramps_table *table)
{
	for (struct worker_request *request = worker->first; request; request = request->next) {
		if (request->table != table || request->complete)
			continue;
		while (worker_pending(&request->completion))
			fabric_poll(worker_link(worker, request->wait.shard)->ep,
				    fabric_now(worker->fabric) + SYNC_SLICE_NS);
		request->status = base_fail(-ENOTCONN, "table %s was closed", table->name);
		request->complete = true;
		if (worker->bounce_owner == request)
			worker->bounce_owner = NULL;
	}
}

static int flush_posted(struct ramps_worker *worker, uint64_t deadline_ns)
{
	struct worker_wait wait = { .region = WORKER_FOR_COMPLETION };
	int ret = 0;

	while (!ret && queue_progress(worker, &wait))
		ret = worker->any_broken ? queue_lost(worker) : worker_wait(worker, &wait, deadline_ns);
	while (!ret && worker_pending(&worker->posted)) {
		wait = (struct worker_wait){ .region = WORKER_FOR_COMPLETION };
		for (wait.shard = 0; wait.shard < worker->member->shards; wait.shard++)
			fabric_poll(worker_link(worker, wait.shard)->ep, 0);
		wait.shard = 0;
		if (worker_pending(&worker->posted))
			ret = worker_wait(worker, &wait, deadline_ns);
	}
	return ret;
}

int worker_flush(struct ramps_worker *worker, uint32_t level, int timeout_ms)
{
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);
	struct worker_member *member = worker->member;
	int ret;

	if (level > RAMPS_APPLIED)
		return base_fail(-EINVAL, "level %u is not known", level);
	if (level == RAMPS_POSTED)
		return 0;
	ret = flush_posted(worker, deadline_ns);
	if (!ret)
		ret = worker_land(worker);
	for (uint32_t shard = 0; shard < member->shards && !ret && level == RAMPS_APPLIED; shard++) {
		bool locked = worker_lock(member);
		uint64_t tail = member->rings[shard].tail;
		struct worker_wait wait;

		worker_unlock(member, locked);
		while ((ret = worker_ring_consumed(worker, shard, tail, &wait)) == WORKER_AGAIN) {
			ret = worker_wait(worker, &wait, deadline_ns);
			if (ret)
				break;
		}
	}
	return ret;
}

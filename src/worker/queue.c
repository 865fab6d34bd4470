/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moving requests on. A blocking call moves one request and waits; submitted ones are moved on by
 * submit, reap, flush, and by blocking calls that come between.
 *
 * Pushes are handed over in the order submitted: one that waits for room holds back those behind
 * it, so that pushes to one chunk apply in order. Pulls overtake.
 *
 * What was submitted outlives a lost server: it stays under way and goes on once the server is
 * there again, pushes from where they were. The one note that a table has for a failed push would
 * not do for several of them.
 */
#include <errno.h>

#include "worker/worker_private.h"

/* Keeps a submitted request whose server was lost. False: it has failed. */
static bool request_park(struct ramps_worker *worker, struct worker_request *request, int ret)
{
	if (ret != -ENOTCONN || worker_pending(&request->completion) || request->completion.status)
		return false;
	if (worker->bounce_owner == request)
		worker->bounce_owner = NULL;
	if (!worker_is_push(request))
		worker_request_reset(request);
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
		    (push_held && worker_is_push(request) && !request->posted)) {
			open++;
			push_held |= worker_is_push(request);
			continue;
		}
		ret = worker_request_progress(worker, request);
		if (ret == WORKER_AGAIN || request_park(worker, request, ret)) {
			if (!open++)
				*wait = request->wait;
			push_held |= worker_is_push(request) && !request->posted;
			continue;
		}
		if (ret)
			worker_request_failed(request);
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
		    (worker_is_push(other) && worker_is_push(request) && !other->posted))
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
				ret = worker_request_progress(worker, request);
			else if (worker->any_broken)
				ret = queue_lost(worker);
			else
				wait = &other;
			request->wait = *wait;
		} else {
			ret = worker_request_progress(worker, request);
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
		worker_request_failed(request);
	if (worker->bounce_owner == request)
		worker->bounce_owner = NULL;
	return ret;
}

/* It is reaped like any other. */
static int request_refuse(struct worker_request *request, const struct ramps_op *op, const char *why)
{
	worker_request_reset(request);
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

int worker_flush_until(struct ramps_worker *worker, uint32_t level, uint64_t deadline_ns)
{
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

int worker_flush(struct ramps_worker *worker, uint32_t level, int timeout_ms)
{
	return worker_flush_until(worker, level, worker_deadline(worker, timeout_ms));
}

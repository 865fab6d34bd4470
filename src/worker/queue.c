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
	if (ret != -ENOTCONN)
		return false;
	if (worker_pending(&request->completion)) {
		worker_await(request, request->wait.shard);
		return true;
	}
	if (worker_is_push(request))
		return request->table->core.mode == RAMPS_SLOTS || !request->completion.status;
	if (worker->bounce_owner == request)
		worker->bounce_owner = NULL;
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
		request->status = ret ? worker_request_give_up(worker, request, ret) : 0;
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

/* At the deadline, with lists under way that take but a moment. */
static int finish_late(struct ramps_worker *worker, struct worker_request *request)
{
	int ret;

	worker_drain(worker, &request->completion, WORKER_DRAIN_NS);
	ret = worker_request_progress(worker, request);
	return ret == WORKER_AGAIN ? -ETIMEDOUT : ret;
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
	if (ret == -ETIMEDOUT && worker_pending(&request->completion))
		ret = finish_late(worker, request);
	return ret ? worker_request_give_up(worker, request, ret) : 0;
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
			.unknown_ops = request->status == -EIO ? request->unknown : 0,
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
		request->status = worker_request_give_up(worker, request, -ENOTCONN);
		base_fail(request->status, "table %s was closed", table->name);
		request->complete = true;
	}
}

/* Cells of slots are posted again when the server is there again; additions are not. */
static int posted_lost(struct ramps_worker *worker)
{
	uint64_t in_doubt = worker->posted_in_doubt;

	worker_find_lost(worker);
	if (!in_doubt)
		return -ENOTCONN;
	worker->posted_in_doubt = 0;
	base_fail(-EIO, "the connection broke: %llu additions may or may not have landed",
		  (unsigned long long)in_doubt);
	base_error_unknown(in_doubt);
	return -EIO;
}

static int flush_posted(struct ramps_worker *worker, uint64_t deadline_ns)
{
	struct worker_wait wait = { .region = WORKER_FOR_COMPLETION };
	int ret = 0;

	while (!ret && queue_progress(worker, &wait))
		ret = worker->any_broken ? queue_lost(worker) : worker_wait(worker, &wait, deadline_ns);
	while (!ret && worker_pending(&worker->posted)) {
		wait = (struct worker_wait){ .region = WORKER_FOR_COMPLETION };
		ret = worker_wait(worker, &wait, deadline_ns);
	}
	if (ret)
		return ret;
	if (worker->posted.status)
		return posted_lost(worker);
	if (worker->any_broken)
		return queue_lost(worker);
	worker->posted_in_doubt = 0;
	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		worker_flights_all_landed(worker, shard);
		worker_wake_server(worker, shard);
	}
	return 0;
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

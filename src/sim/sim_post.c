/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting and polling. A list is checked whole before any of it is done, and what it says is copied:
 * the caller's arrays are its own again. Local memory is not copied but poisoned where a READ or
 * an atomic will put its result, and a WRITE's source is read at once, or only when it lands: both are
 * allowed, and a caller who relies on one of them is found out.
 *
 * What has completed is handed over by poll alone, as over a network.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim/sim_private.h"

#define POISON 0xdb

static const uint8_t rights_of[FABRIC_FETCH_ADD_LIST + 1] = {
	[FABRIC_READ] = FABRIC_MAY_READ,        [FABRIC_WRITE] = FABRIC_MAY_WRITE,
	[FABRIC_FETCH_ADD] = FABRIC_MAY_ATOMIC, [FABRIC_COMPARE_SWAP] = FABRIC_MAY_ATOMIC,
	[FABRIC_READ_LIST] = FABRIC_MAY_READ,   [FABRIC_FETCH_ADD_LIST] = FABRIC_MAY_ATOMIC,
};

const char *const sim_opcode_names[FABRIC_FETCH_ADD_LIST + 1] = {
	[0] = "operation",
	[FABRIC_READ] = "READ",
	[FABRIC_WRITE] = "WRITE",
	[FABRIC_FETCH_ADD] = "FETCH_ADD",
	[FABRIC_COMPARE_SWAP] = "COMPARE_SWAP",
	[FABRIC_READ_LIST] = "READ_LIST",
	[FABRIC_FETCH_ADD_LIST] = "FETCH_ADD_LIST",
};

__attribute__((cold, noinline)) int sim_refuse_op(const struct sim_endpoint *ep,
						  const struct fabric_op *op, int code)
{
	const char *name = sim_opcode_names[op->opcode <= FABRIC_FETCH_ADD_LIST ? op->opcode : 0];

	switch (code) {
	case -ENOTCONN:
		return base_fail(code, "the server %s is gone; connect again", ep->address);
	case -EACCES:
		return base_fail(code, "region %u of %s was not granted for %s", op->region,
				 ep->address, name);
	case -ERANGE:
		return base_fail(code, "%s at %" PRIu64 " of %" PRIu64 " bytes is beyond region %u of %s",
				 name, op->offset, op->len_bytes, op->region, ep->address);
	default:
		return base_fail(code, "%s at %" PRIu64 ": opcode %u, region %u: misaligned or invalid",
				 name, op->offset, op->opcode, op->region);
	}
}

static int admit_list(uint64_t region_bytes, const struct fabric_op *op)
{
	bool add = op->opcode == FABRIC_FETCH_ADD_LIST;
	uint64_t len_bytes = add ? sizeof(uint64_t) : op->len_bytes, max = 0, all = 0;

	for (uint32_t i = 0; i < op->count; i++) {
		all |= op->offsets[i];
		max = sim_later(op->offsets[i], max);
	}
	if (add && all % sizeof(uint64_t))
		return -EINVAL;
	if (op->count && (len_bytes > region_bytes || max > region_bytes - len_bytes))
		return -ERANGE;
	return 0;
}

/* 0, -EINVAL, -EACCES or -ERANGE. */
int sim_admit(const struct sim_endpoint *ep, const struct fabric_op *op)
{
	uint64_t len_bytes = sizeof(uint64_t), region_bytes;
	const struct sim_region *region;

	if (op->opcode > FABRIC_FETCH_ADD_LIST || !rights_of[op->opcode])
		return -EINVAL;
	if (op->region >= FABRIC_MAX_REGIONS || !(ep->known & 1u << op->region))
		return -EACCES;
	region = &ep->connection->regions[op->region];
	if (!(region->rights & rights_of[op->opcode]))
		return -EACCES;
	region_bytes = region->memory->len_bytes;
	if (op->opcode >= FABRIC_READ_LIST)
		return admit_list(region_bytes, op);
	if (op->opcode <= FABRIC_WRITE)
		len_bytes = op->len_bytes;
	else if (op->offset % sizeof(uint64_t))
		return -EINVAL;
	if (len_bytes > region_bytes || op->offset > region_bytes - len_bytes)
		return -ERANGE;
	if (op->opcode <= FABRIC_WRITE && len_bytes > ep->base.limits.max_transfer_bytes)
		return -EINVAL;
	if (op->opcode == FABRIC_WRITE && (op->flags & FABRIC_INLINE) &&
	    len_bytes > ep->base.limits.inline_bytes)
		return -EINVAL;
	return 0;
}

static int admit_all(const struct sim_endpoint *ep, const struct fabric_op *ops, uint32_t n,
		     uint32_t *total)
{
	uint32_t most = ep->base.limits.max_ops;
	uint64_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		int ret = sim_admit(ep, &ops[i]);

		if (ret)
			return sim_refuse_op(ep, &ops[i], ret);
		count += ops[i].opcode >= FABRIC_READ_LIST ? ops[i].count : 1;
	}
	if (!n || count > most)
		return base_fail(-EINVAL, "%" PRIu64 " operations in one post; 1 to %u are possible",
				 count, most);
	*total = (uint32_t)count;
	return 0;
}

static struct sim_op *new_op(struct sim_connection *c, struct sim_list *list, const struct fabric_op *from)
{
	struct sim *sim = c->sim;
	struct sim_op *op = sim_alloc_event(sim, sizeof(*op));
	bool adds = from->opcode == FABRIC_FETCH_ADD_LIST;
	size_t n = from->count;

	*op = (struct sim_op){
		.event.run = sim_arrive,
		.list = list,
		.connection = c,
		.opcode = from->opcode,
		.flags = from->flags,
		.region = from->region,
		.count = from->count,
		.limit = from->count,
		.offset = from->offset,
		.len_bytes = from->len_bytes,
		.local = from->local,
	};
	if (from->opcode < FABRIC_READ_LIST) {
		op->operand = from->operand;
		op->compare = from->compare;
		return op;
	}
	if (!n)
		return op;
	op->words = sim_alloc(sim, (adds ? 2 : 1) * n * sizeof(uint64_t));
	memcpy(op->words, from->offsets, n * sizeof(uint64_t));
	if (adds)
		memcpy(op->words + n, from->addends, n * sizeof(uint64_t));
	return op;
}

/* What the operation does to local memory at once. */
static void touch_local(struct sim *sim, struct sim_op *op)
{
	switch (op->opcode) {
	case FABRIC_WRITE:
		if ((op->flags & FABRIC_INLINE) || sim_random(sim, 2))
			sim_sample(op);
		break;
	case FABRIC_READ:
		memset(op->local, POISON, op->len_bytes);
		break;
	case FABRIC_READ_LIST:
		memset(op->local, POISON, op->count * op->len_bytes);
		break;
	case FABRIC_FETCH_ADD_LIST:
		break;
	default:
		if (op->local)
			memset(op->local, POISON, sizeof(uint64_t));
	}
}

static void trace_list(struct sim_endpoint *ep, const struct fabric_op *ops, uint32_t n)
{
	struct sim *sim = ep->process->sim;

	for (uint32_t i = 0; i < n; i++)
		sim_trace_as(sim, ep->process->name,
			     "connection %" PRIu64 ": posts %u/%u %s%s, region %u at %" PRIu64
			     ", %" PRIu64 " bytes",
			     ep->connection->id, i + 1, n, sim_opcode_names[ops[i].opcode],
			     ops[i].flags & FABRIC_FENCE ? ", fenced" : "", ops[i].region,
			     ops[i].opcode >= FABRIC_READ_LIST ? ops[i].count : ops[i].offset,
			     ops[i].opcode <= FABRIC_WRITE ? ops[i].len_bytes : 8);
}

int sim_post(struct fabric_endpoint *base, const struct fabric_op *ops, uint32_t n,
	     struct fabric_completion *completion)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c = ep->connection;
	struct sim *sim = c->sim;
	struct sim_process *process = ep->process;
	struct sim_list *list;
	uint32_t count = 0;
	int ret;

	if (sim_unlikely(ep->is_broken))
		return sim_refuse_op(ep, ops, -ENOTCONN);
	ret = admit_all(ep, ops, n, &count);
	if (sim_unlikely(ret))
		return ret;
	if (c->queued_lists &&
	    (c->queued_lists >= c->max_lists || c->queued_ops + count > 2 * base->limits.max_ops))
		return base_fail(-EAGAIN, "the queue to %s is full", ep->address);
	if (sim_traces(sim))
		trace_list(ep, ops, n);
	process->busy_until = sim_time_of(process) + sim->options.costs.post_ns;
	list = sim_alloc(sim, sizeof(*list));
	*list = (struct sim_list){ .completion = completion, .left = n, .count = count };
	for (uint32_t i = 0; i < n; i++) {
		struct sim_op *op = new_op(c, list, &ops[i]);

		op->issued_ns = process->busy_until;
		op->number = ++c->numbers;
		touch_local(sim, op);
		TAILQ_INSERT_TAIL(&c->ops, op, link);
		if (!c->unissued)
			c->unissued = op;
	}
	TAILQ_INSERT_TAIL(&c->lists, list, link);
	c->queued_lists++;
	c->queued_ops += count;
	base->outstanding++;
	completion->pending++;
	sim->stats.lists++;
	sim->stats.operations += count;
	sim_issue(c);
	if (sim->has_faults && !ep->is_loopback)
		sim_posted(c);
	return 0;
}

bool sim_deliver(struct sim_endpoint *ep)
{
	struct sim_connection *c = ep->connection;
	struct sim_list *list = TAILQ_FIRST(&c->done);

	if (!list)
		return false;
	TAILQ_REMOVE(&c->done, list, link);
	list->completion->pending--;
	if (list->status && !list->completion->status)
		list->completion->status = list->status;
	ep->base.outstanding--;
	c->queued_lists--;
	c->queued_ops -= list->count;
	sim_free(c->sim, list, sizeof(*list));
	return true;
}

int sim_poll(struct fabric_endpoint *base, uint64_t deadline_ns)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c = ep->connection;
	struct sim *sim = c->sim;
	bool has_looked = false, any = false;

	for (;;) {
		while (sim_deliver(ep))
			any = true;
		if (any)
			return 0;
		if (!c->queued_lists && ep->is_broken)
			return base_fail(-ENOTCONN, "%s is gone; connect again", base->address);
		if (sim->now >= deadline_ns || !c->queued_lists) {
			if (has_looked)
				return 0;
			deadline_ns = sim->now + SIM_POLL_NS;
		}
		has_looked = true;
		sim_block(ep->process, ep, deadline_ns);
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "sync/memory_fabric.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

static struct memory_endpoint *memory_of(struct fabric_endpoint *ep)
{
	return (struct memory_endpoint *)ep;
}

static uint64_t memory_now(struct fabric *fabric)
{
	(void)fabric;
	return base_now_ns();
}

/* Counts one operation down. Whether it may still be done. */
static bool count_down(struct memory_endpoint *m)
{
	if (m->kill_after != MEMORY_NEVER && m->kill_after-- == 0)
		raise(SIGKILL);
	if (m->break_after != MEMORY_NEVER && m->break_after-- == 0)
		m->broken = true;
	return !m->broken;
}

static void do_read(const uint64_t *word, uint64_t *local, uint64_t len_bytes)
{
	for (uint64_t i = 0; i < len_bytes / 8; i++)
		local[i] = __atomic_load_n(word + i, __ATOMIC_ACQUIRE);
}

static void do_op(struct memory_endpoint *m, const struct fabric_op *op)
{
	uint64_t *word = (uint64_t *)(m->region[op->region] + op->offset);
	uint64_t old = op->compare;

	switch (op->opcode) {
	case FABRIC_READ:
		do_read(word, op->local, op->len_bytes);
		return;
	case FABRIC_FETCH_ADD:
		old = __atomic_fetch_add(word, op->operand, __ATOMIC_SEQ_CST);
		break;
	case FABRIC_COMPARE_SWAP:
		__atomic_compare_exchange_n(word, &old, op->operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		break;
	default:
		return;
	}
	if (op->local)
		*(uint64_t *)op->local = old;
}

/* Does the lists held, and takes them back; a break in the middle fails them all. */
static void complete(struct memory_endpoint *m)
{
	for (uint32_t i = 0; i < m->held_count; i++) {
		struct memory_list *list = &m->held[i];

		for (uint32_t k = 0; k < list->n && !list->done; k++) {
			if (!count_down(m))
				break;
			m->ops++;
			do_op(m, &list->ops[k]);
		}
		/* The break that comes after the last operation loses nothing but the completion. */
		if (!list->done && m->break_after == 0 && !m->broken) {
			m->break_after = MEMORY_NEVER;
			m->broken = true;
		}
		list->done = true;
		if (m->broken && !list->completion->status)
			list->completion->status = base_fail(-ENOTCONN, "memory: broken by the test");
		list->completion->pending--;
	}
	m->held_count = 0;
}

static int memory_post(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
		       struct fabric_completion *completion)
{
	struct memory_endpoint *m = memory_of(ep);
	struct memory_list *list = &m->held[m->held_count];

	if (m->broken)
		return base_fail(-ENOTCONN, "memory: broken by the test");
	if (m->held_count == sizeof(m->held) / sizeof(m->held[0]))
		return -EAGAIN;
	if (!n || n > ep->limits.max_ops)
		return base_fail(-EINVAL, "memory: %u operations", n);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t len = ops[i].opcode == FABRIC_READ ? ops[i].len_bytes : 8;

		if (ops[i].offset % 8 || ops[i].offset + len > m->len_bytes[ops[i].region])
			return base_fail(-ERANGE, "memory: beyond the region");
	}
	for (uint32_t i = 0; i < n; i++)
		m->wakes += !!(ops[i].flags & FABRIC_WAITABLE);
	memcpy(list->ops, ops, n * sizeof(*ops));
	list->n = n;
	list->done = false;
	list->completion = completion;
	completion->pending++;
	m->held_count++;
	m->lists++;
	return 0;
}

static int memory_poll(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	struct memory_endpoint *m = memory_of(ep);

	if (!m->stalled) {
		complete(m);
		return 0;
	}
	while (base_now_ns() < deadline_ns)
		sched_yield();
	return 0;
}

static int memory_wait_word(struct fabric_endpoint *ep, uint32_t region, uint64_t offset,
			    uint64_t seen, uint64_t *value, uint64_t deadline_ns)
{
	struct memory_endpoint *m = memory_of(ep);
	const uint64_t *word = (const uint64_t *)(m->region[region] + offset);

	m->waits++;
	if (m->broken || !count_down(m))
		return base_fail(-ENOTCONN, "memory: broken by the test");
	for (uint32_t spins = 0;; spins++) {
		*value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (*value != seen)
			return 0;
		if (spins % 16 == 0 && base_now_ns() >= deadline_ns)
			return -ETIMEDOUT;
		sched_yield();
	}
}

static struct fabric_ops memory_ops;
struct fabric memory_fabric = { .ops = &memory_ops };

void memory_endpoint_init(struct memory_endpoint *m)
{
	memory_ops = fabric_defaults;
	memory_ops.name = "memory";
	memory_ops.now = memory_now;
	memory_ops.post = memory_post;
	memory_ops.poll = memory_poll;
	memory_ops.wait_word = memory_wait_word;
	memset(m, 0, sizeof(*m));
	m->base.ops = &memory_ops;
	m->base.fabric = &memory_fabric;
	m->base.address = "memory";
	m->base.limits = (struct fabric_limits){ .max_ops = 16,
						 .outstanding_reads = 16,
						 .max_transfer_bytes = 1u << 20 };
	m->break_after = m->kill_after = MEMORY_NEVER;
}

void memory_repair(struct memory_endpoint *m)
{
	m->broken = true;
	for (uint32_t i = 0; i < m->held_count; i++)
		m->held[i].done = true;
	complete(m);
	m->broken = m->stalled = false;
	m->break_after = MEMORY_NEVER;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The data path of the fake device: queues, and the execution of work requests. */
#include "fake_device.h"

#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "fake_private.h"

struct fake_device fake;

void fake_reset(void)
{
	fake = (struct fake_device){
		.attr = {
			.max_qp = 64,
			.max_qp_wr = 4096,
			.max_sge = 1,
			.max_cq = 64,
			.max_cqe = 8192,
			.max_mr = 1000,
			.max_mr_size = UINT64_MAX,
			.max_qp_rd_atom = 16,
			.max_qp_init_rd_atom = 16,
			.atomic_cap = IBV_ATOMIC_HCA,
			.phys_port_cnt = 1,
		},
		.port = {
			.state = IBV_PORT_ACTIVE,
			.max_mtu = IBV_MTU_4096,
			.active_mtu = IBV_MTU_4096,
			.max_msg_sz = 8u << 20,
			.gid_tbl_len = FAKE_GIDS,
			.pkey_tbl_len = 1,
			.link_layer = IBV_LINK_LAYER_ETHERNET,
		},
		.devices = 1,
		.most_inline = 512,
		.reads = 1000,
	};
}

/* Whether this is the n-th time, as a knob of that name says. */
bool fake_is_time(uint32_t *countdown)
{
	return *countdown && --*countdown == 0;
}

static void push_wc(struct fake_cq *cq, const struct fake_wc *wc)
{
	if (cq->count == (uint32_t)cq->cq.cqe) {
		fake.cq_overruns++;
		return;
	}
	cq->wcs[(cq->first + cq->count++) % (uint32_t)cq->cq.cqe] = *wc;
}

static const struct fake_mr *find_mr(const struct ibv_pd *pd, uint32_t key, uint64_t address,
				     uint64_t len_bytes, int access)
{
	const struct fake_mr *mr = fake_mr_of(key);
	uint64_t base;

	if (!mr || mr->mr.pd != pd || (mr->access & access) != access)
		return NULL;
	base = (uintptr_t)mr->mr.addr;
	if (address < base || len_bytes > mr->mr.length || address - base > mr->mr.length - len_bytes)
		return NULL;
	return mr;
}

static uint64_t atomic_result(uint64_t old)
{
	if (fake.atomics == FAKE_NO_RESULTS)
		return 0;
	return fake.atomics == FAKE_BIG_RESULTS ? __builtin_bswap64(old) : old;
}

static uint64_t add(uint64_t old, uint64_t addend)
{
	if (fake.atomics != FAKE_HALVES)
		return old + addend;
	return ((old >> 32) + (addend >> 32)) << 32 | (uint32_t)((uint32_t)old + (uint32_t)addend);
}

static void execute_atomic(const struct fake_wr *wr)
{
	uint64_t *word = (uint64_t *)(uintptr_t)wr->wr.wr.atomic.remote_addr, old = *word, result;

	if (wr->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		*word = add(old, wr->wr.wr.atomic.compare_add);
	else if (old == wr->wr.wr.atomic.compare_add || fake.atomics == FAKE_ALWAYS_SWAPS)
		*word = wr->wr.wr.atomic.swap;
	if (fake.atomics == FAKE_BESIDE)
		word[1]++;
	result = atomic_result(old);
	memcpy((void *)(uintptr_t)wr->sge.addr, &result, sizeof(result));
}

static enum ibv_wc_status execute(const struct fake_qp *qp, const struct fake_wr *wr)
{
	bool is_write = wr->wr.opcode == IBV_WR_RDMA_WRITE, is_read = wr->wr.opcode == IBV_WR_RDMA_READ;
	int remote = is_write ? IBV_ACCESS_REMOTE_WRITE :
		     is_read  ? IBV_ACCESS_REMOTE_READ :
				IBV_ACCESS_REMOTE_ATOMIC;
	uint64_t at = is_write || is_read ? wr->wr.wr.rdma.remote_addr : wr->wr.wr.atomic.remote_addr;
	uint32_t rkey = is_write || is_read ? wr->wr.wr.rdma.rkey : wr->wr.wr.atomic.rkey;
	void *local = (void *)(uintptr_t)wr->sge.addr, *far = (void *)(uintptr_t)at;

	if (wr->sge.length > fake.port.max_msg_sz)
		return IBV_WC_LOC_LEN_ERR;
	if (!(wr->wr.send_flags & IBV_SEND_INLINE) && wr->sge.length &&
	    !find_mr(qp->qp.pd, wr->sge.lkey, wr->sge.addr, wr->sge.length,
		     is_write ? 0 : IBV_ACCESS_LOCAL_WRITE))
		return IBV_WC_LOC_PROT_ERR;
	if (!is_write && !is_read && wr->sge.length != 8)
		return IBV_WC_LOC_LEN_ERR;
	if (wr->sge.length && !find_mr(qp->qp.pd, rkey, at, wr->sge.length, remote))
		return IBV_WC_REM_ACCESS_ERR;
	if (!wr->sge.length)
		return IBV_WC_SUCCESS;
	if (is_write)
		memcpy(far, wr->wr.send_flags & IBV_SEND_INLINE ? wr->data : local, wr->sge.length);
	else if (is_read)
		memcpy(local, far, wr->sge.length);
	else
		execute_atomic(wr);
	return IBV_WC_SUCCESS;
}

/* Executes one work request, or flushes it. */
static void step(struct fake_qp *qp)
{
	struct fake_wr *wr = &qp->wrs[qp->first++ % FAKE_QUEUE];
	enum ibv_wc_status status = qp->error ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
	struct fake_wc wc = { .qp = qp };

	if (!qp->error) {
		fake.executed++;
		status = fake_is_time(&fake.fail_wr) ? fake.fail_status : execute(qp, wr);
	}
	qp->covered++;
	if (status != IBV_WC_SUCCESS)
		qp->error = true;
	else if (!(wr->wr.send_flags & IBV_SEND_SIGNALED))
		return;
	wc.wc = (struct ibv_wc){ .wr_id = wr->wr.wr_id, .status = status, .qp_num = qp->qp.qp_num };
	wc.covers = qp->covered;
	qp->covered = 0;
	push_wc((struct fake_cq *)qp->qp.send_cq, &wc);
}

static bool is_due(const struct fake_qp *qp, uint64_t now_ns)
{
	return qp->first != qp->last && qp->wrs[qp->first % FAKE_QUEUE].due_ns <= now_ns;
}

/* Executes what is due of all queue pairs of a completion queue. */
static void run(struct fake_cq *cq)
{
	uint32_t done = 0, reads = 0;
	uint64_t now = fake.latency_ns ? base_now_ns() : UINT64_MAX;

	for (struct fake_qp *qp = fake_qps; qp && !fake.hold; qp = qp->next) {
		if (qp->qp.send_cq != &cq->cq)
			continue;
		while (is_due(qp, now) && (!fake.per_poll || done < fake.per_poll)) {
			bool is_read = qp->wrs[qp->first % FAKE_QUEUE].wr.opcode != IBV_WR_RDMA_WRITE;

			if (is_read && reads++ == fake.reads)
				break;
			step(qp);
			done++;
		}
	}
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)base;
	int taken = 0;

	if (fake.fail_poll)
		return -1;
	run(cq);
	for (; taken < n && cq->count; taken++) {
		const struct fake_wc *next = &cq->wcs[cq->first];

		wc[taken] = next->wc;
		if (next->qp)
			next->qp->used -= next->covers;
		cq->first = (cq->first + 1) % (uint32_t)cq->cq.cqe;
		cq->count--;
	}
	return taken;
}

/* An event comes when the next work request is due. */
static void set_timer(struct fake_cq *cq)
{
	struct itimerspec when = { 0 };
	uint64_t due = UINT64_MAX, now = base_now_ns();

	for (struct fake_qp *qp = fake_qps; qp; qp = qp->next)
		if (qp->qp.send_cq == &cq->cq && qp->first != qp->last &&
		    qp->wrs[qp->first % FAKE_QUEUE].due_ns < due)
			due = qp->wrs[qp->first % FAKE_QUEUE].due_ns;
	if (due == UINT64_MAX || fake.hold)
		return;
	due = due > now ? due - now : 1;
	when.it_value.tv_sec = (time_t)(due / NS_PER_S);
	when.it_value.tv_nsec = (long)(due % NS_PER_S);
	timerfd_settime(cq->cq.channel->fd, 0, &when, NULL);
	cq->armed = false;
}

/* There is no event for what was done before: it is done now. */
static int req_notify_cq(struct ibv_cq *base, int solicited_only)
{
	struct fake_cq *cq = (struct fake_cq *)base;

	(void)solicited_only;
	if (fake.fail_arm)
		return EINVAL;
	run(cq);
	cq->armed = true;
	set_timer(cq);
	return 0;
}

static void log_wr(const struct ibv_send_wr *wr)
{
	bool is_atomic = wr->opcode != IBV_WR_RDMA_READ && wr->opcode != IBV_WR_RDMA_WRITE;

	fake.log[fake.posted++ % FAKE_LOG] = (struct fake_logged){
		.opcode = wr->opcode,
		.send_flags = wr->send_flags,
		.length = wr->num_sge ? wr->sg_list->length : 0,
		.num_sge = (uint32_t)wr->num_sge,
		.remote = is_atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr,
		.wr_id = wr->wr_id,
	};
}

static int post_one(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct fake_wr *copy = &qp->wrs[qp->last % FAKE_QUEUE];
	bool is_atomic = wr->opcode != IBV_WR_RDMA_READ && wr->opcode != IBV_WR_RDMA_WRITE;

	if (fake_is_time(&fake.refuse_post))
		return fake.refuse_errno;
	if (qp->used == qp->depth || qp->last - qp->first == FAKE_QUEUE) {
		fake.overruns++;
		return ENOMEM;
	}
	if ((is_atomic && wr->wr.atomic.remote_addr % 8) || wr->num_sge > 1)
		return EINVAL;
	*copy = (struct fake_wr){ .wr = *wr,
				  .due_ns = fake.latency_ns ? base_now_ns() + fake.latency_ns : 0 };
	if (wr->num_sge)
		copy->sge = *wr->sg_list;
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (copy->sge.length > qp->most_inline || wr->opcode != IBV_WR_RDMA_WRITE)
			return EINVAL;
		memcpy(copy->data, (void *)(uintptr_t)copy->sge.addr, copy->sge.length);
	}
	log_wr(wr);
	qp->last++;
	qp->used++;
	return 0;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)base;

	fake.posts++;
	for (; wr; wr = wr->next) {
		int ret = post_one(qp, wr);

		if (ret) {
			*bad = wr;
			return ret;
		}
	}
	if (((struct fake_cq *)base->send_cq)->armed)
		set_timer((struct fake_cq *)base->send_cq);
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	return 0;
}

const struct ibv_context_ops fake_ops = {
	.poll_cq = poll_cq,
	.req_notify_cq = req_notify_cq,
	.post_send = post_send,
	.post_recv = post_recv,
};

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tear READS: does an aligned word of 8 bytes ever tear? A thread stores words of
 * eight equal bytes, RDMA READs of the same device fetch them, and a word whose
 * bytes differ is a torn one. Prints "READS reads, WORDS values, TORN torn".
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH      16
#define PATIENCE_S 60

struct shared {
	volatile uint64_t word __attribute__((aligned(64)));
	uint64_t got[BATCH] __attribute__((aligned(64)));
	volatile bool over;
};

struct pair {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	union ibv_gid gid;
	uint32_t gid_index;
};

static struct shared mem;

static void die(const char *what)
{
	fprintf(stderr, "tear: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void *write_words(void *arg)
{
	uint64_t n = 0;

	(void)arg;
	while (!mem.over)
		mem.word = (++n & 0xff) * 0x0101010101010101u;
	return NULL;
}

static void choose_gid(struct pair *p)
{
	struct ibv_gid_entry e[64];
	ssize_t n = ibv_query_gid_table(p->device, e, 64, 0);

	for (ssize_t i = 0; i < n; i++) {
		if (e[i].gid_type != IBV_GID_TYPE_ROCE_V2 || e[i].gid.raw[10] != 0xff)
			continue;
		p->gid = e[i].gid;
		p->gid_index = e[i].gid_index;
		return;
	}
	errno = ENOENT;
	die("no GID of type RoCE v2 with an IPv4 address");
}

static void open_device(struct pair *p)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		die("no RDMA device");
	p->device = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!p->device)
		die("open");
	choose_gid(p);
	p->pd = ibv_alloc_pd(p->device);
	p->mr = p->pd ? ibv_reg_mr(p->pd, &mem, sizeof(mem), access) : NULL;
	p->cq = ibv_create_cq(p->device, 2 * BATCH, NULL, NULL, 0);
	if (!p->mr || !p->cq)
		die("objects");
}

/* A queue pair that is its own peer. */
static void connect_qp(struct pair *p)
{
	struct ibv_qp_init_attr init = {
		.send_cq = p->cq,
		.recv_cq = p->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * BATCH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_READ };

	p->qp = ibv_create_qp(p->pd, &init);
	if (!p->qp ||
	    ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("queue pair to INIT");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = p->qp->qp_num,
		.max_dest_rd_atomic = BATCH,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = p->gid, .sgid_index = (uint8_t)p->gid_index, .hop_limit = 1 } },
	};
	if (ibv_modify_qp(p->qp, &a,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("queue pair to RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				  .timeout = 14,
				  .retry_cnt = 6,
				  .rnr_retry = 6,
				  .max_rd_atomic = BATCH };
	if (ibv_modify_qp(p->qp, &a,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("queue pair to RTS");
}

static void read_batch(struct pair *p)
{
	struct ibv_sge sge[BATCH];
	struct ibv_send_wr wr[BATCH], *bad;
	struct ibv_wc wc;
	int n;

	for (int i = 0; i < BATCH; i++) {
		sge[i] = (struct ibv_sge){ .addr = (uintptr_t)&mem.got[i], .length = 8, .lkey = p->mr->lkey };
		wr[i] = (struct ibv_send_wr){
			.next = i + 1 < BATCH ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_READ,
			.send_flags = i + 1 < BATCH ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = (uintptr_t)&mem.word, .rkey = p->mr->rkey },
		};
	}
	errno = ibv_post_send(p->qp, wr, &bad);
	if (errno)
		die("post");
	while (!(n = ibv_poll_cq(p->cq, 1, &wc)))
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "tear: completion: %s\n", n < 0 ? "poll" : ibv_wc_status_str(wc.status));
		exit(2);
	}
}

int main(int argc, char **argv)
{
	long reads = argc > 1 ? atol(argv[1]) : 20000, done = 0, torn = 0, values = 0;
	struct pair p = { 0 };
	time_t end = time(NULL) + PATIENCE_S;
	uint64_t last = 0;
	pthread_t writer;

	open_device(&p);
	connect_qp(&p);
	if (pthread_create(&writer, NULL, write_words, NULL))
		die("thread");
	/* On a busy machine the writer may not run for long: read until it did. */
	while (done < reads || (values < reads / 4 && time(NULL) < end)) {
		read_batch(&p);
		for (int i = 0; i < BATCH; i++) {
			torn += mem.got[i] != (mem.got[i] & 0xff) * 0x0101010101010101u;
			values += mem.got[i] != last;
			last = mem.got[i];
		}
		done += BATCH;
	}
	mem.over = true;
	pthread_join(writer, NULL);
	printf("%ld reads, %ld values, %ld torn\n", done, values, torn);
	return torn != 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of the fake device. */
#ifndef VERBS_FAKE_PRIVATE_H
#define VERBS_FAKE_PRIVATE_H

#include "fake_device.h"

#define FAKE_QUEUE 4096u

struct fake_wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t due_ns;
	unsigned char data[512];
};

struct fake_qp {
	struct ibv_qp qp;
	struct fake_qp *next;
	uint32_t depth, most_inline;
	uint32_t used;    /* of the depth, until a completion for it or a later one was taken */
	uint32_t covered; /* executed since the last completion */
	bool error;
	uint64_t first, last;
	struct fake_wr wrs[FAKE_QUEUE];
};

struct fake_wc {
	struct ibv_wc wc;
	struct fake_qp *qp; /* NULL: it was destroyed */
	uint32_t covers;
};

struct fake_cq {
	struct ibv_cq cq;
	uint32_t first, count, unacknowledged;
	bool armed; /* and no event is on its way yet */
	struct fake_wc *wcs;
};

struct fake_mr {
	struct ibv_mr mr;
	int access;
};

extern struct fake_qp *fake_qps;
extern const struct ibv_context_ops fake_ops;

bool fake_is_time(uint32_t *countdown);
const struct fake_mr *fake_mr_of(uint32_t key);

#endif

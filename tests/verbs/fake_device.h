/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device made of memory. The data path's calls of libibverbs go through the context's table, which it fills;
 * the others are wrapped when a test is linked (VERBS_WRAP in the Makefile). A queue pair is connected to this
 * very process: it executes work requests against registered memory, checking keys, rights and bounds at both
 * ends, in order, and not before the completion queue is polled, so that memory that is used again too early
 * shows. It keeps the depths that real devices keep, and misbehaves when told to.
 */
#ifndef VERBS_FAKE_DEVICE_H
#define VERBS_FAKE_DEVICE_H

#include <infiniband/verbs.h>

#include "support/support.h"

#define FAKE_LOG     8192
#define FAKE_GIDS    8
#define FAKE_DEVICES 3

enum fake_atomics {
	FAKE_GOOD = 0,
	FAKE_BIG_RESULTS, /* results in the other byte order: the one that can be mended */
	FAKE_HALVES,      /* adds the halves of a word by themselves */
	FAKE_BESIDE,      /* changes the next word too */
	FAKE_NO_RESULTS,
	FAKE_ALWAYS_SWAPS,
};

struct fake_logged {
	uint32_t opcode, send_flags, length, num_sge;
	uint64_t remote, wr_id;
};

struct fake_device {
	/* What the device can; set before opening. */
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_gid_entry gids[FAKE_GIDS];
	uint32_t gid_count;
	uint32_t devices;     /* in the list; names fake0, fake1 ... */
	uint32_t most_inline; /* more is refused */
	uint32_t reads;       /* executed at once, as max_rd_atomic has it */
	enum fake_atomics atomics;

	/* How it works. */
	bool hold;           /* executes nothing */
	uint64_t latency_ns; /* from post to execution */
	uint32_t per_poll;   /* work requests executed by a poll; 0: all */

	/* How it fails; counted down, 0 is never. */
	uint32_t refuse_post;           /* the n-th work request posted from now is refused */
	int refuse_errno;               /* with this */
	uint32_t fail_wr;               /* the n-th executed from now */
	enum ibv_wc_status fail_status; /* completes with this, and the rest is flushed */
	uint32_t fail_register;         /* the n-th registration: ENOMEM */
	uint32_t fail_create;           /* the n-th other object: ENOMEM */
	bool fail_poll, fail_arm;

	/* What happened. */
	uint64_t posts, posted, executed, overruns, cq_overruns, events;
	uint64_t live; /* objects not destroyed */
	struct fake_logged log[FAKE_LOG];
};

extern struct fake_device fake;

/* All as a good device over Ethernet. */
void fake_reset(void);
struct ibv_context *fake_open(void);
/* A queue pair that is connected, as in RTS. */
struct ibv_qp *fake_connect(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
/* An asynchronous event is there to be taken. */
void fake_event(enum ibv_event_type type);

#endif

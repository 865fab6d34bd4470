/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data half of an endpoint: post, poll and wait over one connected queue pair. Knows neither
 * how it was connected nor librdmacm. An owner
 *
 *  1. verbs_data_open(): completion queue, staging memory and arrays;
 *  2. creates the queue pair from verbs_data_qp_attr();
 *  3. verbs_data_start(), when the queue pair is connected (RTS);
 *  4. verbs_data_grant() for each region that the peer grants;
 *  5. verbs_data_break(), when it learns from elsewhere that the connection is gone;
 *  6. destroys the queue pair, then verbs_data_close().
 *
 * How it works is told at the head of verbs_data.c. All-zero is a closed one.
 */
#ifndef VERBS_VERBS_DATA_H
#define VERBS_VERBS_DATA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define VERBS_DATA_DEPTH     1024u /* of a send queue, unless the options say otherwise */
#define VERBS_DATA_INLINE    128u
#define VERBS_STAGING_BYTES  (2ull << 20) /* one huge page */
#define VERBS_PIECE_BYTES    (256ull << 10)
#define VERBS_DATA_WHY_BYTES 320

/* Memory of the user that is registered, so that nothing of it is copied. One for each PD. */
struct verbs_buffer_table;

struct verbs_buffers {
	struct ibv_pd *pd;
	struct verbs_buffer_table *table; /* replaced as a whole, so that readers need no lock */
};

void verbs_buffers_open(struct verbs_buffers *buffers, struct ibv_pd *pd);
void verbs_buffers_close(struct verbs_buffers *buffers);
/*
 * One thread at a time; endpoints may be at work meanwhile. The memory must not be the local memory of
 * an operation under way when it is unregistered. -ENOMEM, -ENOSPC, -EINVAL; -ENOENT.
 */
int verbs_buffer_register(struct verbs_buffers *buffers, void *base, uint64_t len_bytes);
int verbs_buffer_unregister(struct verbs_buffers *buffers, void *base);

struct verbs_data_config {
	struct ibv_context *context;
	struct ibv_pd *pd;
	const struct verbs_buffers *buffers; /* or NULL */
	uint32_t depth;                      /* of the send queue; 0: VERBS_DATA_DEPTH */
	uint32_t max_depth;                  /* the device's max_qp_wr and max_cqe; 0: any */
	uint32_t inline_bytes;               /* to ask for */
	uint64_t max_message_bytes;          /* of the port */
	uint64_t staging_bytes;              /* 0: VERBS_STAGING_BYTES */
	enum ibv_atomic_cap atomic_cap;
	bool swapped; /* atomics return their result in the other byte order: verbs_data_selftest() */
	const char *local, *peer; /* addresses, for people; the owner keeps them */
};

/* What was handed to the device, and what came back. */
struct verbs_counts {
	uint64_t work_requests, doorbells, completions;
	uint64_t bytes;  /* of READs and WRITEs */
	uint64_t copied; /* of them, through the staging memory */
	uint64_t sleeps;
};

struct verbs_granted {
	uint64_t address, len_bytes;
	uint32_t rkey, rights;
};

struct verbs_flight;
struct verbs_copy;

struct verbs_data {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct verbs_granted granted[FABRIC_MAX_REGIONS];
	struct verbs_data_config config;
	bool broken;
	uint32_t depth, inline_bytes; /* as the queue pair has them */
	uint32_t free_wrs;
	uint64_t piece_bytes; /* largest of a transfer through the staging */
	uint64_t batch_bytes; /* so many end a flight */

	/* Signalled work requests, in order; places of rings count up for ever. */
	struct verbs_flight *flights;
	uint64_t flight_head, flight_tail;
	uint32_t flight_mask;
	/* What is to be copied out of the staging when its flight is home. */
	struct verbs_copy *copies;
	uint64_t copy_head, copy_tail;
	uint32_t copy_mask;

	/* Staging memory: the first line takes results that nobody wants. */
	unsigned char *staging;
	uint64_t staging_bytes, stage_head, stage_tail;
	struct ibv_mr *staging_mr;
	struct ibv_sge sink;

	/* The chain under construction. */
	struct ibv_send_wr *wrs;
	struct ibv_sge *sges;
	uint32_t chain_wrs;     /* built, not posted */
	uint32_t flight_wrs;    /* built since the last signalled one */
	uint64_t batched_bytes; /* of them through the staging */
	uint32_t list_chains;   /* posted of the list under construction */
	uint64_t list_first;    /* of its flights */

	/* A list too large for the queue or the staging, as single operations. */
	struct fabric_op *rest;
	unsigned char *saved; /* data of its inline WRITEs */
	uint32_t rest_at, rest_count;
	uint64_t rest_done; /* bytes of rest[rest_at] */
	struct fabric_completion *rest_completion;

	uint32_t lists;     /* posted and not complete */
	uint32_t completed; /* lists, since the last poll returned */
	struct ibv_comp_channel *channel;
	uint32_t events; /* taken, not acknowledged */
	struct fabric_reading reading;
	struct verbs_counts counts;
	char why[VERBS_DATA_WHY_BYTES]; /* it broke */
};

/* -ENOMEM (also where the limit of locked memory is too low: the text says what is needed), -EOPNOTSUPP */
int verbs_data_open(struct verbs_data *data, const struct verbs_data_config *config);
void verbs_data_close(struct verbs_data *data);

/* For ibv_create_qp() or rdma_create_qp(), which write back what the queue pair really has. */
void verbs_data_qp_attr(const struct verbs_data *data, struct ibv_qp_init_attr *attr);
void verbs_data_start(struct verbs_data *data, struct ibv_qp *qp, const struct ibv_qp_cap *cap);

/* reads: READs and atomics that may be outstanding, as negotiated. */
void verbs_data_limits(const struct verbs_data *data, uint32_t reads, struct fabric_limits *limits);

int verbs_data_grant(struct verbs_data *data, uint32_t region, const struct verbs_granted *granted);

/*
 * Everything outstanding completes with -ENOTCONN and later calls fail with it, saying `why` (one line).
 * The first break counts. The device may go on writing to registered buffers until its queue pair is
 * destroyed.
 */
void verbs_data_break(struct verbs_data *data, const char *why);

/* As fabric_post(), fabric_poll(). */
int verbs_data_post(struct verbs_data *data, const struct fabric_op *ops, uint32_t n,
		    struct fabric_completion *completion);
int verbs_data_poll(struct verbs_data *data, uint64_t deadline_ns);
/* As fabric_wait_word(); ep is the endpoint whose post and poll lead here. */
int verbs_data_wait_word(struct verbs_data *data, struct fabric_endpoint *ep,
			 const struct fabric_wait *wait, uint64_t *value);

/* Whether something is outstanding. */
static inline bool verbs_data_busy(const struct verbs_data *data)
{
	return data->flight_head != data->flight_tail || data->rest_count;
}

/*
 * Tries the device's atomics on a started one whose queue pair is connected to itself (so with
 * REMOTE_READ and REMOTE_ATOMIC): that a word has 8 bytes and its order, and tells for the config of
 * others whether results are swapped. -EOPNOTSUPP: the text says what the device can't.
 */
int verbs_data_selftest(struct verbs_data *data, bool *swapped);

/* One line on what a completion's status means. */
const char *verbs_status_meaning(enum ibv_wc_status status);

#endif

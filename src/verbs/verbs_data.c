/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path: from fabric operations to work requests and back.
 *
 * One queue pair. What one endpoint posts takes effect in order, and of a broken endpoint's operations a
 * prefix did; a queue pair promises both, two do not. One fills the link where transfers are large, and
 * cards slow down by the number of queue pairs in use. So all goes through one.
 *
 * Lists. A list becomes a chain of work requests, posted by one doorbell, of which the last is signalled. A
 * *flight* is a signalled work request together with those since the one before: completions of a queue pair
 * come in order, so the flights form a ring, and a completion brings home all up to its own.
 *
 * Credits. A work request takes a place of the send queue until its flight is home, whether signalled or
 * not; soft-RoCE would take more than fit and lose completions, so we count. The completion queue is as deep
 * as the send queue, hence never full, not even when every work request fails by itself. A post for which
 * there is no room now gives -EAGAIN. One that would not even fit an empty queue, as its transfers are cut in
 * too many pieces, is taken as the *rest*: single operations in an array of our own, that poll issues as
 * room comes; until the last of it is issued nothing else is taken.
 *
 * Local memory. The caller's memory is anything. Small WRITEs go inline, what lies in a registered buffer
 * goes by its key, and all else through the staging: registered once, a ring whose parts are taken at post and
 * given back with the flight. A WRITE is copied into it at post, a READ out of it when its flight is
 * home. Large ones go in pieces, so that copying one overlaps with the wire's time for the next: each ends
 * a flight, and a WRITE's gets a doorbell too. Pieces are cut at multiples of 64 bytes of the remote offset, as
 * a remote word must not be in two. An atomic's result lands in the staging too, since some devices return it
 * in the other byte order; results that nobody wants all land in one place, the sink.
 *
 * Errors. The first completion that says so breaks the endpoint: everything outstanding completes with
 * -ENOTCONN, and the text has the first status, not that of the flushes after it. It is the same where
 * ibv_post_send() stops half-way: the list that it stopped in completes with the error, in doubt like all that
 * was under way.
 */
#include "verbs/verbs_data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "verbs/verbs_data_private.h"

#define LEAST_TRANSFER_BYTES 65536ull /* that the seam promises */
#define MOST_TRANSFER_BYTES  (1ull << 30)
#define SPARE_FLIGHTS        16u /* for lists of nothing */

static uint32_t ring_places(uint32_t least)
{
	uint32_t places = 1;

	while (places < least)
		places *= 2;
	return places;
}

static int open_arrays(struct verbs_data *data)
{
	uint32_t flights = ring_places(data->depth + SPARE_FLIGHTS), copies = ring_places(data->depth);

	data->flights = calloc(flights, sizeof(*data->flights));
	data->copies = calloc(copies, sizeof(*data->copies));
	data->wrs = calloc(data->depth, sizeof(*data->wrs));
	data->sges = calloc(data->depth, sizeof(*data->sges));
	data->rest = calloc(data->depth, sizeof(*data->rest));
	data->saved = calloc(data->depth, VERBS_DATA_INLINE);
	if (!data->flights || !data->copies || !data->wrs || !data->sges || !data->rest || !data->saved)
		return base_fail(-ENOMEM, "no memory for a send queue of %u", data->depth);
	data->flight_mask = flights - 1;
	data->copy_mask = copies - 1;
	for (uint32_t i = 0; i + 1 < data->depth; i++)
		data->wrs[i].next = &data->wrs[i + 1];
	return 0;
}

static int open_queue(struct verbs_data *data)
{
	const struct verbs_data_config *config = &data->config;
	int ret, flags;

	data->channel = ibv_create_comp_channel(config->context);
	if (!data->channel) {
		ret = -errno;
		return base_fail(ret, "no completion channel: %s", strerror(-ret));
	}
	flags = fcntl(data->channel->fd, F_GETFL);
	if (fcntl(data->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return base_fail(-errno, "a completion channel that can't be non-blocking");
	data->cq = ibv_create_cq(config->context, (int)data->depth, NULL, data->channel, 0);
	if (!data->cq) {
		ret = -errno;
		return base_fail(ret, "no completion queue of %u: %s", data->depth, strerror(-ret));
	}
	return 0;
}

int verbs_data_open(struct verbs_data *data, const struct verbs_data_config *config)
{
	uint64_t piece_bytes = VERBS_PIECE_BYTES;
	int ret;

	*data = (struct verbs_data){ .config = *config };
	data->depth = config->depth ? config->depth : VERBS_DATA_DEPTH;
	if (config->max_depth && data->depth > config->max_depth)
		data->depth = config->max_depth;
	ret = open_queue(data);
	if (!ret)
		ret = open_arrays(data);
	if (!ret)
		ret = verbs_staging_open(data);
	if (ret) {
		verbs_data_close(data);
		return ret;
	}
	if (!config->max_message_bytes)
		data->config.max_message_bytes = LEAST_TRANSFER_BYTES;
	if (piece_bytes > data->staging_bytes / 4)
		piece_bytes = data->staging_bytes / 4;
	if (piece_bytes > data->config.max_message_bytes)
		piece_bytes = data->config.max_message_bytes;
	data->piece_bytes = piece_bytes & ~(VERBS_LINE_BYTES - 1);
	data->batch_bytes = data->piece_bytes - VERBS_LINE_BYTES + 1;
	return 0;
}

void verbs_data_close(struct verbs_data *data)
{
	verbs_data_break(data, "closed");
	if (data->events)
		ibv_ack_cq_events(data->cq, data->events);
	if (data->cq)
		ibv_destroy_cq(data->cq);
	if (data->channel)
		ibv_destroy_comp_channel(data->channel);
	verbs_staging_close(data);
	free(data->flights);
	free(data->copies);
	free(data->wrs);
	free(data->sges);
	free(data->rest);
	free(data->saved);
	*data = (struct verbs_data){ 0 };
}

void verbs_data_qp_attr(const struct verbs_data *data, struct ibv_qp_init_attr *attr)
{
	*attr = (struct ibv_qp_init_attr){
		.send_cq = data->cq,
		.recv_cq = data->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = data->depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = data->config.inline_bytes,
		},
	};
}

void verbs_data_start(struct verbs_data *data, struct ibv_qp *qp, const struct ibv_qp_cap *cap)
{
	data->qp = qp;
	if (cap->max_send_wr < data->depth)
		data->depth = cap->max_send_wr;
	data->inline_bytes = data->config.inline_bytes;
	if (cap->max_inline_data < data->inline_bytes)
		data->inline_bytes = cap->max_inline_data;
	data->free_wrs = data->depth;
}

void verbs_data_limits(const struct verbs_data *data, uint32_t reads, struct fabric_limits *limits)
{
	uint64_t transfer = data->config.max_message_bytes;

	if (transfer < LEAST_TRANSFER_BYTES)
		transfer = LEAST_TRANSFER_BYTES;
	*limits = (struct fabric_limits){
		.max_ops = data->depth,
		.outstanding_reads = reads,
		.inline_bytes = VERBS_DATA_INLINE,
		.max_transfer_bytes = transfer < MOST_TRANSFER_BYTES ? transfer : MOST_TRANSFER_BYTES,
		.fate_known = false,
		.atomics_with_cpu = data->config.atomic_cap == IBV_ATOMIC_GLOB,
	};
}

int verbs_data_grant(struct verbs_data *data, uint32_t region, const struct verbs_granted *granted)
{
	if (region >= FABRIC_MAX_REGIONS || granted->address + granted->len_bytes < granted->address)
		return base_fail(-EINVAL, "%s grants region %u, which can't be", data->config.peer,
				 region);
	if (data->granted[region].rights && (data->granted[region].address != granted->address ||
					     data->granted[region].rights != granted->rights ||
					     data->granted[region].len_bytes > granted->len_bytes))
		return base_fail(-EEXIST, "%s grants region %u again, and not more of it",
				 data->config.peer, region);
	data->granted[region] = *granted;
	return 0;
}

void verbs_data_break(struct verbs_data *data, const char *why)
{
	if (data->broken)
		return;
	data->broken = true;
	snprintf(data->why, sizeof(data->why), "%s", why);
	for (; data->flight_head != data->flight_tail; data->flight_head++) {
		struct verbs_flight *flight = &data->flights[data->flight_head & data->flight_mask];

		if (flight->completion)
			verbs_complete(data, flight->completion, -ENOTCONN);
	}
	if (data->rest_count)
		verbs_complete(data, data->rest_completion, -ENOTCONN);
	data->rest_count = 0;
}

int verbs_data_gone(const struct verbs_data *data)
{
	return base_fail(-ENOTCONN, "%s", data->why);
}

/* What each status says about the peer, for those who do not know the standard by heart. */
const char *verbs_status_meaning(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "the peer does not answer: its node, its link or the network between is down";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer takes no messages";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer may be dead, or has taken the memory back";
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return "the peer's device failed";
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR:
		return "the peer's device takes no such request: is its limit of outstanding READs lower?";
	case IBV_WC_WR_FLUSH_ERR:
		return "the connection was closed or had broken before";
	case IBV_WC_LOC_QP_OP_ERR:
		return "this node's link is down, or its device refused the request";
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_LOC_LEN_ERR:
		return "this node's device refused local memory: a registered buffer was unmapped?";
	case IBV_WC_FATAL_ERR:
		return "this node's device failed";
	case IBV_WC_RESP_TIMEOUT_ERR:
		return "the peer did not answer in time";
	default:
		return "see the device's log";
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The message channel: SENDs on the control connection into receive buffers that the peer has posted.
 *
 * Each side knows how many buffers the other has free: VERBS_RECEIVES at first, one less with each
 * message sent, and more as the `credits` of each message that comes say. Whoever has nothing to say sends
 * a message of credits alone when it owes half of them. The last credit is kept for that, so that two
 * sides whose buffers are full of messages can still tell when they have taken them. A SEND thus always
 * finds a buffer, and a message that the caller has not taken holds up its sender and nobody else.
 *
 * What is granted travels with the next message, in front of it: whoever has the message has the grant.
 *
 * A peer that closes says VERBS_BYE. Whether the device of a silent one is still there, a WRITE of no
 * bytes tells, which needs no key and is answered by the device: a process that computes, or is stopped,
 * passes the test.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

#define BUFFER_BYTES                                                                       \
	((sizeof(struct verbs_message) + FABRIC_MAX_REGIONS * sizeof(struct verbs_grant) + \
	  FABRIC_MAX_MESSAGE_BYTES + 63) /                                                 \
	 64 * 64)
#define BUFFERS_BYTES ((VERBS_RECEIVES + VERBS_SENDS) * BUFFER_BYTES)
#define COMPLETIONS   (VERBS_RECEIVES + VERBS_SENDS + 2)

enum {
	RECEIVED = 1,
	SENT,
	PROBED,
};

static uint64_t wr_id(uint32_t what, uint32_t index)
{
	return (uint64_t)what << 32 | index;
}

static unsigned char *buffer_of(const struct verbs_channel *channel, uint32_t index)
{
	return channel->buffers + index * BUFFER_BYTES;
}

static unsigned char *send_buffer(const struct verbs_channel *channel)
{
	return buffer_of(channel, VERBS_RECEIVES + channel->posted % VERBS_SENDS);
}

static void broke(struct verbs_channel *channel, const char *why)
{
	if (channel->broken)
		return;
	channel->broken = true;
	snprintf(channel->why, sizeof(channel->why), "%s", why);
}

static int buffers_make(struct verbs_channel *channel, struct ibv_pd *pd)
{
	channel->buffers = aligned_alloc(4096, (BUFFERS_BYTES + 4095) / 4096 * 4096);
	if (!channel->buffers)
		return base_fail(-ENOMEM, "no memory for message buffers");
	memset(channel->buffers, 0, BUFFERS_BYTES);
	return verbs_pin(pd, channel->buffers, BUFFERS_BYTES, IBV_ACCESS_LOCAL_WRITE, &channel->mr);
}

int verbs_channel_open(struct verbs_channel *channel, struct verbs_fabric *fabric,
		       struct verbs_endpoint *ep, struct ibv_comp_channel *events)
{
	struct verbs_device *device = &fabric->device;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {
			.max_send_wr = VERBS_SENDS + 1,
			.max_recv_wr = VERBS_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	int ret;

	channel->ep = ep;
	channel->peer = ep->address;
	channel->credits = VERBS_RECEIVES;
	channel->heard_ns = base_now_ns();
	ret = buffers_make(channel, device->handshake_pd);
	if (ret)
		return ret;
	channel->cq = ibv_create_cq(device->context, (int)COMPLETIONS, ep, events, 0);
	init.send_cq = init.recv_cq = channel->cq;
	channel->qp = channel->cq ? ibv_create_qp(device->handshake_pd, &init) : NULL;
	if (!channel->qp)
		return base_fail(errno ? -errno : -ENOMEM,
				 "no queue pair for %s: %s; RDMA device %s has at most %d",
				 channel->peer, strerrordesc_np(errno),
				 ibv_get_device_name(device->context->device), device->attr.max_qp);
	ibv_req_notify_cq(channel->cq, 0);
	return 0;
}

void verbs_channel_close(struct verbs_channel *channel)
{
	if (channel->qp)
		ibv_destroy_qp(channel->qp);
	if (channel->cq)
		ibv_destroy_cq(channel->cq);
	if (channel->mr)
		ibv_dereg_mr(channel->mr);
	free(channel->buffers);
	channel->qp = NULL;
	channel->cq = NULL;
	channel->mr = NULL;
	channel->buffers = NULL;
	channel->broken = true;
}

static int post_receive(struct verbs_channel *channel, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer_of(channel, index),
		.length = BUFFER_BYTES,
		.lkey = channel->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id(RECEIVED, index), .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(channel->qp, &wr, &bad);
}

int verbs_channel_start(struct verbs_channel *channel)
{
	for (uint32_t i = 0; i < VERBS_RECEIVES; i++) {
		int ret = post_receive(channel, i);

		if (ret)
			return base_fail(-ret, "a receive for %s: %s", channel->peer,
					 strerrordesc_np(ret));
	}
	return 0;
}

/* The peer has that buffer again. */
static void give_back(struct verbs_channel *channel, uint32_t index)
{
	if (channel->broken)
		return;
	if (post_receive(channel, index)) {
		broke(channel, "a receive can't be posted");
		return;
	}
	channel->owed++;
	if (channel->owed >= VERBS_RECEIVES / 2)
		verbs_channel_send(channel, VERBS_CREDITS, NULL, 0);
}

/* Whether what was received is a message of this protocol. */
static bool is_sound(const struct verbs_message *message, uint32_t len_bytes)
{
	if (len_bytes < sizeof(*message) || message->kind < VERBS_MESSAGE ||
	    message->kind > VERBS_BYE || message->grants > FABRIC_MAX_REGIONS ||
	    message->len_bytes > FABRIC_MAX_MESSAGE_BYTES || message->credits > VERBS_RECEIVES)
		return false;
	return len_bytes ==
	       sizeof(*message) + message->grants * sizeof(struct verbs_grant) + message->len_bytes;
}

static void received(struct verbs_channel *channel, uint32_t index, uint32_t len_bytes)
{
	const struct verbs_message *message = (const struct verbs_message *)buffer_of(channel, index);
	const struct verbs_grant *grants = (const struct verbs_grant *)(message + 1);

	if (!is_sound(message, len_bytes) || channel->credits + message->credits > VERBS_RECEIVES) {
		base_log(RAMPS_LOG_WARNING, "rubbish from %s", channel->peer);
		broke(channel, "it sent rubbish");
		return;
	}
	channel->credits += message->credits;
	for (uint32_t i = 0; i < message->grants && channel->granted; i++)
		channel->granted(channel->ep, &grants[i]);
	if (message->kind == VERBS_BYE)
		channel->bye = true;
	if (message->kind == VERBS_BYE || message->kind == VERBS_CREDITS) {
		give_back(channel, index);
		return;
	}
	channel->arrived[channel->came++ % VERBS_RECEIVES] = (uint8_t)index;
}

static void completed(struct verbs_channel *channel, const struct ibv_wc *wc)
{
	uint32_t what = (uint32_t)(wc->wr_id >> 32);

	if (wc->status == IBV_WC_SUCCESS) {
		if (what == RECEIVED)
			received(channel, (uint32_t)wc->wr_id, wc->byte_len);
		else
			channel->heard_ns = base_now_ns();
	} else {
		broke(channel, wc->status == IBV_WC_RETRY_EXC_ERR ? "its device does not answer" :
								    ibv_wc_status_str(wc->status));
	}
	if (what == SENT)
		channel->sent++;
	if (what == PROBED)
		channel->probing = false;
}

void verbs_channel_poll(struct verbs_channel *channel)
{
	struct ibv_wc wc[COMPLETIONS];
	int count;

	if (!channel->cq)
		return;
	do {
		count = ibv_poll_cq(channel->cq, COMPLETIONS, wc);
		for (int i = 0; i < count; i++)
			completed(channel, &wc[i]);
	} while (count > 0);
	if (count < 0)
		broke(channel, "its completion queue is broken");
	/* Where there was no room for it when a buffer was given back. */
	if (channel->owed >= VERBS_RECEIVES / 2)
		verbs_channel_send(channel, VERBS_CREDITS, NULL, 0);
}

/* Whether there is room for a message of this kind, at the peer and here. */
static bool has_room(const struct verbs_channel *channel, enum verbs_kind kind)
{
	const uint32_t kept = kind == VERBS_MESSAGE;

	return channel->credits > kept && channel->posted - channel->sent < VERBS_SENDS;
}

int verbs_channel_send(struct verbs_channel *channel, enum verbs_kind kind, const void *payload,
		       uint32_t len_bytes)
{
	struct verbs_message *message;
	size_t grants_bytes = channel->given_count * sizeof(struct verbs_grant);
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = wr_id(SENT, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (!channel->broken && kind == VERBS_MESSAGE && !has_room(channel, kind))
		verbs_channel_poll(channel);
	if (channel->broken)
		return -ENOTCONN;
	if (!has_room(channel, kind))
		return -EAGAIN;
	message = (struct verbs_message *)send_buffer(channel);
	*message = (struct verbs_message){
		.kind = kind,
		.len_bytes = len_bytes,
		.credits = channel->owed,
		.grants = channel->given_count,
	};
	memcpy(message + 1, channel->given, grants_bytes);
	if (len_bytes)
		memcpy((char *)(message + 1) + grants_bytes, payload, len_bytes);
	sge = (struct ibv_sge){
		.addr = (uintptr_t)message,
		.length = (uint32_t)(sizeof(*message) + grants_bytes + len_bytes),
		.lkey = channel->mr->lkey,
	};
	if (ibv_post_send(channel->qp, &wr, &bad)) {
		broke(channel, "a send can't be posted");
		return -ENOTCONN;
	}
	channel->posted++;
	channel->credits--;
	channel->owed = 0;
	channel->given_count = 0;
	return 0;
}

const struct verbs_message *verbs_channel_look(const struct verbs_channel *channel, const void **payload)
{
	const struct verbs_message *message;

	if (channel->came == channel->taken)
		return NULL;
	message = (const struct verbs_message *)buffer_of(
		channel, channel->arrived[channel->taken % VERBS_RECEIVES]);
	*payload = (const char *)(message + 1) + message->grants * sizeof(struct verbs_grant);
	return message;
}

void verbs_channel_release(struct verbs_channel *channel)
{
	give_back(channel, channel->arrived[channel->taken++ % VERBS_RECEIVES]);
}

void verbs_channel_probe(struct verbs_channel *channel)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id(PROBED, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (channel->broken || channel->probing)
		return;
	if (ibv_post_send(channel->qp, &wr, &bad))
		broke(channel, "a probe can't be posted");
	else
		channel->probing = true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that come in, until they are open. See the head of verbs_fabric.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_proof.h"

#define DATA_ACCESS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

void verbs_accept_drop(struct verbs_listener *l, struct verbs_endpoint *ep, const char *why)
{
	base_log(RAMPS_LOG_INFO, "%s: dropping a connection from %s: %s", l->base.address,
		 ep->cm_address, why);
	verbs_forget(l, ep);
	verbs_endpoint_free(ep);
}

/* The id of a request is ours to destroy. */
static void turn_away(const struct verbs_listener *l, struct rdma_cm_id *id, int code, const char *why)
{
	char from[96];

	verbs_address_text(&id->route.addr.dst_addr, from, sizeof(from));
	base_log(RAMPS_LOG_INFO, "%s: refusing a connection from %s: %s", l->base.address, from, why);
	verbs_cm_refuse(id, code, why);
	rdma_destroy_id(id);
}

static void agree(const struct verbs_fabric *fabric, const struct verbs_cm_event *event,
		  const struct verbs_hello *hello, struct verbs_terms *terms)
{
	uint32_t most = fabric->device.reads, mtu = fabric->options.mtu;

	terms->reads = event->reads < most ? event->reads : most;
	terms->peer_reads = event->peer_reads < most ? event->peer_reads : most;
	terms->mtu = hello->mtu;
	if (mtu != VERBS_UNSET && (!terms->mtu || mtu < terms->mtu))
		terms->mtu = mtu;
}

static int accept_id(const struct verbs_endpoint *ep, struct rdma_cm_id *id,
		     const struct ibv_qp *qp, const struct verbs_answer *answer)
{
	struct rdma_conn_param param = {
		.private_data = answer,
		.private_data_len = sizeof(*answer),
		.responder_resources = (uint8_t)ep->terms.peer_reads,
		.initiator_depth = (uint8_t)ep->terms.reads,
		.rnr_retry_count = (uint8_t)ep->fabric->options.rnr_retries,
		.qp_num = qp->qp_num,
	};

	if (rdma_accept(id, &param))
		return base_fail(-errno, "accepting: %s", strerrordesc_np(errno));
	return 0;
}

static void answer_begin(const struct verbs_endpoint *ep, struct verbs_answer *answer)
{
	*answer = (struct verbs_answer){
		.len_bytes = sizeof(*answer),
		.version = VERBS_VERSION,
		.magic = VERBS_MAGIC,
		.mtu = (uint16_t)ep->terms.mtu,
	};
}

static int answer_control(struct verbs_endpoint *ep, const struct verbs_hello *hello)
{
	struct verbs_answer_claim claim = { .version = VERBS_VERSION, .mtu = ep->terms.mtu };
	struct verbs_answer answer;

	answer_begin(ep, &answer);
	memcpy(ep->session.nonces.client, hello->nonce, VERBS_NONCE_BYTES);
	verbs_random(ep->session.nonces.server, VERBS_NONCE_BYTES);
	memcpy(answer.nonce, ep->session.nonces.server, VERBS_NONCE_BYTES);
	verbs_prove(&ep->fabric->key, &ep->session.nonces, VERBS_BY_SERVER, VERBS_CLAIM(claim),
		    answer.mac);
	return accept_id(ep, ep->control_id, ep->channel.qp, &answer);
}

static int control_begin(struct verbs_listener *l, struct verbs_endpoint *ep,
			 const struct verbs_hello *hello)
{
	int ret = verbs_channel_open(&ep->channel, l->fabric, ep, l->completions);

	if (!ret)
		ret = verbs_qp_init(l->fabric, ep->control_id, ep->channel.qp, IBV_ACCESS_REMOTE_WRITE);
	if (!ret)
		ret = verbs_channel_start(&ep->channel);
	if (!ret)
		ret = verbs_qp_connect(l->fabric, ep->control_id, ep->channel.qp, &ep->terms);
	return ret ? ret : answer_control(ep, hello);
}

/* The text of an error in the loop of a server is for its log. */
static void log_error(const struct verbs_listener *l, int code)
{
	base_end("fabric_next_event", code);
	base_log(RAMPS_LOG_ERROR, "%s: %s", l->base.address, base_last_error()->text);
}

static void accept_control(struct verbs_listener *l, const struct verbs_cm_event *event,
			   const struct verbs_hello *hello)
{
	struct verbs_endpoint *ep;
	int ret = verbs_device_for(l->fabric, event->id, l->base.address);

	if (!ret)
		ret = verbs_endpoint_new(l->fabric, VERBS_ACCEPTED, &ep);
	if (ret) {
		log_error(l, ret);
		turn_away(l, event->id, ret, "it came to another device, or there is no memory");
		return;
	}
	if (l->unproven_count >= VERBS_MAX_UNPROVEN)
		verbs_accept_drop(l, TAILQ_FIRST(&l->unproven), "too many have not proved themselves");
	ep->listener = l;
	ep->control_id = event->id;
	ep->control_id->context = ep;
	verbs_address_text(&event->id->route.addr.dst_addr, ep->cm_address, sizeof(ep->cm_address));
	snprintf(ep->address, sizeof(ep->address), "%s", ep->cm_address);
	agree(l->fabric, event, hello, &ep->terms);
	ret = control_begin(l, ep, hello);
	if (ret) {
		log_error(l, ret);
		ep->control_id = NULL;
		verbs_endpoint_free(ep);
		turn_away(l, event->id, ret, "the server has no resources for it, see its log");
		return;
	}
	TAILQ_INSERT_TAIL(&l->unproven, ep, link);
	l->unproven_count++;
}

static struct verbs_endpoint *find_session(struct verbs_listener *l, const struct verbs_hello *hello)
{
	struct verbs_endpoint *ep;

	TAILQ_FOREACH(ep, &l->unproven, link)
	if (ep->state == VERBS_PROVEN && !memcmp(ep->session.id, hello->session, sizeof(hello->session)))
		return ep;
	return NULL;
}

static bool data_proved(const struct verbs_endpoint *ep, const struct verbs_cm_event *event,
			const struct verbs_hello *hello)
{
	struct verbs_data_claim claim = { .index = hello->index, .qp_num = event->qp_num };

	if (hello->index >= ep->data_count || ep->data_ids[hello->index])
		return false;
	memcpy(claim.session, ep->session.id, sizeof(claim.session));
	return verbs_proved(&ep->fabric->key, &ep->session.nonces, VERBS_OF_DATA,
			    VERBS_CLAIM(claim), hello->mac);
}

static int data_begin(struct verbs_endpoint *ep, struct rdma_cm_id *id, uint32_t index)
{
	const struct verbs_device *device = &ep->fabric->device;
	/* It only answers; and answering takes no work requests. */
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = ep->channel.cq,
		.recv_cq = ep->channel.cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct verbs_answer answer;
	struct ibv_qp *qp = ibv_create_qp(device->data_pd, &init);
	int ret;

	if (!qp)
		return base_fail(errno ? -errno : -ENOMEM,
				 "no queue pair for %s: %s; RDMA device %s has at most %d",
				 ep->address, strerrordesc_np(errno),
				 ibv_get_device_name(device->context->device), device->attr.max_qp);
	ep->data_qps[index] = qp;
	ret = verbs_qp_init(ep->fabric, id, qp, DATA_ACCESS);
	if (!ret)
		ret = verbs_qp_connect(ep->fabric, id, qp, &ep->terms);
	answer_begin(ep, &answer);
	return ret ? ret : accept_id(ep, id, qp, &answer);
}

static void accept_data(struct verbs_listener *l, const struct verbs_cm_event *event,
			const struct verbs_hello *hello)
{
	struct verbs_endpoint *ep = find_session(l, hello);
	int ret;

	if (!ep || !data_proved(ep, event, hello)) {
		turn_away(l, event->id, -EACCES, "a data connection without proof, or too late");
		return;
	}
	agree(l->fabric, event, hello, &ep->terms);
	ret = data_begin(ep, event->id, hello->index);
	if (ret) {
		log_error(l, ret);
		turn_away(l, event->id, ret, "the server has no resources for it, see its log");
		verbs_accept_drop(l, ep, "its data connection failed");
		return;
	}
	ep->data_ids[hello->index] = event->id;
	event->id->context = ep;
}

static void accept_request(struct verbs_listener *l, const struct verbs_cm_event *event)
{
	struct verbs_hello hello;
	char text[80];

	event->id->context = NULL;
	if (!verbs_cm_private(event, &hello, sizeof(hello))) {
		turn_away(l, event->id, -EPROTO, "it is no ramps worker");
	} else if (hello.version != VERBS_VERSION) {
		snprintf(text, sizeof(text),
			 "the server speaks version %u of the verbs fabric, the worker %u",
			 VERBS_VERSION, hello.version);
		turn_away(l, event->id, -EPROTONOSUPPORT, text);
	} else if (hello.kind == VERBS_CONTROL) {
		accept_control(l, event, &hello);
	} else if (hello.kind == VERBS_DATA) {
		accept_data(l, event, &hello);
	} else {
		turn_away(l, event->id, -EPROTO, "it asks for no known kind of connection");
	}
}

/* The connection of an id is over. */
static void ended(struct verbs_listener *l, struct verbs_endpoint *ep, const struct verbs_cm_event *event)
{
	if (event->type == RDMA_CM_EVENT_DISCONNECTED)
		ep->left = true;
	else if (!ep->channel.broken) {
		ep->channel.broken = true;
		snprintf(ep->channel.why, sizeof(ep->channel.why), "%s", rdma_event_str(event->type));
	}
	verbs_ready(l, ep);
}

void verbs_accept_event(struct verbs_listener *l, const struct verbs_cm_event *event)
{
	struct verbs_endpoint *ep = event->id ? event->id->context : NULL;

	switch (event->type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (event->id)
			accept_request(l, event);
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (event->id == l->id)
			l->failed = base_fail(-ENODEV, "%s: its RDMA device was removed", l->base.address);
		else if (ep)
			ended(l, ep, event);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		base_log(RAMPS_LOG_WARNING, "%s: its address moved to another device", l->base.address);
		return;
	default:
		if (ep)
			ended(l, ep, event);
		else
			base_log(RAMPS_LOG_WARNING, "%s: %s", l->base.address,
				 rdma_event_str(event->type));
	}
}

static void refuse_peer(struct verbs_listener *l, struct verbs_endpoint *ep, const char *why)
{
	struct verbs_refused refused = { .code = -EACCES };

	snprintf(refused.text, sizeof(refused.text), "%s", why);
	verbs_channel_send(&ep->channel, VERBS_REFUSED, &refused, sizeof(refused));
	base_log(RAMPS_LOG_WARNING, "%s: refusing %s: %s", l->base.address, ep->cm_address, why);
	verbs_forget(l, ep);
	verbs_linger(l, ep);
}

/* Whether the peer may have a session now. */
static bool take_proof(struct verbs_listener *l, struct verbs_endpoint *ep, const struct verbs_proof *proof)
{
	struct verbs_welcome welcome = { .queue_pairs = VERBS_DATA_USED };

	if (!verbs_proved(&l->fabric->key, &ep->session.nonces, VERBS_BY_CLIENT,
			  VERBS_PROOF_CLAIM(proof), proof->mac)) {
		refuse_peer(l, ep,
			    "it has another key than the server: check RAMPS_KEY_FILE on both sides");
		return false;
	}
	if (proof->queue_pairs < welcome.queue_pairs)
		welcome.queue_pairs = proof->queue_pairs ? proof->queue_pairs : 1;
	memcpy(ep->identity, proof->identity, sizeof(ep->identity));
	snprintf(ep->address, sizeof(ep->address), "process %u at %s", proof->pid, ep->cm_address);
	verbs_random(ep->session.id, sizeof(ep->session.id));
	memcpy(welcome.session, ep->session.id, sizeof(welcome.session));
	verbs_own_identity(welcome.identity);
	ep->data_count = welcome.queue_pairs;
	ep->state = VERBS_PROVEN;
	if (verbs_channel_send(&ep->channel, VERBS_WELCOME, &welcome, sizeof(welcome))) {
		verbs_accept_drop(l, ep, "it does not listen");
		return false;
	}
	return true;
}

static bool is_complete(const struct verbs_endpoint *ep)
{
	for (uint32_t i = 0; i < ep->data_count; i++)
		if (!ep->data_ids[i])
			return false;
	return true;
}

bool verbs_accept_message(struct verbs_listener *l, struct verbs_endpoint *ep)
{
	const void *payload;
	const struct verbs_message *message = verbs_channel_look(&ep->channel, &payload);
	struct verbs_proof proof;

	if (ep->state == VERBS_UNPROVEN && message->kind == VERBS_PROOF &&
	    message->len_bytes == sizeof(proof)) {
		memcpy(&proof, payload, sizeof(proof));
		verbs_channel_release(&ep->channel);
		take_proof(l, ep, &proof);
		return false;
	}
	if (ep->state == VERBS_PROVEN && message->kind == VERBS_READY && is_complete(ep)) {
		verbs_channel_release(&ep->channel);
		TAILQ_REMOVE(&l->unproven, ep, link);
		l->unproven_count--;
		TAILQ_INSERT_TAIL(&l->open, ep, link);
		ep->state = VERBS_OPEN;
		return true;
	}
	verbs_accept_drop(l, ep, "it says something else than the handshake");
	return false;
}

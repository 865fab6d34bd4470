/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's side of a connection: how it begins and ends. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_proof.h"

#define RESOLVE_MS 5000
#define LEAST_NS   (250 * NS_PER_MS) /* in less nobody can say that there is no server */
#define LEAVE_NS   (100 * NS_PER_MS)

/* One connection on its way. */
struct dial {
	struct verbs_endpoint *ep;
	const struct addrinfo *to;
	uint64_t deadline_ns;
};

static int late(const struct verbs_endpoint *ep, const char *step)
{
	return base_fail(-ETIMEDOUT, "%s: %s in time; is the server there, and busy or stopped?",
			 ep->address, step);
}

/* Waits for this event, and takes any other for a failure. */
static int await(const struct dial *dial, struct rdma_cm_id *id, enum rdma_cm_event_type type,
		 struct verbs_cm_event *event)
{
	struct verbs_endpoint *ep = dial->ep;

	for (;;) {
		struct pollfd fd = { .fd = ep->events->fd, .events = POLLIN };
		struct timespec left;

		if (verbs_cm_next(ep->events, event)) {
			if (event->id == id && event->type == type && !event->status)
				return 0;
			if (event->type == RDMA_CM_EVENT_TIMEWAIT_EXIT ||
			    event->type == RDMA_CM_EVENT_ADDR_CHANGE)
				continue;
			return verbs_cm_failed(event, ep->address);
		}
		if (!verbs_time_left(dial->deadline_ns, &left))
			return late(ep, type == RDMA_CM_EVENT_CONNECT_RESPONSE ?
						"it did not answer" :
						"the way to it was not found");
		if (ppoll(&fd, 1, dial->deadline_ns == BASE_FOREVER ? NULL : &left, NULL) < 0 &&
		    errno != EINTR)
			return base_fail(-errno, "waiting for %s: %s", ep->address,
					 strerrordesc_np(errno));
	}
}

static int resolve_ms(const struct dial *dial)
{
	struct timespec left;
	int64_t ms = RESOLVE_MS;

	if (verbs_time_left(dial->deadline_ns, &left) && left.tv_sec < RESOLVE_MS / 1000)
		ms = left.tv_sec * 1000 + left.tv_nsec / (long)NS_PER_MS + 1;
	return (int)ms;
}

/* An id with a route to the server, on the fabric's device. */
static int find_way(const struct dial *dial, struct rdma_cm_id **id)
{
	struct verbs_endpoint *ep = dial->ep;
	struct verbs_cm_event event;
	int ret;

	if (verbs_address_is_loopback(dial->to->ai_addr))
		return base_fail(-EHOSTUNREACH,
				 "%s: the loopback has no RDMA: use the address of a network card that has",
				 ep->address);
	if (rdma_create_id(ep->events, id, ep, RDMA_PS_TCP))
		return base_fail(-errno, "connecting to %s: %s", ep->address, strerrordesc_np(errno));
	if (rdma_resolve_addr(*id, NULL, dial->to->ai_addr, resolve_ms(dial)))
		return base_fail(errno == ENODEV ? -EHOSTUNREACH : -errno,
				 "%s: no RDMA device here leads to it: %s; see rdma link and ip route",
				 ep->address, strerrordesc_np(errno));
	ret = await(dial, *id, RDMA_CM_EVENT_ADDR_RESOLVED, &event);
	if (!ret)
		ret = verbs_device_for(ep->fabric, *id, ep->address);
	if (ret)
		return ret;
	verbs_id_options(ep->fabric, *id);
	if (rdma_resolve_route(*id, resolve_ms(dial)))
		return base_fail(-errno, "%s: no route: %s", ep->address, strerrordesc_np(errno));
	return await(dial, *id, RDMA_CM_EVENT_ROUTE_RESOLVED, &event);
}

/* Sends the request, and takes the answer. */
static int ask(const struct dial *dial, struct rdma_cm_id *id, struct ibv_qp *qp,
	       struct verbs_hello *hello, struct verbs_answer *answer)
{
	struct verbs_endpoint *ep = dial->ep;
	const struct verbs_fabric *fabric = ep->fabric;
	struct verbs_cm_event event;
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		.responder_resources = (uint8_t)fabric->device.reads,
		.initiator_depth = (uint8_t)fabric->device.reads,
		.retry_count = (uint8_t)fabric->options.retries,
		.rnr_retry_count = (uint8_t)fabric->options.rnr_retries,
		.qp_num = qp->qp_num,
	};
	int ret;

	hello->len_bytes = sizeof(*hello);
	hello->version = VERBS_VERSION;
	hello->magic = VERBS_MAGIC;
	if (rdma_connect(id, &param))
		return base_fail(-errno, "connecting to %s: %s", ep->address, strerrordesc_np(errno));
	ret = await(dial, id, RDMA_CM_EVENT_CONNECT_RESPONSE, &event);
	if (ret)
		return ret;
	if (!verbs_cm_private(&event, answer, sizeof(*answer)))
		return base_fail(-EPROTO, "%s answers, but is no ramps server", ep->address);
	if (answer->version != VERBS_VERSION)
		return base_fail(-EPROTONOSUPPORT,
				 "the server at %s speaks version %u of the verbs fabric, this is %u",
				 ep->address, answer->version, VERBS_VERSION);
	ep->terms = (struct verbs_terms){
		.mtu = answer->mtu,
		.reads = event.reads < fabric->device.reads ? event.reads : fabric->device.reads,
		.peer_reads = event.peer_reads < fabric->device.reads ? event.peer_reads :
									fabric->device.reads,
	};
	return 0;
}

static int stand(const struct dial *dial, struct rdma_cm_id *id, struct ibv_qp *qp)
{
	struct verbs_endpoint *ep = dial->ep;
	int ret = verbs_qp_connect(ep->fabric, id, qp, &ep->terms);

	if (ret)
		return ret;
	if (rdma_establish(id))
		return base_fail(-errno, "connecting to %s: %s", ep->address, strerrordesc_np(errno));
	return 0;
}

static uint16_t wanted_mtu(const struct verbs_endpoint *ep)
{
	uint32_t mtu = ep->fabric->options.mtu;

	return mtu == VERBS_UNSET ? 0 : (uint16_t)mtu;
}

static int check_answer(const struct verbs_endpoint *ep, const struct verbs_answer *answer)
{
	const struct verbs_answer_claim claim = { .version = answer->version, .mtu = answer->mtu };

	if (verbs_proved(&ep->fabric->key, &ep->session.nonces, VERBS_BY_SERVER, VERBS_CLAIM(claim),
			 answer->mac))
		return 0;
	return base_fail(-EACCES,
			 "the server at %s has another key than this process: check that RAMPS_KEY_FILE names "
			 "the same key for both",
			 ep->address);
}

static int connect_control(const struct dial *dial)
{
	struct verbs_endpoint *ep = dial->ep;
	struct verbs_hello hello = { .kind = VERBS_CONTROL, .mtu = wanted_mtu(ep) };
	struct verbs_answer answer;
	int ret = find_way(dial, &ep->control_id);

	if (ret)
		return ret;
	ep->completions = ibv_create_comp_channel(ep->fabric->device.context);
	if (!ep->completions)
		return base_fail(-EMFILE, "no descriptors left to connect to %s; raise ulimit -n",
				 ep->address);
	verbs_nonblocking(ep->completions->fd);
	ep->channel.granted = verbs_half_grant;
	ret = verbs_channel_open(&ep->channel, ep->fabric, ep, ep->completions);
	if (!ret)
		ret = verbs_qp_init(ep->fabric, ep->control_id, ep->channel.qp, IBV_ACCESS_REMOTE_WRITE);
	if (!ret)
		ret = verbs_channel_start(&ep->channel);
	if (ret)
		return ret;
	verbs_random(ep->session.nonces.client, VERBS_NONCE_BYTES);
	memcpy(hello.nonce, ep->session.nonces.client, VERBS_NONCE_BYTES);
	ret = ask(dial, ep->control_id, ep->channel.qp, &hello, &answer);
	if (ret)
		return ret;
	memcpy(ep->session.nonces.server, answer.nonce, VERBS_NONCE_BYTES);
	ret = check_answer(ep, &answer);
	return ret ? ret : stand(dial, ep->control_id, ep->channel.qp);
}

static int refused(const struct verbs_endpoint *ep, const void *payload, uint32_t len_bytes)
{
	struct verbs_refused refused = { 0 };

	memcpy(&refused, payload, len_bytes < sizeof(refused) ? len_bytes : sizeof(refused));
	refused.text[sizeof(refused.text) - 1] = '\0';
	return base_fail(refused.code < 0 && refused.code > -4096 ? refused.code : -EACCES,
			 "the server at %s refused: %s", ep->address, refused.text);
}

static int take_welcome(struct verbs_endpoint *ep)
{
	const void *payload;
	const struct verbs_message *message = verbs_channel_look(&ep->channel, &payload);
	struct verbs_welcome welcome;

	if (message->kind == VERBS_REFUSED)
		return refused(ep, payload, message->len_bytes);
	if (message->kind != VERBS_WELCOME || message->len_bytes != sizeof(welcome))
		return base_fail(-EPROTO, "the server at %s gave a wrong answer", ep->address);
	memcpy(&welcome, payload, sizeof(welcome));
	verbs_channel_release(&ep->channel);
	if (!welcome.queue_pairs || welcome.queue_pairs > VERBS_DATA_USED)
		return base_fail(-EPROTO, "the server at %s wants %u queue pairs", ep->address,
				 welcome.queue_pairs);
	memcpy(ep->session.id, welcome.session, sizeof(ep->session.id));
	memcpy(ep->identity, welcome.identity, sizeof(ep->identity));
	ep->data_count = welcome.queue_pairs;
	return 0;
}

static int prove(const struct dial *dial)
{
	struct verbs_endpoint *ep = dial->ep;
	struct verbs_proof proof = {
		.pid = (uint32_t)getpid(),
		.queue_pairs = ep->fabric->options.queue_pairs,
	};
	int ret;

	verbs_own_identity(proof.identity);
	verbs_prove(&ep->fabric->key, &ep->session.nonces, VERBS_BY_CLIENT,
		    VERBS_PROOF_CLAIM(&proof), proof.mac);
	ret = verbs_channel_send(&ep->channel, VERBS_PROOF, &proof, sizeof(proof));
	if (!ret)
		ret = verbs_channel_wait(ep, dial->deadline_ns);
	if (ret == -EAGAIN)
		return late(ep, "it did not look at our proof");
	return ret ? verbs_gone(ep) : take_welcome(ep);
}

static int connect_data(const struct dial *dial, uint32_t index)
{
	struct verbs_endpoint *ep = dial->ep;
	struct verbs_hello hello = { .kind = VERBS_DATA, .index = (uint8_t)index, .mtu = wanted_mtu(ep) };
	struct verbs_data_claim claim = { .index = index };
	struct verbs_answer answer;
	struct ibv_qp *qp;
	int ret = find_way(dial, &ep->data_ids[index]);

	if (ret)
		return ret;
	ret = verbs_half_open(ep);
	qp = ep->data_qps[index];
	if (!ret)
		ret = verbs_qp_init(ep->fabric, ep->data_ids[index], qp, 0);
	if (ret)
		return ret;
	memcpy(hello.session, ep->session.id, sizeof(hello.session));
	memcpy(claim.session, ep->session.id, sizeof(claim.session));
	claim.qp_num = qp->qp_num;
	verbs_prove(&ep->fabric->key, &ep->session.nonces, VERBS_OF_DATA, VERBS_CLAIM(claim), hello.mac);
	ret = ask(dial, ep->data_ids[index], qp, &hello, &answer);
	return ret ? ret : stand(dial, ep->data_ids[index], qp);
}

static int connect_all(const struct dial *dial)
{
	struct verbs_endpoint *ep = dial->ep;
	int ret;

	ret = connect_control(dial);
	if (!ret)
		ret = prove(dial);
	for (uint32_t i = 0; i < ep->data_count && !ret; i++)
		ret = connect_data(dial, i);
	if (!ret)
		verbs_half_start(ep);
	if (!ret && verbs_channel_send(&ep->channel, VERBS_READY, NULL, 0))
		ret = verbs_gone(ep);
	ep->state = VERBS_OPEN;
	return ret;
}

static int try_address(struct verbs_fabric *fabric, const char *address, const struct dial *like,
		       struct fabric_endpoint **result)
{
	struct dial dial = *like;
	struct verbs_endpoint *ep;
	int ret = verbs_endpoint_new(fabric, VERBS_CLIENT, &ep);

	if (ret)
		return ret;
	snprintf(ep->address, sizeof(ep->address), "%s", address);
	dial.ep = ep;
	ret = verbs_cm_channel(&ep->events);
	if (!ret)
		ret = connect_all(&dial);
	if (ret) {
		base_error_peer(address);
		verbs_endpoint_free(ep);
		return ret;
	}
	*result = &ep->base;
	return 0;
}

int verbs_connect(struct fabric *base, const char *address, uint64_t deadline_ns,
		  struct fabric_endpoint **result)
{
	struct verbs_fabric *fabric = (struct verbs_fabric *)base;
	const uint64_t least_ns = base_now_ns() + LEAST_NS;
	struct dial dial = { .deadline_ns = deadline_ns > least_ns ? deadline_ns : least_ns };
	struct addrinfo *list;
	int ret = verbs_address_resolve(address, false, &list);

	if (ret) {
		base_error_peer(address);
		return ret;
	}
	/* A name may have addresses of networks without RDMA: those don't lead anywhere. */
	for (dial.to = list; dial.to; dial.to = dial.to->ai_next) {
		ret = try_address(fabric, address, &dial, result);
		if (ret != -EHOSTUNREACH && ret != -ENETUNREACH)
			break;
	}
	freeaddrinfo(list);
	return ret;
}

/*
 * Says goodbye, and lets it and what was sent before arrive: for a moment, as long as the server's device
 * answers. It is no wait for the server's process.
 */
void verbs_leave(struct verbs_endpoint *ep)
{
	const uint64_t deadline_ns = base_now_ns() + LEAVE_NS;

	verbs_stop_data(ep, "it was closed");
	if (ep->left || ep->channel.bye || ep->channel.broken)
		return;
	verbs_channel_send(&ep->channel, VERBS_BYE, NULL, 0);
	do {
		verbs_channel_poll(&ep->channel);
	} while (!verbs_channel_idle(&ep->channel) && base_now_ns() < deadline_ns);
}

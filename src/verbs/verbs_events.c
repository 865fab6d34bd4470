/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's events. One epoll watches the connection manager, the completions of all control
 * connections, the device and the wake-up: with nothing to do next_event costs one system call. Each
 * endpoint about which there may be something to say is in the list `ready`.
 *
 * A peer ends by VERBS_BYE or the connection manager (FABRIC_CLOSED: it closed, or its process ended), or by
 * an error of its control connection (FABRIC_BROKEN). What it sent before is delivered first. Every quarter
 * of the lease the device of a peer is asked whether it is there; no answer is an error of the connection.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

#define MAX_LOOKS 16
#define SOURCES   8
#define PAUSE_NS  (100 * NS_PER_MS) /* between looks after what time alone brings */

void verbs_ready(struct verbs_listener *l, struct verbs_endpoint *ep)
{
	if (ep->is_ready)
		return;
	ep->is_ready = true;
	TAILQ_INSERT_TAIL(&l->ready, ep, ready_link);
}

static void not_ready(struct verbs_listener *l, struct verbs_endpoint *ep)
{
	if (!ep->is_ready)
		return;
	ep->is_ready = false;
	TAILQ_REMOVE(&l->ready, ep, ready_link);
}

/* Takes the endpoint out of everything that could still bring events for it. */
void verbs_forget(struct verbs_listener *l, struct verbs_endpoint *ep)
{
	not_ready(l, ep);
	if (ep->lingers) {
		TAILQ_REMOVE(&l->lingering, ep, link);
		ep->lingers = false;
	} else if (ep->state == VERBS_OPEN) {
		TAILQ_REMOVE(&l->open, ep, link);
	} else if (ep->state < VERBS_OPEN) {
		TAILQ_REMOVE(&l->unproven, ep, link);
		l->unproven_count--;
	}
	ep->state = VERBS_ENDED;
}

void verbs_linger(struct verbs_listener *l, struct verbs_endpoint *ep)
{
	ep->lingers = true;
	ep->since_ns = base_now_ns();
	TAILQ_INSERT_TAIL(&l->lingering, ep, link);
	verbs_ready(l, ep);
}

static int over(struct verbs_listener *l, struct verbs_endpoint *ep, struct fabric_event *event)
{
	const bool broken = !ep->left && !ep->channel.bye;

	if (broken)
		base_log(RAMPS_LOG_INFO, "%s: the connection of %s broke: %s", l->base.address,
			 ep->address, ep->channel.why);
	verbs_forget(l, ep);
	event->kind = broken ? FABRIC_BROKEN : FABRIC_CLOSED;
	event->len_bytes = 0;
	event->endpoint = &ep->base;
	return 1;
}

/* What is left of an endpoint that its owner has closed. */
static int take_lingering(struct verbs_listener *l, struct verbs_endpoint *ep)
{
	not_ready(l, ep);
	if (ep->left || verbs_channel_idle(&ep->channel) ||
	    base_now_ns() - ep->since_ns > VERBS_LINGER_NS) {
		verbs_forget(l, ep);
		verbs_endpoint_free(ep);
	}
	return 0;
}

static int take_unproven(struct verbs_listener *l, struct verbs_endpoint *ep, struct fabric_event *event)
{
	const void *payload;

	if (verbs_channel_look(&ep->channel, &payload)) {
		if (!verbs_accept_message(l, ep))
			return 0;
		base_log(RAMPS_LOG_DEBUG, "%s: %s connected", l->base.address, ep->address);
		event->kind = FABRIC_CONNECTED;
		event->len_bytes = 0;
		event->endpoint = &ep->base;
		return 1;
	}
	not_ready(l, ep);
	if (ep->left || ep->channel.bye || ep->channel.broken)
		verbs_accept_drop(l, ep, ep->channel.broken ? ep->channel.why : "it left");
	return 0;
}

/* Takes what there is of a peer. 1: *event is set; else it may be gone altogether. */
static int take(struct verbs_listener *l, struct verbs_endpoint *ep, struct fabric_event *event)
{
	const struct verbs_message *message;
	const void *payload;

	verbs_channel_poll(&ep->channel);
	if (ep->lingers)
		return take_lingering(l, ep);
	if (ep->state < VERBS_OPEN)
		return take_unproven(l, ep, event);
	message = verbs_channel_look(&ep->channel, &payload);
	if (!message) {
		if (ep->left || ep->channel.bye || ep->channel.broken)
			return over(l, ep, event);
		not_ready(l, ep);
		return 0;
	}
	event->kind = FABRIC_MESSAGE;
	event->len_bytes = message->len_bytes;
	event->endpoint = &ep->base;
	memcpy(event->message, payload, message->len_bytes);
	if (message->kind != VERBS_MESSAGE)
		event->kind = 0;
	verbs_channel_release(&ep->channel);
	return event->kind != 0;
}

/* Completion events say whose; the queue is armed anew and looked at after that, by take(). */
static void take_completions(struct verbs_listener *l)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(l->completions, &cq, &context)) {
		struct verbs_endpoint *ep = context;

		ibv_ack_cq_events(cq, 1);
		ibv_req_notify_cq(cq, 0);
		if (ep->state != VERBS_ENDED || ep->lingers)
			verbs_ready(l, ep);
	}
}

static void take_cm(struct verbs_listener *l)
{
	struct verbs_cm_event event;

	while (verbs_cm_next(l->events, &event)) {
		struct verbs_endpoint *ep = event.id && event.id != l->id ? event.id->context : NULL;

		/* Closed, or cut and not yet closed: nobody wants to hear of it. */
		if (ep && event.type != RDMA_CM_EVENT_CONNECT_REQUEST && ep->state == VERBS_ENDED) {
			ep->left |= event.type == RDMA_CM_EVENT_DISCONNECTED;
			if (ep->lingers)
				verbs_ready(l, ep);
			continue;
		}
		verbs_accept_event(l, &event);
	}
}

/* Asks the devices of those who were silent, and gives up those that were for too long. */
static void look_after_peers(struct verbs_listener *l, uint64_t now_ns)
{
	const uint64_t lease_ns = l->lease_ns;
	struct verbs_endpoint *ep;

	TAILQ_FOREACH(ep, &l->open, link)
	{
		uint64_t silent_ns = now_ns - ep->channel.heard_ns;

		verbs_channel_poll(&ep->channel);
		if (ep->channel.probing && silent_ns > lease_ns && !ep->channel.broken) {
			ep->channel.broken = true;
			snprintf(ep->channel.why, sizeof(ep->channel.why),
				 "its device was silent for %llu ms",
				 (unsigned long long)(lease_ns / NS_PER_MS));
		}
		if (silent_ns > lease_ns / 4)
			verbs_channel_probe(&ep->channel);
		if (ep->channel.broken)
			verbs_ready(l, ep);
	}
}

/* What time alone brings. */
static void expire(struct verbs_listener *l)
{
	const uint64_t lease_ns = l->lease_ns;
	struct verbs_endpoint *ep;
	uint64_t now_ns = base_now_ns();

	if (now_ns < l->look_ns)
		return;
	l->look_ns = now_ns + (lease_ns / 8 < PAUSE_NS ? lease_ns / 8 : PAUSE_NS);
	while ((ep = TAILQ_FIRST(&l->unproven)) && now_ns - ep->since_ns > VERBS_UNPROVEN_NS)
		verbs_accept_drop(l, ep, "it did not prove itself in time");
	for (ep = TAILQ_FIRST(&l->lingering); ep; ep = TAILQ_NEXT(ep, link))
		verbs_ready(l, ep);
	look_after_peers(l, now_ns);
}

/* Takes what is there after at most timeout_ms into the list of who is ready. How many sources spoke. */
static int look(struct verbs_listener *l, int timeout_ms, bool *woken)
{
	struct epoll_event sources[SOURCES];
	int count = epoll_wait(l->epoll, sources, SOURCES, timeout_ms);

	if (count < 0 && errno != EINTR)
		return base_fail(-EIO, "the server's descriptors are gone: %s", strerrordesc_np(errno));
	for (int i = 0; i < count; i++) {
		const void *what = sources[i].data.ptr;

		if (what == &l->wake_fd)
			*woken = true;
		else if (what == l->events)
			take_cm(l);
		else if (what == l->completions)
			take_completions(l);
		else
			verbs_device_events(&l->fabric->device);
	}
	if (__atomic_load_n(&l->fabric->device.failed, __ATOMIC_RELAXED) && !l->failed)
		l->failed = -EIO;
	if (l->failed)
		return base_fail(l->failed, "%s: its RDMA device is gone, or has failed for good",
				 l->base.address);
	return count < 0 ? 0 : count;
}

int verbs_next_event(struct fabric_listener *base, struct fabric_event *event)
{
	struct verbs_listener *l = (struct verbs_listener *)base;
	struct verbs_endpoint *ep;

	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		int ret;

		while ((ep = TAILQ_FIRST(&l->ready)))
			if (take(l, ep, event))
				return 1;
		expire(l);
		ret = look(l, 0, &l->woken);
		if (ret < 0 || (ret == 0 && TAILQ_EMPTY(&l->ready)))
			return ret;
	}
	return 0;
}

int verbs_wait(struct fabric_listener *base, uint64_t deadline_ns)
{
	struct verbs_listener *l = (struct verbs_listener *)base;
	uint64_t now_ns, left_ms = INT32_MAX;
	bool woken = false; /* this wait is what was woken */

	if (l->woken || !TAILQ_EMPTY(&l->ready)) {
		l->woken = false;
		return 0;
	}
	now_ns = base_now_ns();
	if (!TAILQ_EMPTY(&l->open) || !TAILQ_EMPTY(&l->unproven) || !TAILQ_EMPTY(&l->lingering))
		if (l->look_ns < deadline_ns)
			deadline_ns = l->look_ns;
	if (deadline_ns != BASE_FOREVER)
		left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
	if (left_ms > INT32_MAX)
		left_ms = INT32_MAX;
	look(l, (int)left_ms, &woken);
	return 0;
}

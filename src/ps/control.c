/* SPDX-License-Identifier: BSD-2-Clause */
/* Control events: connections, requests and their replies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "ps/ps_private.h"

#define EVENTS_AT_ONCE 64

static void connected(struct ps_server *server, struct fabric_endpoint *ep)
{
	struct ps_link *link = calloc(1, sizeof(*link));

	if (!link) {
		fabric_endpoint_close(ep);
		return;
	}
	link->ep = ep;
	link->rank = PS_NO_RANK;
	ep->user = link;
	LIST_INSERT_HEAD(&server->strangers, link, siblings);
}

static int handle(struct ps_server *server, struct ps_link *link)
{
	const struct core_request *rq = &server->request;
	struct core_reply *reply = &server->reply;

	if (rq->magic != CORE_MESSAGE_MAGIC)
		return base_fail(-EPROTO, "this is a ramps server; the peer speaks another protocol");
	if (rq->kind == CORE_JOIN)
		return ps_join(server, link, rq, reply);
	if (rq->kind == CORE_LOOK && link->rank == PS_NO_RANK)
		return fabric_grant(link->ep, CORE_PUBLISHED,
				    &server->arena->memory[CORE_PUBLISHED], FABRIC_MAY_READ);
	if (link->rank == PS_NO_RANK)
		return base_fail(-EPROTO, "join first");
	switch (rq->kind) {
	case CORE_LEAVE:
		return ps_leave(server, link);
	case CORE_CREATE:
		return ps_create(server, link->rank, rq, &reply->entry);
	case CORE_LOOKUP:
		return ps_lookup(server, rq, &reply->entry);
	case CORE_SET_READY:
		return ps_set_ready(server, link->rank, rq->entry.index);
	default:
		return base_fail(-EPROTO, "no such request: %u", rq->kind);
	}
}

static void message(struct ps_server *server, struct ps_link *link)
{
	const struct fabric_event *event = &server->event;
	struct core_request *rq = &server->request;
	struct core_reply *reply = &server->reply;
	int ret;

	/* what a shorter message lacks is zero */
	memset(rq, 0, sizeof(*rq));
	memcpy(rq, event->message, event->len_bytes < sizeof(*rq) ? event->len_bytes : sizeof(*rq));
	if (rq->magic == CORE_MESSAGE_MAGIC && rq->kind == CORE_WAKE)
		return;
	memset(reply, 0, sizeof(*reply));
	reply->magic = CORE_MESSAGE_MAGIC;
	reply->version = CORE_VERSION;
	reply->layout_hash = core_layout_hash();
	reply->arena_id = server->header->arena_id;
	reply->status = handle(server, link);
	if (reply->status < 0) {
		base_end("ramps_server_start", reply->status);
		strncpy(reply->text, base_last_error()->text, sizeof(reply->text) - 1);
	}
	ret = fabric_send(link->ep, reply, sizeof(*reply));
	if (ret < 0)
		base_log(RAMPS_LOG_WARNING, "no reply to %s: error %d", link->ep->address, ret);
}

int ps_control(struct ps_server *server)
{
	int events = 0, ret = 0;

	while (events < EVENTS_AT_ONCE) {
		struct fabric_event *event = &server->event;

		ret = fabric_next_event(server->listener, event);
		if (ret <= 0)
			break;
		events++;
		if (event->kind == FABRIC_CONNECTED)
			connected(server, event->endpoint);
		else if (event->kind == FABRIC_MESSAGE)
			message(server, event->endpoint->user);
		else if (event->kind == FABRIC_CLOSED)
			ps_link_closed(server, event->endpoint->user);
		else if (event->kind == FABRIC_BROKEN)
			ps_link_broken(server, event->endpoint->user);
	}
	return ret < 0 ? ret : events;
}

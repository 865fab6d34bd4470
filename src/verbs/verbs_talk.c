/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of endpoints, and a client's waiting for them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

bool verbs_time_left(uint64_t deadline_ns, struct timespec *left)
{
	uint64_t now_ns = deadline_ns ? base_now_ns() : 0;
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

	left->tv_sec = (time_t)(left_ns / NS_PER_S);
	left->tv_nsec = (long)(left_ns % NS_PER_S);
	return left_ns != 0;
}

void verbs_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* Takes what the connection manager says to a client. */
static void take_events(struct verbs_endpoint *ep)
{
	struct verbs_cm_event event;

	while (verbs_cm_next(ep->events, &event)) {
		switch (event.type) {
		case RDMA_CM_EVENT_DISCONNECTED:
			ep->left = true;
			break;
		case RDMA_CM_EVENT_DEVICE_REMOVAL:
			base_log(RAMPS_LOG_ERROR,
				 "the RDMA device of the connection to %s was removed", ep->address);
			ep->left = true;
			break;
		default:
			base_log(RAMPS_LOG_DEBUG, "%s: %s", ep->address, rdma_event_str(event.type));
		}
	}
}

/* Empties the channel's queue of completion events, and has the next completion make one. */
static void rearm(struct verbs_endpoint *ep)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(ep->completions, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	ibv_req_notify_cq(ep->channel.cq, 0);
}

/* What there is now: 1 for a message, 0, -ENOTCONN. */
static int look(struct verbs_endpoint *ep)
{
	const void *payload;

	take_events(ep);
	/* After the events: what a server said before it left is there by then. */
	verbs_channel_poll(&ep->channel);
	if (verbs_channel_look(&ep->channel, &payload))
		return 1;
	return ep->left || ep->channel.bye || ep->channel.broken ? -ENOTCONN : 0;
}

/* Sleeps until something may have come, or it is time to ask whether the server is there. */
static int doze(struct verbs_endpoint *ep, uint64_t deadline_ns)
{
	struct pollfd fds[2] = {
		{ .fd = ep->completions->fd, .events = POLLIN },
		{ .fd = ep->events->fd, .events = POLLIN },
	};
	uint64_t probe_ns = base_now_ns() + VERBS_LOOK_NS;
	bool probe = probe_ns < deadline_ns;
	struct timespec left;
	int ret;

	verbs_time_left(probe ? probe_ns : deadline_ns, &left);
	ret = ppoll(fds, 2, &left, NULL);
	if (ret < 0 && errno != EINTR)
		return -errno;
	if (ret == 0 && probe)
		verbs_channel_probe(&ep->channel);
	return 0;
}

int verbs_channel_wait(struct verbs_endpoint *ep, uint64_t deadline_ns)
{
	for (;;) {
		struct timespec left;
		int ret = look(ep);

		if (ret)
			return ret < 0 ? ret : 0;
		rearm(ep);
		ret = look(ep); /* no event comes for what came before arming */
		if (ret)
			return ret < 0 ? ret : 0;
		if (!verbs_time_left(deadline_ns, &left))
			return -EAGAIN;
		ret = doze(ep, deadline_ns);
		if (ret)
			return ret;
	}
}

int verbs_recv(struct fabric_endpoint *base, void *message, uint32_t len_bytes, uint64_t deadline_ns)
{
	struct verbs_endpoint *ep = verbs_of(base);
	const struct verbs_message *came;
	const void *payload;
	uint32_t came_bytes;
	int ret;

	if (ep->role != VERBS_CLIENT)
		return base_fail(-EOPNOTSUPP, "a server takes messages as events");
	for (;;) {
		ret = verbs_channel_wait(ep, deadline_ns);
		if (ret == -EAGAIN)
			return base_fail(ret, "no message from %s in time", ep->address);
		if (ret)
			return verbs_gone(ep);
		came = verbs_channel_look(&ep->channel, &payload);
		if (came->kind == VERBS_MESSAGE)
			break;
		verbs_channel_release(&ep->channel);
	}
	came_bytes = came->len_bytes;
	if (came_bytes <= len_bytes)
		memcpy(message, payload, came_bytes);
	verbs_channel_release(&ep->channel);
	if (came_bytes > len_bytes)
		return base_fail(-EMSGSIZE, "a message of %u bytes does not fit into %u",
				 came_bytes, len_bytes);
	return (int)came_bytes;
}

int verbs_send(struct fabric_endpoint *base, const void *message, uint32_t len_bytes)
{
	struct verbs_endpoint *ep = verbs_of(base);
	int ret;

	if (!len_bytes || len_bytes > FABRIC_MAX_MESSAGE_BYTES)
		return base_fail(-EINVAL, "a message of %u bytes; 1 to %d are possible", len_bytes,
				 FABRIC_MAX_MESSAGE_BYTES);
	if (ep->role == VERBS_LOOPBACK)
		return base_fail(-EOPNOTSUPP, "a server sends no messages to itself");
	if (ep->left || ep->channel.bye || ep->state == VERBS_ENDED)
		return verbs_gone(ep);
	ret = verbs_channel_send(&ep->channel, VERBS_MESSAGE, message, len_bytes);
	/* A server's next_event must see what came while room was looked for. */
	if (ep->role == VERBS_ACCEPTED)
		verbs_ready(ep->listener, ep);
	if (ret == -EAGAIN)
		return base_fail(ret, "%s does not take messages now", ep->address);
	return ret ? verbs_gone(ep) : 0;
}

int verbs_check(struct fabric_endpoint *base)
{
	struct verbs_endpoint *ep = verbs_of(base);

	if (ep->role == VERBS_LOOPBACK)
		return ep->data.broken ?
			       base_fail(-ENOTCONN, "the connection to itself broke: %s", ep->data.why) :
			       0;
	if (ep->role == VERBS_CLIENT) {
		verbs_device_events(&ep->fabric->device);
		take_events(ep);
		verbs_channel_poll(&ep->channel);
		if (ep->fabric->device.failed)
			verbs_stop_data(ep, "the RDMA device of this process was removed or failed");
	}
	if (ep->left || ep->channel.bye || ep->channel.broken || ep->state == VERBS_ENDED ||
	    ep->data.broken)
		return verbs_gone(ep);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* A listener: how it begins and ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

#define BACKLOG 1024

static int bind_failed(const struct verbs_listener *l, const struct sockaddr *to, int code)
{
	char text[96];

	verbs_address_text(to, text, sizeof(text));
	switch (code) {
	case EADDRINUSE:
		return base_fail(-EADDRINUSE, "another server has %s (%s)", l->base.address, text);
	case ENODEV:
	case EADDRNOTAVAIL:
		return base_fail(-EADDRNOTAVAIL,
				 "%s: %s is not the address of an RDMA device here; see ip address and rdma "
				 "link",
				 l->base.address, text);
	default:
		return base_fail(-code, "listening at %s (%s): %s", l->base.address, text,
				 strerrordesc_np(code));
	}
}

/* Binds to the first address of the name that an RDMA device has. */
static int bind_id(struct verbs_listener *l, const struct addrinfo *list)
{
	int ret = -EADDRNOTAVAIL, only = 1;

	for (const struct addrinfo *to = list; to; to = to->ai_next) {
		if (verbs_address_is_loopback(to->ai_addr)) {
			ret = bind_failed(l, to->ai_addr, EADDRNOTAVAIL);
			continue;
		}
		if (rdma_create_id(l->events, &l->id, NULL, RDMA_PS_TCP))
			return base_fail(-errno, "listening at %s: %s", l->base.address,
					 strerrordesc_np(errno));
		if (to->ai_family == AF_INET6)
			rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only,
					sizeof(only));
		if (!rdma_bind_addr(l->id, to->ai_addr))
			return rdma_listen(l->id, BACKLOG) ? bind_failed(l, to->ai_addr, errno) : 0;
		ret = bind_failed(l, to->ai_addr, errno);
		rdma_destroy_id(l->id);
		l->id = NULL;
		if (ret != -EADDRNOTAVAIL)
			break;
	}
	return ret;
}

/* With the port that was chosen, where it was 0. */
static void name_listener(struct verbs_listener *l, const char *address)
{
	char host[VERBS_HOST_BYTES], port[8];

	if (verbs_address_split(address, host, port))
		return;
	snprintf(l->base.address, sizeof(l->base.address),
		 strchr(host, ':') ? "verbs://[%s]:%u" : "verbs://%s:%u", host,
		 ntohs(rdma_get_src_port(l->id)));
}

static int watch(const struct verbs_listener *l, int fd, uint32_t events, void *what)
{
	struct epoll_event event = { .events = events, .data.ptr = what };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int open_events(struct verbs_listener *l)
{
	struct ibv_context *context = l->fabric->device.context;

	l->completions = ibv_create_comp_channel(context);
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!l->completions || l->epoll < 0 || l->wake_fd < 0)
		return base_fail(errno == ENFILE ? -EMFILE : -errno, "making descriptors for %s: %s",
				 l->base.address, strerrordesc_np(errno));
	verbs_nonblocking(l->completions->fd);
	/* Edge-triggered: the counter of wakes need not be read. */
	if (watch(l, l->wake_fd, EPOLLIN | EPOLLET, &l->wake_fd) ||
	    watch(l, l->events->fd, EPOLLIN, l->events) ||
	    watch(l, l->completions->fd, EPOLLIN, l->completions) ||
	    watch(l, context->async_fd, EPOLLIN, context))
		return base_fail(-errno, "watching the events of %s: %s", l->base.address,
				 strerrordesc_np(errno));
	return 0;
}

static int bind_and_open(struct verbs_listener *l, const char *address)
{
	struct addrinfo *list;
	int ret = verbs_address_resolve(address, true, &list);

	if (ret)
		return ret;
	ret = verbs_cm_channel(&l->events);
	if (!ret)
		ret = bind_id(l, list);
	freeaddrinfo(list);
	if (ret)
		return ret;
	name_listener(l, address);
	ret = l->id && l->id->verbs ? verbs_device_for(l->fabric, l->id, l->base.address) :
				      verbs_device_any(l->fabric, l->base.address);
	return ret ? ret : open_events(l);
}

static uint64_t lease_of(const struct verbs_fabric *fabric)
{
	if (fabric->options.lease_ms != VERBS_UNSET)
		return fabric->options.lease_ms * NS_PER_MS;
	return fabric->base.lease_ns ? fabric->base.lease_ns : VERBS_LEASE_NS;
}

int verbs_listen(struct fabric *fabric, const char *address, struct fabric_listener **result)
{
	struct verbs_listener *l = calloc(1, sizeof(*l));
	int ret;

	if (!l)
		return base_fail(-ENOMEM, "no memory");
	l->base.ops = &verbs_ops;
	l->fabric = (struct verbs_fabric *)fabric;
	l->pid = getpid();
	l->lease_ns = lease_of(l->fabric);
	l->epoll = l->wake_fd = -1;
	TAILQ_INIT(&l->unproven);
	TAILQ_INIT(&l->open);
	TAILQ_INIT(&l->ready);
	TAILQ_INIT(&l->lingering);
	snprintf(l->base.address, sizeof(l->base.address), "%s", address ? address : "");
	ret = bind_and_open(l, address);
	if (ret) {
		verbs_listener_close(&l->base);
		return ret;
	}
	if (!l->fabric->key.len_bytes)
		base_log(RAMPS_LOG_WARNING,
			 "%s: no key (RAMPS_KEY_FILE is not set): whoever reaches this address can join",
			 l->base.address);
	*result = &l->base;
	return 0;
}

static void free_all(struct verbs_endpoints *list)
{
	struct verbs_endpoint *ep;

	while ((ep = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, ep, link);
		verbs_endpoint_free(ep);
	}
}

void verbs_listener_close(struct fabric_listener *base)
{
	struct verbs_listener *l = (struct verbs_listener *)base;

	if (!l)
		return;
	free_all(&l->unproven);
	free_all(&l->lingering);
	if (l->pid == getpid()) {
		if (l->id)
			rdma_destroy_id(l->id);
		if (l->completions)
			ibv_destroy_comp_channel(l->completions);
		if (l->events)
			rdma_destroy_event_channel(l->events);
	}
	if (l->epoll >= 0)
		close(l->epoll);
	if (l->wake_fd >= 0)
		close(l->wake_fd);
	free(l);
}

void verbs_wake(struct fabric_listener *base)
{
	const struct verbs_listener *l = (struct verbs_listener *)base;
	const uint64_t one = 1;
	int saved_errno = errno;

	if (write(l->wake_fd, &one, sizeof(one)) < 0)
		errno = saved_errno; /* the counter is full: it is awake */
}

int verbs_loopback(struct fabric_listener *base, struct fabric_endpoint **result)
{
	struct verbs_listener *l = (struct verbs_listener *)base;
	struct verbs_endpoint *ep;
	int ret = verbs_endpoint_new(l->fabric, VERBS_LOOPBACK, &ep);

	if (ret)
		return ret;
	ep->listener = l;
	snprintf(ep->address, sizeof(ep->address), "%s", l->base.address);
	ret = verbs_half_loop(ep);
	if (ret) {
		verbs_endpoint_free(ep);
		return ret;
	}
	*result = &ep->base;
	return 0;
}

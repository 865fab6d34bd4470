/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's events. Sockets, process descriptors and the wake-up are watched by one epoll, whose
 * answers are kept and used up one by one: with nothing to do next_event costs one system call.
 *
 * A connection is unproven until its hello; FABRIC_CONNECTED comes after that, and nothing at all
 * of a peer that says something else. There are at most SHM_MAX_UNPROVEN, each for
 * SHM_UNPROVEN_NS.
 *
 * A peer ends by its goodbye, its socket's end or its process' end. What it sent before is still
 * delivered, and then FABRIC_CLOSED, once. A process descriptor that can't be watched is looked
 * at every SHM_LOOK_NS (shm_process.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "shm/shm_private.h"

#define PAUSE_NS  100000000ull /* without accepting, when descriptors have run out altogether */
#define MAX_LOOKS 16

static bool watch(const struct shm_listener *l, struct shm_endpoint *ep, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = ep };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Takes the endpoint out of everything that could still bring events for it. */
void shm_forget(struct shm_listener *l, struct shm_endpoint *ep)
{
	if (ep->state == SHM_UNPROVEN) {
		TAILQ_REMOVE(&l->unproven, ep, link);
		l->unproven_count--;
	} else if (ep->state == SHM_ENDING) {
		TAILQ_REMOVE(&l->ending, ep, link);
	} else if (ep->state == SHM_OPEN && ep->silent) {
		TAILQ_REMOVE(&l->silent, ep, link);
	}
	ep->state = SHM_ENDED;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, ep->socket, NULL);
	if (ep->pidfd >= 0 && !ep->silent)
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, ep->pidfd, NULL);
	for (int i = l->ready_at; i < l->ready_count; i++)
		if (l->ready[i].data.ptr == ep)
			l->ready[i].data.ptr = NULL;
}

static void drop(struct shm_listener *l, struct shm_endpoint *ep, const char *why)
{
	base_log(RAMPS_LOG_INFO, "%s: dropping a connection: %s", l->base.address, why);
	shm_forget(l, ep);
	shm_endpoint_free(ep);
}

static void stop_accepting(struct shm_listener *l)
{
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, l->socket, NULL);
	l->accept_after_ns = base_now_ns() + PAUSE_NS;
}

static void resume_accepting(struct shm_listener *l)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = l };

	if (l->reserve < 0)
		l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->socket, &event) == 0)
		l->accept_after_ns = 0;
	else
		l->accept_after_ns = base_now_ns() + PAUSE_NS;
}

/*
 * No descriptors left: the caller is turned away by the one in reserve, or it would be there for
 * ever.
 */
static void turn_away(struct shm_listener *l)
{
	int fd;

	base_log(RAMPS_LOG_ERROR, "%s: no descriptors left for a connection; raise ulimit -n",
		 l->base.address);
	if (l->reserve >= 0)
		close(l->reserve);
	fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (l->reserve < 0)
		stop_accepting(l);
}

static void accept_one(struct shm_listener *l)
{
	int fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct shm_endpoint *ep;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			turn_away(l);
		else if (errno == ENOMEM || errno == ENOBUFS)
			stop_accepting(l);
		return;
	}
	if (shm_endpoint_new(l->fabric, SHM_ACCEPTED, &ep)) {
		close(fd);
		return;
	}
	ep->socket = fd;
	ep->listener = l;
	ep->bells = l->bells;
	ep->accepted_ns = ep->looked_ns;
	memcpy(ep->address, "a new client", sizeof("a new client"));
	if (l->unproven_count == SHM_MAX_UNPROVEN)
		drop(l, TAILQ_FIRST(&l->unproven), "too many have not said hello");
	TAILQ_INSERT_TAIL(&l->unproven, ep, link);
	l->unproven_count++;
	if (!watch(l, ep, fd))
		drop(l, ep, "it can't be watched");
}

/* Whether the peer of an unproven connection is one of us now. */
static bool prove(struct shm_listener *l, struct shm_endpoint *ep, struct shm_frame *hello)
{
	const struct shm_frame welcome = {
		.kind = SHM_WELCOME,
		.fds = { l->bells_send_fd, l->pidfd },
	};

	if (hello->kind != SHM_HELLO || hello->fds[0] < 0) {
		drop(l, ep, "it began with something else than a hello");
		return false;
	}
	if (shm_send_frame(ep->socket, &welcome, NULL)) {
		drop(l, ep, "it does not listen");
		return false;
	}
	if (hello->version != SHM_VERSION) {
		drop(l, ep, "it is of another version");
		return false;
	}
	if (shm_know_peer(ep, hello->fds[0])) {
		drop(l, ep, "it gave a wrong process descriptor");
		return false;
	}
	hello->fds[0] = -1;
	if (!ep->silent && !watch(l, ep, ep->pidfd)) {
		drop(l, ep, "its process can't be watched");
		return false;
	}
	TAILQ_REMOVE(&l->unproven, ep, link);
	l->unproven_count--;
	ep->state = SHM_OPEN;
	if (ep->silent)
		TAILQ_INSERT_TAIL(&l->silent, ep, link);
	return true;
}

static int closed(struct shm_listener *l, struct shm_endpoint *ep, struct fabric_event *event)
{
	shm_forget(l, ep);
	ep->broken = true;
	event->kind = FABRIC_CLOSED;
	event->len_bytes = 0;
	event->endpoint = &ep->base;
	return 1;
}

static int take_hello(struct shm_listener *l, struct shm_endpoint *ep, struct fabric_event *event)
{
	struct shm_frame frame;
	int ret = shm_recv_frame(ep->socket, &frame, event->message);
	bool proven;

	if (ret == -EAGAIN)
		return 0;
	if (ret != 1) {
		drop(l, ep, ret ? "it does not speak our language" : "it left without a hello");
		return 0;
	}
	proven = prove(l, ep, &frame);
	shm_drop_fds(&frame);
	if (!proven)
		return 0;
	event->kind = FABRIC_CONNECTED;
	event->len_bytes = 0;
	event->endpoint = &ep->base;
	return 1;
}

/* Its process is gone. What it sent before that is still to be taken. */
static void ending(struct shm_listener *l, struct shm_endpoint *ep)
{
	if (ep->silent)
		TAILQ_REMOVE(&l->silent, ep, link);
	ep->state = SHM_ENDING;
	TAILQ_INSERT_TAIL(&l->ending, ep, link);
}

/* Takes what there is of a peer. 1: *event is set. */
static int take(struct shm_listener *l, struct shm_endpoint *ep, struct fabric_event *event)
{
	struct shm_frame frame;
	int ret;

	if (ep->state == SHM_UNPROVEN)
		return take_hello(l, ep, event);
	ret = shm_recv_frame(ep->socket, &frame, event->message);
	if (ret == -EAGAIN) {
		if (ep->state == SHM_ENDING)
			return closed(l, ep, event);
		if (shm_pidfd_ended(ep->pidfd))
			ending(l, ep);
		return 0;
	}
	if (ret != 1)
		return closed(l, ep, event);
	shm_drop_fds(&frame);
	if (frame.kind == SHM_BYE)
		ep->goodbye = true;
	if (frame.kind != SHM_MESSAGE || !frame.payload_bytes) {
		if (frame.kind != SHM_BYE)
			base_log(RAMPS_LOG_WARNING, "%s: rubbish from %s", l->base.address, ep->address);
		return closed(l, ep, event);
	}
	event->kind = FABRIC_MESSAGE;
	event->len_bytes = frame.payload_bytes;
	event->endpoint = &ep->base;
	return 1;
}

static void look_at_silent(struct shm_listener *l, uint64_t now_ns)
{
	struct shm_endpoint *ep, *next;

	if (now_ns < l->silent_after_ns)
		return;
	l->silent_after_ns = now_ns + SHM_LOOK_NS;
	for (ep = TAILQ_FIRST(&l->silent); ep; ep = next) {
		next = TAILQ_NEXT(ep, link);
		if (shm_pidfd_ended(ep->pidfd))
			ending(l, ep);
	}
}

/* What time alone brings. */
static void expire(struct shm_listener *l)
{
	struct shm_endpoint *ep;
	uint64_t now_ns;

	if (!l->unproven_count && !l->accept_after_ns && TAILQ_EMPTY(&l->silent))
		return;
	now_ns = base_now_ns();
	look_at_silent(l, now_ns);
	while ((ep = TAILQ_FIRST(&l->unproven)) && now_ns - ep->accepted_ns > SHM_UNPROVEN_NS)
		drop(l, ep, "it said no hello in time");
	if (l->accept_after_ns && now_ns >= l->accept_after_ns)
		resume_accepting(l);
}

/* How many answers there are, after at most timeout_ms; an error if none can come any more. */
static int look(struct shm_listener *l, int timeout_ms)
{
	int count = epoll_wait(l->epoll, l->ready, SHM_EVENTS, timeout_ms);

	l->ready_at = 0;
	l->ready_count = count < 0 ? 0 : count;
	if (count < 0 && errno != EINTR)
		return base_fail(-EIO, "the server's descriptors are gone: %s", strerrordesc_np(errno));
	return l->ready_count;
}

int shm_next_event(struct fabric_listener *base, struct fabric_event *event)
{
	struct shm_listener *l = (struct shm_listener *)base;
	int ret;

	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		struct shm_endpoint *ep;

		while ((ep = TAILQ_FIRST(&l->ending)))
			if (take(l, ep, event))
				return 1;
		while (l->ready_at < l->ready_count) {
			void *what = l->ready[l->ready_at++].data.ptr;

			if (what == &l->wake_fd)
				l->woken = true;
			else if (what == l)
				accept_one(l);
			else if (what && take(l, what, event))
				return 1;
		}
		if (!TAILQ_EMPTY(&l->ending))
			continue;
		expire(l);
		ret = look(l, 0);
		if (ret <= 0 && TAILQ_EMPTY(&l->ending))
			return ret;
	}
	return 0;
}

int shm_wait(struct fabric_listener *base, uint64_t deadline_ns)
{
	struct shm_listener *l = (struct shm_listener *)base;
	uint64_t now_ns, left_ms = INT32_MAX;

	if (l->woken || l->ready_at < l->ready_count || !TAILQ_EMPTY(&l->ending)) {
		l->woken = false;
		return 0;
	}
	if (deadline_ns != BASE_FOREVER) {
		now_ns = base_now_ns();
		left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0;
		if (left_ms > INT32_MAX)
			left_ms = INT32_MAX;
	}
	if ((l->unproven_count || l->accept_after_ns) && left_ms > PAUSE_NS / NS_PER_MS)
		left_ms = PAUSE_NS / NS_PER_MS;
	if ((!TAILQ_EMPTY(&l->silent) || l->look_soon) && left_ms > SHM_LOOK_NS / NS_PER_MS)
		left_ms = SHM_LOOK_NS / NS_PER_MS;
	l->look_soon = false;
	look(l, (int)left_ms);
	for (int i = 0; i < l->ready_count; i++)
		if (l->ready[i].data.ptr == &l->wake_fd)
			l->ready[i].data.ptr = NULL; /* this wait is what it woke */
	return 0;
}

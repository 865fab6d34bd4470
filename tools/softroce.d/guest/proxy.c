/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softroce-ssh talks to the agent of its guest, which hands the frames on to the
 * host under a session number of its own; the host knows where the node is.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_PROXIES 512

void proxy_accept(struct agent *a)
{
	int fd = accept4(a->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct proxy *p = NULL;
	size_t n = 0;

	for (struct proxy *q = a->proxies; q; q = q->next)
		n++;
	if (fd >= 0 && n < MAX_PROXIES)
		p = calloc(1, sizeof(*p));

	if (!p) {
		if (fd >= 0)
			close(fd);
		return;
	}
	p->fd = fd;
	p->session = AGENT_PROXY | a->next_proxy++;
	p->next = a->proxies;
	a->proxies = p;
}

void proxy_take(struct agent *a, const struct sf_header *h, const char *payload)
{
	struct proxy *p = a->proxies;

	while (p && p->session != h->session)
		p = p->next;
	if (!p)
		return;
	sf_put(&p->tx, h->type, 1, payload, h->len_bytes);
	if (h->type == SF_EXIT || h->type == SF_FAIL)
		p->ended = true;
}

size_t proxy_poll(struct agent *a, struct pollfd *polls, size_t n)
{
	for (struct proxy *p = a->proxies; p; p = p->next) {
		short events = 0;

		if (sf_buf_len(&a->tx) < AGENT_TX_LIMIT)
			events |= POLLIN;
		if (sf_buf_len(&p->tx))
			events |= POLLOUT;
		polls[n] = (struct pollfd){ .fd = p->fd, .events = events };
		p->poll = &polls[n++];
	}
	return n;
}

static void forward(struct agent *a, struct proxy *p)
{
	struct sf_header h;
	char *payload;
	long n = sf_buf_fill(&p->rx, p->fd);

	if (n <= 0) {
		p->gone = n != -EAGAIN && n != -EINTR;
		return;
	}
	while ((payload = sf_peek(&p->rx, &h))) {
		sf_put(&a->tx, h.type, p->session, payload, h.len_bytes);
		sf_buf_drop(&p->rx, sizeof(h) + h.len_bytes);
	}
}

static void serve(struct agent *a, struct proxy *p)
{
	short ready = p->poll ? p->poll->revents : 0;
	long n = 0;

	p->poll = NULL;
	if (ready & POLLOUT && sf_buf_len(&p->tx))
		n = sf_buf_flush(&p->tx, p->fd);
	if (n < 0 && n != -EAGAIN && n != -EINTR)
		p->gone = true;
	else if (ready & (POLLIN | POLLHUP | POLLERR))
		forward(a, p);
	if (p->gone && !p->ended)
		sf_put(&a->tx, SF_CLOSE, p->session, NULL, 0);
	if (p->ended && !sf_buf_len(&p->tx))
		p->gone = true;
}

void proxy_serve(struct agent *a)
{
	struct proxy **link = &a->proxies;

	while (*link) {
		struct proxy *p = *link;

		serve(a, p);
		if (!p->gone) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		close(p->fd);
		sf_buf_free(&p->tx);
		sf_buf_free(&p->rx);
		free(p);
	}
}

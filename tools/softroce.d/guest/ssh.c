/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * softroce-ssh NODE command: a remote shell inside a softroce cluster. Words are
 * joined by spaces and given to the node's /bin/sh, as ssh does; the options of
 * ssh that launchers pass are taken and ignored.
 */
#include "frame.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOST 255

struct client {
	int fd;
	bool input_open;
	uint32_t may_send_bytes;
	struct sf_buf tx;
	struct sf_buf rx;
};

static int lost(const char *what)
{
	fprintf(stderr, "softroce-ssh: %s\n", what);
	return LOST;
}

static int connect_agent(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = SF_AGENT_SOCKET };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void put_open(struct client *c, const char *node, char **words)
{
	static const char head[] = "\0shell\0"
				   "1";
	struct sf_buf open = { 0 };

	sf_buf_put(&open, node, strlen(node) + 1);
	sf_buf_put(&open, head, sizeof(head));
	for (char **w = words; *w; w++) {
		if (w != words)
			sf_buf_put(&open, " ", 1);
		sf_buf_put(&open, *w, strlen(*w));
	}
	sf_buf_put(&open, "", 1);
	sf_put(&c->tx, SF_OPEN, 1, open.data, sf_buf_len(&open));
	sf_buf_free(&open);
}

static bool write_all(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = fd, .events = POLLOUT };

			poll(&p, 1, -1);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static void read_input(struct client *c)
{
	char data[SF_MAX_DATA];
	size_t room = c->may_send_bytes < sizeof(data) ? c->may_send_bytes : sizeof(data);
	ssize_t n = read(STDIN_FILENO, data, room);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		c->input_open = false;
		n = 0;
	}
	sf_put(&c->tx, SF_STDIN, 1, data, (size_t)n);
	c->may_send_bytes -= (uint32_t)n;
}

/* The exit status once it is known, else -1. */
static int take_frame(struct client *c, const struct sf_header *h, const char *payload)
{
	switch (h->type) {
	case SF_STDOUT:
	case SF_STDERR:
		if (!write_all(h->type == SF_STDOUT ? STDOUT_FILENO : STDERR_FILENO, payload, h->len_bytes))
			return LOST;
		sf_put_u32(&c->tx, SF_CREDIT, 1, h->len_bytes);
		return -1;
	case SF_CREDIT:
		c->may_send_bytes += sf_u32(payload, h);
		return -1;
	case SF_EXIT:
		return (int)sf_u32(payload, h);
	case SF_FAIL:
		fprintf(stderr, "softroce-ssh: %.*s\n", (int)h->len_bytes, payload);
		return LOST;
	default:
		return -1;
	}
}

static int take_frames(struct client *c)
{
	struct sf_header h;
	char *payload;

	while ((payload = sf_peek(&c->rx, &h))) {
		int status = take_frame(c, &h, payload);

		sf_buf_drop(&c->rx, sizeof(h) + h.len_bytes);
		if (status >= 0)
			return status;
	}
	return -1;
}

static int run(struct client *c)
{
	int status = -1;

	while (status < 0) {
		bool input = c->input_open && c->may_send_bytes && sf_buf_len(&c->tx) < SF_WINDOW;
		struct pollfd p[2] = {
			{ .fd = c->fd, .events = (short)(sf_buf_len(&c->tx) ? POLLIN | POLLOUT : POLLIN) },
			{ .fd = input ? STDIN_FILENO : -1, .events = POLLIN },
		};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents)
			read_input(c);
		if (p[0].revents & POLLOUT && sf_buf_flush(&c->tx, c->fd) < 0)
			return lost("the connection broke");
		if (p[0].revents & (POLLIN | POLLHUP)) {
			if (sf_buf_fill(&c->rx, c->fd) <= 0)
				return lost("the connection broke");
			status = take_frames(c);
		}
	}
	return status;
}

int softroce_ssh(int argc, char **argv)
{
	struct client c = { .input_open = true, .may_send_bytes = SF_WINDOW };
	int opt;

	/* "+": options end at the node's name. */
	while ((opt = getopt(argc, argv, "+46AaCfgKkMNnqsTtVvXxYb:c:D:e:F:i:L:l:m:o:p:R:S:w:")) != -1) {
		if (opt == '?')
			return LOST;
		if (opt == 'n')
			c.input_open = false;
	}
	if (argc - optind < 2)
		return lost("usage: softroce-ssh NODE command");
	signal(SIGPIPE, SIG_IGN);
	c.fd = connect_agent();
	if (c.fd < 0)
		return lost("no agent here: is this a node of a softroce cluster?");
	put_open(&c, argv[optind], argv + optind + 1);
	if (!c.input_open)
		sf_put(&c.tx, SF_STDIN, 1, NULL, 0);
	return run(&c);
}

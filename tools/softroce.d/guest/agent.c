/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The first process of a softroce guest. It runs what the host asks for over a
 * virtio-serial port, hands on what softroce-ssh of this guest asks for, and
 * reaps what nobody waits for. One thread, one poll loop, no blocking call.
 */
#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_POLLS 4096

int64_t agent_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int fail(const char *what)
{
	fprintf(stderr, "softroce: failed: agent: %s: %s\n", what, strerror(errno));
	return 1;
}

/* The guest has one port, so its name needs no look. */
static int open_port(void)
{
	DIR *dir = opendir("/sys/class/virtio-ports");
	struct dirent *d;
	char path[300];
	int fd = -1;

	while (dir && fd < 0 && (d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/dev/%s", d->d_name);
		fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
	if (dir)
		closedir(dir);
	return fd;
}

static int open_listener(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = SF_AGENT_SOCKET };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 128) < 0)
		return -1;
	return fd;
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void reap(struct agent *a)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(a->signals, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		command_reaped(a, pid, status);
}

static void take_frames(struct agent *a)
{
	struct sf_header h;
	char *payload;

	while ((payload = sf_peek(&a->rx, &h))) {
		if (h.session & AGENT_PROXY)
			proxy_take(a, &h, payload);
		else if (h.type == SF_OPEN)
			command_open(a, h.session, payload, h.len_bytes);
		else
			command_take(a, &h, payload);
		sf_buf_drop(&a->rx, sizeof(h) + h.len_bytes);
	}
}

static int serve_port(struct agent *a, short ready)
{
	long n = 1;

	if (ready & POLLOUT && sf_buf_len(&a->tx))
		n = sf_buf_flush(&a->tx, a->port);
	if (n < 0 && n != -EAGAIN && n != -EINTR)
		return -1;
	if (!(ready & (POLLIN | POLLHUP)))
		return 0;
	n = sf_buf_fill(&a->rx, a->port);
	if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR))
		return -1;
	take_frames(a);
	return 0;
}

static int loop(struct agent *a)
{
	static struct pollfd p[MAX_POLLS];

	for (;;) {
		short events = (short)(sf_buf_len(&a->tx) ? POLLIN | POLLOUT : POLLIN);
		size_t n = 3;

		p[0] = (struct pollfd){ .fd = a->port, .events = events };
		p[1] = (struct pollfd){ .fd = a->signals, .events = POLLIN };
		p[2] = (struct pollfd){ .fd = a->listener, .events = POLLIN };
		n = command_poll(a, p, n);
		n = proxy_poll(a, p, n);
		if (poll(p, n, command_timeout_ms(a)) < 0 && errno != EINTR)
			return fail("poll");
		if (p[1].revents)
			reap(a);
		command_serve(a);
		proxy_serve(a);
		if (p[2].revents)
			proxy_accept(a);
		if (serve_port(a, p[0].revents) < 0)
			return fail("the host closed the port");
	}
}

int main(int argc, char **argv)
{
	static struct agent a;
	const char *node = getenv("SOFTROCE_NODE");

	if (strstr(argv[0], "softroce-ssh"))
		return softroce_ssh(argc, argv);
	a.signals = open_signals();
	a.port = open_port();
	if (a.port < 0)
		return fail("virtio-serial port");
	a.listener = open_listener();
	if (a.listener < 0)
		return fail(SF_AGENT_SOCKET);
	node = node ? node : "?";
	sf_put(&a.tx, SF_HELLO, 0, node, strlen(node));
	return loop(&a);
}

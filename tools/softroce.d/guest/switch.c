/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * switch FD...: an Ethernet switch between machines, for users who may not make a
 * network namespace. Each descriptor is a stream to one QEMU (-netdev socket,fd=),
 * where each packet follows its length in 4 bytes, big-endian. Nothing is lost
 * while a machine reads: a full queue towards one stops what is read from others.
 * A machine that reads nothing for a second, a stopped one, is not waited for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_PORTS   64
#define MAX_PACKET  65536u
#define QUEUE_BYTES (1u << 20)
#define FULL_BYTES  (QUEUE_BYTES - MAX_PACKET - 4)
#define PATIENCE_MS 1000

struct port {
	int fd;
	unsigned char mac[6];
	bool known;
	int64_t waits_since_ms; /* its queue is not empty and does not move since then */
	size_t in_len;
	size_t out_start;
	size_t out_len;
	unsigned char in[2 * (MAX_PACKET + 4)];
	unsigned char out[QUEUE_BYTES];
};

static struct port *ports[MAX_PORTS];
static int nports;

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static bool stuck(const struct port *p)
{
	return p->out_len && now_ms() - p->waits_since_ms > PATIENCE_MS;
}

static void enqueue(struct port *p, const unsigned char *data, size_t len)
{
	if (p->out_len + len > QUEUE_BYTES)
		return; /* only where stuck() */
	if (p->out_start + p->out_len + len > QUEUE_BYTES) {
		memmove(p->out, p->out + p->out_start, p->out_len);
		p->out_start = 0;
	}
	if (!p->out_len)
		p->waits_since_ms = now_ms();
	memcpy(p->out + p->out_start + p->out_len, data, len);
	p->out_len += len;
}

static void forward(struct port *from, const unsigned char *packet, size_t len)
{
	const unsigned char *to = packet + 4;
	struct port *target = NULL;

	if (len < 4 + 14)
		return;
	memcpy(from->mac, packet + 4 + 6, 6);
	from->known = true;
	for (int i = 0; i < nports && !(to[0] & 1); i++)
		if (ports[i] != from && ports[i]->known && !memcmp(ports[i]->mac, to, 6))
			target = ports[i];
	for (int i = 0; i < nports; i++)
		if (ports[i] != from && ports[i]->fd >= 0 && (!target || ports[i] == target))
			enqueue(ports[i], packet, len);
}

static bool someone_is_full(void)
{
	for (int i = 0; i < nports; i++)
		if (ports[i]->out_len > FULL_BYTES && !stuck(ports[i]))
			return true;
	return false;
}

static void forward_all(struct port *p)
{
	size_t at = 0;

	while (p->in_len - at >= 4 && !someone_is_full()) {
		uint32_t len;

		memcpy(&len, p->in + at, 4);
		len = ntohl(len);
		if (len > MAX_PACKET) {
			fprintf(stderr, "switch: packet of %u bytes\n", len);
			exit(1);
		}
		if (p->in_len - at < 4 + len)
			break;
		forward(p, p->in + at, 4 + len);
		at += 4 + len;
	}
	memmove(p->in, p->in + at, p->in_len - at);
	p->in_len -= at;
}

static void gone(struct port *p)
{
	close(p->fd);
	p->fd = -1;
	p->out_len = p->in_len = 0;
	p->known = false;
}

static void take(struct port *p)
{
	ssize_t n = read(p->fd, p->in + p->in_len, sizeof(p->in) - p->in_len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		gone(p);
	else
		p->in_len += (size_t)n;
}

static void give(struct port *p)
{
	ssize_t n = write(p->fd, p->out + p->out_start, p->out_len);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		gone(p);
		return;
	}
	p->out_start += (size_t)n;
	p->out_len -= (size_t)n;
	p->waits_since_ms = now_ms();
	if (!p->out_len)
		p->out_start = 0;
}

static bool serve(void)
{
	struct pollfd polls[MAX_PORTS];
	bool full = someone_is_full(), alive = false;

	for (int i = 0; i < nports; i++) {
		struct port *p = ports[i];
		bool room = p->in_len < sizeof(p->in);

		alive |= p->fd >= 0;
		polls[i] = (struct pollfd){ .fd = p->fd };
		if (room && !full)
			polls[i].events |= POLLIN;
		if (p->out_len)
			polls[i].events |= POLLOUT;
	}
	if (poll(polls, (nfds_t)nports, full ? 100 : -1) < 0 && errno != EINTR)
		return false;
	for (int i = 0; i < nports; i++) {
		if (ports[i]->fd >= 0 && polls[i].revents & POLLOUT && ports[i]->out_len)
			give(ports[i]);
		if (ports[i]->fd >= 0 && polls[i].revents & (POLLIN | POLLHUP | POLLERR))
			take(ports[i]);
		forward_all(ports[i]);
	}
	return alive;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	for (int i = 1; i < argc && nports < MAX_PORTS; i++) {
		struct port *p = calloc(1, sizeof(*p));

		if (!p)
			return 1;
		p->fd = atoi(argv[i]);
		fcntl(p->fd, F_SETFL, O_NONBLOCK);
		ports[nports++] = p;
	}
	while (serve())
		;
	return 0;
}

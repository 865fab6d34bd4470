/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Redis by its Unix socket, one request at a time. Prints nanoseconds for one.
 *
 *   peer_redis SOCKET incrby|get [MS]
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench.h"

struct peer {
	int socket;
	const char *request;
	char first; /* of the answer */
};

static void ask(void *arg, uint64_t n)
{
	const struct peer *peer = arg;
	size_t length = strlen(peer->request);
	char answer[64];

	while (n--) {
		ssize_t got;

		bench_need(write(peer->socket, peer->request, length) == (ssize_t)length,
			   "redis takes no request: %s", strerror(errno));
		got = read(peer->socket, answer, sizeof(answer));
		bench_need(got > 2 && answer[0] == peer->first && answer[got - 1] == '\n',
			   "redis answered \"%.*s\"", (int)(got > 0 ? got : 0), answer);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	struct peer peer = {
		.request = "*3\r\n$6\r\nINCRBY\r\n$1\r\nk\r\n$1\r\n1\r\n",
		.first = ':',
	};

	bench_need(argc >= 3 && (!strcmp(argv[2], "incrby") || !strcmp(argv[2], "get")),
		   "usage: peer_redis SOCKET incrby|get [MS]");
	bench_need(strlen(argv[1]) < sizeof(where.sun_path), "the socket's path is too long");
	strcpy(where.sun_path, argv[1]);
	peer.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bench_need(peer.socket >= 0 && !connect(peer.socket, (struct sockaddr *)&where, sizeof(where)),
		   "no redis at %s: %s", argv[1], strerror(errno));
	ask(&peer, 1);
	if (!strcmp(argv[2], "get")) {
		peer.request = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
		peer.first = '$';
	}
	printf("%.3f\n", bench_time(ask, &peer, bench_number(argc, argv, 3, 100)));
	return 0;
}

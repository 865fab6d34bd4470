/* SPDX-License-Identifier: BSD-2-Clause */
/* The client's side of a connection: how it begins and ends. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "shm/shm_private.h"

/* Messages leave room in the socket's buffer for the goodbye. */
#define SEND_BUFFER_BYTES 65536

static int refused(const char *address, const char *path, int code)
{
	switch (code) {
	case -ENOENT:
	case -ENOTDIR:
	case -ECONNREFUSED:
		return base_fail(-ECONNREFUSED,
				 "no server at %s (%s: %s); start one, or check RAMPS_SHM_DIR",
				 address, path, strerrordesc_np(-code));
	case -EAGAIN:
		return base_fail(-ETIMEDOUT, "the server at %s does not take connections in time",
				 address);
	case -EMFILE:
	case -ENFILE:
		return base_fail(-EMFILE, "no descriptors left to connect to %s; raise ulimit -n",
				 address);
	case -EPERM:
	case -EACCES:
		return base_fail(-EACCES, "connecting to %s (%s): %s", address, path,
				 strerrordesc_np(-code));
	default:
		return base_fail(code, "connecting to %s (%s): %s", address, path,
				 strerrordesc_np(-code));
	}
}

/* Connects the socket, waiting for room in the server's queue until the deadline. */
static int connect_socket(struct shm_endpoint *ep, int dir, const char *directory, uint64_t deadline_ns)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	const int buffer = SEND_BUFFER_BYTES;

	shm_socket_path(dir, directory, where.sun_path, sizeof(where.sun_path));
	ep->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (ep->socket < 0)
		return refused(ep->address, directory, -errno);
	setsockopt(ep->socket, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	for (;;) {
		uint64_t now_ns = base_now_ns();
		uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
		struct timeval left = {
			/* zero would be for ever */
			.tv_sec = (time_t)(left_ns / NS_PER_S % 1000000),
			.tv_usec = (suseconds_t)(left_ns % NS_PER_S / 1000) + 1,
		};

		if (left.tv_usec >= 1000000)
			left.tv_usec = 999999;
		setsockopt(ep->socket, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left));
		if (!connect(ep->socket, (struct sockaddr *)&where, sizeof(where)))
			return 0;
		if (errno != EINTR)
			return refused(ep->address, directory, -errno);
	}
}

static int send_hello(struct shm_endpoint *ep)
{
	struct shm_frame hello = { .kind = SHM_HELLO, .fds = { -1, -1 } };
	int ret;

	hello.fds[0] = shm_pidfd_open(getpid());
	if (hello.fds[0] < 0)
		return refused(ep->address, "its own process", hello.fds[0]);
	ret = shm_send_frame(ep->socket, &hello, NULL);
	close(hello.fds[0]);
	if (ret == -EPIPE || ret == -ECONNRESET)
		ret = -ECONNREFUSED;
	return ret ? refused(ep->address, "its socket", ret) : 0;
}

static int take_welcome(struct shm_endpoint *ep, struct shm_frame *frame)
{
	void *bells;

	if (frame->version != SHM_VERSION)
		return base_fail(-EPROTONOSUPPORT,
				 "the server at %s speaks version %u of the shm fabric, this is %u",
				 ep->address, frame->version, SHM_VERSION);
	if (frame->kind != SHM_WELCOME || frame->fds[1] < 0)
		return base_fail(-EPROTO, "the server at %s gave a wrong answer", ep->address);
	bells = mmap(NULL, SHM_BELLS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, frame->fds[0], 0);
	if (bells == MAP_FAILED)
		return base_fail(-errno, "mapping the bells of %s: %s", ep->address,
				 strerrordesc_np(errno));
	madvise(bells, SHM_BELLS_BYTES, MADV_DONTFORK);
	ep->bells = bells;
	ep->pidfd = frame->fds[1];
	ep->silent = shm_pidfd_silent(ep->pidfd);
	frame->fds[1] = -1;
	return 0;
}

static int wait_welcome(struct shm_endpoint *ep, uint64_t deadline_ns)
{
	unsigned char payload[FABRIC_MAX_MESSAGE_BYTES];
	struct shm_frame frame;
	int ret = shm_wait_socket(ep, deadline_ns);

	if (ret == -EAGAIN)
		return base_fail(-ETIMEDOUT, "the server at %s is there but did not answer", ep->address);
	if (ret)
		return ret;
	ret = shm_recv_frame(ep->socket, &frame, payload);
	if (ret == 0 || ret == -EAGAIN)
		return base_fail(-ECONNREFUSED,
				 "the server at %s closed the connection; is it ending, or out of "
				 "descriptors?",
				 ep->address);
	if (ret < 0)
		return refused(ep->address, "its answer", ret);
	ret = take_welcome(ep, &frame);
	shm_drop_fds(&frame);
	return ret;
}

int shm_connect(struct fabric *base, const char *address, uint64_t deadline_ns,
		struct fabric_endpoint **result)
{
	struct shm_fabric *fabric = (struct shm_fabric *)base;
	char directory[SHM_PATH_BYTES];
	struct shm_endpoint *ep;
	int dir, ret;

	ret = shm_directory(address, directory, sizeof(directory));
	if (ret)
		return ret;
	ret = shm_endpoint_new(fabric, SHM_CLIENT, &ep);
	if (ret)
		return ret;
	snprintf(ep->address, sizeof(ep->address), "%s", address);
	dir = shm_open_directory(directory, false);
	if (dir < 0) {
		ret = dir == -EACCES ? dir : refused(address, directory, dir);
		goto fail;
	}
	ret = connect_socket(ep, dir, directory, deadline_ns);
	close(dir);
	if (ret)
		goto fail;
	ret = send_hello(ep);
	if (ret)
		goto fail;
	ret = wait_welcome(ep, deadline_ns);
	if (ret)
		goto fail_leave;
	ep->state = SHM_OPEN;
	*result = &ep->base;
	return 0;
fail_leave:
	shm_leave(ep);
fail:
	base_error_peer(address);
	shm_endpoint_free(ep);
	return ret;
}

/*
 * Says goodbye, when all is unmapped: the server then knows that nothing can land any more and
 * does not kill this process. Regions that another endpoint maps too stay mapped, but not for
 * this one.
 */
void shm_leave(struct shm_endpoint *ep)
{
	const struct shm_frame bye = { .kind = SHM_BYE, .fds = { -1, -1 } };
	const int buffer = 4 * SEND_BUFFER_BYTES;

	for (int i = 0; i < FABRIC_MAX_REGIONS; i++) {
		if (ep->mappings[i])
			shm_unmap_file(ep->fabric, ep->mappings[i], true);
		ep->mappings[i] = NULL;
		ep->regions[i].rights = 0;
	}
	setsockopt(ep->socket, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	shm_send_frame(ep->socket, &bye, NULL);
}

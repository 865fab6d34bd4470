/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The channel: frames on a Unix socket that keeps packets whole, with descriptors beside them.
 *
 *   client                        server
 *   HELLO (its pidfd)        ->
 *                            <-   WELCOME (bells, its pidfd)
 *                            <-   GRANT (a region's memory)      any time, each region once
 *   MESSAGE                  <->  MESSAGE
 *   BYE                      ->                                  everything is unmapped
 *
 * A frame of another version has the same first eight bytes.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "shm/shm_private.h"

#define FRAME_MAGIC 0x6d687372u /* "rshm" */
#define MAX_FDS     2

struct wire {
	uint32_t magic;
	uint16_t kind, version;
	uint32_t region, rights;
	uint64_t len_bytes;
};

/* Sends one frame: 0, -EAGAIN, -EPIPE and others; no text. payload may be NULL. */
int shm_send_frame(int socket, const struct shm_frame *frame, const void *payload)
{
	struct wire wire = {
		.magic = FRAME_MAGIC,
		.kind = frame->kind,
		.version = SHM_VERSION,
		.region = frame->region,
		.rights = frame->rights,
		.len_bytes = frame->len_bytes,
	};
	union {
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct iovec parts[2] = {
		{ .iov_base = &wire, .iov_len = sizeof(wire) },
		{ .iov_base = (void *)(uintptr_t)payload, .iov_len = frame->payload_bytes },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = payload ? 2 : 1 };
	size_t fds = frame->fds[0] < 0 ? 0 : frame->fds[1] < 0 ? 1 : 2;

	if (fds) {
		struct cmsghdr *c;

		message.msg_control = control.buf;
		message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fds * sizeof(int));
		memcpy(CMSG_DATA(c), frame->fds, fds * sizeof(int));
	}
	while (sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return errno == ENOBUFS ? -EAGAIN : -errno;
	}
	return 0;
}

void shm_drop_fds(struct shm_frame *frame)
{
	for (int i = 0; i < MAX_FDS; i++) {
		if (frame->fds[i] >= 0)
			close(frame->fds[i]);
		frame->fds[i] = -1;
	}
}

/* Keeps the first two descriptors that came, and closes any others. */
static void take_fds(struct msghdr *message, struct shm_frame *frame)
{
	int fd, kept = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (kept < MAX_FDS)
				frame->fds[kept++] = fd;
			else
				close(fd);
		}
	}
}

/*
 * Receives one frame, with up to FABRIC_MAX_MESSAGE_BYTES in payload, without blocking. 1: there
 * is one; 0: the peer closed; -EAGAIN: none; -EPROTO: rubbish; -EMFILE: its descriptors did not
 * get through.
 */
int shm_recv_frame(int socket, struct shm_frame *frame, void *payload)
{
	struct wire wire = { 0 };
	union {
		char buf[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec parts[2] = {
		{ .iov_base = &wire, .iov_len = sizeof(wire) },
		{ .iov_base = payload, .iov_len = FABRIC_MAX_MESSAGE_BYTES },
	};
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t length;
	int resets = 0;

	frame->fds[0] = frame->fds[1] = -1;
	do {
		message.msg_control = control.buf;
		message.msg_controllen = sizeof(control.buf);
		length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/* A reset is told before what the peer had sent: it may still be there. */
	} while (length < 0 && (errno == EINTR || (errno == ECONNRESET && !resets++)));
	if (length < 0)
		return errno == ECONNRESET ? 0 : -errno;
	if (!length)
		return 0;
	take_fds(&message, frame);
	*frame = (struct shm_frame){
		.magic = wire.magic,
		.kind = wire.kind,
		.version = wire.version,
		.region = wire.region,
		.rights = wire.rights,
		.len_bytes = wire.len_bytes,
		.fds = { frame->fds[0], frame->fds[1] },
	};
	if ((size_t)length < sizeof(wire) || message.msg_flags & MSG_TRUNC || wire.magic != FRAME_MAGIC) {
		shm_drop_fds(frame);
		return -EPROTO;
	}
	if (message.msg_flags & MSG_CTRUNC) {
		shm_drop_fds(frame);
		return -EMFILE;
	}
	frame->payload_bytes = (uint32_t)((size_t)length - sizeof(wire));
	return 1;
}

/* The peer is gone: the endpoint is broken for good. */
int shm_gone(struct shm_endpoint *ep)
{
	ep->broken = true;
	return base_fail(-ENOTCONN, "%s is gone; connect again", ep->address);
}

/* Waits until the socket has something or its peer ended: 0; -EAGAIN: the deadline came before. */
int shm_wait_socket(const struct shm_endpoint *ep, uint64_t deadline_ns)
{
	struct pollfd fds[2] = {
		{ .fd = ep->socket, .events = POLLIN },
		{ .fd = ep->silent ? -1 : ep->pidfd, .events = POLLIN },
	};

	for (;;) {
		uint64_t now_ns = deadline_ns == 0 ? 0 : base_now_ns();
		uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
		uint64_t sleep_ns = ep->silent && left_ns > SHM_LOOK_NS ? SHM_LOOK_NS : left_ns;
		struct timespec timeout = {
			.tv_sec = (time_t)(sleep_ns / NS_PER_S),
			.tv_nsec = (long)(sleep_ns % NS_PER_S),
		};
		bool for_ever = deadline_ns == BASE_FOREVER && !ep->silent;
		int ret = ppoll(fds, 2, for_ever ? NULL : &timeout, NULL);

		if (ret > 0 || (ep->silent && shm_pidfd_ended(ep->pidfd)))
			return 0;
		if (ret < 0 && errno != EINTR)
			return base_fail(-errno, "polling %s: %s", ep->address, strerrordesc_np(errno));
		if (!left_ns)
			return -EAGAIN;
	}
}

/* One look, one system call. */
int shm_check(struct fabric_endpoint *base)
{
	struct shm_endpoint *ep = shm_of(base);
	struct pollfd fds[2] = {
		{ .fd = ep->socket, .events = POLLRDHUP },
		{ .fd = ep->silent ? -1 : ep->pidfd, .events = POLLIN },
	};

	if (ep->broken)
		return shm_gone(ep);
	if (ep->role == SHM_LOOPBACK)
		return 0;
	if (poll(fds, 2, 0) <= 0 && !(ep->silent && shm_pidfd_ended(ep->pidfd)))
		return 0;
	return shm_gone(ep);
}

int shm_send(struct fabric_endpoint *base, const void *message, uint32_t len_bytes)
{
	const struct shm_frame frame = {
		.kind = SHM_MESSAGE,
		.fds = { -1, -1 },
		.payload_bytes = len_bytes,
	};
	struct shm_endpoint *ep = shm_of(base);
	int ret;

	if (!len_bytes || len_bytes > FABRIC_MAX_MESSAGE_BYTES)
		return base_fail(-EINVAL, "a message of %u bytes; 1 to %d are possible", len_bytes,
				 FABRIC_MAX_MESSAGE_BYTES);
	if (ep->role == SHM_LOOPBACK)
		return base_fail(-EOPNOTSUPP, "a server sends no messages to itself");
	if (ep->broken)
		return shm_gone(ep);
	ret = shm_send_frame(ep->socket, &frame, message);
	if (!ret)
		return 0;
	if (ret == -EAGAIN)
		return base_fail(ret, "%s does not take messages now", ep->address);
	return shm_gone(ep);
}

static int take_grant(struct shm_endpoint *ep, struct shm_frame *frame)
{
	const uint32_t change = FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC;
	struct shm_mapping *mapping;
	struct shm_region *region;
	int ret;

	if (frame->region >= FABRIC_MAX_REGIONS || ep->regions[frame->region].rights ||
	    !frame->rights || frame->fds[0] < 0)
		return base_fail(-EPROTO, "%s granted region %u in a wrong way", ep->address,
				 frame->region);
	ret = shm_map_file(ep->fabric, frame->fds[0], frame->len_bytes, frame->rights & change, &mapping);
	if (ret)
		return ret;
	ep->mappings[frame->region] = mapping;
	region = &ep->regions[frame->region];
	region->base = mapping->base;
	region->len_bytes = frame->len_bytes;
	region->rights = frame->rights;
	return 0;
}

/* Takes one frame. Its length if it was a message that fits; 0: it was something else. */
static int take(struct shm_endpoint *ep, struct shm_frame *frame, const void *payload,
		void *message, uint32_t len_bytes)
{
	int ret = 0;

	if (frame->kind == SHM_GRANT)
		ret = take_grant(ep, frame);
	shm_drop_fds(frame);
	if (ret) {
		ep->broken = true; /* without that region it is of no use */
		return ret;
	}
	if (frame->kind != SHM_MESSAGE)
		return 0;
	if (frame->payload_bytes > len_bytes)
		return base_fail(-EMSGSIZE, "a message of %u bytes does not fit into %u",
				 frame->payload_bytes, len_bytes);
	memcpy(message, payload, frame->payload_bytes);
	return (int)frame->payload_bytes;
}

int shm_recv(struct fabric_endpoint *base, void *message, uint32_t len_bytes, uint64_t deadline_ns)
{
	struct shm_endpoint *ep = shm_of(base);
	unsigned char payload[FABRIC_MAX_MESSAGE_BYTES];
	struct shm_frame frame = { 0 };
	bool last = false;
	int ret;

	if (ep->role != SHM_CLIENT)
		return base_fail(-EOPNOTSUPP, "a server takes messages as events");
	for (;;) {
		if (ep->broken)
			return shm_gone(ep);
		ret = shm_recv_frame(ep->socket, &frame, payload);
		if (ret == 1) {
			ret = take(ep, &frame, payload, message, len_bytes);
			if (ret)
				return ret;
			continue;
		}
		if (ret == -EMFILE) {
			ep->broken = true; /* what it granted is lost */
			return base_fail(ret, "no descriptors left for what %s grants; raise ulimit -n",
					 ep->address);
		}
		if (ret != -EAGAIN || last)
			return shm_gone(ep);
		ret = shm_wait_socket(ep, deadline_ns);
		if (ret == -EAGAIN)
			return base_fail(ret, "no message from %s in time", ep->address);
		if (ret)
			return ret;
		/*
		 * What a dying server sent is still there; a forked child of it may hold the
		 * socket.
		 */
		last = shm_pidfd_ended(ep->pidfd);
	}
}

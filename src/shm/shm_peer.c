/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's power over its peers. Memory that a process has mapped can't be taken from it:
 * nothing of it can land any more only when it said goodbye (after unmapping) or when it is no
 * more. A process descriptor, which the peer sends with its hello, tells that and takes the
 * signal without a race on process numbers (shm_process.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "shm/shm_private.h"

void shm_identity(struct fabric_endpoint *ep, unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	memcpy(identity, shm_of(ep)->identity, FABRIC_IDENTITY_BYTES);
}

/* Takes the descriptor of a hello, if it means the process that connected. */
int shm_know_peer(struct shm_endpoint *ep, int pidfd)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(ep->socket, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return -errno;
	if (peer.pid <= 0 || shm_pidfd_pid(pidfd) != peer.pid)
		return -EPROTO;
	ep->pidfd = pidfd;
	ep->silent = shm_pidfd_silent(pidfd);
	ep->peer_pid = peer.pid;
	shm_identify(peer.pid, ep->identity);
	snprintf(ep->address, sizeof(ep->address), "process %d", (int)peer.pid);
	return 0;
}

/* A descriptor of the memory with no more rights than the peer gets. */
static int memory_fd(const struct fabric_memory *memory, uint32_t rights, int *fd)
{
	char path[64];

	if (rights & (FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC)) {
		*fd = memory->fd;
		return 0;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return base_fail(errno == ENFILE ? -EMFILE : -errno,
				 "opening memory read-only for a client: %s", strerrordesc_np(errno));
	return 0;
}

static int send_grant(struct shm_endpoint *ep, uint32_t region, const struct fabric_memory *memory,
		      uint32_t rights)
{
	struct shm_frame frame = {
		.kind = SHM_GRANT,
		.region = region,
		.rights = rights,
		.len_bytes = memory->len_bytes,
		.fds = { -1, -1 },
	};
	int ret;

	if (memory->fd < 0)
		return base_fail(-EOPNOTSUPP, "memory without a file can't be granted to a process");
	ret = memory_fd(memory, rights, &frame.fds[0]);
	if (ret)
		return ret;
	ret = shm_send_frame(ep->socket, &frame, NULL);
	if (frame.fds[0] != memory->fd)
		close(frame.fds[0]);
	switch (ret) {
	case 0:
		ep->granted |= 1u << region;
		return 0;
	case -EAGAIN:
		return base_fail(ret, "%s does not take grants now", ep->address);
	case -ETOOMANYREFS:
		return base_fail(-EMFILE, "too many descriptors under way to clients");
	default:
		return shm_gone(ep);
	}
}

int shm_grant(struct fabric_endpoint *base, uint32_t region, const struct fabric_memory *memory,
	      uint32_t rights)
{
	const uint32_t all = FABRIC_MAY_READ | FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC;
	struct shm_endpoint *ep = shm_of(base);

	if (ep->role == SHM_CLIENT)
		return base_fail(-EOPNOTSUPP, "a client has nothing to grant");
	if (region >= FABRIC_MAX_REGIONS || ep->granted & 1u << region || !rights ||
	    rights & ~all || !memory->handle)
		return base_fail(-EINVAL,
				 "grant of region %u: not registered, out of range or "
				 "granted before",
				 region);
	if (ep->broken)
		return shm_gone(ep);
	if (ep->role == SHM_ACCEPTED)
		return send_grant(ep, region, memory, rights);
	ep->granted |= 1u << region;
	ep->regions[region] = (struct shm_region){
		.base = memory->base,
		.len_bytes = memory->len_bytes,
		.rights = rights,
	};
	return 0;
}

/* Discards what the peer sent, up to its goodbye. Whether its socket is closed. */
static bool drain(struct shm_endpoint *ep)
{
	unsigned char payload[FABRIC_MAX_MESSAGE_BYTES];
	struct shm_frame frame;
	int ret;

	while ((ret = shm_recv_frame(ep->socket, &frame, payload)) != -EAGAIN) {
		if (ret == 1)
			shm_drop_fds(&frame);
		if (ret == 1 && frame.kind == SHM_BYE)
			ep->goodbye = true;
		if (ret != 1 && ret != -EPROTO)
			return true;
	}
	return false;
}

/* Has the listener's wait end when the process does. */
static void watch_end(struct shm_endpoint *ep)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLONESHOT,
		.data.ptr = &ep->listener->wake_fd,
	};

	if (ep->silent) {
		ep->listener->look_soon = true;
		return;
	}
	if (epoll_ctl(ep->listener->epoll, EPOLL_CTL_MOD, ep->pidfd, &event))
		epoll_ctl(ep->listener->epoll, EPOLL_CTL_ADD, ep->pidfd, &event);
}

int shm_cut(struct fabric_endpoint *base)
{
	struct shm_endpoint *ep = shm_of(base);
	bool closed;

	if (ep->role != SHM_ACCEPTED)
		return ep->role == SHM_LOOPBACK ? 0 : base_fail(-EOPNOTSUPP, "only a server cuts");
	ep->broken = true;
	shm_forget(ep->listener, ep);
	ep->state = SHM_ENDED;
	closed = drain(ep);
	if (!ep->granted || ep->goodbye || shm_pidfd_ended(ep->pidfd))
		return 0;
	if (ep->peer_pid == getpid()) /* a thread of this process: it ends by closing */
		return closed ? 0 : -EAGAIN;
	watch_end(ep);
	if (!ep->killed) {
		base_log(RAMPS_LOG_WARNING, "killing %s to take its access away", ep->address);
		if (shm_pidfd_kill(ep->pidfd, ep->peer_pid) && errno != ESRCH)
			base_log(RAMPS_LOG_ERROR, "%s can't be killed: %s", ep->address,
				 strerrordesc_np(errno));
		ep->killed = true;
	}
	return shm_pidfd_ended(ep->pidfd) ? 0 : -EAGAIN;
}

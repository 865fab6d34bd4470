/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's power over its peers. Memory that a process has mapped can't be taken from it:
 * nothing of it can land any more only when it said goodbye (after unmapping) or when it is no
 * more. A process descriptor, which the peer sends with its hello, tells that and takes the
 * signal without a race on process numbers.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "shm/shm_private.h"

/* What fabric_identity() gives: a process, and which of those that had its number. */
struct identity {
	uint64_t boot; /* hash of the boot's id; 0: no identity */
	uint64_t started;
	uint32_t pid, reserved;
	uint64_t unused;
};

_Static_assert(sizeof(struct identity) == FABRIC_IDENTITY_BYTES, "it is stored in arenas");

int shm_pidfd_open(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

/* Readable means: all its threads are gone, and with them its mappings. */
bool shm_pidfd_ended(int pidfd)
{
	struct pollfd fd = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&fd, 1, 0) == 1;
}

/* Reads a small file whole. Its length, or -errno. */
static int read_file(const char *path, char *buf, size_t len_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = read(fd, buf, len_bytes - 1);
	ret = length < 0 ? -errno : (int)length;
	close(fd);
	buf[ret < 0 ? 0 : ret] = '\0';
	return ret;
}

static uint64_t boot_hash(void)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	char text[64] = "";

	if (read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text)) < 0)
		return 1;
	for (const char *c = text; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
	return hash ? hash : 1;
}

/* When a process began, in ticks since boot; 0: there is none. */
static uint64_t start_time(pid_t pid)
{
	char path[64], text[1024], *at;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_file(path, text, sizeof(text)) < 0)
		return 0;
	at = strrchr(text, ')'); /* the name may hold anything */
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at, ' ');
		if (at)
			at++;
	}
	return at ? strtoull(at, NULL, 10) : 0;
}

void shm_identify(pid_t pid, unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	struct identity id = {
		.boot = boot_hash(),
		.started = start_time(pid),
		.pid = (uint32_t)pid,
	};

	memcpy(identity, &id, sizeof(id));
}

void shm_identity(struct fabric_endpoint *ep, unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	memcpy(identity, shm_of(ep)->identity, FABRIC_IDENTITY_BYTES);
}

bool shm_peer_gone(struct fabric_listener *listener, const unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	struct identity id;
	bool gone = true;
	int pidfd;

	(void)listener;
	memcpy(&id, identity, sizeof(id));
	if (!id.boot || id.boot != boot_hash())
		return true;
	pidfd = shm_pidfd_open((pid_t)id.pid);
	if (pidfd == -ESRCH || pidfd == -EINVAL)
		return true;
	if (pidfd < 0)
		return false; /* can't tell */
	/* While the descriptor's process is there its number has no other owner. */
	if (start_time((pid_t)id.pid) == id.started)
		gone = shm_pidfd_ended(pidfd);
	close(pidfd);
	return gone;
}

/* The process that a process descriptor means. */
static pid_t pid_of(int pidfd)
{
	char path[64], text[512], *at;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	if (read_file(path, text, sizeof(text)) < 0)
		return -1;
	at = strstr(text, "\nPid:");
	return at ? (pid_t)strtol(at + sizeof("\nPid:") - 1, NULL, 10) : -1;
}

/* Takes the descriptor of a hello, if it means the process that connected. */
int shm_know_peer(struct shm_endpoint *ep, int pidfd)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(ep->socket, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return -errno;
	if (peer.pid <= 0 || pid_of(pidfd) != peer.pid)
		return -EPROTO;
	ep->pidfd = pidfd;
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
		if (syscall(SYS_pidfd_send_signal, ep->pidfd, SIGKILL, NULL, 0) && errno != ESRCH)
			base_log(RAMPS_LOG_ERROR, "%s can't be killed: %s", ep->address,
				 strerrordesc_np(errno));
		ep->killed = true;
	}
	return shm_pidfd_ended(ep->pidfd) ? 0 : -EAGAIN;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's place: the directory with the bells and the socket. A lock on the bells' file says
 * who has the place; the kernel gives it up when its holder dies. What a dead server left is
 * taken over: the socket is replaced, the bells are kept, as clients of the old server may still
 * ring them.
 *
 * Clients get the bells by a descriptor of their own: one that shared the listener's would share
 * its lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "shm/shm_private.h"

#define BACKLOG 4096

static int failed(const struct shm_listener *l, const char *what)
{
	int code = errno == ENFILE ? -EMFILE : -errno;

	return base_fail(code, "%s for %s (%s): %s", what, l->base.address, l->directory,
			 strerrordesc_np(errno));
}

static int in_use(const struct shm_listener *l)
{
	return base_fail(-EADDRINUSE, "another server has %s (%s)", l->base.address, l->directory);
}

/* Opens and locks the bells. -ESTALE: a server that just ended removed them in between. */
static int lock_bells(struct shm_listener *l)
{
	struct stat mine, there;

	l->bells_fd = openat(l->dir, "bells", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (l->bells_fd < 0)
		return failed(l, "opening the bells");
	if (flock(l->bells_fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? in_use(l) : failed(l, "locking the bells");
	if (fstat(l->bells_fd, &mine))
		return failed(l, "looking at the bells");
	if (fstatat(l->dir, "bells", &there, AT_SYMLINK_NOFOLLOW) || there.st_ino != mine.st_ino)
		return -ESTALE;
	if (!S_ISREG(mine.st_mode) || mine.st_uid != geteuid())
		return base_fail(-EACCES, "%s/bells is not this user's file; remove it", l->directory);
	errno = posix_fallocate(l->bells_fd, 0, SHM_BELLS_BYTES);
	return errno ? failed(l, "allocating the bells") : 0;
}

static int open_bells(struct shm_listener *l)
{
	char path[64];
	int ret;

	do {
		/* The server that removed the bells may have removed the directory too. */
		if (l->dir >= 0)
			close(l->dir);
		if (l->bells_fd >= 0)
			close(l->bells_fd);
		l->bells_fd = -1;
		l->dir = shm_open_directory(l->directory, true);
		if (l->dir < 0)
			return l->dir;
		ret = lock_bells(l);
	} while (ret == -ESTALE || ret == -ENOENT);
	if (ret)
		return ret;
	l->bells = mmap(NULL, SHM_BELLS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, l->bells_fd, 0);
	if (l->bells == MAP_FAILED) {
		l->bells = NULL;
		return failed(l, "mapping the bells");
	}
	madvise(l->bells, SHM_BELLS_BYTES, MADV_DONTFORK);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", l->bells_fd);
	l->bells_send_fd = open(path, O_RDWR | O_CLOEXEC);
	return l->bells_send_fd < 0 ? failed(l, "opening the bells for clients") : 0;
}

/* Binds the socket, in place of one on which nobody answers. */
static int bind_socket(struct shm_listener *l)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	int probe, ret;

	shm_socket_path(l->dir, l->directory, where.sun_path, sizeof(where.sun_path));
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return failed(l, "making a socket");
	ret = connect(probe, (struct sockaddr *)&where, sizeof(where));
	if (!ret || errno == EAGAIN) {
		close(probe);
		return in_use(l);
	}
	close(probe);
	if (unlinkat(l->dir, "socket", 0) && errno != ENOENT)
		return failed(l, "removing an old socket");
	l->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->socket < 0)
		return failed(l, "making a socket");
	fchmod(l->socket, 0600); /* the mode that bind gives to the file */
	if (bind(l->socket, (struct sockaddr *)&where, sizeof(where)))
		return failed(l, "binding the socket");
	l->bound = true;
	if (listen(l->socket, BACKLOG))
		return failed(l, "listening");
	return 0;
}

static int open_events(struct shm_listener *l)
{
	/* Edge-triggered: the counter of wakes need not be read. */
	struct epoll_event wake = { .events = EPOLLIN | EPOLLET, .data.ptr = &l->wake_fd };
	struct epoll_event accept = { .events = EPOLLIN, .data.ptr = l };

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (l->epoll < 0 || l->wake_fd < 0 || l->reserve < 0)
		return failed(l, "making descriptors");
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake_fd, &wake) ||
	    epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->socket, &accept))
		return failed(l, "watching the socket");
	l->pidfd = shm_pidfd_open(getpid());
	if (l->pidfd < 0) {
		errno = -l->pidfd;
		return failed(l, "looking at its own process");
	}
	return 0;
}

int shm_listen(struct fabric *fabric, const char *address, struct fabric_listener **result)
{
	struct shm_listener *l = calloc(1, sizeof(*l));
	int ret;

	if (!l)
		return base_fail(-ENOMEM, "no memory");
	l->base.ops = &shm_ops;
	l->fabric = (struct shm_fabric *)fabric;
	l->pid = getpid();
	l->dir = l->socket = l->epoll = l->wake_fd = -1;
	l->bells_fd = l->bells_send_fd = l->pidfd = l->reserve = -1;
	TAILQ_INIT(&l->unproven);
	TAILQ_INIT(&l->ending);
	TAILQ_INIT(&l->silent);
	ret = shm_directory(address, l->directory, sizeof(l->directory));
	if (ret)
		goto fail;
	snprintf(l->base.address, sizeof(l->base.address), "%s", address);
	ret = open_bells(l);
	if (ret)
		goto fail;
	ret = bind_socket(l);
	if (ret)
		goto fail;
	ret = open_events(l);
	if (ret)
		goto fail;
	*result = &l->base;
	return 0;
fail:
	shm_listener_close(&l->base);
	return ret;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* A forked child only gives its descriptors back: files, mappings and peers are its parent's. */
void shm_listener_close(struct fabric_listener *base)
{
	struct shm_listener *l = (struct shm_listener *)base;
	struct shm_endpoint *ep;
	bool own;

	if (!l)
		return;
	own = l->pid == getpid();
	while ((ep = TAILQ_FIRST(&l->unproven))) {
		TAILQ_REMOVE(&l->unproven, ep, link);
		shm_endpoint_free(ep);
	}
	if (own && l->bound)
		unlinkat(l->dir, "socket", 0);
	if (own && l->bells) {
		munmap(l->bells, SHM_BELLS_BYTES);
		if (l->bound)
			unlinkat(l->dir, "bells", 0);
	}
	close_fd(l->socket);
	if (own && l->bound)
		rmdir(l->directory); /* not empty while the arena's files are there */
	close_fd(l->bells_fd);
	close_fd(l->bells_send_fd);
	close_fd(l->epoll);
	close_fd(l->wake_fd);
	close_fd(l->pidfd);
	close_fd(l->reserve);
	close_fd(l->dir);
	free(l);
}

void shm_wake(struct fabric_listener *base)
{
	const struct shm_listener *l = (struct shm_listener *)base;
	const uint64_t one = 1;
	int saved_errno = errno;

	if (write(l->wake_fd, &one, sizeof(one)) < 0)
		errno = saved_errno; /* the counter is full: it is awake */
}

void shm_notify(struct fabric_listener *base, uint32_t region, uint64_t offset)
{
	const struct shm_listener *l = (struct shm_listener *)base;

	shm_ring_after_store(shm_bell(l->bells, region, offset));
}

int shm_loopback(struct fabric_listener *base, struct fabric_endpoint **result)
{
	struct shm_listener *l = (struct shm_listener *)base;
	struct shm_endpoint *ep;
	int ret = shm_endpoint_new(l->fabric, SHM_LOOPBACK, &ep);

	if (ret)
		return ret;
	ep->listener = l;
	ep->bells = l->bells;
	ep->state = SHM_OPEN;
	ep->peer_pid = getpid();
	shm_identify(ep->peer_pid, ep->identity);
	snprintf(ep->address, sizeof(ep->address), "%.95s", l->base.address);
	*result = &ep->base;
	return 0;
}

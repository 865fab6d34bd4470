/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which process a peer is, and whether it is still there. Both sides send a process descriptor: a
 * pidfd, which tells the end of its process by itself and can be watched. Where there is none (a
 * kernel before 5.3, a container or tool that knows no pidfd_open), it is the process' directory
 * in /proc, which like a pidfd means that process and never a later one of its number. But it is
 * silent: it has to be looked at. Then an end is noticed by the socket, as ever, and where a child
 * of the dead still holds that one, within SHM_LOOK_NS; and a signal has to go by number, right
 * after a look that says whose the number is.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

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
	char path[64];

	/* Filters that don't know a call refuse it by EPERM. */
	if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
		return fd < 0 ? -errno : fd;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT && pid > 0 ? -ESRCH : -errno;
	return fd;
}

/* Whether it is a directory in /proc: to be looked at, not to be polled. */
bool shm_pidfd_silent(int pidfd)
{
	struct stat file;

	return fstat(pidfd, &file) == 0 && S_ISDIR(file.st_mode);
}

/* Reads a small file whole. Its length, or -errno. */
static int read_file(int dir, const char *path, char *buf, size_t len_bytes)
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC), ret;
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = read(fd, buf, len_bytes - 1);
	ret = length < 0 ? -errno : (int)length;
	close(fd);
	buf[ret < 0 ? 0 : ret] = '\0';
	return ret;
}

struct process {
	pid_t pid;
	char state;
	long threads;
	uint64_t started; /* ticks since boot */
};

/* Reads /proc/PID/stat, from a directory if dir is one: 0, or -errno. */
static int read_process(int dir, const char *path, struct process *process)
{
	char text[1024], *at;
	int ret = read_file(dir, path, text, sizeof(text));

	if (ret < 0)
		return ret;
	process->pid = (pid_t)strtol(text, NULL, 10);
	at = strrchr(text, ')'); /* the name may hold anything */
	for (int field = 3; at && field <= 22; field++) {
		at = strchr(at, ' ');
		if (!at)
			return -EPROTO;
		at++;
		if (field == 3)
			process->state = *at;
		else if (field == 20)
			process->threads = strtol(at, NULL, 10);
		else if (field == 22)
			process->started = strtoull(at, NULL, 10);
	}
	return at ? 0 : -EPROTO;
}

/* All its threads are gone, and with them its mappings. */
bool shm_pidfd_ended(int pidfd)
{
	struct pollfd fd = { .fd = pidfd, .events = POLLIN };
	struct process process;
	int ret;

	if (pidfd < 0 || poll(&fd, 1, 0) != 1)
		return false;
	if (!shm_pidfd_silent(pidfd))
		return true;
	ret = read_process(pidfd, "stat", &process);
	if (ret)
		return ret == -ESRCH || ret == -ENOENT;
	/* The first thread may be a zombie long before the last one. */
	return process.state == 'X' || (process.state == 'Z' && process.threads <= 1);
}

/* The process that a process descriptor means. */
pid_t shm_pidfd_pid(int pidfd)
{
	char path[64], text[512], *at;
	struct process process;
	struct statfs fs;

	if (shm_pidfd_silent(pidfd)) {
		if (fstatfs(pidfd, &fs) || fs.f_type != PROC_SUPER_MAGIC ||
		    read_process(pidfd, "stat", &process))
			return -1;
		return process.pid;
	}
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	if (read_file(AT_FDCWD, path, text, sizeof(text)) < 0)
		return -1;
	at = strstr(text, "\nPid:");
	return at ? (pid_t)strtol(at + sizeof("\nPid:") - 1, NULL, 10) : -1;
}

/* Kills the process of this descriptor and number. As kill(). */
int shm_pidfd_kill(int pidfd, pid_t pid)
{
	if (!syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0))
		return 0;
	if (!shm_pidfd_silent(pidfd) || errno == ESRCH)
		return -1;
	if (!shm_pidfd_ended(pidfd))
		return kill(pid, SIGKILL);
	errno = ESRCH;
	return -1;
}

static uint64_t boot_hash(void)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	char text[64] = "";

	if (read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text)) < 0)
		return 1;
	for (const char *c = text; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull;
	return hash ? hash : 1;
}

/* When a process began, in ticks since boot; 0: there is none. */
static uint64_t start_time(pid_t pid)
{
	struct process process;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_process(AT_FDCWD, path, &process) ? 0 : process.started;
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

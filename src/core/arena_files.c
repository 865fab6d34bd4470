/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/arena_private.h"

#define LOCK_WAIT_NS NS_PER_S
#define LOCK_NAME    "lock"
#define SLOTS_PREFIX "slots-"

const char *const arena_names[CORE_REGIONS] = {
	[CORE_WORDS] = "words",
	[CORE_PUBLISHED] = "published",
	[CORE_PRIVATE] = "private",
};

static int fail_errno(int error, const char *path, const char *name)
{
	switch (error) {
	case ENOSPC:
		return base_fail(-ENOSPC, "%s/%s: no space left; make its file system larger", path, name);
	case EMFILE:
	case ENFILE:
		return base_fail(-EMFILE, "%s/%s: no descriptors left; raise `ulimit -n`", path, name);
	case EACCES:
	case EPERM:
	case EROFS:
		return base_fail(-EACCES, "%s/%s: %s", path, name, strerror(error));
	default:
		return base_fail(-error, "%s/%s: %s", path, name, strerror(error));
	}
}

static int refuse(const char *path, const char *name, const char *why)
{
	return base_fail(-EEXIST, "%s/%s %s: nothing was changed; use another address, or remove it",
			 path, name, why);
}

int arena_open_directory(const char *path, bool make, bool *made, int *fd)
{
	struct stat st;
	int dir;

	*made = make && mkdir(path, 0700) == 0;
	if (make && !*made && errno != EEXIST)
		return fail_errno(errno, path, "");
	dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0) {
		if (errno == ELOOP || errno == ENOTDIR)
			return refuse(path, "", "is a link or no directory");
		if (errno == ENOENT) /* a server that closes just took it away, or nothing */
			return make ? -EAGAIN : base_fail(-ENOENT, "%s: there is no arena", path);
		return fail_errno(errno, path, "");
	}
	if (fstat(dir, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(dir);
		return refuse(path, "", "is another user's, or others may write to it");
	}
	*fd = dir;
	return 0;
}

static bool is_slots(const char *name)
{
	size_t prefix = strlen(SLOTS_PREFIX);

	return strncmp(name, SLOTS_PREFIX, prefix) == 0 && name[prefix] != '\0' &&
	       strspn(name + prefix, "0123456789") == strlen(name + prefix);
}

/* Whether a name is the arena's; *region is CORE_REGIONS for the lock. */
static bool is_ours(const char *name, uint32_t *region)
{
	for (*region = 0; *region < CORE_REGIONS; ++*region)
		if (arena_names[*region] && strcmp(name, arena_names[*region]) == 0)
			return true;
	if (strcmp(name, LOCK_NAME) == 0)
		return true;
	*region = CORE_SLOTS;
	return is_slots(name);
}

static bool is_fabrics(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	       strncmp(name, "socket", 6) == 0 || strncmp(name, "bells", 5) == 0;
}

/* A stream of its own over the directory, from its start. */
static DIR *list(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

int arena_scan(int dir_fd, const char *path, struct arena_found *found)
{
	DIR *dir = list(dir_fd);
	struct dirent *item;
	uint32_t region;
	struct stat st;
	int ret = 0;

	memset(found, 0, sizeof(*found));
	if (!dir)
		return fail_errno(errno, path, "");
	while (ret == 0 && (item = readdir(dir))) {
		if (is_fabrics(item->d_name))
			continue;
		if (!is_ours(item->d_name, &region)) {
			snprintf(found->foreign, sizeof(found->foreign), "%.63s", item->d_name);
			continue;
		}
		if (fstatat(dir_fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* a server that closes just took it away */
		if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1)
			ret = refuse(path, item->d_name, "is a link, another user's or no file");
		else if (region == CORE_REGIONS)
			found->lock = true;
		else if (region == CORE_SLOTS)
			found->slots = true;
		else
			found->region[region] = true;
	}
	closedir(dir);
	return ret;
}

static void lock_text(int lock_fd, char *buf, size_t len_bytes)
{
	ssize_t n = pread(lock_fd, buf, len_bytes - 1, 0);

	buf[n < 0 ? 0 : n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
}

bool arena_lock_says_new(int lock_fd, bool alone)
{
	char text[32];

	lock_text(lock_fd, text, sizeof(text));
	return text[0] == '\0' ? alone : strncmp(text, "new ", 4) == 0;
}

int arena_lock_write(int lock_fd, bool is_new)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%s%ld\n", is_new ? "new " : "", (long)getpid());

	if (pwrite(lock_fd, text, (size_t)len, 0) != len || ftruncate(lock_fd, len) < 0)
		return -errno;
	return 0;
}

/* Whether the lock file is still the directory's; a server that closed may have removed it. */
static bool same_file(int dir_fd, int fd)
{
	struct stat mine, there;

	return fstat(fd, &mine) == 0 && fstatat(dir_fd, LOCK_NAME, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
	       mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

int arena_lock(int dir_fd, const char *path, bool make, int *lock_fd)
{
	uint64_t deadline = base_now_ns() + LOCK_WAIT_NS;
	int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
	char text[32];
	int fd;

	fd = openat(dir_fd, LOCK_NAME, make ? flags | O_CREAT | O_EXCL : flags, 0600);
	if (fd < 0) /* someone made or removed it since the directory was read */
		return errno == EEXIST || errno == ENOENT ? -EAGAIN : fail_errno(errno, path, LOCK_NAME);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (base_now_ns() >= deadline) {
			lock_text(fd, text, sizeof(text));
			close(fd);
			return base_fail(-EADDRINUSE,
					 "%s is in use by the server of process %s; stop it, or use "
					 "another address",
					 path, strncmp(text, "new ", 4) ? text : text + 4);
		}
		/* flock has no deadline, and an alarm belongs to the program */
		nanosleep(&(struct timespec){ .tv_nsec = 2 * NS_PER_MS }, NULL);
	}
	if (!same_file(dir_fd, fd)) {
		close(fd);
		return -EAGAIN;
	}
	*lock_fd = fd;
	return 0;
}

int arena_open_file(const struct core_arena *arena, const char *name, int flags, uint64_t min_bytes,
		    int *out)
{
	struct stat st;
	int fd = openat(arena->directory_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return refuse(arena->directory, name, "is missing: this is no arena");
	if (fd < 0 && errno == ELOOP)
		return refuse(arena->directory, name, "is a link");
	if (fd < 0)
		return fail_errno(errno, arena->directory, name);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink > 1) {
		close(fd);
		return refuse(arena->directory, name, "is a link, another user's or no file");
	}
	if ((uint64_t)st.st_size < min_bytes) {
		close(fd);
		return refuse(arena->directory, name,
			      st.st_size ? "is too short for an arena" : "is empty");
	}
	*out = fd;
	return 0;
}

int arena_make_file(const struct core_arena *arena, const char *name, uint64_t len_bytes, int *out)
{
	int fd = openat(arena->directory_fd, name,
			O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return fail_errno(errno, arena->directory, name);
	if (ftruncate(fd, (off_t)len_bytes) < 0) {
		int error = errno;

		close(fd);
		unlinkat(arena->directory_fd, name, 0);
		return fail_errno(error, arena->directory, name);
	}
	*out = fd;
	return 0;
}

int arena_allocate(const struct core_arena *arena, int fd, uint64_t from, uint64_t end)
{
	int error;

	if (from >= end)
		return 0;
	do {
		error = posix_fallocate(fd, (off_t)from, (off_t)(end - from));
	} while (error == EINTR);
	if (error == ENOSPC || error == EFBIG)
		return base_fail(-ENOSPC,
				 "%s: %" PRIu64 " more bytes do not fit its file system; make it "
				 "larger (df shows it) or the tables smaller",
				 arena->directory, end - from);
	return error ? fail_errno(error, arena->directory, "") : 0;
}

int arena_map(struct fabric_memory *memory, uint64_t len_bytes, int protection)
{
	void *base = mmap(NULL, len_bytes, protection, MAP_SHARED | MAP_NORESERVE, memory->fd, 0);

	if (base == MAP_FAILED)
		return base_fail(-ENOMEM, "no address space for %" PRIu64 " bytes; see `ulimit -v`",
				 len_bytes);
	/* a child must not write to a server's memory, nor keep it */
	madvise(base, len_bytes, MADV_DONTFORK);
	memory->base = base;
	memory->len_bytes = len_bytes;
	return 0;
}

void arena_unmap(struct fabric_memory *memory)
{
	if (memory->base)
		munmap(memory->base, memory->len_bytes);
	if (memory->fd >= 0)
		close(memory->fd);
	memory->base = NULL;
	memory->fd = -1;
}

int arena_discard(int dir_fd)
{
	struct dirent *item;
	uint32_t region;
	DIR *dir;

	if (unlinkat(dir_fd, arena_names[CORE_PUBLISHED], 0) < 0 && errno != ENOENT)
		return -errno;
	dir = list(dir_fd);
	if (!dir)
		return -errno;
	while ((item = readdir(dir)))
		if (is_ours(item->d_name, &region) && region != CORE_REGIONS)
			unlinkat(dir_fd, item->d_name, 0);
	closedir(dir);
	return 0;
}

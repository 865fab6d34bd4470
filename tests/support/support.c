/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/error.h"

#include <ramps/ramps.h>

static char shm_dir[64];

void (*support_end_child)(int status) = _exit;

void support_assert_ret(int ret, int code, const char *what, const char *file, int line)
{
	if (code ? ret == -code : ret >= 0)
		return;
	base_end(what, ret < 0 ? ret : 0);
	print_error("%s: returned %d (%s), not %d\n", what, ret,
		    ret < 0 ? base_last_error()->text : "no error", -code);
	_fail(file, line);
}

void support_child_failed(const char *what, const char *file, int line)
{
	base_end("child", -EIO);
	fprintf(stderr, "%s:%d: in a child: not %s\n", file, line, what);
	support_end_child(1);
	_exit(1);
}

unsigned int support_rounds(unsigned int full)
{
	const char *quick = getenv("QUICK"), *san = getenv("SAN");

	if (quick && strcmp(quick, "1") == 0)
		full /= 8;
	if (san && *san)
		full /= 8;
	return full ? full : 1;
}

int support_shm_setup(void **state)
{
	(void)state;
	strcpy(shm_dir, "/dev/shm/ramps-test.XXXXXX");
	if (!mkdtemp(shm_dir))
		return -1;
	return setenv("RAMPS_SHM_DIR", shm_dir, 1);
}

/* Removes what is in a directory. How much there was. */
static unsigned int empty(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int count = 0;
	struct dirent *entry;
	char name[512];

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		print_error("left behind: %s\n", name);
		count++;
		if (unlink(name)) {
			count += empty(name);
			rmdir(name);
		}
	}
	if (dir)
		closedir(dir);
	return count;
}

int support_shm_teardown(void **state)
{
	unsigned int left = empty(shm_dir);

	(void)state;
	unsetenv("RAMPS_SHM_DIR");
	return rmdir(shm_dir) || left ? -1 : 0;
}

void support_shm_address(char *buf, size_t len_bytes)
{
	static unsigned int count;

	snprintf(buf, len_bytes, "shm://test-%d-%u", (int)getpid(), ++count);
}

pid_t support_spawn(void (*body)(void *), void *arg)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	body(arg);
	_exit(0);
}

int support_join(pid_t pid, int timeout_ms)
{
	struct pollfd fd = { .events = POLLIN };
	bool late;
	int status;

	fd.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	late = fd.fd >= 0 && poll(&fd, 1, timeout_ms) == 0;
	if (late)
		kill(pid, SIGKILL);
	if (fd.fd >= 0)
		close(fd.fd);
	if (waitpid(pid, &status, 0) != pid || late)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool support_wait(bool (*done)(void *), void *arg, int timeout_ms)
{
	uint64_t deadline_ns = base_deadline(base_now_ns(), timeout_ms);

	while (!done(arg)) {
		if (base_now_ns() >= deadline_ns)
			return done(arg);
		usleep(200);
	}
	return true;
}

unsigned int support_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

unsigned int support_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int count = 0;
	char line[4096], shared;

	while (maps && fgets(line, sizeof(line), maps))
		count += sscanf(line, "%*s %*3c%c", &shared) == 1 && shared == 's';
	if (maps)
		fclose(maps);
	return count;
}

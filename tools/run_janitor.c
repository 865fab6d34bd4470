/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cleaning up when ramps run itself is killed. The janitor is a process that holds the reading end of a pipe
 * whose other end only ramps run has: it reads the process groups of the children from it, and when the pipe
 * ends without the word that all is done, kills them and removes the arenas. It is in a session of its own,
 * so that what is typed or sent to the run's process group does not reach it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define DISMISSED 0

static void directory_remove(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;

	if (!directory)
		return;
	while ((entry = readdir(directory)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(directory), entry->d_name, 0);
	closedir(directory);
	rmdir(path);
}

/* Removes what servers that were killed have left, and the run's own directory. */
void run_remove(const struct run *run)
{
	for (uint32_t i = 0; i < run->servers; i++)
		directory_remove(run->children[i].directory);
	if (*run->private_dir)
		directory_remove(run->private_dir);
}

static void watch(const struct run *run, int from)
{
	pid_t *groups = NULL, group;
	size_t count = 0;
	ssize_t got;

	while ((got = read(from, &group, sizeof(group))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got != sizeof(group))
			break;
		if (group == DISMISSED)
			_exit(0);
		groups = cli_grow(groups, count + 1, sizeof(*groups));
		groups[count++] = group;
	}
	for (size_t i = 0; i < count; i++)
		kill(-groups[i], SIGKILL);
	run_remove(run);
	_exit(0);
}

int run_janitor_start(struct run *run)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		goto fail;
	pid = fork();
	if (pid < 0)
		goto fail_pipe;
	if (!pid) {
		int null = open("/dev/null", O_RDWR);

		close(ends[1]);
		setsid();
		/* Not to hold a pipe open that somebody reads the run's output from. */
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		prctl(PR_SET_NAME, "ramps-janitor");
		watch(run, ends[0]);
	}
	close(ends[0]);
	run->janitor = ends[1];
	return 0;
fail_pipe:
	close(ends[0]);
	close(ends[1]);
fail:
	cli_error("run", "no process for cleaning up: %s", strerror(errno));
	return -1;
}

void run_janitor_tell(const struct run *run, pid_t pid)
{
	if (write(run->janitor, &pid, sizeof(pid)) != sizeof(pid))
		cli_error("run", "the process for cleaning up is gone: %s", strerror(errno));
}

void run_janitor_dismiss(struct run *run)
{
	run_janitor_tell(run, DISMISSED);
	close(run->janitor);
}

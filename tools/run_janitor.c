/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cleaning up, also when ramps run itself is killed. The janitor is a process that holds the
 * reading end of a pipe whose other end only ramps run has: it reads the process groups of the
 * children from it, and when the pipe ends without the word that all is done, kills them and
 * removes the arenas. It is in a session of its own, so that what is typed or sent to the run's
 * process group does not reach it.
 *
 * A process that left its group is found by its environment, which names the run.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define DISMISSED   0
#define ROUND_MS    5
#define MOST_ROUNDS 300

static void files_remove(DIR *directory, const char *path)
{
	struct dirent *entry;

	while ((entry = readdir(directory)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			unlinkat(dirfd(directory), entry->d_name, 0);
	rmdir(path);
}

/*
 * Removes the arena of a server that was killed. While somebody has its lock it is left alone: our
 * server is not gone yet, or it never had the arena, because another one does. True: nothing is
 * left to do.
 */
static bool arena_remove(const char *path)
{
	DIR *directory = opendir(path);
	int lock;

	if (!directory)
		return true;
	lock = openat(dirfd(directory), "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB)) {
		close(lock);
		closedir(directory);
		return false;
	}
	files_remove(directory, path);
	if (lock >= 0)
		close(lock);
	closedir(directory);
	return true;
}

void run_remove_private(struct run *run)
{
	DIR *directory;

	if (!*run->private_dir)
		return;
	directory = opendir(run->private_dir);
	if (directory) {
		files_remove(directory, run->private_dir);
		closedir(directory);
	}
	*run->private_dir = '\0';
}

/* Whether a process has this setting in its environment. */
static bool has_setting(const char *pid, const char *setting)
{
	char path[64], *item = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (!found && getdelim(&item, &room, '\0', file) > 0)
		found = !strcmp(item, setting);
	free(item);
	fclose(file);
	return found;
}

/* Kills all that this run started and that is still there. Returns how many those were. */
static uint32_t sweep(const struct run *run)
{
	char setting[RUN_NAME_BYTES + 16];
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	uint32_t found = 0;

	if (!processes)
		return 0;
	snprintf(setting, sizeof(setting), "RAMPS_RUN=%s", run->id);
	while ((entry = readdir(processes))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 1 && pid != getpid() && has_setting(entry->d_name, setting)) {
			kill(pid, SIGKILL);
			found++;
		}
	}
	closedir(processes);
	return found;
}

/* Processes need a moment to be gone, and what is not ours to remove has to stay: hence
 * MOST_ROUNDS. */
void run_clean(struct run *run)
{
	int rounds = 0;

	while (sweep(run) && rounds++ < MOST_ROUNDS)
		poll(NULL, 0, ROUND_MS);
	for (uint32_t i = 0; i < run->servers; i++)
		while (!arena_remove(run->children[i].directory) && rounds++ < MOST_ROUNDS)
			poll(NULL, 0, ROUND_MS);
	run_remove_private(run);
}

static void watch(struct run *run, int from)
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
		for (size_t i = 0; group < 0 && i < count; i++)
			if (groups[i] == -group)
				groups[i--] = groups[--count];
		if (group < 0)
			continue;
		groups = cli_grow(groups, count + 1, sizeof(*groups));
		groups[count++] = group;
	}
	for (size_t i = 0; i < count; i++)
		kill(-groups[i], SIGKILL);
	run_clean(run);
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

static void tell(const struct run *run, pid_t word)
{
	/* Killed, it can't help; the run goes on without. */
	if (write(run->janitor, &word, sizeof(word)) != sizeof(word))
		return;
}

void run_janitor_add(const struct run *run, pid_t pid)
{
	tell(run, pid);
}

void run_janitor_drop(const struct run *run, pid_t pid)
{
	tell(run, -pid);
}

void run_janitor_dismiss(struct run *run)
{
	tell(run, DISMISSED);
	close(run->janitor);
}

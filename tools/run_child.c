/* SPDX-License-Identifier: BSD-2-Clause */
/* ramps run: starting a child, here or by an agent on another host, and signals to it. */
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

const int run_passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP };
const size_t run_passed_count = sizeof(run_passed) / sizeof(run_passed[0]);

static void exec(const char *file, char **argv) __attribute__((noreturn));

static void exec(const char *file, char **argv)
{
	execvp(file, argv);
	cli_error("run", "%s: %s", file, strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void child_exec(const struct run *run, const struct run_child *child,
		       const struct rlimit *files, const int ends[3], pid_t parent)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CLI_FAILED);
	run_janitor_add(run, getpid());
	/* In a script's background we were started with SIGINT ignored: workers are not to inherit
	 * that. */
	for (size_t i = 0; i < run_passed_count; i++)
		if (run_passed[i] != SIGHUP || !run->hangup_ignored)
			signal(run_passed[i], SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	setrlimit(RLIMIT_NOFILE, files);
	/* A terminal can't be read from its background; a file or pipe is for the first worker. */
	if (child->host)
		dup2(ends[2], STDIN_FILENO);
	else if (child->kind == RUN_SERVER || child->number || isatty(STDIN_FILENO))
		dup2(null, STDIN_FILENO);
	if (ends[0] >= 0)
		dup2(ends[0], STDOUT_FILENO);
	if (ends[1] >= 0)
		dup2(ends[1], STDERR_FILENO);
	sigprocmask(SIG_SETMASK, &run->before, NULL);
	if (child->host)
		exec(child->rsh[0], child->rsh);
	for (char **set = child->environment; *set; set++)
		putenv(*set);
	exec(child->argv[0], child->argv);
}

/* For a child on another host: the pipe to its agent. */
static int feed_open(struct run_child *child, int *child_end)
{
	int ends[2];

	if (!child->host)
		return 0;
	if (pipe2(ends, O_CLOEXEC)) {
		cli_error("run", "a pipe for %s: %s", child->name, strerror(errno));
		return -1;
	}
	*child_end = ends[0];
	child->feed = ends[1];
	return 0;
}

void run_child_leave(struct run_child *child)
{
	if (child->feed >= 0)
		close(child->feed);
	child->feed = -1;
}

int run_child_start(struct run *run, struct run_child *child, const struct rlimit *files)
{
	int ends[3] = { -1, -1, -1 }, ret = 0;
	pid_t parent = getpid();

	if (run_output_open(run, child, ends) || feed_open(child, &ends[2]))
		ret = -1;
	if (!ret) {
		child->pid = fork();
		if (!child->pid)
			child_exec(run, child, files, ends, parent);
		if (child->pid < 0) {
			child->pid = 0;
			run_say(run, "starting %s: %s", child->name, strerror(errno));
			ret = -1;
		} else {
			setpgid(child->pid, child->pid);
		}
	}
	for (int i = 0; i < 3; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	/* if it is gone already that is seen by its status */
	if (!ret && child->host && run_hosts_feed(run, child))
		run_child_leave(child);
	return ret;
}

/* An agent passes it on; to be killed it only needs the end of its input. */
void run_child_signal(struct run_child *child, int number)
{
	if (!child->host) {
		kill(-child->pid, number);
		return;
	}
	if (number != SIGKILL && child->feed >= 0 &&
	    dprintf(child->feed, "signal %02x%02x\n", '0' + number / 10, '0' + number % 10) > 0)
		return;
	run_child_leave(child);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps agent: starts one child of a `ramps run` on this host, which tells by standard input what
 * (run_hosts.c), and later which signals. At the end of the input, also when the network or ramps run
 * has died, the child is asked to end, and killed after a while. Nothing of it stays.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

#define GRACE_MS 3000
#define MOST_IN  (1u << 22)

struct agent {
	char *input;
	size_t filled;
	char **argv;
	uint32_t argc;
	char *directory;
	char key_directory[256], arena_directory[256];
	pid_t child;
	int signals;
	bool serves, go, ended, input_over;
	int status;
};

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of a line, with a zero behind it; NULL: it is not of our making. */
static char *decode(const char *hex, size_t *len_bytes)
{
	size_t length = strlen(hex) / 2;
	char *value = cli_alloc(length + 1, 1);

	for (size_t i = 0; i < length; i++) {
		int high = nibble(hex[2 * i]), low = nibble(hex[2 * i + 1]);

		if (high < 0 || low < 0) {
			free(value);
			return NULL;
		}
		value[i] = (char)(high << 4 | low);
	}
	*len_bytes = length;
	return value;
}

static int key_take(struct agent *agent, const char *key, size_t len_bytes)
{
	const char *under = getenv("TMPDIR");
	char path[300];
	int fd;

	if (snprintf(agent->key_directory, sizeof(agent->key_directory), "%s/ramps-run.XXXXXX",
		     under ? under : "/tmp") >= (int)sizeof(agent->key_directory) ||
	    !mkdtemp(agent->key_directory)) {
		cli_error("agent", "a directory for the key: %s: %s", agent->key_directory,
			  strerror(errno));
		*agent->key_directory = '\0';
		return -1;
	}
	snprintf(path, sizeof(path), "%s/key", agent->key_directory);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, key, len_bytes) != (ssize_t)len_bytes) {
		cli_error("agent", "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	close(fd);
	setenv("RAMPS_KEY_FILE", path, 1);
	return 0;
}

/* So that an arena goes even if its server is killed. */
static int arena_place(struct agent *agent)
{
	strcpy(agent->arena_directory, "/dev/shm/ramps-run.XXXXXX");
	if (!mkdtemp(agent->arena_directory)) {
		cli_error("agent", "%s: %s", agent->arena_directory, strerror(errno));
		*agent->arena_directory = '\0';
		return -1;
	}
	setenv("RAMPS_SHM_DIR", agent->arena_directory, 1);
	return 0;
}

/* A line of the script. 0 or -1. */
static int line_take(struct agent *agent, char *line)
{
	char *space = strchr(line, ' '), *value;
	size_t len_bytes;
	int ret = 0;

	if (!space)
		return -1;
	*space = '\0';
	value = decode(space + 1, &len_bytes);
	if (!value)
		return -1;
	if (!strcmp(line, "key")) {
		ret = key_take(agent, value, len_bytes);
	} else if (!strcmp(line, "dir")) {
		free(agent->directory);
		agent->directory = value;
		return 0;
	} else if (!strcmp(line, "set")) {
		return putenv(value); /* the environment's from now on */
	} else if (!strcmp(line, "arg")) {
		agent->argv = cli_grow(agent->argv, agent->argc + 2, sizeof(*agent->argv));
		agent->argv[agent->argc++] = value;
		agent->argv[agent->argc] = NULL;
		return 0;
	} else if (!strcmp(line, "serve")) {
		agent->serves = agent->go = true;
		ret = arena_place(agent);
	} else if (!strcmp(line, "go")) {
		agent->go = true;
	} else if (!strcmp(line, "signal")) {
		if (agent->child && atoi(value) > 0)
			kill(-agent->child, atoi(value));
	} else {
		ret = -1;
	}
	free(value);
	return ret;
}

/* Takes what has come. 0, or -1: it is no script. */
static int input_take(struct agent *agent)
{
	ssize_t got = read(STDIN_FILENO, agent->input + agent->filled, MOST_IN - agent->filled);
	char *end;

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (got <= 0) {
		agent->input_over = true;
		return 0;
	}
	agent->filled += (size_t)got;
	while ((end = memchr(agent->input, '\n', agent->filled))) {
		size_t used = (size_t)(end - agent->input) + 1;

		*end = '\0';
		if (line_take(agent, agent->input))
			return -1;
		memmove(agent->input, end + 1, agent->filled - used);
		agent->filled -= used;
	}
	return agent->filled == MOST_IN ? -1 : 0;
}

static void child_exec(struct agent *agent, const sigset_t *before, pid_t parent)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CLI_FAILED);
	dup2(null, STDIN_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, before, NULL);
	if (agent->directory && chdir(agent->directory)) {
		cli_error("agent", "%s: %s: this directory has to be on every host",
			  agent->directory, strerror(errno));
		_exit(CLI_FAILED);
	}
	execvp(agent->argv[0], agent->argv);
	cli_error("agent", "%s: %s", agent->argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int child_start(struct agent *agent, const sigset_t *before)
{
	pid_t parent = getpid();

	if (!agent->argc)
		return -1;
	agent->child = fork();
	if (!agent->child)
		child_exec(agent, before, parent);
	if (agent->child < 0) {
		cli_error("agent", "starting %s: %s", agent->argv[0], strerror(errno));
		agent->child = 0;
		return -1;
	}
	setpgid(agent->child, agent->child);
	return 0;
}

static void child_reap(struct agent *agent)
{
	struct signalfd_siginfo info;
	int status;

	while (read(agent->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			agent->input_over = true; /* asked to end */
	}
	if (!agent->child || waitpid(agent->child, &status, WNOHANG) != agent->child)
		return;
	kill(-agent->child, SIGKILL); /* what it has left in its group */
	agent->ended = true;
	agent->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void watch(struct agent *agent, const sigset_t *before)
{
	int asked_ms = 0;

	while (!agent->ended) {
		struct pollfd polled[2] = {
			{ .fd = agent->input_over ? -1 : STDIN_FILENO, .events = POLLIN },
			{ .fd = agent->signals, .events = POLLIN },
		};

		poll(polled, 2, agent->input_over ? 10 : -1);
		if (polled[0].revents && input_take(agent)) {
			cli_error("agent", "this is for ramps run, which tells it what to do");
			agent->status = CLI_USAGE;
			agent->input_over = true;
		}
		if (agent->go && !agent->child && !agent->input_over && child_start(agent, before)) {
			agent->status = CLI_FAILED;
			return;
		}
		child_reap(agent);
		if (!agent->input_over)
			continue;
		if (!agent->child)
			return;
		if (!asked_ms)
			kill(-agent->child, SIGTERM);
		if (asked_ms == GRACE_MS)
			kill(-agent->child, SIGKILL);
		asked_ms += 10;
	}
}

static void remove_all(const char *path, int depth)
{
	DIR *directory = *path ? opendir(path) : NULL;
	struct dirent *entry;
	char below[600];

	if (!directory)
		return;
	while ((entry = readdir(directory))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (unlinkat(dirfd(directory), entry->d_name, 0) && depth &&
		    snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) < (int)sizeof(below))
			remove_all(below, depth - 1);
	}
	closedir(directory);
	rmdir(path);
}

static void agent_free(struct agent *agent)
{
	for (uint32_t i = 0; i < agent->argc; i++)
		free(agent->argv[i]);
	free(agent->argv);
	free(agent->directory);
	free(agent->input);
}

int cmd_agent(int argc, char **argv)
{
	struct agent agent = { 0 };
	sigset_t taken, before;

	(void)argv;
	if (argc > 1) {
		cli_error("agent", "this is for ramps run, which tells it what to do");
		return CLI_USAGE;
	}
	agent.input = cli_alloc(MOST_IN, 1);
	sigemptyset(&taken);
	sigaddset(&taken, SIGCHLD);
	sigaddset(&taken, SIGTERM);
	sigaddset(&taken, SIGINT);
	sigaddset(&taken, SIGHUP);
	sigprocmask(SIG_BLOCK, &taken, &before);
	signal(SIGPIPE, SIG_IGN);
	agent.signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
	if (agent.signals < 0) {
		cli_error("agent", "taking signals: %s", strerror(errno));
		agent_free(&agent);
		return CLI_FAILED;
	}
	watch(&agent, &before);
	remove_all(agent.key_directory, 0);
	remove_all(agent.arena_directory, 1);
	agent_free(&agent);
	return agent.status;
}

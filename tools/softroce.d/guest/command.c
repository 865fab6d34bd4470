/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands that the agent runs, each in a session of its own; a signal goes to
 * all processes of that, for timeout(1) and shells make further process groups.
 * Its exit status goes out when it has ended and its pipes hold nothing more;
 * children that it left behind may keep the pipes open, they are not waited for.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS       8192
#define MAX_COMMANDS    512
#define HANGUP_GRACE_MS 2000

struct request {
	char *cwd;
	char **argv;
	char **env;
	char *words[MAX_WORDS];
};

static char shell[] = "/bin/sh";
static char shell_command[] = "-c";

static const char *parse(struct request *r, char *text, size_t len)
{
	size_t n = 0, argc;
	char *end = text + len;

	if (!len || end[-1])
		return "malformed request";
	for (char *p = text; p < end && n < MAX_WORDS - 2; p += strlen(p) + 1)
		r->words[n++] = p;
	if (n < 5 || n >= MAX_WORDS - 2)
		return "malformed request, or too many words";
	r->cwd = r->words[1];
	argc = strtoul(r->words[3], NULL, 10);
	if (!argc || argc > n - 4)
		return "malformed request";
	/* The NULL behind the arguments goes where they were, one place down. */
	r->argv = r->words + 3;
	memmove(r->argv, r->argv + 1, argc * sizeof(*r->argv));
	r->env = r->argv + argc + 1;
	r->words[n] = NULL;
	r->argv[argc] = NULL;
	if (!strcmp(r->words[2], "shell")) {
		r->argv = r->words;
		r->argv[2] = r->words[3];
		r->argv[0] = shell;
		r->argv[1] = shell_command;
		r->argv[3] = NULL;
	}
	return NULL;
}

static void __attribute__((noreturn)) child(struct request *r, int fd[3])
{
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	const struct rlimit no_core = { 0, RLIM_INFINITY };
	const struct rlimit files = { 65536, 65536 };
	const char *cwd = *r->cwd ? r->cwd : getenv("SOFTROCE_CWD");
	sigset_t none;

	setsid();
	for (int i = 0; i < 3; i++)
		dup2(fd[i], i);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setrlimit(RLIMIT_MEMLOCK, &unlimited);
	setrlimit(RLIMIT_CORE, &no_core);
	setrlimit(RLIMIT_NOFILE, &files);
	for (char **e = r->env; *e; e++)
		putenv(*e);
	if (cwd && chdir(cwd) < 0) {
		dprintf(2, "softroce: folder %s: %s\n", cwd, strerror(errno));
		_exit(126);
	}
	unsetenv("SOFTROCE_CWD");
	execvp(r->argv[0], r->argv);
	dprintf(2, "softroce: %s: %s\n", r->argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Pipes for the command: theirs[] are its ends, inherited through dup2() only. */
static int make_pipes(int ours[3], int theirs[3])
{
	for (int i = 0; i < 3; i++)
		ours[i] = theirs[i] = -1;
	for (int i = 0; i < 3; i++) {
		int fd[2];

		if (pipe2(fd, O_CLOEXEC) < 0)
			return -errno;
		ours[i] = fd[i ? 0 : 1];
		theirs[i] = fd[i ? 1 : 0];
		fcntl(ours[i], F_SETFL, O_NONBLOCK);
	}
	return 0;
}

static const char *start(struct command *c, struct request *r)
{
	int theirs[3];
	const char *error = NULL;

	if (make_pipes(c->fd, theirs) < 0)
		error = "the guest is out of descriptors";
	if (!error) {
		c->pid = fork();
		if (!c->pid)
			child(r, theirs);
		if (c->pid < 0)
			error = "the guest can not start a process";
	}
	for (int i = 0; i < 3; i++) {
		close_fd(&theirs[i]);
		if (error)
			close_fd(&c->fd[i]);
	}
	return error;
}

static size_t count(const struct agent *a)
{
	size_t n = 0;

	for (struct command *c = a->commands; c; c = c->next)
		n++;
	return n;
}

void command_open(struct agent *a, uint32_t session, const char *payload, size_t len)
{
	struct command *c = calloc(1, sizeof(*c));
	struct request *r = calloc(1, sizeof(*r));
	char *text = malloc(len + 1);
	const char *error = "the guest is out of memory";

	if (count(a) >= MAX_COMMANDS) {
		error = "too many commands run on this node";
	} else if (c && r && text) {
		memcpy(text, payload, len);
		error = parse(r, text, len);
		if (!error)
			error = start(c, r);
	}
	free(text);
	free(r);
	if (error) {
		free(c);
		sf_put(&a->tx, SF_FAIL, session, error, strlen(error));
		return;
	}
	c->session = session;
	c->may_send_bytes = SF_WINDOW;
	c->next = a->commands;
	a->commands = c;
}

static pid_t session_of(const char *pid)
{
	char path[64], text[512];
	const char *p = NULL;
	int session = -1;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	close_fd(&fd);
	if (n > 0) {
		text[n] = '\0';
		p = strrchr(text, ')');
	}
	if (!p || sscanf(p, ") %*c %*d %*d %d", &session) != 1)
		return -1;
	return session;
}

static void signal_session(const struct command *c, int number)
{
	DIR *dir = opendir("/proc");
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9' && session_of(d->d_name) == c->pid)
			kill((pid_t)strtol(d->d_name, NULL, 10), number);
	}
	if (dir)
		closedir(dir);
}

static void abandon(struct command *c)
{
	c->abandoned = true;
	for (int i = 0; i < 3; i++)
		close_fd(&c->fd[i]);
	signal_session(c, SIGHUP);
	c->kill_at_ms = agent_now_ms() + HANGUP_GRACE_MS;
}

void command_take(struct agent *a, const struct sf_header *h, const char *payload)
{
	struct command *c = a->commands;

	while (c && c->session != h->session)
		c = c->next;
	if (!c || c->abandoned)
		return;
	if (h->type == SF_CREDIT) {
		c->may_send_bytes += sf_u32(payload, h);
	} else if (h->type == SF_SIGNAL) {
		signal_session(c, (int)sf_u32(payload, h));
	} else if (h->type == SF_CLOSE) {
		abandon(c);
	} else if (h->type == SF_STDIN) {
		if (!h->len_bytes)
			c->input_ended = true;
		else if (c->fd[0] >= 0)
			sf_buf_put(&c->input, payload, h->len_bytes);
		if (c->input_ended && !sf_buf_len(&c->input))
			close_fd(&c->fd[0]);
	}
}

static void feed_input(struct agent *a, struct command *c)
{
	long n = sf_buf_flush(&c->input, c->fd[0]);

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n < 0) {
		/* It will read no more; the client learns when the command ends. */
		sf_buf_free(&c->input);
		close_fd(&c->fd[0]);
		return;
	}
	c->ungranted_bytes += (uint32_t)n;
	if (c->ungranted_bytes >= SF_WINDOW / 4) {
		sf_put_u32(&a->tx, SF_CREDIT, c->session, c->ungranted_bytes);
		c->ungranted_bytes = 0;
	}
	if (c->input_ended && !sf_buf_len(&c->input))
		close_fd(&c->fd[0]);
}

static bool may_send(const struct agent *a, const struct command *c)
{
	return c->may_send_bytes && sf_buf_len(&a->tx) < AGENT_TX_LIMIT;
}

/* Whether there may be more to read at once. */
static bool send_output(struct agent *a, struct command *c, int i)
{
	char data[SF_MAX_DATA];
	size_t room = c->may_send_bytes < sizeof(data) ? c->may_send_bytes : sizeof(data);
	ssize_t n = read(c->fd[i], data, room);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return errno == EINTR;
	if (n <= 0) {
		close_fd(&c->fd[i]);
		return false;
	}
	sf_put(&a->tx, i == 1 ? SF_STDOUT : SF_STDERR, c->session, data, (size_t)n);
	c->may_send_bytes -= (uint32_t)n;
	return true;
}

/* True when all that an ended command wrote is on its way. */
static bool drained(struct agent *a, struct command *c)
{
	for (int i = 1; i < 3; i++) {
		do {
			if (c->fd[i] >= 0 && !may_send(a, c))
				return false;
		} while (c->fd[i] >= 0 && send_output(a, c, i));
	}
	return true;
}

static bool finished(struct agent *a, struct command *c)
{
	if (!c->exited)
		return false;
	if (c->abandoned)
		return !c->kill_at_ms;
	if (!drained(a, c))
		return false;
	sf_put_u32(&a->tx, SF_EXIT, c->session, c->status);
	return true;
}

static void watch(struct command *c, int i, bool wanted, short events, struct pollfd *p, size_t *n)
{
	c->poll[i] = NULL;
	if (c->fd[i] < 0 || !wanted)
		return;
	p[*n] = (struct pollfd){ .fd = c->fd[i], .events = events };
	c->poll[i] = &p[(*n)++];
}

size_t command_poll(struct agent *a, struct pollfd *p, size_t n)
{
	for (struct command *c = a->commands; c; c = c->next) {
		watch(c, 0, sf_buf_len(&c->input), POLLOUT, p, &n);
		/* An ended command's pipes are emptied by drained(). */
		watch(c, 1, !c->exited && may_send(a, c), POLLIN, p, &n);
		watch(c, 2, !c->exited && may_send(a, c), POLLIN, p, &n);
	}
	return n;
}

static void serve(struct agent *a, struct command *c)
{
	if (c->kill_at_ms && agent_now_ms() >= c->kill_at_ms) {
		signal_session(c, SIGKILL);
		c->kill_at_ms = 0;
	}
	for (int i = 0; i < 3; i++) {
		bool ready = c->poll[i] && c->poll[i]->revents && c->fd[i] >= 0;

		c->poll[i] = NULL;
		if (ready && !i)
			feed_input(a, c);
		else if (ready && may_send(a, c))
			send_output(a, c, i);
	}
}

void command_serve(struct agent *a)
{
	struct command **link = &a->commands;

	while (*link) {
		struct command *c = *link;

		serve(a, c);
		if (!finished(a, c)) {
			link = &c->next;
			continue;
		}
		*link = c->next;
		for (int i = 0; i < 3; i++)
			close_fd(&c->fd[i]);
		sf_buf_free(&c->input);
		free(c);
	}
}

void command_reaped(struct agent *a, pid_t pid, int wait_status)
{
	for (struct command *c = a->commands; c; c = c->next) {
		if (c->pid != pid || c->exited)
			continue;
		c->exited = true;
		c->status = (uint32_t)(WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) :
								  WEXITSTATUS(wait_status));
	}
}

int command_timeout_ms(const struct agent *a)
{
	int64_t now_ms = agent_now_ms(), left_ms = -1;

	for (struct command *c = a->commands; c; c = c->next) {
		int64_t ms = c->kill_at_ms > now_ms ? c->kill_at_ms - now_ms : 0;

		if (c->kill_at_ms && (left_ms < 0 || ms < left_ms))
			left_ms = ms;
	}
	return (int)left_ms;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Starting, watching and ending the children. Every child has a process group of its own and dies with this
 * process. One loop takes signals, by a descriptor, and output.
 *
 * The run ends when all workers have: then the servers are asked to. When a worker or a server fails, or
 * nobody takes the output, all are asked to end at once (SIGTERM) and killed after GRACE_NS. Signals to this
 * process are passed on to the workers, who decide what to do about them.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define GRACE_NS    3000000000u
#define OTHERS_NS   20000000u
#define CHILDREN(r) ((r)->servers + (r)->workers)

static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

enum phase {
	RUNNING,
	WORKERS_DONE, /* other ranks of the job may still need our servers */
	SERVERS_END,
	FAILED, /* all are ending */
};

struct loop {
	struct run *run;
	int signals;
	sigset_t before;
	enum phase phase;
	int status;
	uint64_t kill_ns; /* when those left are killed; 0: never */
	struct pollfd *polled;
	struct run_output **outputs; /* of polled[1..] */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void child_exec(const struct loop *loop, const struct run_child *child, const int ends[2],
		       pid_t parent)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CLI_FAILED);
	sigprocmask(SIG_SETMASK, &loop->before, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* A terminal can't be read from its background; a file or pipe is for the first worker. */
	if (child->kind == RUN_SERVER || child->number || isatty(STDIN_FILENO))
		dup2(null, STDIN_FILENO);
	if (ends[0] >= 0)
		dup2(ends[0], STDOUT_FILENO);
	if (ends[1] >= 0)
		dup2(ends[1], STDERR_FILENO);
	for (char **set = child->environment; *set; set++)
		putenv(*set);
	execvp(child->argv[0], child->argv);
	cli_error("run", "%s: %s", child->argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static int child_start(struct loop *loop, struct run_child *child)
{
	pid_t parent = getpid();
	int ends[2], ret = 0;

	if (run_output_open(loop->run, child, ends))
		ret = -1;
	if (!ret) {
		child->pid = fork();
		if (!child->pid)
			child_exec(loop, child, ends, parent);
		if (child->pid < 0) {
			child->pid = 0;
			cli_error("run", "starting %s: %s", child->name, strerror(errno));
			ret = -1;
		} else {
			setpgid(child->pid, child->pid);
			run_janitor_tell(loop->run, child->pid);
		}
	}
	for (int i = 0; i < 2; i++)
		if (ends[i] >= 0)
			close(ends[i]);
	return ret;
}

static void children_signal(const struct loop *loop, enum run_kind kind, int number)
{
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++) {
		const struct run_child *child = &loop->run->children[i];

		if (child->pid && child->kind == kind)
			kill(-child->pid, number);
	}
}

static uint32_t children_left(const struct loop *loop, enum run_kind kind)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < CHILDREN(loop->run); i++)
		left += loop->run->children[i].pid && loop->run->children[i].kind == kind;
	return left;
}

/* Ends all; the first reason gives the status. */
static void fail(struct loop *loop, int status)
{
	if (loop->phase == FAILED)
		return;
	loop->phase = FAILED;
	loop->status = status;
	loop->kill_ns = now_ns() + GRACE_NS;
	children_signal(loop, RUN_WORKER, SIGTERM);
	if (!children_left(loop, RUN_WORKER))
		children_signal(loop, RUN_SERVER, SIGTERM);
}

static void child_ended(struct loop *loop, struct run_child *child, int wait_status)
{
	int status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
	bool expected = child->kind == RUN_SERVER ? loop->phase >= SERVERS_END : status == 0;

	/* What it started and left behind ends with it. */
	kill(-child->pid, SIGKILL);
	child->pid = 0;
	if (!expected && loop->phase != FAILED) {
		if (WIFSIGNALED(wait_status))
			cli_error("run", "%s was killed by signal %d (%s)", child->name,
				  WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
		else
			cli_error("run", "%s ended with status %d", child->name, status);
		fail(loop, status ? status : CLI_FAILED);
	}
}

static void children_reap(struct loop *loop)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
		for (uint32_t i = 0; i < CHILDREN(loop->run); i++)
			if (loop->run->children[i].pid == pid)
				child_ended(loop, &loop->run->children[i], wait_status);
}

static void signals_take(struct loop *loop)
{
	struct signalfd_siginfo info;

	while (read(loop->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			children_reap(loop);
		else
			children_signal(loop, RUN_WORKER, (int)info.ssi_signo);
	}
}

/* Moves on when those that a phase waits for are gone. 1: all is over. */
static bool phase_over(struct loop *loop)
{
	if (loop->phase == RUNNING && !children_left(loop, RUN_WORKER))
		loop->phase = WORKERS_DONE;
	if (loop->phase == WORKERS_DONE && run_others_left(loop->run)) {
		loop->phase = SERVERS_END;
		loop->kill_ns = now_ns() + GRACE_NS;
		children_signal(loop, RUN_SERVER, SIGTERM);
	}
	if (loop->phase == FAILED && !children_left(loop, RUN_WORKER))
		children_signal(loop, RUN_SERVER, SIGTERM);
	if (loop->kill_ns && now_ns() >= loop->kill_ns) {
		children_signal(loop, RUN_WORKER, SIGKILL);
		children_signal(loop, RUN_SERVER, SIGKILL);
	}
	return loop->phase >= SERVERS_END && !children_left(loop, RUN_WORKER) &&
	       !children_left(loop, RUN_SERVER);
}

static int poll_ms(const struct loop *loop)
{
	uint64_t now = now_ns();

	if (loop->phase == WORKERS_DONE)
		return (int)(OTHERS_NS / 1000000);
	if (!loop->kill_ns)
		return -1;
	return loop->kill_ns <= now ? 10 : (int)((loop->kill_ns - now) / 1000000) + 1;
}

static nfds_t poll_fill(struct loop *loop)
{
	nfds_t n = 1;

	loop->polled[0] = (struct pollfd){ .fd = loop->signals, .events = POLLIN };
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++) {
		struct run_output *both[2] = { &loop->run->children[i].out, &loop->run->children[i].err };

		for (int k = 0; k < 2; k++) {
			if (both[k]->from < 0)
				continue;
			loop->outputs[n] = both[k];
			loop->polled[n++] = (struct pollfd){ .fd = both[k]->from, .events = POLLIN };
		}
	}
	return n;
}

static void output_take(struct loop *loop, struct run_output *output)
{
	if (!run_output_pass(output))
		return;
	if (errno != EPIPE && loop->phase != FAILED)
		cli_error("run", "writing the output: %s", strerror(errno));
	run_output_close(output);
	fail(loop, CLI_FAILED);
}

static void watch(struct loop *loop)
{
	while (!phase_over(loop)) {
		nfds_t n = poll_fill(loop);

		if (poll(loop->polled, n, poll_ms(loop)) < 0 && errno != EINTR)
			break;
		for (nfds_t i = 1; i < n; i++)
			if (loop->polled[i].revents)
				output_take(loop, loop->outputs[i]);
		signals_take(loop);
	}
	/* What was written last is still in the pipes. */
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++) {
		struct run_child *child = &loop->run->children[i];

		if (child->out.from >= 0)
			output_take(loop, &child->out);
		if (child->err.from >= 0)
			output_take(loop, &child->err);
		run_output_close(&child->out);
		run_output_close(&child->err);
	}
}

static int signals_open(struct loop *loop)
{
	sigset_t taken;

	sigemptyset(&taken);
	sigaddset(&taken, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaddset(&taken, passed[i]);
	sigprocmask(SIG_BLOCK, &taken, &loop->before);
	signal(SIGPIPE, SIG_IGN);
	loop->signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
	if (loop->signals < 0)
		cli_error("run", "taking signals: %s", strerror(errno));
	return loop->signals < 0 ? -1 : 0;
}

int run_loop(struct run *run)
{
	struct loop loop = { .run = run };

	if (signals_open(&loop))
		return CLI_FAILED;
	if (run_janitor_start(run)) {
		close(loop.signals);
		return CLI_FAILED;
	}
	loop.polled = cli_alloc(1 + 2 * CHILDREN(run), sizeof(*loop.polled));
	loop.outputs = cli_alloc(1 + 2 * CHILDREN(run), sizeof(struct run_output *));
	for (uint32_t i = 0; i < CHILDREN(run); i++)
		run->children[i].out.from = run->children[i].err.from = -1;
	for (uint32_t i = 0; i < CHILDREN(run) && loop.phase != FAILED; i++)
		if (child_start(&loop, &run->children[i]))
			fail(&loop, CLI_FAILED);
	watch(&loop);
	run_remove(run);
	run_janitor_dismiss(run);
	close(loop.signals);
	free(loop.polled);
	free(loop.outputs);
	return loop.status;
}

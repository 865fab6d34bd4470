/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Starting, watching and ending the children. Every child has a process group of its own and dies
 * with this process. One loop takes signals, by a descriptor, and output.
 *
 * The run ends when all workers have: then the servers are asked to. When a worker or a server
 * fails, or nobody takes the output, all are asked to end at once (SIGTERM) and killed after
 * GRACE_NS. Signals to this process are passed on to the workers, who decide what to do about them;
 * the third that asks them to end ends all.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define GRACE_NS    3000000000u
#define FLUSH_NS    500000000u
#define ABSENT_NS   10000000000u /* a rank that has not joined by then does without servers */
#define OTHERS_MS   20
#define BEGIN_NS    60000000000u
#define ASKED_MOST  3
#define CHILDREN(r) ((r)->servers + (r)->workers)

enum phase {
	SERVERS_BEGIN, /* on other hosts: the workers wait until all have told their addresses */
	RUNNING,
	WORKERS_DONE, /* other ranks of the job may still need our servers */
	SERVERS_END,
	FAILED, /* all are ending */
	GONE,   /* they have; what they wrote is still to be passed on */
};

struct loop {
	struct run *run;
	int signals;
	struct rlimit files;
	enum phase phase;
	int status;
	uint64_t kill_ns;  /* when those left are killed; 0: never */
	uint64_t flush_ns; /* how long the output is waited for; 0: for ever */
	uint64_t begin_ns; /* when the servers have to have told */
	uint64_t done_ns;  /* when our workers had ended */
	bool servers_asked;
	uint64_t passed_on; /* a bit for each signal to the workers */
	uint32_t asked;     /* how often to end */
	struct pollfd *polled;
	struct run_output **outputs; /* of polled[1..] */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int children_start(struct loop *loop, enum run_kind kind)
{
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++)
		if (loop->run->children[i].kind == kind &&
		    run_child_start(loop->run, &loop->run->children[i], &loop->files))
			return -1;
	return 0;
}

static void children_signal(const struct loop *loop, enum run_kind kind, int number)
{
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++) {
		struct run_child *child = &loop->run->children[i];

		if (child->pid && child->kind == kind)
			run_child_signal(child, number);
	}
}

static uint32_t children_left(const struct loop *loop, enum run_kind kind)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < CHILDREN(loop->run); i++)
		left += loop->run->children[i].pid && loop->run->children[i].kind == kind;
	return left;
}

/* Once only: a second signal would have them leave their arenas. */
static void servers_ask(struct loop *loop)
{
	if (!loop->servers_asked)
		children_signal(loop, RUN_SERVER, SIGTERM);
	loop->servers_asked = true;
}

/* Ends all; the first reason gives the status. */
static void fail(struct loop *loop, int status)
{
	if (!loop->status)
		loop->status = status;
	if (loop->phase >= FAILED)
		return;
	loop->phase = FAILED;
	loop->kill_ns = now_ns() + GRACE_NS;
	loop->flush_ns = loop->kill_ns + FLUSH_NS;
	children_signal(loop, RUN_WORKER, SIGTERM);
}

/* Of an end by a signal that the user sent nothing need be said. */
static bool asked_for(const struct loop *loop, int status)
{
	return status > 128 && status < 128 + 64 && loop->passed_on >> (status - 128) & 1;
}

static void ending_say(struct run *run, const struct run_child *child, int killer, int status)
{
	if (killer)
		run_say(run, "%s was killed by signal %d (%s)", child->name, killer, strsignal(killer));
	else
		run_say(run, "%s ended with status %d", child->name, status);
}

static void child_ended(struct loop *loop, struct run_child *child, int wait_status)
{
	int killer = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
	int status = killer ? 128 + killer : WEXITSTATUS(wait_status);
	bool expected = child->kind == RUN_SERVER ? loop->phase >= SERVERS_END : status == 0;

	child->pid = 0;
	run_child_leave(child);
	run_output_drain(&child->out);
	run_output_drain(&child->err);
	if (expected || loop->phase >= FAILED)
		return;
	if (!asked_for(loop, status))
		ending_say(loop->run, child, killer, status);
	fail(loop, status ? status : CLI_FAILED);
}

/* The pid is still the dead child's while its group, what it has left behind, is killed. */
static void children_reap(struct loop *loop)
{
	siginfo_t info = { 0 };

	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
		pid_t pid = info.si_pid;
		int wait_status;

		kill(-pid, SIGKILL);
		run_janitor_drop(loop->run, pid);
		if (waitpid(pid, &wait_status, 0) != pid)
			break;
		for (uint32_t i = 0; i < CHILDREN(loop->run); i++)
			if (loop->run->children[i].pid == pid)
				child_ended(loop, &loop->run->children[i], wait_status);
		info.si_pid = 0;
	}
}

/* Ctrl-Z stops the whole run; SIGTSTP itself would not stop what is in a group without a shell. */
static void stop_all(const struct loop *loop)
{
	children_signal(loop, RUN_WORKER, SIGSTOP);
	children_signal(loop, RUN_SERVER, SIGSTOP);
	raise(SIGSTOP);
	children_signal(loop, RUN_SERVER, SIGCONT);
	children_signal(loop, RUN_WORKER, SIGCONT);
}

static void signal_pass(struct loop *loop, int number)
{
	bool ends = number != SIGUSR1 && number != SIGUSR2;

	loop->passed_on |= 1ull << number;
	children_signal(loop, RUN_WORKER, number);
	loop->asked += ends;
	/* Without workers to decide it is for us. */
	if (ends && (loop->asked >= ASKED_MOST || !children_left(loop, RUN_WORKER)))
		fail(loop, 128 + number);
	if (ends && loop->phase == GONE) {
		fail(loop, 128 + number);
		loop->flush_ns = 1;
	}
}

static void signals_take(struct loop *loop)
{
	struct signalfd_siginfo info;

	while (read(loop->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			children_reap(loop);
		else if (info.ssi_signo == SIGTSTP)
			stop_all(loop);
		else
			signal_pass(loop, (int)info.ssi_signo);
	}
}

/* Whether a launcher's other ranks are done with our servers. */
static bool others_done(const struct loop *loop)
{
	uint32_t absent = 0;

	if (run_others(loop->run, &absent) > 0)
		return false;
	return !absent || now_ns() - loop->done_ns >= ABSENT_NS;
}

/* All children are gone: what they have left behind goes too. */
static void gone(struct loop *loop)
{
	run_clean(loop->run);
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++) {
		struct run_child *child = &loop->run->children[i];

		run_output_drain(&child->out);
		run_output_drain(&child->err);
		run_output_close(&child->out);
		run_output_close(&child->err);
	}
	loop->phase = GONE;
}

/* Starts the workers when the servers' addresses are known. */
static void servers_begin(struct loop *loop)
{
	struct run *run = loop->run;
	char *servers = run->hosts ? run_hosts_servers(run) : NULL, *set;

	if (run->hosts && run->servers && !servers) {
		if (now_ns() < loop->begin_ns)
			return;
		run_say(run, "the servers have not begun to serve within %u s",
			(unsigned int)(BEGIN_NS / 1000000000u));
		fail(loop, CLI_FAILED);
		return;
	}
	for (uint32_t i = run->servers; servers && i < CHILDREN(run); i++) {
		char **last = run->children[i].environment;

		while (*last)
			last++;
		if (asprintf(&set, "RAMPS_SERVERS=%s", servers) < 0)
			cli_no_memory();
		*last = set;
	}
	free(servers);
	loop->phase = RUNNING;
	if (children_start(loop, RUN_WORKER))
		fail(loop, CLI_FAILED);
}

/* Moves on when those that a phase waits for are gone. True: all is over. */
static bool phase_over(struct loop *loop)
{
	if (loop->phase == SERVERS_BEGIN)
		servers_begin(loop);
	if (loop->phase == RUNNING && !children_left(loop, RUN_WORKER)) {
		loop->phase = WORKERS_DONE;
		loop->done_ns = now_ns();
	}
	if (loop->phase == WORKERS_DONE && others_done(loop)) {
		loop->phase = SERVERS_END;
		loop->kill_ns = now_ns() + GRACE_NS;
	}
	if (loop->phase >= SERVERS_END && !children_left(loop, RUN_WORKER))
		servers_ask(loop);
	if (loop->kill_ns && now_ns() >= loop->kill_ns) {
		children_signal(loop, RUN_WORKER, SIGKILL);
		children_signal(loop, RUN_SERVER, SIGKILL);
	}
	if (loop->phase >= SERVERS_END && loop->phase != GONE && !children_left(loop, RUN_WORKER) &&
	    !children_left(loop, RUN_SERVER))
		gone(loop);
	if (loop->phase != GONE)
		return false;
	return (loop->flush_ns && now_ns() >= loop->flush_ns) ||
	       (loop->run->sinks[0].begin == loop->run->sinks[0].end &&
		loop->run->sinks[1].begin == loop->run->sinks[1].end);
}

static int poll_ms(const struct loop *loop)
{
	uint64_t now = now_ns(), until = loop->phase == GONE ? loop->flush_ns : loop->kill_ns;

	if (loop->phase == SERVERS_BEGIN)
		until = loop->begin_ns;
	if (loop->phase == WORKERS_DONE)
		return OTHERS_MS;
	if (!until)
		return -1;
	return until <= now ? 10 : (int)((until - now) / 1000000) + 1;
}

static nfds_t poll_fill(struct loop *loop)
{
	nfds_t n = 1;

	loop->polled[0] = (struct pollfd){ .fd = loop->signals, .events = POLLIN };
	for (int i = 0; i < 2; i++) {
		const struct run_sink *sink = &loop->run->sinks[i];

		loop->outputs[n] = NULL;
		loop->polled[n++] = (struct pollfd){ .fd = sink->begin < sink->end ? sink->fd : -1,
						     .events = POLLOUT };
	}
	for (uint32_t i = 0; i < CHILDREN(loop->run); i++) {
		struct run_output *both[2] = { &loop->run->children[i].out, &loop->run->children[i].err };

		for (int k = 0; k < 2; k++) {
			if (!run_output_wanted(both[k]))
				continue;
			loop->outputs[n] = both[k];
			loop->polled[n++] = (struct pollfd){ .fd = both[k]->from, .events = POLLIN };
		}
	}
	return n;
}

static void sinks_flush(struct loop *loop)
{
	for (int i = 0; i < 2; i++) {
		int ret = run_sink_flush(&loop->run->sinks[i]);

		if (ret && ret != -EPIPE && loop->phase != FAILED)
			run_say(loop->run, "writing the output: %s", strerror(-ret));
		if (ret)
			fail(loop, CLI_FAILED);
	}
}

static void watch(struct loop *loop)
{
	while (!phase_over(loop)) {
		nfds_t n = poll_fill(loop);

		if (poll(loop->polled, n, poll_ms(loop)) < 0 && errno != EINTR)
			break;
		for (nfds_t i = 1; i < n; i++)
			if (loop->outputs[i] && loop->polled[i].revents)
				run_output_take(loop->outputs[i]);
		sinks_flush(loop);
		signals_take(loop);
	}
}

void run_signals_block(struct run *run)
{
	struct sigaction hangup;

	run->hangup_ignored = !sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler == SIG_IGN;
	sigemptyset(&run->taken);
	sigaddset(&run->taken, SIGCHLD);
	for (size_t i = 0; i < run_passed_count; i++)
		if (run_passed[i] != SIGHUP || !run->hangup_ignored)
			sigaddset(&run->taken, run_passed[i]);
	sigprocmask(SIG_BLOCK, &run->taken, &run->before);
	for (size_t i = 0; i < run_passed_count; i++)
		sigdelset(&run->before, run_passed[i]);
	sigdelset(&run->before, SIGCHLD);
	signal(SIGCHLD, SIG_DFL); /* ignored, children would not be waited for */
	signal(SIGPIPE, SIG_IGN);
}

static int signals_open(struct loop *loop)
{
	loop->signals = signalfd(-1, &loop->run->taken, SFD_CLOEXEC | SFD_NONBLOCK);
	if (loop->signals < 0)
		cli_error("run", "taking signals: %s", strerror(errno));
	return loop->signals < 0 ? -1 : 0;
}

/* Two pipes for each worker may be more than a shell allows by default. */
static void files_raise(struct loop *loop)
{
	struct rlimit most;

	getrlimit(RLIMIT_NOFILE, &loop->files);
	most = loop->files;
	most.rlim_cur = most.rlim_max;
	setrlimit(RLIMIT_NOFILE, &most);
}

int run_loop(struct run *run)
{
	struct loop loop = { .run = run };

	if (signals_open(&loop)) {
		run_clean(run);
		return CLI_FAILED;
	}
	if (run_janitor_start(run)) {
		run_clean(run);
		close(loop.signals);
		return CLI_FAILED;
	}
	files_raise(&loop);
	run->sinks[0].fd = STDOUT_FILENO;
	run->sinks[1].fd = STDERR_FILENO;
	loop.polled = cli_alloc(3 + 2 * CHILDREN(run), sizeof(*loop.polled));
	loop.outputs = cli_alloc(3 + 2 * CHILDREN(run), sizeof(struct run_output *));
	for (uint32_t i = 0; i < CHILDREN(run); i++)
		run->children[i].out.from = run->children[i].err.from = -1;
	loop.begin_ns = now_ns() + BEGIN_NS;
	if (children_start(&loop, RUN_SERVER))
		fail(&loop, CLI_FAILED);
	watch(&loop);
	run_janitor_dismiss(run);
	close(loop.signals);
	free(loop.polled);
	free(loop.outputs);
	free(run->sinks[0].queue);
	free(run->sinks[1].queue);
	return loop.status;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The processes of a client: rank 0 is this one, the others are its children, and with --self so is
 * the server side. They are made before anything is connected, and end with this one whatever ends it.
 * What they share is one piece of memory; a rank that fails leaves its reason there.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/word.h"
#include "bench.h"
#include "cli.h"

#define READY_MS 20000

static struct bench_shared *shared_by_all; /* for the signal handler */

static void on_signal(int number)
{
	(void)number;
	if (word_acquire(&shared_by_all->stop))
		_exit(CLI_INTERRUPTED);
	word_publish(&shared_by_all->stop, 1);
}

/* The index-th of --pin_cores, from the first again when there are no more. */
int bench_pin(const struct bench_options *options, uint32_t index)
{
	uint32_t cores[CPU_SETSIZE], count = 0;
	cpu_set_t set;

	if (!options->cores)
		return 0;
	for (const char *at = options->cores; at && count < CPU_SETSIZE; at = strchr(at, ',')) {
		at += *at == ',';
		cores[count++] = (uint32_t)strtoul(at, NULL, 10);
	}
	CPU_ZERO(&set);
	CPU_SET(cores[index % count], &set);
	if (!sched_setaffinity(0, sizeof(set), &set))
		return 0;
	return bench_fail(-errno, "--pin_cores: core %u: %s", cores[index % count], strerror(errno));
}

/* A process that ends with its parent. */
static pid_t child_make(int death_signal)
{
	pid_t parent = getpid(), pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, death_signal);
		if (getppid() != parent)
			_exit(CLI_FAILED);
		signal(SIGINT, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
	}
	return pid;
}

/* Starts the server side; address becomes its address. */
static int server_make(const struct bench_options *options, char address[256], pid_t *pid)
{
	struct pollfd ready = { .events = POLLIN };
	ssize_t length = -1;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return bench_fail(-errno, "no pipe: %s", strerror(errno));
	*pid = child_make(SIGTERM);
	if (!*pid) {
		int status;

		close(ends[0]);
		status = bench_pin(options, 0);
		if (status)
			cli_error("bench", "%s", ramps_last_error()->text);
		_exit(status ? CLI_FAILED : bench_serve(options, ends[1]));
	}
	close(ends[1]);
	ready.fd = ends[0];
	if (*pid > 0 && poll(&ready, 1, READY_MS) == 1)
		length = read(ends[0], address, 255);
	close(ends[0]);
	if (length <= 0)
		return bench_fail(-ECONNREFUSED, "the server side did not start");
	address[length] = '\0';
	return 0;
}

void bench_note_failure(struct bench_shared *shared, uint32_t rank, int ret)
{
	struct bench_rank *mine = &shared->ranks[rank];

	snprintf(mine->text, sizeof(mine->text), "%s", ramps_last_error()->text);
	__atomic_store_n(&mine->status, ret, __ATOMIC_RELEASE);
}

/* Rank 0 may only have seen that another one went: that one's reason is the better one. */
static const char *reason(const struct bench_shared *shared, uint32_t workers)
{
	const char *text = shared->ranks[0].text;

	for (uint32_t rank = 1; rank < workers; rank++) {
		int32_t status = __atomic_load_n(&shared->ranks[rank].status, __ATOMIC_ACQUIRE);

		if (status && status != -EOWNERDEAD && status != -ETIMEDOUT && status != -ENOTCONN)
			return shared->ranks[rank].text;
	}
	return text;
}

/* 0 if it ended well. At once: it is not asked to. */
static int child_end(pid_t pid, int number)
{
	int status = 0;

	if (pid <= 0)
		return 0;
	if (number)
		kill(pid, number);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int workers_make(const struct bench_options *options, struct bench_shared *shared,
			const char *address, pid_t *pids)
{
	for (uint32_t rank = 1; rank < options->workers; rank++) {
		pids[rank] = child_make(SIGKILL);
		if (pids[rank] < 0)
			return bench_fail(-errno, "no process for rank %u: %s", rank, strerror(errno));
		if (!pids[rank]) {
			int ret = bench_work(options, shared, rank, address);

			_exit(ret ? CLI_FAILED : CLI_OK);
		}
	}
	return 0;
}

static int run_ranks(const struct bench_options *options, struct bench_shared *shared, const char *address)
{
	pid_t pids[BENCH_MAX_WORKERS] = { 0 };
	int ret = workers_make(options, shared, address, pids), bad = 0;

	if (ret)
		bench_note_failure(shared, 0, ret);
	else
		ret = bench_work(options, shared, 0, address);
	for (uint32_t rank = 1; rank < options->workers; rank++)
		bad |= child_end(pids[rank], ret < 0 ? SIGKILL : 0);
	if (!ret && bad) {
		snprintf(shared->ranks[0].text, sizeof(shared->ranks[0].text), "a worker ended early");
		ret = -ECHILD;
	}
	if (ret < 0)
		cli_error("bench", "%s", reason(shared, options->workers));
	return ret;
}

int bench_run_client(const struct bench_options *options)
{
	size_t bytes = sizeof(struct bench_shared) + options->workers * sizeof(struct bench_rank);
	const struct sigaction action = { .sa_handler = on_signal };
	char address[256] = "";
	pid_t server = 0;
	int ret = 0;

	shared_by_all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_by_all == MAP_FAILED)
		cli_no_memory();
	if (options->self)
		ret = server_make(options, address, &server);
	else
		snprintf(address, sizeof(address), "%s", options->server);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (ret)
		cli_error("bench", "%s", ramps_last_error()->text);
	else
		ret = run_ranks(options, shared_by_all, address);
	child_end(server, SIGTERM);
	munmap(shared_by_all, bytes);
	if (ret == -EINTR)
		return CLI_INTERRUPTED;
	return ret ? CLI_FAILED : CLI_OK;
}

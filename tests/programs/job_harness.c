/* SPDX-License-Identifier: BSD-2-Clause */
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define READY_MS   30000
#define MAX_SHARED 8

struct job job;

static pid_t test_pid;
static char directory[64];
static struct {
	void *at;
	size_t bytes;
} shared[MAX_SHARED];

/* The servers are threads in forked children; a BLAS may have made threads before. */
const char *__tsan_default_options(void);
__attribute__((weak)) const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

_Noreturn void job_fail(const char *file, int line, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (getpid() == test_pid) {
		print_error("%s\n", text);
		_fail(file, line);
	}
	fprintf(stderr, "process %d: %s:%d: %s\n", (int)getpid(), file, line, text);
	_exit(1);
}

bool job_quick(void)
{
	const char *quick = getenv("QUICK"), *san = getenv("SAN");

	return (quick && *quick && strcmp(quick, "0") != 0) || (san && *san);
}

uint64_t job_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint64_t job_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void job_dither(uint64_t *state, uint32_t most_us)
{
	uint64_t until = job_now_us() + job_random(state) % (most_us + 1);

	while (job_now_us() < until)
		sched_yield();
}

void job_pause(uint32_t ms)
{
	struct timespec moment = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };

	while (nanosleep(&moment, &moment))
		;
}

void job_await(const uint64_t *word, uint64_t value, const char *file, int line)
{
	uint64_t deadline = job_now_us() + JOB_TIMEOUT_MS * 1000ull;
	struct timespec moment = { .tv_nsec = 50000 };

	for (uint32_t i = 0; job_get(word) < value; i++) {
		if (job_now_us() > deadline)
			job_fail(file, line, "still %llu, not %llu",
				 (unsigned long long)job_get(word), (unsigned long long)value);
		if (i < 100)
			sched_yield();
		else
			nanosleep(&moment, NULL);
	}
}

void *job_shared(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	for (uint32_t i = 0; i < MAX_SHARED; i++) {
		if (shared[i].at)
			continue;
		shared[i].at = at;
		shared[i].bytes = bytes;
		return at;
	}
	job_fail(__FILE__, __LINE__, "too much shared memory");
}

int job_setup(void **state)
{
	(void)state;
	test_pid = getpid();
	memset(&job, 0, sizeof(job));
	job.options = (struct ramps_server_options)RAMPS_SERVER_OPTIONS_INIT;
	job.options.arena_bytes = 256u << 20;
	strcpy(directory, "/dev/shm/ramps-test.XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	setenv("RAMPS_SHM_DIR", directory, 1);
	unsetenv("RAMPS_RANK");
	unsetenv("RAMPS_WORKERS");
	unsetenv("RAMPS_SERVERS");
	unsetenv("RAMPS_JOB");
	return 0;
}

static int remove_one(const char *path, const struct stat *file, int flag, struct FTW *walk)
{
	(void)file;
	(void)flag;
	(void)walk;
	remove(path);
	return 0;
}

static void end_child(pid_t *pid, int *fd)
{
	if (!*pid)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	close(*fd);
	*pid = 0;
}

int job_teardown(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < JOB_MAX_RANKS; i++)
		end_child(&job.rank[i], &job.rank_fd[i]);
	for (uint32_t i = 0; i < JOB_MAX_SERVERS; i++)
		end_child(&job.server[i], &job.server_fd[i]);
	nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	for (uint32_t i = 0; i < MAX_SHARED; i++) {
		if (shared[i].at)
			munmap(shared[i].at, shared[i].bytes);
		shared[i].at = NULL;
	}
	return 0;
}

static pid_t fork_child(int *fd)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != test_pid)
			_exit(1);
		return 0;
	}
	*fd = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(*fd >= 0);
	return pid;
}

static _Noreturn void serve(uint32_t index, int ready)
{
	struct ramps_server_options options = job.options;
	struct ramps_server *server;
	char address[64];
	sigset_t ending;
	int number;

	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	snprintf(address, sizeof(address), "shm://server%u", index);
	options.address = address;
	options.job = "test";
	OK(ramps_server_start(&options, &server));
	CHECK(write(ready, "", 1) == 1);
	close(ready);
	sigwait(&ending, &number);
	ramps_server_stop(server);
	exit(0);
}

void job_server_spawn(uint32_t server)
{
	struct pollfd wait = { .events = POLLIN };
	int ready[2];
	char byte;

	CHECK(!job.server[server]);
	CHECK(!pipe(ready));
	job.server[server] = fork_child(&job.server_fd[server]);
	if (!job.server[server]) {
		close(ready[0]);
		serve(server, ready[1]);
	}
	close(ready[1]);
	wait.fd = ready[0];
	CHECK(poll(&wait, 1, READY_MS) == 1);
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
}

void job_server_kill(uint32_t server)
{
	CHECK(job.server[server]);
	end_child(&job.server[server], &job.server_fd[server]);
}

void job_start(uint32_t servers, uint32_t workers)
{
	job.servers = servers;
	job.workers = workers;
	job.addresses[0] = '\0';
	for (uint32_t i = 0; i < servers; i++) {
		size_t length = strlen(job.addresses);

		snprintf(job.addresses + length, sizeof(job.addresses) - length, "%sshm://server%u",
			 i ? "," : "", i);
		job_server_spawn(i);
	}
}

/* Waits for the end of one child; true: it ended, with this status. */
static bool child_ended(pid_t *pid, int *fd, int timeout_ms, int *status)
{
	struct pollfd wait = { .fd = *fd, .events = POLLIN };

	if (poll(&wait, 1, timeout_ms) != 1)
		return false;
	CHECK(waitpid(*pid, status, 0) == *pid);
	close(*fd);
	*pid = 0;
	return true;
}

void job_stop(void)
{
	for (uint32_t i = 0; i < job.servers; i++) {
		int status;

		kill(job.server[i], SIGTERM);
		if (!child_ended(&job.server[i], &job.server_fd[i], READY_MS, &status))
			job_fail(__FILE__, __LINE__, "server %u does not end", i);
		if (status)
			job_fail(__FILE__, __LINE__, "server %u ended with status %x", i, status);
	}
}

void job_spawn(uint32_t rank, job_function *function)
{
	CHECK(!job.rank[rank]);
	job.rank[rank] = fork_child(&job.rank_fd[rank]);
	if (job.rank[rank])
		return;
	function(rank);
	exit(0);
}

void job_kill(uint32_t rank)
{
	end_child(&job.rank[rank], &job.rank_fd[rank]);
}

void job_signal(uint32_t rank, int number)
{
	CHECK(job.rank[rank] && !kill(job.rank[rank], number));
}

static bool rank_ended(uint32_t rank, int timeout_ms)
{
	int status;

	if (!job.rank[rank])
		return true;
	if (!child_ended(&job.rank[rank], &job.rank_fd[rank], timeout_ms, &status))
		return false;
	if (status)
		job_fail(__FILE__, __LINE__, "rank %u ended with status %x", rank, status);
	return true;
}

bool job_has_ended(uint32_t rank)
{
	return rank_ended(rank, 0);
}

void job_wait_for(uint32_t rank, int timeout_ms)
{
	if (!rank_ended(rank, timeout_ms))
		job_fail(__FILE__, __LINE__, "rank %u still runs after %d ms", rank, timeout_ms);
}

/* The first that fails ends the wait: the others may wait for it. */
void job_wait(int timeout_ms)
{
	uint64_t deadline = job_now_us() + (uint64_t)timeout_ms * 1000u;

	for (;;) {
		struct pollfd waits[JOB_MAX_RANKS];
		nfds_t n = 0;
		uint64_t now = job_now_us();

		for (uint32_t i = 0; i < JOB_MAX_RANKS; i++)
			if (!job_has_ended(i))
				waits[n++] = (struct pollfd){ .fd = job.rank_fd[i], .events = POLLIN };
		if (!n)
			return;
		if (now >= deadline)
			job_fail(__FILE__, __LINE__, "%u ranks still run after %d ms",
				 (unsigned int)n, timeout_ms);
		poll(waits, n, (int)((deadline - now) / 1000u) + 1);
	}
}

void job_run(uint32_t n, job_function *function, int timeout_ms)
{
	for (uint32_t i = 0; i < n; i++)
		job_spawn(i, function);
	job_wait(timeout_ms);
}

struct ramps_worker *job_join(uint32_t rank)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;

	options.servers = job.addresses;
	options.job = "test";
	options.rank = rank;
	options.workers = job.workers;
	OK(ramps_worker_join(&options, &worker));
	return worker;
}

struct ramps_table *job_table(struct ramps_worker *worker, const struct ramps_schema *schema)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_table *table;

	OK(ramps_worker_info(worker, &info));
	if (info.rank)
		OK(ramps_table_open(worker, schema->name, schema, JOB_TIMEOUT_MS, &table));
	else
		OK(ramps_table_create(worker, schema, &table));
	return table;
}

struct ramps_barrier *job_barrier(struct ramps_worker *worker, const char *name)
{
	struct ramps_barrier *barrier;

	OK(ramps_barrier_open(worker, name, NULL, &barrier));
	return barrier;
}

void job_leave(struct ramps_worker *worker)
{
	OK(ramps_worker_leave(worker, JOB_TIMEOUT_MS));
	ramps_worker_close(worker);
}

bool job_again(int ret)
{
	static __thread uint64_t since;

	if (ret >= 0) {
		since = 0;
		return false;
	}
	if (ret != -ENOTCONN)
		job_fail(__FILE__, __LINE__, "%s: %s", strerrorname_np(-ret), ramps_last_error()->text);
	if (!since)
		since = job_now_us();
	if (job_now_us() - since > 20000000u)
		job_fail(__FILE__, __LINE__, "for 20 s: %s", ramps_last_error()->text);
	return true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Seeds in processes of their own, so that what crashes or hangs there is one more failure here.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define FAILURES 64u

struct failure {
	uint64_t seed;
	struct verdict verdict;
};

/* Shared with one child, which alone writes to it while it lives. */
struct job {
	struct totals totals;
	uint64_t next; /* seeds of the job, from 0 */
	bool in_seed;
	uint32_t failures;
	struct failure failure[FAILURES];
	pid_t pid;
};

static void *shared(size_t len_bytes)
{
	void *at = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		fprintf(stderr, "no memory for jobs: %s\n", strerror(errno));
		exit(2);
	}
	return at;
}

static void remove_left(pid_t pid)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf /dev/shm/ramps.sim.%d", (int)pid);
	if (system(command))
		fprintf(stderr, "failed: %s\n", command);
}

static uint32_t seconds_of(const struct options *options)
{
	return options->seconds ? options->seconds : 60;
}

static void crashed(struct verdict *verdict, int status, const struct options *options)
{
	memset(verdict, 0, sizeof(*verdict));
	verdict->failed = true;
	snprintf(verdict->invariant, sizeof(verdict->invariant), "crash");
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		snprintf(verdict->text, sizeof(verdict->text),
			 "it was not done in %u s of real time", seconds_of(options));
	else if (WIFSIGNALED(status))
		snprintf(verdict->text, sizeof(verdict->text), "signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(verdict->text, sizeof(verdict->text), "exit status %d", WEXITSTATUS(status));
}

static uint64_t seeds_of(const struct options *options, uint32_t index)
{
	return options->seeds / options->jobs + (index < options->seeds % options->jobs);
}

static uint64_t seed_of(const struct options *options, uint32_t index, uint64_t i)
{
	return options->first + index + i * options->jobs;
}

static void note_failure(struct job *job, uint64_t seed, const struct verdict *verdict)
{
	if (job->failures < FAILURES)
		job->failure[job->failures++] = (struct failure){ seed, *verdict };
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint32_t most_failures(const struct options *options)
{
	return options->most_failures ? options->most_failures : 5;
}

static void run_seeds(struct job *job, const struct options *options, uint32_t index)
{
	while (job->next < seeds_of(options, index) && job->failures < most_failures(options)) {
		uint64_t seed = seed_of(options, index, job->next), begun = cpu_ns();
		struct verdict verdict;

		job->in_seed = true;
		alarm(seconds_of(options));
		world_run(seed, options, &job->totals, &verdict);
		alarm(0);
		job->in_seed = false;
		job->next++;
		job->totals.cpu_ns += cpu_ns() - begun;
		if (verdict.failed)
			note_failure(job, seed, &verdict);
	}
}

static void start(struct job *job, const struct options *options, uint32_t index)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		fprintf(stderr, "no process for a job: %s\n", strerror(errno));
		exit(2);
	}
	if (pid == 0) {
		run_seeds(job, options, index);
		fflush(NULL);
		_exit(0);
	}
	job->pid = pid;
}

/* A child has ended: whether its job goes on in another. */
static bool goes_on(struct job *job, const struct options *options, uint32_t index, int status)
{
	struct verdict verdict;

	if (status == 0)
		return false;
	remove_left(job->pid);
	if (!job->in_seed)
		return false;
	crashed(&verdict, status, options);
	note_failure(job, seed_of(options, index, job->next), &verdict);
	job->totals.seeds++;
	job->totals.failed++;
	job->in_seed = false;
	job->next++;
	return true;
}

static void add(struct totals *totals, const struct totals *more)
{
	uint64_t *to = (uint64_t *)totals;
	const uint64_t *from = (const uint64_t *)more;

	_Static_assert(sizeof(*totals) % sizeof(uint64_t) == 0, "nothing but counts");
	for (size_t i = 0; i < sizeof(*totals) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

static void report_failures(const struct job *jobs, const struct options *options)
{
	uint32_t reported = 0;

	for (uint32_t i = 0; i < options->jobs; i++)
		for (uint32_t k = 0; k < jobs[i].failures; k++) {
			const struct failure *f = &jobs[i].failure[k];

			if (reported++ == most_failures(options))
				return;
			printf("\nseed %llu failed: %s\n  %s\n  replay: ", (unsigned long long)f->seed,
			       f->verdict.invariant, f->verdict.text);
			report_command(options, f->seed, stdout);
			if (reported == 1 && !options->no_shrink)
				shrink(f->seed, options, &f->verdict);
		}
}

int jobs_run(const struct options *options, struct totals *totals)
{
	struct job *jobs = shared(options->jobs * sizeof(*jobs));
	uint64_t begun = base_now_ns();
	uint32_t running = options->jobs;
	int status;

	for (uint32_t i = 0; i < options->jobs; i++)
		start(&jobs[i], options, i);
	while (running) {
		pid_t pid = wait(&status);

		if (pid < 0 && errno != EINTR) {
			fprintf(stderr, "jobs: %s\n", strerror(errno));
			exit(2);
		}
		for (uint32_t i = 0; i < options->jobs; i++) {
			if (jobs[i].pid != pid)
				continue;
			if (goes_on(&jobs[i], options, i, status))
				start(&jobs[i], options, i);
			else
				running--;
		}
	}
	for (uint32_t i = 0; i < options->jobs; i++)
		add(totals, &jobs[i].totals);
	report_totals(totals, options, (double)(base_now_ns() - begun) / 1e9);
	report_failures(jobs, options);
	munmap(jobs, options->jobs * sizeof(*jobs));
	return totals->failed ? 1 : 0;
}

void jobs_one(uint64_t seed, const struct options *options, struct verdict *verdict)
{
	struct verdict *result = shared(sizeof(*result));
	struct totals *totals;
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(2);
		totals = calloc(1, sizeof(*totals));
		alarm(seconds_of(options));
		world_run(seed, options, totals, result);
		_exit(0);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status) {
		remove_left(pid);
		crashed(result, status, options);
	}
	*verdict = *result;
	munmap(result, sizeof(*result));
}

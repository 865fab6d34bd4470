/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench.h"

#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[256];
static pid_t place_pid;

void bench_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void *bench_shared(size_t len_bytes)
{
	void *at = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	bench_need(at != MAP_FAILED, "no memory");
	return at;
}

pid_t bench_spawn(void (*body)(void *, uint32_t), void *arg, uint32_t rank)
{
	pid_t parent = getpid(), pid = fork();

	bench_need(pid >= 0, "no process");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	body(arg, rank);
	exit(0);
}

void bench_join(uint32_t n)
{
	for (; n; n--) {
		int status;

		bench_need(waitpid(-1, &status, 0) > 0 && status == 0, "a process failed");
	}
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *at)
{
	(void)stat, (void)flag, (void)at;
	remove(path);
	return 0;
}

static void place_remove(void)
{
	if (getpid() == place_pid)
		nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *bench_place(void)
{
	const char *base = getenv("RAMPS_SHM_DIR");
	int len = snprintf(directory, sizeof(directory), "%s/ramps-bench.XXXXXX",
			   base ? base : "/dev/shm");

	bench_need(len < (int)sizeof(directory) && mkdtemp(directory), "no directory in %s",
		   base ? base : "/dev/shm");
	place_pid = getpid();
	atexit(place_remove);
	setenv("RAMPS_SHM_DIR", directory, 1);
	return directory;
}

void bench_pin(uint32_t core)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set, allowed;

	if (cores <= (long)core || sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	CPU_ZERO(&set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &allowed) && core-- == 0) {
			CPU_SET(cpu, &set);
			sched_setaffinity(0, sizeof(set), &set);
			return;
		}
	}
}

void bench_meet_open(pthread_barrier_t *place, uint32_t n)
{
	pthread_barrierattr_t attributes;

	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	bench_need(!pthread_barrier_init(place, &attributes, n), "no place to meet");
	pthread_barrierattr_destroy(&attributes);
}

uint64_t bench_number(int argc, char **argv, int index, uint64_t otherwise)
{
	char *end;
	uint64_t value;

	if (index >= argc)
		return otherwise;
	value = strtoull(argv[index], &end, 0);
	bench_need(end != argv[index] && !*end, "%s is no number", argv[index]);
	return value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
	bench_need(n, "nothing was measured: too few rounds");
	qsort(values, n, sizeof(*values), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double bench_time(void (*run)(void *, uint64_t), void *arg, uint64_t duration_ms)
{
	static double took[8192];
	uint64_t n = 1, start, elapsed, end;
	size_t batches = 0;

	for (;;) {
		start = bench_now_ns();
		run(arg, n);
		elapsed = bench_now_ns() - start;
		if (elapsed > 700000)
			break;
		n *= 2;
	}
	end = bench_now_ns() + duration_ms * 1000000;
	do {
		start = bench_now_ns();
		run(arg, n);
		took[batches++] = (double)(bench_now_ns() - start) / (double)n;
	} while (batches < 5 || (bench_now_ns() < end && batches < sizeof(took) / sizeof(took[0])));
	return bench_median(took, batches);
}

uint64_t bench_random(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

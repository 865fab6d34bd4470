/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time stamps. An operation over shared memory takes about as long as a time stamp, so its cost is
 * measured at the start: bench_measure.c chooses by it how many operations go between two.
 */
#include <time.h>

#include "base/clock.h"
#include "bench.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#define CALIBRATION_NS 20000000u
#define COST_ROUNDS    20
#define COST_STAMPS    1000

/* Whether the counter goes at one rate whatever the processor does. */
static bool counter_is_constant(void)
{
#if defined(__x86_64__)
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
#else
	return false;
#endif
}

uint64_t bench_clock_read(const struct bench_clock *clock)
{
#if defined(__x86_64__)
	if (clock->counter)
		return __rdtsc();
#else
	(void)clock;
#endif
	return base_now_ns();
}

/* The rate is what the counter gains in 20 ms of the system's clock. */
static double counter_rate(const struct bench_clock *clock)
{
	uint64_t begun_ns = base_now_ns(), begun = bench_clock_read(clock), now_ns;

	do {
		now_ns = base_now_ns();
	} while (now_ns - begun_ns < CALIBRATION_NS);
	return (double)(bench_clock_read(clock) - begun) / ((double)(now_ns - begun_ns) * 1e-3);
}

void bench_clock_open(struct bench_clock *clock)
{
	clock->counter = counter_is_constant();
	clock->per_us = clock->counter ? counter_rate(clock) : 1000;
	clock->cost = 1e9;
	for (int round = 0; round < COST_ROUNDS; round++) {
		uint64_t begun = bench_clock_read(clock), now = begun;

		for (int i = 0; i < COST_STAMPS; i++)
			now = bench_clock_read(clock);
		if ((double)(now - begun) / COST_STAMPS < clock->cost)
			clock->cost = (double)(now - begun) / COST_STAMPS;
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What the programs of this folder share: processes, memory between them, time. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Ends the program with a line, unless ok. */
#define bench_need(ok, ...)                     \
	do {                                    \
		if (!(ok))                      \
			bench_die(__VA_ARGS__); \
	} while (0)

/* The same for what a call of ramps.h returned. */
#define must(what, ret) bench_need((ret) >= 0, "%s: %s", what, ramps_last_error()->text)

_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t bench_now_ns(void);

/* Zeroed memory that children made later share. */
void *bench_shared(size_t len_bytes);

/* Runs body(arg, rank) in a child that ends with this process at the latest. */
pid_t bench_spawn(void (*body)(void *arg, uint32_t rank), void *arg, uint32_t rank);
/* Waits until n children have ended. The first that fails ends the program, and so the others. */
void bench_join(uint32_t n);

/* Makes a directory for arenas, in RAMPS_SHM_DIR or /dev/shm, and names it there; it goes with the program. */
const char *bench_place(void);

/* Gives this process a core of its own, if there are as many. */
void bench_pin(uint32_t core);

/* In shared memory: where n processes meet, asleep until the last has come. */
void bench_meet_open(pthread_barrier_t *place, uint32_t n);

/* A number from the command line or a default. */
uint64_t bench_number(int argc, char **argv, int index, uint64_t otherwise);

/*
 * Nanoseconds that one of the n operations of run(arg, n) takes: the median of batches, of a
 * millisecond or so each, over duration_ms.
 */
double bench_time(void (*run)(void *arg, uint64_t n), void *arg, uint64_t duration_ms);

/* A linear congruential generator's next number. */
uint64_t bench_random(uint64_t *state);

/* Sorts and takes the middle one. */
double bench_median(double *values, size_t n);

#endif

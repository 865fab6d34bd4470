/* SPDX-License-Identifier: BSD-2-Clause */
/* Time and deadlines in nanoseconds of a monotonic clock. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS    1000000ull
#define NS_PER_S     1000000000ull
#define BASE_FOREVER UINT64_MAX

/* CLOCK_MONOTONIC; only src/shm, src/api and tools ask it, all else asks its fabric. */
uint64_t base_now_ns(void);

/* The deadline `timeout_ms` from now_ns on: -1 is BASE_FOREVER. */
uint64_t base_deadline(uint64_t now_ns, int timeout_ms);

#endif

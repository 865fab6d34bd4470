/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/clock.h"

#include <time.h>

uint64_t base_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t base_deadline(uint64_t now_ns, int timeout_ms)
{
	if (timeout_ms < 0)
		return BASE_FOREVER;
	return now_ns + (uint64_t)timeout_ms * NS_PER_MS;
}

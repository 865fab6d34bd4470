/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void (*log_function)(void *ctx, int level, const char *line);
static void *log_ctx;
static int log_level = -1; /* nothing is less */

void base_set_log(void (*log)(void *ctx, int level, const char *line), void *ctx, int level)
{
	__atomic_store_n(&log_level, -1, __ATOMIC_RELEASE);
	__atomic_store_n(&log_ctx, ctx, __ATOMIC_RELAXED);
	__atomic_store_n(&log_function, log, __ATOMIC_RELAXED);
	if (log)
		__atomic_store_n(&log_level, level, __ATOMIC_RELEASE);
}

void base_log(int level, const char *fmt, ...)
{
	void (*log)(void *ctx, int level, const char *line);
	int saved_errno = errno;
	char line[1024];
	va_list args;

	if (level > __atomic_load_n(&log_level, __ATOMIC_ACQUIRE))
		return;
	log = __atomic_load_n(&log_function, __ATOMIC_RELAXED);
	if (!log)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	line[strcspn(line, "\n")] = '\0';
	log(__atomic_load_n(&log_ctx, __ATOMIC_RELAXED), level, line);
	errno = saved_errno;
}

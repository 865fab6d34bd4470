/* SPDX-License-Identifier: BSD-2-Clause */
/* Log lines for the callback of ramps_set_log(). Costs a load and a compare when nobody listens. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <ramps/ramps.h>

/* ramps_set_log(). */
void base_set_log(void (*log)(void *ctx, int level, const char *line), void *ctx, int level);

void base_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif

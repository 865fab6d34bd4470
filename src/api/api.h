/* SPDX-License-Identifier: BSD-2-Clause */
/* What the public functions share: which fabric an address means, and what the environment says. */
#ifndef API_API_H
#define API_API_H

#include <errno.h>
#include <stddef.h>

#include "base/error.h"
#include "core/layout.h"
#include "fabric/fabric.h"
#include "worker/worker.h"

#define API_ADDRESS_BYTES 256u
#define API_EMBED         "embed:"

/* A kind of address. directory: where a server at an address keeps its arena. */
struct api_fabric {
	const char *prefix;
	int (*open)(struct fabric **fabric);
	int (*directory)(const char *address, char *buf, size_t len_bytes);
};

/* -EINVAL with text: no fabric of this build has such addresses. */
int api_fabric_of(const char *address, const struct api_fabric **fabric);

struct api_addresses {
	uint32_t count;
	char text[CORE_MAX_SERVERS][API_ADDRESS_BYTES];
	const char *list[CORE_MAX_SERVERS];
};

/* Takes "a,b,c" apart. -EINVAL: empty, too many, one twice, or not all of one fabric. */
int api_addresses_parse(const char *servers, struct api_addresses *addresses);

/* name, else RAMPS_JOB, else "default"; checked. */
int api_job(const char *name, const char **job);

/*
 * Rank and number of workers from one source of the environment. 1: taken; 0: nothing says;
 * -EINVAL.
 */
int api_rank(uint32_t *rank, uint32_t *workers);

/*
 * Copies the options that the caller knows of over the defaults in dst. -EINVAL: size is not set.
 */
int api_options(void *dst, const void *src, size_t known_bytes, size_t least_bytes);

/*
 * Begins a call on `object`, a worker or something opened from it, which the text calls `what`;
 * worker is NULL where it was closed before the object. As worker_enter(), and -EINVAL.
 */
static inline int api_enter(const char *what, const void *object, struct ramps_worker *worker,
			    int timeout_ms)
{
	if (__builtin_expect(!object, 0))
		return base_fail(-EINVAL, "no %s given: it is NULL", what);
	if (__builtin_expect(timeout_ms < -1, 0))
		return base_fail(-EINVAL, "timeout_ms is %d: give -1 to wait for ever, or 0 and more",
				 timeout_ms);
	return worker_enter(worker);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric over libibverbs and librdmacm. Addresses are "verbs://HOST:PORT": a host name, an
 * IPv4 address or an [IPv6 address]; without a port VERBS_DEFAULT_PORT, and port 0 lets a listener
 * choose one.
 */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define VERBS_DEFAULT_PORT 18520

/* Numbers that are not given are VERBS_UNSET: then the device or this library chooses. */
#define VERBS_UNSET UINT32_MAX

struct verbs_options {
	char device[64];        /* "": the device that has the address */
	uint32_t port;          /* of the device, from 1 */
	uint32_t gid_index;     /* must be that of the address */
	uint32_t mtu;           /* path MTU in bytes, 256 to 4096 */
	uint32_t service_level; /* 0 to 15 */
	uint32_t traffic_class; /* 0 to 255 */
	uint32_t pkey_index;
	uint32_t ack_timeout; /* 1 to 31: 4.096 us * 2^n */
	uint32_t retries;     /* 0 to 7 */
	uint32_t rnr_retries; /* 0 to 7 */
	uint32_t depth;       /* of a send queue, 1 to 32768 */
	uint32_t queue_pairs; /* for data, 1 to 4 */
	uint32_t inline_bytes;
	uint32_t lease_ms; /* a peer whose device is silent for so long is gone; unset: fabric.lease_ns */
};

/*
 * Takes "device=rxe0,gid=1,timeout=14" into *options, whose other members are set to their
 * defaults. -EINVAL; the text names the bad part and what is possible.
 */
int verbs_options_parse(const char *text, struct verbs_options *options);

/* Takes the options from RAMPS_VERBS and the job's key from RAMPS_KEY_FILE. -EINVAL, -ENOMEM. */
int verbs_open_fabric(struct fabric **fabric);

/*
 * The directory of a server at `address`: RAMPS_SHM_DIR, else /dev/shm, then "/ramps.UID.verbs." and
 * the host and port. -EINVAL, -ENAMETOOLONG.
 */
int verbs_directory(const char *address, char *buf, size_t len_bytes);

#endif

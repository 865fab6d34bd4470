/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric over shared memory. Addresses are "shm://NAME". */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include <stddef.h>

#include "fabric/fabric.h"

/* -ENOMEM. */
int shm_open_fabric(struct fabric **fabric);

/*
 * The directory of the server NAME: RAMPS_SHM_DIR, else /dev/shm, then "/ramps.UID.NAME" with
 * each '/' of NAME written as '+'. The fabric keeps its socket `socket` and its bells `bells`
 * there; the arena's files lie beside them. -EINVAL (no shm:// address, or a bad name),
 * -ENAMETOOLONG.
 */
int shm_directory(const char *address, char *buf, size_t len_bytes);

#endif

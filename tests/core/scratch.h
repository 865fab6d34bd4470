/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories under /dev/shm, and what they hold byte for byte. */
#ifndef TESTS_CORE_SCRATCH_H
#define TESTS_CORE_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

/* Makes a fresh directory; cmocka setup and teardown. The path is in scratch_root. */
extern char scratch_root[64];
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* "ROOT/name", in one of a few static buffers. */
const char *scratch_path(const char *name);

/* A number over all names, types, sizes, modes and contents of a directory. */
uint64_t scratch_digest(const char *directory);

void scratch_write(const char *path, const char *text);

#endif

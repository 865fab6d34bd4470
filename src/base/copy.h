/* SPDX-License-Identifier: BSD-2-Clause */
/* The one routine that copies parameters, and the checks that go with a copy. */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Copies like memcpy, at the speed of aligned memory for any alignment (glibc's falls to a tenth
 * where source and destination are 1 to 31 bytes apart modulo a page). Aligned 8-byte words of
 * the source are read whole, and written whole where the destination is aligned as the source is.
 * Exempt from the race detector: readers of weights race with their writer by design, and find
 * out by the chunk's version.
 */
void base_copy(void *dst, const void *src, size_t len_bytes);

/* The same, but always writes aligned words of the destination whole. */
void base_copy_out(void *dst, const void *src, size_t len_bytes);

/* Whether all n values are finite. */
bool base_finite(const float *src, size_t n);

#endif

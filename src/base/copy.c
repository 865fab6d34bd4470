/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copying parameters.
 *
 * glibc's memcpy hands sizes between 2 KiB and half a megabyte to the processor's string
 * instructions, which on some processors fall to a tenth of their speed where the destination is
 * 1 to 31 bytes behind the source modulo a page: the normal case, as malloc gives page + 16 and
 * our chunks begin on a page. A forward copy by vectors suffers too: each load then looks, by its
 * low 12 bits, as if it depended on a store just before it. Copied from the end to the beginning
 * no load meets a store still under way.
 *
 * Words are whole because each piece that is moved at once begins and ends at a border of words
 * on the side that others see (the `edge`), but for a ragged head and tail, whose pieces lie
 * within one word. Pieces overlap only by whole words: half of one could be written again with a
 * later value.
 */
#include "base/copy.h"

#include <stdint.h>

/* Readers of weights race by design; see the header. */
#define EXEMPT      __attribute__((no_sanitize("thread")))
#define EXEMPT_PART EXEMPT __attribute__((always_inline)) inline

/* Keeps the compiler from finding out that a loop is a memcpy(). */
#define OPAQUE() __asm__ volatile("" ::: "memory")

typedef uint64_t any64 __attribute__((aligned(1), may_alias));
typedef uint32_t any32 __attribute__((aligned(1), may_alias));
typedef uint16_t any16 __attribute__((aligned(1), may_alias));
typedef uint64_t any128 __attribute__((vector_size(16), aligned(1), may_alias));

#define MOVE(type, to, from) (*(type *)(to) = *(const type *)(from))

#define LARGE_BYTES 256 /* from here on it is worth to align the destination */
#define PAGE_BYTES  4096
#define ALIAS_BYTES 1024 /* how far the processor looks ahead, in these loops */

/* n < 8; the edge is aligned at the end of the head. */
static EXEMPT_PART void copy_head(char *to, const char *from, size_t n)
{
	if (n & 1)
		*to++ = *from++;
	if (n & 2) {
		MOVE(any16, to, from);
		to += 2;
		from += 2;
	}
	if (n & 4)
		MOVE(any32, to, from);
}

/* n < 8; the edge is aligned at the beginning of the tail. */
static EXEMPT_PART void copy_tail(char *to, const char *from, size_t n)
{
	if (n & 4) {
		MOVE(any32, to, from);
		to += 4;
		from += 4;
	}
	if (n & 2) {
		MOVE(any16, to, from);
		to += 2;
		from += 2;
	}
	if (n & 1)
		*to = *from;
}

/* Less than LARGE_BYTES, with a ragged head. */
static EXEMPT void copy_ragged(char *to, const char *from, size_t n, uintptr_t edge)
{
	size_t head = -edge & 7;

	if (head > n) {
		/* All of it lies within one word; its pieces may lie anyhow. */
		copy_head(to, from, n);
		return;
	}
	copy_head(to, from, head);
	to += head;
	from += head;
	n -= head;
	for (; n >= 16; n -= 16) {
		MOVE(any128, to, from);
		to += 16;
		from += 16;
		OPAQUE();
	}
	if (n & 8) {
		MOVE(any64, to, from);
		to += 8;
		from += 8;
	}
	copy_tail(to, from, n & 7);
}

/* The first and the last `bytes`, which may overlap; all is loaded before anything is stored. */
#define COPY_ENDS(vector, bytes, to, from, n)                                                     \
	do {                                                                                      \
		vector first[(bytes) / sizeof(vector)], last[(bytes) / sizeof(vector)];           \
		_Pragma("GCC unroll 8") for (size_t k = 0; k < (bytes) / sizeof(vector); k++)     \
			first[k] = ((const vector *)(from))[k];                                   \
		_Pragma("GCC unroll 8") for (size_t k = 0; k < (bytes) / sizeof(vector); k++)     \
			last[k] = ((const vector *)((from) + (n) - (bytes)))[k];                  \
		_Pragma("GCC unroll 8") for (size_t k = 0; k < (bytes) / sizeof(vector);          \
					     k++)((vector *)(to))[k] = first[k];                  \
		_Pragma("GCC unroll 8") for (size_t k = 0; k < (bytes) / sizeof(vector);          \
					     k++)((vector *)((to) + (n) - (bytes)))[k] = last[k]; \
	} while (0)

#define COPY_BLOCK(vector, to, from)                                                                  \
	do {                                                                                          \
		vector block[4];                                                                      \
		_Pragma("GCC unroll 4") for (size_t k = 0; k < 4; k++)                                \
			block[k] = ((const vector *)(from))[k];                                       \
		_Pragma("GCC unroll 4") for (size_t k = 0; k < 4; k++)((vector *)(to))[k] = block[k]; \
		OPAQUE();                                                                             \
	} while (0)

/*
 * At least 4 vectors and a multiple of 8, from an edge that is one: as blocks of 4 vectors
 * between unaligned ends, from the side that keeps loads clear of stores under way. Aligned is
 * the destination, which costs more otherwise, or the edge where that would split its words.
 */
#define COPY_LARGE(vector, to, from, n, edge)                                                         \
	do {                                                                                          \
		const size_t block_bytes = 4 * sizeof(vector);                                        \
		size_t ahead = ((uintptr_t)(to) - (uintptr_t)(from)) % PAGE_BYTES;                    \
		size_t head = -((uintptr_t)(to) % 8 ? (edge) : (uintptr_t)(to)) % sizeof(vector);     \
		size_t blocks = ((n)-head) / block_bytes;                                             \
		*(vector *)(to) = *(const vector *)(from);                                            \
		COPY_BLOCK(vector, (to) + (n)-block_bytes, (from) + (n)-block_bytes);                 \
		(to) += head;                                                                         \
		(from) += head;                                                                       \
		if (ahead && ahead < ALIAS_BYTES) {                                                   \
			for (size_t i = blocks; i-- > 0;)                                             \
				COPY_BLOCK(vector, (to) + i * block_bytes, (from) + i * block_bytes); \
		} else {                                                                              \
			for (size_t i = 0; i < blocks; i++)                                           \
				COPY_BLOCK(vector, (to) + i * block_bytes, (from) + i * block_bytes); \
		}                                                                                     \
	} while (0)

static EXEMPT void copy_large(char *to, const char *from, size_t n, uintptr_t edge)
{
	COPY_LARGE(any128, to, from, n, edge);
}

#if defined(__x86_64__)
typedef uint64_t any256 __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint64_t any512 __attribute__((vector_size(64), aligned(1), may_alias));

__attribute__((target("avx"))) static EXEMPT void copy_large_256(char *to, const char *from,
								 size_t n, uintptr_t edge)
{
	COPY_LARGE(any256, to, from, n, edge);
}

__attribute__((target("avx512f"))) static EXEMPT void copy_large_512(char *to, const char *from,
								     size_t n, uintptr_t edge)
{
	COPY_LARGE(any512, to, from, n, edge);
}
#endif

/* At least LARGE_BYTES. */
static EXEMPT void copy_long(char *to, const char *from, size_t n, uintptr_t edge)
{
	size_t head = -edge & 7, tail = (n - head) & 7;

	copy_head(to, from, head);
	copy_tail(to + n - tail, from + n - tail, tail);
	to += head;
	from += head;
	edge += head;
	n -= head + tail;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && n >= LARGE_BYTES)
		copy_large_512(to, from, n, edge);
	else if (__builtin_cpu_supports("avx"))
		copy_large_256(to, from, n, edge);
	else
#endif
		copy_large(to, from, n, edge);
}

/* n < LARGE_BYTES and a multiple of 8, from an edge that is one. */
static EXEMPT_PART void copy_words(char *to, const char *from, size_t n)
{
	if (n > 128)
		COPY_ENDS(any128, 128, to, from, n);
	else if (n > 64)
		COPY_ENDS(any128, 64, to, from, n);
	else if (n > 32)
		COPY_ENDS(any128, 32, to, from, n);
	else if (n > 16)
		COPY_ENDS(any128, 16, to, from, n);
	else if (n)
		COPY_ENDS(any64, 8, to, from, n);
}

static EXEMPT_PART void copy(char *to, const char *from, size_t n, uintptr_t edge)
{
	size_t words = n & ~(size_t)7;

	if (n == 8 && !(edge & 7)) {
		MOVE(any64, to, from);
	} else if (n >= LARGE_BYTES) {
		copy_long(to, from, n, edge);
	} else if (edge & 7) {
		copy_ragged(to, from, n, edge);
	} else {
		copy_words(to, from, words);
		copy_tail(to + words, from + words, n - words);
	}
}

EXEMPT void base_copy(void *dst, const void *src, size_t len_bytes)
{
	copy(dst, src, len_bytes, (uintptr_t)src);
}

EXEMPT void base_copy_out(void *dst, const void *src, size_t len_bytes)
{
	copy(dst, src, len_bytes, (uintptr_t)dst);
}

typedef int32_t lanes __attribute__((vector_size(32), aligned(4), may_alias));

#define EXPONENT 0x7f800000

/* An exponent of all ones is NaN or infinity. */
#define FINITE(src, n)                                                               \
	do {                                                                         \
		lanes bad = { 0 };                                                   \
		uint32_t any = 0;                                                    \
		size_t i = 0;                                                        \
		for (; i + 16 <= (n); i += 16) {                                     \
			lanes a = *(const lanes *)((src) + i) & EXPONENT;            \
			lanes b = *(const lanes *)((src) + i + 8) & EXPONENT;        \
			bad |= (lanes)((a == EXPONENT) | (b == EXPONENT));           \
		}                                                                    \
		for (; i < (n); i++)                                                 \
			any |= (*(const any32 *)((src) + i) & EXPONENT) == EXPONENT; \
		for (i = 0; i < 8; i++)                                              \
			any |= (uint32_t)bad[i];                                     \
		return !any;                                                         \
	} while (0)

static bool finite_plain(const float *src, size_t n)
{
	FINITE(src, n);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static bool finite_avx2(const float *src, size_t n)
{
	FINITE(src, n);
}
#endif

bool base_finite(const float *src, size_t n)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		return finite_avx2(src, n);
#endif
	return finite_plain(src, n);
}

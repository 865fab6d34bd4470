/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* The copy routine, and the check for finite values: as for each kind of processor that they know. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/word.h"
#include "support/support.h"

/* The features that the routines may use, of those that this processor has. */
static unsigned int allowed;

static bool has(const char *feature)
{
#if defined(__x86_64__)
	if (strcmp(feature, "avx512f") == 0)
		return allowed >= 2 && __builtin_cpu_supports("avx512f");
	if (strcmp(feature, "avx2") == 0)
		return allowed >= 1 && __builtin_cpu_supports("avx2");
	if (strcmp(feature, "avx") == 0)
		return allowed >= 1 && __builtin_cpu_supports("avx");
#endif
	return false;
}

#define __builtin_cpu_supports(feature) has(feature)
#include "base/copy.c"

#define ROOM  (1u << 20)
#define GUARD 128

static unsigned char from[ROOM + 2 * GUARD + 8192] __attribute__((aligned(4096)));
static unsigned char to[ROOM + 2 * GUARD + 8192] __attribute__((aligned(4096)));

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Copies n bytes and looks at them and at what is beside them. */
static void check(void (*routine)(void *, const void *, size_t), size_t at_to, size_t at_from, size_t n)
{
	unsigned char *dst = to + GUARD + at_to;
	const unsigned char *src = from + GUARD + at_from;

	memset(dst - GUARD, 0x5a, n + 2ul * GUARD);
	routine(dst, src, n);
	assert_memory_equal(dst, src, n);
	for (size_t i = 0; i < GUARD; i++) {
		assert_int_equal(dst[-1 - (ptrdiff_t)i], 0x5a);
		assert_int_equal(dst[n + i], 0x5a);
	}
}

static void fill(void)
{
	uint32_t seed = 1;

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)next_random(&seed);
}

static void every_short_length_at_every_alignment(void **state)
{
	(void)state;
	fill();
	for (size_t n = 0; n < 600; n += n < 300 ? 1 : 7) {
		for (size_t at = 0; at < 64; at += at < 9 ? 1 : 5) {
			check(base_copy, at, 0, n);
			check(base_copy, 0, at, n);
			check(base_copy, at, at, n);
			check(base_copy_out, at, 3, n);
			check(base_copy_out, 4, at, n);
		}
	}
}

static void long_copies_at_every_distance_modulo_a_page(void **state)
{
	static const size_t lengths[] = { 1024, 2048, 4100, 12345, 65536, 65532, 300001 };
	uint32_t seed = 3;

	(void)state;
	fill();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t distance = 0; distance < 40; distance++)
			check(base_copy, distance, 0, lengths[i]);
		for (unsigned int round = 0; round < support_rounds(80); round++) {
			check(base_copy, next_random(&seed) % 4096, next_random(&seed) % 4096,
			      lengths[i]);
			check(base_copy_out, next_random(&seed) % 4096, next_random(&seed) % 4096,
			      lengths[i]);
		}
	}
}

#define WORDS 300

struct tear {
	uint64_t shared[WORDS] __attribute__((aligned(64)));
	uint64_t stop;
};

static void *change_words(void *arg)
{
	struct tear *tear = arg;

	for (uint64_t value = 0; !word_acquire(&tear->stop); value = ~value)
		for (int i = 0; i < WORDS; i++)
			word_store(&tear->shared[i], value);
	return NULL;
}

/* Whatever the reader's own memory and the part that it reads. */
static void words_of_the_source_are_read_whole(void **state)
{
	static struct tear tear;
	static unsigned char local[WORDS * 8 + 64];
	pthread_t writer;
	uint32_t seed = 5;

	(void)state;
	tear.stop = 0;
	assert_int_equal(pthread_create(&writer, NULL, change_words, &tear), 0);
	for (unsigned int round = 0; round < support_rounds(400000); round++) {
		size_t first = next_random(&seed) % 64, end = WORDS * 8 - next_random(&seed) % 2300;
		unsigned char *dst = local + next_random(&seed) % 16;

		base_copy(dst, (unsigned char *)tear.shared + first, end - first);
		for (size_t at = (first + 7) & ~7ul; at + 8 <= end; at += 8) {
			uint64_t word;

			memcpy(&word, dst + at - first, 8);
			assert_true(word == 0 || word == UINT64_MAX);
		}
	}
	word_publish(&tear.stop, 1);
	pthread_join(writer, NULL);
}

struct out {
	struct tear *tear;
};

static void *copy_out(void *arg)
{
	const struct out *out = arg;
	static unsigned char local[2][WORDS * 8 + 64];
	uint32_t seed = 6;

	memset(local[1], 0xff, sizeof(local[1]));
	for (int value = 0; !word_acquire(&out->tear->stop); value = !value) {
		size_t first = next_random(&seed) % 64, end = WORDS * 8 - next_random(&seed) % 2300;

		/* Whole words only: half of one changed is half of one changed. */
		first &= ~7ul;
		end &= ~7ul;
		base_copy_out((unsigned char *)out->tear->shared + first,
			      local[value] + next_random(&seed) % 16, end - first);
	}
	return NULL;
}

static void words_of_the_destination_are_written_whole(void **state)
{
	static struct tear tear;
	struct out out = { .tear = &tear };
	pthread_t writer;

	(void)state;
	tear.stop = 0;
	assert_int_equal(pthread_create(&writer, NULL, copy_out, &out), 0);
	for (unsigned int round = 0; round < support_rounds(100000); round++) {
		for (int i = 0; i < WORDS; i++) {
			uint64_t word = word_load(&tear.shared[i]);

			assert_true(word == 0 || word == UINT64_MAX);
		}
	}
	word_publish(&tear.stop, 1);
	pthread_join(writer, NULL);
}

static void one_value_that_is_not_finite_is_found_anywhere(void **state)
{
	static float values[131];
	const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
	const float good[] = { 0, -0.0f, 3.4e38f, -3.4e38f, 1e-45f, -1e-45f, 1 };

	(void)state;
	for (size_t i = 0; i < 131; i++)
		values[i] = good[i % 7];
	assert_true(base_finite(values, 0));
	for (size_t n = 1; n <= 131; n++) {
		for (size_t start = 0; start < 3 && start < n; start++)
			assert_true(base_finite(values + start, n - start));
		for (size_t at = 0; at < n; at++) {
			float kept = values[at];

			values[at] = bad[(n + at) % 4];
			assert_false(base_finite(values, n));
			assert_true(base_finite(values, at));
			assert_true(base_finite(values + at + 1, n - at - 1));
			values[at] = kept;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_short_length_at_every_alignment),
		cmocka_unit_test(long_copies_at_every_distance_modulo_a_page),
		cmocka_unit_test(words_of_the_source_are_read_whole),
		cmocka_unit_test(words_of_the_destination_are_written_whole),
		cmocka_unit_test(one_value_that_is_not_finite_is_found_anywhere),
	};

	int failed = 0;

	failed += cmocka_run_group_tests_name("any processor", tests, NULL, NULL);
	allowed = 1;
	failed += cmocka_run_group_tests_name("vectors of 32 bytes", tests, NULL, NULL);
	allowed = 2;
	failed += cmocka_run_group_tests_name("vectors of 64 bytes", tests, NULL, NULL);
	return failed;
}

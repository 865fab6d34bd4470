/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* `ramps stat` on arenas with damage at random places: it may refuse them, but never crash or print nonsense. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/schema.h"
#include "tools/arena.h"

#include <cmocka.h>

#define WORKERS 40u /* a tree of two levels */
#define ROUNDS  2000u

struct span { /* what is worth damaging, and its copy */
	char *at, *copy;
	size_t len_bytes;
};

static struct hand_arena hand;
static struct span spans[4];
static uint64_t random_state = 88172645463325252ull;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void fill(void)
{
	const uint64_t group = 0xf0f0;
	uint64_t *counts;

	for (uint32_t i = 0; i < WORKERS; i++) {
		hand_states(&hand)[i] = core_state(i % 4, 1 + i);
		hand_ranks(&hand)[i].applied = i;
		hand_words(&hand)[i].tail = i;
	}
	hand_chunks(&hand, hand_table(&hand, "w", RAMPS_SLOTS, 100, 1000))[0].steps = 5;
	hand_table(&hand, "big", RAMPS_SLOTS, 1 << 13, 1 << 13);
	hand_table(&hand, "direct", RAMPS_DIRECT, 7, 7);
	counts = hand_clock(&hand, "clock");
	for (uint32_t i = 0; i < WORKERS; i++)
		counts[i] = i;
	hand_barrier(&hand, "all", NULL, WORKERS)[0].word = 5ull << 32 | 0x1234;
	hand_barrier(&hand, "some", &group, 8)[0].word = 0x3f;
}

static void remember(struct span *span, uint32_t region, uint64_t offset, uint64_t end)
{
	span->at = core_arena_at(hand.arena, region, offset);
	span->len_bytes = end - offset;
	span->copy = malloc(span->len_bytes);
	assert_non_null(span->copy);
	memcpy(span->copy, span->at, span->len_bytes);
}

static int make(void **state)
{
	const struct core_header *header;
	uint64_t end;

	(void)state;
	hand_arena_make(&hand, WORKERS);
	fill();
	header = hand_header(&hand);
	end = header->entries_offset + (header->entries + 2) * sizeof(struct core_entry);
	remember(&spans[0], CORE_PUBLISHED, 0, sizeof(*header));
	remember(&spans[1], CORE_PUBLISHED, header->entries_offset, end);
	remember(&spans[2], CORE_WORDS, 0, hand.arena->allocated[CORE_WORDS]);
	remember(&spans[3], CORE_PUBLISHED, header->states_offset, header->entries_offset);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	for (size_t i = 0; i < 4; i++)
		free(spans[i].copy);
	hand_arena_remove(&hand);
	return 0;
}

static void restore(void)
{
	for (size_t i = 0; i < 4; i++)
		memcpy(spans[i].at, spans[i].copy, spans[i].len_bytes);
}

/* A bit, a byte, or a word that is at the edge of something. */
static void damage(uint32_t places)
{
	static const uint64_t edges[] = { 0,           1,
					  7,           8,
					  4096,        16384,
					  1ull << 31,  UINT32_MAX,
					  1ull << 32,  1ull << 47,
					  INT64_MAX,   1ull << 63,
					  UINT64_MAX,  UINT64_MAX - 7,
					  64ull << 20, 1ull << 44 };

	while (places--) {
		/* Entries are hit most: the rest has little to go wrong. */
		struct span *span = &spans[next_random() % 8 < 5 ? 1 : next_random() % 4];
		size_t at = next_random() % span->len_bytes;

		switch (next_random() % 3) {
		case 0:
			span->at[at] = (char)(span->at[at] ^ 1 << next_random() % 8);
			break;
		case 1:
			span->at[at] = (char)next_random();
			break;
		default:
			memcpy(span->at + at / 8 * 8, &edges[next_random() % 16], sizeof(uint64_t));
		}
	}
}

static uint32_t rounds(void)
{
	const char *san = getenv("SAN"), *quick = getenv("QUICK");

	if (quick && *quick && strcmp(quick, "0") != 0)
		return ROUNDS / 20;
	return san && strcmp(san, "thread") == 0 ? ROUNDS / 10 : ROUNDS;
}

static void stat_of_a_damaged_arena_ends_well(void **state)
{
	uint32_t shown = 0, n = rounds();

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		bool json = i % 2;
		char *output;
		int status;

		restore();
		damage(1 + (uint32_t)(next_random() % 24));
		status = run_ramps(json ? "stat --json --watch=0.001 --count=1 " ARENA_ADDRESS :
					  "stat --all --watch=0.001 --count=1 " ARENA_ADDRESS,
				   &output);
		if (status)
			fail_msg("round %u: wait status 0x%x: %.2000s", i, status, output);
		shown += !!strstr(output, "by-hand");
		if (json) {
			json_error_t error;
			json_t *parsed = json_loads(output, JSON_REJECT_DUPLICATES, &error);

			if (!parsed)
				fail_msg("round %u: %s: %.2000s", i, error.text, output);
			json_decref(parsed);
		}
		free(output);
	}
	restore();
	print_message("%u of %u damaged arenas were shown\n", shown, n);
	assert_in_range(shown, n / 2, n - 1); /* or else the damage is of one kind only */
}

static bool stop;

static void *keep_damaging(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		damage(1 + (uint32_t)(next_random() % 24));
		restore();
	}
	return NULL;
}

static void stat_of_an_arena_that_is_damaged_meanwhile_ends_well(void **state)
{
	char arguments[128], *output;
	pthread_t thread;
	int status;

	(void)state;
	restore();
	snprintf(arguments, sizeof(arguments), "stat --all --watch=0.001 --count=%u " ARENA_ADDRESS,
		 rounds());
	assert_int_equal(pthread_create(&thread, NULL, keep_damaging, NULL), 0);
	status = run_ramps(arguments, &output);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	if (status)
		fail_msg("wait status 0x%x: %.2000s", status, output);
	assert_non_null(strstr(output, "by-hand"));
	free(output);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stat_of_a_damaged_arena_ends_well),
		cmocka_unit_test(stat_of_an_arena_that_is_damaged_meanwhile_ends_well),
	};

	return cmocka_run_group_tests(tests, make, drop);
}

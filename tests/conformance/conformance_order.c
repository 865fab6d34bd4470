/* SPDX-License-Identifier: BSD-2-Clause */
/* What several clients at once may rely on. */
#include <errno.h>
#include <string.h>

#include "conformance.h"

#define WORLD   struct conformance_world *world = *state
#define CLIENTS 8
#define JOIN_MS 60000
#define SPREAD  32 /* words that lists add to */

static void run(struct conformance_world *world,
		void (*body)(struct conformance_client *, unsigned int, void *), unsigned int n,
		void *arg)
{
	const struct conformance_job job = { .server = &world->server, .body = body, .arg = arg };
	pid_t pids[CLIENTS];

	conformance_spawn(&job, n, pids);
	conformance_join(n, pids, JOIN_MS);
}

static void add_many(struct conformance_client *client, unsigned int index, void *arg)
{
	const unsigned int rounds = *(unsigned int *)arg;
	uint64_t offsets[SPREAD], addends[SPREAD], old, last = 0;
	const struct fabric_op list = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.count = SPREAD,
		.offsets = offsets,
		.addends = addends,
	};

	for (unsigned int i = 0; i < SPREAD; i++) {
		offsets[i] = 4096 + i * 8;
		addends[i] = index + 1;
	}
	for (unsigned int round = 0; round < rounds; round++) {
		child_check(conformance_add(client, 0, 1, &old) == 0);
		child_check(!round || old > last);
		last = old;
		child_check(conformance_do(client, &list) == 0);
	}
}

static void adds_of_eight_processes_are_exact(void **state)
{
	WORLD;
	unsigned int rounds = support_rounds(20000);
	const uint64_t *words = world->server.memory[WORDS].base;

	run(world, add_many, CLIENTS, &rounds);
	assert_int_equal(words[0], (uint64_t)rounds * CLIENTS);
	for (unsigned int i = 0; i < SPREAD; i++)
		assert_int_equal(words[512 + i], (uint64_t)rounds * CLIENTS * (CLIENTS + 1) / 2);
}

static void swap_many(struct conformance_client *client, unsigned int index, void *arg)
{
	const unsigned int rounds = *(unsigned int *)arg;
	uint64_t seen = 0, old;

	(void)index;
	for (unsigned int round = 0; round < rounds; round++) {
		for (;;) {
			child_check(conformance_swap(client, 8, seen, seen + 1, &old) == 0);
			if (old == seen)
				break;
			child_check(old > seen);
			seen = old;
		}
	}
}

static void swaps_in_contention_lose_nothing(void **state)
{
	WORLD;
	unsigned int rounds = support_rounds(10000);

	run(world, swap_many, CLIENTS, &rounds);
	assert_int_equal(((uint64_t *)world->server.memory[WORDS].base)[1], (uint64_t)rounds * CLIENTS);
}

#define DATA_WORDS 200

/* Client 0 writes data and then adds to a word, in one list; client 1 waits for that, looks at the data, and adds to another. */
static void write_then_add(struct conformance_client *client, unsigned int index, void *arg)
{
	const unsigned int rounds = *(unsigned int *)arg;
	uint64_t data[DATA_WORDS], value = 0;
	const struct fabric_op ops[2] = {
		{ .opcode = FABRIC_WRITE, .region = SHARED, .offset = 512, .len_bytes = sizeof(data), .local = data },
		{ .opcode = FABRIC_FETCH_ADD, .flags = FABRIC_WAITABLE, .region = WORDS, .offset = 64, .operand = 1 },
	};

	for (uint64_t round = 1; round <= rounds; round++) {
		if (index == 0) {
			for (unsigned int i = 0; i < DATA_WORDS; i++)
				data[i] = round;
			child_check(fabric_execute(client->ep, ops, 2, &client->completion,
						   conformance_in(client, JOIN_MS)) == 0);
			child_check(fabric_wait_word(client->ep, WORDS, 128, round - 1, &value,
						     conformance_in(client, JOIN_MS)) == 0);
		} else {
			child_check(fabric_wait_word(client->ep, WORDS, 64, round - 1, &value,
						     conformance_in(client, JOIN_MS)) == 0);
			child_check(conformance_read(client, SHARED, 512, data, sizeof(data)) == 0);
			for (unsigned int i = 0; i < DATA_WORDS; i++)
				child_check(data[i] == round);
			child_check(conformance_add(client, 128, 1, NULL) == 0);
		}
		child_check(value == round);
	}
}

static void who_sees_the_atomic_sees_the_write_before_it(void **state)
{
	WORLD;
	unsigned int rounds = support_rounds(20000);

	run(world, write_then_add, 2, &rounds);
}

#define TEAR_WORDS 512

/* Client 0 writes words of all zeros and all ones in turn; the others must see no other. */
static void tear(struct conformance_client *client, unsigned int index, void *arg)
{
	const unsigned int rounds = *(unsigned int *)arg;
	uint64_t data[TEAR_WORDS + 1];
	/* Readers differ in how their memory lies to the words, the last by half a word. */
	char *local = (char *)data + (index == 3 ? 4 : 0);
	uint64_t stop = 0, word;

	for (unsigned int round = 0; index == 0 && round < rounds; round++) {
		uint64_t offset = round % 3 * 8, words = round % 2 ? TEAR_WORDS - 2 : 17;

		memset(data, round / 2 % 2 ? 0xff : 0, sizeof(data));
		child_check(conformance_write(client, SHARED, offset, data, words * 8) == 0);
	}
	if (index == 0)
		child_check(conformance_add(client, 8, 1, NULL) == 0);
	while (index && !stop) {
		for (unsigned int round = 0; round < 100; round++) {
			uint64_t words = round % 2 ? TEAR_WORDS : 19;

			child_check(conformance_read(client, SHARED, 0, local, words * 8) == 0);
			for (unsigned int i = 0; i < words; i++) {
				memcpy(&word, local + i * 8ul, 8);
				child_check(word == 0 || word == UINT64_MAX);
			}
		}
		child_check(conformance_read(client, WORDS, 8, &stop, 8) == 0);
	}
}

static void aligned_words_are_never_torn(void **state)
{
	WORLD;
	unsigned int rounds = support_rounds(400000);

	run(world, tear, 4, &rounds);
}

static void a_read_sees_earlier_operations_of_its_endpoint(void **state)
{
	WORLD;
	uint64_t value, seen, words[3];
	struct fabric_op ops[3] = {
		{ .opcode = FABRIC_WRITE, .region = RAGGED, .offset = 16, .len_bytes = 8, .local = &value },
		{ .opcode = FABRIC_FETCH_ADD, .region = RAGGED, .offset = 24, .operand = 2 },
		{ .opcode = FABRIC_READ,
		  .flags = FABRIC_FENCE,
		  .region = RAGGED,
		  .offset = 8,
		  .len_bytes = 24,
		  .local = words },
	};

	for (value = 1; value < 200; value++) {
		assert_ok(fabric_execute(world->client.ep, ops, 3, &world->client.completion,
					 conformance_in(&world->client, JOIN_MS)));
		assert_int_equal(words[1], value);
		assert_int_equal(words[2], value * 2);
		assert_ok(conformance_read(&world->client, RAGGED, 16, &seen, 8));
		assert_int_equal(seen, value);
	}
}

#define WITH_SERVER(test) \
	cmocka_unit_test_setup_teardown(test, conformance_setup, conformance_teardown)

const struct CMUnitTest conformance_order_tests[] = {
	WITH_SERVER(adds_of_eight_processes_are_exact),
	WITH_SERVER(swaps_in_contention_lose_nothing),
	WITH_SERVER(who_sees_the_atomic_sees_the_write_before_it),
	WITH_SERVER(aligned_words_are_never_torn),
	WITH_SERVER(a_read_sees_earlier_operations_of_its_endpoint),
};
const size_t conformance_order_count = sizeof(conformance_order_tests) /
				       sizeof(conformance_order_tests[0]);

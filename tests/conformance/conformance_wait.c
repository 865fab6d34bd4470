/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting on a word: no change is missed, no wait outlasts its deadline or the server. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "conformance.h"

#define WORLD   struct conformance_world *world = *state
#define JOIN_MS 100000
#define LONG_MS 60000

static int wait_for(struct conformance_client *client, uint32_t region, uint64_t offset,
		    uint64_t seen, uint64_t *value, int timeout_ms)
{
	return fabric_wait_word(client->ep, region, offset, seen, value,
				conformance_in(client, timeout_ms));
}

static void a_changed_word_returns_at_once(void **state)
{
	WORLD;
	uint64_t value = 0;

	assert_ok(conformance_add(&world->client, 8, 5, NULL));
	assert_ok(fabric_wait_word(world->client.ep, WORDS, 8, 0, &value, 0));
	assert_int_equal(value, 5);
	assert_ok(wait_for(&world->client, WORDS, 8, 4, &value, LONG_MS));
	assert_int_equal(value, 5);
	assert_ok(fabric_wait_word(world->client.ep, WORDS, 8, 4, &value, BASE_FOREVER));
	assert_int_equal(value, 5);
}

static void a_wait_ends_at_its_deadline(void **state)
{
	WORLD;
	static const int timeouts_ms[] = { 1, 10, 120 };
	uint64_t value = 9, before_ns, took_ns;

	assert_error(fabric_wait_word(world->client.ep, PUBLISHED, 8, 0, &value, 0), ETIMEDOUT);
	assert_int_equal(value, 0);
	for (size_t i = 0; i < 3; i++) {
		value = 9;
		before_ns = fabric_now(world->client.fabric);
		assert_error(wait_for(&world->client, PUBLISHED, 8, 0, &value, timeouts_ms[i]), ETIMEDOUT);
		took_ns = fabric_now(world->client.fabric) - before_ns;
		assert_int_equal(value, 0);
		assert_true(took_ns >= (uint64_t)timeouts_ms[i] * NS_PER_MS);
		assert_true(took_ns < ((uint64_t)timeouts_ms[i] + 1000) * NS_PER_MS);
	}
}

static void a_wait_needs_what_a_read_of_the_word_needs(void **state)
{
	WORLD;
	uint64_t value;

	assert_error(wait_for(&world->client, SLOTS, 8, 0, &value, 100), EACCES);
	assert_error(wait_for(&world->client, MISSING, 8, 0, &value, 100), EACCES);
	assert_error(wait_for(&world->client, 1u << 16, 8, 0, &value, 100), EACCES);
	assert_error(wait_for(&world->client, WORDS, REGION_BYTES, 0, &value, 100), ERANGE);
	assert_error(wait_for(&world->client, WORDS, UINT64_MAX - 7, 0, &value, 100), ERANGE);
	assert_error(wait_for(&world->client, WORDS, 4, 0, &value, 100), EINVAL);
}

static void wait_and_answer(struct conformance_client *client, unsigned int index, void *arg)
{
	uint64_t value;

	(void)arg;
	child_check(conformance_add(client, 0, 1, NULL) == 0);
	child_check(wait_for(client, index % 2 ? WORDS : PUBLISHED, 640, 0, &value, LONG_MS) == 0);
	child_check(value == 42);
}

/* Waits until n clients say that they wait, and then until they do so for 100 ms: asleep, most of them. */
static void let_sleep(struct conformance_world *world, uint64_t n)
{
	uint64_t value = 0;

	while (value < n)
		assert_ok(wait_for(&world->client, WORDS, 0, value, &value, LONG_MS));
	assert_error(wait_for(&world->client, WORDS, 8, 0, &value, 100), ETIMEDOUT);
}

static void sleepers_are_woken_by_an_atomic_and_by_the_server(void **state)
{
	WORLD;
	const struct conformance_job job = { .server = &world->server, .body = wait_and_answer };
	struct conformance_message store = {
		.command = STORE,
		.region = PUBLISHED,
		.offset = 640,
		.value = 42,
	};
	uint64_t before_ns;
	pid_t pids[8];

	conformance_spawn(&job, 8, pids);
	let_sleep(world, 8);
	before_ns = fabric_now(world->client.fabric);
	assert_ok(conformance_swap(&world->client, 640, 0, 42, NULL));
	assert_ok(conformance_ask(&world->client, &store));
	conformance_join(8, pids, JOIN_MS);
	assert_true(fabric_now(world->client.fabric) - before_ns < 5 * NS_PER_S);
}

static void kill_soon(void *arg)
{
	conformance_sleep(150000);
	conformance_signal(*(pid_t *)arg, SIGKILL);
}

static void one_who_waits_sees_the_death_of_the_server(void **state)
{
	WORLD;
	/* Another kills it while this process sleeps. */
	pid_t killer = conformance_fork(kill_soon, &world->server.pid, sizeof(world->server.pid));
	uint64_t value, before_ns = fabric_now(world->client.fabric), took_ns;

	assert_error(wait_for(&world->client, WORDS, 8, 0, &value, LONG_MS), ENOTCONN);
	took_ns = fabric_now(world->client.fabric) - before_ns;
	assert_true(took_ns < ((uint64_t)conformance->death_ms + 150 + 500) * NS_PER_MS);
	assert_int_equal(conformance_wait(killer, JOIN_MS), 0);
	assert_error(wait_for(&world->client, WORDS, 8, 0, &value, LONG_MS), ENOTCONN);
	assert_error(conformance_add(&world->client, 8, 1, NULL), ENOTCONN);
	assert_error(fabric_check(world->client.ep), ENOTCONN);
}

#define PLAYERS 4

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/*
 * The token goes around: whoever's turn it is takes a while, from nothing to longer than others stay awake,
 * and then passes it on. A waiter misses one wake-up in all that: the wait of a moment becomes one of its
 * fabric's longest sleep, and there is a limit to how many may take that long.
 */
static void pass_token(struct conformance_client *client, unsigned int index, void *arg)
{
	const unsigned int rounds = *(unsigned int *)arg;
	uint64_t value = 0, late = 0, started_ns, took_ns;
	uint32_t seed = index + 1;

	for (uint64_t turn = index; turn < rounds; turn += PLAYERS) {
		while (value != turn) {
			started_ns = fabric_now(client->fabric);
			child_check(wait_for(client, WORDS, 64, value, &value, LONG_MS) == 0);
			took_ns = fabric_now(client->fabric) - started_ns;
			late += took_ns > 40 * NS_PER_MS;
		}
		switch (next_random(&seed) % 4) {
		case 0:
			conformance_sleep(next_random(&seed) % 300);
			break;
		case 1:
			for (started_ns = base_now_ns() + next_random(&seed) % 100000;
			     base_now_ns() < started_ns;)
				;
			break;
		default:
			break;
		}
		child_check(conformance_add(client, 64, 1, &value) == 0);
		child_check(value == turn);
		value++;
	}
	/* The machine itself may stall a few. */
	child_check(late <= 3 + rounds / 4000);
}

static void no_wake_up_is_lost(void **state)
{
	WORLD;
	unsigned int rounds = support_rounds(20000);
	const struct conformance_job job = {
		.server = &world->server,
		.body = pass_token,
		.arg = &rounds,
	};
	pid_t pids[PLAYERS];

	conformance_spawn(&job, PLAYERS, pids);
	conformance_join(PLAYERS, pids, JOIN_MS);
}

#define WITH_SERVER(test) \
	cmocka_unit_test_setup_teardown(test, conformance_setup, conformance_teardown)

const struct CMUnitTest conformance_wait_tests[] = {
	WITH_SERVER(a_changed_word_returns_at_once),
	WITH_SERVER(a_wait_ends_at_its_deadline),
	WITH_SERVER(a_wait_needs_what_a_read_of_the_word_needs),
	WITH_SERVER(sleepers_are_woken_by_an_atomic_and_by_the_server),
	WITH_SERVER(one_who_waits_sees_the_death_of_the_server),
	WITH_SERVER(no_wake_up_is_lost),
};
const size_t conformance_wait_count = sizeof(conformance_wait_tests) / sizeof(conformance_wait_tests[0]);

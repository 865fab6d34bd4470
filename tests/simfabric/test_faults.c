/* SPDX-License-Identifier: BSD-2-Clause */
/* Each kind of fault happens when it is asked for, does what it may do, and nothing more. */
#include <errno.h>
#include <string.h>

#include "lab.h"

#define WORDS  64
#define ROUNDS 400

/* The server's CPU changes all words at once, as others see it: it gives way only after that. */
static void change_all(struct lab *lab)
{
	for (int i = 0; i < WORDS; i++)
		lab->words[i] = (lab->words[i] + 1) % 256 * 0x0101010101010101ull;
}

/* How many of ROUNDS READs saw two states at once. */
static unsigned int torn_reads(struct lab *lab)
{
	uint64_t into[WORDS];
	const struct fabric_op op = { .opcode = FABRIC_READ, .len_bytes = sizeof(into), .local = into };
	struct lab_client client;
	unsigned int torn = 0;

	lab->work = change_all;
	lab_open(lab);
	assert_ok(lab_connect(&client));
	for (int round = 0; round < ROUNDS; round++) {
		bool mixed = false;

		assert_ok(lab_do(&client, &op, 1));
		for (int i = 0; i < WORDS; i++) {
			mixed |= into[i] != into[0];
			assert_int_equal(into[i] % 0x0101010101010101ull, 0); /* each word is whole */
		}
		torn += mixed;
	}
	lab_disconnect(&client);
	lab_close(lab);
	return torn;
}

static void a_read_is_torn_between_words_only_if_asked(void **state)
{
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	assert_int_equal(torn_reads(&lab), 0);
	lab_init(&lab, 1);
	lab.options.rate[SIM_TEAR] = SIM_CERTAIN / 2;
	assert_in_range(torn_reads(&lab), ROUNDS / 10, ROUNDS * 3 / 4);
}

static void count_up(struct lab *lab)
{
	lab->words[0]++;
}

/* How many of ROUNDS second READs saw less than the first. */
static unsigned int overtaken(struct lab *lab, uint8_t flags)
{
	uint64_t first, second;
	const struct fabric_op ops[2] = {
		{ .opcode = FABRIC_READ, .len_bytes = 8, .local = &first },
		{ .opcode = FABRIC_READ, .flags = flags, .len_bytes = 8, .local = &second },
	};
	struct lab_client client;
	unsigned int less = 0;

	lab->work = count_up;
	lab_open(lab);
	assert_ok(lab_connect(&client));
	for (int round = 0; round < ROUNDS; round++) {
		assert_ok(lab_do(&client, ops, 2));
		less += second < first;
	}
	lab_disconnect(&client);
	lab_close(lab);
	return less;
}

static void a_read_overtakes_another_only_if_asked_and_not_fenced(void **state)
{
	struct lab lab;

	(void)state;
	lab_init(&lab, 2);
	assert_int_equal(overtaken(&lab, 0), 0);
	lab_init(&lab, 2);
	lab.options.rate[SIM_READ_ORDER] = SIM_CERTAIN / 2;
	assert_in_range(overtaken(&lab, 0), ROUNDS / 20, ROUNDS * 3 / 4);
	lab_init(&lab, 2);
	lab.options.rate[SIM_READ_ORDER] = SIM_CERTAIN / 2;
	assert_int_equal(overtaken(&lab, FABRIC_FENCE), 0);
}

static void a_read_sees_what_was_posted_before_it(void **state)
{
	struct lab_client client;
	uint64_t value[WORDS], words[WORDS + 1];
	const struct fabric_op ops[3] = {
		{ .opcode = FABRIC_WRITE, .len_bytes = sizeof(value), .local = value },
		{ .opcode = FABRIC_FETCH_ADD, .offset = sizeof(value), .operand = 1 },
		{ .opcode = FABRIC_READ, .len_bytes = sizeof(words), .local = words },
	};
	struct lab lab;

	(void)state;
	lab_init(&lab, 3);
	lab.options.rate[SIM_TEAR] = lab.options.rate[SIM_READ_ORDER] = SIM_CERTAIN / 2;
	lab.options.rate[SIM_DELAY] = SIM_CERTAIN / 10;
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	for (uint64_t round = 1; round < ROUNDS; round++) {
		for (int i = 0; i < WORDS; i++)
			value[i] = round;
		assert_ok(lab_do(&client, ops, 3));
		for (int i = 0; i <= WORDS; i++)
			assert_int_equal(words[i], round);
	}
	lab_disconnect(&client);
	lab_close(&lab);
}

/* Whoever sees the atomic sees the WRITEs before it; these land in pieces, in any order. */
static void writes_are_whole_before_a_later_atomic(void **state)
{
	struct lab_client client;
	uint64_t value[2][WORDS];
	const struct fabric_op ops[3] = {
		{ .opcode = FABRIC_WRITE, .offset = 8, .len_bytes = sizeof(value[0]), .local = value[0] },
		{ .opcode = FABRIC_WRITE,
		  .offset = 8 + sizeof(value[0]),
		  .len_bytes = sizeof(value[1]),
		  .local = value[1] },
		{ .opcode = FABRIC_FETCH_ADD, .operand = 1 },
	};
	unsigned int half = 0, later_first = 0;
	struct lab lab;

	(void)state;
	lab_init(&lab, 4);
	lab.options.rate[SIM_TEAR] = SIM_CERTAIN;
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	for (uint64_t round = 1; round < ROUNDS; round++) {
		for (int i = 0; i < WORDS; i++)
			value[0][i] = value[1][i] = round;
		assert_ok(fabric_post(client.ep, ops, 3, &client.completion));
		while (lab.words[0] != round) {
			unsigned int now[2] = { 0 };

			for (int i = 0; i < 2 * WORDS; i++)
				now[i / WORDS] += lab.words[1 + i] == round;
			half += now[0] && now[0] < WORDS;
			later_first += now[1] && now[0] < WORDS;
			sim_pause(100);
		}
		for (int i = 0; i < 2 * WORDS; i++)
			assert_int_equal(lab.words[1 + i], round);
		assert_ok(lab_finish(&client));
	}
	assert_true(half > ROUNDS / 2);
	assert_true(later_first > ROUNDS / 10);
	lab_disconnect(&client);
	lab_close(&lab);
}

static void a_delay_takes_up_to_a_hundred_times_as_long(void **state)
{
	struct lab_client client;
	uint64_t before_ns, took_ns,
		most_ns = 0, way_ns = sim_costs_plain.one_way_ns + sim_costs_plain.jitter_ns;
	struct lab lab;

	(void)state;
	lab_init(&lab, 5);
	lab.options.rate[SIM_DELAY] = SIM_CERTAIN / 10;
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	for (int round = 0; round < ROUNDS; round++) {
		before_ns = sim_now(lab.sim);
		assert_ok(lab_add(&client, 0, 1, NULL));
		took_ns = sim_now(lab.sim) - before_ns;
		most_ns = took_ns > most_ns ? took_ns : most_ns;
	}
	assert_in_range(most_ns, 20 * way_ns, 201 * way_ns);
	lab_disconnect(&client);
	lab_close(&lab);
}

static void a_stall_takes_time_of_one_process(void **state)
{
	struct sim_stats stats;
	struct lab_client client;
	uint64_t before_ns;
	char text[8];
	struct lab lab;

	(void)state;
	lab_init(&lab, 6);
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	sim_stall(lab.server, 5 * NS_PER_MS);
	before_ns = sim_now(lab.sim);
	assert_ok(lab_add(&client, 0, 1, NULL)); /* its device goes on */
	assert_true(sim_now(lab.sim) - before_ns < NS_PER_MS);
	assert_ok(fabric_send(client.ep, "hi", 2));
	assert_int_equal(fabric_recv(client.ep, text, sizeof(text), sim_now(lab.sim) + LAB_LONG), 2);
	assert_true(sim_now(lab.sim) - before_ns >= 5 * NS_PER_MS);
	sim_stall(lab.server, BASE_FOREVER);
	assert_ok(fabric_send(client.ep, "hi", 2));
	assert_error(fabric_recv(client.ep, text, sizeof(text), sim_now(lab.sim) + NS_PER_S), EAGAIN);
	sim_stall(lab.server, 0);
	assert_int_equal(fabric_recv(client.ep, text, sizeof(text), sim_now(lab.sim) + NS_PER_MS), 2);
	sim_get_stats(lab.sim, &stats);
	assert_int_equal(stats.faults[SIM_STALL], 2);
	lab_disconnect(&client);
	lab_close(&lab);
}

static void a_late_message_stays_in_order(void **state)
{
	uint64_t before_ns, longest_ns = 0, number, got;
	struct lab_client client;
	struct lab lab;

	(void)state;
	lab_init(&lab, 7);
	lab.options.rate[SIM_LATE_MESSAGE] = SIM_CERTAIN / 4;
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	for (number = 0; number < ROUNDS; number += 8) {
		before_ns = sim_now(lab.sim);
		for (uint64_t i = 0; i < 8; i++) {
			got = number + i;
			assert_ok(fabric_send(client.ep, &got, sizeof(got)));
		}
		for (uint64_t i = 0; i < 8; i++) {
			assert_int_equal(
				fabric_recv(client.ep, &got, sizeof(got), before_ns + LAB_LONG), 8);
			assert_int_equal(got, number + i);
		}
		if (sim_now(lab.sim) - before_ns > longest_ns)
			longest_ns = sim_now(lab.sim) - before_ns;
	}
	assert_true(longest_ns > 10 * sim_costs_plain.message_ns);
	lab_disconnect(&client);
	lab_close(&lab);
}

/* The source is taken at the post or later: only a WRITE that is inline is safe at once. */
static void a_source_may_be_taken_late_but_not_if_inline(void **state)
{
	unsigned int old = 0, changed = 0;
	struct lab_client client;
	uint64_t value;
	struct fabric_op op = { .opcode = FABRIC_WRITE, .len_bytes = 8, .local = &value };
	struct lab lab;

	(void)state;
	lab_init(&lab, 8);
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	for (uint64_t round = 1; round < 100; round++) {
		op.flags = round % 2 ? FABRIC_INLINE : 0;
		value = 2 * round;
		assert_ok(fabric_post(client.ep, &op, 1, &client.completion));
		value++;
		assert_ok(lab_finish(&client));
		assert_int_equal(lab.words[0] / 2, round);
		if (op.flags)
			assert_int_equal(lab.words[0] % 2, 0);
		else if (lab.words[0] % 2)
			changed++;
		else
			old++;
	}
	assert_true(old > 10 && changed > 10);
	lab_disconnect(&client);
	lab_close(&lab);
}

static void a_result_is_not_there_before_its_completion(void **state)
{
	uint64_t read = 1, old = 1;
	const struct fabric_op ops[2] = {
		{ .opcode = FABRIC_READ, .len_bytes = 8, .local = &read },
		{ .opcode = FABRIC_FETCH_ADD, .operand = 5, .local = &old },
	};
	struct lab_client client;
	struct lab lab;

	(void)state;
	lab_init(&lab, 9);
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	assert_ok(fabric_post(client.ep, ops, 2, &client.completion));
	while (lab.words[0] != 5) {
		assert_int_equal(read, 0xdbdbdbdbdbdbdbdbull);
		assert_int_equal(old, 0xdbdbdbdbdbdbdbdbull);
		sim_pause(50);
	}
	assert_int_equal(client.completion.pending, 1);
	assert_ok(lab_finish(&client));
	assert_int_equal(read, 0);
	assert_int_equal(old, 0);
	lab_disconnect(&client);
	lab_close(&lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_read_is_torn_between_words_only_if_asked),
		cmocka_unit_test(a_read_overtakes_another_only_if_asked_and_not_fenced),
		cmocka_unit_test(a_read_sees_what_was_posted_before_it),
		cmocka_unit_test(writes_are_whole_before_a_later_atomic),
		cmocka_unit_test(a_delay_takes_up_to_a_hundred_times_as_long),
		cmocka_unit_test(a_stall_takes_time_of_one_process),
		cmocka_unit_test(a_late_message_stays_in_order),
		cmocka_unit_test(a_source_may_be_taken_late_but_not_if_inline),
		cmocka_unit_test(a_result_is_not_there_before_its_completion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting: how long, by polling or asleep, and that no completion is slept through. */
#include "rig.h"

static int post_add(struct rig *rig)
{
	const struct fabric_op op = { .opcode = FABRIC_FETCH_ADD, .region = WORDS, .operand = 1 };

	return verbs_data_post(&rig->data, &op, 1, &rig->completion);
}

static void a_poll_returns_at_once_when_nothing_is_outstanding(void **state)
{
	RIG(rig, .depth = 4);

	(void)state;
	assert_ok(verbs_data_poll(&rig->data, BASE_FOREVER));
	assert_ok(post_add(rig));
	assert_ok(rig_drain(rig));
	assert_ok(verbs_data_poll(&rig->data, BASE_FOREVER));
	assert_int_equal(rig->data.counts.sleeps, 0);
	rig_close(rig);
}

static void a_poll_ends_at_its_deadline(void **state)
{
	static const uint64_t waits_ns[] = { 0, 20000, NS_PER_MS, 30 * NS_PER_MS };
	RIG(rig, .depth = 4);

	(void)state;
	fake.hold = true;
	assert_ok(post_add(rig));
	for (size_t i = 0; i < 4; i++) {
		uint64_t before = base_now_ns(), took;

		assert_ok(verbs_data_poll(&rig->data, waits_ns[i] ? before + waits_ns[i] : 0));
		took = base_now_ns() - before;
		assert_true(took >= waits_ns[i]);
		assert_true(took < waits_ns[i] + NS_PER_S);
		assert_int_equal(rig->completion.pending, 1);
	}
	assert_in_range(rig->data.counts.sleeps, 1, 20);
	assert_ok(verbs_data_poll(&rig->data, 1));
	fake.hold = false;
	assert_ok(rig_drain(rig));
	rig_close(rig);
}

static void a_short_wait_polls_and_a_long_one_sleeps(void **state)
{
	RIG(rig, .depth = 4);

	(void)state;
	fake.latency_ns = 5000;
	assert_ok(post_add(rig));
	assert_ok(rig_drain(rig));
	assert_int_equal(rig->data.counts.sleeps, 0);
	fake.latency_ns = 20 * NS_PER_MS;
	assert_ok(post_add(rig));
	assert_ok(verbs_data_poll(&rig->data, BASE_FOREVER));
	assert_int_equal(rig->completion.pending, 0);
	assert_in_range(rig->data.counts.sleeps, 1, 2);
	assert_int_equal(fake.events, 1);
	assert_ok(rig_drain(rig));
	rig_close(rig);
}

/* Latencies around the moment of arming: a completion between the last poll and the arming has no event. */
static void no_completion_is_slept_through(void **state)
{
	unsigned int rounds = support_rounds(400);
	uint64_t before, late = 0;
	RIG(rig, .depth = 4);

	(void)state;
	for (unsigned int i = 0; i < rounds; i++) {
		fake.latency_ns = 90000 + i % 40 * 1000;
		assert_ok(post_add(rig));
		before = base_now_ns();
		assert_ok(verbs_data_poll(&rig->data, before + 5 * NS_PER_S));
		assert_int_equal(rig->completion.pending, 0);
		late += base_now_ns() - before > NS_PER_S;
	}
	assert_int_equal(late, 0);
	assert_int_equal(*(uint64_t *)rig->memory[WORDS], rounds);
	rig_close(rig);
}

static void each_list_that_completes_ends_a_poll(void **state)
{
	uint32_t polls = 0;
	RIG(rig, .depth = 8);

	(void)state;
	fake.per_poll = 1;
	for (unsigned int i = 0; i < 5; i++)
		assert_ok(post_add(rig));
	for (; rig->completion.pending; polls++)
		assert_ok(verbs_data_poll(&rig->data, BASE_FOREVER));
	assert_int_equal(polls, 5);
	rig_close(rig);
}

static void a_large_transfer_goes_on_while_its_owner_sleeps(void **state)
{
	unsigned char *data = malloc(1u << 20);
	struct fabric_op op = { .opcode = FABRIC_READ, .region = ALL, .len_bytes = 1u << 20, .local = data };
	RIG(rig, .depth = 4, .staging_bytes = 128 << 10);

	(void)state;
	fake.latency_ns = NS_PER_MS;
	memset(rig->memory[ALL], 3, 1u << 20);
	assert_ok(verbs_data_post(&rig->data, &op, 1, &rig->completion));
	assert_ok(verbs_data_poll(&rig->data, BASE_FOREVER));
	assert_int_equal(rig->completion.pending, 0);
	assert_memory_equal(data, rig->memory[ALL], 1u << 20);
	assert_true(rig->data.counts.sleeps > 2);
	free(data);
	rig_close(rig);
}

static void a_wait_for_a_word_reads_it(void **state)
{
	struct fabric_wait wait = { .region = WORDS, .offset = 16, .deadline_ns = BASE_FOREVER };
	uint64_t value = 0, before;
	RIG(rig, .depth = 1);

	(void)state;
	((uint64_t *)rig->memory[WORDS])[2] = 9;
	assert_ok(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value));
	assert_int_equal(value, 9);
	assert_int_equal(rig_counts(rig).work_requests, 1);
	wait.seen = 9;
	before = base_now_ns();
	wait.deadline_ns = before + 20 * NS_PER_MS;
	assert_error(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value), ETIMEDOUT);
	assert_true(base_now_ns() - before >= 20 * NS_PER_MS);
	assert_true(rig_counts(rig).work_requests > 5);
	/* The queue is full at first. */
	assert_ok(post_add(rig));
	wait.seen = 8;
	wait.deadline_ns = BASE_FOREVER;
	assert_ok(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value));
	assert_ok(rig_drain(rig));
	wait.offset = 4;
	assert_error(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value), EINVAL);
	wait.offset = 16;
	wait.region = SLOTS;
	assert_error(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value), EACCES);
	rig_close(rig);
}

static void a_wait_for_a_word_sees_a_dead_peer(void **state)
{
	struct fabric_wait wait = { .region = WORDS, .deadline_ns = BASE_FOREVER };
	uint64_t value = 0, before = base_now_ns();
	RIG(rig, .depth = 4);

	(void)state;
	fake.fail_wr = 10;
	fake.fail_status = IBV_WC_RETRY_EXC_ERR;
	assert_error(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value), ENOTCONN);
	assert_true(base_now_ns() - before < NS_PER_S);
	rig_close(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_poll_returns_at_once_when_nothing_is_outstanding),
		cmocka_unit_test(a_poll_ends_at_its_deadline),
		cmocka_unit_test(a_short_wait_polls_and_a_long_one_sleeps),
		cmocka_unit_test(no_completion_is_slept_through),
		cmocka_unit_test(each_list_that_completes_ends_a_poll),
		cmocka_unit_test(a_large_transfer_goes_on_while_its_owner_sleeps),
		cmocka_unit_test(a_wait_for_a_word_reads_it),
		cmocka_unit_test(a_wait_for_a_word_sees_a_dead_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* How an endpoint breaks, what its lists complete with then, and what is said. */
#include "rig.h"

static int post(struct rig *rig, struct fabric_op op, struct fabric_completion *completion)
{
	return verbs_data_post(&rig->data, &op, 1, completion);
}

static struct fabric_op add_to(uint64_t offset)
{
	return (struct fabric_op){ .opcode = FABRIC_FETCH_ADD,
				   .region = WORDS,
				   .offset = offset,
				   .operand = 1 };
}

static void expect_broken(struct rig *rig, const char *why)
{
	struct fabric_completion completion = { 0 };
	uint64_t value;
	const struct fabric_wait wait = { .region = WORDS, .deadline_ns = BASE_FOREVER };

	assert_error(post(rig, add_to(0), &completion), ENOTCONN);
	rig_says(ENOTCONN, why);
	assert_int_equal(completion.pending, 0);
	assert_int_equal(completion.status, 0);
	assert_error(verbs_data_poll(&rig->data, BASE_FOREVER), ENOTCONN);
	rig_says(ENOTCONN, why);
	assert_error(verbs_data_wait_word(&rig->data, &rig->ep, &wait, &value), ENOTCONN);
	assert_int_equal(rig->data.lists, 0);
	assert_false(verbs_data_busy(&rig->data));
}

static void every_status_breaks_and_is_told_in_words(void **state)
{
	(void)state;
	for (unsigned int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; status++) {
		struct fabric_completion completions[4] = { 0 };
		RIG(rig, .depth = 16);

		fake.fail_wr = 3;
		fake.fail_status = status;
		for (unsigned int i = 0; i < 4; i++)
			assert_ok(post(rig, add_to(8), &completions[i]));
		assert_int_equal(rig->data.lists, 4);
		assert_error(verbs_data_poll(&rig->data, base_now_ns() + NS_PER_S), ENOTCONN);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(completions[i].pending, 0);
			assert_int_equal(completions[i].status, i < 2 ? 0 : -ENOTCONN);
		}
		/* Not what the flushed ones say, and both ends by name. */
		expect_broken(rig, ibv_wc_status_str(status));
		expect_broken(rig, verbs_status_meaning(status));
		expect_broken(rig, "fake0 to verbs://far:1");
		rig_close(rig);
	}
}

static void well_known_statuses_say_what_is_wrong_with_the_peer(void **state)
{
	(void)state;
	assert_non_null(strstr(verbs_status_meaning(IBV_WC_RETRY_EXC_ERR), "does not answer"));
	assert_non_null(strstr(verbs_status_meaning(IBV_WC_REM_ACCESS_ERR), "may be dead"));
	assert_non_null(strstr(verbs_status_meaning(IBV_WC_WR_FLUSH_ERR), "closed"));
	assert_non_null(strstr(verbs_status_meaning(IBV_WC_LOC_QP_OP_ERR), "this node"));
}

static void a_failure_within_a_list_fails_the_list(void **state)
{
	uint64_t offsets[8] = { 0, 8, 16, 24, 32, 40, 48, 56 },
		 addends[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct fabric_op list = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.count = 8,
		.offsets = offsets,
		.addends = addends,
	};
	RIG(rig, .depth = 16);

	(void)state;
	fake.fail_wr = 5;
	fake.fail_status = IBV_WC_RETRY_EXC_ERR;
	assert_error(rig_do(rig, &list, 1), ENOTCONN);
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(((uint64_t *)rig->memory[WORDS])[i], i < 4);
	expect_broken(rig, "does not answer");
	rig_close(rig);
}

static void a_status_that_is_set_stays(void **state)
{
	struct fabric_completion completion = { .status = -EIO };
	RIG(rig, .depth = 4);

	(void)state;
	fake.fail_wr = 1;
	fake.fail_status = IBV_WC_FATAL_ERR;
	assert_ok(post(rig, add_to(0), &completion));
	assert_error(verbs_data_poll(&rig->data, base_now_ns() + NS_PER_S), ENOTCONN);
	assert_int_equal(completion.status, -EIO);
	rig_close(rig);
}

static void reads_that_failed_leave_memory_alone(void **state)
{
	uint64_t old = 55, word = 66;
	const struct fabric_op ops[2] = {
		{ .opcode = FABRIC_READ, .region = WORDS, .len_bytes = 8, .local = &word },
		{ .opcode = FABRIC_FETCH_ADD, .region = WORDS, .operand = 1, .local = &old },
	};
	RIG(rig, .depth = 4);

	(void)state;
	fake.fail_wr = 2;
	fake.fail_status = IBV_WC_REM_ACCESS_ERR;
	assert_error(rig_do(rig, ops, 2), ENOTCONN);
	assert_int_equal(old, 55);
	assert_int_equal(word, 66);
	rig_close(rig);
}

static void what_the_far_side_revoked_is_an_access_error(void **state)
{
	RIG(rig, .depth = 4);

	(void)state;
	ibv_dereg_mr(rig->mrs[WORDS]);
	assert_error(rig_one(rig, add_to(0)), ENOTCONN);
	expect_broken(rig, "may be dead, or has taken the memory back");
	rig->mrs[WORDS] = ibv_reg_mr(rig->pd, rig->memory[WORDS], REGION_BYTES, 0);
	rig_close(rig);
}

/* The first of a list is refused: nothing was posted, and post says so. */
static void a_post_refused_at_its_head_was_not_posted(void **state)
{
	struct fabric_completion before = { 0 }, completion = { 0 };
	RIG(rig, .depth = 16);

	(void)state;
	assert_ok(post(rig, add_to(0), &before));
	fake.refuse_post = 1;
	fake.refuse_errno = EINVAL;
	assert_error(post(rig, add_to(0), &completion), ENOTCONN);
	rig_says(ENOTCONN, "Invalid argument");
	assert_int_equal(completion.pending, 0);
	assert_int_equal(completion.status, 0);
	assert_int_equal(before.pending, 0);
	assert_int_equal(before.status, -ENOTCONN);
	expect_broken(rig, "took 0 work requests");
	rig_close(rig);
}

/* One in the middle is refused: those before are under way. The list counts as posted, in doubt. */
static void a_post_refused_in_its_middle_is_in_doubt(void **state)
{
	uint64_t offsets[8] = { 0, 8, 16, 24, 32, 40, 48, 56 },
		 addends[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct fabric_op list = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.count = 8,
		.offsets = offsets,
		.addends = addends,
	};

	(void)state;
	for (uint32_t at = 2; at <= 8; at++) {
		struct fabric_completion completion = { 0 }, before = { 0 };
		struct ibv_wc wc;
		RIG(rig, .depth = 16);

		assert_ok(post(rig, add_to(64), &before));
		fake.refuse_post = at;
		fake.refuse_errno = ENOMEM;
		assert_ok(verbs_data_post(&rig->data, &list, 1, &completion));
		assert_int_equal(completion.pending, 0);
		assert_int_equal(completion.status, -ENOTCONN);
		assert_int_equal(before.pending, 0);
		assert_int_equal(before.status, -ENOTCONN);
		expect_broken(rig, "and then none");
		/* The device goes on with what it has. */
		while (ibv_poll_cq(rig->data.cq, 1, &wc) > 0)
			;
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(((uint64_t *)rig->memory[WORDS])[i], i + 1 < at);
		rig_close(rig);
	}
}

static void a_large_write_refused_at_any_piece_breaks(void **state)
{
	unsigned char *data = calloc(1, 1u << 20);
	struct fabric_op op = { .opcode = FABRIC_WRITE, .region = ALL, .len_bytes = 1u << 20, .local = data };

	(void)state;
	/* Through a queue that holds all of it, and one that does not. */
	for (uint32_t depth = 3; depth < 100; depth += 61) {
		for (uint32_t at = 1; at <= 16; at++) {
			struct fabric_completion completion = { 0 };
			int ret;
			RIG(rig, .depth = depth, .staging_bytes = 256 << 10);

			fake.refuse_post = at;
			fake.refuse_errno = EIO;
			ret = post(rig, op, &completion);
			while (!ret && completion.pending)
				verbs_data_poll(&rig->data, base_now_ns() + NS_PER_S);
			if (ret)
				assert_error(ret, ENOTCONN);
			else
				assert_int_equal(completion.status, -ENOTCONN);
			expect_broken(rig, "Input/output error");
			rig_close(rig);
		}
	}
	free(data);
}

static void a_large_transfer_fails_at_any_piece(void **state)
{
	unsigned char *data = calloc(1, 1u << 20);
	struct fabric_op op = { .region = ALL, .len_bytes = 1u << 20, .local = data };

	(void)state;
	for (uint32_t at = 1; at <= 16; at++) {
		for (op.opcode = FABRIC_READ; op.opcode <= FABRIC_WRITE; op.opcode++) {
			RIG(rig, .depth = 3, .staging_bytes = 256 << 10);

			fake.fail_wr = at;
			fake.fail_status = IBV_WC_RETRY_EXC_ERR;
			assert_error(rig_do(rig, &op, 1), ENOTCONN);
			expect_broken(rig, "does not answer");
			rig_close(rig);
		}
	}
	free(data);
}

static void a_queue_that_cant_be_read_or_armed_breaks(void **state)
{
	struct fabric_completion completion = { 0 };
	RIG(one, .depth = 4);

	(void)state;
	assert_ok(post(one, add_to(0), &completion));
	fake.fail_poll = true;
	assert_error(verbs_data_poll(&one->data, 0), ENOTCONN);
	assert_int_equal(completion.status, -ENOTCONN);
	expect_broken(one, "can't be read");
	rig_close(one);
	{
		RIG(two, .depth = 4);

		completion.status = 0;
		fake.hold = true;
		fake.fail_arm = true;
		assert_ok(post(two, add_to(0), &completion));
		assert_error(verbs_data_poll(&two->data, base_now_ns() + NS_PER_S), ENOTCONN);
		assert_int_equal(completion.status, -ENOTCONN);
		rig_close(two);
	}
}

static void breaking_from_outside_takes_all_back(void **state)
{
	struct fabric_completion completions[3] = { 0 };
	unsigned char *data = calloc(1, 1u << 20);
	RIG(rig, .depth = 4, .staging_bytes = 64 << 10);

	(void)state;
	fake.hold = true;
	assert_ok(post(rig, add_to(0), &completions[0]));
	assert_ok(post(rig, add_to(0), &completions[1]));
	assert_ok(post(
		rig,
		(struct fabric_op){ .opcode = FABRIC_WRITE, .region = ALL, .len_bytes = 1u << 20, .local = data },
		&completions[2]));
	free(data);
	verbs_data_break(&rig->data, "aborted");
	verbs_data_break(&rig->data, "again");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(completions[i].pending, 0);
		assert_int_equal(completions[i].status, -ENOTCONN);
	}
	expect_broken(rig, "aborted");
	rig_close(rig);
}

static void closing_completes_what_is_outstanding(void **state)
{
	struct fabric_completion completion = { 0 };
	RIG(rig, .depth = 4);

	(void)state;
	fake.hold = true;
	assert_ok(post(rig, add_to(0), &completion));
	rig_close(rig);
	assert_int_equal(completion.pending, 0);
	assert_int_equal(completion.status, -ENOTCONN);
}

static void grants_that_make_no_sense_are_refused(void **state)
{
	struct verbs_granted granted = { .address = 4096, .len_bytes = 64, .rights = FABRIC_MAY_READ };
	RIG(rig, .depth = 4);

	(void)state;
	assert_error(verbs_data_grant(&rig->data, FABRIC_MAX_REGIONS, &granted), EINVAL);
	assert_error(verbs_data_grant(&rig->data, WORDS, &granted), EEXIST);
	granted.address = UINT64_MAX - 10;
	assert_error(verbs_data_grant(&rig->data, REGIONS, &granted), EINVAL);
	rig_close(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_status_breaks_and_is_told_in_words),
		cmocka_unit_test(well_known_statuses_say_what_is_wrong_with_the_peer),
		cmocka_unit_test(a_failure_within_a_list_fails_the_list),
		cmocka_unit_test(a_status_that_is_set_stays),
		cmocka_unit_test(reads_that_failed_leave_memory_alone),
		cmocka_unit_test(what_the_far_side_revoked_is_an_access_error),
		cmocka_unit_test(a_post_refused_at_its_head_was_not_posted),
		cmocka_unit_test(a_post_refused_in_its_middle_is_in_doubt),
		cmocka_unit_test(a_large_write_refused_at_any_piece_breaks),
		cmocka_unit_test(a_large_transfer_fails_at_any_piece),
		cmocka_unit_test(a_queue_that_cant_be_read_or_armed_breaks),
		cmocka_unit_test(breaking_from_outside_takes_all_back),
		cmocka_unit_test(closing_completes_what_is_outstanding),
		cmocka_unit_test(grants_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

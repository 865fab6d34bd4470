/* SPDX-License-Identifier: BSD-2-Clause */
/* No queue is ever overrun: rig_close() fails a test in which one was. */
#include "rig.h"

#define KIB 1024ull

static int post(struct rig *rig, struct fabric_op op)
{
	return verbs_data_post(&rig->data, &op, 1, &rig->completion);
}

static struct fabric_op add_to(uint64_t offset, uint64_t *old)
{
	return (struct fabric_op){
		.opcode = FABRIC_FETCH_ADD,
		.region = WORDS,
		.offset = offset,
		.operand = 1,
		.local = old,
	};
}

static void a_full_queue_says_again(void **state)
{
	static const uint32_t depths[] = { 1, 2, 3, 7, 16, 64 };

	(void)state;
	for (size_t k = 0; k < sizeof(depths) / sizeof(depths[0]); k++) {
		uint64_t old[64];
		RIG(rig, .depth = depths[k]);

		assert_int_equal(rig->ep.limits.max_ops, depths[k]);
		for (unsigned int round = 0; round < 5; round++) {
			for (uint32_t i = 0; i < depths[k]; i++)
				assert_ok(post(rig, add_to(0, &old[i])));
			assert_int_equal(rig->completion.pending, depths[k]);
			assert_error(post(rig, add_to(0, NULL)), EAGAIN);
			assert_error(post(rig, add_to(0, NULL)), EAGAIN);
			assert_int_equal(rig->completion.pending, depths[k]);
			assert_ok(rig_drain(rig));
			for (uint32_t i = 0; i < depths[k]; i++)
				assert_int_equal(old[i], round * depths[k] + i);
		}
		assert_int_equal(fake.posted, 5ull * depths[k]);
		rig_close(rig);
	}
}

/* A place is free again when a signalled request at or after it has completed, and not before. */
static void unsignalled_requests_keep_their_places(void **state)
{
	uint64_t offsets[6] = { 0, 8, 16, 24, 32, 40 }, addends[6] = { 1, 2, 3, 4, 5, 6 };
	struct fabric_op list = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.count = 6,
		.offsets = offsets,
		.addends = addends,
	};
	RIG(rig, .depth = 8);

	(void)state;
	fake.per_poll = 1;
	assert_ok(post(rig, list));
	assert_error(post(rig, list), EAGAIN);
	assert_ok(post(rig, add_to(64, NULL)));
	assert_ok(post(rig, add_to(64, NULL)));
	assert_error(post(rig, add_to(64, NULL)), EAGAIN);
	for (unsigned int i = 0; i < 5; i++) {
		assert_ok(verbs_data_poll(&rig->data, 0));
		assert_error(post(rig, add_to(64, NULL)), EAGAIN);
	}
	assert_ok(verbs_data_poll(&rig->data, 0));
	assert_ok(post(rig, list));
	assert_error(post(rig, add_to(64, NULL)), EAGAIN);
	assert_ok(rig_drain(rig));
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(((uint64_t *)rig->memory[WORDS])[i], 2 * (i + 1));
	rig_close(rig);
}

static void full_staging_says_again(void **state)
{
	unsigned char *data = calloc(8, 64 * KIB);
	struct fabric_op op = { .opcode = FABRIC_WRITE, .region = ALL, .len_bytes = 60 * KIB };
	unsigned int fit = 0;
	RIG(rig, .staging_bytes = 256 * KIB);

	(void)state;
	for (unsigned int round = 0; round < 20; round++) {
		int ret = 0;

		for (fit = 0; !ret; fit += !ret) {
			op.local = data + fit % 8 * 64 * KIB;
			memset(op.local, (int)(round * 8 + fit + 1), 60 * KIB);
			op.offset = fit * 61 * KIB;
			ret = post(rig, op);
		}
		assert_error(ret, EAGAIN);
		assert_in_range(fit, 3, 4);
		assert_ok(rig_drain(rig));
		for (unsigned int i = 0; i < fit; i++)
			assert_memory_equal(rig->memory[ALL] + i * 61 * KIB, data + i * 64 * KIB,
					    60 * KIB);
	}
	rig_close(rig);
	free(data);
}

/* Larger than the queue and the staging: posted piece by piece, and takes effect whole and in order. */
static void what_never_fits_streams(void **state)
{
	static const uint32_t depths[] = { 1, 2, 5, 64 };
	unsigned char *data = malloc(3000 * KIB);

	(void)state;
	for (size_t k = 0; k < sizeof(depths) / sizeof(depths[0]); k++) {
		struct fabric_op op = { .region = ALL,
					.offset = 24,
					.len_bytes = 2900 * KIB + 3,
					.local = data + 1 };
		struct fabric_op after = add_to(8, NULL);
		RIG(rig, .depth = depths[k], .staging_bytes = 64 * KIB);

		for (uint64_t i = 0; i < 3000 * KIB; i++)
			data[i] = (unsigned char)(i * 11 + i / 997);
		fake.per_poll = 1;
		op.opcode = FABRIC_WRITE;
		assert_ok(post(rig, op));
		assert_int_equal(rig->completion.pending, 1);
		assert_error(post(rig, after), EAGAIN);
		assert_ok(rig_drain(rig));
		assert_memory_equal(rig->memory[ALL] + 24, data + 1, op.len_bytes);
		memset(data, 0, 3000 * KIB);
		op.opcode = FABRIC_READ;
		assert_ok(post(rig, op));
		while (post(rig, after) == -EAGAIN)
			assert_ok(verbs_data_poll(&rig->data, base_now_ns() + NS_PER_S));
		assert_ok(rig_drain(rig));
		assert_memory_equal(rig->memory[ALL] + 24, data + 1, op.len_bytes);
		assert_int_equal(data[0], 0);
		assert_int_equal(data[op.len_bytes + 1], 0);
		assert_int_equal(((uint64_t *)rig->memory[WORDS])[1], 1);
		rig_close(rig);
	}
	free(data);
}

static void a_list_too_large_keeps_its_inline_data(void **state)
{
	static unsigned char big[40 * KIB];
	uint64_t header = 77, word = 0;
	const struct fabric_op ops[3] = {
		{ .opcode = FABRIC_WRITE, .region = ALL, .len_bytes = sizeof(big), .local = big },
		{ .opcode = FABRIC_WRITE,
		  .flags = FABRIC_INLINE,
		  .region = ALL,
		  .offset = 64 * KIB,
		  .len_bytes = 8,
		  .local = &header },
		{ .opcode = FABRIC_READ,
		  .flags = FABRIC_FENCE,
		  .region = ALL,
		  .offset = 64 * KIB,
		  .len_bytes = 8,
		  .local = &word },
	};

	(void)state;
	for (uint32_t inline_bytes = 0; inline_bytes <= 64; inline_bytes += 64) {
		RIG(rig, .depth = 3, .staging_bytes = 16 * KIB, .inline_bytes = inline_bytes);

		header = 77;
		assert_ok(verbs_data_post(&rig->data, ops, 3, &rig->completion));
		header = 78;
		assert_ok(rig_drain(rig));
		assert_int_equal(((uint64_t *)rig->memory[ALL])[8 * KIB], 77);
		assert_int_equal(word, 77);
		assert_int_equal(fake.log[fake.posted - 1].send_flags, IBV_SEND_FENCE | IBV_SEND_SIGNALED);
		rig_close(rig);
	}
}

static void lists_of_large_reads_stream_too(void **state)
{
	uint64_t offsets[16];
	unsigned char *data = malloc(16 * 100 * KIB);
	struct fabric_op list = {
		.opcode = FABRIC_READ_LIST,
		.flags = FABRIC_FENCE,
		.region = ALL,
		.count = 16,
		.offsets = offsets,
		.local = data,
		.len_bytes = 100 * KIB - 1,
	};
	RIG(rig, .staging_bytes = 128 * KIB);

	(void)state;
	for (uint64_t i = 0; i < REGION_BYTES; i++)
		rig->memory[ALL][i] = (unsigned char)(i * 11 + i / 997);
	for (unsigned int i = 0; i < 16; i++)
		offsets[i] = 3 + i * 200 * KIB;
	assert_ok(rig_do(rig, &list, 1));
	for (unsigned int i = 0; i < 16; i++)
		assert_memory_equal(data + i * list.len_bytes, rig->memory[ALL] + offsets[i],
				    list.len_bytes);
	for (uint64_t i = 0; i < fake.posted; i++)
		assert_int_equal(fake.log[i].send_flags & IBV_SEND_FENCE, i ? 0 : IBV_SEND_FENCE);
	free(data);
	rig_close(rig);
}

static void a_device_with_small_messages_gets_small_messages(void **state)
{
	unsigned char *data = malloc(200 * KIB);
	struct fabric_op op = { .opcode = FABRIC_WRITE,
				.region = ALL,
				.offset = 40,
				.len_bytes = 150 * KIB,
				.local = data };
	struct rig one;

	(void)state;
	for (int registered = 0; registered < 2; registered++) {
		fake_reset();
		fake.port.max_msg_sz = 1000;
		rig_open(&one, &(const struct verbs_data_config){ .depth = 256 });
		memset(data, 7 + registered, 200 * KIB);
		if (registered)
			assert_ok(verbs_buffer_register(&one.buffers, data, 200 * KIB));
		op.opcode = FABRIC_WRITE;
		assert_ok(rig_one(&one, op));
		assert_memory_equal(data, one.memory[ALL] + 40, 150 * KIB);
		memset(one.memory[ALL], 1, 200 * KIB);
		op.opcode = FABRIC_READ;
		assert_ok(rig_one(&one, op));
		assert_memory_equal(data, one.memory[ALL] + 40, 150 * KIB);
		for (uint64_t i = 0; i < fake.posted; i++)
			assert_in_range(fake.log[i].length, 1, 1000);
		rig_close(&one);
	}
	free(data);
}

/* Outstanding READs and atomics of one: the device queues, and nobody waits for ever. */
static void a_device_with_one_read_at_a_time_is_slow_but_right(void **state)
{
	uint64_t offsets[64], back[64];
	struct fabric_op list = {
		.opcode = FABRIC_READ_LIST,
		.region = WORDS,
		.count = 64,
		.offsets = offsets,
		.local = back,
		.len_bytes = 8,
	};
	RIG(rig, .depth = 64);

	(void)state;
	fake.reads = 1;
	for (uint64_t i = 0; i < 64; i++) {
		offsets[i] = (63 - i) * 8;
		((uint64_t *)rig->memory[WORDS])[i] = i;
	}
	assert_ok(rig_do(rig, &list, 1));
	for (uint64_t i = 0; i < 64; i++)
		assert_int_equal(back[i], 63 - i);
	rig_close(rig);
}

static void a_queue_pair_that_got_less_than_it_asked_for_is_believed(void **state)
{
	struct ibv_qp_cap cap = { .max_send_wr = 3, .max_inline_data = 16 };
	uint64_t old;
	RIG(rig, .depth = 8, .inline_bytes = 64);

	(void)state;
	verbs_data_start(&rig->data, rig->qp, &cap);
	verbs_data_limits(&rig->data, 4, &rig->ep.limits);
	assert_int_equal(rig->ep.limits.max_ops, 3);
	assert_int_equal(rig->data.inline_bytes, 16);
	for (unsigned int i = 0; i < 3; i++)
		assert_ok(post(rig, add_to(0, &old)));
	assert_error(post(rig, add_to(0, &old)), EAGAIN);
	assert_ok(rig_drain(rig));
	rig_close(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_queue_says_again),
		cmocka_unit_test(unsignalled_requests_keep_their_places),
		cmocka_unit_test(full_staging_says_again),
		cmocka_unit_test(what_never_fits_streams),
		cmocka_unit_test(a_list_too_large_keeps_its_inline_data),
		cmocka_unit_test(lists_of_large_reads_stream_too),
		cmocka_unit_test(a_device_with_small_messages_gets_small_messages),
		cmocka_unit_test(a_device_with_one_read_at_a_time_is_slow_but_right),
		cmocka_unit_test(a_queue_pair_that_got_less_than_it_asked_for_is_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

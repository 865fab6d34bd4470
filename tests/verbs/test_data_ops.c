/* SPDX-License-Identifier: BSD-2-Clause */
/* What operations do, and what they hand to the device. */
#include <sys/mman.h>

#include "rig.h"

#define KIB 1024ull

static void fill(void *to, uint64_t n, unsigned int seed)
{
	unsigned char *c = to;

	for (uint64_t i = 0; i < n; i++)
		c[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void expect_counts(struct rig *rig, uint64_t work_requests, uint64_t doorbells, uint64_t completions)
{
	struct verbs_counts counts = rig_counts(rig);

	assert_int_equal(counts.work_requests, work_requests);
	assert_int_equal(counts.doorbells, doorbells);
	assert_int_equal(counts.completions, completions);
}

static void a_pull_of_eight_bytes_is_one_of_each(void **state)
{
	uint64_t value = 0;
	RIG(rig, .inline_bytes = 128);

	(void)state;
	memset(rig->memory[PUBLISHED] + 64, 0x5a, 8);
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ,
						   .region = PUBLISHED,
						   .offset = 64,
						   .len_bytes = 8,
						   .local = &value }));
	assert_int_equal(value, 0x5a5a5a5a5a5a5a5aull);
	expect_counts(rig, 1, 1, 1);
	assert_int_equal(fake.log[0].send_flags, IBV_SEND_SIGNALED);
	rig_close(rig);
}

/* The list of src/worker/push_slots.c. */
static void a_chunk_of_slots_is_four_requests_and_one_doorbell(void **state)
{
	static unsigned char values[64 * KIB];
	uint64_t header[6] = { 1, 2, 3, 4, 5, 6 }, asleep = 0;
	const struct fabric_op ops[4] = {
		{ .opcode = FABRIC_WRITE,
		  .region = SLOTS,
		  .offset = 4096,
		  .len_bytes = sizeof(values),
		  .local = values },
		{ .opcode = FABRIC_WRITE,
		  .flags = FABRIC_INLINE,
		  .region = SLOTS,
		  .len_bytes = sizeof(header),
		  .local = header },
		{ .opcode = FABRIC_FETCH_ADD, .region = WORDS, .offset = 8, .operand = 1 },
		{ .opcode = FABRIC_READ, .flags = FABRIC_FENCE, .region = PUBLISHED, .len_bytes = 8, .local = &asleep },
	};
	RIG(rig, .inline_bytes = 128);

	(void)state;
	fill(values, sizeof(values), 5);
	rig->memory[PUBLISHED][0] = 1;
	assert_ok(verbs_data_post(&rig->data, ops, 4, &rig->completion));
	memset(header, 0, sizeof(header)); /* it was inline */
	assert_ok(rig_drain(rig));
	assert_memory_equal(rig->memory[SLOTS] + 4096, values, sizeof(values));
	assert_int_equal(((uint64_t *)rig->memory[SLOTS])[5], 6);
	assert_int_equal(((uint64_t *)rig->memory[WORDS])[1], 1);
	assert_int_equal(asleep, 1);
	expect_counts(rig, 4, 1, 1);
	assert_int_equal(fake.log[0].send_flags, 0);
	assert_int_equal(fake.log[1].send_flags, IBV_SEND_INLINE);
	assert_int_equal(fake.log[2].send_flags, 0);
	assert_int_equal(fake.log[3].send_flags, IBV_SEND_FENCE | IBV_SEND_SIGNALED);
	rig_close(rig);
}

static void a_list_of_adds_is_one_doorbell(void **state)
{
	uint64_t offsets[256], addends[256], expected[64] = { 0 };
	struct fabric_op ops[2] = {
		{ .opcode = FABRIC_FETCH_ADD_LIST,
		  .region = WORDS,
		  .count = 256,
		  .offsets = offsets,
		  .addends = addends },
		{ .opcode = FABRIC_FETCH_ADD, .region = WORDS, .offset = 4096, .operand = 256 },
	};
	RIG(rig, .inline_bytes = 0);

	(void)state;
	for (unsigned int i = 0; i < 256; i++) {
		offsets[i] = i * 7 % 64 * 8;
		addends[i] = i + 1ull;
		expected[i * 7 % 64] += i + 1ull;
	}
	assert_ok(rig_do(rig, ops, 1));
	expect_counts(rig, 256, 1, 1);
	assert_memory_equal(rig->memory[WORDS], expected, sizeof(expected));
	assert_ok(rig_do(rig, ops, 2));
	expect_counts(rig, 257, 1, 1);
	assert_int_equal(((uint64_t *)rig->memory[WORDS])[512], 256);
	rig_close(rig);
}

static void a_list_of_reads_shares_one_copy(void **state)
{
	uint64_t offsets[100], back[300];
	struct fabric_op op = {
		.opcode = FABRIC_READ_LIST,
		.region = PUBLISHED,
		.count = 100,
		.offsets = offsets,
		.local = back,
		.len_bytes = 24,
	};
	RIG(rig, .inline_bytes = 0);

	(void)state;
	fill(rig->memory[PUBLISHED], REGION_BYTES, 1);
	for (unsigned int i = 0; i < 100; i++)
		offsets[i] = i * 977ull;
	assert_ok(rig_one(rig, op));
	for (unsigned int i = 0; i < 100; i++)
		assert_memory_equal(&back[3ul * i], rig->memory[PUBLISHED] + offsets[i], 24);
	expect_counts(rig, 100, 1, 1);
	rig_close(rig);
}

static void a_large_list_of_reads_is_signalled_in_between(void **state)
{
	uint64_t offsets[64];
	unsigned char *data = malloc(KIB * KIB);
	struct fabric_op op = {
		.opcode = FABRIC_READ_LIST,
		.region = ALL,
		.count = 64,
		.offsets = offsets,
		.local = data,
		.len_bytes = 16 * KIB,
	};
	RIG(rig, .inline_bytes = 0);

	(void)state;
	fill(rig->memory[ALL], REGION_BYTES, 1);
	for (unsigned int i = 0; i < 64; i++)
		offsets[i] = (63 - i) * 16 * KIB;
	assert_ok(rig_one(rig, op));
	for (unsigned int i = 0; i < 64; i++)
		assert_memory_equal(data + i * 16 * KIB, rig->memory[ALL] + offsets[i], 16 * KIB);
	expect_counts(rig, 64, 1, KIB * KIB / VERBS_PIECE_BYTES);
	free(data);
	rig_close(rig);
}

/* Each run begins a line of the staging; all of them together do not fit, though their bytes do. */
static void runs_that_just_do_not_fit_are_found_out_before(void **state)
{
	static unsigned char back[126 * 65];
	uint64_t offsets[126];
	struct fabric_op op = {
		.opcode = FABRIC_READ_LIST,
		.region = ALL,
		.count = 126,
		.offsets = offsets,
		.local = back,
		.len_bytes = 65,
	};
	RIG(rig, .staging_bytes = 8 * KIB);

	(void)state;
	fill(rig->memory[ALL], REGION_BYTES, 1);
	for (unsigned int i = 0; i < 126; i++)
		offsets[i] = i * 100;
	assert_ok(rig_one(rig, op));
	for (unsigned int i = 0; i < 126; i++)
		assert_memory_equal(back + 65ul * i, rig->memory[ALL] + offsets[i], 65);
	rig_close(rig);
}

static void one_mebibyte_goes_in_signalled_pieces(void **state)
{
	unsigned char *data = malloc(KIB * KIB);
	struct verbs_counts counts;
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = ALL,
		.offset = 8,
		.len_bytes = KIB * KIB,
		.local = data,
	};
	uint64_t pieces = KIB * KIB / VERBS_PIECE_BYTES + 1;
	RIG(rig, .inline_bytes = 0);

	(void)state;
	fill(rig->memory[ALL], REGION_BYTES, 1);
	assert_ok(rig_one(rig, op));
	assert_memory_equal(data, rig->memory[ALL] + 8, KIB * KIB);
	counts = rig_counts(rig);
	assert_int_equal(counts.work_requests, pieces);
	assert_int_equal(counts.doorbells, 1);
	assert_in_range(counts.completions, pieces - 1, pieces);
	assert_int_equal(counts.copied, KIB * KIB);
	/* The first piece alone waits for what was before. */
	op.flags = FABRIC_FENCE;
	memset(data, 0, KIB * KIB);
	assert_ok(rig_one(rig, op));
	assert_memory_equal(data, rig->memory[ALL] + 8, KIB * KIB);
	rig_counts(rig);
	for (unsigned int i = 0; i < pieces; i++)
		assert_int_equal(fake.log[pieces + i].send_flags & IBV_SEND_FENCE, i ? 0 : IBV_SEND_FENCE);
	op.flags = 0;
	/* A remote word is never in two pieces. */
	for (unsigned int i = 1; i < pieces; i++)
		assert_int_equal((fake.log[i].remote - (uintptr_t)rig->memory[ALL]) % 64, 0);
	op.opcode = FABRIC_WRITE;
	op.offset = 40;
	fill(data, KIB * KIB, 9);
	assert_ok(rig_one(rig, op));
	assert_memory_equal(data, rig->memory[ALL] + 40, KIB * KIB);
	counts = rig_counts(rig);
	assert_int_equal(counts.work_requests, pieces);
	assert_in_range(counts.doorbells, pieces - 1, pieces);
	assert_int_equal(counts.completions, counts.doorbells);
	free(data);
	rig_close(rig);
}

static void a_registered_buffer_is_not_copied(void **state)
{
	unsigned char *data = aligned_alloc(4096, 2 * KIB * KIB);
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = ALL,
		.len_bytes = KIB * KIB,
		.local = data + 64,
	};
	struct verbs_counts counts;
	RIG(rig, .inline_bytes = 64);

	(void)state;
	assert_ok(verbs_buffer_register(&rig->buffers, data, 2 * KIB * KIB));
	fill(rig->memory[ALL], REGION_BYTES, 1);
	assert_ok(rig_one(rig, op));
	assert_memory_equal(data + 64, rig->memory[ALL], KIB * KIB);
	counts = rig_counts(rig);
	assert_int_equal(counts.work_requests, 1);
	assert_int_equal(counts.completions, 1);
	assert_int_equal(counts.copied, 0);
	op.opcode = FABRIC_WRITE;
	op.offset = 77;
	fill(data, 2 * KIB * KIB, 4);
	assert_ok(rig_one(rig, op));
	assert_memory_equal(data + 64, rig->memory[ALL] + 77, KIB * KIB);
	assert_int_equal(rig_counts(rig).copied, 0);
	/* Memory that ends outside of it is not in it. */
	op.local = data + KIB * KIB + 1;
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ,
						   .region = ALL,
						   .len_bytes = 100,
						   .local = (char *)op.local }));
	assert_int_equal(rig_counts(rig).copied, 0);
	assert_error(verbs_buffer_unregister(&rig->buffers, data + 1), ENOENT);
	assert_ok(verbs_buffer_unregister(&rig->buffers, data));
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ,
						   .region = ALL,
						   .len_bytes = 100,
						   .local = data }));
	assert_int_equal(rig_counts(rig).copied, 100);
	rig_close(rig);
	free(data);
}

static void memory_that_leaves_a_registered_buffer_is_copied(void **state)
{
	unsigned char *data = aligned_alloc(4096, 8 * KIB);
	RIG(rig, .inline_bytes = 64);

	(void)state;
	assert_ok(verbs_buffer_register(&rig->buffers, data, 4 * KIB));
	fill(rig->memory[ALL], 8 * KIB, 1);
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ,
						   .region = ALL,
						   .len_bytes = 4 * KIB + 1,
						   .local = data }));
	assert_int_equal(rig_counts(rig).copied, 4 * KIB + 1);
	assert_memory_equal(data, rig->memory[ALL], 4 * KIB + 1);
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ,
						   .region = ALL,
						   .len_bytes = 4 * KIB,
						   .local = data }));
	assert_int_equal(rig_counts(rig).copied, 0);
	rig_close(rig);
	free(data);
}

static void buffers_are_limited_and_their_errors_say_why(void **state)
{
	static char memory[65][64];
	RIG(rig, .inline_bytes = 0);

	(void)state;
	assert_error(verbs_buffer_register(&rig->buffers, NULL, 10), EINVAL);
	assert_error(verbs_buffer_register(&rig->buffers, memory, 0), EINVAL);
	assert_error(verbs_buffer_register(&rig->buffers, memory, UINT64_MAX), EINVAL);
	fake.fail_register = 1;
	assert_error(verbs_buffer_register(&rig->buffers, memory, 64), ENOMEM);
	for (unsigned int i = 0; i < 64; i++)
		assert_ok(verbs_buffer_register(&rig->buffers, memory[i], 64));
	assert_error(verbs_buffer_register(&rig->buffers, memory[64], 64), ENOSPC);
	assert_ok(verbs_buffer_unregister(&rig->buffers, memory[10]));
	assert_ok(verbs_buffer_register(&rig->buffers, memory[64], 64));
	rig_close(rig);
}

static void inline_data_may_change_after_post_where_the_device_has_none(void **state)
{
	uint64_t value = 1;
	const struct fabric_op op = {
		.opcode = FABRIC_WRITE,
		.flags = FABRIC_INLINE,
		.region = ALL,
		.len_bytes = 8,
		.local = &value,
	};

	(void)state;
	for (uint32_t inline_bytes = 0; inline_bytes < 64; inline_bytes += 32) {
		RIG(rig, .inline_bytes = inline_bytes);

		/* Nor does it matter whether the memory is registered. */
		assert_ok(verbs_buffer_register(&rig->buffers, &value, 8));
		value = 1;
		assert_true(rig->ep.limits.inline_bytes >= 64);
		assert_ok(verbs_data_post(&rig->data, &op, 1, &rig->completion));
		value = 2;
		assert_ok(rig_drain(rig));
		assert_int_equal(*(uint64_t *)rig->memory[ALL], 1);
		rig_close(rig);
	}
}

static void what_is_not_allowed_is_refused_whole(void **state)
{
	static unsigned char big[256];
	static const struct {
		struct fabric_op op;
		int code;
	} bad[] = {
		{ { .opcode = 0, .region = ALL }, EINVAL },
		{ { .opcode = 7, .region = ALL }, EINVAL },
		{ { .opcode = 255, .region = ALL }, EINVAL },
		{ { .opcode = FABRIC_READ, .region = SLOTS, .len_bytes = 8 }, EACCES },
		{ { .opcode = FABRIC_WRITE, .region = PUBLISHED, .len_bytes = 8 }, EACCES },
		{ { .opcode = FABRIC_FETCH_ADD, .region = SLOTS }, EACCES },
		{ { .opcode = FABRIC_READ, .region = REGIONS, .len_bytes = 8 }, EACCES },
		{ { .opcode = FABRIC_READ, .region = FABRIC_MAX_REGIONS, .len_bytes = 8 }, EACCES },
		{ { .opcode = FABRIC_READ, .region = 0xffff, .len_bytes = 8 }, EACCES },
		{ { .opcode = FABRIC_READ, .region = ALL, .offset = REGION_BYTES, .len_bytes = 1 }, ERANGE },
		{ { .opcode = FABRIC_READ, .region = ALL, .len_bytes = UINT64_MAX }, ERANGE },
		{ { .opcode = FABRIC_READ, .region = ALL, .offset = UINT64_MAX, .len_bytes = 2 }, ERANGE },
		{ { .opcode = FABRIC_FETCH_ADD, .region = ALL, .offset = REGION_BYTES }, ERANGE },
		{ { .opcode = FABRIC_FETCH_ADD, .region = ALL, .offset = 4 }, EINVAL },
		{ { .opcode = FABRIC_COMPARE_SWAP, .region = ALL, .offset = 1 }, EINVAL },
		{ { .opcode = FABRIC_FETCH_ADD_LIST, .region = ALL, .count = 1025 }, EINVAL },
		{ { .opcode = FABRIC_READ_LIST, .region = ALL, .count = UINT32_MAX }, EINVAL },
		{ { .opcode = FABRIC_WRITE, .flags = FABRIC_INLINE, .region = ALL, .len_bytes = 129, .local = big },
		  EINVAL },
	};
	uint64_t value = 7;
	struct fabric_op ops[2] = {
		{ .opcode = FABRIC_WRITE, .region = ALL, .len_bytes = 8, .local = &value },
	};
	RIG(rig, .inline_bytes = 128);

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ops[1] = bad[i].op;
		assert_error(verbs_data_post(&rig->data, ops, 2, &rig->completion), bad[i].code);
		assert_int_equal(rig->completion.pending, 0);
		assert_int_equal(fake.posts, 0);
	}
	assert_error(verbs_data_post(&rig->data, ops, 0, &rig->completion), EINVAL);
	/* Each is possible, but not both. */
	ops[0] = ops[1] = (struct fabric_op){
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = ALL,
		.count = 600,
		.offsets = (uint64_t *)rig->memory[ALL],
		.addends = (uint64_t *)rig->memory[ALL],
	};
	assert_error(verbs_data_post(&rig->data, ops, 2, &rig->completion), EINVAL);
	assert_int_equal(fake.posts, 0);
	ops[0] = (struct fabric_op){ .opcode = FABRIC_READ, .region = SLOTS, .len_bytes = 8 };
	assert_error(rig_do(rig, ops, 1), EACCES);
	rig_says(EACCES, "verbs://far:1");
	rig_close(rig);
}

static void nothing_at_all_completes_in_its_turn(void **state)
{
	uint64_t none = 0, old = 5;
	struct fabric_completion empty = { 0 };
	const struct fabric_op nothing = { .opcode = FABRIC_READ_LIST,
					   .region = ALL,
					   .offsets = &none,
					   .len_bytes = 8 };
	const struct fabric_op add = { .opcode = FABRIC_FETCH_ADD, .region = ALL, .operand = 1, .local = &old };
	RIG(rig, .depth = 4);

	(void)state;
	assert_ok(rig_one(rig, nothing));
	assert_ok(verbs_data_post(&rig->data, &add, 1, &rig->completion));
	assert_ok(verbs_data_post(&rig->data, &nothing, 1, &empty));
	fake.hold = true;
	assert_ok(verbs_data_poll(&rig->data, 0));
	assert_int_equal(empty.pending, 1);
	fake.hold = false;
	assert_ok(rig_drain(rig));
	assert_int_equal(empty.pending, 0);
	assert_int_equal(old, 0);
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ, .region = ALL, .local = &none }));
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_WRITE, .region = ALL, .local = &none }));
	rig_close(rig);
}

static void results_of_the_other_byte_order_are_put_right(void **state)
{
	uint64_t old = 0, word = 0;
	RIG(rig, .swapped = true);

	(void)state;
	fake.atomics = FAKE_BIG_RESULTS;
	*(uint64_t *)rig->memory[WORDS] = 0x0102030405060708;
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_FETCH_ADD,
						   .region = WORDS,
						   .operand = 1,
						   .local = &old }));
	assert_int_equal(old, 0x0102030405060708);
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_COMPARE_SWAP,
						   .region = WORDS,
						   .compare = 0x0102030405060709,
						   .operand = 5,
						   .local = &old }));
	assert_int_equal(old, 0x0102030405060709);
	assert_ok(rig_one(rig, (struct fabric_op){ .opcode = FABRIC_READ,
						   .region = WORDS,
						   .len_bytes = 8,
						   .local = &word }));
	assert_int_equal(word, 5);
	rig_close(rig);
}

static void limits_tell_what_the_device_can(void **state)
{
	struct rig one, two;

	(void)state;
	fake_reset();
	fake.port.max_msg_sz = 4096;
	rig_open(&one, &(const struct verbs_data_config){ .depth = 5000, .max_depth = 300 });
	assert_int_equal(one.ep.limits.max_ops, 300);
	assert_int_equal(one.ep.limits.max_transfer_bytes, 65536);
	assert_int_equal(one.ep.limits.outstanding_reads, 16);
	assert_false(one.ep.limits.fate_known);
	assert_false(one.ep.limits.atomics_with_cpu);
	rig_close(&one);
	fake_reset();
	fake.attr.atomic_cap = IBV_ATOMIC_GLOB;
	rig_open(&two, &(const struct verbs_data_config){ .depth = 1 });
	assert_int_equal(two.ep.limits.max_ops, 1);
	assert_int_equal(two.ep.limits.max_transfer_bytes, 8u << 20);
	assert_true(two.ep.limits.atomics_with_cpu);
	rig_close(&two);
}

static void opening_fails_cleanly_wherever_it_fails(void **state)
{
	struct verbs_data data;
	struct verbs_data_config config = { .local = "a", .peer = "b" };

	(void)state;
	fake_reset();
	config.context = fake_open();
	config.pd = ibv_alloc_pd(config.context);
	for (uint32_t i = 1; i <= 2; i++) {
		fake.fail_create = i;
		assert_error(verbs_data_open(&data, &config), ENOMEM);
		assert_int_equal(fake.live, 2);
	}
	fake.fail_create = 0;
	fake.fail_register = 1;
	assert_error(verbs_data_open(&data, &config), ENOMEM);
	assert_int_equal(fake.live, 2);
	config.depth = 100000;
	assert_error(verbs_data_open(&data, &config), EINVAL);
	assert_int_equal(fake.live, 2);
	verbs_data_close(&data);
	ibv_dealloc_pd(config.pd);
	ibv_close_device(config.context);
	assert_int_equal(fake.live, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pull_of_eight_bytes_is_one_of_each),
		cmocka_unit_test(a_chunk_of_slots_is_four_requests_and_one_doorbell),
		cmocka_unit_test(a_list_of_adds_is_one_doorbell),
		cmocka_unit_test(a_list_of_reads_shares_one_copy),
		cmocka_unit_test(a_large_list_of_reads_is_signalled_in_between),
		cmocka_unit_test(runs_that_just_do_not_fit_are_found_out_before),
		cmocka_unit_test(one_mebibyte_goes_in_signalled_pieces),
		cmocka_unit_test(a_registered_buffer_is_not_copied),
		cmocka_unit_test(memory_that_leaves_a_registered_buffer_is_copied),
		cmocka_unit_test(buffers_are_limited_and_their_errors_say_why),
		cmocka_unit_test(inline_data_may_change_after_post_where_the_device_has_none),
		cmocka_unit_test(what_is_not_allowed_is_refused_whole),
		cmocka_unit_test(nothing_at_all_completes_in_its_turn),
		cmocka_unit_test(results_of_the_other_byte_order_are_put_right),
		cmocka_unit_test(limits_tell_what_the_device_can),
		cmocka_unit_test(opening_fails_cleanly_wherever_it_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

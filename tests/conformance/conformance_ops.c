/* SPDX-License-Identifier: BSD-2-Clause */
/* What single operations and lists do, and what is refused. */
#include <errno.h>
#include <string.h>

#include "conformance.h"

#define WORLD struct conformance_world *world = *state
#define LIST  64

static void fill(void *to, size_t n, unsigned int seed)
{
	unsigned char *c = to;

	for (size_t i = 0; i < n; i++)
		c[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static void limits_are_usable(void **state)
{
	WORLD;
	const struct fabric_limits *limits = &world->client.ep->limits;

	assert_true(limits->max_ops >= 16);
	assert_true(limits->outstanding_reads >= 1);
	assert_true(limits->max_transfer_bytes >= 65536);
	assert_non_null(world->client.ep->address);
	assert_ptr_equal(world->client.ep->fabric, world->client.fabric);
	assert_null(world->client.ep->user);
}

static void write_lands_and_read_returns_it_for_all_lengths_and_alignments(void **state)
{
	static const uint64_t lengths[] = { 1,   2,    3,    4,    7,     8,    9,   15,  16,
					    17,  24,   31,   32,   33,    63,   64,  65,  100,
					    127, 128,  255,  256,  257,   260,  383, 511, 520,
					    999, 2048, 4099, 8192, 20000, 65536 };
	static unsigned char from[70000], to[70000], clean[70000];
	WORLD;
	unsigned char *memory = world->server.memory[SHARED].base;

	memset(clean, 0xa5, sizeof(clean));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (unsigned int at = 0; at < 48; at += at < 9 ? 1 : 7) {
			uint64_t n = lengths[i], offset = 64 + (at * 5) % 33;

			memset(memory, 0xa5, 70000);
			memset(to, 0xa5, sizeof(to));
			fill(from + at, n, at);
			assert_ok(conformance_write(&world->client, SHARED, offset, from + at, n));
			assert_memory_equal(memory + offset, from + at, n);
			assert_memory_equal(memory, clean, offset);
			assert_memory_equal(memory + offset + n, clean, 64);
			assert_ok(conformance_read(&world->client, SHARED, offset, to + at + 1, n));
			assert_memory_equal(to + at + 1, from + at, n);
			assert_memory_equal(to, clean, at + 1);
			assert_memory_equal(to + at + 1 + n, clean, 64);
		}
	}
}

static void write_lands_in_a_region_that_can_not_be_read(void **state)
{
	WORLD;
	uint64_t value = 0x1122334455667788, back = 0;

	assert_ok(conformance_write(&world->client, SLOTS, REGION_BYTES - 8, &value, 8));
	memcpy(&back, (char *)world->server.memory[SLOTS].base + REGION_BYTES - 8, 8);
	assert_int_equal(back, value);
	assert_error(conformance_read(&world->client, SLOTS, REGION_BYTES - 8, &back, 8), EACCES);
}

static void atomics_return_the_old_value_and_wrap(void **state)
{
	WORLD;
	uint64_t old = 1;

	assert_ok(conformance_add(&world->client, 8, UINT64_MAX, &old));
	assert_int_equal(old, 0);
	assert_ok(conformance_add(&world->client, 8, 3, &old));
	assert_int_equal(old, UINT64_MAX);
	assert_ok(conformance_add(&world->client, 8, 1, NULL));
	assert_ok(conformance_swap(&world->client, 8, 2, 9, &old));
	assert_int_equal(old, 3);
	assert_ok(conformance_swap(&world->client, 8, 3, 10, &old));
	assert_int_equal(old, 3);
	assert_ok(conformance_swap(&world->client, 8, 10, 11, NULL));
	assert_ok(conformance_read(&world->client, WORDS, 8, &old, 8));
	assert_int_equal(old, 11);
	assert_ok(conformance_read(&world->client, WORDS, 0, &old, 8));
	assert_int_equal(old, 0);
}

static void rights_are_kept(void **state)
{
	WORLD;
	uint64_t word = 5;
	struct fabric_op op = { .offset = 64, .len_bytes = 8, .local = &word, .offsets = &word };
	static const struct {
		uint8_t opcode;
		uint16_t region;
	} refused[] = {
		{ FABRIC_WRITE, WORDS },
		{ FABRIC_WRITE, PUBLISHED },
		{ FABRIC_FETCH_ADD, PUBLISHED },
		{ FABRIC_COMPARE_SWAP, PUBLISHED },
		{ FABRIC_READ, SLOTS },
		{ FABRIC_FETCH_ADD, SLOTS },
		{ FABRIC_FETCH_ADD, SHARED },
		{ FABRIC_COMPARE_SWAP, SHARED },
		{ FABRIC_FETCH_ADD_LIST, PUBLISHED },
		{ FABRIC_READ_LIST, SLOTS },
		{ FABRIC_FETCH_ADD_LIST, SHARED },
		{ FABRIC_READ, MISSING },
		{ FABRIC_WRITE, MISSING },
		{ FABRIC_FETCH_ADD, MISSING },
		{ FABRIC_READ, FABRIC_MAX_REGIONS },
		{ FABRIC_WRITE, 0xffff },
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		op.opcode = refused[i].opcode;
		op.region = refused[i].region;
		if (op.opcode == FABRIC_FETCH_ADD || op.opcode == FABRIC_COMPARE_SWAP)
			op.operand = op.compare = 0;
		else
			op.offsets = op.addends = &word;
		op.count = op.opcode >= FABRIC_READ_LIST;
		word = 0;
		assert_error(conformance_do(&world->client, &op), EACCES);
	}
	for (uint32_t i = 0; i < REGION_BYTES; i += 4096)
		assert_int_equal(((unsigned char *)world->server.memory[PUBLISHED].base)[i], 0);
}

static void beyond_the_end_is_refused(void **state)
{
	WORLD;
	static const struct {
		uint64_t offset, len_bytes;
	} bad[] = {
		{ REGION_BYTES, 8 },     { REGION_BYTES - 7, 8 }, { REGION_BYTES - 8, 9 },
		{ 0, REGION_BYTES + 1 }, { UINT64_MAX - 7, 8 },   { UINT64_MAX, 1 },
		{ 8, UINT64_MAX },       { 8, UINT64_MAX - 7 },   { 1ull << 63, 8 },
		{ 8, 1ull << 63 },       { 1ull << 32, 8 },
	};
	uint64_t word = 1;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_error(conformance_read(&world->client, SHARED, bad[i].offset, &word,
					      bad[i].len_bytes),
			     ERANGE);
		assert_error(conformance_write(&world->client, SHARED, bad[i].offset, &word,
					       bad[i].len_bytes),
			     ERANGE);
	}
	assert_error(conformance_add(&world->client, REGION_BYTES, 1, &word), ERANGE);
	assert_error(conformance_add(&world->client, UINT64_MAX - 7, 1, &word), ERANGE);
	assert_error(conformance_swap(&world->client, REGION_BYTES, 0, 1, &word), ERANGE);
	assert_ok(conformance_add(&world->client, REGION_BYTES - 8, 1, &word));
	assert_int_equal(word, 0);
	assert_ok(conformance_read(&world->client, SHARED, REGION_BYTES - 8, &word, 8));
}

static void a_region_ends_at_its_last_byte(void **state)
{
	WORLD;
	uint64_t word = 1;
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.region = RAGGED,
		.offset = RAGGED_BYTES & ~7u,
		.operand = 1,
	};

	assert_error(conformance_do(&world->client, &op), ERANGE);
	op.offset -= 8;
	assert_ok(conformance_do(&world->client, &op));
	assert_ok(conformance_write(&world->client, RAGGED, RAGGED_BYTES - 1, &word, 1));
	assert_error(conformance_write(&world->client, RAGGED, RAGGED_BYTES - 1, &word, 2), ERANGE);
}

static void misaligned_and_unknown_operations_are_refused(void **state)
{
	WORLD;
	uint64_t word = 0;
	struct fabric_op op = { .region = RAGGED, .len_bytes = 8, .local = &word };

	for (uint64_t offset = 1; offset < 8; offset++) {
		assert_error(conformance_add(&world->client, offset, 1, &word), EINVAL);
		assert_error(conformance_swap(&world->client, offset, 0, 1, &word), EINVAL);
	}
	op.opcode = 0;
	assert_error(conformance_do(&world->client, &op), EINVAL);
	for (op.opcode = FABRIC_FETCH_ADD_LIST + 1; op.opcode; op.opcode++)
		assert_error(conformance_do(&world->client, &op), EINVAL);
	assert_int_equal(*(uint64_t *)world->server.memory[WORDS].base, 0);
}

static void a_post_takes_between_one_and_max_ops(void **state)
{
	WORLD;
	struct fabric_completion completion = { 0 };
	uint32_t max = world->client.ep->limits.max_ops;
	uint64_t *zeros = calloc(max + 1ul, sizeof(uint64_t));
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.count = max + 1,
		.offsets = zeros,
		.addends = zeros,
	};

	assert_non_null(zeros);
	assert_error(fabric_post(world->client.ep, &op, 0, &completion), EINVAL);
	assert_error(fabric_post(world->client.ep, &op, 1, &completion), EINVAL);
	op.count = max;
	assert_ok(conformance_do(&world->client, &op));
	free(zeros);
}

static void lists_do_each_element(void **state)
{
	WORLD;
	uint64_t offsets[LIST], addends[LIST], back[LIST][3];
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.offsets = offsets,
		.addends = addends,
	};
	uint64_t *words = world->server.memory[WORDS].base;

	for (uint32_t count = 0; count <= LIST; count += count < 3 ? 1 : 13) {
		memset(words, 0, REGION_BYTES);
		for (uint32_t i = 0; i < count; i++) {
			offsets[i] = (i * 37 % 50) * 24; /* some twice */
			addends[i] = i + 1;
		}
		op.count = count;
		op.opcode = FABRIC_FETCH_ADD_LIST;
		op.addends = addends;
		assert_ok(conformance_do(&world->client, &op));
		for (uint32_t w = 0; w < 200; w++) {
			uint64_t sum = 0;

			for (uint32_t i = 0; i < count; i++)
				sum += offsets[i] == w * 8 ? addends[i] : 0;
			assert_int_equal(words[w], sum);
		}
		memset(back, 0xee, sizeof(back));
		op.opcode = FABRIC_READ_LIST;
		op.len_bytes = 24;
		op.local = back;
		assert_ok(conformance_do(&world->client, &op));
		for (uint32_t i = 0; i < count; i++)
			assert_memory_equal(back[i], (char *)words + offsets[i], 24);
	}
}

static void read_lists_of_every_length(void **state)
{
	static const uint64_t lengths[] = { 1, 4, 8, 12, 40, 256, 1000 };
	static unsigned char back[LIST * 1000];
	WORLD;
	uint64_t offsets[LIST];
	struct fabric_op op = {
		.opcode = FABRIC_READ_LIST,
		.region = PUBLISHED,
		.count = LIST,
		.offsets = offsets,
		.local = back,
	};
	unsigned char *memory = world->server.memory[PUBLISHED].base;

	fill(memory, REGION_BYTES, 3);
	for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
		op.len_bytes = lengths[k];
		for (uint32_t i = 0; i < LIST; i++)
			offsets[i] = REGION_BYTES - lengths[k] - (uint64_t)i * i * 11;
		assert_ok(conformance_do(&world->client, &op));
		for (uint32_t i = 0; i < LIST; i++)
			assert_memory_equal(back + i * lengths[k], memory + offsets[i], lengths[k]);
	}
}

/* Posts a list of two good operations and a bad third, and expects that nothing was done. */
static void refuse_third(struct conformance_world *world, const struct fabric_op *bad, int code)
{
	struct fabric_completion completion = { 0 };
	uint64_t value = 77, *words = world->server.memory[WORDS].base;
	uint64_t *shared = world->server.memory[SHARED].base;
	struct fabric_op ops[3] = {
		{ .opcode = FABRIC_FETCH_ADD, .region = WORDS, .offset = 80, .operand = 1 },
		{ .opcode = FABRIC_WRITE, .region = SHARED, .len_bytes = 8, .local = &value },
		*bad,
	};

	assert_error(fabric_post(world->client.ep, ops, 3, &completion), code);
	assert_int_equal(completion.pending, 0);
	assert_int_equal(completion.status, 0);
	assert_int_equal(words[10], 0);
	assert_int_equal(words[0], 0);
	assert_int_equal(shared[0], 0);
}

static void a_list_with_an_error_does_nothing(void **state)
{
	WORLD;
	uint64_t offsets[3] = { 0, 8, REGION_BYTES }, addends[3] = { 1, 1, 1 }, into[3];
	struct fabric_op bad = { .opcode = FABRIC_FETCH_ADD, .region = WORDS, .offset = 4 };

	refuse_third(world, &bad, EINVAL);
	bad.offset = REGION_BYTES;
	refuse_third(world, &bad, ERANGE);
	bad.region = PUBLISHED;
	refuse_third(world, &bad, EACCES);
	bad = (struct fabric_op){
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = WORDS,
		.count = 3,
		.offsets = offsets,
		.addends = addends,
	};
	refuse_third(world, &bad, ERANGE);
	offsets[2] = UINT64_MAX - 7;
	refuse_third(world, &bad, ERANGE);
	offsets[2] = 20;
	refuse_third(world, &bad, EINVAL);
	assert_error(conformance_do(&world->client, &bad), EINVAL);
	bad.opcode = FABRIC_READ_LIST;
	bad.len_bytes = 8;
	bad.local = into;
	offsets[1] = REGION_BYTES - 7;
	refuse_third(world, &bad, ERANGE);
	offsets[1] = 0;
	bad.len_bytes = UINT64_MAX;
	refuse_third(world, &bad, ERANGE);
}

static void one_completion_serves_several_lists(void **state)
{
	WORLD;
	struct fabric_completion completion = { 0 };
	uint64_t old[16];

	for (unsigned int i = 0; i < 16; i++) {
		const struct fabric_op op = {
			.opcode = FABRIC_FETCH_ADD,
			.region = WORDS,
			.offset = 128,
			.operand = 1,
			.local = &old[i],
		};
		int ret;

		while ((ret = fabric_post(world->client.ep, &op, 1, &completion)) == -EAGAIN)
			assert_ok(fabric_poll(world->client.ep, conformance_in(&world->client, 1000)));
		assert_ok(ret);
	}
	while (completion.pending)
		assert_ok(fabric_poll(world->client.ep, conformance_in(&world->client, 1000)));
	assert_int_equal(completion.status, 0);
	for (unsigned int i = 0; i < 16; i++)
		assert_int_equal(old[i], i);
	assert_ok(fabric_poll(world->client.ep, 0));
	assert_ok(fabric_poll(world->client.ep, conformance_in(&world->client, 60000)));
}

static void the_source_of_an_inline_write_can_be_used_again(void **state)
{
	WORLD;
	struct fabric_completion completion = { 0 };
	uint64_t *shared = world->server.memory[SHARED].base, value = 1;
	struct fabric_op op = {
		.opcode = FABRIC_WRITE,
		.flags = FABRIC_INLINE,
		.region = SHARED,
		.len_bytes = 8,
		.local = &value,
	};

	if (world->client.ep->limits.inline_bytes < 8)
		skip();
	assert_ok(fabric_post(world->client.ep, &op, 1, &completion));
	value = 2;
	while (completion.pending)
		assert_ok(fabric_poll(world->client.ep, conformance_in(&world->client, 1000)));
	assert_int_equal(shared[0], 1);
}

static void map_points_at_what_may_be_read(void **state)
{
	WORLD;
	struct fabric_endpoint *ep = world->client.ep;
	const uint64_t *published = fabric_map(ep, PUBLISHED, 0, REGION_BYTES);

	if (published) {
		((uint64_t *)world->server.memory[PUBLISHED].base)[5] = 99;
		assert_int_equal(published[5], 99);
		assert_ptr_equal(fabric_map(ep, PUBLISHED, 40, 8), published + 5);
	}
	assert_null(fabric_map(ep, PUBLISHED, 0, REGION_BYTES + 1));
	assert_null(fabric_map(ep, PUBLISHED, UINT64_MAX, 2));
	assert_null(fabric_map(ep, SLOTS, 0, 8));
	assert_null(fabric_map(ep, MISSING, 0, 8));
	assert_null(fabric_map(ep, 0x10000, 0, 8));
}

#define WITH_SERVER(test) \
	cmocka_unit_test_setup_teardown(test, conformance_setup, conformance_teardown)

const struct CMUnitTest conformance_ops_tests[] = {
	WITH_SERVER(limits_are_usable),
	WITH_SERVER(write_lands_and_read_returns_it_for_all_lengths_and_alignments),
	WITH_SERVER(write_lands_in_a_region_that_can_not_be_read),
	WITH_SERVER(atomics_return_the_old_value_and_wrap),
	WITH_SERVER(rights_are_kept),
	WITH_SERVER(beyond_the_end_is_refused),
	WITH_SERVER(a_region_ends_at_its_last_byte),
	WITH_SERVER(misaligned_and_unknown_operations_are_refused),
	WITH_SERVER(a_post_takes_between_one_and_max_ops),
	WITH_SERVER(lists_do_each_element),
	WITH_SERVER(read_lists_of_every_length),
	WITH_SERVER(a_list_with_an_error_does_nothing),
	WITH_SERVER(one_completion_serves_several_lists),
	WITH_SERVER(the_source_of_an_inline_write_can_be_used_again),
	WITH_SERVER(map_points_at_what_may_be_read),
};
const size_t conformance_ops_count = sizeof(conformance_ops_tests) / sizeof(conformance_ops_tests[0]);

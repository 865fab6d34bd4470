/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/*
 * Random lists over random devices, against a model that executes each list at once: since all takes effect in
 * the order posted, a READ must return what the model had at its place, and the memories end the same.
 */
#include "rig.h"

#define LISTS       6 /* outstanding at most */
#define LIST_OPS    5
#define MODEL_BYTES (96u << 10)
#define LOCAL_BYTES (256u << 10)
#define ELEMENTS    24

static uint64_t seed, device;

static uint32_t rnd(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

/* Mostly small. */
static uint32_t random_length(uint32_t most)
{
	uint32_t n = rnd(10);

	return n < 5 ? rnd(n < 2 ? 9 : 130) : rnd(n < 9 ? most / 8 : most) + 1;
}

struct list {
	bool busy;
	struct fabric_completion completion;
	struct fabric_op ops[LIST_OPS];
	uint32_t n, used;
	unsigned char *local, *expected; /* LOCAL_BYTES each */
	uint64_t offsets[LIST_OPS][ELEMENTS], addends[LIST_OPS][ELEMENTS];
};

struct world {
	struct rig rig;
	unsigned char *model;
	struct list lists[LISTS];
	uint64_t posted;
};

/* Local memory of the list's own; anywhere. */
static unsigned char *take_local(struct list *list, uint32_t len_bytes)
{
	unsigned char *at = list->local + list->used + rnd(3);

	list->used += len_bytes + 3;
	return list->used <= LOCAL_BYTES ? at : NULL;
}

static unsigned char *expected_of(struct list *list, const void *local)
{
	return list->expected + ((const unsigned char *)local - list->local);
}

static void fill(unsigned char *to, uint32_t len_bytes)
{
	uint32_t value = rnd(1u << 30);

	for (uint32_t i = 0; i < len_bytes; i++)
		to[i] = (unsigned char)((value + i) * 37 + i / 255);
}

static bool make_transfer(struct list *list, struct fabric_op *op)
{
	op->len_bytes = random_length(60u << 10);
	op->offset = rnd((uint32_t)(MODEL_BYTES - op->len_bytes + 1));
	op->flags = rnd(4) ? 0 : FABRIC_FENCE;
	if (op->opcode == FABRIC_WRITE && op->len_bytes <= 128 && rnd(2))
		op->flags |= FABRIC_INLINE;
	op->local = take_local(list, (uint32_t)op->len_bytes);
	if (op->local && op->opcode == FABRIC_WRITE)
		fill(op->local, (uint32_t)op->len_bytes);
	return op->local;
}

static bool make_list_op(struct world *w, struct list *list, uint32_t k)
{
	struct fabric_op *op = &list->ops[k];
	uint32_t most = w->rig.ep.limits.max_ops / LIST_OPS;
	bool add = op->opcode == FABRIC_FETCH_ADD_LIST;

	op->count = rnd(1 + (most < ELEMENTS ? most : ELEMENTS));
	op->len_bytes = add ? 8 : random_length(8000);
	op->offsets = list->offsets[k];
	op->addends = list->addends[k];
	for (uint32_t i = 0; i < op->count; i++) {
		list->offsets[k][i] = add ? rnd(MODEL_BYTES / 8) * 8ull :
					    rnd((uint32_t)(MODEL_BYTES - op->len_bytes + 1));
		list->addends[k][i] = seed;
	}
	if (!add)
		op->local = take_local(list, (uint32_t)(op->count * op->len_bytes));
	return add || op->local;
}

static bool make_op(struct world *w, struct list *list, uint32_t k)
{
	struct fabric_op *op = &list->ops[k];

	*op = (struct fabric_op){ .opcode = (uint8_t)(FABRIC_READ + rnd(6)), .region = ALL };
	if (op->opcode <= FABRIC_WRITE)
		return make_transfer(list, op);
	if (op->opcode >= FABRIC_READ_LIST)
		return make_list_op(w, list, k);
	op->offset = rnd(MODEL_BYTES / 8) * 8ull;
	op->operand = seed;
	op->compare = rnd(2) ? *(uint64_t *)(w->model + op->offset) : rnd(1000);
	op->local = rnd(3) ? take_local(list, 8) : NULL;
	return true;
}

static void model_op(struct world *w, struct list *list, const struct fabric_op *op)
{
	uint64_t *word = (uint64_t *)(w->model + op->offset);

	switch (op->opcode) {
	case FABRIC_READ:
		memcpy(expected_of(list, op->local), w->model + op->offset, op->len_bytes);
		break;
	case FABRIC_WRITE:
		memcpy(w->model + op->offset, op->local, op->len_bytes);
		break;
	case FABRIC_READ_LIST:
		for (uint32_t i = 0; i < op->count; i++)
			memcpy(expected_of(list, op->local) + i * op->len_bytes,
			       w->model + op->offsets[i], op->len_bytes);
		break;
	case FABRIC_FETCH_ADD_LIST:
		for (uint32_t i = 0; i < op->count; i++)
			*(uint64_t *)(w->model + op->offsets[i]) += op->addends[i];
		break;
	default:
		if (op->local)
			memcpy(expected_of(list, op->local), word, 8);
		if (op->opcode == FABRIC_FETCH_ADD)
			*word += op->operand;
		else if (*word == op->compare)
			*word = op->operand;
	}
}

static void collect(struct world *w)
{
	for (int i = 0; i < LISTS; i++) {
		struct list *list = &w->lists[i];

		if (!list->busy || list->completion.pending)
			continue;
		assert_int_equal(list->completion.status, 0);
		assert_memory_equal(list->local, list->expected, LOCAL_BYTES);
		list->busy = false;
	}
}

static void poll_once(struct world *w)
{
	assert_ok(verbs_data_poll(&w->rig.data, rnd(2) ? 0 : base_now_ns() + 2 * NS_PER_S));
	collect(w);
}

static void post_list(struct world *w, struct list *list)
{
	uint32_t n = 1 + rnd(LIST_OPS), most = w->rig.ep.limits.max_ops;
	int ret;

	list->used = list->n = 0;
	while (list->n < (n < most ? n : most) && make_op(w, list, list->n))
		list->n++;
	if (!list->n)
		return;
	while ((ret = verbs_data_post(&w->rig.data, list->ops, list->n, &list->completion)) == -EAGAIN)
		poll_once(w);
	assert_ok(ret);
	/* What post copied may change at once, and the rest is the fabric's. */
	memcpy(list->expected, list->local, LOCAL_BYTES);
	for (uint32_t i = 0; i < list->n; i++)
		model_op(w, list, &list->ops[i]);
	for (uint32_t i = 0; i < list->n; i++)
		if (list->ops[i].flags & FABRIC_INLINE) {
			memset(list->ops[i].local, 0xdd, list->ops[i].len_bytes);
			memset(expected_of(list, list->ops[i].local), 0xdd, list->ops[i].len_bytes);
		}
	memset(list->offsets, 0xee, sizeof(list->offsets));
	memset(list->addends, 0xee, sizeof(list->addends));
	memset(list->ops, 0xee, sizeof(list->ops));
	list->busy = true;
	w->posted++;
}

static void one_device(struct world *w, unsigned int lists)
{
	static const uint32_t depths[] = { 1, 2, 3, 6, 17, 60, 300 };
	static const uint32_t messages[] = { 256, 5000, 1u << 20 };
	const struct verbs_data_config config = {
		.depth = depths[rnd(7)],
		.inline_bytes = rnd(3) * 50,
		.staging_bytes = 8192ull << rnd(9),
	};

	fake_reset();
	fake.port.max_msg_sz = messages[rnd(3)];
	rig_open(&w->rig, &config);
	fake.per_poll = rnd(2) ? 0 : 1 + rnd(10);
	fake.reads = rnd(2) ? 1000 : 1 + rnd(4);
	memset(w->model, 0, MODEL_BYTES);
	for (int i = 0; i < LISTS; i++) {
		w->lists[i] = (struct list){
			.local = w->lists[i].local,
			.expected = w->lists[i].expected,
		};
		if (rnd(3) == 0)
			assert_ok(verbs_buffer_register(&w->rig.buffers, w->lists[i].local,
							LOCAL_BYTES / (1 + rnd(3))));
	}
	for (unsigned int i = 0; i < lists; i++) {
		struct list *list = &w->lists[rnd(LISTS)];

		while (list->busy)
			poll_once(w);
		post_list(w, list);
		if (!rnd(3))
			poll_once(w);
	}
	while (w->rig.data.lists)
		poll_once(w);
	collect(w);
	assert_memory_equal(w->rig.memory[ALL], w->model, MODEL_BYTES);
	rig_close(&w->rig);
}

static void lists_do_what_the_model_does(void **state)
{
	unsigned int devices = support_rounds(400);
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	assert_non_null(w);
	w->model = calloc(1, MODEL_BYTES + 8);
	for (int i = 0; i < LISTS; i++) {
		w->lists[i].local = calloc(2, LOCAL_BYTES);
		w->lists[i].expected = w->lists[i].local + LOCAL_BYTES;
	}
	for (unsigned int i = 0; i < devices; i++) {
		seed = device = i + 1;
		one_device(w, 60);
	}
	for (int i = 0; i < LISTS; i++)
		free(w->lists[i].local);
	free(w->model);
	free(w);
}

/* Where it failed, if it did. */
static int tell_device(void **state)
{
	(void)state;
	print_message("the last device was %lu\n", (unsigned long)device);
	return 0;
}

/* acknowledged <= what landed <= acknowledged + in doubt, wherever it breaks. */
static void adds_that_break_are_in_doubt_and_no_others(void **state)
{
	unsigned int rounds = support_rounds(300);

	(void)state;
	for (unsigned int i = 0; i < rounds; i++) {
		uint64_t offsets[7] = { 0 }, addends[7] = { 1, 1, 1, 1, 1, 1, 1 }, acknowledged = 0,
			 doubt = 0, sum;
		struct fabric_completion completions[64] = { 0 };
		const struct fabric_op op = {
			.opcode = FABRIC_FETCH_ADD_LIST,
			.region = WORDS,
			.count = 7,
			.offsets = offsets,
			.addends = addends,
		};
		struct ibv_wc wc;
		uint32_t n = 0;
		int ret = 0;

		seed = i;
		RIG(rig, .depth = 7 + rnd(40));
		fake.per_poll = rnd(9);
		if (rnd(2)) {
			fake.refuse_post = 1 + rnd(200);
			fake.refuse_errno = ENOMEM;
		} else {
			fake.fail_wr = 1 + rnd(200);
			fake.fail_status = IBV_WC_RETRY_EXC_ERR;
		}
		for (; n < 64 && ret != -ENOTCONN; n += !ret) {
			ret = verbs_data_post(&rig->data, &op, 1, &completions[n]);
			if (ret == -EAGAIN)
				verbs_data_poll(&rig->data, 0);
		}
		while (rig->data.lists)
			verbs_data_poll(&rig->data, 0);
		while (ibv_poll_cq(rig->data.cq, 1, &wc) > 0)
			;
		for (uint32_t k = 0; k < n; k++) {
			assert_int_equal(completions[k].pending, 0);
			*(completions[k].status ? &doubt : &acknowledged) += 7;
		}
		sum = *(uint64_t *)rig->memory[WORDS];
		assert_in_range(sum, acknowledged, acknowledged + doubt);
		rig_close(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(lists_do_what_the_model_does, tell_device),
		cmocka_unit_test(adds_that_break_are_in_doubt_and_no_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Many operations at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define TABLES 4u
#define ROWS   500u
#define DIM    50u
#define OPS    64u /* different ones under way */
#define LIST   30u

static uint32_t rounds;

static struct ramps_schema schema_of(uint32_t i)
{
	static const char *const names[TABLES] = { "words", "fixed", "slots", "more" };
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = names[i];
	schema.rows = ROWS;
	schema.dim = DIM;
	schema.type = i == 0 ? RAMPS_INT64 : RAMPS_FLOAT32;
	schema.mode = i < 2 ? RAMPS_DIRECT : RAMPS_SLOTS;
	schema.rate = 1.0f;
	return schema;
}

static void set_value(uint32_t table, void *data, uint64_t i, int value)
{
	if (table)
		((float *)data)[i] = (float)value;
	else
		((int64_t *)data)[i] = value;
}

static double get_value(uint32_t table, const void *data, uint64_t i)
{
	return table ? (double)((const float *)data)[i] : (double)((const int64_t *)data)[i];
}

/* One operation that may be under way, with its memory. */
struct slot {
	struct ramps_op op;
	uint32_t table;
	bool busy;
	uint64_t row_ids[LIST];
	int64_t data[ROWS * DIM];
};

static struct slot slots[OPS];
static double sums[TABLES][ROWS]; /* of what was pushed to the first value of each row */

static int push_value(uint32_t table, uint64_t row, uint64_t column)
{
	return (int)((row * 7 + column + table) % 9) - 4;
}

/* Values to be added go negated into slots, whose step subtracts. */
static void fill_push(struct slot *slot)
{
	struct ramps_op *op = &slot->op;

	for (uint64_t r = 0; r < op->rows; r++) {
		uint64_t row = op->kind == RAMPS_PUSH ? op->first_row + r : op->row_ids[r];

		for (uint64_t c = 0; c < DIM; c++) {
			int value = push_value(slot->table, row, c);

			set_value(slot->table, slot->data, r * DIM + c, slot->table < 2 ? value : -value);
		}
		sums[slot->table][row] += 1;
	}
}

static void make_op(struct slot *slot, struct ramps_table **tables, uint64_t *random, uint32_t kinds)
{
	struct ramps_op *op = &slot->op;

	memset(op, 0, sizeof(*op));
	slot->table = (uint32_t)(job_random(random) % TABLES);
	op->table = tables[slot->table];
	op->data = slot->data;
	op->kind = (uint32_t)(job_random(random) % (slot->table < 2 ? kinds : 2)) + 1;
	op->flags = job_random(random) % 16 == 0 ? RAMPS_OP_FOLLOW : 0;
	if (op->kind >= RAMPS_PULL_ROWS) {
		op->rows = job_random(random) % LIST + 1;
		op->row_ids = slot->row_ids;
		for (uint64_t i = 0; i < op->rows; i++)
			slot->row_ids[i] = job_random(random) % ROWS;
	} else {
		op->first_row = job_random(random) % ROWS;
		op->rows = job_random(random) % (ROWS - op->first_row) % 40 + 1;
	}
	if (job_random(random) % 4 == 0) {
		op->transfer = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
		op->transfer.level = (uint32_t)(job_random(random) % 3);
	}
	if (op->kind == RAMPS_PUSH || op->kind == RAMPS_PUSH_ROWS)
		fill_push(slot);
}

/* Only this rank pushes, so that a pull has whole multiples of what is added to a row. */
static void check_pull(const struct slot *slot)
{
	const struct ramps_op *op = &slot->op;

	if (op->kind != RAMPS_PULL && op->kind != RAMPS_PULL_ROWS)
		return;
	for (uint64_t r = 0; r < op->rows; r++) {
		uint64_t row = op->kind == RAMPS_PULL ? op->first_row + r : op->row_ids[r];

		for (uint64_t c = 0; c < DIM; c++) {
			double got = get_value(slot->table, slot->data, r * DIM + c);
			int each = push_value(slot->table, row, c);

			if (!each)
				CHECK(got == 0);
			else
				CHECK(got / each == (double)(int)(got / each) && got / each >= 0);
			CHECK(!each || got / each <= sums[slot->table][row]);
		}
	}
}

static uint32_t take_done(struct ramps_worker *worker, uint32_t most, uint64_t base)
{
	struct ramps_done done[OPS];
	int n = ramps_worker_reap(worker, done, most, JOB_TIMEOUT_MS);

	OK(n);
	CHECK(n > 0 && n <= (int)most);
	for (int i = 0; i < n; i++) {
		uint64_t index = done[i].tag - base;

		CHECK(index < OPS && slots[index].busy);
		CHECK(done[i].status == 0 && done[i].unknown_ops == 0);
		slots[index].busy = false;
		check_pull(&slots[index]);
	}
	return (uint32_t)n;
}

static void check_sums(struct ramps_table *table, uint32_t index)
{
	static int64_t data[ROWS * DIM];

	OK(ramps_table_pull(table, 0, ROWS, data, NULL, JOB_TIMEOUT_MS));
	for (uint64_t i = 0; i < ROWS * DIM; i++)
		CHECK(get_value(index, data, i) ==
		      push_value(index, i / DIM, i % DIM) * sums[index][i / DIM]);
}

static void blocking_call(struct ramps_table **tables, uint64_t *random)
{
	static struct slot slot;

	make_op(&slot, tables, random, RAMPS_PUSH);
	if (slot.op.kind == RAMPS_PULL)
		OK(ramps_table_pull(slot.op.table, slot.op.first_row, slot.op.rows, slot.data, NULL,
				    JOB_TIMEOUT_MS));
	else
		OK(ramps_table_push(slot.op.table, slot.op.first_row, slot.op.rows, slot.data, NULL,
				    JOB_TIMEOUT_MS));
	check_pull(&slot);
}

static void mix(uint32_t rank)
{
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *tables[TABLES];
	uint64_t random = 3, base = UINT64_MAX / 2;
	uint32_t open = 0;

	for (uint32_t i = 0; i < TABLES; i++) {
		struct ramps_schema schema = schema_of(i);

		tables[i] = job_table(worker, &schema);
	}
	for (uint32_t round = 0; round < rounds; round++) {
		struct ramps_op ops[OPS];
		uint32_t n = 0, most = (uint32_t)(job_random(&random) % 20) + 1;

		for (uint32_t i = 0; i < OPS && n < most; i++) {
			if (slots[i].busy)
				continue;
			make_op(&slots[i], tables, &random, RAMPS_PUSH_ROWS);
			slots[i].busy = true;
			slots[i].op.tag = base + i;
			ops[n++] = slots[i].op;
		}
		EXPECT(ramps_worker_submit(worker, ops, n), (int)n);
		open += n;
		if (job_random(&random) % 4 == 0)
			blocking_call(tables, &random);
		if (open && job_random(&random) % 8)
			open -= take_done(worker, (uint32_t)(job_random(&random) % OPS) + 1, base);
	}
	while (open)
		open -= take_done(worker, OPS, base);
	EXPECT(ramps_worker_reap(worker, &(struct ramps_done){ 0 }, 1, 0), 0);
	OK(ramps_worker_flush(worker, RAMPS_APPLIED, JOB_TIMEOUT_MS));
	for (uint32_t i = 0; i < TABLES; i++)
		check_sums(tables[i], i);
	for (uint32_t i = 0; i < TABLES; i++)
		ramps_table_close(tables[i]);
	job_leave(worker);
}

static void every_operation_is_reaped_once(void **state)
{
	(void)state;
	rounds = job_rounds(20000, 600);
	job.options.slots_bytes = 8u << 16;
	job_start(1, 1);
	job_run(1, mix, 60000);
	job_stop();
}

static void every_operation_on_three_servers_is_reaped_once(void **state)
{
	(void)state;
	rounds = job_rounds(20000, 600);
	job.options.slots_bytes = 2u << 16;
	job_start(3, 1);
	job_run(1, mix, 60000);
	job_stop();
}

static bool all_follow;

/* Push and pull in turn without reaping. A pull that follows has what was pushed before it; where all follow, no
 * more than that. */
static void follow(uint32_t rank)
{
	struct ramps_schema schemas[2] = { schema_of(0), schema_of(2) };
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *words = job_table(worker, &schemas[0]),
			   *slots_table = job_table(worker, &schemas[1]);
	static int64_t ones[ROWS * DIM], got[50][ROWS * DIM];
	static float gradient[ROWS * DIM], weights[50][ROWS * DIM];
	struct ramps_op ops[200];
	struct ramps_done done[200];

	for (uint32_t i = 0; i < ROWS * DIM; i++) {
		ones[i] = 1;
		gradient[i] = -1.0f;
	}
	memset(ops, 0, sizeof(ops));
	for (uint32_t i = 0; i < 200; i++) {
		bool pull = i & 1, direct = i & 2;

		ops[i].kind = pull ? RAMPS_PULL : RAMPS_PUSH;
		ops[i].flags = pull || all_follow ? RAMPS_OP_FOLLOW : 0;
		ops[i].table = direct ? words : slots_table;
		ops[i].rows = ROWS;
		ops[i].data = direct ? (pull ? (void *)got[i / 4] : ones) :
				       (pull ? (void *)weights[i / 4] : gradient);
		ops[i].tag = i;
		ops[i].transfer = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
		ops[i].transfer.level = RAMPS_APPLIED;
	}
	EXPECT(ramps_worker_submit(worker, ops, 200), 200);
	for (uint32_t n = 0; n < 200;) {
		int taken = ramps_worker_reap(worker, done, 7, JOB_TIMEOUT_MS);

		OK(taken);
		for (int i = 0; i < taken; i++) {
			CHECK(done[i].status == 0);
			if (done[i].tag % 4 == 1) /* a pull from slots */
				CHECK(done[i].steps >= done[i].tag / 4 + 1);
		}
		n += (uint32_t)taken;
	}
	for (uint32_t k = 0; k < 50; k++)
		for (uint32_t i = 0; i < ROWS * DIM; i++) {
			CHECK(got[k][i] >= k + 1 && got[k][i] <= (all_follow ? k + 1 : 50));
			CHECK(weights[k][i] >= (float)(k + 1));
			CHECK(weights[k][i] <= (float)(all_follow ? k + 1 : 50));
		}
	ramps_table_close(words);
	ramps_table_close(slots_table);
	job_leave(worker);
}

static void an_operation_that_follows_sees_those_before(void **state)
{
	(void)state;
	job_start(2, 1);
	all_follow = false;
	job_run(1, follow, 60000);
	job_stop();
}

static void operations_that_all_follow_go_one_after_another(void **state)
{
	(void)state;
	job_start(2, 1);
	all_follow = true;
	job_run(1, follow, 60000);
	job_stop();
}

static uint64_t *full;

/* A synchronous step of two ranks of which one is late: pushes stay under way until it comes. */
static void fill_up(uint32_t rank)
{
	struct ramps_schema schema = schema_of(2), direct = schema_of(0);
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table, *words;
	static float gradient[ROWS * DIM];
	static int64_t zeros[DIM];
	struct ramps_op op = { .kind = RAMPS_PUSH, .rows = ROWS, .data = gradient };
	struct ramps_done done[RAMPS_SUBMIT_MAX];
	uint64_t mask[RAMPS_SUBMIT_MAX / 64] = { 0 };

	schema.synchronous = 1;
	table = job_table(worker, &schema);
	words = job_table(worker, &direct);
	op.table = table;
	op.transfer = (struct ramps_transfer)RAMPS_TRANSFER_INIT;
	op.transfer.level = RAMPS_APPLIED;
	if (rank) { /* makes its steps when the other is full */
		AWAIT(full, 1);
		for (uint32_t i = 0; i < RAMPS_SUBMIT_MAX; i++)
			OK(ramps_table_push(table, 0, ROWS, gradient, NULL, JOB_TIMEOUT_MS));
	} else {
		for (uint32_t i = 0; i < RAMPS_SUBMIT_MAX; i++) {
			op.tag = i;
			EXPECT(ramps_worker_submit(worker, &op, 1), 1);
		}
		EXPECT(ramps_worker_submit(worker, &op, 1), -EAGAIN);
		EXPECT(ramps_worker_reap(worker, done, RAMPS_SUBMIT_MAX, 0), -ETIMEDOUT);
		EXPECT(ramps_worker_reap(worker, done, RAMPS_SUBMIT_MAX, 20), -ETIMEDOUT);
		/* The way is free for what needs no room in the ring. */
		OK(ramps_table_pull(words, 0, 1, zeros, NULL, JOB_TIMEOUT_MS));
		job_set(full, 1);
	}
	for (uint32_t n = 0; !rank && n < RAMPS_SUBMIT_MAX;) {
		int taken = ramps_worker_reap(worker, done, 10, JOB_TIMEOUT_MS);

		OK(taken);
		for (int i = 0; i < taken; i++) {
			CHECK(!done[i].status && !(mask[done[i].tag / 64] >> done[i].tag % 64 & 1));
			mask[done[i].tag / 64] |= 1ull << done[i].tag % 64;
		}
		n += (uint32_t)taken;
	}
	ramps_table_close(table);
	ramps_table_close(words);
	job_leave(worker);
}

static void submitting_ends_at_the_limit_until_some_are_reaped(void **state)
{
	(void)state;
	full = job_shared(sizeof(*full));
	job.options.slots_bytes = 8u << 16;
	job_start(1, 2);
	job_run(2, fill_up, 60000);
	job_stop();
}

/* Of five operations two are wrong in themselves. */
static void err(uint32_t rank)
{
	struct ramps_schema schemas[2] = { schema_of(0), schema_of(2) };
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *words = job_table(worker, &schemas[0]),
			   *table = job_table(worker, &schemas[1]);
	static float gradient[ROWS * DIM], weights[ROWS * DIM];
	static float bad[DIM] = { 0, 1e30f * 1e30f };
	static int64_t got[2 * DIM];
	const uint64_t rows[2] = { 1, ROWS };
	int expected[6] = { 0, -ERANGE, -ERANGE, -EDOM, -EOPNOTSUPP, 0 };
	struct ramps_op ops[6] = {
		{ .kind = RAMPS_PUSH, .table = table, .rows = ROWS, .data = gradient },
		{ .kind = RAMPS_PULL_ROWS, .table = words, .rows = 2, .row_ids = rows, .data = got },
		{ .kind = RAMPS_PULL, .table = words, .first_row = ROWS, .rows = 1, .data = got },
		{ .kind = RAMPS_PUSH, .table = table, .rows = 1, .data = bad },
		{ .kind = RAMPS_PUSH_ROWS, .table = table, .rows = 1, .row_ids = rows, .data = gradient },
		{ .kind = RAMPS_PULL, .flags = RAMPS_OP_FOLLOW, .table = table, .rows = ROWS, .data = weights },
	};
	struct ramps_done done;
	uint64_t tag;

	for (uint32_t i = 0; i < 6; i++)
		ops[i].tag = i;
	gradient[7] = -3.0f;
	EXPECT(ramps_worker_submit(worker, ops, 6), 6);
	for (uint32_t i = 0; i < 6; i++) {
		EXPECT(ramps_worker_reap(worker, &done, 1, JOB_TIMEOUT_MS), 1);
		tag = done.tag % 6;
		CHECK(done.tag == tag && done.status == expected[tag]);
		expected[tag] = 1; /* not twice */
	}
	OK(ramps_worker_flush(worker, RAMPS_APPLIED, JOB_TIMEOUT_MS));
	OK(ramps_table_pull(table, 0, ROWS, weights, NULL, JOB_TIMEOUT_MS));
	CHECK(weights[7] == 3.0f && weights[0] == 0.0f && weights[1] == 0.0f);
	ramps_table_close(words);
	ramps_table_close(table);
	job_leave(worker);
}

static void a_wrong_operation_is_reaped_with_its_error(void **state)
{
	(void)state;
	job_start(1, 1);
	job_run(1, err, 60000);
	job_stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(every_operation_is_reaped_once),
		job_test(every_operation_on_three_servers_is_reaped_once),
		job_test(an_operation_that_follows_sees_those_before),
		job_test(operations_that_all_follow_go_one_after_another),
		job_test(submitting_ends_at_the_limit_until_some_are_reaped),
		job_test(a_wrong_operation_is_reaped_with_its_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

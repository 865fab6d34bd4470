/* SPDX-License-Identifier: BSD-2-Clause */
#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ps/job.h"

#define CHUNK 16384

static struct job job;
static struct member m[4];

static int setup(void **state)
{
	(void)state;
	job_open(&job, RAMPS_ON_DEATH_FAIL);
	for (uint32_t rank = 0; rank < 3; rank++)
		if (member_join(&m[rank], &job, rank, 3))
			return -1;
	return 0;
}

static int setup_continue(void **state)
{
	(void)state;
	job_open(&job, RAMPS_ON_DEATH_CONTINUE);
	for (uint32_t rank = 0; rank < 3; rank++)
		if (member_join(&m[rank], &job, rank, 3))
			return -1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (uint32_t rank = 0; rank < 3; rank++)
		member_close(&m[rank]);
	job_close(&job);
	return 0;
}

static void all_are(uint32_t entry, uint64_t first, uint64_t count, float value)
{
	const float *w = job_values(&job, entry) + first;

	for (uint64_t i = 0; i < count; i++)
		if (w[i] != value)
			fail_msg("value %lu is %g, not %g", (unsigned long)(first + i),
				 (double)w[i], (double)value);
}

static void an_asynchronous_push_is_a_step_of_its_values(void **state)
{
	uint32_t t = member_table(&m[0], "w", 2 * CHUNK + 100, 0, 0.5f);
	struct core_cell cell;

	(void)state;
	member_push(&m[1], t, 0, 0, CHUNK, 4);
	job_run(&job);
	all_are(t, 0, CHUNK, -2);
	all_are(t, CHUNK, CHUNK + 100, 0);
	assert_int_equal(job_chunk(&job, t, 0)->version, 2);
	assert_int_equal(job_chunk(&job, t, 0)->steps, 1);
	assert_int_equal(job_chunk(&job, t, 1)->version, 0);
	assert_int_equal(job_head(&job, 1), 1);
	assert_int_equal(job_head(&job, 0), 0);

	/* a part of a chunk, with a weight and a rate of its own: -0.25/2 * 8 */
	cell = member_cell(&m[0], t, 2, 0, 30);
	cell.first = 70;
	cell.weight = 2;
	cell.rate = 0.25f;
	member_commit(&m[0], &cell, NULL, 8);
	job_run(&job);
	all_are(t, 2 * CHUNK, 70, 0);
	all_are(t, 2 * CHUNK + 70, 30, -1);
	assert_int_equal(job_head(&job, 0), 1);
	assert_int_equal(job.server->rank_info[0].applied, 1);
	assert_int_equal(job.server->entries[t].steps, 2);
	assert_int_equal(job.server->undo->valid, 0);
}

static void a_rate_of_zero_counts_as_zero(void **state)
{
	uint32_t t = member_table(&m[0], "w", 10, 0, 0.5f);
	struct core_cell cell = member_cell(&m[0], t, 0, 0, 10);

	(void)state;
	cell.rate = 0;
	member_commit(&m[0], &cell, NULL, 4);
	job_run(&job);
	all_are(t, 0, 10, 0);
	assert_int_equal(job_chunk(&job, t, 0)->steps, 1);
}

static void a_push_without_samples_is_a_step_that_changes_nothing(void **state)
{
	uint32_t t = member_table(&m[0], "w", 10, 0, 1), s = member_table(&m[0], "s", 10, 1, 1);
	struct core_cell cell = member_cell(&m[0], t, 0, 0, 10);

	(void)state;
	cell.weight = 0;
	member_commit(&m[0], &cell, NULL, 4);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 3; i++) {
			cell = member_cell(&m[i], s, 0, (uint64_t)round, 10);
			cell.weight = i == 0 || round == 0 ? 0 : 2;
			member_commit(&m[i], &cell, NULL, i == 0 ? 0 : 4);
		}
	job_run(&job);
	all_are(t, 0, 10, 0);
	assert_int_equal(job_chunk(&job, t, 0)->steps, 1);
	all_are(s, 0, 10, -2); /* 8 over 4 samples, in the second step alone */
	assert_int_equal(job_chunk(&job, s, 0)->steps, 2);
}

static void a_step_takes_one_push_of_every_rank_in_rank_order(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 1);
	float g[3][5] = { { 1e8f, 1, 2, 3, 4 }, { -1e8f, 1, 1, 1, 1 }, { 1.25f, 1, 1, 1, 1 } };
	struct core_cell cell;

	(void)state;
	/* they come in another order; (1e8 - 1e8) + 1.25 is not 1e8 + (-1e8 + 1.25) */
	for (int i = 2; i >= 0; i--) {
		cell = member_cell(&m[i], t, 0, 0, 5);
		cell.weight = (float)(i == 0 ? 2 : 1);
		cell.rate = i == 0 ? 2 : 77; /* the lowest rank's counts */
		all_are(t, 0, 5, 0);
		assert_int_equal(job_head(&job, (uint32_t)i), 0);
		member_commit(&m[i], &cell, g[i], 0);
		job_run(&job);
	}
	/* -2 / (2+1+1) = -0.5 */
	all_are(t, 0, 1, -0.625f);
	all_are(t, 1, 1, -1.5f);
	all_are(t, 4, 1, -3);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_int_equal(job_head(&job, rank), 1);
	assert_int_equal(job_chunk(&job, t, 0)->steps, 1);
	assert_int_equal(job_chunk(&job, t, 0)->version, 2);
}

static void the_lowest_ranks_negative_rate_is_the_tables(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 0.5f);

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct core_cell cell = member_cell(&m[i], t, 0, 0, 5);

		cell.rate = i == 0 ? -1 : 100;
		member_commit(&m[i], &cell, NULL, 6);
	}
	job_run(&job);
	all_are(t, 0, 5, -3);
}

static void a_push_for_a_later_step_waits_for_it(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 1);

	(void)state;
	for (uint64_t step = 0; step < 4; step++) {
		member_push(&m[0], t, 0, step, 5, 1);
		member_push(&m[1], t, 0, 3 - step, 5, 1); /* in an odd order */
	}
	job_run(&job);
	all_are(t, 0, 5, 0);
	for (uint64_t step = 0; step < 4; step++) {
		member_push(&m[2], t, 0, step, 5, 1);
		job_run(&job);
		all_are(t, 0, 5, -(float)(step + 1));
		assert_int_equal(job_chunk(&job, t, 0)->steps, step + 1);
		assert_int_equal(job_head(&job, 0), step + 1);
		/* rank 1's oldest cell is for the last step */
		assert_int_equal(job_head(&job, 1), step < 3 ? 0 : 4);
	}
	assert_int_equal(job.server->ranks[1].parked, 0);
	assert_int_equal(job.server->pending, 0);
}

static void ranks_may_push_their_chunks_in_different_orders(void **state)
{
	uint32_t t = member_table(&m[0], "w", 2 * CHUNK, 1, 1);

	(void)state;
	for (uint64_t step = 0; step < 2; step++)
		member_push(&m[0], t, 0, step, CHUNK, 3);
	for (uint64_t step = 0; step < 2; step++)
		member_push(&m[0], t, 1, step, CHUNK, 3);
	for (uint64_t step = 0; step < 2; step++)
		member_push(&m[1], t, 1, step, CHUNK, 3);
	for (uint64_t step = 0; step < 2; step++)
		member_push(&m[1], t, 0, step, CHUNK, 3);
	member_push(&m[2], t, 1, 1, CHUNK, 3);
	member_push(&m[2], t, 0, 1, CHUNK, 3);
	member_push(&m[2], t, 1, 0, CHUNK, 3);
	member_push(&m[2], t, 0, 0, CHUNK, 3);
	job_run(&job);
	all_are(t, 0, 2 * CHUNK, -6);
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_int_equal(job_head(&job, rank), 4);
}

static void a_push_for_an_older_step_is_consumed_and_dropped(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 1);

	(void)state;
	for (int i = 0; i < 3; i++)
		member_push(&m[i], t, 0, 0, 5, 1);
	job_run(&job);
	member_push(&m[1], t, 0, 0, 5, 100);
	job_run(&job);
	assert_int_equal(job_head(&job, 1), 2);
	assert_int_equal(job_dropped(&job, 1), 1);
	/* the same step twice: the first counts */
	member_push(&m[1], t, 0, 1, 5, 1);
	member_push(&m[1], t, 0, 1, 5, 100);
	job_run(&job);
	assert_int_equal(job_head(&job, 1), 2);
	assert_int_equal(job_dropped(&job, 1), 2);
	member_push(&m[0], t, 0, 1, 5, 1);
	member_push(&m[2], t, 0, 1, 5, 1);
	job_run(&job);
	all_are(t, 0, 5, -2);
	assert_int_equal(job_head(&job, 1), 4);
}

static void bad_cells_are_dropped_and_harm_nothing(void **state)
{
	uint32_t t = member_table(&m[0], "w", 2 * CHUNK + 10, 0, 1);
	uint32_t s = member_table(&m[0], "s", 2 * CHUNK, 1, 1);
	struct core_cell good = member_cell(&m[1], t, 0, 0, 5), cell;
	uint64_t bad = 0;

	(void)state;
#define BAD(change)                                            \
	do {                                                   \
		good.position = good.step = m[1].tail;         \
		cell = good;                                   \
		change;                                        \
		member_commit(&m[1], &cell, NULL, 1);          \
		job_run(&job);                                 \
		assert_int_equal(job_dropped(&job, 1), ++bad); \
		assert_int_equal(job_head(&job, 1), bad);      \
	} while (0)
	BAD(cell.position++);
	BAD(cell.step++);
	BAD(cell.kind = 0);
	BAD(cell.kind = 3);
	BAD(cell.entry = 2);
	BAD(cell.entry = UINT32_MAX);
	BAD(cell.chunk = 3);
	BAD(cell.chunk = UINT32_MAX);
	BAD(cell.count = 0);
	BAD(cell.count = CHUNK + 1);
	BAD(cell.first = UINT32_MAX - 2);
	BAD(cell.first = CHUNK - 4);
	BAD((cell.chunk = 2, cell.count = 11));
	BAD(cell.weight = -1);
	BAD(cell.weight = NAN);
	BAD(cell.weight = INFINITY);
	BAD(cell.rate = NAN);
	BAD(cell.rate = INFINITY);
	BAD((cell.entry = s, cell.step = 0)); /* not a whole chunk */
	BAD(cell.kind = CORE_CELL_ASSIGN);    /* of a table that is ready */
	all_are(t, 0, 2 * CHUNK + 10, 0);
	all_are(s, 0, 2 * CHUNK, 0);
	member_commit(&m[1], (good.position = good.step = m[1].tail, &good), NULL, 1);
	job_run(&job);
	all_are(t, 0, 5, -1);
	assert_int_equal(job_dropped(&job, 1), bad);
}

static void a_tail_beyond_the_ring_is_not_followed(void **state)
{
	uint32_t t = member_table(&m[0], "w", 10, 0, 1);
	struct fabric_completion completion = { 0 };
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.region = CORE_WORDS,
		.offset = job.server->header->rank_words_offset + sizeof(struct core_rank_words),
		.operand = 1000000,
	};

	(void)state;
	assert_int_equal(fabric_execute(m[1].ep, &op, 1, &completion, 0), 0);
	job_run(&job);
	assert_int_equal(ps_step(job.server), 0);
	assert_int_equal(job_head(&job, 1), 0);
	member_push(&m[0], t, 0, 0, 10, 1);
	job_run(&job);
	all_are(t, 0, 10, -1);
}

static void initial_values_are_assigned_until_the_table_is_ready(void **state)
{
	struct core_entry *e = &m[0].request.entry;
	struct core_cell cell;

	(void)state;
	*e = (struct core_entry){ .kind = CORE_TABLE, .name = "w" };
	e->table = (struct core_table){ .rows = 20,
					.dim = 1,
					.type = RAMPS_FLOAT32,
					.mode = RAMPS_SLOTS,
					.rate = 1 };
	assert_int_equal(member_ask(&m[0], CORE_CREATE), 0);
	assert_int_equal(m[0].reply.entry.state, CORE_PREPARING);
	assert_int_equal(m[0].reply.entry.creator, core_state(0, 1));
	e->index = 0;
	cell = member_cell(&m[0], 0, 0, 0, 20);
	cell.kind = CORE_CELL_ASSIGN;
	member_commit(&m[0], &cell, NULL, 3);
	cell = member_cell(&m[0], 0, 0, 0, 5);
	cell.kind = CORE_CELL_ASSIGN;
	cell.first = 10;
	member_commit(&m[0], &cell, NULL, 4);
	/* a push is too early */
	cell = member_cell(&m[1], 0, 0, 0, 5);
	member_commit(&m[1], &cell, NULL, 100);
	job_run(&job);
	assert_int_equal(job_dropped(&job, 1), 1);
	all_are(0, 0, 10, 3);
	all_are(0, 10, 5, 4);
	all_are(0, 15, 5, 3);
	assert_int_equal(member_ask(&m[0], CORE_SET_READY), 0);
	assert_int_equal(member_ask(&m[0], CORE_SET_READY), 0);
	cell = member_cell(&m[0], 0, 0, 0, 5);
	cell.kind = CORE_CELL_ASSIGN;
	member_commit(&m[0], &cell, NULL, 77);
	job_run(&job);
	all_are(0, 0, 10, 3);
	assert_int_equal(job_dropped(&job, 0), 1);
}

static void a_dead_rank_holds_up_a_step_where_the_policy_is_to_fail(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 1);
	struct member again;

	(void)state;
	member_push(&m[0], t, 0, 0, 5, 2);
	member_push(&m[1], t, 0, 0, 5, 2);
	job_run(&job);
	fake_kill(job.fabric, 3);
	job_run(&job);
	assert_int_equal(job_state(&job, 2), CORE_DEAD);
	all_are(t, 0, 5, 0);
	job.generation = 1;
	assert_int_equal(member_join(&again, &job, 2, 3), 0);
	member_push(&again, t, 0, 0, 5, 2);
	job_run(&job);
	all_are(t, 0, 5, -2);
	member_close(&again);
}

static void a_dead_rank_is_done_without_where_the_policy_is_to_go_on(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 1);
	struct member again;

	(void)state;
	member_push(&m[0], t, 0, 0, 5, 1);
	member_push(&m[1], t, 0, 0, 5, 3);
	job_run(&job);
	all_are(t, 0, 5, 0);
	fake_kill(job.fabric, 3);
	job_run(&job);
	all_are(t, 0, 5, -2); /* the mean of two */
	/* back, it is needed again */
	job.generation = 1;
	assert_int_equal(member_join(&again, &job, 2, 3), 0);
	member_push(&m[0], t, 0, 1, 5, 1);
	member_push(&m[1], t, 0, 1, 5, 1);
	job_run(&job);
	all_are(t, 0, 5, -2);
	member_push(&again, t, 0, 1, 5, 1);
	job_run(&job);
	all_are(t, 0, 5, -3);
	member_close(&again);
}

static void what_a_rank_committed_before_it_died_counts(void **state)
{
	uint32_t t = member_table(&m[0], "w", 2 * CHUNK, 1, 1);
	uint32_t a = member_table(&m[0], "a", 5, 0, 1);

	(void)state;
	/* committed, not yet seen by the server when it hears of the death */
	member_push(&m[2], t, 0, 1, CHUNK, 9);
	member_push(&m[2], t, 1, 0, CHUNK, 9);
	member_push(&m[2], a, 0, 0, 5, 9);
	member_push(&m[2], t, 0, 0, CHUNK, 9);
	fake_kill(job.fabric, 3);
	job_run(&job);
	assert_int_equal(job_state(&job, 2), CORE_DEAD);
	all_are(a, 0, 5, -9);
	for (uint64_t step = 0; step < 2; step++)
		for (int i = 0; i < 2; i++) {
			member_push(&m[i], t, 0, step, CHUNK, 0);
			member_push(&m[i], t, 1, step, CHUNK, 0);
		}
	job_run(&job);
	all_are(t, 0, CHUNK, -6); /* 9 of 3 ranks, twice */
	all_are(t, CHUNK, CHUNK, -3);
	assert_int_equal(job_head(&job, 2), 4);
}

static void a_rank_that_left_is_done_without_and_its_pushes_are_dropped(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 1, 1);
	uint32_t a = member_table(&m[0], "a", 5, 0, 1);

	(void)state;
	member_push(&m[2], a, 0, 0, 5, 1); /* before it leaves */
	member_push(&m[0], t, 0, 0, 5, 1);
	member_push(&m[1], t, 0, 0, 5, 1);
	assert_int_equal(member_leave(&m[2]), 0);
	job_run(&job);
	all_are(t, 0, 5, -1);
	all_are(a, 0, 5, -1);
	member_push(&m[2], a, 0, 0, 5, 1);
	job_run(&job);
	all_are(a, 0, 5, -1);
	assert_int_equal(job_head(&job, 2), 2);
	assert_int_equal(job_dropped(&job, 2), 1);
	member_close(&m[2]);
	job_run(&job);
	assert_int_equal(job_state(&job, 2), CORE_LEFT);
}

static void the_ring_wraps_and_a_restart_goes_on(void **state)
{
	uint32_t t = member_table(&m[0], "w", 5, 0, 1), s = member_table(&m[0], "s", 5, 1, 1);
	struct member *a = &m[0];

	(void)state;
	for (int i = 0; i < 3 * JOB_CELLS + 1; i++) {
		member_push(a, t, 0, 0, 5, 1);
		job_run(&job);
	}
	all_are(t, 0, 5, -(3 * JOB_CELLS + 1));
	member_push(a, s, 0, 1, 5, 1); /* parked */
	member_push(a, s, 0, 0, 5, 1); /* pending */
	member_push(a, t, 0, 0, 5, 1); /* applied, behind what is not consumed */
	member_push(&m[1], s, 0, 0, 5, 1);
	job_run(&job);
	all_are(t, 0, 5, -(3 * JOB_CELLS + 2));
	assert_int_equal(job_head(&job, 0), 3 * JOB_CELLS + 1);
	job_restart(&job);
	all_are(t, 0, 5, -(3 * JOB_CELLS + 2));
	for (uint32_t rank = 0; rank < 3; rank++) {
		member_close(&m[rank]);
		fake_kill(job.fabric, rank + 1);
	}
	fake_advance(job.fabric, NS_PER_S);
	job_run(&job);
	job.generation = 1;
	for (uint32_t rank = 0; rank < 3; rank++)
		assert_int_equal(member_join(&m[rank], &job, rank, 3), 0);
	assert_int_equal(m[0].tail, 3 * JOB_CELLS + 4);
	member_push(&m[1], s, 0, 1, 5, 1);
	member_push(&m[2], s, 0, 0, 5, 1);
	member_push(&m[2], s, 0, 1, 5, 1);
	job_run(&job);
	all_are(s, 0, 5, -2);
	all_are(t, 0, 5, -(3 * JOB_CELLS + 2));
	assert_int_equal(job_head(&job, 0), 3 * JOB_CELLS + 4);
}

/* What ends on the same values whether one server holds the chunk or another: the same operations on it. */
static void results_are_those_of_blas_to_the_bit(void **state)
{
	uint32_t t = member_table(&m[0], "w", CHUNK + 777, 1, 0.01f);
	static float g[3][CHUNK], w[CHUNK], sum[CHUNK];
	uint32_t seed = 1;

	(void)state;
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		int n = chunk ? 777 : CHUNK;
		float weight = 0;

		memset(w, 0, sizeof(w));
		for (uint64_t step = 0; step < 3; step++) {
			weight = 0;
			for (int r = 0; r < 3; r++) {
				struct core_cell cell = member_cell(&m[r], t, chunk, step, (uint32_t)n);

				for (int i = 0; i < n; i++)
					g[r][i] = (float)(int32_t)(seed = seed * 1664525 + 1013904223) /
						  1e7f;
				cell.weight = (float)(r + 1) * 1.1f;
				weight += cell.weight;
				member_commit(&m[r], &cell, g[r], 0);
			}
			cblas_scopy(n, g[0], 1, sum, 1);
			cblas_saxpy(n, 1, g[1], 1, sum, 1);
			cblas_saxpy(n, 1, g[2], 1, sum, 1);
			cblas_saxpy(n, -0.01f / weight, sum, 1, w, 1);
			job_run(&job);
		}
		assert_memory_equal(w, job_values(&job, t) + chunk * CHUNK, (size_t)n * sizeof(float));
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define C(name) cmocka_unit_test_setup_teardown(name, setup_continue, teardown)
	const struct CMUnitTest tests[] = {
		T(an_asynchronous_push_is_a_step_of_its_values),
		T(a_rate_of_zero_counts_as_zero),
		T(a_push_without_samples_is_a_step_that_changes_nothing),
		T(a_step_takes_one_push_of_every_rank_in_rank_order),
		T(the_lowest_ranks_negative_rate_is_the_tables),
		T(a_push_for_a_later_step_waits_for_it),
		T(ranks_may_push_their_chunks_in_different_orders),
		T(a_push_for_an_older_step_is_consumed_and_dropped),
		T(bad_cells_are_dropped_and_harm_nothing),
		T(a_tail_beyond_the_ring_is_not_followed),
		T(initial_values_are_assigned_until_the_table_is_ready),
		T(a_dead_rank_holds_up_a_step_where_the_policy_is_to_fail),
		C(a_dead_rank_is_done_without_where_the_policy_is_to_go_on),
		C(what_a_rank_committed_before_it_died_counts),
		T(a_rank_that_left_is_done_without_and_its_pushes_are_dropped),
		T(the_ring_wraps_and_a_restart_goes_on),
		T(results_are_those_of_blas_to_the_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

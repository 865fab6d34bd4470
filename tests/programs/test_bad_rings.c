/* SPDX-License-Identifier: BSD-2-Clause */
/* A worker that writes rubbish into its own ring and commits it: the server drops it, and nobody else notices. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "programs/bad_peer.h"
#include "programs/bad_support.h"

#include <cmocka.h>

#define RANK       6u
#define GRAD_ENTRY 2u /* the third table of the job */
#define COUNT      (BAD_ROWS * BAD_DIM)

static struct bad_job job;

static int begin(void **state)
{
	int ret = bad_setup(state);

	if (!ret)
		bad_job_begin(&job);
	return ret;
}

static int end(void **state)
{
	bad_job_end(&job);
	return bad_teardown(state);
}

static void add_to_tail(struct bad_peer *peer, uint64_t addend)
{
	struct core_request wake;

	bad_peer_execute(peer, (struct fabric_op){
				       .opcode = FABRIC_FETCH_ADD,
				       .flags = FABRIC_WAITABLE,
				       .region = CORE_WORDS,
				       .offset = peer->header.rank_words_offset +
						 peer->rank * sizeof(struct core_rank_words),
				       .operand = addend,
			       });
	bad_peer_request(&wake, CORE_WAKE);
	must_work(fabric_send(peer->ep, &wake, offsetof(struct core_request, job)));
}

static void write_slots(struct bad_peer *peer, uint64_t offset, const void *from, uint64_t len_bytes)
{
	bad_peer_execute(peer, (struct fabric_op){
				       .opcode = FABRIC_WRITE,
				       .region = CORE_SLOTS,
				       .offset = offset,
				       .local = (void *)(uintptr_t)from,
				       .len_bytes = len_bytes,
			       });
}

/* A push of `value` everywhere, at rate 0.25; the header is the caller's to spoil. */
static struct core_cell stage(struct bad_peer *peer, uint64_t position, float value)
{
	uint32_t cell = (uint32_t)(position % peer->header.cells);
	float values[COUNT];

	for (size_t i = 0; i < COUNT; i++)
		values[i] = value;
	write_slots(peer, core_cell_data(peer->header.cells, cell), values, sizeof(values));
	return (struct core_cell){
		.position = position,
		.step = position,
		.kind = CORE_CELL_PUSH,
		.entry = GRAD_ENTRY,
		.count = COUNT,
		.weight = 1,
		.rate = 0.25f,
	};
}

/* Commits the cell and waits until the server has consumed it: how many it has dropped now. */
static uint64_t commit(struct bad_peer *peer, uint64_t position, const struct core_cell *cell)
{
	uint64_t head_at = peer->header.ranks_offset + peer->rank * sizeof(struct core_rank), head;
	struct core_rank rank;

	write_slots(peer, position % peer->header.cells * sizeof(*cell), cell, sizeof(*cell));
	add_to_tail(peer, 1);
	must_work(fabric_wait_word(peer->ep, CORE_PUBLISHED, head_at, position, &head,
				   fabric_now(peer->fabric) + 10 * NS_PER_S));
	must(head == position + 1);
	bad_peer_rank(peer, &rank);
	return rank.dropped;
}

#define NAN_BITS      0x7fc00000u
#define INFINITY_BITS 0x7f800000u
#define SIGN_BIT      0x80000000u

/* One word of a cell, and what makes it wrong. */
static const struct spoil {
	size_t at;
	uint32_t value;
} spoils[] = {
	{ offsetof(struct core_cell, position), UINT32_MAX },
	{ offsetof(struct core_cell, position) + 4, 1 },
	{ offsetof(struct core_cell, step), UINT32_MAX },
	{ offsetof(struct core_cell, step) + 4, UINT32_MAX },
	{ offsetof(struct core_cell, kind), 0 },
	{ offsetof(struct core_cell, kind), CORE_CELL_ASSIGN }, /* the table is ready */
	{ offsetof(struct core_cell, kind), 3 },
	{ offsetof(struct core_cell, entry), 0 }, /* tables without slots */
	{ offsetof(struct core_cell, entry), 1 },
	{ offsetof(struct core_cell, entry), 3 }, /* a barrier and a clock */
	{ offsetof(struct core_cell, entry), 4 },
	{ offsetof(struct core_cell, entry), 5 }, /* nothing */
	{ offsetof(struct core_cell, entry), CORE_MAX_ENTRIES },
	{ offsetof(struct core_cell, entry), INT32_MAX },
	{ offsetof(struct core_cell, entry), UINT32_MAX },
	{ offsetof(struct core_cell, chunk), 1 },
	{ offsetof(struct core_cell, chunk), UINT32_MAX },
	{ offsetof(struct core_cell, first), 1 },
	{ offsetof(struct core_cell, first), COUNT },
	{ offsetof(struct core_cell, first), UINT32_MAX },
	{ offsetof(struct core_cell, first), UINT32_MAX - COUNT + 1 },
	{ offsetof(struct core_cell, count), 0 },
	{ offsetof(struct core_cell, count), COUNT + 1 },
	{ offsetof(struct core_cell, count), CORE_CHUNK_BYTES / 4 },
	{ offsetof(struct core_cell, count), UINT32_MAX },
	{ offsetof(struct core_cell, weight), NAN_BITS },
	{ offsetof(struct core_cell, weight), INFINITY_BITS },
	{ offsetof(struct core_cell, weight), INFINITY_BITS | SIGN_BIT },
	{ offsetof(struct core_cell, weight), 1 | SIGN_BIT },
	{ offsetof(struct core_cell, rate), NAN_BITS },
	{ offsetof(struct core_cell, rate), INFINITY_BITS },
};

/* Each between two that are right, and cancel: it must not be dropped for any other reason. */
static void commit_spoilt_cells(void *unused)
{
	uint64_t position, dropped;
	struct core_rank rank;
	struct core_cell cell;
	struct bad_peer peer;

	(void)unused;
	bad_peer_open(&peer, job.address);
	bad_peer_join(&peer, RANK);
	bad_peer_rank(&peer, &rank);
	position = rank.head;
	dropped = rank.dropped;
	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
		cell = stage(&peer, position, 4);
		must(commit(&peer, position++, &cell) == dropped);
		cell = stage(&peer, position, 1000);
		memcpy((char *)&cell + spoils[i].at, &spoils[i].value, sizeof(spoils[i].value));
		if (commit(&peer, position++, &cell) != ++dropped)
			fprintf(stderr, "%#x at byte %zu, and applied\n", spoils[i].value, spoils[i].at);
		bad_peer_rank(&peer, &rank);
		must(rank.dropped == dropped);
		cell = stage(&peer, position, -4);
		must(commit(&peer, position++, &cell) == dropped);
	}
	bad_peer_close(&peer);
}

static void spoilt_cells_are_dropped_and_those_beside_them_applied(void **state)
{
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;

	(void)state;
	must_work(ramps_barrier_open(job.worker, "b", NULL, &barrier));
	must_work(ramps_clock_open(job.worker, "c", &clock));
	bad_child(commit_spoilt_cells, NULL);
	bad_job_check(&job);
	ramps_barrier_close(barrier);
	ramps_clock_close(clock);
}

static void commit_noise(void *arg)
{
	uint64_t random = 0x2545f4914f6cdd1dull + *(uint32_t *)arg, position;
	struct core_rank rank;
	struct bad_peer peer;

	bad_peer_open(&peer, job.address);
	bad_peer_join(&peer, RANK);
	bad_peer_rank(&peer, &rank);
	position = rank.head;
	for (uint32_t i = 0, n = bad_rounds(1000); i < n; i++) {
		struct core_cell cell = stage(&peer, position, 1000);
		uint32_t value = (uint32_t)(bad_random(&random) >> 16);
		/* any word of it, but for the reserved ones: then it might be right */
		uint64_t at = bad_random(&random) % (offsetof(struct core_cell, weight) / 4);

		cell.weight = -1;
		memcpy((char *)&cell + 4 * at, &value, 4);
		commit(&peer, position++, &cell);
	}
	bad_peer_close(&peer);
}

static void cells_with_random_words_are_dropped(void **state)
{
	(void)state;
	for (uint32_t child = 0; child < 3; child++) {
		bad_child(commit_noise, &child);
		bad_job_check(&job);
	}
}

static void run_ahead(void *addend)
{
	struct core_reply reply;
	struct core_request request;
	struct bad_peer peer;

	bad_peer_open(&peer, job.address);
	bad_peer_join(&peer, RANK);
	add_to_tail(&peer, *(uint64_t *)addend);
	bad_peer_request(&request, CORE_LOOKUP);
	request.entry.kind = CORE_TABLE;
	strcpy(request.entry.name, "grad");
	must_work(bad_peer_ask(&peer, &request, &reply));
	bad_peer_close(&peer);
}

static void push_as_usual(void *unused)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	const float zeros[BAD_DIM] = { 0 };
	struct ramps_worker *worker;
	struct ramps_table *grad;

	(void)unused;
	transfer.level = RAMPS_APPLIED;
	must_work(bad_join(job.address, RANK, BAD_WORKERS, &worker));
	must_work(ramps_table_open(worker, "grad", NULL, 1000, &grad));
	for (int i = 0; i < 50; i++)
		must_work(ramps_table_push(grad, 3, 1, zeros, &transfer, 10000));
	ramps_table_close(grad);
	must_work(ramps_worker_leave(worker, 10000));
	ramps_worker_close(worker);
}

static void a_tail_that_ran_away_is_given_up_with_its_process(void **state)
{
	uint64_t addends[] = { 17, 1000, 1ull << 40, UINT64_MAX, 1ull << 63 };

	(void)state;
	for (size_t i = 0; i < sizeof(addends) / sizeof(addends[0]); i++) {
		bad_child(run_ahead, &addends[i]);
		bad_job_check(&job);
		bad_child(push_as_usual, NULL);
		bad_job_check(&job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spoilt_cells_are_dropped_and_those_beside_them_applied),
		cmocka_unit_test(cells_with_random_words_are_dropped),
		cmocka_unit_test(a_tail_that_ran_away_is_given_up_with_its_process),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways to synchronise: the barrier and the clock as they ship, and two that they are compared with.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "scaling.h"

#define WORD_STRIDE CORE_LINE_BYTES

static uint64_t deadline(const struct study_worker *worker)
{
	return fabric_now(worker->peer.fabric) + STUDY_WAIT_NS;
}

/*
 * The barrier
 */

static struct core_barrier barrier_place(const struct study_case *what)
{
	return (struct core_barrier){
		.members = what->workers,
		.fan_in = what->fan_in,
		.nodes_offset = CORE_LINE_BYTES,
	};
}

static uint64_t barrier_bytes(const struct study_case *what)
{
	return (sync_barrier_nodes(what->workers, what->fan_in) + 1) * sizeof(struct core_node);
}

static int barrier_open(struct study_worker *worker)
{
	struct core_barrier where = barrier_place(study_case_of(worker));
	struct sync_barrier *barrier;
	int ret;

	ret = sync_barrier_open(&worker->peer, &where, worker->index, NULL, deadline(worker), &barrier);
	if (!ret)
		worker->state = barrier;
	return ret;
}

static int barrier_round(struct study_worker *worker, uint32_t round)
{
	(void)round;
	return sync_barrier_wait(&worker->peer, worker->state, deadline(worker));
}

static void barrier_close(struct study_worker *worker)
{
	sync_barrier_close(worker->state);
}

const struct study_method study_barrier = {
	.name = "barrier",
	.words_bytes = barrier_bytes,
	.open = barrier_open,
	.round = barrier_round,
	.close = barrier_close,
};

/*
 * Adding and waiting, for the others
 */

static int add(struct study_worker *worker, uint64_t offset, uint64_t *old)
{
	struct sync_peer *peer = &worker->peer;
	const struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.region = CORE_WORDS,
		.offset = offset,
		.operand = 1,
		.local = &peer->result[0],
	};
	int ret = fabric_execute(peer->ep, &op, 1, &peer->completion, deadline(worker));

	*old = peer->result[0];
	return ret;
}

static int wait_until(struct study_worker *worker, uint64_t offset, uint64_t least)
{
	uint64_t seen = least - 1, value;
	int ret;

	do {
		ret = fabric_wait_word(worker->peer.ep, CORE_WORDS, offset, seen, &value,
				       deadline(worker));
		seen = value;
	} while (!ret && value < least);
	return ret;
}

static int nothing_to_open(struct study_worker *worker)
{
	(void)worker;
	return 0;
}

static void nothing_to_close(struct study_worker *worker)
{
	(void)worker;
}

/*
 * One counter: word 1 counts arrivals, word 2 the rounds that are over
 */

static uint64_t counter_bytes(const struct study_case *what)
{
	(void)what;
	return 3 * WORD_STRIDE;
}

static int counter_round(struct study_worker *worker, uint32_t round)
{
	uint64_t old;
	int ret = add(worker, WORD_STRIDE, &old);

	if (ret)
		return ret;
	if (old + 1 == (uint64_t)study_case_of(worker)->workers * (round + 1))
		return add(worker, 2 * WORD_STRIDE, &old);
	return wait_until(worker, 2 * WORD_STRIDE, round + 1);
}

const struct study_method study_counter = {
	.name = "one counter",
	.words_bytes = counter_bytes,
	.open = nothing_to_open,
	.round = counter_round,
	.close = nothing_to_close,
};

/*
 * Dissemination: in step k a worker tells the one 2^k further on, by a word of its own, and waits to
 * be told
 */

static uint32_t steps_of(uint32_t workers)
{
	uint32_t steps = 0;

	while (1u << steps < workers)
		steps++;
	return steps;
}

static uint64_t dissemination_bytes(const struct study_case *what)
{
	return (uint64_t)steps_of(what->workers) * what->workers * WORD_STRIDE;
}

static int dissemination_round(struct study_worker *worker, uint32_t round)
{
	uint32_t workers = study_case_of(worker)->workers;
	uint64_t old;
	int ret = 0;

	for (uint32_t k = 0; k < steps_of(workers) && !ret; k++) {
		uint64_t other = ((uint64_t)worker->index + (1u << k)) % workers;

		ret = add(worker, ((uint64_t)k * workers + other) * WORD_STRIDE, &old);
		if (!ret)
			ret = wait_until(worker, ((uint64_t)k * workers + worker->index) * WORD_STRIDE,
					 round + 1);
	}
	return ret;
}

const struct study_method study_dissemination = {
	.name = "dissemination",
	.words_bytes = dissemination_bytes,
	.open = nothing_to_open,
	.round = dissemination_round,
	.close = nothing_to_close,
};

/*
 * The clock: all advance by one and read all
 */

static uint64_t clock_bytes(const struct study_case *what)
{
	return CORE_LINE_BYTES + what->workers * sizeof(uint64_t);
}

static int clock_open(struct study_worker *worker)
{
	const struct core_clock where = {
		.words_offset = CORE_LINE_BYTES,
		.members = worker->peer.workers,
	};
	struct sync_clock *clock;
	int ret = sync_clock_open(&worker->peer, &where, worker->index, deadline(worker), &clock);

	if (!ret)
		worker->state = clock;
	return ret;
}

static int clock_round(struct study_worker *worker, uint32_t round)
{
	uint64_t own, least;
	int ret = sync_clock_advance(&worker->peer, worker->state, deadline(worker));

	if (!ret)
		ret = sync_clock_read(&worker->peer, worker->state, &own, &least, deadline(worker));
	if (!ret && (own != round + 1 || least > own))
		ret = -EPROTO;
	return ret;
}

static void clock_close(struct study_worker *worker)
{
	sync_clock_close(worker->state);
}

const struct study_method study_clock = {
	.name = "clock",
	.words_bytes = clock_bytes,
	.open = clock_open,
	.round = clock_round,
	.close = clock_close,
};

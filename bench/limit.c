/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the machine itself can do, without any library between. Prints nanoseconds for one
 * operation.
 *
 *   limit copy BYTES [MS]       memcpy() out of shared memory, at the better of two alignments
 *   limit scattered [MS]        atomic additions to the addresses of `ours scattered`
 *   limit one-word [MS]         the same to one word, for one addition of 2 processes together
 *   limit barrier [ROUNDS]      2 processes that only spin
 *   limit probe [MS]            round trip of a cache line between 2 cores
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define BATCHES 11
#define LIST    4096u
#define LISTS   64u
#define WORDS   (1u << 23)

struct copy {
	char *to;
	const char *from;
	uint64_t bytes;
};

static void copy(void *arg, uint64_t n)
{
	struct copy *c = arg;

	while (n--) {
		memcpy(c->to, c->from, c->bytes);
		__asm__ volatile("" ::: "memory");
	}
}

/* memcpy() is slow where the places differ by 1 to 31 bytes modulo a page, as malloc's do from ours. */
static double run_copy(uint64_t bytes, uint64_t ms)
{
	char *room = malloc(bytes + 8192);
	struct copy c = { .from = bench_shared(bytes), .bytes = bytes, .to = room };
	double plain, aligned;

	bench_pin(0);
	memset((void *)(uintptr_t)c.from, 1, bytes);
	memset(room, 1, bytes + 8192);
	plain = bench_time(copy, &c, ms / 2);
	c.to = (char *)(((uintptr_t)room + 4095) / 4096 * 4096 + 64);
	aligned = bench_time(copy, &c, ms / 2);
	free(room);
	return plain < aligned ? plain : aligned;
}

struct adds {
	uint64_t *words, at;
	uint64_t *ids;
};

static void scattered(void *arg, uint64_t n)
{
	struct adds *a = arg;

	while (n--) {
		const uint64_t *ids = a->ids + a->at * LIST;

		for (uint32_t i = 0; i < LIST; i++)
			__atomic_fetch_add(&a->words[ids[i]], 1, __ATOMIC_SEQ_CST);
		a->at = (a->at + 1) % LISTS;
	}
}

static double run_scattered(uint64_t ms)
{
	struct adds a = { .words = bench_shared(WORDS * sizeof(uint64_t)) };
	uint64_t state = 1;
	double ns;

	bench_pin(0);
	a.ids = malloc(sizeof(*a.ids) * LIST * LISTS);
	for (uint32_t i = 0; i < LIST * LISTS; i++)
		a.ids[i] = bench_random(&state) % WORDS;
	scattered(&a, LISTS); /* the pages come with the first touch */
	ns = bench_time(scattered, &a, ms) / LIST;
	free(a.ids);
	return ns;
}

/* What two processes share; each word on a pair of lines of its own. */
struct pair {
	pthread_barrier_t meet;
	uint64_t rounds;
	struct {
		uint64_t word;
		char pad[120];
	} stop, one, arrived, generation, turn;
	double result[2];
};

static void work_one_word(void *arg, uint32_t rank)
{
	struct pair *pair = arg;
	uint64_t start, count = 0;

	bench_pin(rank);
	pthread_barrier_wait(&pair->meet);
	start = bench_now_ns();
	while (!__atomic_load_n(&pair->stop.word, __ATOMIC_RELAXED)) {
		for (uint32_t i = 0; i < LIST; i++)
			__atomic_fetch_add(&pair->one.word, 1, __ATOMIC_SEQ_CST);
		count += LIST;
		if (rank == 0 && bench_now_ns() - start > pair->rounds * 1000000)
			__atomic_store_n(&pair->stop.word, 1, __ATOMIC_RELAXED);
	}
	pair->result[rank] = (double)count / (double)(bench_now_ns() - start);
}

static void spin_barrier(struct pair *pair)
{
	uint64_t generation = __atomic_load_n(&pair->generation.word, __ATOMIC_ACQUIRE);

	if (__atomic_fetch_add(&pair->arrived.word, 1, __ATOMIC_ACQ_REL) == 1) {
		__atomic_store_n(&pair->arrived.word, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&pair->generation.word, generation + 1, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&pair->generation.word, __ATOMIC_ACQUIRE) == generation)
		;
}

static void work_barrier(void *arg, uint32_t rank)
{
	struct pair *pair = arg;
	double took[BATCHES];

	bench_pin(rank);
	for (int i = 0; i < BATCHES; i++) {
		uint64_t start;

		pthread_barrier_wait(&pair->meet);
		spin_barrier(pair);
		start = bench_now_ns();
		for (uint64_t n = 0; n < pair->rounds; n++)
			spin_barrier(pair);
		took[i] = (double)(bench_now_ns() - start) / (double)pair->rounds;
	}
	pair->result[rank] = bench_median(took, BATCHES);
}

static void work_probe(void *arg, uint32_t rank)
{
	struct pair *pair = arg;
	uint64_t start, n = 0, mine = rank, stop = UINT64_MAX;

	bench_pin(rank);
	pthread_barrier_wait(&pair->meet);
	start = bench_now_ns();
	for (; mine < stop; mine += 2, n++) {
		while (__atomic_load_n(&pair->turn.word, __ATOMIC_ACQUIRE) < mine)
			;
		if (rank == 0 && n % 1024 == 0 && bench_now_ns() - start > pair->rounds * 1000000)
			__atomic_store_n(&pair->stop.word, mine + 2, __ATOMIC_RELAXED);
		__atomic_store_n(&pair->turn.word, mine + 1, __ATOMIC_RELEASE);
		if (n % 1024 < 2 && __atomic_load_n(&pair->stop.word, __ATOMIC_RELAXED))
			stop = __atomic_load_n(&pair->stop.word, __ATOMIC_RELAXED);
	}
	pair->result[rank] = (double)(bench_now_ns() - start) / (double)n;
}

static struct pair *run_pair(void (*body)(void *, uint32_t), uint64_t rounds)
{
	struct pair *pair = bench_shared(sizeof(*pair));

	pair->rounds = rounds;
	bench_meet_open(&pair->meet, 2);
	for (uint32_t i = 0; i < 2; i++)
		bench_spawn(body, pair, i);
	bench_join(2);
	return pair;
}

static double run(const char *what, uint64_t size, uint64_t rounds)
{
	const struct pair *pair;

	if (!strcmp(what, "copy"))
		return run_copy(size, rounds ? rounds : 100);
	if (!strcmp(what, "scattered"))
		return run_scattered(size ? size : 200);
	if (!strcmp(what, "one-word")) {
		pair = run_pair(work_one_word, size ? size : 200);
		return 1 / (pair->result[0] + pair->result[1]);
	}
	if (!strcmp(what, "barrier")) {
		pair = run_pair(work_barrier, size ? size : 20000);
		return pair->result[0] > pair->result[1] ? pair->result[0] : pair->result[1];
	}
	if (!strcmp(what, "probe")) {
		pair = run_pair(work_probe, size ? size : 20);
		return pair->result[0];
	}
	bench_die("usage: limit copy|scattered|one-word|barrier|probe [BYTES] [MS or ROUNDS]");
}

int main(int argc, char **argv)
{
	printf("%.3f\n", run(argc > 1 ? argv[1] : "", bench_number(argc, argv, 2, 0),
			     bench_number(argc, argv, 3, 0)));
	return 0;
}

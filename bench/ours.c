/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Our side of the comparisons, through the public interface, with a server in a process of its own
 * and users' memory from malloc(). Prints nanoseconds for one operation.
 *
 *   ours pull BYTES [MS]        ours barrier WORKERS [ROUNDS]
 *   ours add [MS]               ours round MIB [ROUNDS]       push, sum, SGD, pull; 2 workers
 *   ours scattered [MS]         ours train [STEPS]            for one image; 2 workers
 *   ours one-word [MS]          for one addition of 2 workers together
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cblas.h>
#include <ramps/ramps.h>

#include "bench.h"
#include "model.h"

#define ADDRESS     "shm://bench"
#define MAX_WORKERS 64
#define BATCHES     11
#define LIST        4096u
#define LISTS       64u
#define WORDS       (1u << 23) /* 64 MiB of them */

struct job {
	uint32_t workers;
	uint64_t size, rounds, slots_bytes;
	pthread_barrier_t meet;
	int ready[2];
	uint64_t stop;
	double result[MAX_WORKERS];
};

/* What a worker has. */
struct bench {
	struct job *job;
	uint32_t rank;
	struct ramps_worker *worker;
	struct ramps_table *table;
	uint64_t rows, at;
	uint64_t *ids;
	void *data;
};

static void serve(void *arg, uint32_t rank)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct job *job = arg;
	struct ramps_server *server;
	sigset_t end;
	int got;

	(void)rank;
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	options.address = ADDRESS;
	options.slots_bytes = job->slots_bytes;
	must("server", ramps_server_start(&options, &server));
	bench_need(write(job->ready[1], "r", 1) == 1, "no pipe");
	sigwait(&end, &got);
	ramps_server_stop(server);
}

static void join(struct bench *b, struct job *job, uint32_t rank)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;

	*b = (struct bench){ .job = job, .rank = rank };
	if (job->workers == 1)
		bench_pin(0);
	options.servers = ADDRESS;
	options.rank = rank;
	options.workers = job->workers;
	must("join", ramps_worker_join(&options, &b->worker));
}

static void leave(struct bench *b)
{
	must("leave", ramps_worker_leave(b->worker, 10000));
	ramps_table_close(b->table);
	ramps_worker_close(b->worker);
	free(b->data);
	free(b->ids);
}

static void open_table(struct bench *b, uint64_t rows, uint32_t mode, uint32_t synchronous,
		       const float *initial)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "table";
	schema.rows = rows;
	schema.mode = mode;
	schema.type = mode == RAMPS_DIRECT ? RAMPS_INT64 : RAMPS_FLOAT32;
	schema.synchronous = synchronous;
	schema.initial = initial;
	b->rows = rows;
	must("table", ramps_table_create(b->worker, &schema, &b->table));
}

static void pull(void *arg, uint64_t n)
{
	struct bench *b = arg;

	while (n--)
		must("pull", ramps_table_pull(b->table, 0, b->rows, b->data, NULL, -1));
}

static void add(void *arg, uint64_t n)
{
	const int64_t one = 1;
	struct bench *b = arg;

	while (n--)
		must("push", ramps_table_push(b->table, 7, 1, &one, NULL, -1));
}

static void scattered(void *arg, uint64_t n)
{
	struct bench *b = arg;

	while (n--) {
		must("push",
		     ramps_table_push_rows(b->table, b->ids + b->at * LIST, LIST, b->data, NULL, -1));
		b->at = (b->at + 1) % LISTS;
	}
}

static double run_pull(struct job *job)
{
	struct bench b;
	double ns;

	join(&b, job, 0);
	if (job->size == 8)
		open_table(&b, 1, RAMPS_DIRECT, 0, NULL);
	else
		open_table(&b, job->size / sizeof(float), RAMPS_SLOTS, 0, NULL);
	b.data = malloc(job->size);
	memset(b.data, 1, job->size);
	ns = bench_time(pull, &b, job->rounds);
	leave(&b);
	return ns;
}

static double run_add(struct job *job)
{
	struct bench b;
	double ns;

	join(&b, job, 0);
	open_table(&b, 4096, RAMPS_DIRECT, 0, NULL);
	ns = bench_time(add, &b, job->rounds);
	leave(&b);
	return ns;
}

static double run_scattered(struct job *job)
{
	uint64_t state = 1;
	struct bench b;
	double ns;

	join(&b, job, 0);
	open_table(&b, WORDS, RAMPS_DIRECT, 0, NULL);
	b.ids = malloc(sizeof(*b.ids) * LIST * LISTS);
	b.data = calloc(LIST, sizeof(uint64_t));
	for (uint32_t i = 0; i < LIST * LISTS; i++)
		b.ids[i] = bench_random(&state) % WORDS;
	scattered(&b, LISTS); /* the pages come with the first touch */
	ns = bench_time(scattered, &b, job->rounds) / LIST;
	leave(&b);
	return ns;
}

/* Lists of additions to one word until told to stop. */
static void work_one_word(void *arg, uint32_t rank)
{
	const uint32_t n = LIST;
	struct job *job = arg;
	uint64_t start, count = 0;
	struct bench b;

	bench_pin(rank);
	join(&b, job, rank);
	open_table(&b, 8, RAMPS_DIRECT, 0, NULL);
	b.ids = calloc(n, sizeof(*b.ids));
	b.data = calloc(n, sizeof(uint64_t));
	pthread_barrier_wait(&job->meet);
	start = bench_now_ns();
	while (!__atomic_load_n(&job->stop, __ATOMIC_RELAXED)) {
		must("push", ramps_table_push_rows(b.table, b.ids, n, b.data, NULL, -1));
		count += n;
		if (rank == 0 && bench_now_ns() - start > job->rounds * 1000000)
			__atomic_store_n(&job->stop, 1, __ATOMIC_RELAXED);
	}
	job->result[rank] = (double)count / (double)(bench_now_ns() - start);
	pthread_barrier_wait(&job->meet);
	leave(&b);
}

static void work_barrier(void *arg, uint32_t rank)
{
	struct ramps_barrier *barrier;
	struct job *job = arg;
	double took[BATCHES];
	struct bench b;

	if (job->workers <= 2)
		bench_pin(rank);
	join(&b, job, rank);
	must("barrier", ramps_barrier_open(b.worker, "b", NULL, &barrier));
	for (int i = 0; i < BATCHES; i++) {
		uint64_t start;

		must("barrier", ramps_barrier_wait(barrier, 10000));
		start = bench_now_ns();
		for (uint64_t n = 0; n < job->rounds; n++)
			must("barrier", ramps_barrier_wait(barrier, 10000));
		took[i] = (double)(bench_now_ns() - start) / (double)job->rounds;
	}
	job->result[rank] = bench_median(took, BATCHES);
	ramps_barrier_close(barrier);
	leave(&b);
}

/* A gradient in, summed with the other's, a step of SGD, the weights out. */
static void work_round(void *arg, uint32_t rank)
{
	struct ramps_transfer how = RAMPS_TRANSFER_INIT;
	struct job *job = arg;
	double *took = calloc(job->rounds, sizeof(*took));
	float *gradient = malloc(job->size);
	struct bench b;

	join(&b, job, rank);
	open_table(&b, job->size / sizeof(float), RAMPS_SLOTS, 1, NULL);
	b.data = malloc(job->size);
	how.level = RAMPS_APPLIED;
	for (uint64_t i = 0; i < b.rows; i++)
		gradient[i] = 1e-3f;
	for (uint64_t n = 0; n < job->rounds; n++) {
		uint64_t start;

		pthread_barrier_wait(&job->meet);
		start = bench_now_ns();
		must("push", ramps_table_push(b.table, 0, b.rows, gradient, &how, 10000));
		must("pull", ramps_table_pull(b.table, 0, b.rows, b.data, NULL, 10000));
		took[n] = (double)(bench_now_ns() - start);
	}
	job->result[rank] = bench_median(took + 1, job->rounds - 1);
	leave(&b);
	free(gradient);
	free(took);
}

static void work_train(void *arg, uint32_t rank)
{
	struct ramps_transfer how = RAMPS_TRANSFER_INIT;
	float *weights = malloc(MODEL_VALUES * sizeof(float)),
	      *gradient = malloc(MODEL_VALUES * sizeof(float));
	struct job *job = arg;
	double took[BATCHES];
	struct bench b;

	openblas_set_num_threads(1);
	join(&b, job, rank);
	model_start(weights);
	open_table(&b, MODEL_VALUES, RAMPS_SLOTS, 1, weights);
	how.level = RAMPS_APPLIED;
	how.weight = MODEL_BATCH;
	model_gradient(weights, rank, 0, gradient);
	for (int i = 0; i < BATCHES; i++) {
		uint64_t start;

		pthread_barrier_wait(&job->meet);
		start = bench_now_ns();
		for (uint64_t n = 0; n < job->rounds; n++) {
			model_gradient(weights, rank, n, gradient);
			must("push", ramps_table_push(b.table, 0, b.rows, gradient, &how, 10000));
			must("pull", ramps_table_pull(b.table, 0, b.rows, weights, NULL, 10000));
		}
		took[i] = (double)(bench_now_ns() - start) / (double)job->rounds;
	}
	job->result[rank] = bench_median(took, BATCHES) / (job->workers * MODEL_BATCH);
	leave(&b);
	free(weights);
	free(gradient);
}

/* Runs body in each worker. The slowest one's result. */
static double run_all(struct job *job, void (*body)(void *, uint32_t))
{
	double most = 0;

	bench_meet_open(&job->meet, job->workers);
	for (uint32_t i = 0; i < job->workers; i++)
		bench_spawn(body, job, i);
	bench_join(job->workers);
	for (uint32_t i = 0; i < job->workers; i++)
		most = job->result[i] > most ? job->result[i] : most;
	return most;
}

static double run_one_word(struct job *job)
{
	job->workers = 2;
	run_all(job, work_one_word);
	return 1 / (job->result[0] + job->result[1]);
}

static double run_barrier(struct job *job)
{
	bench_need(job->size && job->size <= MAX_WORKERS, "1 to %d workers", MAX_WORKERS);
	job->workers = (uint32_t)job->size;
	return run_all(job, work_barrier);
}

static double run_round(struct job *job)
{
	job->workers = 2;
	job->size <<= 20;
	bench_need(job->rounds > 1, "at least 2 rounds");
	return run_all(job, work_round);
}

static double run_train(struct job *job)
{
	job->workers = 2;
	return run_all(job, work_train);
}

static const struct test {
	const char *name;
	bool sized;
	uint64_t rounds;
	double (*run)(struct job *job);
} tests[] = {
	{ "pull", true, 100, run_pull },
	{ "add", false, 100, run_add },
	{ "scattered", false, 200, run_scattered },
	{ "one-word", false, 200, run_one_word },
	{ "barrier", true, 2000, run_barrier },
	{ "round", true, 20, run_round },
	{ "train", false, 20, run_train },
};

static const struct test *test_of(const char *name)
{
	for (size_t i = 0; name && i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	bench_die("usage: ours pull|add|scattered|one-word|barrier|round|train [SIZE] [MS or ROUNDS]");
}

int main(int argc, char **argv)
{
	const struct test *test = test_of(argc > 1 ? argv[1] : NULL);
	char byte;
	struct job *job = bench_shared(sizeof(*job));
	pid_t server;
	double ns;

	bench_place();
	job->workers = 1;
	job->size = test->sized ? bench_number(argc, argv, 2, 8) : 0;
	job->rounds = bench_number(argc, argv, test->sized ? 3 : 2, test->rounds);
	job->slots_bytes = bench_number(argc, argv, test->sized ? 4 : 3, 0);
	bench_need(!pipe(job->ready), "no pipe");
	server = bench_spawn(serve, job, 0);
	bench_need(read(job->ready[0], &byte, 1) == 1, "no server");
	ns = test->run(job);
	kill(server, SIGTERM);
	bench_join(1);
	printf("%.3f\n", ns);
	return 0;
}

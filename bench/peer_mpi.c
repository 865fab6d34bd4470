/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Open MPI. Rank 0 prints nanoseconds for one operation.
 *
 *   mpirun -n 2 peer_mpi get BYTES [MS]          mpirun -n N peer_mpi barrier [ROUNDS]
 *   mpirun -n 2 peer_mpi add [MS]                mpirun -n 2 peer_mpi allreduce MIB [ROUNDS]
 *   mpirun -n 2 peer_mpi train [STEPS]           for one image
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>
#include <mpi.h>

#include "bench.h"
#include "model.h"

#define BATCHES 11

static int rank, size;

struct window {
	MPI_Win win;
	char *data;
	int bytes;
};

/* With rank 1's memory, while that waits in a barrier. */
static void get(void *arg, uint64_t n)
{
	struct window *w = arg;

	while (n--) {
		MPI_Get(w->data, w->bytes, MPI_BYTE, 1, 0, w->bytes, MPI_BYTE, w->win);
		MPI_Win_flush(1, w->win);
	}
}

static void add(void *arg, uint64_t n)
{
	const int64_t one = 1;
	struct window *w = arg;
	int64_t before;

	while (n--) {
		MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 1, 0, MPI_SUM, w->win);
		MPI_Win_flush(1, w->win);
	}
}

static double run_window(void (*run)(void *, uint64_t), int bytes, uint64_t ms)
{
	struct window w = { .bytes = bytes, .data = malloc((size_t)bytes) };
	double ns = 0;
	void *base;

	memset(w.data, 1, (size_t)bytes);
	MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &w.win);
	memset(base, 1, (size_t)bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, w.win);
	if (rank == 0)
		ns = bench_time(run, &w, ms);
	MPI_Win_unlock_all(w.win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_free(&w.win);
	free(w.data);
	return ns;
}

static double run_barrier(uint64_t rounds)
{
	double took[BATCHES];

	for (int i = 0; i < BATCHES; i++) {
		uint64_t start;

		MPI_Barrier(MPI_COMM_WORLD);
		start = bench_now_ns();
		for (uint64_t n = 0; n < rounds; n++)
			MPI_Barrier(MPI_COMM_WORLD);
		took[i] = (double)(bench_now_ns() - start) / (double)rounds;
	}
	return bench_median(took, BATCHES);
}

static double run_allreduce(uint64_t mib, uint64_t rounds)
{
	int n = (int)(mib << 18);
	float *gradient = malloc((size_t)n * sizeof(float)), *sum = malloc((size_t)n * sizeof(float));
	double *took = calloc(rounds, sizeof(*took)), ns;

	bench_need(rounds > 1, "at least 2 rounds");
	for (int i = 0; i < n; i++)
		gradient[i] = 1e-3f;
	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t start;

		MPI_Barrier(MPI_COMM_WORLD);
		start = bench_now_ns();
		MPI_Allreduce(gradient, sum, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		took[i] = (double)(bench_now_ns() - start);
	}
	ns = bench_median(took + 1, rounds - 1);
	free(took);
	free(sum);
	free(gradient);
	return ns;
}

static double run_train(uint64_t steps)
{
	float *weights = malloc(MODEL_VALUES * sizeof(float)),
	      *sum = malloc(MODEL_VALUES * sizeof(float));
	float *gradient = malloc(MODEL_VALUES * sizeof(float));
	double took[BATCHES];

	openblas_set_num_threads(1);
	model_start(weights);
	model_gradient(weights, (uint32_t)rank, 0, gradient);
	for (int i = 0; i < BATCHES; i++) {
		uint64_t start;

		MPI_Barrier(MPI_COMM_WORLD);
		start = bench_now_ns();
		for (uint64_t n = 0; n < steps; n++) {
			model_gradient(weights, (uint32_t)rank, n, gradient);
			MPI_Allreduce(gradient, sum, MODEL_VALUES, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			cblas_saxpy(MODEL_VALUES, -0.01f / (float)(size * MODEL_BATCH), sum, 1,
				    weights, 1);
		}
		took[i] = (double)(bench_now_ns() - start) / (double)steps;
	}
	free(weights);
	free(gradient);
	free(sum);
	return bench_median(took, BATCHES) / (size * MODEL_BATCH);
}

int main(int argc, char **argv)
{
	const char *what;
	double ns = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "get"))
		ns = run_window(get, (int)bench_number(argc, argv, 2, 8),
				bench_number(argc, argv, 3, 100));
	else if (!strcmp(what, "add"))
		ns = run_window(add, 8, bench_number(argc, argv, 2, 100));
	else if (!strcmp(what, "barrier"))
		ns = run_barrier(bench_number(argc, argv, 2, 2000));
	else if (!strcmp(what, "allreduce"))
		ns = run_allreduce(bench_number(argc, argv, 2, 4), bench_number(argc, argv, 3, 20));
	else if (!strcmp(what, "train"))
		ns = run_train(bench_number(argc, argv, 2, 20));
	else
		bench_die("usage: peer_mpi get|add|barrier|allreduce|train [SIZE] [MS or ROUNDS]");
	if (rank == 0)
		printf("%.3f\n", ns);
	MPI_Finalize();
	return 0;
}

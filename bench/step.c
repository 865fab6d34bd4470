/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server's part of a push alone: a step of SGD on MIB MiB of weights, from gradients that lie in
 * the slots. Prints nanoseconds for one KiB that it has to read or write: gradient and weights in,
 * weights out. The public interface can't tell this part from the rest, so that the server is stepped
 * by hand here, when all is staged.
 *
 *   step MIB [STEPS]      step copy MIB [COPIES]: memcpy(), for one KiB read or written
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "bench.h"
#include "core/arena.h"
#include "ps/ps.h"
#include "shm/shm.h"

#define ADDRESS "shm://step"

static struct ps_server *server;
static uint32_t stop;

static void *serve(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		if (!ps_step(server))
			sched_yield();
	return NULL;
}

/* With the server stepped by a thread: it stands still outside. */
static void served(void (*body)(void *), void *arg)
{
	pthread_t thread;

	__atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
	bench_need(!pthread_create(&thread, NULL, serve, NULL), "no thread");
	body(arg);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
}

struct run {
	uint64_t values;
	struct ramps_worker *worker;
	struct ramps_table *table;
	float *gradient;
};

static void set_up(void *arg)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct run *run = arg;

	options.servers = ADDRESS;
	options.rank = 0;
	options.workers = 1;
	must("join", ramps_worker_join(&options, &run->worker));
	schema.name = "weights";
	schema.rows = run->values;
	schema.mode = RAMPS_SLOTS;
	must("table", ramps_table_create(run->worker, &schema, &run->table));
}

static void finish(void *arg)
{
	const struct run *run = arg;

	must("flush", ramps_worker_flush(run->worker, RAMPS_APPLIED, 10000));
	must("leave", ramps_worker_leave(run->worker, 10000));
}

static double time_step(struct run *run)
{
	struct ramps_transfer how = RAMPS_TRANSFER_INIT;
	uint64_t start;
	int quiet = 0;

	must("push", ramps_table_push(run->table, 0, run->values, run->gradient, &how, 10000));
	start = bench_now_ns();
	while (quiet < 2)
		quiet = ps_step(server) ? 0 : quiet + 1;
	return (double)(bench_now_ns() - start);
}

static double run_steps(uint64_t bytes, uint64_t steps)
{
	char directory[256];
	struct core_arena_options options = {
		.directory = directory,
		.job = "default",
		.arena_bytes = 4 * bytes + (64u << 20),
		.max_workers = 1,
		.cells = (uint32_t)(bytes / CORE_CHUNK_BYTES) + 1,
		.fresh = true,
	};
	struct run run = { .values = bytes / sizeof(float), .gradient = malloc(bytes) };
	double *took = calloc(steps + 1, sizeof(*took)), ns;
	struct core_arena *arena;
	struct fabric *fabric;

	must("place", shm_directory(ADDRESS, directory, sizeof(directory)));
	must("arena", core_arena_open(&options, &arena));
	must("fabric", shm_open_fabric(&fabric));
	must("server", ps_open(fabric, arena, ADDRESS, &server));
	for (uint64_t i = 0; i < run.values; i++)
		run.gradient[i] = 1e-3f;
	served(set_up, &run);
	for (uint64_t i = 0; i <= steps; i++)
		took[i] = time_step(&run);
	ns = bench_median(took + 1, steps);
	served(finish, &run);
	ramps_table_close(run.table);
	ramps_worker_close(run.worker);
	ps_close(server);
	fabric_close(fabric);
	core_arena_close(arena, true);
	free(run.gradient);
	free(took);
	return ns / (3.0 * (double)bytes / 1024);
}

static double run_copy(uint64_t bytes, uint64_t copies)
{
	double *took = calloc(copies + 1, sizeof(*took)), ns;
	char *from = bench_shared(bytes), *to = bench_shared(bytes);

	memset(from, 1, bytes);
	memset(to, 1, bytes);
	for (uint64_t i = 0; i <= copies; i++) {
		uint64_t start = bench_now_ns();

		memcpy(to, from, bytes);
		took[i] = (double)(bench_now_ns() - start);
	}
	ns = bench_median(took + 1, copies);
	free(took);
	return ns / (2.0 * (double)bytes / 1024);
}

int main(int argc, char **argv)
{
	bool copies = argc > 1 && !strcmp(argv[1], "copy");
	uint64_t bytes = bench_number(argc, argv, copies ? 2 : 1, 64) << 20;
	uint64_t n = bench_number(argc, argv, copies ? 3 : 2, 10);
	double ns;

	bench_need(bytes && n, "usage: step [copy] MIB [STEPS]");
	bench_place();
	ns = copies ? run_copy(bytes, n) : run_steps(bytes, n);
	printf("%.3f\n", ns);
	return 0;
}

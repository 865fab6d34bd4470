/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What workers and tables cost over shared memory: time to join, create, open and meet, and memory
 * of the arena, the server and a worker. Each line is a job of its own: a server process with so
 * many worker processes, rank 0 of which creates so many tables that all of them open. Tables are
 * small (TABLE_VALUES values), and half of them are of slots.
 *
 *   capacity WORKERS TABLES     one line
 *   capacity                    all of the table in docs/performance.md
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "bench.h"

#define MAX_WORKERS  256
#define TABLE_VALUES 16
#define ADDRESS      "shm://capacity"
#define WAIT_MS      600000
#define MEETINGS     20

/* Written by one process each. */
struct result {
	uint64_t join_ns, create_ns, open_ns, meet_ns, push_ns;
	uint64_t memory_kib; /* of this worker: private memory and page tables */
} __attribute__((aligned(64)));

struct job {
	uint32_t workers, tables;
	pthread_barrier_t meet;
	int ready[2], quit[2];
	pid_t server;
	uint64_t arena_kib, server_kib; /* before, then what was added to it */
	struct result results[MAX_WORKERS];
};

static const char *directory; /* of arenas */

/* Private memory and page tables of a process. */
static uint64_t memory_kib(pid_t pid)
{
	char path[64], line[256];
	uint64_t sum = 0, value;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %lu", &value) == 1 || sscanf(line, "VmPTE: %lu", &value) == 1)
			sum += value;
	fclose(file);
	return sum;
}

/* What the files below a directory take of /dev/shm. */
static uint64_t files_kib(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	uint64_t sum = 0;

	while (dir && (entry = readdir(dir))) {
		char name[512];
		struct stat file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (lstat(name, &file) == 0)
			sum += S_ISDIR(file.st_mode) ? files_kib(name) : (uint64_t)file.st_blocks / 2;
	}
	if (dir)
		closedir(dir);
	return sum;
}

static void serve(void *arg, uint32_t rank)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct job *job = arg;
	struct ramps_server *server;
	char byte;

	(void)rank;
	options.address = ADDRESS;
	options.max_workers = job->workers;
	options.slots_bytes = 256 << 10;
	options.arena_bytes = 4ull << 30;
	must("server", ramps_server_start(&options, &server));
	bench_need(write(job->ready[1], "r", 1) == 1, "no pipe");
	close(job->quit[1]);
	bench_need(read(job->quit[0], &byte, 1) == 0, "no pipe");
	ramps_server_stop(server);
}

static void table_schema(struct ramps_schema *schema, char name[RAMPS_NAME_BYTES], uint32_t index)
{
	snprintf(name, RAMPS_NAME_BYTES, "layer-%u/weight", index);
	schema->name = name;
	schema->rows = TABLE_VALUES;
	schema->mode = index % 2 ? RAMPS_SLOTS : RAMPS_DIRECT;
}

static void open_tables(struct ramps_worker *worker, struct job *job, bool create,
			struct ramps_table **tables)
{
	for (uint32_t i = 0; i < job->tables; i++) {
		struct ramps_schema schema = RAMPS_SCHEMA_INIT;
		char name[RAMPS_NAME_BYTES];

		table_schema(&schema, name, i);
		must("table", create ? ramps_table_create(worker, &schema, &tables[i]) :
				       ramps_table_open(worker, name, NULL, WAIT_MS, &tables[i]));
	}
}

/* Pushes to the last table, up to the weights: what the server does must not grow with its tables. */
static void push_some(struct ramps_table *table, struct result *result)
{
	const float values[TABLE_VALUES] = { 1 };
	struct ramps_transfer how = RAMPS_TRANSFER_INIT;
	double times[200];

	how.level = RAMPS_APPLIED;
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		uint64_t start = bench_now_ns();

		must("push", ramps_table_push(table, 0, TABLE_VALUES, values, &how, WAIT_MS));
		times[i] = (double)(bench_now_ns() - start);
	}
	result->push_ns = (uint64_t)bench_median(times, sizeof(times) / sizeof(times[0]));
}

static void meet(struct job *job, struct ramps_worker *worker, struct result *result)
{
	struct ramps_barrier *barrier;
	uint64_t start;

	must("barrier", ramps_barrier_open(worker, "all", NULL, &barrier));
	pthread_barrier_wait(&job->meet);
	must("barrier", ramps_barrier_wait(barrier, WAIT_MS));
	start = bench_now_ns();
	for (int i = 0; i < MEETINGS; i++)
		must("barrier", ramps_barrier_wait(barrier, WAIT_MS));
	result->meet_ns = (bench_now_ns() - start) / MEETINGS;
}

static void work(void *arg, uint32_t rank)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct job *job = arg;
	struct ramps_table **tables = calloc(job->tables, sizeof(void *));
	struct result *result = &job->results[rank];
	struct ramps_worker *worker;
	uint64_t start, before = memory_kib(getpid());

	close(job->quit[1]);
	options.servers = ADDRESS;
	options.rank = rank;
	options.workers = job->workers;
	options.timeout_ms = WAIT_MS;
	pthread_barrier_wait(&job->meet);
	start = bench_now_ns();
	must("join", ramps_worker_join(&options, &worker));
	pthread_barrier_wait(&job->meet);
	result->join_ns = bench_now_ns() - start;

	if (rank == 0) {
		start = bench_now_ns();
		open_tables(worker, job, true, tables);
		result->create_ns = bench_now_ns() - start;
		for (uint32_t i = 0; i < job->tables; i++)
			ramps_table_close(tables[i]);
	}
	pthread_barrier_wait(&job->meet);
	start = bench_now_ns();
	open_tables(worker, job, false, tables);
	pthread_barrier_wait(&job->meet);
	result->open_ns = bench_now_ns() - start;
	if (rank == 0 && job->tables > 1)
		push_some(tables[job->tables - 1], result);
	meet(job, worker, result);
	result->memory_kib = memory_kib(getpid()) - before;
	pthread_barrier_wait(&job->meet);
	if (rank == 0) {
		job->arena_kib = files_kib(directory);
		job->server_kib = memory_kib(job->server) - job->server_kib;
	}
	pthread_barrier_wait(&job->meet);
	must("leave", ramps_worker_leave(worker, WAIT_MS));
	for (uint32_t i = 0; i < job->tables; i++)
		ramps_table_close(tables[i]);
	ramps_worker_close(worker);
	free(tables);
}

static void report(const struct job *job)
{
	uint64_t meet_ns = 0, memory = 0;
	const struct result *r = job->results;

	for (uint32_t i = 0; i < job->workers; i++) {
		meet_ns = r[i].meet_ns > meet_ns ? r[i].meet_ns : meet_ns;
		memory += r[i].memory_kib;
	}
	printf("%8u %7u %9.3f %9.1f %9.1f %9.1f", job->workers, job->tables,
	       (double)r->join_ns / 1e6 / job->workers, (double)r->create_ns / 1e3 / job->tables,
	       (double)r->open_ns / 1e3 / job->tables / job->workers, (double)meet_ns / 1e3);
	if (r->push_ns)
		printf(" %9.1f", (double)r->push_ns / 1e3);
	else
		printf(" %9s", "-");
	printf(" %10.1f %9.1f %9.1f\n", (double)job->arena_kib / 1024,
	       (double)job->server_kib / 1024, (double)memory / 1024 / job->workers);
	fflush(stdout);
}

static void run(uint32_t workers, uint32_t tables)
{
	struct job *job = bench_shared(sizeof(*job));
	char byte;

	bench_need(workers >= 1 && workers <= MAX_WORKERS && tables >= 1,
		   "1 to %d workers, and at least one table", MAX_WORKERS);
	job->workers = workers;
	job->tables = tables;
	bench_meet_open(&job->meet, workers);
	bench_need(!pipe2(job->ready, O_CLOEXEC) && !pipe2(job->quit, O_CLOEXEC), "no pipe");
	job->server = bench_spawn(serve, job, 0);
	bench_need(read(job->ready[0], &byte, 1) == 1, "no server");
	job->server_kib = memory_kib(job->server);
	for (uint32_t i = 0; i < workers; i++)
		bench_spawn(work, job, i);
	bench_join(workers);
	report(job);
	close(job->quit[1]);
	bench_join(1);
	for (int i = 0; i < 2; i++)
		close(job->ready[i]);
	close(job->quit[0]);
}

static void head(void)
{
	printf("%8s %7s %9s %9s %9s %9s %9s %10s %9s %9s\n", "", "", "joining", "creating",
	       "opening", "barrier", "push", "arena", "server", "a worker");
	printf("%8s %7s %9s %9s %9s %9s %9s %10s %9s %9s\n", "workers", "tables", "ms/worker",
	       "us/table", "us/table", "us", "us", "MiB", "MiB", "MiB");
}

int main(int argc, char **argv)
{
	static const uint32_t workers[] = { 1, 8, 64, 256 }, tables[] = { 1, 100, 10000 };

	head();
	fflush(stdout);
	directory = bench_place();
	if (argc > 1) {
		run((uint32_t)bench_number(argc, argv, 1, 1), (uint32_t)bench_number(argc, argv, 2, 1));
		return 0;
	}
	for (size_t t = 0; t < 3; t++)
		for (size_t w = 0; w < 4; w++)
			run(workers[w], tables[t]);
	return 0;
}

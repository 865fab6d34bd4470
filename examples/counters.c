/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several workers count events by kind in one shared table, each at its own pace; when all are done, rank 0
 * prints the totals. Runs alone, or with the servers and rank that the environment names.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <ramps/ramps.h>

#define KINDS 5
#define BATCH 100 /* events that are pushed together: one list of fetch-adds */

static const char *const names[KINDS] = { "login", "search", "view", "order", "logout" };

/* Stands in for a log that this worker reads. */
static uint64_t next_event(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 16) % KINDS;
}

static int count_events(struct ramps_table *table, uint32_t rank, uint64_t batches)
{
	int64_t ones[BATCH];
	uint64_t kinds[BATCH];
	uint32_t state = rank;

	for (int i = 0; i < BATCH; i++)
		ones[i] = 1;
	for (; batches; batches--) {
		for (int i = 0; i < BATCH; i++)
			kinds[i] = next_event(&state);
		if (ramps_table_push_rows(table, kinds, BATCH, ones, NULL, -1))
			return -1;
	}
	return 0;
}

static int print_totals(struct ramps_table *table)
{
	int64_t totals[KINDS];

	if (ramps_table_pull(table, 0, KINDS, totals, NULL, -1))
		return -1;
	for (int i = 0; i < KINDS; i++)
		printf("%-8s %lld\n", names[i], (long long)totals[i]);
	return 0;
}

int main(int argc, char **argv)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	uint64_t batches = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
	struct ramps_worker *worker = NULL;
	struct ramps_table *table = NULL;
	struct ramps_barrier *done = NULL;
	int failed;

	options.servers = getenv("RAMPS_SERVERS") ? NULL : "embed:";
	schema.name = "events";
	schema.rows = KINDS;
	schema.type = RAMPS_INT64;
	failed = ramps_worker_join(&options, &worker) || ramps_worker_info(worker, &info) ||
		 ramps_table_create(worker, &schema, &table) ||
		 ramps_barrier_open(worker, "counted", NULL, &done) ||
		 count_events(table, info.rank, batches) || ramps_barrier_wait(done, -1) ||
		 (info.rank == 0 && print_totals(table)) || ramps_worker_leave(worker, -1);
	if (failed)
		fprintf(stderr, "%s: %s\n", ramps_last_error()->call, ramps_last_error()->text);
	ramps_barrier_close(done);
	ramps_table_close(table);
	ramps_worker_close(worker);
	return failed;
}

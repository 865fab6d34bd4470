/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Workers in step: each counts a round in a word of its own, meets the others, and looks at their words. Nobody
 * may be behind, for all have counted before they arrived; nor more than one round ahead.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ramps/ramps.h>

#define MOST 64

static int check(int ret, const char *what)
{
	if (ret >= 0)
		return ret;
	fprintf(stderr, "%s: %s\n", what, ramps_last_error()->text);
	exit(1);
}

int main(int argc, char **argv)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	int64_t rounds = argc > 1 ? atoi(argv[1]) : 1, one = 1, at[MOST];
	struct ramps_barrier *barrier;
	struct ramps_worker *worker;
	struct ramps_table *table;

	check(ramps_worker_join(NULL, &worker), "join");
	check(ramps_worker_info(worker, &info), "info");
	schema.name = "rounds";
	schema.rows = MOST;
	schema.type = RAMPS_INT64;
	check(ramps_table_create(worker, &schema, &table), "create");
	check(ramps_barrier_open(worker, "meet", NULL, &barrier), "barrier");
	for (int64_t round = 1; round <= rounds; round++) {
		check(ramps_table_push(table, info.rank, 1, &one, NULL, 30000), "push");
		check(ramps_barrier_wait(barrier, 30000), "wait");
		check(ramps_table_pull(table, 0, info.workers, at, NULL, 30000), "pull");
		for (uint32_t rank = 0; rank < info.workers; rank++)
			if (at[rank] < round || at[rank] > round + 1) {
				printf("in round %lld rank %u is at %lld\n", (long long)round, rank,
				       (long long)at[rank]);
				return 1;
			}
	}
	printf("%lld rounds in step\n", (long long)rounds);
	check(ramps_worker_leave(worker, 30000), "leave");
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	ramps_worker_close(worker);
	return 0;
}

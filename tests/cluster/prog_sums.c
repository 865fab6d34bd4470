/* SPDX-License-Identifier: BSD-2-Clause */
/* Every worker adds rank + 1 to 64 words N times; then each finds the sum of all in every word. */
#include <stdio.h>
#include <stdlib.h>

#include <ramps/ramps.h>

#define WORDS 64

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
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	struct ramps_barrier *barrier;
	struct ramps_worker *worker;
	struct ramps_table *table;
	int64_t add[WORDS], found[WORDS], all = 0;

	check(ramps_worker_join(NULL, &worker), "join");
	check(ramps_worker_info(worker, &info), "info");
	schema.name = "sums";
	schema.rows = WORDS;
	schema.type = RAMPS_INT64;
	check(ramps_table_create(worker, &schema, &table), "create");
	check(ramps_barrier_open(worker, "meet", NULL, &barrier), "barrier");
	for (int i = 0; i < WORDS; i++)
		add[i] = info.rank + 1;
	check(ramps_barrier_wait(barrier, 30000), "wait");
	for (int i = 0; i < rounds; i++)
		check(ramps_table_push(table, 0, WORDS, add, NULL, 30000), "push");
	check(ramps_barrier_wait(barrier, 30000), "wait");
	check(ramps_table_pull(table, 0, WORDS, found, NULL, 30000), "pull");
	for (uint32_t rank = 0; rank < info.workers; rank++)
		all += rank + 1;
	for (int i = 0; i < WORDS; i++)
		if (found[i] != all * rounds) {
			printf("word %d is %lld, not %lld\n", i, (long long)found[i],
			       (long long)all * rounds);
			return 1;
		}
	printf("%d words of %d times %lld\n", WORDS, rounds, (long long)all);
	check(ramps_worker_leave(worker, 30000), "leave");
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	ramps_worker_close(worker);
	return 0;
}

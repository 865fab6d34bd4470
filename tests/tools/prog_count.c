/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * prog_count SERVER JOB WORKERS TABLE: what a server has counted: the sum of a direct table's words, or the
 * updates of a slots table. Comes as rank 0, after those that worked have left.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ramps/ramps.h>

static int fail(const char *what)
{
	printf("%s: %s\n", what, ramps_last_error()->text);
	return 1;
}

int main(int argc, char **argv)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	struct ramps_table_info info = RAMPS_TABLE_INFO_INIT;
	struct ramps_worker *worker;
	struct ramps_table *table;
	int64_t *words, sum = 0;

	if (argc != 5)
		return 2;
	options.servers = argv[1];
	options.job = argv[2];
	options.rank = 0;
	options.workers = (uint32_t)strtoul(argv[3], NULL, 10);
	if (ramps_worker_join(&options, &worker))
		return fail("join");
	if (ramps_table_open(worker, argv[4], NULL, 0, &table) || ramps_table_info(table, &info))
		return fail("open");
	words = calloc(info.rows * info.dim, sizeof(*words));
	if (!words || ramps_table_pull(table, 0, info.rows, words, &transfer, 10000))
		return fail("pull");
	for (uint64_t i = 0; i < info.rows * info.dim; i++)
		sum += words[i];
	if (info.mode == RAMPS_DIRECT)
		printf("%lld\n", (long long)sum);
	else
		printf("%llu\n", (unsigned long long)transfer.steps);
	free(words);
	ramps_table_close(table);
	ramps_worker_leave(worker, 10000);
	ramps_worker_close(worker);
	return 0;
}

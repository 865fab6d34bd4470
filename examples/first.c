/* SPDX-License-Identifier: BSD-2-Clause */
/* Adds to a table and reads it back. Runs alone, or with the servers and rank that the environment names. */
#include <stdio.h>
#include <stdlib.h>

#include <ramps/ramps.h>

int main(void)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	const float step[4] = { 0.5f, -1.0f, 2.0f, 0.25f };
	struct ramps_worker *worker = NULL;
	struct ramps_table *table = NULL;
	float weights[4];
	int failed;

	options.servers = getenv("RAMPS_SERVERS") ? NULL : "embed:";
	schema.name = "weights";
	schema.dim = 4;
	failed = ramps_worker_join(&options, &worker) ||        /* every call returns 0 or -errno */
		 ramps_table_create(worker, &schema, &table) || /* one that is there is opened */
		 ramps_table_push(table, 0, 1, step, NULL, -1) ||    /* fetch-adds to row 0 */
		 ramps_table_pull(table, 0, 1, weights, NULL, -1) || /* -1: no time limit */
		 ramps_worker_leave(worker, -1);
	if (failed)
		fprintf(stderr, "%s: %s\n", ramps_last_error()->call, ramps_last_error()->text);
	else
		printf("%g %g %g %g\n", weights[0], weights[1], weights[2], weights[3]);
	ramps_table_close(table);
	ramps_worker_close(worker);
	return failed;
}

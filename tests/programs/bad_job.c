/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "programs/bad_support.h"

#define VALUES  ((size_t)BAD_ROWS * BAD_DIM)
#define WAIT_MS 20000

static float plain_value(size_t i)
{
	return (float)i * 0.5f - 100.0f;
}

static int64_t count_value(size_t i)
{
	return (int64_t)i * 1000000007 - 5;
}

static float grad_value(size_t i)
{
	return 1.0f + (float)i * 0.25f;
}

static struct ramps_table *make(struct bad_job *job, const char *name, const void *initial)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_table *table;

	schema.name = name;
	schema.rows = BAD_ROWS;
	schema.dim = BAD_DIM;
	schema.initial = initial;
	schema.type = strcmp(name, "counts") ? RAMPS_FLOAT32 : RAMPS_INT64;
	schema.mode = strcmp(name, "grad") ? RAMPS_DIRECT : RAMPS_SLOTS;
	must_work(ramps_table_create(job->worker, &schema, &table));
	return table;
}

void bad_job_begin(struct bad_job *job)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	float plain[VALUES], grad[VALUES];
	int64_t counts[VALUES];

	snprintf(job->address, sizeof(job->address), "%s", bad_address());
	options.address = job->address;
	options.arena_bytes = 32u << 20;
	options.slots_bytes = 16u << 16;
	options.max_workers = 2 * BAD_WORKERS;
	options.on_death = RAMPS_ON_DEATH_CONTINUE;
	bad_server_start(&job->server, &options);
	must_work(bad_join(job->address, 0, BAD_WORKERS, &job->worker));
	for (size_t i = 0; i < VALUES; i++) {
		plain[i] = plain_value(i);
		counts[i] = count_value(i);
		grad[i] = grad_value(i);
	}
	job->plain = make(job, "plain", plain);
	job->counts = make(job, "counts", counts);
	job->grad = make(job, "grad", grad);
	bad_job_check(job);
}

void bad_job_end(struct bad_job *job)
{
	ramps_table_close(job->plain);
	ramps_table_close(job->counts);
	ramps_table_close(job->grad);
	ramps_worker_close(job->worker);
	bad_server_stop(&job->server);
}

/* The control path answers, the data path takes an addition and its opposite, the server applies a step. */
static void check_service(struct bad_job *job)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	const float step[BAD_DIM] = { 1, 2, 3, 4, 5, 6, 7, 8 }, zeros[BAD_DIM] = { 0 };
	const int64_t one[BAD_DIM] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct ramps_table *again;
	float back[BAD_DIM];
	int64_t minus[BAD_DIM];

	for (size_t i = 0; i < BAD_DIM; i++) {
		back[i] = -step[i];
		minus[i] = -1;
	}
	must_work(ramps_table_open(job->worker, "plain", NULL, 0, &again));
	must_work(ramps_table_push(again, 7, 1, step, NULL, WAIT_MS));
	must_work(ramps_table_push(again, 7, 1, back, NULL, WAIT_MS));
	ramps_table_close(again);
	must_work(ramps_table_push(job->counts, 7, 1, one, NULL, WAIT_MS));
	must_work(ramps_table_push(job->counts, 7, 1, minus, NULL, WAIT_MS));
	transfer.level = RAMPS_APPLIED;
	must_work(ramps_table_push(job->grad, 7, 1, zeros, &transfer, WAIT_MS));
}

void bad_job_check(struct bad_job *job)
{
	float plain[VALUES], grad[VALUES];
	int64_t counts[VALUES];

	must_work(ramps_worker_flush(job->worker, RAMPS_APPLIED, WAIT_MS));
	for (int i = 0; i < 2; i++) {
		must_work(ramps_table_pull(job->plain, 0, BAD_ROWS, plain, NULL, WAIT_MS));
		must_work(ramps_table_pull(job->counts, 0, BAD_ROWS, counts, NULL, WAIT_MS));
		must_work(ramps_table_pull(job->grad, 0, BAD_ROWS, grad, NULL, WAIT_MS));
		for (size_t at = 0; at < VALUES; at++) {
			must(plain[at] == plain_value(at));
			must(counts[at] == count_value(at));
			must(grad[at] == grad_value(at));
		}
		if (i == 0)
			check_service(job);
	}
}

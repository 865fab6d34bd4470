/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker that does what its arguments say, one after the other, and ends with 1 at the first that fails:
 *
 *   prog_worker SERVERS RANK WORKERS COMMAND...
 *
 *   create:NAME:ROWS:DIM:direct|slots|sync   open:NAME       the table of the commands after it
 *   push:VALUE:TIMES   pull:VALUE                            each value; all must be VALUE
 *   clock:NAME:TIMES   arrive:NAME   wait:NAME   leave
 *   latency:TIMES                                            of a push to a server that idles, median
 *   hold                                                     says "ready", waits to be killed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ramps/ramps.h>

#define TIMEOUT_MS 20000
#define MAX_FIELDS 6

static struct ramps_worker *worker;
static struct ramps_table *table;
static struct ramps_table_info info = RAMPS_TABLE_INFO_INIT;
static uint32_t rank;

static int create(char **field)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	ramps_table_close(table);
	table = NULL;
	schema.name = field[1];
	schema.rows = strtoull(field[2], NULL, 10);
	schema.dim = strtoull(field[3], NULL, 10);
	schema.mode = strcmp(field[4], "direct") ? RAMPS_SLOTS : RAMPS_DIRECT;
	schema.synchronous = !strcmp(field[4], "sync");
	schema.rate = 1;
	return ramps_table_create(worker, &schema, &table) ?: ramps_table_info(table, &info);
}

static int open_table(char **field)
{
	ramps_table_close(table);
	table = NULL;
	return ramps_table_open(worker, field[1], NULL, TIMEOUT_MS, &table) ?:
		       ramps_table_info(table, &info);
}

static float *values(float value)
{
	float *all = malloc(info.rows * info.dim * sizeof(*all));

	for (uint64_t i = 0; all && i < info.rows * info.dim; i++)
		all[i] = value;
	return all;
}

/* The server subtracts in slots mode. */
static int push(char **field)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	float value = strtof(field[1], NULL);
	float *all = values(info.mode == RAMPS_SLOTS ? -value : value);
	int ret = all ? 0 : -1;

	transfer.level = RAMPS_APPLIED;
	for (long i = strtol(field[2], NULL, 10); !ret && i > 0; i--)
		ret = ramps_table_push(table, 0, info.rows, all, &transfer, TIMEOUT_MS);
	free(all);
	return ret;
}

static int pull(char **field)
{
	float expected = strtof(field[1], NULL), *all = values(0);
	int ret = all ? ramps_table_pull(table, 0, info.rows, all, NULL, TIMEOUT_MS) : -1;

	for (uint64_t i = 0; !ret && i < info.rows * info.dim; i++) {
		float difference = all[i] - expected;

		if (difference < -1e-6f || difference > 1e-6f) {
			printf("value %llu is %g, not %g\n", (unsigned long long)i, (double)all[i],
			       (double)expected);
			ret = -1;
		}
	}
	free(all);
	return ret;
}

static int tick(char **field)
{
	struct ramps_clock *clock;
	int ret = ramps_clock_open(worker, field[1], &clock);

	if (ret)
		return ret;
	for (long i = strtol(field[2], NULL, 10); !ret && i > 0; i--)
		ret = ramps_clock_advance(clock, TIMEOUT_MS);
	ramps_clock_close(clock);
	return ret;
}

static int barrier(char **field)
{
	struct ramps_barrier *b;
	int ret = ramps_barrier_open(worker, field[1], NULL, &b);

	if (ret)
		return ret;
	ret = strcmp(field[0], "wait") ? ramps_barrier_arrive(b, TIMEOUT_MS) :
					 ramps_barrier_wait(b, TIMEOUT_MS);
	ramps_barrier_close(b);
	return ret;
}

static int leave(char **field)
{
	(void)field;
	return ramps_worker_leave(worker, TIMEOUT_MS);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int latency(char **field)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	size_t n = strtoul(field[1], NULL, 10);
	double *took = calloc(n, sizeof(*took));
	float *all = values(0);
	int ret = took && all ? 0 : -1;

	transfer.level = RAMPS_APPLIED;
	for (size_t i = 0; !ret && i < n; i++) {
		double start;

		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL); /* it falls asleep */
		start = now_us();
		ret = ramps_table_push(table, 0, info.rows, all, &transfer, TIMEOUT_MS);
		took[i] = now_us() - start;
	}
	if (!ret) {
		qsort(took, n, sizeof(*took), compare);
		printf("push to an idle server until applied: median %.0f us, least %.0f, most %.0f\n",
		       took[n / 2], took[0], took[n - 1]);
	}
	free(took);
	free(all);
	return ret;
}

static int hold(char **field)
{
	(void)field;
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}

static const struct command {
	const char *name;
	int fields;
	int (*run)(char **field);
} commands[] = {
	{ "create", 5, create }, { "open", 2, open_table }, { "push", 3, push },
	{ "pull", 2, pull },     { "clock", 3, tick },      { "arrive", 2, barrier },
	{ "wait", 2, barrier },  { "leave", 1, leave },     { "latency", 2, latency },
	{ "hold", 1, hold },
};

static int run(const char *text)
{
	char *copy = strdup(text), *rest = copy, *field[MAX_FIELDS] = { NULL };
	int count = 0, ret = -1;

	while (copy && count < MAX_FIELDS && (field[count] = strsep(&rest, ":")))
		count++;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (count == commands[i].fields && !strcmp(field[0], commands[i].name))
			ret = commands[i].run(field);
	free(copy);
	if (ret)
		printf("rank %u: %s: %d, %s\n", rank, text, ret, ramps_last_error()->text);
	return ret;
}

int main(int argc, char **argv)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	int ret;

	if (argc < 4)
		return 2;
	rank = (uint32_t)strtoul(argv[2], NULL, 10);
	options.servers = argv[1];
	options.rank = rank;
	options.workers = (uint32_t)strtoul(argv[3], NULL, 10);
	ret = ramps_worker_join(&options, &worker);
	if (ret)
		printf("rank %u: join: %d, %s\n", rank, ret, ramps_last_error()->text);
	for (int i = 4; !ret && i < argc; i++)
		ret = run(argv[i]);
	ramps_table_close(table);
	ramps_worker_close(worker);
	return ret ? 1 : 0;
}

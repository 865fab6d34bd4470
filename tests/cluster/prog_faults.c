/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker under faults, which notes what it was told. check_faults.py compares the notes of all workers
 * with what the servers hold.
 *
 *   prog_faults work SECONDS     pushes to both kinds of tables until the time is over, repeating what fails
 *   prog_faults show             says what the tables hold
 *
 * Lines of `work`, each written at once, so that a killed worker's notes are whole:
 *
 *   pid N
 *   direct begin N / direct end UNKNOWN   an add of 1 to each of N words; at the end UNKNOWN are in doubt
 *   slots begin N / slots end             a push of 1 to all N chunks
 *   error CODE MS TEXT                    a call that failed, after so long
 *   slow MS WHAT                          a call that took longer than it may
 *   done
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ramps/ramps.h>

#define WORDS      64
#define CHUNK      16384
#define CHUNKS     3
#define TIMEOUT_MS 1000
#define GRACE_MS \
	2000 /* beyond its timeout: connecting again may take half a second, and guests are slow */
#define GIVE_UP_MS 60000

static int64_t words[WORDS];
static float values[CHUNK * CHUNKS];

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void failed(const char *what, int ret)
{
	printf("fatal %d %s: %s\n", ret, what, ramps_last_error()->text);
	exit(1);
}

/* Notes how a call ended. */
static void note(const char *what, int ret, int64_t began_ms)
{
	int64_t took = now_ms() - began_ms;

	if (ret < 0)
		printf("error %d %" PRId64 " %s: %s\n", ret, took, what, ramps_last_error()->text);
	if (took > TIMEOUT_MS + GRACE_MS)
		printf("slow %" PRId64 " %s\n", took, what);
}

static void pause_a_little(void)
{
	const struct timespec time = { .tv_nsec = 20000000 };

	nanosleep(&time, NULL);
}

static int may_repeat(int ret)
{
	return ret == -ENOTCONN || ret == -ETIMEDOUT || ret == -EIO || ret == -ECONNREFUSED;
}

static void push_direct(struct ramps_table *table)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	int64_t first_ms = now_ms();
	uint64_t unknown = 0;

	printf("direct begin %d\n", WORDS);
	for (;;) {
		int64_t began_ms = now_ms();
		int ret = ramps_table_push(table, 0, WORDS, words, &transfer, TIMEOUT_MS);

		note("push to direct", ret, began_ms);
		unknown += ret == -EIO ? transfer.unknown_ops : 0;
		if (!ret)
			break;
		if (!may_repeat(ret) || now_ms() - first_ms > GIVE_UP_MS)
			failed("push to direct", ret);
		pause_a_little();
	}
	printf("direct end %" PRIu64 "\n", unknown);
}

static void push_slots(struct ramps_table *table)
{
	int64_t first_ms = now_ms();

	printf("slots begin %d\n", CHUNKS);
	for (;;) {
		int64_t began_ms = now_ms();
		int ret = ramps_table_push(table, 0, CHUNK * CHUNKS, values, NULL, TIMEOUT_MS);

		note("push to slots", ret, began_ms);
		if (!ret)
			break;
		if (!may_repeat(ret) || now_ms() - first_ms > GIVE_UP_MS)
			failed("push to slots", ret);
		pause_a_little();
	}
	printf("slots end\n");
}

static struct ramps_worker *join(void)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;
	int ret;

	options.timeout_ms = 30000;
	ret = ramps_worker_join(&options, &worker);
	if (ret)
		failed("join", ret);
	return worker;
}

static void open_tables(struct ramps_worker *worker, struct ramps_table **direct,
			struct ramps_table **slots)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	int ret;

	schema.name = "direct";
	schema.rows = WORDS;
	schema.type = RAMPS_INT64;
	ret = ramps_table_create(worker, &schema, direct);
	if (ret)
		failed("create direct", ret);
	schema.name = "slots";
	schema.rows = CHUNK * CHUNKS;
	schema.type = RAMPS_FLOAT32;
	schema.mode = RAMPS_SLOTS;
	schema.rate = 1;
	ret = ramps_table_create(worker, &schema, slots);
	if (ret)
		failed("create slots", ret);
}

static void work(struct ramps_worker *worker, double seconds)
{
	int64_t end_ms = now_ms() + (int64_t)(seconds * 1000), first_ms;
	struct ramps_table *direct, *slots;
	int ret;

	open_tables(worker, &direct, &slots);
	for (int i = 0; i < WORDS; i++)
		words[i] = 1;
	for (int i = 0; i < CHUNK * CHUNKS; i++)
		values[i] = 1;
	printf("begun\n");
	for (int i = 0; now_ms() < end_ms; i++) {
		push_direct(direct);
		if (i % 4 == 0)
			push_slots(slots);
	}
	first_ms = now_ms();
	while ((ret = ramps_worker_flush(worker, RAMPS_APPLIED, TIMEOUT_MS))) {
		if (!may_repeat(ret) || now_ms() - first_ms > GIVE_UP_MS)
			failed("flush", ret);
		pause_a_little();
	}
	printf("done\n");
	ramps_table_close(direct);
	ramps_table_close(slots);
	first_ms = now_ms();
	ramps_worker_close(worker);
	if (now_ms() - first_ms > TIMEOUT_MS + GRACE_MS)
		printf("slow %" PRId64 " close\n", now_ms() - first_ms);
}

/* direct: the sum of the words; slots: the least and the greatest value of each chunk */
static void show(struct ramps_worker *worker)
{
	struct ramps_table *direct, *slots;
	int64_t sum = 0;
	int ret;

	open_tables(worker, &direct, &slots);
	ret = ramps_table_pull(direct, 0, WORDS, words, NULL, 30000);
	if (ret)
		failed("pull direct", ret);
	ret = ramps_table_pull(slots, 0, CHUNK * CHUNKS, values, NULL, 30000);
	if (ret)
		failed("pull slots", ret);
	for (int i = 0; i < WORDS; i++)
		sum += words[i];
	printf("direct %" PRId64 "\n", sum);
	for (int c = 0; c < CHUNKS; c++) {
		float least = values[c * CHUNK], most = least;

		for (int i = 0; i < CHUNK; i++) {
			float value = values[c * CHUNK + i];

			least = value < least ? value : least;
			most = value > most ? value : most;
		}
		printf("chunk %d %.0f %.0f\n", c, -(double)most, -(double)least);
	}
	ramps_worker_close(worker);
	ramps_table_close(direct);
	ramps_table_close(slots);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", (int)getpid());
	if (argc == 3 && !strcmp(argv[1], "work")) {
		work(join(), atof(argv[2]));
	} else if (argc == 2 && !strcmp(argv[1], "show")) {
		show(join());
	} else {
		fputs("usage: prog_faults work SECONDS | show\n", stderr);
		return 2;
	}
	return 0;
}

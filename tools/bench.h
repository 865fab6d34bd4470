/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps bench. cmd_bench.c has the options and bench_letters.c what is refused of them;
 * bench_job.c makes processes of them, bench_server.c and bench_worker.c are what these do;
 * bench_tests.c has the operations, bench_measure.c the timing; the rest prints.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ramps/ramps.h>

#include "base/error.h"
#include "base/stats.h"

#define BENCH_TIMEOUT_MS  10000
#define BENCH_MAX_WORKERS 256
#define BENCH_MAX_QPS     64
#define BENCH_DEPTH       128 /* perftest's */
#define BENCH_MAX_BYTES   (1u << 23)

enum bench_pattern {
	BENCH_ONE,
	BENCH_STRIDE8,
	BENCH_STRIDE64,
	BENCH_RANDOM,
};

enum bench_output {
	BENCH_ALL,
	BENCH_BANDWIDTH,
	BENCH_RATE,
	BENCH_LATENCY,
};

/* base_fail() of a function that nobody closes with base_end(). */
#define bench_fail(code, ...) base_end("ramps bench", base_fail(code, __VA_ARGS__))

struct bench_test;

struct bench_options {
	const struct bench_test *test;
	const char *server; /* NULL: be the server side */
	const char *listen; /* server side and self; NULL: the default */
	char address[256];  /* holds one of them, where it was made of a host name */
	bool self, verbs;
	char given[128]; /* by letter */
	uint64_t arena;  /* of the server side */

	uint64_t bytes; /* 0: the test's */
	bool all;
	uint64_t iters; /* 0: chosen */
	double duration, margin;
	bool infinite;
	uint64_t depth, qps, cq_mod, list, batch; /* 0: chosen */
	uint32_t workers;
	bool warm_up, no_peak;
	uint32_t pattern;
	uint64_t span; /* bytes of words that the adds go to; 0: the pattern's */
	uint64_t staleness;
	uint32_t level; /* of pushes */

	bool histogram, unsorted, cycles, gbits;
	uint32_t output;
	bool json;
	const char *json_file, *plot;
	double limit_bw, limit_rate;
	const char *cores;

	const char *device, *port, *connection; /* perftest's words for RAMPS_VERBS and the address */
	const char *verbs_values[8];            /* by bench_verbs_names */
};

/* Time stamps: the processor's counter where it is constant, else clock_gettime(). */
struct bench_clock {
	bool counter;
	double per_us;
	double cost; /* of taking one, in its own units */
};

/* What all processes of a client see; each rank's part has that rank as its only writer. */
struct bench_rank {
	uint64_t done; /* operations; the counting of a duration reads it */
	uint64_t begin, end;
	int32_t status;
	char text[480];
} __attribute__((aligned(64)));

struct bench_shared {
	uint64_t stop;         /* 1: end, everyone */
	uint64_t limit;        /* of operations: all ranks do as many in a test where they meet */
	uint64_t iters, batch; /* rank 0's choice for this size */
	struct bench_rank ranks[];
};

/* A connection of its own, as a queue pair is to perftest. */
struct bench_qp {
	struct ramps_worker *worker;
	struct ramps_table *table;
	void *buffer;
	uint64_t left;      /* operations to begin */
	uint64_t next;      /* place in run->ids */
	uint32_t under_way; /* submitted and not reaped */
};

struct bench_run {
	const struct bench_options *options;
	const struct bench_test *test;
	struct bench_clock clock;
	struct bench_shared *shared;
	uint32_t rank;
	char address[256];

	struct ramps_barrier *meet; /* of all ranks, around a measurement */
	struct ramps_barrier *barrier;
	struct ramps_clock *steps;
	struct bench_qp *qps;
	uint32_t turn;

	/* Of the size that is measured. */
	uint64_t bytes, rows, depth, cq_mod, list;
	uint64_t *ids, ids_count; /* of adds; a list of `list` may begin at each multiple of it */
	int64_t *addends;         /* `list` of them: 0 while warming up, else 1 */
	struct ramps_transfer transfer;
	uint64_t counted; /* at the server, before */
};

/* One row of the output. */
struct bench_row {
	uint64_t bytes, iters, batch;
	bool timed; /* for a duration */
	double seconds;
	double peak, average, rate; /* MB/s or Gb/s; million a second */
	double per_second, mean;    /* operations, and what one took in units */
	struct base_stats stats;    /* of what an operation took, in units */
	double *samples;            /* sorted, stats.count of them; NULL of a bandwidth */
	double *raw;                /* in the order taken, with -U */
};

/* A test. advance() does n operations (lists, of adds) and returns how many, or -errno. */
struct bench_test {
	const char *name, *title;
	bool latency;
	bool sized;        /* has -s and -a */
	bool adds, pushes; /* has --pattern; has --level */
	bool meets;        /* the ranks wait for each other */
	uint64_t default_bytes;
	uint32_t default_workers;
	uint32_t mode, type; /* of its table; mode 0: none */
	int64_t (*advance)(struct bench_run *run, uint64_t n);
	void (*fill)(struct bench_run *run, struct bench_qp *qp, struct ramps_op *op);
};

extern const char *const bench_verbs_names[]; /* options of RAMPS_VERBS, up to NULL */

/* bench_tests.c */
const struct bench_test *bench_test_of(const char *name); /* NULL: none */
void bench_test_names(FILE *out);
uint64_t bench_span(const struct bench_options *options); /* bytes that adds go to */
int bench_size_open(struct bench_run *run, uint64_t bytes);
void bench_size_close(struct bench_run *run);
void bench_counting(struct bench_run *run, bool on); /* adds of 1, or of 0 */

/*
 * What the server counts: sums of adds, steps of pushes. note() keeps it, and verify() fails unless it
 * has grown by `done` since, or what was pulled is wrong.
 */
int bench_note(struct bench_run *run);
int bench_verify(struct bench_run *run, uint64_t done);

/* bench_letters.c: ends the program where a letter makes no sense. */
struct argp_state;
void bench_refuse_letter(struct argp_state *state, int letter);
void bench_check_letters(struct argp_state *state, struct bench_options *options);

/* bench_clock.c */
void bench_clock_open(struct bench_clock *clock);
uint64_t bench_clock_read(const struct bench_clock *clock);

/* Rank 0's rows go here. emit() may keep row->samples by clearing it. */
struct bench_row_sink {
	int (*emit)(void *ctx, struct bench_row *row);
	void *ctx;
};

/* bench_measure.c: 0 or -errno. plan() says how, before the size is opened. */
void bench_measure_plan(struct bench_run *run, uint64_t bytes);
int bench_measure(struct bench_run *run, const struct bench_row_sink *sink);
void bench_row_free(struct bench_row *row);

/* bench_server.c: serves until a client is done, or a signal. ready: told the address, or NULL. */
int bench_serve(const struct bench_options *options, int ready_fd);
void bench_job_name(const struct bench_options *options, char name[RAMPS_NAME_BYTES]);

/* bench_worker.c: what rank `rank` does. 0, -errno, or a CLI status above 0. */
int bench_work(const struct bench_options *options, struct bench_shared *shared, uint32_t rank,
	       const char *address);

/* bench_job.c */
int bench_run_client(const struct bench_options *options);
/* The text of this process's last error, for rank 0 to print. */
void bench_note_failure(struct bench_shared *shared, uint32_t rank, int ret);
int bench_pin(const struct bench_options *options, uint32_t index);

/* bench_report.c */
void bench_report_head(const struct bench_run *run);
void bench_report_row(const struct bench_run *run, const struct bench_row *row);
void bench_report_tail(const struct bench_run *run);
void bench_report_listen(void); /* before joining: keeps what the fabric says of its device */
const char *bench_report_device(void); /* that; "" */
/* The word of it behind `before`. Holds until the next call. */
const char *bench_report_verbs(const char *before, const char *otherwise);
const char *bench_report_cores(char *buf, size_t len_bytes); /* those this process may run on */

/* bench_json.c, bench_plot.c: 0 or a CLI status, and a line on stderr. */
int bench_json_write(const struct bench_run *run, const struct bench_row *rows, size_t count);
int bench_plot_write(const struct bench_run *run, const struct bench_row *rows, size_t count);

#endif

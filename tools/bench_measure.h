/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files that measure. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "bench.h"

#define BENCH_POINTS 1024 /* of a bandwidth's peak */

/* bench_pipeline.c: goes on with operations under way until `n` more are done, or all are. */
int64_t bench_pipeline(struct bench_run *run, uint64_t n);

/* bench_duration.c */
int bench_measure_duration(struct bench_run *run, struct bench_row *row,
			   const struct bench_row_sink *sink);

/* bench_measure.c */
void bench_row_bandwidth(const struct bench_run *run, struct bench_row *row, uint64_t done, double ticks);
void bench_row_latency(const struct bench_run *run, struct bench_row *row);
int bench_measure_check(struct bench_run *run);

#endif

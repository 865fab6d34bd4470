/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of one worker's training, for train_loop.c and train_tables.c. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train.h"

#define TRAIN_TIMEOUT_MS 30000

struct train_loop {
	struct ramps_worker *worker;
	const struct train_options *options;
	const struct train_data *data;
	struct train_model *model;
	struct train_record *record; /* rank 0 */
	struct train_report report;
	uint32_t rank, workers;
	uint32_t batch; /* at most the number of samples */
	uint64_t steps_an_epoch, step;
	struct ramps_table *tables[TRAIN_MAX_TENSORS];
	struct ramps_table *counts, *stop;
	struct ramps_barrier *barrier;
	struct ramps_clock *clock;
	uint32_t *order; /* of the samples in this epoch */
	float *x;        /* this worker's share of a batch */
	uint8_t *labels;
	struct train_totals own, pushed; /* done, and of that what is in the table */
	struct train_totals seen;        /* at the last point */
	struct train_totals epoch_begun;
	uint64_t seen_ns, begun_ns;
	double accuracy; /* rank 0: at the last evaluation */
};

uint64_t train_now_ns(void);

/* All return 0, or -1 after a line of error. */
int train_tables_open(struct train_loop *loop);
void train_tables_close(struct train_loop *loop);
int train_pull(struct train_loop *loop);
/* The gradient, as the sum over `share` samples. */
int train_push(struct train_loop *loop, uint32_t share, float rate);
/* Waits for the others as far as the mode asks. */
int train_wait(struct train_loop *loop);
/* Waits until all ranks are here. */
int train_meet(struct train_loop *loop, const char *doing);

/* Adds to the shared counts what this worker did since it last did so; reads them. */
int train_counts_push(struct train_loop *loop);
int train_counts_pull(struct train_loop *loop, struct train_totals *totals);

/* Whether any worker was asked to stop, which it tells the others here: 0, 1 or -1. */
int train_stop_asked(struct train_loop *loop);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps train: a model trains on images, as a program over the public interface.
 *
 *   cmd_train.c      options, and the order of things
 *   train_data.c     IDX files
 *   train_model.c    softmax and a network with one hidden layer: forward, backward
 *   train_loop.c     steps and epochs: pull, compute, push
 *   train_tables.c   what the workers share
 *   train_report.c   the progress line, and the table at the end
 *   train_output.c   the log as CSV, the weights as safetensors
 *   train_plot.c     loss and accuracy over time as SVG
 */
#ifndef TRAIN_H
#define TRAIN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ramps/ramps.h>

#define TRAIN_MAX_TENSORS 4u

/* Images and labels of one set. Pixels are bytes, scaled to 0 .. 1 as a batch is made of them. */
struct train_set {
	uint32_t count, pixels;
	uint8_t *images, *labels;
};

struct train_data {
	struct train_set train, test;
	uint32_t classes;
};

/* Reads the four IDX files, plain or gzip, of a folder. 0, or -1 after a line of error. */
int train_data_load(const char *directory, struct train_data *data);
void train_data_free(struct train_data *data);

/* A set's samples `indices[0 .. n-1]` as rows of pixels in x. */
void train_data_batch(const struct train_set *set, const uint32_t *indices, uint32_t n, float *x);

enum train_kind {
	TRAIN_SOFTMAX,
	TRAIN_MLP,
};

/* One parameter of the model, a table of its own. */
struct train_tensor {
	const char *name;
	uint32_t rows, dim;
	float *values, *gradient; /* rows * dim */
};

struct train_model {
	enum train_kind kind;
	const char *name; /* "softmax", "mlp" */
	uint32_t inputs, hidden, classes, max_batch;
	uint32_t tensors;
	struct train_tensor tensor[TRAIN_MAX_TENSORS];
	float *activations, *scores, *deltas; /* of a batch */
};

int train_model_open(struct train_model *model, enum train_kind kind, uint32_t inputs,
		     uint32_t hidden, uint32_t classes, uint32_t max_batch);
void train_model_close(struct train_model *model);

/* Starting weights from a seed: the same in every process. */
void train_model_start(struct train_model *model, uint64_t seed);

/*
 * Sums over n samples the gradients into tensor[].gradient; returns the sum of the losses. Adds the
 * number of samples whose class it got right.
 */
double train_model_gradient(struct train_model *model, const float *x, const uint8_t *labels,
			    uint32_t n, uint32_t *right);

/* Counts the samples of a batch whose class it gets right. */
uint32_t train_model_right(struct train_model *model, const float *x, const uint8_t *labels, uint32_t n);

enum train_sync {
	TRAIN_BSP,   /* a step of all ranks together */
	TRAIN_ASYNC, /* nobody waits */
	TRAIN_SSP,   /* at most `staleness` steps apart */
};

enum train_schedule {
	TRAIN_CONSTANT,
	TRAIN_LINEAR, /* to 0 at the end */
	TRAIN_COSINE,
};

struct train_options {
	enum train_kind kind;
	uint32_t hidden;
	const char *data;
	enum train_sync sync;
	uint32_t staleness;
	uint32_t epochs, batch; /* batch: samples of a step, of all workers together */
	float rate;
	enum train_schedule schedule;
	uint64_t seed;
	const char *save, *plot, *log;
	bool quiet;
};

/* What is kept of the run for the log and the plot; rank 0 has it. */
struct train_point {
	double seconds, epoch; /* epoch: as a fraction */
	uint64_t step;
	double loss;       /* mean over the samples since the last point */
	double epoch_loss; /* mean over the epoch that ends here; negative: none does */
	double accuracy;   /* of the test set, 0 .. 1; negative: not measured here */
	double images_per_s;
};

struct train_record {
	struct train_point *points;
	size_t count, room;
};

/* What a worker did, summed over all for the report. */
enum train_count {
	TRAIN_IMAGES,
	TRAIN_PULLED, /* bytes */
	TRAIN_PUSHED,
	TRAIN_PULL_NS,
	TRAIN_PUSH_NS,
	TRAIN_WAIT_NS,
	TRAIN_COMPUTE_NS,
	TRAIN_LOSS, /* sum over samples, in millionths */
	TRAIN_COUNTS,
};

struct train_totals {
	uint64_t counts[TRAIN_COUNTS];
};

struct train_report {
	const struct train_options *options;
	uint32_t workers, servers;
	uint64_t steps; /* of the whole run */
	uint64_t begun_ns, shown_ns, before_ns;
	struct train_totals before; /* at the last line */
	bool terminal, line_open;
};

extern const char *const train_sync_names[]; /* of enum train_sync */

void train_report_begin(struct train_report *report, const struct train_options *options,
			const char *model);
/* Shows progress when it is time to. */
void train_report_progress(struct train_report *report, const struct train_point *point,
			   const struct train_totals *totals);
void train_report_epoch(struct train_report *report, uint32_t epoch, double loss, double accuracy);
void train_report_end(struct train_report *report, const struct train_totals *totals,
		      const char *model, double accuracy, bool stopped);

/* Runs the training of one worker. 0, or -1 after a line of error. */
int train_run(struct ramps_worker *worker, const struct train_options *options,
	      const struct train_data *data, struct train_model *model, struct train_record *record);

/* How often a signal has asked to stop: once, after this step; twice, at once. */
extern volatile sig_atomic_t train_stop;
/* Set when there are steps that can be stopped after. */
extern volatile sig_atomic_t train_running;

/* A line of error about the last failure of the library; none if the user wanted it to stop.
 * Returns -1. */
int train_fail(const char *doing);

void train_record_add(struct train_record *record, const struct train_point *point);

/*
 * Whether a file can be written at path; checked before training. `make` tries it; else nothing is
 * made. NULL is fine. 0 or -1 after a line of error.
 */
int train_output_check(const char *path, bool make);
/* Writes by `write` into a file beside path, and puts it there when all of it is on disk. 0 or -1. */
int train_output_write(const char *path, int (*write)(FILE *, const void *), const void *what);
int train_log_write(const char *path, const struct train_record *record);
int train_save_write(const char *path, const struct train_model *model, uint64_t steps);
int train_plot_write(const char *path, const struct train_record *record, const char *title);

#endif

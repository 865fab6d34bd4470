/* SPDX-License-Identifier: BSD-2-Clause */
/* A network 784-128-10 in one flat array, and made-up images to train it with. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <stdint.h>

#define MODEL_INPUTS  784
#define MODEL_HIDDEN  128
#define MODEL_CLASSES 10
#define MODEL_BATCH   64
#define MODEL_VALUES \
	(MODEL_INPUTS * MODEL_HIDDEN + MODEL_HIDDEN + MODEL_HIDDEN * MODEL_CLASSES + MODEL_CLASSES)

void model_start(float *weights);

/* The sum of the gradients over the step's batch of this rank. */
void model_gradient(const float *weights, uint32_t rank, uint64_t step, float *gradient);

#endif

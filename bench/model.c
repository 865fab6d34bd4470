/* SPDX-License-Identifier: BSD-2-Clause */
#include "model.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#include "bench.h"

#define BATCHES 32

static float images[BATCHES][MODEL_BATCH][MODEL_INPUTS];
static uint8_t labels[BATCHES][MODEL_BATCH];

static float hidden[MODEL_BATCH][MODEL_HIDDEN], back[MODEL_BATCH][MODEL_HIDDEN];
static float scores[MODEL_BATCH][MODEL_CLASSES];

static float uniform(uint64_t *state)
{
	return (float)(bench_random(state) >> 7) * 0x1p-24f;
}

static void images_make(uint32_t rank)
{
	uint64_t state = rank + 1;

	for (int b = 0; b < BATCHES; b++) {
		for (int i = 0; i < MODEL_BATCH; i++) {
			labels[b][i] = (uint8_t)(uniform(&state) * MODEL_CLASSES);
			for (int k = 0; k < MODEL_INPUTS; k++)
				images[b][i][k] = uniform(&state);
		}
	}
}

void model_start(float *weights)
{
	uint64_t state = 7;

	for (int i = 0; i < MODEL_VALUES; i++)
		weights[i] = (uniform(&state) - 0.5f) * 0.1f;
}

static void rows_of(float *out, const float *bias, int n)
{
	for (int i = 0; i < MODEL_BATCH; i++)
		memcpy(out + i * n, bias, (size_t)n * sizeof(float));
}

static void sums_of(float *out, const float *deltas, int n)
{
	memset(out, 0, (size_t)n * sizeof(float));
	for (int i = 0; i < MODEL_BATCH; i++)
		for (int k = 0; k < n; k++)
			out[k] += deltas[i * n + k];
}

/* Turns scores into what they should move by: softmax less the label. */
static void deltas_of(const uint8_t *label)
{
	for (int i = 0; i < MODEL_BATCH; i++) {
		float most = scores[i][0], sum = 0;

		for (int c = 1; c < MODEL_CLASSES; c++)
			most = fmaxf(most, scores[i][c]);
		for (int c = 0; c < MODEL_CLASSES; c++)
			sum += scores[i][c] = expf(scores[i][c] - most);
		for (int c = 0; c < MODEL_CLASSES; c++)
			scores[i][c] = scores[i][c] / sum - (c == label[i] ? 1.0f : 0.0f);
	}
}

static void product(CBLAS_TRANSPOSE a_turned, CBLAS_TRANSPOSE b_turned, const int size[3],
		    const float *a, const float *b, float *c)
{
	int m = size[0], n = size[1], k = size[2];

	cblas_sgemm(CblasRowMajor, a_turned, b_turned, m, n, k, 1, a,
		    a_turned == CblasTrans ? m : k, b, b_turned == CblasTrans ? k : n, 1, c, n);
}

void model_gradient(const float *weights, uint32_t rank, uint64_t step, float *gradient)
{
	static int made;
	const float *w1 = weights, *b1 = w1 + MODEL_INPUTS * MODEL_HIDDEN, *w2 = b1 + MODEL_HIDDEN;
	const float *b2 = w2 + MODEL_HIDDEN * MODEL_CLASSES;
	float *g1 = gradient, *gb1 = g1 + MODEL_INPUTS * MODEL_HIDDEN, *g2 = gb1 + MODEL_HIDDEN;
	float *gb2 = g2 + MODEL_HIDDEN * MODEL_CLASSES;
	const float *x = images[step % BATCHES][0];

	if (!made) {
		images_make(rank);
		made = 1;
	}
	rows_of(hidden[0], b1, MODEL_HIDDEN);
	product(CblasNoTrans, CblasNoTrans, (int[]){ MODEL_BATCH, MODEL_HIDDEN, MODEL_INPUTS }, x,
		w1, hidden[0]);
	for (int i = 0; i < MODEL_BATCH; i++)
		for (int k = 0; k < MODEL_HIDDEN; k++)
			hidden[i][k] = fmaxf(hidden[i][k], 0);
	rows_of(scores[0], b2, MODEL_CLASSES);
	product(CblasNoTrans, CblasNoTrans, (int[]){ MODEL_BATCH, MODEL_CLASSES, MODEL_HIDDEN },
		hidden[0], w2, scores[0]);
	deltas_of(labels[step % BATCHES]);

	memset(gradient, 0, MODEL_VALUES * sizeof(float));
	memset(back, 0, sizeof(back));
	product(CblasTrans, CblasNoTrans, (int[]){ MODEL_HIDDEN, MODEL_CLASSES, MODEL_BATCH },
		hidden[0], scores[0], g2);
	product(CblasNoTrans, CblasTrans, (int[]){ MODEL_BATCH, MODEL_HIDDEN, MODEL_CLASSES },
		scores[0], w2, back[0]);
	for (int i = 0; i < MODEL_BATCH; i++)
		for (int k = 0; k < MODEL_HIDDEN; k++)
			back[i][k] = hidden[i][k] > 0 ? back[i][k] : 0;
	product(CblasTrans, CblasNoTrans, (int[]){ MODEL_INPUTS, MODEL_HIDDEN, MODEL_BATCH }, x,
		back[0], g1);
	sums_of(gb1, back[0], MODEL_HIDDEN);
	sums_of(gb2, scores[0], MODEL_CLASSES);
}

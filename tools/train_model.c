/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Softmax regression, and a network with one hidden layer of rectified units; cross-entropy loss.
 * Rows are samples. Gradients are sums over the samples of a batch: the server divides by the
 * weights.
 */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "train.h"

static void tensor_add(struct train_model *model, const char *name, uint32_t rows, uint32_t dim)
{
	struct train_tensor *tensor = &model->tensor[model->tensors++];

	*tensor = (struct train_tensor){
		.name = name,
		.rows = rows,
		.dim = dim,
		.values = cli_alloc((size_t)rows * dim, sizeof(float)),
		.gradient = cli_alloc((size_t)rows * dim, sizeof(float)),
	};
}

int train_model_open(struct train_model *model, enum train_kind kind, uint32_t inputs,
		     uint32_t hidden, uint32_t classes, uint32_t max_batch)
{
	*model = (struct train_model){
		.kind = kind,
		.name = kind == TRAIN_SOFTMAX ? "softmax" : "mlp",
		.inputs = inputs,
		.hidden = kind == TRAIN_SOFTMAX ? 0 : hidden,
		.classes = classes,
		.max_batch = max_batch,
	};
	openblas_set_num_threads(1);
	if (kind == TRAIN_SOFTMAX) {
		tensor_add(model, "weight", inputs, classes);
		tensor_add(model, "bias", 1, classes);
	} else {
		tensor_add(model, "hidden.weight", inputs, hidden);
		tensor_add(model, "hidden.bias", 1, hidden);
		tensor_add(model, "output.weight", hidden, classes);
		tensor_add(model, "output.bias", 1, classes);
		model->activations = cli_alloc((size_t)max_batch * hidden, sizeof(float));
		model->deltas = cli_alloc((size_t)max_batch * hidden, sizeof(float));
	}
	model->scores = cli_alloc((size_t)max_batch * classes, sizeof(float));
	return 0;
}

void train_model_close(struct train_model *model)
{
	for (uint32_t i = 0; i < model->tensors; i++) {
		free(model->tensor[i].values);
		free(model->tensor[i].gradient);
	}
	free(model->activations);
	free(model->deltas);
	free(model->scores);
}

/* xorshift64*; in [-1, 1). */
static float random_unit(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (float)((double)(*state * 0x2545f4914f6cdd1dull >> 11) * 0x1p-52 - 1.0);
}

/* Uniform with the variance 2 / inputs (He et al. 2015) for weights, zero for biases. */
void train_model_start(struct train_model *model, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 0x1234567;

	for (uint32_t i = 0; i < model->tensors; i++) {
		struct train_tensor *tensor = &model->tensor[i];
		size_t n = (size_t)tensor->rows * tensor->dim;
		float limit = tensor->rows > 1 ? sqrtf(6.0f / (float)tensor->rows) : 0;

		if (model->kind == TRAIN_SOFTMAX)
			limit = 0;
		for (size_t k = 0; k < n; k++)
			tensor->values[k] = limit * random_unit(&state);
	}
}

/* out[n x columns] = bias + in[n x rows] * weight */
static void layer(const float *in, uint32_t n, const struct train_tensor *weight,
		  const struct train_tensor *bias, float *out)
{
	for (uint32_t i = 0; i < n; i++)
		memcpy(out + (size_t)i * weight->dim, bias->values, weight->dim * sizeof(float));
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)n, (blasint)weight->dim,
		    (blasint)weight->rows, 1.0f, in, (blasint)weight->rows, weight->values,
		    (blasint)weight->dim, 1.0f, out, (blasint)weight->dim);
}

/* The gradients of a layer from its input and the deltas of its output. */
static void layer_gradient(const float *in, const float *deltas, uint32_t n,
			   struct train_tensor *weight, struct train_tensor *bias)
{
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)weight->rows,
		    (blasint)weight->dim, (blasint)n, 1.0f, in, (blasint)weight->rows, deltas,
		    (blasint)weight->dim, 0.0f, weight->gradient, (blasint)weight->dim);
	memset(bias->gradient, 0, bias->dim * sizeof(float));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < bias->dim; j++)
			bias->gradient[j] += deltas[(size_t)i * bias->dim + j];
}

static void forward(struct train_model *model, const float *x, uint32_t n)
{
	struct train_tensor *t = model->tensor;

	if (model->kind == TRAIN_SOFTMAX) {
		layer(x, n, &t[0], &t[1], model->scores);
		return;
	}
	layer(x, n, &t[0], &t[1], model->activations);
	for (size_t k = 0; k < (size_t)n * model->hidden; k++)
		model->activations[k] = model->activations[k] > 0 ? model->activations[k] : 0;
	layer(model->activations, n, &t[2], &t[3], model->scores);
}

static uint32_t best(const float *scores, uint32_t classes)
{
	uint32_t at = 0;

	for (uint32_t j = 1; j < classes; j++)
		if (scores[j] > scores[at])
			at = j;
	return at;
}

/* Turns one row of scores into deltas; returns the loss. */
static double softmax_delta(float *scores, uint32_t classes, uint32_t label)
{
	float most = scores[best(scores, classes)];
	double sum = 0, loss;

	for (uint32_t j = 0; j < classes; j++) {
		scores[j] = expf(scores[j] - most);
		sum += (double)scores[j];
	}
	loss = log(sum) - log((double)scores[label] + 1e-30);
	for (uint32_t j = 0; j < classes; j++)
		scores[j] = (float)((double)scores[j] / sum);
	scores[label] -= 1.0f;
	return loss;
}

static void backward_hidden(struct train_model *model, uint32_t n)
{
	struct train_tensor *output = &model->tensor[2];

	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, (blasint)model->hidden,
		    (blasint)model->classes, 1.0f, model->scores, (blasint)model->classes, output->values,
		    (blasint)model->classes, 0.0f, model->deltas, (blasint)model->hidden);
	for (size_t k = 0; k < (size_t)n * model->hidden; k++)
		if (model->activations[k] <= 0)
			model->deltas[k] = 0;
}

double train_model_gradient(struct train_model *model, const float *x, const uint8_t *labels,
			    uint32_t n, uint32_t *right)
{
	struct train_tensor *t = model->tensor;
	double loss = 0;

	if (!n) {
		for (uint32_t i = 0; i < model->tensors; i++)
			memset(t[i].gradient, 0, (size_t)t[i].rows * t[i].dim * sizeof(float));
		return 0;
	}
	forward(model, x, n);
	for (uint32_t i = 0; i < n; i++) {
		float *scores = model->scores + (size_t)i * model->classes;

		*right += best(scores, model->classes) == labels[i];
		loss += softmax_delta(scores, model->classes, labels[i]);
	}
	if (model->kind == TRAIN_SOFTMAX) {
		layer_gradient(x, model->scores, n, &t[0], &t[1]);
		return loss;
	}
	layer_gradient(model->activations, model->scores, n, &t[2], &t[3]);
	backward_hidden(model, n);
	layer_gradient(x, model->deltas, n, &t[0], &t[1]);
	return loss;
}

uint32_t train_model_right(struct train_model *model, const float *x, const uint8_t *labels, uint32_t n)
{
	uint32_t right = 0;

	forward(model, x, n);
	for (uint32_t i = 0; i < n; i++)
		right += best(model->scores + (size_t)i * model->classes, model->classes) == labels[i];
	return right;
}

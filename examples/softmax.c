/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Softmax regression on Fashion-MNIST, synchronously: every worker takes its share of each batch, pushes the
 * sum of its gradients, and pulls the weights when all have. A beginning for a trainer of one's own. Runs
 * alone, or as the workers of a job:
 *
 *     ramps run -n 4 -s 2 -- ./softmax /usr/share/datasets/fashion-mnist
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ramps/ramps.h>

#define PIXELS  784
#define CLASSES 10
#define WEIGHTS ((PIXELS + 1) * CLASSES) /* the last row is the bias */
#define BATCH   120
#define EPOCHS  5
#define RATE    0.2f
#define WAIT_MS 30000

struct set {
	uint32_t count;
	uint8_t *images, *labels;
};

static struct ramps_worker *worker;
static struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
static struct ramps_table *table;
static float weights[WEIGHTS], gradient[WEIGHTS];

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, ramps_last_error()->text);
	exit(1);
}

/* The bytes of a gzipped IDX file behind its header of `header` bytes, in items of `size`. */
static uint8_t *load(const char *directory, const char *name, uint32_t header, uint32_t size,
		     uint32_t *count)
{
	char command[4096];
	uint8_t head[16], *bytes;
	FILE *file;

	snprintf(command, sizeof(command), "gzip -dc '%s/%s.gz'", directory, name);
	file = popen(command, "r");
	if (!file || fread(head, 1, header, file) != header)
		goto bad;
	*count = (uint32_t)head[4] << 24 | (uint32_t)head[5] << 16 | (uint32_t)head[6] << 8 | head[7];
	bytes = malloc((size_t)*count * size);
	if (bytes && fread(bytes, size, *count, file) == *count) {
		pclose(file);
		return bytes;
	}
bad:
	fprintf(stderr, "%s/%s.gz is not there or not whole\n", directory, name);
	exit(1);
}

static struct set load_set(const char *directory, const char *images, const char *labels)
{
	struct set set;

	set.images = load(directory, images, 16, PIXELS, &set.count);
	set.labels = load(directory, labels, 8, 1, &set.count);
	return set;
}

/* Probabilities of the classes for an image. Returns the likeliest. */
static uint32_t classify(const uint8_t *image, float p[CLASSES])
{
	uint32_t best = 0;
	float sum = 0;

	memcpy(p, weights + PIXELS * CLASSES, CLASSES * sizeof(float));
	for (int i = 0; i < PIXELS; i++)
		for (int c = 0; image[i] && c < CLASSES; c++)
			p[c] += (float)image[i] / 255.0f * weights[i * CLASSES + c];
	for (uint32_t c = 1; c < CLASSES; c++)
		best = p[c] > p[best] ? c : best;
	for (float most = p[best], *at = p; at < p + CLASSES; at++)
		sum += *at = expf(*at - most);
	for (int c = 0; c < CLASSES; c++)
		p[c] /= sum;
	return best;
}

/* Sums the gradients of samples first .. end-1. */
static void backward(const struct set *set, uint32_t first, uint32_t end)
{
	float p[CLASSES];

	memset(gradient, 0, sizeof(gradient));
	for (uint32_t s = first; s < end; s++) {
		const uint8_t *image = set->images + (size_t)s * PIXELS;

		classify(image, p);
		p[set->labels[s]] -= 1.0f;
		for (int i = 0; i < PIXELS; i++)
			for (int c = 0; image[i] && c < CLASSES; c++)
				gradient[i * CLASSES + c] += (float)image[i] / 255.0f * p[c];
		for (int c = 0; c < CLASSES; c++)
			gradient[PIXELS * CLASSES + c] += p[c];
	}
}

static void step(const struct set *set, uint32_t first)
{
	struct ramps_transfer transfer = RAMPS_TRANSFER_INIT;
	uint32_t n = set->count - first < BATCH ? set->count - first : BATCH;
	uint32_t from = first + n * info.rank / info.workers;
	uint32_t end = first + n * (info.rank + 1) / info.workers;

	if (ramps_table_pull(table, 0, PIXELS + 1, weights, NULL, WAIT_MS))
		fail("pull");
	backward(set, from, end);
	transfer.weight = (float)(end - from); /* the mean is over samples */
	transfer.level = RAMPS_APPLIED;        /* which is when all ranks have pushed */
	if (ramps_table_push(table, 0, PIXELS + 1, gradient, &transfer, WAIT_MS))
		fail("push");
}

static void report(const struct set *set, int epoch)
{
	uint32_t right = 0;
	float p[CLASSES];

	if (ramps_table_pull(table, 0, PIXELS + 1, weights, NULL, WAIT_MS))
		fail("pull");
	for (uint32_t s = 0; s < set->count; s++)
		right += classify(set->images + (size_t)s * PIXELS, p) == set->labels[s];
	printf("epoch %d: test accuracy %.1f %%\n", epoch, 100.0 * right / set->count);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *directory = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct set train = load_set(directory, "train-images-idx3-ubyte", "train-labels-idx1-ubyte");
	struct set test = load_set(directory, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte");
	int epochs = argc > 2 ? atoi(argv[2]) : EPOCHS;

	options.servers = getenv("RAMPS_SERVERS") ? NULL : "embed:";
	if (ramps_worker_join(&options, &worker) || ramps_worker_info(worker, &info))
		fail("join");
	schema.name = "softmax";
	schema.rows = PIXELS + 1;
	schema.dim = CLASSES;
	schema.mode = RAMPS_SLOTS;
	schema.synchronous = 1;
	schema.rate = RATE;
	if (ramps_table_create(worker, &schema, &table))
		fail("create");
	for (int epoch = 1; epoch <= epochs; epoch++) {
		for (uint32_t first = 0; first < train.count; first += BATCH)
			step(&train, first);
		if (info.rank == 0)
			report(&test, epoch);
	}
	if (ramps_worker_leave(worker, WAIT_MS))
		fail("leave");
	ramps_table_close(table);
	ramps_worker_close(worker);
	free(train.images);
	free(train.labels);
	free(test.images);
	free(test.labels);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* IDX files, as the MNIST family comes in: a magic number, the dimensions in big-endian, then
 * bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "cli.h"
#include "train.h"

#define IDX_BYTES_1 0x0801u
#define IDX_BYTES_3 0x0803u
#define MOST_BYTES  (1u << 30)

struct idx {
	char path[4096];
	gzFile file;
	uint32_t magic, dims[3];
};

static int fail(const struct idx *idx, const char *what)
{
	cli_error("train", "%s: %s", idx->path, what);
	return -1;
}

/* NAME or NAME.gz. */
static int idx_open(struct idx *idx, const char *directory, const char *name)
{
	snprintf(idx->path, sizeof(idx->path), "%s/%s", directory, name);
	if (access(idx->path, R_OK))
		snprintf(idx->path, sizeof(idx->path), "%s/%s.gz", directory, name);
	idx->file = gzopen(idx->path, "rb");
	if (idx->file)
		return 0;
	cli_error("train", "no %s or %s.gz in %s: %s; --data names a folder with the four IDX files",
		  name, name, directory, strerror(errno));
	return -1;
}

static int idx_read(struct idx *idx, void *buf, uint32_t len_bytes)
{
	int got = gzread(idx->file, buf, len_bytes);

	if (got == (int)len_bytes)
		return 0;
	return fail(idx, got < 0 ? "is damaged: it does not unpack" : "is cut off: it ends too early");
}

static uint32_t big_endian(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int idx_header(struct idx *idx, uint32_t magic)
{
	uint8_t head[16];
	uint32_t dims = magic & 0xff;

	if (idx_read(idx, head, 4 + 4 * dims))
		return -1;
	if (head[0] == 0x1f && head[1] == 0x8b)
		return fail(idx, "was packed twice: unpack it once by gunzip");
	idx->magic = big_endian(head);
	if (idx->magic != magic)
		return fail(idx, magic == IDX_BYTES_3 ? "is no IDX file of images" :
							"is no IDX file of labels");
	for (uint32_t i = 0; i < dims; i++)
		idx->dims[i] = big_endian(head + 4 + 4 * i);
	return 0;
}

/* The bytes of the file, of which there must be exactly `bytes`. */
static int idx_body(struct idx *idx, uint64_t bytes, uint8_t **body)
{
	uint8_t more;

	if (!bytes || bytes > MOST_BYTES)
		return fail(idx, "says that it has no samples, or more than 1 GiB of them");
	*body = malloc(bytes);
	if (!*body)
		return fail(idx, "does not fit into memory");
	if (idx_read(idx, *body, (uint32_t)bytes))
		return -1;
	if (gzread(idx->file, &more, 1) != 0)
		return fail(idx, "goes on after its last sample");
	return 0;
}

static int images_load(const char *directory, const char *name, struct train_set *set)
{
	struct idx idx;
	int ret;

	if (idx_open(&idx, directory, name))
		return -1;
	ret = idx_header(&idx, IDX_BYTES_3);
	if (!ret && (uint64_t)idx.dims[1] * idx.dims[2] > 1u << 20)
		ret = fail(&idx, "has images of more than a million pixels");
	if (!ret) {
		set->count = idx.dims[0];
		set->pixels = idx.dims[1] * idx.dims[2];
		ret = idx_body(&idx, (uint64_t)set->count * set->pixels, &set->images);
	}
	gzclose(idx.file);
	return ret;
}

static int labels_load(const char *directory, const char *name, struct train_set *set)
{
	struct idx idx;
	int ret;

	if (idx_open(&idx, directory, name))
		return -1;
	ret = idx_header(&idx, IDX_BYTES_1);
	if (!ret && idx.dims[0] != set->count)
		ret = fail(&idx, "has another number of labels than there are images");
	if (!ret)
		ret = idx_body(&idx, set->count, &set->labels);
	gzclose(idx.file);
	return ret;
}

static uint32_t classes_of(const struct train_set *set)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < set->count; i++)
		if (set->labels[i] > most)
			most = set->labels[i];
	return most + 1;
}

int train_data_load(const char *directory, struct train_data *data)
{
	memset(data, 0, sizeof(*data));
	if (images_load(directory, "train-images-idx3-ubyte", &data->train) ||
	    labels_load(directory, "train-labels-idx1-ubyte", &data->train) ||
	    images_load(directory, "t10k-images-idx3-ubyte", &data->test) ||
	    labels_load(directory, "t10k-labels-idx1-ubyte", &data->test))
		return -1;
	data->classes = classes_of(&data->train);
	if (data->train.pixels != data->test.pixels || classes_of(&data->test) > data->classes) {
		cli_error("train", "%s: the test set has other images or classes than the training set",
			  directory);
		return -1;
	}
	return 0;
}

void train_data_free(struct train_data *data)
{
	free(data->train.images);
	free(data->train.labels);
	free(data->test.images);
	free(data->test.labels);
}

void train_data_batch(const struct train_set *set, const uint32_t *indices, uint32_t n, float *x)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *image = set->images + (size_t)indices[i] * set->pixels;
		float *row = x + (size_t)i * set->pixels;

		for (uint32_t p = 0; p < set->pixels; p++)
			row[p] = (float)image[p] * (1.0f / 255.0f);
	}
}

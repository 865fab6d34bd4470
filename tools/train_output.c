/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that a training leaves: the log as CSV, and the weights as safetensors (eight bytes with
 * the length of a JSON header, the header, then the tensors' bytes). Each is written beside its
 * place and then renamed.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "train.h"

void train_record_add(struct train_record *record, const struct train_point *point)
{
	if (record->count == record->room) {
		record->room = record->room ? 2 * record->room : 256;
		record->points = cli_grow(record->points, record->room, sizeof(*point));
	}
	record->points[record->count++] = *point;
}

int train_output_check(const char *path, bool make)
{
	return cli_output_check("train", path, make);
}

int train_output_write(const char *path, int (*write)(FILE *, const void *), const void *what)
{
	return cli_output_write("train", path, write, what);
}

static int write_log(FILE *file, const void *what)
{
	const struct train_record *record = what;

	fputs("step,epoch,seconds,loss,epoch_loss,test_accuracy,images_per_s\n", file);
	for (size_t i = 0; i < record->count; i++) {
		const struct train_point *p = &record->points[i];

		fprintf(file, "%llu,%.4f,%.6f,%.6f,", (unsigned long long)p->step, p->epoch,
			p->seconds, p->loss);
		if (p->accuracy >= 0)
			fprintf(file, "%.6f,%.4f", p->epoch_loss, p->accuracy);
		else
			fputc(',', file);
		fprintf(file, ",%.0f\n", p->images_per_s);
	}
	return 0;
}

int train_log_write(const char *path, const struct train_record *record)
{
	return train_output_write(path, write_log, record);
}

struct save {
	const struct train_model *model;
	uint64_t steps;
};

static json_t *save_header(const struct save *save)
{
	json_t *header = json_object(), *meta = json_object();
	uint64_t at = 0;
	char steps[32];

	snprintf(steps, sizeof(steps), "%llu", (unsigned long long)save->steps);
	json_object_set_new(meta, "model", json_string(save->model->name));
	json_object_set_new(meta, "steps", json_string(steps));
	json_object_set_new(header, "__metadata__", meta);
	for (uint32_t i = 0; i < save->model->tensors; i++) {
		const struct train_tensor *t = &save->model->tensor[i];
		uint64_t bytes = (uint64_t)t->rows * t->dim * sizeof(float);
		json_t *shape = t->rows > 1 ? json_pack("[i,i]", (int)t->rows, (int)t->dim) :
					      json_pack("[i]", (int)t->dim);

		json_object_set_new(header, t->name,
				    json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape,
					      "data_offsets", (json_int_t)at, (json_int_t)(at + bytes)));
		at += bytes;
	}
	return header;
}

static int write_save(FILE *file, const void *what)
{
	const struct save *save = what;
	json_t *header = save_header(save);
	char *text = json_dumps(header, JSON_COMPACT);
	uint64_t length, padded;

	json_decref(header);
	if (!text) {
		errno = ENOMEM;
		return -1;
	}
	/* The format is little-endian, as are the machines that this runs on; data begins at 8
	 * bytes. */
	length = strlen(text);
	padded = (length + 7) / 8 * 8;
	fwrite(&padded, sizeof(padded), 1, file);
	fwrite(text, 1, length, file);
	fwrite("       ", 1, padded - length, file);
	free(text);
	for (uint32_t i = 0; i < save->model->tensors; i++) {
		const struct train_tensor *t = &save->model->tensor[i];

		fwrite(t->values, sizeof(float), (size_t)t->rows * t->dim, file);
	}
	return 0;
}

int train_save_write(const char *path, const struct train_model *model, uint64_t steps)
{
	struct save save = { model, steps };

	return train_output_write(path, write_save, &save);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void reserve(struct sf_buf *b, size_t len)
{
	size_t used = sf_buf_len(b);

	if (b->cap - b->end >= len)
		return;
	if (b->start) {
		memmove(b->data, b->data + b->start, used);
		b->start = 0;
		b->end = used;
	}
	if (b->cap - b->end >= len)
		return;
	b->cap = 2 * b->cap > used + len ? 2 * b->cap : used + len;
	b->data = realloc(b->data, b->cap);
	if (!b->data) {
		perror("softroce");
		exit(255);
	}
}

void sf_buf_put(struct sf_buf *b, const void *data, size_t len)
{
	if (!len)
		return;
	reserve(b, len);
	memcpy(b->data + b->end, data, len);
	b->end += len;
}

void sf_buf_drop(struct sf_buf *b, size_t len)
{
	b->start += len;
	if (b->start == b->end)
		b->start = b->end = 0;
}

void sf_buf_free(struct sf_buf *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

long sf_buf_fill(struct sf_buf *b, int fd)
{
	ssize_t n;

	reserve(b, SF_MAX_DATA);
	n = read(fd, b->data + b->end, SF_MAX_DATA);
	if (n < 0)
		return -errno;
	b->end += (size_t)n;
	return n;
}

long sf_buf_flush(struct sf_buf *b, int fd)
{
	ssize_t n = write(fd, b->data + b->start, sf_buf_len(b));

	if (n < 0)
		return -errno;
	sf_buf_drop(b, (size_t)n);
	return n;
}

void sf_put(struct sf_buf *b, enum sf_type type, uint32_t session, const void *data, size_t len)
{
	struct sf_header h = { .len_bytes = (uint32_t)len, .session = session, .type = type };

	sf_buf_put(b, &h, sizeof(h));
	sf_buf_put(b, data, len);
}

void sf_put_u32(struct sf_buf *b, enum sf_type type, uint32_t session, uint32_t value)
{
	sf_put(b, type, session, &value, sizeof(value));
}

char *sf_peek(struct sf_buf *b, struct sf_header *h)
{
	if (sf_buf_len(b) < sizeof(*h))
		return NULL;
	memcpy(h, b->data + b->start, sizeof(*h));
	if (h->len_bytes > SF_MAX_FRAME) {
		fprintf(stderr, "softroce: frame of %u bytes: out of step\n", h->len_bytes);
		exit(255);
	}
	if (sf_buf_len(b) < sizeof(*h) + h->len_bytes)
		return NULL;
	return b->data + b->start + sizeof(*h);
}

uint32_t sf_u32(const char *payload, const struct sf_header *h)
{
	uint32_t value = 0;

	if (h->len_bytes >= sizeof(value))
		memcpy(&value, payload, sizeof(value));
	return value;
}

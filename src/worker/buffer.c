/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the fabric knows. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "worker/worker_private.h"

struct ramps_buffer {
	struct worker_child child;
	void *data;
	size_t mapped_bytes; /* 0: the memory is the caller's */
};

static int buffer_allocate(struct ramps_buffer *buffer, size_t len_bytes)
{
	size_t bytes = core_round_up(len_bytes, CORE_PAGE_BYTES);

	if (bytes < len_bytes)
		return -ENOMEM;
	buffer->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer->data == MAP_FAILED)
		return base_fail(-ENOMEM, "no memory for a buffer of %zu bytes", len_bytes);
	buffer->mapped_bytes = bytes;
	return 0;
}

int worker_buffer_create(struct ramps_worker *worker, void *addr, size_t len_bytes,
			 struct ramps_buffer **buffer)
{
	struct ramps_buffer *made;
	int ret = 0;

	if (!len_bytes)
		return base_fail(-EINVAL, "a buffer of 0 bytes");
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->data = addr;
	if (!addr)
		ret = buffer_allocate(made, len_bytes);
	if (!ret)
		ret = fabric_buffer_open(worker->fabric, made->data, len_bytes);
	if (ret) {
		if (made->mapped_bytes)
			munmap(made->data, made->mapped_bytes);
		free(made);
		return ret;
	}
	worker_child_add(worker, &made->child);
	*buffer = made;
	return 0;
}

void *worker_buffer_data(const struct ramps_buffer *buffer)
{
	return buffer->data;
}

void worker_buffer_close(struct ramps_buffer *buffer)
{
	if (!buffer)
		return;
	/* with its worker the fabric is gone, and what it knew */
	if (buffer->child.worker)
		fabric_buffer_close(buffer->child.worker->fabric, buffer->data);
	worker_child_remove(&buffer->child);
	if (buffer->mapped_bytes)
		munmap(buffer->data, buffer->mapped_bytes);
	free(buffer);
}

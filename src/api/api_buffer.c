/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "api/api.h"
#include "worker/worker.h"

int ramps_buffer_create(struct ramps_worker *worker, void *addr, size_t len_bytes,
			struct ramps_buffer **buffer)
{
	int ret = api_enter("worker", worker, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = buffer ? worker_buffer_create(worker, addr, len_bytes, buffer) :
		       base_fail(-EINVAL, "no place for the buffer");
	worker_exit(worker);
	return base_end(__func__, ret);
}

void *ramps_buffer_data(const struct ramps_buffer *buffer)
{
	return buffer ? worker_buffer_data(buffer) : NULL;
}

void ramps_buffer_close(struct ramps_buffer *buffer)
{
	worker_buffer_close(buffer);
}

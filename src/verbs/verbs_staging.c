/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local memory: the staging of an endpoint, through which memory goes that the device does not know, and
 * the table of what the user registered.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/error.h"
#include "verbs/verbs_data_private.h"

#define HUGE_BYTES  (2ull << 20)
#define PAGE_BYTES  4096ull
#define MAX_BUFFERS 64u

static int pin_failed(int error, uint64_t len_bytes)
{
	struct rlimit limit = { 0 };

	if (error != ENOMEM)
		return base_fail(-error, "can't register %" PRIu64 " bytes with the RDMA device: %s",
				 len_bytes, strerror(error));
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		return base_fail(-ENOMEM, "the RDMA device has no room to register %" PRIu64 " bytes",
				 len_bytes);
	return base_fail(-ENOMEM,
			 "can't lock %" PRIu64
			 " bytes: the limit for all is %llu KiB (ulimit -l); raise it",
			 len_bytes, (unsigned long long)limit.rlim_cur / 1024);
}

/* Beside the ring, which begins at a huge page, lies the page of the sink, before it. */
int verbs_staging_open(struct verbs_data *data)
{
	uint64_t ring_bytes = data->config.staging_bytes ? data->config.staging_bytes :
							   VERBS_STAGING_BYTES;
	uint64_t map_bytes = ring_bytes + 2 * HUGE_BYTES;
	uintptr_t base, ring;
	void *map;
	int ret;

	map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return base_fail(-ENOMEM, "no memory for %" PRIu64 " bytes", map_bytes);
	base = (uintptr_t)map;
	ring = (base + PAGE_BYTES + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	if (ring - PAGE_BYTES > base)
		munmap(map, ring - PAGE_BYTES - base);
	munmap((void *)(ring + ring_bytes), base + map_bytes - ring - ring_bytes);
	if (ring_bytes >= HUGE_BYTES)
		madvise((void *)ring, ring_bytes, MADV_HUGEPAGE);
	data->staging = (unsigned char *)ring;
	data->staging_bytes = ring_bytes;
	data->staging_mr = ibv_reg_mr(data->config.pd, (void *)(ring - PAGE_BYTES),
				      ring_bytes + PAGE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!data->staging_mr) {
		ret = pin_failed(errno, ring_bytes + PAGE_BYTES);
		verbs_staging_close(data);
		return ret;
	}
	data->sink = (struct ibv_sge){
		.addr = ring - PAGE_BYTES,
		.length = sizeof(uint64_t),
		.lkey = data->staging_mr->lkey,
	};
	return 0;
}

void verbs_staging_close(struct verbs_data *data)
{
	if (data->staging_mr)
		ibv_dereg_mr(data->staging_mr);
	if (data->staging)
		munmap(data->staging - PAGE_BYTES, data->staging_bytes + PAGE_BYTES);
	data->staging_mr = NULL;
	data->staging = NULL;
}

void verbs_buffers_open(struct verbs_buffers *buffers, struct ibv_pd *pd)
{
	*buffers = (struct verbs_buffers){ .pd = pd };
}

void verbs_buffers_close(struct verbs_buffers *buffers)
{
	struct verbs_buffer_table *table = buffers->table, *older;

	for (uint32_t i = 0; table && i < table->count; i++)
		ibv_dereg_mr(table->buffers[i].mr);
	for (; table; table = older) {
		older = table->older;
		free(table);
	}
	buffers->table = NULL;
}

/* A copy of the table with room for one more, which is not published yet. */
static struct verbs_buffer_table *table_copy(const struct verbs_buffers *buffers)
{
	struct verbs_buffer_table *old = buffers->table, *table;
	uint32_t count = old ? old->count : 0;

	table = malloc(sizeof(*table) + (count + 1ul) * sizeof(table->buffers[0]));
	if (!table)
		return NULL;
	table->older = old;
	table->count = count;
	if (count)
		memcpy(table->buffers, old->buffers, count * sizeof(table->buffers[0]));
	return table;
}

int verbs_buffer_register(struct verbs_buffers *buffers, void *base, uint64_t len_bytes)
{
	struct verbs_buffer_table *table;
	struct ibv_mr *mr;
	int ret;

	if (!base || !len_bytes || (uintptr_t)base + len_bytes < (uintptr_t)base)
		return base_fail(-EINVAL, "a buffer of %" PRIu64 " bytes at %p can't be registered",
				 len_bytes, base);
	if (buffers->table && buffers->table->count == MAX_BUFFERS)
		return base_fail(-ENOSPC,
				 "%u buffers are registered, and no more are possible: "
				 "register fewer and larger ones",
				 MAX_BUFFERS);
	table = table_copy(buffers);
	if (!table)
		return base_fail(-ENOMEM, "no memory");
	mr = ibv_reg_mr(buffers->pd, base, len_bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		ret = pin_failed(errno, len_bytes);
		free(table);
		return ret;
	}
	table->buffers[table->count++] = (struct verbs_buffer){
		.base = (uintptr_t)base,
		.end = (uintptr_t)base + len_bytes,
		.lkey = mr->lkey,
		.mr = mr,
	};
	__atomic_store_n(&buffers->table, table, __ATOMIC_RELEASE);
	return 0;
}

int verbs_buffer_unregister(struct verbs_buffers *buffers, void *base)
{
	struct verbs_buffer_table *table = table_copy(buffers);
	struct ibv_mr *mr = NULL;

	if (!table)
		return base_fail(-ENOMEM, "no memory");
	for (uint32_t i = 0; i < table->count && !mr; i++) {
		if (table->buffers[i].base != (uintptr_t)base)
			continue;
		mr = table->buffers[i].mr;
		table->buffers[i] = table->buffers[--table->count];
	}
	if (!mr) {
		free(table);
		return base_fail(-ENOENT, "no buffer is registered at %p", base);
	}
	__atomic_store_n(&buffers->table, table, __ATOMIC_RELEASE);
	ibv_dereg_mr(mr);
	return 0;
}

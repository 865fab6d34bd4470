/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory. A registration has one set of rights, those of the clients that it is granted to,
 * and is made when the first of them comes: its device is known by then. No relaxed ordering: what
 * synchronises must not be overtaken.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

#define RIGHTS 8 /* sets of them */

struct verbs_memory {
	struct ibv_mr *by_rights[RIGHTS]; /* the longest */
	struct verbs_grown *grown;
};

/* What a longer registration took the place of: peers may still use it. */
struct verbs_grown {
	struct verbs_grown *next;
	struct ibv_mr *mr;
};

int verbs_pin(struct ibv_pd *pd, void *base, size_t len_bytes, int access, struct ibv_mr **mr)
{
	const char *name = ibv_get_device_name(pd->context->device);
	struct rlimit limit = { 0 };
	int code;

	*mr = ibv_reg_mr(pd, base, len_bytes, access);
	if (*mr)
		return 0;
	code = errno ? errno : ENOMEM;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if ((code == ENOMEM || code == EPERM || code == EAGAIN) && limit.rlim_cur != RLIM_INFINITY)
		return base_fail(-ENOMEM,
				 "registering %zu KiB with %s: %s; the limit of locked memory is %llu KiB: "
				 "raise it to more than %zu KiB (ulimit -l, or memlock in "
				 "/etc/security/limits.conf)",
				 len_bytes / 1024, name, strerrordesc_np(code),
				 (unsigned long long)limit.rlim_cur / 1024, len_bytes / 1024);
	return base_fail(-code, "registering %zu KiB with RDMA device %s: %s", len_bytes / 1024,
			 name, strerrordesc_np(code));
}

int verbs_register(struct fabric *fabric, struct fabric_memory *memory)
{
	(void)fabric;
	if (!memory->base || !memory->len_bytes ||
	    (uintptr_t)memory->base % (uintptr_t)sysconf(_SC_PAGESIZE))
		return base_fail(-EINVAL, "memory to register must be whole pages");
	memory->handle = calloc(1, sizeof(struct verbs_memory));
	return memory->handle ? 0 : base_fail(-ENOMEM, "no memory");
}

void verbs_unregister(struct fabric *fabric, struct fabric_memory *memory)
{
	struct verbs_memory *registered = memory->handle;

	(void)fabric;
	for (int i = 0; registered && i < RIGHTS; i++)
		if (registered->by_rights[i])
			ibv_dereg_mr(registered->by_rights[i]);
	while (registered && registered->grown) {
		struct verbs_grown *grown = registered->grown;

		registered->grown = grown->next;
		ibv_dereg_mr(grown->mr);
		free(grown);
	}
	free(registered);
	memory->handle = NULL;
}

static int access_of(uint32_t rights)
{
	int access = 0;

	if (rights & FABRIC_MAY_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	/* What others may change the device must be able to write. */
	if (rights & FABRIC_MAY_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	if (rights & FABRIC_MAY_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
	return access;
}

static uint64_t ready_bytes(const struct fabric_memory *memory)
{
	return memory->ready_bytes ? memory->ready_bytes : memory->len_bytes;
}

/* Registers what is ready of the memory. The registration before stays, for those who know no other. */
static int memory_pin(struct verbs_fabric *fabric, const struct fabric_memory *memory, uint32_t rights)
{
	struct verbs_memory *registered = memory->handle;
	uint64_t len_bytes = ready_bytes(memory);
	struct verbs_grown *grown = NULL;
	struct ibv_mr *mr;
	int ret;

	if (len_bytes > fabric->device.attr.max_mr_size)
		return base_fail(-EFBIG, "an RDMA region of %llu bytes; the device takes %llu",
				 (unsigned long long)len_bytes,
				 (unsigned long long)fabric->device.attr.max_mr_size);
	if (registered->by_rights[rights]) {
		grown = malloc(sizeof(*grown));
		if (!grown)
			return base_fail(-ENOMEM, "no memory");
	}
	ret = verbs_pin(fabric->device.data_pd, memory->base, len_bytes, access_of(rights), &mr);
	if (ret) {
		free(grown);
		return ret;
	}
	if (grown) {
		*grown = (struct verbs_grown){ registered->grown, registered->by_rights[rights] };
		registered->grown = grown;
	}
	registered->by_rights[rights] = mr;
	return 0;
}

int verbs_memory_key(struct verbs_fabric *fabric, const struct fabric_memory *memory,
		     uint32_t rights, struct verbs_grant *grant)
{
	const struct verbs_memory *registered = memory->handle;
	const struct ibv_mr *mr = registered->by_rights[rights];
	int ret;

	if (!mr || mr->length < ready_bytes(memory)) {
		ret = memory_pin(fabric, memory, rights);
		if (ret)
			return ret;
		mr = registered->by_rights[rights];
	}
	grant->rkey = mr->rkey;
	grant->len_bytes = mr->length;
	return 0;
}

/*
 * Buffers of the user. Those that come before the fabric has a device are remembered, and registered
 * with it.
 */
int verbs_buffer_open(struct fabric *base, void *at, uint64_t len_bytes)
{
	struct verbs_fabric *fabric = (struct verbs_fabric *)base;
	int ret = 0;

	if (!at || !len_bytes)
		return base_fail(-EINVAL, "a buffer without memory");
	pthread_mutex_lock(&fabric->lock);
	if (fabric->device.context)
		ret = verbs_buffer_register(&fabric->buffers, at, len_bytes);
	else if (fabric->early_count == VERBS_EARLY_BUFFERS)
		ret = base_fail(-ENOSPC, "more than %u buffers before the first connection",
				VERBS_EARLY_BUFFERS);
	else
		fabric->early[fabric->early_count++] = (struct verbs_early){ at, len_bytes };
	pthread_mutex_unlock(&fabric->lock);
	return ret;
}

void verbs_buffer_close(struct fabric *base, void *at)
{
	struct verbs_fabric *fabric = (struct verbs_fabric *)base;
	uint32_t i;

	pthread_mutex_lock(&fabric->lock);
	for (i = 0; i < fabric->early_count && fabric->early[i].base != at; i++)
		;
	if (i < fabric->early_count)
		fabric->early[i] = fabric->early[--fabric->early_count];
	else if (fabric->device.context)
		verbs_buffer_unregister(&fabric->buffers, at);
	pthread_mutex_unlock(&fabric->lock);
}

int verbs_buffers_begin(struct verbs_fabric *fabric)
{
	int ret = 0;

	verbs_buffers_open(&fabric->buffers, fabric->device.data_pd);
	while (fabric->early_count && !ret) {
		const struct verbs_early *early = &fabric->early[--fabric->early_count];

		ret = verbs_buffer_register(&fabric->buffers, early->base, early->len_bytes);
	}
	return ret;
}

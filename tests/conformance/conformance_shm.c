/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric over shared memory, as the suite wants it described. */
#include "conformance_shm.h"

#include <errno.h>
#include <sys/mman.h>

#include "shm/shm.h"

static int allocate(struct fabric_memory *memory, uint64_t len_bytes)
{
	*memory = (struct fabric_memory){ .len_bytes = len_bytes };
	memory->fd = memfd_create("conformance", MFD_CLOEXEC);
	if (memory->fd < 0 || ftruncate(memory->fd, (off_t)len_bytes))
		return -errno;
	memory->base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	return memory->base == MAP_FAILED ? -errno : 0;
}

static void release(struct fabric_memory *memory)
{
	munmap(memory->base, memory->len_bytes);
	close(memory->fd);
}

const struct conformance_fabric conformance_shm = {
	.name = "shm",
	.open = shm_open_fabric,
	.address = support_shm_address,
	.allocate = allocate,
	.release = release,
	.death_ms = 1000,
};

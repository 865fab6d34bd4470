/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric over verbs, as the suite wants it described. Its addresses are of RAMPS_TEST_HOST, or of this host. */
#include "conformance_verbs.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs/verbs_private.h"

static const char *host(void)
{
	static char name[64];
	const char *given = getenv("RAMPS_TEST_HOST");

	if (given)
		return given;
	gethostname(name, sizeof(name) - 1);
	return name;
}

/* A port that nobody has: the system's choice, given back. */
static void address(char *buf, size_t len_bytes)
{
	struct rdma_event_channel *events;
	struct addrinfo *list;
	struct rdma_cm_id *id;

	snprintf(buf, len_bytes, "verbs://%s:0", host());
	assert_ok(verbs_address_resolve(buf, true, &list));
	assert_ok(verbs_cm_channel(&events));
	assert_int_equal(rdma_create_id(events, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, list->ai_addr), 0);
	snprintf(buf, len_bytes, "verbs://%s:%u", host(), ntohs(rdma_get_src_port(id)));
	rdma_destroy_id(id);
	rdma_destroy_event_channel(events);
	freeaddrinfo(list);
}

static int allocate(struct fabric_memory *memory, uint64_t len_bytes)
{
	*memory = (struct fabric_memory){ .len_bytes = len_bytes, .fd = -1 };
	memory->base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return memory->base == MAP_FAILED ? -errno : 0;
}

static void release(struct fabric_memory *memory)
{
	munmap(memory->base, memory->len_bytes);
}

const struct conformance_fabric conformance_verbs = {
	.name = "verbs",
	.open = verbs_open_fabric,
	.address = address,
	.allocate = allocate,
	.release = release,
	.death_ms = 5000,
};

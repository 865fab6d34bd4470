/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "shm/shm.h"
#include "verbs/verbs.h"

static const struct api_fabric fabrics[] = {
	{ "shm://", shm_open_fabric, shm_directory },
#ifdef RAMPS_VERBS
	{ "verbs://", verbs_open_fabric, verbs_directory },
#endif
};

int api_fabric_of(const char *address, const struct api_fabric **fabric)
{
	for (size_t i = 0; i < sizeof(fabrics) / sizeof(fabrics[0]); i++) {
		if (!strncmp(address, fabrics[i].prefix, strlen(fabrics[i].prefix))) {
			*fabric = &fabrics[i];
			return 0;
		}
	}
#ifndef RAMPS_VERBS
	if (!strncmp(address, "verbs://", 8))
		return base_fail(-EOPNOTSUPP,
				 "%s: this is a build without RDMA; build it with VERBS=1", address);
#endif
	return base_fail(-EINVAL,
			 "address '%s' is none of shm://NAME, verbs://HOST:PORT and embed:", address);
}

static int address_add(struct api_addresses *addresses, const char *text, size_t len_bytes)
{
	const struct api_fabric *fabric, *first;
	char *at;
	int ret;

	if (addresses->count == CORE_MAX_SERVERS)
		return base_fail(-EINVAL, "more than %u servers", CORE_MAX_SERVERS);
	if (!len_bytes || len_bytes >= API_ADDRESS_BYTES)
		return base_fail(-EINVAL, "an empty or overlong address among the servers");
	at = addresses->text[addresses->count];
	memcpy(at, text, len_bytes);
	at[len_bytes] = '\0';
	ret = api_fabric_of(at, &fabric);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < addresses->count; i++)
		if (!strcmp(addresses->list[i], at))
			return base_fail(-EINVAL, "server %s is listed twice", at);
	if (addresses->count && !api_fabric_of(addresses->list[0], &first) && first != fabric)
		return base_fail(-EINVAL, "servers %s and %s are of different fabrics",
				 addresses->list[0], at);
	addresses->list[addresses->count++] = at;
	return 0;
}

int api_addresses_parse(const char *servers, struct api_addresses *addresses)
{
	addresses->count = 0;
	for (;;) {
		size_t len_bytes = strcspn(servers, ",");
		int ret = address_add(addresses, servers, len_bytes);

		if (ret || !servers[len_bytes])
			return ret;
		servers += len_bytes + 1;
	}
}

int api_options(void *dst, const void *src, size_t known_bytes, size_t least_bytes)
{
	size_t size;

	if (!src)
		return 0;
	memcpy(&size, src, sizeof(size));
	if (size < least_bytes)
		return base_fail(-EINVAL, "the options' size is not set: begin with the INIT macro of "
					  "their struct");
	memcpy(dst, src, size < known_bytes ? size : known_bytes);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which entry of a port's table of GIDs a connection uses. Never one of a fixed number: over Ethernet
 * it is the one of type RoCE v2 that has the address, over InfiniBand the one of type InfiniBand.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

const char *verbs_gid_type_text(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "InfiniBand";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	default:
		return "unknown";
	}
}

static bool is_zero(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

static bool has_ipv4(const union ibv_gid *gid)
{
	static const unsigned char prefix[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static bool is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* 0: it can't be used; else the more the better. */
static int fitness(const struct ibv_gid_entry *entry, const struct verbs_gid_wants *wants)
{
	if (entry->port_num != wants->port)
		return 0;
	if (wants->link_layer == IBV_LINK_LAYER_ETHERNET) {
		if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
			return 0;
		return has_ipv4(&entry->gid) ? 3 : is_link_local(&entry->gid) ? 1 : 2;
	}
	return entry->gid_type == IBV_GID_TYPE_IB;
}

static void list_table(const struct ibv_gid_entry *table, size_t count, uint8_t port, char *buf,
		       size_t bytes)
{
	size_t length = 0;

	*buf = '\0';
	for (size_t i = 0; i < count && length < bytes; i++)
		if (table[i].port_num == port)
			length += (size_t)snprintf(buf + length, bytes - length, "%s%u (%s)",
						   length ? ", " : "", table[i].gid_index,
						   verbs_gid_type_text(table[i].gid_type));
}

static int none(const struct ibv_gid_entry *table, size_t count, const struct verbs_gid_wants *wants)
{
	const char *type = wants->link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE v2" : "InfiniBand";
	char there[256];

	list_table(table, count, wants->port, there, sizeof(there));
	if (wants->index == VERBS_UNSET)
		return base_fail(-EINVAL, "port %u has no GID of type %s%s; it has: %s",
				 wants->port, type, is_zero(&wants->gid) ? "" : " with this address",
				 *there ? there : "none");
	return base_fail(-EINVAL,
			 "verbs options: gid=%u of port %u is not of type %s%s; leave it out, or choose "
			 "among: %s",
			 wants->index, wants->port, type,
			 is_zero(&wants->gid) ? "" : ", or not the GID of the address",
			 *there ? there : "none");
}

int verbs_gid_choose(const struct ibv_gid_entry *table, size_t count,
		     const struct verbs_gid_wants *wants, const struct ibv_gid_entry **chosen)
{
	int best = 0;

	*chosen = NULL;
	for (size_t i = 0; i < count; i++) {
		int fit = fitness(&table[i], wants);

		if (wants->index != VERBS_UNSET && table[i].gid_index != wants->index)
			continue;
		if (!is_zero(&wants->gid) && memcmp(&table[i].gid, &wants->gid, sizeof(wants->gid)) != 0)
			continue;
		if (fit > best) {
			best = fit;
			*chosen = &table[i];
		}
	}
	return *chosen ? 0 : none(table, count, wants);
}

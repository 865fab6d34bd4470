/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device. Which one it is, an address tells: librdmacm says which device and port have it, and
 * the fabric opens a context of its own there. librdmacm's contexts are not used, as they are shared by
 * all that a process does with RDMA and are inherited by a fork.
 *
 * A fabric has one device, as an arena has one atomic domain.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

#define MOST_READS  16u /* what most devices take of a peer */
#define MOST_INLINE 512u
#define MOST_GIDS   1024

static int no_device(const char *name)
{
	return base_fail(-ENODEV, "there is no RDMA device%s%s; see ibv_devices and the kernel's log",
			 *name ? " " : "", name);
}

static int context_open(const char *name, struct ibv_context **context)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int ret = -ENODEV;

	*context = NULL;
	for (int i = 0; list && list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name) != 0)
			continue;
		*context = ibv_open_device(list[i]);
		ret = *context ? 0 :
				 base_fail(errno ? -errno : -EIO,
					   "opening RDMA device %s: %s; may this user open "
					   "/dev/infiniband?",
					   name, strerrordesc_np(errno));
	}
	if (list)
		ibv_free_device_list(list);
	return ret == -ENODEV ? no_device(name) : ret;
}

/* What a queue pair can send inline: providers only tell by taking it. */
static uint32_t most_inline(const struct verbs_device *device, uint32_t wanted)
{
	struct ibv_cq *cq = ibv_create_cq(device->context, 1, NULL, NULL, 0);
	uint32_t bytes = wanted == VERBS_UNSET ? MOST_INLINE : wanted;

	for (; cq && bytes; bytes = bytes > 16 ? bytes / 2 : 0) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {
				.max_send_wr = 1,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = bytes,
			},
		};
		struct ibv_qp *qp = ibv_create_qp(device->handshake_pd, &init);

		if (!qp)
			continue;
		ibv_destroy_qp(qp);
		break;
	}
	if (cq)
		ibv_destroy_cq(cq);
	return cq ? bytes : 0;
}

static int choose_gid(struct verbs_device *device, const struct verbs_options *options,
		      const union ibv_gid *gid)
{
	struct ibv_gid_entry *table = calloc(MOST_GIDS, sizeof(*table));
	const struct ibv_gid_entry *chosen = NULL;
	const struct verbs_gid_wants wants = {
		.port = device->port,
		.link_layer = device->port_attr.link_layer,
		.index = options->gid_index,
		.gid = *gid,
	};
	ssize_t count;
	int ret;

	if (!table)
		return base_fail(-ENOMEM, "no memory");
	count = ibv_query_gid_table(device->context, table, MOST_GIDS, 0);
	ret = verbs_gid_choose(table, count > 0 ? (size_t)count : 0, &wants, &chosen);
	if (!ret) {
		device->gid = chosen->gid;
		device->gid_index = chosen->gid_index;
		device->gid_type = chosen->gid_type;
	}
	free(table);
	return ret;
}

static int port_check(const struct verbs_device *device, const struct verbs_options *options,
		      const char *name)
{
	uint32_t mtu = options->mtu;

	if (device->port_attr.state != IBV_PORT_ACTIVE)
		return base_fail(-ENETDOWN,
				 "port %u of %s is %s: is its link up, and a subnet manager there?",
				 device->port, name, ibv_port_state_str(device->port_attr.state));
	if (mtu != VERBS_UNSET && mtu > 128u << device->port_attr.active_mtu)
		return base_fail(-EINVAL, "verbs options: mtu=%u, but port %u of %s has %u", mtu,
				 device->port, name, 128u << device->port_attr.active_mtu);
	if (options->service_level != VERBS_UNSET && options->service_level > device->port_attr.max_vl_num &&
	    device->port_attr.link_layer == IBV_LINK_LAYER_INFINIBAND)
		base_log(RAMPS_LOG_WARNING, "%s: service level %u on a port with %u lanes", name,
			 options->service_level, device->port_attr.max_vl_num);
	if (options->pkey_index >= device->port_attr.pkey_tbl_len)
		return base_fail(-EINVAL, "verbs options: pkey=%u, but port %u of %s has %u of them",
				 options->pkey_index, device->port, name,
				 device->port_attr.pkey_tbl_len);
	return 0;
}

static int numa_node(const char *name)
{
	char path[128], text[16] = "";
	int fd;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/device/numa_node", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	return *text ? atoi(text) : -1;
}

static void announce(const struct verbs_device *device, const struct verbs_options *options,
		     const char *name)
{
	uint32_t mtu = 128u << device->port_attr.active_mtu;
	int node = numa_node(name);
	char where[16] = "none";

	if (options->mtu < mtu)
		mtu = options->mtu;
	if (node >= 0)
		snprintf(where, sizeof(where), "%d", node);
	base_log(RAMPS_LOG_INFO,
		 "RDMA device %s, port %u, %s, GID %u (%s), MTU %u, %u READs and atomics outstanding, inline "
		 "%u bytes, NUMA node %s",
		 name, device->port,
		 device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
		 device->gid_index, verbs_gid_type_text(device->gid_type), mtu, device->reads,
		 device->inline_bytes, where);
}

static int device_fill(struct verbs_device *device, const struct verbs_options *options,
		       const struct verbs_route *route)
{
	int ret;

	device->port = options->port == VERBS_UNSET ? route->port : (uint8_t)options->port;
	if (ibv_query_device(device->context, &device->attr) ||
	    ibv_query_port(device->context, device->port, &device->port_attr))
		return base_fail(-EIO, "RDMA device %s does not tell about itself and port %u: %s",
				 route->device, device->port, strerrordesc_np(errno));
	ret = port_check(device, options, route->device);
	if (!ret)
		ret = choose_gid(device, options, &route->gid);
	if (ret)
		return ret;
	if (device->attr.atomic_cap == IBV_ATOMIC_NONE)
		return base_fail(-EOPNOTSUPP,
				 "RDMA device %s has no atomics, and without them no server works",
				 route->device);
	device->handshake_pd = ibv_alloc_pd(device->context);
	device->data_pd = ibv_alloc_pd(device->context);
	if (!device->handshake_pd || !device->data_pd)
		return base_fail(-EIO, "RDMA device %s has no protection domains left: %s",
				 route->device, strerrordesc_np(errno));
	device->reads = MOST_READS;
	if (device->attr.max_qp_rd_atom > 0 && device->reads > (uint32_t)device->attr.max_qp_rd_atom)
		device->reads = (uint32_t)device->attr.max_qp_rd_atom;
	if (device->attr.max_qp_init_rd_atom > 0 &&
	    device->reads > (uint32_t)device->attr.max_qp_init_rd_atom)
		device->reads = (uint32_t)device->attr.max_qp_init_rd_atom;
	device->inline_bytes = most_inline(device, options->inline_bytes);
	return 0;
}

void verbs_device_close(struct verbs_device *device)
{
	if (!device->context)
		return;
	if (device->data_pd)
		ibv_dealloc_pd(device->data_pd);
	if (device->handshake_pd)
		ibv_dealloc_pd(device->handshake_pd);
	ibv_close_device(device->context);
	memset(device, 0, sizeof(*device));
}

static int open_new(struct verbs_fabric *fabric, const struct verbs_route *route)
{
	struct verbs_device device = { 0 };
	int ret;

	ret = context_open(route->device, &device.context);
	if (ret)
		return ret;
	fcntl(device.context->async_fd, F_SETFL, O_NONBLOCK);
	ret = device_fill(&device, &fabric->options, route);
	if (ret) {
		verbs_device_close(&device);
		return ret;
	}
	fabric->device = device;
	ret = verbs_half_try_device(fabric);
	if (!ret)
		ret = verbs_buffers_begin(fabric);
	if (ret) {
		verbs_buffers_close(&fabric->buffers);
		verbs_device_close(&fabric->device);
		return ret;
	}
	announce(&fabric->device, &fabric->options, route->device);
	return 0;
}

int verbs_device_open(struct verbs_fabric *fabric, const struct verbs_route *route)
{
	const struct verbs_options *options = &fabric->options;
	int ret = 0;

	if (*options->device && strcmp(options->device, route->device) != 0)
		return base_fail(-EINVAL,
				 "%s leads to RDMA device %s, but RAMPS_VERBS says device=%s: use an "
				 "address of that device's network",
				 route->address, route->device, options->device);
	if (options->port != VERBS_UNSET && route->port && options->port != route->port)
		return base_fail(-EINVAL, "%s leads to port %u of %s, but RAMPS_VERBS says port=%u",
				 route->address, route->port, route->device, options->port);
	pthread_mutex_lock(&fabric->lock);
	if (!fabric->device.context)
		ret = open_new(fabric, route);
	else if (strcmp(ibv_get_device_name(fabric->device.context->device), route->device) != 0)
		ret = base_fail(-EXDEV,
				"%s leads to RDMA device %s, but this process uses %s: all connections "
				"must be of one device",
				route->address, route->device,
				ibv_get_device_name(fabric->device.context->device));
	pthread_mutex_unlock(&fabric->lock);
	return ret;
}

int verbs_device_for(struct verbs_fabric *fabric, const struct rdma_cm_id *id, const char *address)
{
	const struct verbs_route route = {
		.device = ibv_get_device_name(id->verbs->device),
		.port = id->port_num,
		.gid = id->route.addr.addr.ibaddr.sgid,
		.address = address,
	};

	return verbs_device_open(fabric, &route);
}

/* How many devices have an active port; the first of them in name and port. */
static int count_fit(char name[64], uint8_t *port)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int fit = 0;

	for (int i = 0; list && list[i]; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);
		struct ibv_device_attr attr = { 0 };
		struct ibv_port_attr port_attr = { 0 };

		if (!context)
			continue;
		ibv_query_device(context, &attr);
		for (uint8_t p = 1; p <= attr.phys_port_cnt; p++) {
			if (ibv_query_port(context, p, &port_attr) || port_attr.state != IBV_PORT_ACTIVE)
				continue;
			if (!fit++) {
				snprintf(name, 64, "%s", ibv_get_device_name(list[i]));
				*port = p;
			}
			break;
		}
		ibv_close_device(context);
	}
	if (list)
		ibv_free_device_list(list);
	return fit;
}

int verbs_device_any(struct verbs_fabric *fabric, const char *address)
{
	const struct verbs_options *options = &fabric->options;
	struct verbs_route route = { .address = address, .port = 1 };
	char name[64] = "";
	int fit;

	if (fabric->device.context)
		return 0;
	if (*options->device) {
		route.device = options->device;
		if (options->port != VERBS_UNSET)
			route.port = (uint8_t)options->port;
		return verbs_device_open(fabric, &route);
	}
	fit = count_fit(name, &route.port);
	if (!fit)
		return no_device("");
	if (fit > 1)
		return base_fail(-EINVAL,
				 "%s means any of %d RDMA devices: listen on an address of one, or say "
				 "RAMPS_VERBS=device=NAME",
				 address, fit);
	route.device = name;
	return verbs_device_open(fabric, &route);
}

void verbs_device_events(struct verbs_device *device)
{
	struct ibv_async_event event;

	while (device->context && !ibv_get_async_event(device->context, &event)) {
		const char *name = ibv_get_device_name(device->context->device);
		enum ibv_event_type type = event.event_type;

		/* At once: the destruction of what it is about waits for that. */
		ibv_ack_async_event(&event);
		switch (type) {
		case IBV_EVENT_DEVICE_FATAL:
			__atomic_store_n(&device->failed, true, __ATOMIC_RELAXED);
			base_log(RAMPS_LOG_ERROR, "RDMA device %s: %s", name, ibv_event_type_str(type));
			break;
		case IBV_EVENT_COMM_EST:
		case IBV_EVENT_SQ_DRAINED:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
		case IBV_EVENT_GID_CHANGE:
		case IBV_EVENT_CLIENT_REREGISTER:
			base_log(RAMPS_LOG_DEBUG, "RDMA device %s: %s", name, ibv_event_type_str(type));
			break;
		default:
			base_log(RAMPS_LOG_WARNING, "RDMA device %s: %s", name, ibv_event_type_str(type));
		}
	}
}

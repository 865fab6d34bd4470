/* SPDX-License-Identifier: BSD-2-Clause */
/* The data half of an endpoint that posts: a client's, or a server's own to itself. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

#define ALL_ACCESS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

int verbs_half_open(struct verbs_endpoint *ep)
{
	const struct verbs_device *device = &ep->fabric->device;
	const struct verbs_options *options = &ep->fabric->options;
	const struct verbs_data_config config = {
		.context = device->context,
		.pd = device->data_pd,
		.buffers = ep->fabric->buffers.pd ? &ep->fabric->buffers : NULL,
		.depth = options->depth == VERBS_UNSET ? 0 : options->depth,
		.inline_bytes = device->inline_bytes < VERBS_DATA_INLINE ? device->inline_bytes :
									   VERBS_DATA_INLINE,
		.max_depth = (uint32_t)device->attr.max_qp_wr,
		.max_message_bytes = device->port_attr.max_msg_sz,
		.atomic_cap = device->attr.atomic_cap,
		.swapped = device->swapped,
		.local = ibv_get_device_name(device->context->device),
		.peer = ep->address,
	};
	struct ibv_qp_init_attr attr;
	int ret = verbs_data_open(&ep->data, &config);

	if (ret)
		return ret;
	verbs_data_qp_attr(&ep->data, &attr);
	ep->data_qps[0] = ibv_create_qp(device->data_pd, &attr);
	if (!ep->data_qps[0])
		return base_fail(errno ? -errno : -ENOMEM,
				 "no queue pair for %s: %s; RDMA device %s has at most %d, of depth %d",
				 ep->address, strerrordesc_np(errno), config.local,
				 device->attr.max_qp, device->attr.max_qp_wr);
	ep->data_cap = attr.cap;
	return 0;
}

void verbs_half_start(struct verbs_endpoint *ep)
{
	verbs_data_start(&ep->data, ep->data_qps[0], &ep->data_cap);
	verbs_data_limits(&ep->data, ep->terms.reads, &ep->base.limits);
}

void verbs_half_grant(struct verbs_endpoint *ep, const struct verbs_grant *grant)
{
	const struct verbs_granted granted = {
		.address = grant->address,
		.len_bytes = grant->len_bytes,
		.rkey = grant->rkey,
		.rights = grant->rights,
	};

	if (grant->region < FABRIC_MAX_REGIONS)
		verbs_data_grant(&ep->data, grant->region, &granted);
}

int verbs_half_loop(struct verbs_endpoint *ep)
{
	int ret = verbs_half_open(ep);

	if (!ret)
		ret = verbs_qp_connect_self(ep->fabric, ep->data_qps[0], ALL_ACCESS);
	if (ret)
		return ret;
	ep->terms.reads = ep->fabric->device.reads;
	verbs_half_start(ep);
	ep->state = VERBS_OPEN;
	return 0;
}

int verbs_half_try_device(struct verbs_fabric *fabric)
{
	struct verbs_endpoint *ep;
	int ret = verbs_endpoint_new(fabric, VERBS_LOOPBACK, &ep);

	if (ret)
		return ret;
	snprintf(ep->address, sizeof(ep->address), "itself");
	ret = verbs_half_loop(ep);
	if (!ret)
		ret = verbs_data_selftest(&ep->data, &fabric->device.swapped);
	verbs_endpoint_free(ep);
	return ret;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs through their states. librdmacm knows what a connection was agreed to be (addresses, path,
 * numbers); what the options say is laid over that.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "verbs/verbs_private.h"

/* The kernel hands out bits of its own, which ibv_modify_qp() does not know. */
#define KNOWN_ATTRIBUTES ((1 << 21) - 1)

static int failed(const char *to, int code)
{
	return base_fail(code < 0 ? code : -code, "a queue pair can't get %s: %s", to,
			 strerrordesc_np(code < 0 ? -code : code));
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *to)
{
	int ret = ibv_modify_qp(qp, attr, mask & KNOWN_ATTRIBUTES);

	return ret ? failed(to, ret) : 0;
}

int verbs_qp_init(const struct verbs_fabric *fabric, struct rdma_cm_id *id, struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int mask;

	if (rdma_init_qp_attr(id, &attr, &mask))
		return failed("ready", errno);
	attr.qp_access_flags = (unsigned int)access;
	if (fabric->options.pkey_index)
		attr.pkey_index = (uint16_t)fabric->options.pkey_index;
	return modify(qp, &attr, mask | IBV_QP_ACCESS_FLAGS, "ready");
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (128u << mtu < bytes && mtu < IBV_MTU_4096)
		mtu++;
	return mtu;
}

static void lay_over(const struct verbs_fabric *fabric, struct ibv_qp_attr *attr)
{
	const struct verbs_options *options = &fabric->options;

	if (options->service_level != VERBS_UNSET)
		attr->ah_attr.sl = (uint8_t)options->service_level;
	if (options->traffic_class != VERBS_UNSET && attr->ah_attr.is_global)
		attr->ah_attr.grh.traffic_class = (uint8_t)options->traffic_class;
}

static void lay_over_sending(const struct verbs_fabric *fabric, struct ibv_qp_attr *attr, uint32_t reads)
{
	attr->timeout = (uint8_t)fabric->options.ack_timeout;
	attr->retry_cnt = (uint8_t)fabric->options.retries;
	attr->rnr_retry = (uint8_t)fabric->options.rnr_retries;
	attr->max_rd_atomic = (uint8_t)reads;
}

#define SENDING \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

int verbs_qp_connect(const struct verbs_fabric *fabric, struct rdma_cm_id *id, struct ibv_qp *qp,
		     const struct verbs_terms *terms)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int mask, ret;

	if (rdma_init_qp_attr(id, &attr, &mask))
		return failed("connected", errno);
	lay_over(fabric, &attr);
	if (terms->mtu && mtu_of(terms->mtu) < attr.path_mtu)
		attr.path_mtu = mtu_of(terms->mtu);
	attr.max_dest_rd_atomic = (uint8_t)terms->peer_reads;
	ret = modify(qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC, "connected");
	if (ret)
		return ret;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	if (rdma_init_qp_attr(id, &attr, &mask))
		return failed("connected", errno);
	lay_over_sending(fabric, &attr, terms->reads);
	return modify(qp, &attr, mask | SENDING, "connected");
}

int verbs_qp_connect_self(const struct verbs_fabric *fabric, struct ibv_qp *qp, int access)
{
	const struct verbs_device *device = &fabric->device;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = device->port,
		.pkey_index = (uint16_t)fabric->options.pkey_index,
		.qp_access_flags = (unsigned int)access,
	};
	int ret = modify(qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "ready");

	if (ret)
		return ret;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = device->port_attr.active_mtu,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = (uint8_t)device->reads,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET,
			.dlid = device->port_attr.lid,
			.port_num = device->port,
			.grh = {
				.dgid = device->gid,
				.sgid_index = (uint8_t)device->gid_index,
				.hop_limit = 1,
			},
		},
	};
	lay_over(fabric, &attr);
	ret = modify(qp, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		     "connected to itself");
	if (ret)
		return ret;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	lay_over_sending(fabric, &attr, device->reads);
	return modify(qp, &attr, IBV_QP_STATE | SENDING, "connected to itself");
}

/* Of what only some devices and kernels take, nothing is said: the defaults do as well. */
void verbs_id_options(const struct verbs_fabric *fabric, struct rdma_cm_id *id)
{
	uint8_t value = (uint8_t)fabric->options.ack_timeout;

	rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, sizeof(value));
	if (fabric->options.traffic_class == VERBS_UNSET)
		return;
	value = (uint8_t)fabric->options.traffic_class;
	rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, sizeof(value));
}

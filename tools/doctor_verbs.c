/* SPDX-License-Identifier: BSD-2-Clause */
/* What only libibverbs and librdmacm can tell of the device. Under a root of tests a file tells it. */
#include "doctor.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ask_file(const struct doctor *doctor, struct doctor_verbs *verbs)
{
	char number[32];

	doctor_field(doctor, "verbs", "open_error", verbs->open_error, sizeof(verbs->open_error));
	doctor_field(doctor, "verbs", "bind_error", verbs->bind_error, sizeof(verbs->bind_error));
	doctor_field(doctor, "verbs", "atomic_cap", verbs->atomic_cap, sizeof(verbs->atomic_cap));
	if (doctor_field(doctor, "verbs", "active_mtu", number, sizeof(number)))
		verbs->active_mtu = (uint32_t)strtoul(number, NULL, 10);
	if (doctor_field(doctor, "verbs", "max_mtu", number, sizeof(number)))
		verbs->max_mtu = (uint32_t)strtoul(number, NULL, 10);
	if (doctor_field(doctor, "verbs", "outstanding", number, sizeof(number)))
		verbs->outstanding = (uint32_t)strtoul(number, NULL, 10);
}

#ifdef RAMPS_VERBS

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* The device's context, or NULL with the reason. */
static struct ibv_context *open_device(const struct doctor *doctor, struct doctor_verbs *verbs)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int i = 0;

	errno = 0;
	list = ibv_get_device_list(NULL);
	if (!list) {
		snprintf(verbs->open_error, sizeof(verbs->open_error), "no list of devices: %s",
			 strerrordesc_np(errno));
		return NULL;
	}
	while (list[i] && strcmp(ibv_get_device_name(list[i]), doctor->at.device) != 0)
		i++;
	if (!list[i]) {
		snprintf(verbs->open_error, sizeof(verbs->open_error), "has no driver for %s",
			 doctor->at.device);
	} else {
		context = ibv_open_device(list[i]);
		if (!context)
			snprintf(verbs->open_error, sizeof(verbs->open_error), "can't open %s: %s",
				 doctor->at.device, strerrordesc_np(errno));
	}
	ibv_free_device_list(list);
	return context;
}

static void ask_device(const struct doctor *doctor, struct doctor_verbs *verbs, struct ibv_context *context)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	if (!ibv_query_device(context, &device)) {
		strcpy(verbs->atomic_cap, device.atomic_cap == IBV_ATOMIC_NONE ? "NONE" :
					  device.atomic_cap == IBV_ATOMIC_HCA  ? "HCA" :
										 "GLOB");
		verbs->outstanding = (uint32_t)device.max_qp_rd_atom;
	}
	if (!ibv_query_port(context, (uint8_t)doctor->at.number, &port)) {
		verbs->active_mtu = 128u << port.active_mtu;
		verbs->max_mtu = 128u << port.max_mtu;
	}
}

/* The GID's IP address. */
static void address_of(const unsigned char gid[16], struct sockaddr_storage *address)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };

	memset(address, 0, sizeof(*address));
	if (!memcmp(gid, mapped, sizeof(mapped))) {
		struct sockaddr_in *in = (struct sockaddr_in *)address;

		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, gid + 12, 4);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;

		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, gid, 16);
	}
}

/* Whether a server could listen at the GID's address, and would be on this device. */
static void ask_address(const struct doctor *doctor, struct doctor_verbs *verbs)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage address;
	struct rdma_cm_id *id = NULL;

	address_of(doctor->at.gid, &address);
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		snprintf(verbs->bind_error, sizeof(verbs->bind_error), "can't be used: %s",
			 strerrordesc_np(errno));
	else if (rdma_bind_addr(id, (struct sockaddr *)&address))
		snprintf(verbs->bind_error, sizeof(verbs->bind_error),
			 "can't bind the GID's address: %s", strerrordesc_np(errno));
	else if (!id->verbs || strcmp(ibv_get_device_name(id->verbs->device), doctor->at.device) != 0)
		snprintf(verbs->bind_error, sizeof(verbs->bind_error), "the GID's address is %s's",
			 id->verbs ? ibv_get_device_name(id->verbs->device) : "no RDMA device");
	if (id)
		rdma_destroy_id(id);
	if (channel)
		rdma_destroy_event_channel(channel);
}

bool doctor_verbs_ask(const struct doctor *doctor, struct doctor_verbs *verbs)
{
	struct ibv_context *context;

	if (*doctor->root) {
		ask_file(doctor, verbs);
		return true;
	}
	context = open_device(doctor, verbs);
	if (!context)
		return true;
	ask_device(doctor, verbs, context);
	if (doctor->at.gid_index >= 0 && doctor->at.ethernet && !*doctor->no_cm && !*doctor->no_port)
		ask_address(doctor, verbs);
	ibv_close_device(context);
	return true;
}

#else

bool doctor_verbs_ask(const struct doctor *doctor, struct doctor_verbs *verbs)
{
	if (*doctor->root)
		ask_file(doctor, verbs);
	return *doctor->root;
}

#endif

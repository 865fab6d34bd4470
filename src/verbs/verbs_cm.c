/* SPDX-License-Identifier: BSD-2-Clause */
/* What librdmacm's events say, in our errors and words. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

/* Reasons of a rejection, of the CM's own. */
enum {
	REJECTED_NO_QP = 1,
	REJECTED_TIMEOUT = 4,
	REJECTED_INVALID_SERVICE = 8,
	REJECTED_STALE = 10,
	REJECTED_BY_LISTENER = 28,
};

int verbs_cm_channel(struct rdma_event_channel **channel)
{
	*channel = rdma_create_event_channel();
	if (!*channel) {
		int code = errno;

		if (code == ENOENT || code == ENODEV)
			return base_fail(-ENODEV,
					 "this machine has no RDMA connection manager (/dev/infiniband/"
					 "rdma_cm): load the module rdma_ucm, and look for a device with "
					 "ibv_devices");
		return base_fail(code == ENFILE ? -EMFILE : -code,
				 "opening the RDMA connection manager (/dev/infiniband/rdma_cm): %s",
				 strerrordesc_np(code));
	}
	fcntl((*channel)->fd, F_SETFL, O_NONBLOCK);
	fcntl((*channel)->fd, F_SETFD, FD_CLOEXEC);
	return 0;
}

int verbs_cm_next(struct rdma_event_channel *channel, struct verbs_cm_event *event)
{
	struct rdma_cm_event *cm;

	if (rdma_get_cm_event(channel, &cm))
		return 0;
	*event = (struct verbs_cm_event){
		.type = cm->event,
		.status = cm->status,
		.id = cm->id,
		.qp_num = cm->param.conn.qp_num,
		.reads = cm->param.conn.initiator_depth,
		.peer_reads = cm->param.conn.responder_resources,
	};
	if (cm->param.conn.private_data) {
		event->private_bytes = cm->param.conn.private_data_len;
		memcpy(event->private_data, cm->param.conn.private_data, event->private_bytes);
	}
	/* At once: the destruction of its id would wait for that. */
	rdma_ack_cm_event(cm);
	return 1;
}

bool verbs_cm_private(const struct verbs_cm_event *event, void *to, size_t len_bytes)
{
	const uint16_t magic = VERBS_MAGIC;

	memset(to, 0, len_bytes);
	if (event->private_bytes < 4 || memcmp(event->private_data + 2, &magic, sizeof(magic)) != 0)
		return false;
	if (event->private_data[0] < 4 || event->private_data[0] > event->private_bytes)
		return false;
	if (len_bytes > event->private_data[0])
		len_bytes = event->private_data[0];
	memcpy(to, event->private_data, len_bytes);
	return true;
}

void verbs_cm_refuse(struct rdma_cm_id *id, int code, const char *text)
{
	struct verbs_refusal refusal = {
		.len_bytes = sizeof(refusal),
		.version = VERBS_VERSION,
		.magic = VERBS_MAGIC,
		.code = code,
	};

	snprintf(refusal.text, sizeof(refusal.text), "%s", text);
	rdma_reject(id, &refusal, sizeof(refusal));
}

static void name_ends(const struct rdma_cm_id *id, char from[96], char to[96])
{
	verbs_address_text(&id->route.addr.src_addr, from, 96);
	verbs_address_text(&id->route.addr.dst_addr, to, 96);
}

static int rejected(const struct verbs_cm_event *event, const char *address, const char *from,
		    const char *to)
{
	struct verbs_refusal refusal;

	if (verbs_cm_private(event, &refusal, sizeof(refusal)) && refusal.code < 0 &&
	    refusal.code > -4096) {
		refusal.text[sizeof(refusal.text) - 1] = '\0';
		return base_fail(refusal.code, "the server at %s (%s, from %s) refused: %s",
				 address, to, from, refusal.text);
	}
	switch (event->status) {
	case REJECTED_INVALID_SERVICE:
	case -ECONNREFUSED:
		return base_fail(-ECONNREFUSED,
				 "no server at %s: nobody listens at %s (asked from %s); start one, or check "
				 "host and port",
				 address, to, from);
	case REJECTED_BY_LISTENER:
		return base_fail(-ECONNREFUSED,
				 "%s, %s, refused the connection from %s: it is ending, has too many waiting, "
				 "or is no ramps server",
				 address, to, from);
	case REJECTED_TIMEOUT:
		return base_fail(-ETIMEDOUT, "the server at %s (%s, from %s) did not answer in time",
				 address, to, from);
	case REJECTED_NO_QP:
		return base_fail(-ENOBUFS, "the device of %s (%s, from %s) has no queue pairs left",
				 address, to, from);
	case REJECTED_STALE:
		return base_fail(-ECONNRESET,
				 "%s (%s) still holds an old connection with the number of the one from %s; "
				 "try again",
				 address, to, from);
	default:
		return base_fail(-ECONNREFUSED, "%s, %s, rejected the connection from %s for CM reason %d",
				 address, to, from, event->status);
	}
}

int verbs_cm_failed(const struct verbs_cm_event *event, const char *address)
{
	char from[96], to[96];

	name_ends(event->id, from, to);
	switch (event->type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
		return base_fail(event->status == -ETIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH,
				 "%s: no way from an RDMA device here to %s: %s; is an RDMA device on that "
				 "network (rdma link), and does the host answer ping?",
				 address, to,
				 strerrordesc_np(event->status < 0 ? -event->status : EIO));
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return base_fail(-EHOSTUNREACH,
				 "%s: no route from %s to %s: %s; is a subnet manager running?", address,
				 from, to, strerrordesc_np(event->status < 0 ? -event->status : EIO));
	case RDMA_CM_EVENT_UNREACHABLE:
		return base_fail(-ETIMEDOUT,
				 "%s: %s does not answer %s over RDMA: check that both devices are active and "
				 "that nothing drops RoCE's UDP port 4791",
				 address, to, from);
	case RDMA_CM_EVENT_REJECTED:
		return rejected(event, address, from, to);
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return base_fail(-ENODEV,
				 "the RDMA device of the connection from %s to %s (%s) was removed",
				 from, to, address);
	case RDMA_CM_EVENT_DISCONNECTED:
		return base_fail(-ENOTCONN, "%s (%s) closed the connection from %s", address, to, from);
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return base_fail(-ENOTCONN, "the connection from %s to %s (%s) failed: %s", from, to,
				 address, strerrordesc_np(event->status < 0 ? -event->status : EIO));
	default:
		return base_fail(-EPROTO, "%s: %s while connecting from %s to %s", address,
				 rdma_event_str(event->type), from, to);
	}
}

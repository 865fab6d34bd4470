/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share. The data path has a header of its own, verbs_data.h. */
#ifndef VERBS_PRIVATE_H
#define VERBS_PRIVATE_H

#include <infiniband/verbs.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <time.h>

#include "verbs/verbs.h"
#include "verbs/verbs_data.h"

#define VERBS_VERSION         1u
#define VERBS_MAX_DATA        4u
#define VERBS_HOST_BYTES      200
#define VERBS_ADDRESS_BYTES   256
#define VERBS_MAC_BYTES       32
#define VERBS_NONCE_BYTES     32
#define VERBS_LEAST_KEY_BYTES 16
#define VERBS_MAX_UNPROVEN    256u
#define VERBS_UNPROVEN_NS     5000000000ull
#define VERBS_LEASE_NS        5000000000ull
#define VERBS_LINGER_NS       1000000000ull /* for what a closed endpoint has sent to arrive */
#define VERBS_LOOK_NS         500000000ull  /* between probes of a server that one waits for */
#define VERBS_DATA_USED       1u /* connections for data: one has the order that a caller relies on */

struct verbs_endpoint;
struct verbs_listener;
struct verbs_fabric;

/* verbs_address.c */
int verbs_address_split(const char *address, char host[VERBS_HOST_BYTES], char port[8]);
/* -EINVAL, -EADDRNOTAVAIL (no such host). May ask a name server. */
int verbs_address_resolve(const char *address, bool passive, struct addrinfo **list);
/* Whether it is the loopback's, where no RDMA device is. */
bool verbs_address_is_loopback(const struct sockaddr *address);
void verbs_address_text(const struct sockaddr *address, char *buf, size_t len_bytes);

/* verbs_key.c */
struct verbs_key {
	uint32_t len_bytes; /* 0: there is none, and anybody can prove that */
	unsigned char bytes[4096];
};

struct verbs_nonces {
	unsigned char client[VERBS_NONCE_BYTES], server[VERBS_NONCE_BYTES];
};

/* What else a proof is about. */
struct verbs_claim {
	const void *bytes;
	size_t len_bytes;
};

int verbs_key_load(struct verbs_key *key);
void verbs_key_forget(struct verbs_key *key);
void verbs_random(void *bytes, size_t len_bytes);
void verbs_prove(const struct verbs_key *key, const struct verbs_nonces *nonces, const char *label,
		 const struct verbs_claim *claim, unsigned char mac[VERBS_MAC_BYTES]);
bool verbs_proved(const struct verbs_key *key, const struct verbs_nonces *nonces, const char *label,
		  const struct verbs_claim *claim, const unsigned char mac[VERBS_MAC_BYTES]);
void verbs_own_identity(unsigned char identity[FABRIC_IDENTITY_BYTES]);

/* verbs_device.c: the one device of a fabric, opened when an address has told which */
struct verbs_device {
	struct ibv_context *context; /* NULL: not open yet */
	struct ibv_pd *handshake_pd; /* holds nothing but message buffers */
	struct ibv_pd *data_pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	union ibv_gid gid;
	uint32_t gid_index;
	enum ibv_gid_type gid_type;
	uint8_t port;
	uint32_t reads; /* READs and atomics outstanding, as initiator and as responder */
	uint32_t inline_bytes;
	bool swapped; /* atomics return results in the other byte order */
	bool failed;  /* the device said that it can't go on */
};

/* How an address got to a device: as librdmacm found it. */
struct verbs_route {
	const char *device;
	uint8_t port;
	union ibv_gid gid; /* zero: any of the right type */
	const char *address;
};

/* Opens the device, or checks that it is the one open. */
int verbs_device_open(struct verbs_fabric *fabric, const struct verbs_route *route);
int verbs_device_for(struct verbs_fabric *fabric, const struct rdma_cm_id *id, const char *address);
/* The only device that is fit, for an address that means any. */
int verbs_device_any(struct verbs_fabric *fabric, const char *address);
void verbs_device_close(struct verbs_device *device);
/* Takes the device's asynchronous events. Never blocks. */
void verbs_device_events(struct verbs_device *device);

/* verbs_gid.c */
struct verbs_gid_wants {
	uint8_t port;
	uint8_t link_layer;
	uint32_t index;    /* or VERBS_UNSET */
	union ibv_gid gid; /* or zero */
};

/* The entry of the table that fits. -EINVAL; the text lists what there is. */
int verbs_gid_choose(const struct ibv_gid_entry *table, size_t count,
		     const struct verbs_gid_wants *wants, const struct ibv_gid_entry **chosen);
const char *verbs_gid_type_text(uint32_t type);

/* verbs_memory.c */
int verbs_register(struct fabric *fabric, struct fabric_memory *memory);
void verbs_unregister(struct fabric *fabric, struct fabric_memory *memory);
/* The registration of memory with these rights, made at the first use of them. */
struct verbs_grant;
int verbs_memory_key(struct verbs_fabric *fabric, const struct fabric_memory *memory,
		     uint32_t rights, struct verbs_grant *grant);
int verbs_buffer_open(struct fabric *fabric, void *at, uint64_t len_bytes);
void verbs_buffer_close(struct fabric *fabric, void *at);
/* When the device is open, its lock held. */
int verbs_buffers_begin(struct verbs_fabric *fabric);
/* ibv_reg_mr() that says why it failed. */
int verbs_pin(struct ibv_pd *pd, void *base, size_t len_bytes, int access, struct ibv_mr **mr);

#define VERBS_EARLY_BUFFERS 64u

struct verbs_early {
	void *base;
	uint64_t len_bytes;
};

struct verbs_fabric {
	struct fabric base;
	/* Of the device's opening and of buffers; endpoints may be in several threads. */
	pthread_mutex_t lock;
	struct verbs_buffers buffers;
	struct verbs_early early[VERBS_EARLY_BUFFERS];
	uint32_t early_count;
	struct verbs_options options;
	struct verbs_key key;
	struct verbs_device device;
};

/* verbs_qp.c */

/* What both sides agreed on for a connection. */
struct verbs_terms {
	uint32_t mtu;   /* bytes; 0: as the route says */
	uint32_t reads; /* that this side may have outstanding */
	uint32_t peer_reads;
};

/* From RESET to INIT, with these rights for the peer. */
int verbs_qp_init(const struct verbs_fabric *fabric, struct rdma_cm_id *id, struct ibv_qp *qp, int access);
/* From INIT to RTS: connected. */
int verbs_qp_connect(const struct verbs_fabric *fabric, struct rdma_cm_id *id, struct ibv_qp *qp,
		     const struct verbs_terms *terms);
/* Connects a queue pair of this fabric's device to itself. */
int verbs_qp_connect_self(const struct verbs_fabric *fabric, struct ibv_qp *qp, int access);
/* Service level, traffic class and timeout, before rdma_connect(). */
void verbs_id_options(const struct verbs_fabric *fabric, struct rdma_cm_id *id);

/* verbs_channel.c: messages, and what is said beside them, on the control connection */

enum verbs_kind {
	VERBS_MESSAGE = 1,
	VERBS_PROOF,   /* client: its HMAC, and who it is */
	VERBS_WELCOME, /* server: the session, and who it is */
	VERBS_REFUSED, /* server: why not, as text */
	VERBS_READY,   /* client: its data connections stand */
	VERBS_CREDITS,
	VERBS_BYE,
};

struct verbs_grant {
	uint32_t region, rights, rkey, reserved;
	uint64_t address, len_bytes;
};

struct verbs_message {
	uint32_t kind, len_bytes;
	uint32_t credits; /* receive buffers that are free again */
	uint32_t grants;  /* of them follow, and then len_bytes */
};

#define VERBS_RECEIVES 8u
#define VERBS_SENDS    4u

struct verbs_channel {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *buffers; /* VERBS_RECEIVES, then VERBS_SENDS */
	const char *peer;
	uint32_t credits; /* messages that the peer has room for */
	uint32_t owed;    /* our receive buffers that the peer does not know to be free */
	uint32_t posted, sent;
	uint32_t came, taken;            /* messages received, and those done with */
	uint8_t arrived[VERBS_RECEIVES]; /* ring of the buffers with messages, taken .. came */
	struct verbs_grant given[FABRIC_MAX_REGIONS]; /* to be sent with the next message */
	uint32_t given_count;
	void (*granted)(struct verbs_endpoint *ep, const struct verbs_grant *grant);
	struct verbs_endpoint *ep;
	bool broken, bye, probing;
	uint64_t heard_ns; /* when the peer's device last showed that it is there */
	char why[160];
};

/* queue pair in handshake_pd, in state RESET, and cq with `channel`; context is ep. */
int verbs_channel_open(struct verbs_channel *channel, struct verbs_fabric *fabric,
		       struct verbs_endpoint *ep, struct ibv_comp_channel *events);
/* Posts the receives; in state INIT. */
int verbs_channel_start(struct verbs_channel *channel);
void verbs_channel_close(struct verbs_channel *channel);
/* Takes what completed; sets broken and why when it is. Never blocks. */
void verbs_channel_poll(struct verbs_channel *channel);
/* 0, -EAGAIN, -ENOTCONN; without text. */
int verbs_channel_send(struct verbs_channel *channel, enum verbs_kind kind, const void *payload,
		       uint32_t len_bytes);
/* The oldest message, or NULL. It is done with at verbs_channel_release(). */
const struct verbs_message *verbs_channel_look(const struct verbs_channel *channel, const void **payload);
void verbs_channel_release(struct verbs_channel *channel);
/* Whether all that was sent has arrived. */
static inline bool verbs_channel_idle(const struct verbs_channel *channel)
{
	return channel->broken || channel->posted == channel->sent;
}
/* Asks the peer's device, without its CPU, whether it is there: an answer or `broken` follows. */
void verbs_channel_probe(struct verbs_channel *channel);

/* verbs_cm.c: what librdmacm's events say */

/* Private data of requests and answers. It arrives padded with zeros, so it has a length inside. */
struct verbs_hello {
	uint8_t len_bytes, version;
	uint16_t magic;
	uint8_t kind, index; /* enum verbs_hello_kind; index of a data connection */
	uint16_t mtu;
	union {
		unsigned char nonce[VERBS_NONCE_BYTES]; /* control */
		struct {                                /* data */
			unsigned char session[8];
			unsigned char mac[VERBS_MAC_BYTES];
		};
	};
};

struct verbs_answer {
	uint8_t len_bytes, version;
	uint16_t magic;
	uint16_t mtu;
	uint16_t reserved;
	unsigned char nonce[VERBS_NONCE_BYTES]; /* control */
	unsigned char mac[VERBS_MAC_BYTES];
};

struct verbs_refusal {
	uint8_t len_bytes, version;
	uint16_t magic;
	int32_t code;
	char text[136];
};

_Static_assert(sizeof(struct verbs_hello) <= 56, "a request's private data over rdma_cm");
_Static_assert(sizeof(struct verbs_answer) <= 196, "an answer's private data");
_Static_assert(sizeof(struct verbs_refusal) <= 148, "a rejection's private data");

#define VERBS_MAGIC 0x5652u

enum verbs_hello_kind {
	VERBS_CONTROL = 1,
	VERBS_DATA,
};

/* An event that was taken and acknowledged. */
struct verbs_cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	uint32_t qp_num;
	uint8_t reads, peer_reads; /* that we, and the peer, may have outstanding */
	uint8_t private_bytes;
	unsigned char private_data[256];
};

/* 1: *event is set; 0: none now. Never blocks. */
int verbs_cm_next(struct rdma_event_channel *channel, struct verbs_cm_event *event);
int verbs_cm_channel(struct rdma_event_channel **channel);
/* Records, and returns the code of, what the event says went wrong with a connection. */
int verbs_cm_failed(const struct verbs_cm_event *event, const char *address);
void verbs_cm_refuse(struct rdma_cm_id *id, int code, const char *text);
/* Copies private data whose first bytes are right, zero beyond its length. Whether it is. */
bool verbs_cm_private(const struct verbs_cm_event *event, void *to, size_t len_bytes);

/* Endpoints */

enum verbs_role {
	VERBS_CLIENT = 1,
	VERBS_ACCEPTED,
	VERBS_LOOPBACK,
};

enum verbs_state {
	VERBS_UNPROVEN = 0,
	VERBS_PROVEN, /* its data connections are awaited */
	VERBS_OPEN,
	VERBS_ENDING, /* gone; its last messages are still to be taken */
	VERBS_ENDED,  /* the caller knows, or it was cut */
};

struct verbs_session {
	struct verbs_nonces nonces;
	unsigned char id[8];
};

struct verbs_endpoint {
	struct fabric_endpoint base;
	struct verbs_data data; /* of a client and a loopback */
	enum verbs_role role;
	enum verbs_state state;
	struct verbs_fabric *fabric;
	struct verbs_listener *listener;
	pid_t pid; /* that made this endpoint */
	struct verbs_channel channel;
	struct verbs_session session;
	struct verbs_terms terms;
	struct rdma_event_channel *events; /* a client's own */
	struct ibv_comp_channel *completions;
	struct rdma_cm_id *control_id;
	struct rdma_cm_id *data_ids[VERBS_MAX_DATA];
	struct ibv_qp *data_qps[VERBS_MAX_DATA];
	struct ibv_qp_cap data_cap;
	uint32_t data_count; /* agreed on */
	uint32_t granted;    /* bits of regions */
	bool left;           /* the peer said so, or its process ended */
	bool lingers;        /* closed by its owner */
	bool is_ready;       /* in the listener's list of them */
	uint64_t since_ns;   /* accepted, or closed */
	uint64_t look_ns;    /* when to look at events again */
	uint32_t polls;
	TAILQ_ENTRY(verbs_endpoint) link; /* unproven, open or lingering */
	TAILQ_ENTRY(verbs_endpoint) ready_link;
	unsigned char identity[FABRIC_IDENTITY_BYTES];
	char address[VERBS_ADDRESS_BYTES];
	char cm_address[96]; /* of an accepted peer's device */
};

TAILQ_HEAD(verbs_endpoints, verbs_endpoint);

static inline struct verbs_endpoint *verbs_of(struct fabric_endpoint *ep)
{
	return (struct verbs_endpoint *)ep;
}

/* verbs_fabric.c */
extern const struct fabric_ops verbs_ops;
int verbs_endpoint_new(struct verbs_fabric *fabric, enum verbs_role role, struct verbs_endpoint **ep);
void verbs_endpoint_free(struct verbs_endpoint *ep);
/* Destroys the data queue pairs: nothing lands after it, on either side. */
void verbs_stop_data(struct verbs_endpoint *ep, const char *why);
int verbs_gone(struct verbs_endpoint *ep);

/* verbs_half.c: the data half of a client's endpoint or a loopback */
int verbs_half_open(struct verbs_endpoint *ep);
void verbs_half_start(struct verbs_endpoint *ep);
void verbs_half_grant(struct verbs_endpoint *ep, const struct verbs_grant *grant);
int verbs_half_loop(struct verbs_endpoint *ep);
/* Tries the device's atomics. */
int verbs_half_try_device(struct verbs_fabric *fabric);

/* verbs_connect.c */
int verbs_connect(struct fabric *fabric, const char *address, uint64_t deadline_ns,
		  struct fabric_endpoint **ep);
void verbs_leave(struct verbs_endpoint *ep);

/* verbs_talk.c */
/* Time until the deadline: false, and zero, when it has come. */
bool verbs_time_left(uint64_t deadline_ns, struct timespec *left);
void verbs_nonblocking(int fd);
/* Waits for a message to a client: 0, -EAGAIN or -ENOTCONN, without text. */
int verbs_channel_wait(struct verbs_endpoint *ep, uint64_t deadline_ns);
int verbs_recv(struct fabric_endpoint *ep, void *message, uint32_t len_bytes, uint64_t deadline_ns);
int verbs_send(struct fabric_endpoint *ep, const void *message, uint32_t len_bytes);
int verbs_check(struct fabric_endpoint *ep);

/* verbs_listener.c */
struct verbs_listener {
	struct fabric_listener base;
	struct verbs_fabric *fabric;
	pid_t pid;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *completions;
	int epoll, wake_fd;
	bool woken;
	int failed; /* -errno: the device or its address is gone */
	uint64_t lease_ns;
	uint64_t look_ns; /* when to look after time-outs and silent peers again */
	struct verbs_endpoints unproven, open, ready, lingering;
	uint32_t unproven_count;
};

int verbs_listen(struct fabric *fabric, const char *address, struct fabric_listener **listener);
void verbs_listener_close(struct fabric_listener *listener);
void verbs_wake(struct fabric_listener *listener);
int verbs_loopback(struct fabric_listener *listener, struct fabric_endpoint **ep);
int verbs_listener_device(struct verbs_listener *listener);

/* verbs_accept.c: connections that come in */
void verbs_accept_event(struct verbs_listener *listener, const struct verbs_cm_event *event);
/* A message of a connection that is not open yet. Whether it is open now. */
bool verbs_accept_message(struct verbs_listener *listener, struct verbs_endpoint *ep);
void verbs_accept_drop(struct verbs_listener *listener, struct verbs_endpoint *ep, const char *why);

/* verbs_events.c */
int verbs_next_event(struct fabric_listener *listener, struct fabric_event *event);
int verbs_wait(struct fabric_listener *listener, uint64_t deadline_ns);
/* Has next_event look at the endpoint. */
void verbs_ready(struct verbs_listener *listener, struct verbs_endpoint *ep);
void verbs_forget(struct verbs_listener *listener, struct verbs_endpoint *ep);
void verbs_linger(struct verbs_listener *listener, struct verbs_endpoint *ep);

#endif

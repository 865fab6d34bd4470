/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share. */
#ifndef SHM_PRIVATE_H
#define SHM_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "shm/shm.h"

#define SHM_VERSION       1u
#define SHM_LOOK_NS       50000000ull /* longest time between looks whether the peer is there */
#define SHM_AWAKE_NS      100000u
#define SHM_BELLS         1024u
#define SHM_BELLS_BYTES   (SHM_BELLS * 64u)
#define SHM_ADDRESS_BYTES 96
#define SHM_PATH_BYTES    4096
#define SHM_EVENTS        64
#define SHM_MAX_UNPROVEN  256u
#define SHM_UNPROVEN_NS   5000000000ull
#define SHM_MAX_OPS       (1u << 20)

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A mapped file, shared by all endpoints of a fabric that were granted it. */
struct shm_mapping {
	struct shm_mapping *next;
	dev_t dev;
	ino_t ino;
	uint64_t len_bytes;
	void *base;
	uint32_t refs;
	bool writable;
};

struct shm_fabric {
	struct fabric base;
	pthread_mutex_t lock; /* of mappings; endpoints of one fabric may be in several threads */
	struct shm_mapping *mappings;
	uint32_t awake_ns; /* how long a waiter yields before it sleeps */
};

enum shm_role {
	SHM_CLIENT = 1,
	SHM_ACCEPTED,
	SHM_LOOPBACK,
};

enum shm_state {
	SHM_UNPROVEN = 0, /* accepted, has not said hello */
	SHM_OPEN,
	SHM_ENDING, /* accepted, gone; its last messages are still to be taken */
	SHM_ENDED,  /* FABRIC_CLOSED was raised, or it was cut */
};

struct shm_region {
	char *base;
	uint64_t len_bytes;
	uint32_t rights; /* 0: not granted */
};

struct shm_endpoint {
	struct fabric_endpoint base;
	bool broken;
	uint32_t posts; /* since the clock was looked at */
	uint32_t *bells;
	struct shm_region regions[FABRIC_MAX_REGIONS];

	/* From here on nothing is used by the data path. */
	uint64_t looked_ns;
	struct shm_fabric *fabric;
	struct shm_listener *listener;
	struct shm_mapping *mappings[FABRIC_MAX_REGIONS];
	TAILQ_ENTRY(shm_endpoint) link; /* unproven, ending, or open and silent */
	enum shm_role role;
	enum shm_state state;
	int socket, pidfd; /* pidfd: of the peer */
	pid_t pid;         /* that made this endpoint */
	pid_t peer_pid;
	uint32_t granted; /* server: bits of regions */
	bool silent;      /* pidfd can't be polled: the listener looks at it now and then */
	bool goodbye;     /* the peer says that it uses nothing any more */
	bool killed;
	uint64_t accepted_ns;
	unsigned char identity[FABRIC_IDENTITY_BYTES];
	char address[SHM_ADDRESS_BYTES];
};

TAILQ_HEAD(shm_endpoints, shm_endpoint);

struct shm_listener {
	struct fabric_listener base;
	struct shm_fabric *fabric;
	pid_t pid;
	int dir, socket, epoll, wake_fd, bells_fd, bells_send_fd, pidfd;
	int reserve; /* given up to refuse a connection when descriptors run out */
	uint32_t *bells;
	bool bound, woken;
	uint64_t accept_after_ns; /* 0: the socket is watched */
	struct epoll_event ready[SHM_EVENTS];
	int ready_count, ready_at;
	struct shm_endpoints unproven, ending, silent;
	uint64_t silent_after_ns; /* when to look at the silent ones */
	bool look_soon;           /* a silent peer is being cut: the next wait is short */
	uint32_t unproven_count;
	char directory[SHM_PATH_BYTES];
};

static inline struct shm_endpoint *shm_of(struct fabric_endpoint *ep)
{
	return (struct shm_endpoint *)ep;
}

/* shm_fabric.c */
extern const struct fabric_ops shm_ops;
int shm_endpoint_new(struct shm_fabric *fabric, enum shm_role role, struct shm_endpoint **ep);
void shm_endpoint_free(struct shm_endpoint *ep);
int shm_map_file(struct shm_fabric *fabric, int fd, uint64_t len_bytes, bool writable,
		 struct shm_mapping **mapping);
/* own: false in a forked child, where the mapping itself is not. */
void shm_unmap_file(struct shm_fabric *fabric, struct shm_mapping *mapping, bool own);

/* shm_directory.c */
int shm_open_directory(const char *path, bool make);
void shm_socket_path(int dir, const char *directory, char *buf, size_t len_bytes);

/* shm_channel.c: frames on the socket, one packet each */
enum shm_frame_kind {
	SHM_HELLO = 1, /* client's pidfd */
	SHM_WELCOME,   /* bells, server's pidfd */
	SHM_MESSAGE,
	SHM_GRANT, /* the memory */
	SHM_BYE,
};

struct shm_frame {
	uint32_t magic;
	uint16_t kind, version;
	uint32_t region, rights;
	uint64_t len_bytes; /* of memory */
	int fds[2];         /* as received; not sent */
	uint32_t payload_bytes;
};

int shm_send_frame(int socket, const struct shm_frame *frame, const void *payload);
int shm_recv_frame(int socket, struct shm_frame *frame, void *payload);
void shm_drop_fds(struct shm_frame *frame);
int shm_wait_socket(const struct shm_endpoint *ep, uint64_t deadline_ns);
int shm_send(struct fabric_endpoint *ep, const void *message, uint32_t len_bytes);
int shm_recv(struct fabric_endpoint *ep, void *message, uint32_t len_bytes, uint64_t deadline_ns);
int shm_check(struct fabric_endpoint *ep);
int shm_gone(struct shm_endpoint *ep);

/* shm_connect.c */
int shm_connect(struct fabric *fabric, const char *address, uint64_t deadline_ns,
		struct fabric_endpoint **ep);
void shm_leave(struct shm_endpoint *ep);

/* shm_listener.c */
int shm_listen(struct fabric *fabric, const char *address, struct fabric_listener **listener);
void shm_listener_close(struct fabric_listener *listener);
void shm_wake(struct fabric_listener *listener);
void shm_notify(struct fabric_listener *listener, uint32_t region, uint64_t offset);
int shm_loopback(struct fabric_listener *listener, struct fabric_endpoint **ep);

/* shm_events.c */
int shm_next_event(struct fabric_listener *listener, struct fabric_event *event);
int shm_wait(struct fabric_listener *listener, uint64_t deadline_ns);
void shm_forget(struct shm_listener *listener, struct shm_endpoint *ep);

/* shm_process.c */
int shm_pidfd_open(pid_t pid);
bool shm_pidfd_silent(int pidfd);
bool shm_pidfd_ended(int pidfd);
pid_t shm_pidfd_pid(int pidfd);
int shm_pidfd_kill(int pidfd, pid_t pid);
void shm_identify(pid_t pid, unsigned char identity[FABRIC_IDENTITY_BYTES]);
bool shm_peer_gone(struct fabric_listener *listener, const unsigned char identity[FABRIC_IDENTITY_BYTES]);

/* shm_peer.c */
int shm_know_peer(struct shm_endpoint *ep, int pidfd);
void shm_identity(struct fabric_endpoint *ep, unsigned char identity[FABRIC_IDENTITY_BYTES]);
int shm_grant(struct fabric_endpoint *ep, uint32_t region, const struct fabric_memory *memory,
	      uint32_t rights);
int shm_cut(struct fabric_endpoint *ep);

/* shm_post.c */
int shm_post(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
	     struct fabric_completion *completion);
int shm_poll(struct fabric_endpoint *ep, uint64_t deadline_ns);
const void *shm_map(struct fabric_endpoint *ep, uint32_t region, uint64_t offset, uint64_t len_bytes);
int shm_admit(const struct shm_endpoint *ep, const struct fabric_op *op);
int shm_refuse(const struct shm_endpoint *ep, const struct fabric_op *op, int code);
int shm_look(struct shm_endpoint *ep, uint64_t now_ns);
int shm_tick(struct shm_endpoint *ep, uint64_t len_bytes);

/* shm_bell.c */
uint32_t *shm_bell(uint32_t *bells, uint32_t region, uint64_t offset);
void shm_ring(uint32_t *bell);
void shm_ring_after_store(uint32_t *bell);
int shm_wait_word(struct fabric_endpoint *ep, uint32_t region, uint64_t offset, uint64_t seen,
		  uint64_t *value, uint64_t deadline_ns);

#endif

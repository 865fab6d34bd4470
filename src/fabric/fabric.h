/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The seam: one-sided operations on remote memory, and a small message channel for control.
 *
 * A fabric is a table of operations, none of them NULL: fabric_defaults has a stand-in that
 * returns
 * -EOPNOTSUPP for each, and a fabric lays its own over it. Callers use the inline functions
 * below. Objects that a fabric makes begin with the struct declared here and are freed by the
 * matching close.
 *
 * Roles. A server listens and takes events (connected, message, closed) from its listener; it
 * registers its arena's memory and grants regions of it to each endpoint with rights. A worker
 * connects, sends and receives messages, and posts operations on the regions granted to it.
 * Region numbers are the server's choice and mean the same to all its peers. The server reaches
 * its own arena's words by a loopback endpoint, so that an arena has one atomic domain.
 *
 * Operations. fabric_post() takes a list, rings one doorbell for it, and completes it as a whole
 * through a struct fabric_completion: the list adds 1 to `pending` and takes it back when every
 * operation is done or the endpoint failed. Several lists may share one completion. Between post
 * and completion the fabric owns the ops' local memory and the completion; not the array of ops,
 * nor offsets[] and addends[]. Lists of one endpoint complete in the order posted.
 *
 *  - What one endpoint posts takes effect at the target in order for WRITE and atomics. READs are
 *    not ordered among themselves, nor before earlier WRITEs or atomics have completed at the
 *    target unless flagged FABRIC_FENCE; a READ sees the effect of earlier operations of its
 *    endpoint.
 *  - An aligned 8-byte word is read and written whole. Longer READs and WRITEs may be torn
 *    between words.
 *  - WRITE then atomic: who sees the atomic's result sees the data. WRITE then WRITE promises
 *    nothing.
 *  - An atomic returns the word's value from before it. Sums are modulo 2^64.
 *
 * Failure. An endpoint breaks once and for all. Everything outstanding completes with the first
 * error, and an operation that did may have taken effect, at most once, and may do so until the
 * server has cut its half. A fabric whose limits say `fate_known` never leaves that in doubt. What
 * of an endpoint's operations took effect is a prefix of the WRITEs and atomics posted. The server
 * hears CLOSED when the peer closed its endpoint or its process ended, BROKEN when the connection
 * or the lease of a silent peer ended, and the process may live: it may connect again.
 *
 * Threads. An endpoint, and a listener with all endpoints accepted from it, belong to one thread
 * at a time. fabric_wake() may be called from any thread and from signal handlers. Nothing here
 * blocks except fabric_poll(), fabric_wait_word(), fabric_recv(), fabric_connect() and
 * fabric_wait(), each with a deadline. The calls of the data path (post, poll, wait_word, notify)
 * allocate nothing and take no lock.
 *
 * Every call returns 0 or a count, or a negative errno; -ENOTCONN: the endpoint is broken or its
 * peer gone.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_MAX_REGIONS       8
#define FABRIC_MAX_MESSAGE_BYTES 4096
#define FABRIC_IDENTITY_BYTES    32

enum fabric_opcode {
	FABRIC_READ = 1,     /* remote -> local, len_bytes */
	FABRIC_WRITE,        /* local -> remote, len_bytes */
	FABRIC_FETCH_ADD,    /* remote word += operand; old value to *local if local is not NULL */
	FABRIC_COMPARE_SWAP, /* remote word = operand if it equals compare; old value to *local */
	FABRIC_READ_LIST,    /* for i < count: len_bytes at offsets[i] -> local + i * len_bytes */
	FABRIC_FETCH_ADD_LIST, /* for i < count: word at offsets[i] += addends[i]; nothing is returned */
};

enum fabric_op_flags {
	FABRIC_FENCE = 1u << 0, /* begins after earlier READs and atomics of this endpoint completed */
	FABRIC_INLINE = 1u << 1,   /* WRITE: local memory is free when post returns; has a limit */
	FABRIC_WAITABLE = 1u << 2, /* atomic: somebody may sit in fabric_wait_word() on this word */
};

struct fabric_op {
	uint8_t opcode;
	uint8_t flags;
	uint16_t region;
	uint32_t count;  /* of a list operation */
	uint64_t offset; /* in the region; 8-byte aligned for atomics */
	uint64_t len_bytes;
	void *local; /* WRITE only reads it */
	union {
		struct {
			uint64_t operand, compare;
		};
		struct {
			const uint64_t *offsets; /* count of them, 8-byte aligned for adds */
			const uint64_t *addends;
		};
	};
};

struct fabric_completion {
	uint32_t pending; /* lists that are not complete */
	int32_t status;   /* 0, or the first error as -errno; the owner sets both to 0 at first */
};

enum fabric_rights {
	FABRIC_MAY_READ = 1u << 0,
	FABRIC_MAY_WRITE = 1u << 1,
	FABRIC_MAY_ATOMIC = 1u << 2,
};

struct fabric_limits {
	uint32_t max_ops; /* operations in one post; a list operation counts its `count`; at least 16 */
	uint32_t outstanding_reads;  /* per endpoint, READs and atomics */
	uint32_t inline_bytes;       /* largest FABRIC_INLINE */
	uint64_t max_transfer_bytes; /* of one READ or WRITE; at least 64 KiB */
	bool fate_known;             /* a broken endpoint leaves no operation in doubt */
	bool atomics_with_cpu;       /* atomics are atomic with respect to the server's CPU too */
};

/*
 * What a server registers: part of its arena. fd is the file behind it, or -1; the caller keeps
 * all of it until unregistered.
 */
struct fabric_memory {
	void *base;
	uint64_t len_bytes;
	uint64_t ready_bytes; /* what memory is behind; it may grow. 0: all */
	int fd;
	void *handle; /* the fabric's */
};

enum fabric_event_kind {
	FABRIC_CONNECTED = 1, /* a new peer; the endpoint is the server's to close */
	FABRIC_MESSAGE,       /* endpoint sent len_bytes, in `message` */
	FABRIC_CLOSED,        /* endpoint's peer is gone or going: cut it, then close it */
	FABRIC_BROKEN,        /* the connection is gone, the peer may live: cut it, then close it */
};

struct fabric_event {
	uint32_t kind;
	uint32_t len_bytes;
	struct fabric_endpoint *endpoint;
	unsigned char message[FABRIC_MAX_MESSAGE_BYTES];
};

struct fabric {
	const struct fabric_ops *ops;
	uint64_t lease_ns; /* server: how soon a silent peer is noticed; set before listening, 0: 5 s */
	bool grants_ready; /* a grant covers what is ready then: grant again what has grown */
	bool sees_deaths; /* fabric_peer_gone() knows; else a silent peer is dead when its lease ends */
};

struct fabric_endpoint {
	const struct fabric_ops *ops;
	struct fabric *fabric; /* that it belongs to */
	struct fabric_limits limits;
	const char *address;  /* of the peer, for people */
	void *user;           /* the caller's, NULL at first */
	uint32_t outstanding; /* lists posted and not complete: kept up by the fabric */
	uint32_t crowd; /* the caller's: how many may wait at the peer beside it, for fabrics that READ; 0 */
};

struct fabric_listener {
	const struct fabric_ops *ops;
	char address[256]; /* that peers connect to */
};

struct fabric_ops {
	const char *name;
	void (*close)(struct fabric *);
	uint64_t (*now)(struct fabric *);
	void (*sleep)(struct fabric *, uint64_t deadline_ns);
	int (*register_memory)(struct fabric *, struct fabric_memory *);
	void (*unregister_memory)(struct fabric *, struct fabric_memory *);

	int (*buffer_open)(struct fabric *, void *base, uint64_t len_bytes);
	void (*buffer_close)(struct fabric *, void *base);

	int (*listen)(struct fabric *, const char *address, struct fabric_listener **);
	void (*listener_close)(struct fabric_listener *);
	int (*next_event)(struct fabric_listener *, struct fabric_event *);
	int (*wait)(struct fabric_listener *, uint64_t deadline_ns);
	void (*wake)(struct fabric_listener *);
	void (*notify)(struct fabric_listener *, uint32_t region, uint64_t offset);
	int (*loopback)(struct fabric_listener *, struct fabric_endpoint **);
	bool (*peer_gone)(struct fabric_listener *, const unsigned char identity[FABRIC_IDENTITY_BYTES]);

	int (*grant)(struct fabric_endpoint *, uint32_t region, const struct fabric_memory *,
		     uint32_t rights);
	void (*identity)(struct fabric_endpoint *, unsigned char identity[FABRIC_IDENTITY_BYTES]);
	int (*cut)(struct fabric_endpoint *);

	int (*connect)(struct fabric *, const char *address, uint64_t deadline_ns,
		       struct fabric_endpoint **);
	int (*send)(struct fabric_endpoint *, const void *message, uint32_t len_bytes);
	int (*recv)(struct fabric_endpoint *, void *message, uint32_t len_bytes, uint64_t deadline_ns);
	int (*check)(struct fabric_endpoint *);
	const void *(*map)(struct fabric_endpoint *, uint32_t region, uint64_t offset, uint64_t len_bytes);
	void (*abort)(struct fabric_endpoint *);
	void (*endpoint_close)(struct fabric_endpoint *);

	int (*post)(struct fabric_endpoint *, const struct fabric_op *, uint32_t n,
		    struct fabric_completion *);
	int (*poll)(struct fabric_endpoint *, uint64_t deadline_ns);
	int (*wait_word)(struct fabric_endpoint *, uint32_t region, uint64_t offset, uint64_t seen,
			 uint64_t *value, uint64_t deadline_ns);
};

extern const struct fabric_ops fabric_defaults;

/* Both sides */

/* Closes the fabric. All its endpoints and listeners must be closed before. */
static inline void fabric_close(struct fabric *fabric)
{
	fabric->ops->close(fabric);
}

/*
 * Nanoseconds of the fabric's monotonic clock; every deadline_ns is on it, BASE_FOREVER waits for
 * ever and 0 not at all.
 */
static inline uint64_t fabric_now(struct fabric *fabric)
{
	return fabric->ops->now(fabric);
}

/*
 * Lets time pass until the deadline, for what can only be asked again: a server that is not there
 * yet.
 */
static inline void fabric_sleep(struct fabric *fabric, uint64_t deadline_ns)
{
	fabric->ops->sleep(fabric, deadline_ns);
}

/*
 * Sends one message of 1 .. FABRIC_MAX_MESSAGE_BYTES. In order, whole. -EAGAIN: the peer does not
 * take messages now.
 */
static inline int fabric_send(struct fabric_endpoint *ep, const void *message, uint32_t len_bytes)
{
	return ep->ops->send(ep, message, len_bytes);
}

/*
 * Closes and frees an endpoint. Outstanding lists complete with -ENOTCONN before it returns.
 * Never blocks.
 */
static inline void fabric_endpoint_close(struct fabric_endpoint *ep)
{
	ep->ops->endpoint_close(ep);
}

/*
 * Takes local memory back from what is under way: outstanding lists complete with -ENOTCONN before it
 * returns, and the endpoint is broken. The peer is not told: for it the connection broke, and did not
 * close. Never blocks.
 */
static inline void fabric_abort(struct fabric_endpoint *ep)
{
	ep->ops->abort(ep);
}

/*
 * Tells the fabric of local memory that operations will often use, so that it need not copy. It holds
 * for all endpoints of this fabric until closed, or the fabric is. Where any memory is as good, this
 * does nothing. -ENOMEM, -EINVAL (not within memory known already), -ENOSPC (too many).
 */
static inline int fabric_buffer_open(struct fabric *fabric, void *base, uint64_t len_bytes)
{
	return fabric->ops->buffer_open(fabric, base, len_bytes);
}

/* No operation may be under way in it. */
static inline void fabric_buffer_close(struct fabric *fabric, void *base)
{
	fabric->ops->buffer_close(fabric, base);
}

/* Server */

/* Makes memory grantable. base is page-aligned. -ENOMEM, -EINVAL. */
static inline int fabric_register(struct fabric *fabric, struct fabric_memory *memory)
{
	return fabric->ops->register_memory(fabric, memory);
}

static inline void fabric_unregister(struct fabric *fabric, struct fabric_memory *memory)
{
	fabric->ops->unregister_memory(fabric, memory);
}

/* -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL, -EACCES, -EMFILE, -ENOSPC. */
static inline int fabric_listen(struct fabric *fabric, const char *address,
				struct fabric_listener **listener)
{
	return fabric->ops->listen(fabric, address, listener);
}

/* All endpoints accepted from it must be closed before. */
static inline void fabric_listener_close(struct fabric_listener *listener)
{
	listener->ops->listener_close(listener);
}

/*
 * Takes the next event. 1: *event is set; 0: there is none now; an error: none can come any more.
 * Never blocks.
 */
static inline int fabric_next_event(struct fabric_listener *listener, struct fabric_event *event)
{
	return listener->ops->next_event(listener, event);
}

/*
 * Sleeps until there may be an event, somebody calls fabric_wake(), or the deadline: 0 in each
 * case.
 */
static inline int fabric_wait(struct fabric_listener *listener, uint64_t deadline_ns)
{
	return listener->ops->wait(listener, deadline_ns);
}

static inline void fabric_wake(struct fabric_listener *listener)
{
	listener->ops->wake(listener);
}

/* After the server's CPU stored to a word of a granted region: wakes whoever waits on it. */
static inline void fabric_notify(struct fabric_listener *listener, uint32_t region, uint64_t offset)
{
	listener->ops->notify(listener, region, offset);
}

/*
 * An endpoint to the server's own memory. Regions are granted on it as on any; it is closed
 * before the listener.
 */
static inline int fabric_loopback(struct fabric_listener *listener, struct fabric_endpoint **ep)
{
	return listener->ops->loopback(listener, ep);
}

/*
 * Gives the endpoint's peer the rights (enum fabric_rights) on registered memory as region
 * `region`, below FABRIC_MAX_REGIONS. The peer may use it when it has received a message sent later.
 * Each region once; where fabric.grants_ready, again with the same memory when more of it is ready.
 */
static inline int fabric_grant(struct fabric_endpoint *ep, uint32_t region,
			       const struct fabric_memory *memory, uint32_t rights)
{
	return ep->ops->grant(ep, region, memory, rights);
}

/* Who the peer is, in bytes that a restarted server can ask fabric_peer_gone() about. */
static inline void fabric_identity(struct fabric_endpoint *ep,
				   unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	ep->ops->identity(ep, identity);
}

/*
 * Whether the process of a peer that an earlier life of this server knew has ended, so that nothing
 * of it can land any more. False where the fabric can't tell (fabric.sees_deaths). Never blocks.
 */
static inline bool fabric_peer_gone(struct fabric_listener *listener,
				    const unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	return listener->ops->peer_gone(listener, identity);
}

/*
 * Ends the peer's access. 0: nothing that it posted on this endpoint can land any more. -EAGAIN:
 * it still can; ask again. Where memory can't be taken back from a live process, that process is
 * killed, unless it closed the endpoint itself. Never blocks.
 */
static inline int fabric_cut(struct fabric_endpoint *ep)
{
	return ep->ops->cut(ep);
}

/* Worker */

/*
 * Connects. -ECONNREFUSED: nobody listens there (at once, not at the deadline). -ETIMEDOUT,
 * -EINVAL (no such form of address), -EACCES, -EMFILE. The text of the error names the address.
 */
static inline int fabric_connect(struct fabric *fabric, const char *address, uint64_t deadline_ns,
				 struct fabric_endpoint **ep)
{
	return fabric->ops->connect(fabric, address, deadline_ns, ep);
}

/*
 * Receives one message, of at most len_bytes. Returns its length. -EAGAIN: none before the
 * deadline. -EMSGSIZE, -ENOTCONN.
 */
static inline int fabric_recv(struct fabric_endpoint *ep, void *message, uint32_t len_bytes,
			      uint64_t deadline_ns)
{
	return ep->ops->recv(ep, message, len_bytes, deadline_ns);
}

/* 0 or -ENOTCONN: looks whether the peer is still there. May be a system call. */
static inline int fabric_check(struct fabric_endpoint *ep)
{
	return ep->ops->check(ep);
}

/*
 * A pointer to a region's memory for plain loads, or NULL where the fabric has none or the range
 * is not readable. Holds until every endpoint of this fabric to that memory is closed.
 */
static inline const void *fabric_map(struct fabric_endpoint *ep, uint32_t region, uint64_t offset,
				     uint64_t len_bytes)
{
	return ep->ops->map(ep, region, offset, len_bytes);
}

/*
 * Posts n operations, 1 .. limits.max_ops, as one list. All or nothing:
 * -EAGAIN    no room now: poll and try again
 * -EACCES    the region is not granted or lacks the right
 * -ERANGE    beyond the region's end
 * -EINVAL    misaligned, no such opcode, too many
 * -ENOTCONN
 */
static inline int fabric_post(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
			      struct fabric_completion *completion)
{
	return ep->ops->post(ep, ops, n, completion);
}

/*
 * Makes progress; returns when at least one list completed since the last call, or none is
 * outstanding, or the deadline: 0.
 */
static inline int fabric_poll(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	return ep->ops->poll(ep, deadline_ns);
}

/*
 * Returns 0 when the word at `offset` of `region` differs from `seen`, with its value in *value.
 * -ETIMEDOUT (the value is stored too), -ENOTCONN within a second of the peer's death, and what
 * fabric_post() says of a READ of this word. Sees the effect of this endpoint's earlier operations.
 */
static inline int fabric_wait_word(struct fabric_endpoint *ep, uint32_t region, uint64_t offset,
				   uint64_t seen, uint64_t *value, uint64_t deadline_ns)
{
	return ep->ops->wait_word(ep, region, offset, seen, value, deadline_ns);
}

/* For fabrics */

/* Where any local memory is as good as registered. */
int fabric_any_buffer_open(struct fabric *fabric, void *base, uint64_t len_bytes);
void fabric_any_buffer_close(struct fabric *fabric, void *base);

/* What a wait by READs keeps in its endpoint: a READ may outlast the call that posted it. */
struct fabric_reading {
	struct fabric_completion completion;
	uint64_t word;
};

struct fabric_wait {
	uint32_t region;
	uint64_t offset, seen, deadline_ns;
};

/*
 * fabric_wait_word() for a fabric that has to READ the word again and again, ever less often the
 * longer it takes, as every READ is load on the server's device. READs once whatever the deadline:
 * that may take FABRIC_READING_NS longer.
 */
int fabric_wait_by_reading(struct fabric_endpoint *ep, struct fabric_reading *reading,
			   const struct fabric_wait *wait, uint64_t *value);

#define FABRIC_READING_NS 20000000ull

/* For all */

/*
 * Posts a list and polls until `completion` has nothing pending. Returns its status, and clears
 * it.
 * -ETIMEDOUT: the list is still under way; the completion and all local memory stay the fabric's
 * until a later call with this completion returns something else, or the endpoint is closed. A
 * call waits for what an earlier one left pending before it posts its own list.
 */
int fabric_execute(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
		   struct fabric_completion *completion, uint64_t deadline_ns);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What stands in for the operations that a fabric lacks, and what all fabrics share. */
#include <errno.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/fabric.h"

static int lacks(const char *operation)
{
	return base_fail(-EOPNOTSUPP, "this fabric can't %s", operation);
}

static void default_close(struct fabric *fabric)
{
	(void)fabric;
}

static uint64_t default_now(struct fabric *fabric)
{
	(void)fabric;
	return 0;
}

static void default_sleep(struct fabric *fabric, uint64_t deadline_ns)
{
	(void)fabric, (void)deadline_ns;
}

static int default_register_memory(struct fabric *fabric, struct fabric_memory *memory)
{
	(void)fabric, (void)memory;
	return lacks("register memory");
}

static void default_unregister_memory(struct fabric *fabric, struct fabric_memory *memory)
{
	(void)fabric, (void)memory;
}

int fabric_any_buffer_open(struct fabric *fabric, void *base, uint64_t len_bytes)
{
	(void)fabric, (void)base, (void)len_bytes;
	return 0; /* any memory is as good */
}

void fabric_any_buffer_close(struct fabric *fabric, void *base)
{
	(void)fabric, (void)base;
}

static int default_listen(struct fabric *fabric, const char *address, struct fabric_listener **listener)
{
	(void)fabric, (void)address, (void)listener;
	return lacks("listen");
}

static void default_listener_close(struct fabric_listener *listener)
{
	(void)listener;
}

static int default_next_event(struct fabric_listener *listener, struct fabric_event *event)
{
	(void)listener, (void)event;
	return lacks("take events");
}

static int default_wait(struct fabric_listener *listener, uint64_t deadline_ns)
{
	(void)listener, (void)deadline_ns;
	return lacks("wait for events");
}

static void default_wake(struct fabric_listener *listener)
{
	(void)listener;
}

static void default_notify(struct fabric_listener *listener, uint32_t region, uint64_t offset)
{
	(void)listener, (void)region, (void)offset;
}

static int default_loopback(struct fabric_listener *listener, struct fabric_endpoint **ep)
{
	(void)listener, (void)ep;
	return lacks("connect to itself");
}

/* Where nobody can tell, it is not safe to say so. */
static bool default_peer_gone(struct fabric_listener *listener,
			      const unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	(void)listener, (void)identity;
	return false;
}

static int default_grant(struct fabric_endpoint *ep, uint32_t region,
			 const struct fabric_memory *memory, uint32_t rights)
{
	(void)ep, (void)region, (void)memory, (void)rights;
	return lacks("grant memory");
}

static void default_identity(struct fabric_endpoint *ep, unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	(void)ep;
	for (int i = 0; i < FABRIC_IDENTITY_BYTES; i++)
		identity[i] = 0;
}

static int default_cut(struct fabric_endpoint *ep)
{
	(void)ep;
	return lacks("cut a peer off");
}

static int default_connect(struct fabric *fabric, const char *address, uint64_t deadline_ns,
			   struct fabric_endpoint **ep)
{
	(void)fabric, (void)address, (void)deadline_ns, (void)ep;
	return lacks("connect");
}

static int default_send(struct fabric_endpoint *ep, const void *message, uint32_t len_bytes)
{
	(void)ep, (void)message, (void)len_bytes;
	return lacks("send messages");
}

static int default_recv(struct fabric_endpoint *ep, void *message, uint32_t len_bytes, uint64_t deadline_ns)
{
	(void)ep, (void)message, (void)len_bytes, (void)deadline_ns;
	return lacks("receive messages");
}

static int default_check(struct fabric_endpoint *ep)
{
	(void)ep;
	return lacks("check a peer");
}

static const void *default_map(struct fabric_endpoint *ep, uint32_t region, uint64_t offset,
			       uint64_t len_bytes)
{
	(void)ep, (void)region, (void)offset, (void)len_bytes;
	return NULL;
}

static void default_endpoint_close(struct fabric_endpoint *ep)
{
	(void)ep;
}

static int default_post(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
			struct fabric_completion *completion)
{
	(void)ep, (void)ops, (void)n, (void)completion;
	return lacks("post operations");
}

static void default_abort(struct fabric_endpoint *ep)
{
	(void)ep; /* nothing can be outstanding */
}

static int default_poll(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	(void)ep, (void)deadline_ns;
	return 0; /* nothing can be outstanding */
}

static int default_wait_word(struct fabric_endpoint *ep, uint32_t region, uint64_t offset,
			     uint64_t seen, uint64_t *value, uint64_t deadline_ns)
{
	(void)ep, (void)region, (void)offset, (void)seen, (void)value, (void)deadline_ns;
	return lacks("wait on a word");
}

const struct fabric_ops fabric_defaults = {
	.name = "default",
	.close = default_close,
	.now = default_now,
	.sleep = default_sleep,
	.register_memory = default_register_memory,
	.unregister_memory = default_unregister_memory,
	.buffer_open = fabric_any_buffer_open,
	.buffer_close = fabric_any_buffer_close,
	.listen = default_listen,
	.listener_close = default_listener_close,
	.next_event = default_next_event,
	.wait = default_wait,
	.wake = default_wake,
	.notify = default_notify,
	.loopback = default_loopback,
	.peer_gone = default_peer_gone,
	.grant = default_grant,
	.identity = default_identity,
	.cut = default_cut,
	.connect = default_connect,
	.send = default_send,
	.recv = default_recv,
	.check = default_check,
	.map = default_map,
	.abort = default_abort,
	.endpoint_close = default_endpoint_close,
	.post = default_post,
	.poll = default_poll,
	.wait_word = default_wait_word,
};

/* One poll of a wait: 0 to go on, -ETIMEDOUT, or why the endpoint can't. */
static int poll_on(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	int ret = fabric_poll(ep, deadline_ns);

	if (ret < 0)
		return ret;
	if (deadline_ns != BASE_FOREVER && fabric_now(ep->fabric) >= deadline_ns)
		return base_fail(-ETIMEDOUT, "operations on %s are still under way", ep->address);
	return 0;
}

/* Waits until nothing is pending, and takes the status. */
static int finish(struct fabric_endpoint *ep, struct fabric_completion *completion, uint64_t deadline_ns)
{
	int ret;

	while (completion->pending) {
		ret = poll_on(ep, deadline_ns);
		if (ret && completion->pending)
			return ret;
	}
	ret = completion->status;
	completion->status = 0;
	return ret;
}

int fabric_execute(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
		   struct fabric_completion *completion, uint64_t deadline_ns)
{
	int ret;

	if (completion->pending) {
		ret = finish(ep, completion, deadline_ns);
		if (ret)
			return ret;
	}
	for (;;) {
		ret = fabric_post(ep, ops, n, completion);
		if (ret != -EAGAIN)
			break;
		ret = poll_on(ep, deadline_ns);
		if (ret)
			return ret;
	}
	return ret < 0 ? ret : finish(ep, completion, deadline_ns);
}

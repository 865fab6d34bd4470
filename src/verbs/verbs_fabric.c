/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric over verbs: what begins and ends.
 *
 * A peer has two kinds of connections to a server, all reliable ones of librdmacm. The control
 * connection carries the handshake and messages; its queue pair is in a protection domain that holds
 * nothing but message buffers, so that a stranger who gets that far reaches nothing. The data connections,
 * one by default, are in the domain of the arena's memory and are accepted from those only who proved on
 * the control connection that they have the job's key:
 *
 *   client                                  server
 *   request: nonce                     ->
 *                                      <-   answer: nonce, HMAC "server" over both
 *   PROOF: HMAC "client", who it is    ->
 *                                      <-   WELCOME: session, number of data connections
 *   request of each data connection:
 *   session, index, HMAC "data" with
 *   the number of its queue pair       ->
 *                                      <-   answer
 *   READY                              ->                                    FABRIC_CONNECTED
 *
 * A session is good for each data connection once, and until the connection has become one or its time is
 * up. Those who have not proved themselves are limited in number and time, and the oldest goes first.
 *
 * To cut a peer is to destroy its data queue pairs, which is done when ibv_destroy_qp() returns: whatever
 * is under way finds nobody. No call waits for the peer. An endpoint's ids are destroyed after that; the
 * kernel then says goodbye to the other side by itself.
 *
 * A process knows of its peer's end by what the connection manager says (the kernel disconnects what a
 * process leaves behind), by VERBS_BYE, or by the silence of its device (verbs_channel.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "verbs/verbs_private.h"

#define POLLS_PER_LOOK 16u
#define LOOK_NS        (50 * NS_PER_MS)

static void fabric_free(struct fabric *base)
{
	struct verbs_fabric *fabric = (struct verbs_fabric *)base;

	if (!fabric)
		return;
	verbs_buffers_close(&fabric->buffers);
	verbs_device_close(&fabric->device);
	verbs_key_forget(&fabric->key);
	pthread_mutex_destroy(&fabric->lock);
	free(fabric);
}

static uint64_t now(struct fabric *fabric)
{
	(void)fabric;
	return base_now_ns();
}

static void sleep_until(struct fabric *fabric, uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};

	(void)fabric;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

int verbs_endpoint_new(struct verbs_fabric *fabric, enum verbs_role role, struct verbs_endpoint **result)
{
	struct verbs_endpoint *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return base_fail(-ENOMEM, "no memory");
	ep->base.ops = &verbs_ops;
	ep->base.fabric = &fabric->base;
	ep->base.address = ep->address;
	ep->fabric = fabric;
	ep->role = role;
	ep->pid = getpid();
	ep->since_ns = base_now_ns();
	*result = ep;
	return 0;
}

void verbs_stop_data(struct verbs_endpoint *ep, const char *why)
{
	for (uint32_t i = 0; i < VERBS_MAX_DATA; i++) {
		if (ep->data_qps[i] && ibv_destroy_qp(ep->data_qps[i]))
			base_log(RAMPS_LOG_ERROR, "a queue pair of %s can't be destroyed: %s",
				 ep->address, strerrordesc_np(errno));
		else
			ep->data_qps[i] = NULL;
	}
	if (ep->role != VERBS_ACCEPTED)
		verbs_data_break(&ep->data, why);
	ep->base.outstanding = 0;
}

void verbs_endpoint_free(struct verbs_endpoint *ep)
{
	/* In a forked child all of it is the parent's, and the child's commands would reach it. */
	if (ep->pid != getpid()) {
		free(ep);
		return;
	}
	verbs_stop_data(ep, "it was closed");
	if (ep->role != VERBS_ACCEPTED)
		verbs_data_close(&ep->data);
	verbs_channel_close(&ep->channel);
	for (uint32_t i = 0; i < VERBS_MAX_DATA; i++)
		if (ep->data_ids[i])
			rdma_destroy_id(ep->data_ids[i]);
	if (ep->control_id)
		rdma_destroy_id(ep->control_id);
	if (ep->completions)
		ibv_destroy_comp_channel(ep->completions);
	if (ep->events)
		rdma_destroy_event_channel(ep->events);
	free(ep);
}

static void endpoint_close(struct fabric_endpoint *base)
{
	struct verbs_endpoint *ep = verbs_of(base);

	if (!ep)
		return;
	if (ep->pid == getpid() && ep->role == VERBS_ACCEPTED) {
		verbs_forget(ep->listener, ep);
		verbs_stop_data(ep, "it was closed");
		verbs_channel_send(&ep->channel, VERBS_BYE, NULL, 0);
		verbs_channel_poll(&ep->channel);
		if (!ep->left && !verbs_channel_idle(&ep->channel)) {
			verbs_linger(ep->listener, ep);
			return;
		}
	}
	if (ep->pid == getpid() && ep->role == VERBS_CLIENT)
		verbs_leave(ep);
	verbs_endpoint_free(ep);
}

int verbs_gone(struct verbs_endpoint *ep)
{
	if (ep->role == VERBS_CLIENT)
		verbs_stop_data(ep, ep->left ? "the server is gone; connect again" :
					       "the connection broke; connect again");
	if (ep->left || !ep->channel.broken || !*ep->channel.why)
		return base_fail(-ENOTCONN, "%s is gone; connect again", ep->address);
	return base_fail(-ENOTCONN, "the connection to %s broke: %s; connect again", ep->address,
			 ep->channel.why);
}

static int grant(struct fabric_endpoint *base, uint32_t region, const struct fabric_memory *memory,
		 uint32_t rights)
{
	const uint32_t all = FABRIC_MAY_READ | FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC;
	struct verbs_endpoint *ep = verbs_of(base);
	struct verbs_grant given = {
		.region = region,
		.rights = rights,
		.address = (uintptr_t)memory->base,
	};
	uint32_t i;
	int ret;

	if (ep->role == VERBS_CLIENT)
		return base_fail(-EOPNOTSUPP, "a client has nothing to grant");
	if (region >= FABRIC_MAX_REGIONS || !rights || rights & ~all || !memory->handle)
		return base_fail(-EINVAL, "grant of region %u: not registered, or out of range", region);
	if (ep->granted & 1u << region && !memory->ready_bytes)
		return base_fail(-EINVAL, "grant of region %u: granted before", region);
	if (ep->state == VERBS_ENDED || ep->channel.broken)
		return verbs_gone(ep);
	ret = verbs_memory_key(ep->fabric, memory, rights, &given);
	if (ret)
		return ret;
	ep->granted |= 1u << region;
	if (ep->role == VERBS_LOOPBACK) {
		verbs_half_grant(ep, &given);
		return 0;
	}
	for (i = 0; i < ep->channel.given_count; i++)
		if (ep->channel.given[i].region == region)
			break;
	ep->channel.given[i] = given;
	ep->channel.given_count += i == ep->channel.given_count;
	return 0;
}

/* What the device may still write here ends with the queue pair. */
static void endpoint_abort(struct fabric_endpoint *base)
{
	struct verbs_endpoint *ep = verbs_of(base);

	if (ep->role != VERBS_ACCEPTED && ep->pid == getpid())
		verbs_stop_data(ep, "the connection was given up; connect again");
}

static void identity(struct fabric_endpoint *base, unsigned char bytes[FABRIC_IDENTITY_BYTES])
{
	struct verbs_endpoint *ep = verbs_of(base);

	if (ep->role == VERBS_LOOPBACK)
		verbs_own_identity(bytes);
	else
		memcpy(bytes, ep->identity, FABRIC_IDENTITY_BYTES);
}

static int cut(struct fabric_endpoint *base)
{
	struct verbs_endpoint *ep = verbs_of(base);

	if (ep->role != VERBS_ACCEPTED)
		return ep->role == VERBS_LOOPBACK ? 0 : base_fail(-EOPNOTSUPP, "only a server cuts");
	verbs_forget(ep->listener, ep);
	verbs_stop_data(ep, "it was closed");
	for (uint32_t i = 0; i < VERBS_MAX_DATA; i++)
		if (ep->data_qps[i])
			return base_fail(-EAGAIN, "%s is not cut off yet", ep->address);
	return 0;
}

static int post(struct fabric_endpoint *base, const struct fabric_op *ops, uint32_t n,
		struct fabric_completion *completion)
{
	struct verbs_endpoint *ep = verbs_of(base);
	int ret = verbs_data_post(&ep->data, ops, n, completion);

	base->outstanding = ep->data.lists;
	return ret;
}

/*
 * A device that is being removed goes on working until nobody has it open, and a server that closed may
 * leave its queue pair behind for a while: what is said of that is looked for now and then.
 */
static void look_around(struct verbs_endpoint *ep)
{
	uint64_t now_ns;

	if (++ep->polls % POLLS_PER_LOOK)
		return;
	now_ns = base_now_ns();
	if (now_ns < ep->look_ns)
		return;
	ep->look_ns = now_ns + LOOK_NS;
	verbs_check(&ep->base);
}

static int poll_data(struct fabric_endpoint *base, uint64_t deadline_ns)
{
	struct verbs_endpoint *ep = verbs_of(base);
	int ret;

	look_around(ep);
	ret = verbs_data_poll(&ep->data, deadline_ns);
	base->outstanding = ep->data.lists;
	return ret;
}

static int wait_word(struct fabric_endpoint *base, uint32_t region, uint64_t offset, uint64_t seen,
		     uint64_t *value, uint64_t deadline_ns)
{
	const struct fabric_wait wait = { region, offset, seen, deadline_ns };

	return verbs_data_wait_word(&verbs_of(base)->data, base, &wait, value);
}

/* Waiters READ: nobody has to be woken. */
static void notify(struct fabric_listener *listener, uint32_t region, uint64_t offset)
{
	(void)listener, (void)region, (void)offset;
}

/* Whether a process on another machine has ended, nobody can tell who has no connection to it. */
static bool peer_gone(struct fabric_listener *listener, const unsigned char bytes[FABRIC_IDENTITY_BYTES])
{
	(void)listener, (void)bytes;
	return false;
}

static const void *map(struct fabric_endpoint *ep, uint32_t region, uint64_t offset, uint64_t len_bytes)
{
	(void)ep, (void)region, (void)offset, (void)len_bytes;
	return NULL;
}

const struct fabric_ops verbs_ops = {
	.name = "verbs",
	.close = fabric_free,
	.now = now,
	.sleep = sleep_until,
	.register_memory = verbs_register,
	.unregister_memory = verbs_unregister,
	.buffer_open = verbs_buffer_open,
	.buffer_close = verbs_buffer_close,
	.listen = verbs_listen,
	.listener_close = verbs_listener_close,
	.next_event = verbs_next_event,
	.wait = verbs_wait,
	.wake = verbs_wake,
	.notify = notify,
	.loopback = verbs_loopback,
	.peer_gone = peer_gone,
	.grant = grant,
	.identity = identity,
	.cut = cut,
	.connect = verbs_connect,
	.send = verbs_send,
	.recv = verbs_recv,
	.check = verbs_check,
	.map = map,
	.abort = endpoint_abort,
	.endpoint_close = endpoint_close,
	.post = post,
	.poll = poll_data,
	.wait_word = wait_word,
};

int verbs_open_fabric(struct fabric **result)
{
	struct verbs_fabric *fabric = calloc(1, sizeof(*fabric));
	int ret;

	if (!fabric)
		return base_fail(-ENOMEM, "no memory");
	fabric->base.ops = &verbs_ops;
	fabric->base.grants_ready = true;
	pthread_mutex_init(&fabric->lock, NULL);
	ret = verbs_options_parse(getenv("RAMPS_VERBS"), &fabric->options);
	if (!ret)
		ret = verbs_key_load(&fabric->key);
	if (ret) {
		fabric_free(&fabric->base);
		return ret;
	}
	/* Before the first registration, or a fork takes registered pages from under the device. */
	ibv_fork_init();
	*result = &fabric->base;
	return 0;
}

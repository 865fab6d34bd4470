/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric's table of operations, and what its objects are made of and end with. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/sim_private.h"

static struct sim_process *process_of(struct fabric *fabric)
{
	return ((struct sim_fabric *)fabric)->process;
}

static void fabric_end(struct sim_fabric *fabric)
{
	LIST_REMOVE(fabric, link);
	sim_free(fabric->process->sim, fabric, sizeof(*fabric));
}

static void close_fabric(struct fabric *fabric)
{
	if (fabric)
		fabric_end((struct sim_fabric *)fabric);
}

static uint64_t now(struct fabric *fabric)
{
	return sim_time_of(process_of(fabric));
}

static void sleep_until(struct fabric *fabric, uint64_t deadline_ns)
{
	struct sim_process *process = process_of(fabric);
	uint64_t until = sim_later(deadline_ns, process->sim->now + SIM_POLL_NS);

	do {
		sim_block(process, NULL, until);
	} while (process->sim->now < until);
}

static int register_memory(struct fabric *fabric, struct fabric_memory *memory)
{
	struct sim_process *process = process_of(fabric);
	struct sim_memory *made;

	if (!memory->base || (uintptr_t)memory->base % 4096)
		return base_fail(-EINVAL, "memory to register does not begin with a page");
	made = sim_alloc(process->sim, sizeof(*made));
	*made = (struct sim_memory){
		.process = process,
		.base = memory->base,
		.len_bytes = memory->len_bytes,
		.valid = true,
	};
	LIST_INSERT_HEAD(&process->memories, made, link);
	memory->handle = made;
	return 0;
}

/* It stays, as connections may still know it. */
static void forget_memory(struct sim_memory *memory)
{
	LIST_REMOVE(memory, link);
	memory->valid = false;
}

static void unregister_memory(struct fabric *fabric, struct fabric_memory *memory)
{
	(void)fabric;
	if (memory->handle)
		forget_memory(memory->handle);
	memory->handle = NULL;
}

static bool peer_gone(struct fabric_listener *listener,
		      const unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	(void)listener, (void)identity;
	return false; /* as over a network: nobody can tell */
}

static void identity(struct fabric_endpoint *base, unsigned char to[FABRIC_IDENTITY_BYTES])
{
	const struct sim_process *process = ((struct sim_endpoint *)base)->connection->client_process;

	memset(to, 0, FABRIC_IDENTITY_BYTES);
	snprintf((char *)to, FABRIC_IDENTITY_BYTES, "sim %u %" PRIu64, process->device->node,
		 process->id);
}

static void notify(struct fabric_listener *listener, uint32_t region, uint64_t offset)
{
	(void)listener, (void)region, (void)offset; /* who waits READs */
}

static const void *map(struct fabric_endpoint *ep, uint32_t region, uint64_t offset, uint64_t len_bytes)
{
	(void)ep, (void)region, (void)offset, (void)len_bytes;
	return NULL;
}

static int wait_word(struct fabric_endpoint *base, uint32_t region, uint64_t offset, uint64_t seen,
		     uint64_t *value, uint64_t deadline_ns)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	const struct fabric_wait wait = {
		.region = region,
		.offset = offset,
		.seen = seen,
		.deadline_ns = deadline_ns,
	};
	const struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = (uint16_t)region,
		.offset = offset,
		.len_bytes = sizeof(uint64_t),
	};

	if (ep->is_broken)
		return sim_refuse_op(ep, &op, -ENOTCONN);
	if (region >= FABRIC_MAX_REGIONS)
		return sim_refuse_op(ep, &op, -EACCES);
	if (offset % sizeof(uint64_t))
		return sim_refuse_op(ep, &op, -EINVAL);
	return fabric_wait_by_reading(base, &ep->reading, &wait, value);
}

const struct fabric_ops sim_ops = {
	.name = "sim",
	.close = close_fabric,
	.now = now,
	.sleep = sleep_until,
	.register_memory = register_memory,
	.unregister_memory = unregister_memory,
	.listen = sim_listen,
	.listener_close = sim_listener_close,
	.next_event = sim_next_event,
	.wait = sim_wait,
	.wake = sim_wake_listener,
	.notify = notify,
	.loopback = sim_loopback,
	.peer_gone = peer_gone,
	.grant = sim_grant,
	.identity = identity,
	.cut = sim_cut,
	.connect = sim_connect,
	.send = sim_send,
	.recv = sim_recv,
	.check = sim_check,
	.map = map,
	.abort = sim_abort,
	.endpoint_close = sim_endpoint_close,
	.post = sim_post,
	.poll = sim_poll,
	.wait_word = wait_word,
};

int sim_open_fabric(struct fabric **result)
{
	struct sim_process *process = sim_self();
	struct sim_fabric *fabric;

	if (!process)
		return base_fail(-EINVAL, "no process of a simulated world is running");
	fabric = sim_alloc(process->sim, sizeof(*fabric));
	*fabric = (struct sim_fabric){
		.base = { .ops = &sim_ops, .lease_ns = process->sim->options.lease_ns },
		.process = process,
	};
	LIST_INSERT_HEAD(&process->fabrics, fabric, link);
	*result = &fabric->base;
	return 0;
}

static void nothing(struct sim *sim, struct sim_event *event)
{
	(void)sim, (void)event;
}

struct sim_connection *sim_connection_new(struct sim *sim, struct sim_process *client)
{
	struct sim_connection *c = sim_alloc(sim, sizeof(*c));

	memset(c, 0, sizeof(*c));
	c->sim = sim;
	c->id = ++sim->next_connection;
	c->client_process = client;
	c->source = client->device;
	c->max_lists = sim->max_lists;
	TAILQ_INIT(&c->ops);
	TAILQ_INIT(&c->lists);
	TAILQ_INIT(&c->done);
	c->completion.run = sim_complete;
	c->loss.run = nothing;
	LIST_INSERT_HEAD(&sim->connections, c, all);
	return c;
}

struct sim_endpoint *sim_endpoint_new(struct sim_fabric *fabric, struct sim_connection *connection)
{
	struct sim_process *process = fabric->process;
	struct sim_endpoint *ep = sim_alloc(process->sim, sizeof(*ep));

	memset(ep, 0, sizeof(*ep));
	ep->base.ops = &sim_ops;
	ep->base.fabric = &fabric->base;
	ep->base.limits = process->sim->limits;
	ep->base.address = ep->address;
	ep->process = process;
	ep->connection = connection;
	TAILQ_INIT(&ep->notes);
	LIST_INSERT_HEAD(&process->endpoints, ep, link);
	return ep;
}

void sim_endpoint_free(struct sim_endpoint *ep)
{
	struct sim_note *note;

	while ((note = TAILQ_FIRST(&ep->notes)))
		sim_note_free(note);
	LIST_REMOVE(ep, link);
	sim_free(ep->process->sim, ep, sizeof(*ep));
}

void sim_endpoint_close(struct fabric_endpoint *base)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c;

	if (!ep)
		return;
	c = ep->connection;
	if (!ep->is_server || ep->is_loopback) {
		if (!c->client_gone) {
			sim_lose(c);
			if (!ep->is_loopback)
				sim_tell_server(c, FABRIC_CLOSED, 0);
		}
		while (sim_deliver(ep))
			;
		c->client = NULL;
	}
	if (ep->is_server)
		sim_server_ended(c, false);
	sim_endpoint_free(ep);
}

uint64_t sim_fabrics_count(const struct sim_process *process)
{
	const struct sim_listener *listener;
	const struct sim_endpoint *ep;
	const struct sim_fabric *fabric;
	uint64_t count = 0;

	LIST_FOREACH(fabric, &process->fabrics, link)
	count++;
	LIST_FOREACH(ep, &process->endpoints, link)
	count++;
	LIST_FOREACH(listener, &process->listeners, link)
	count++;
	return count;
}

/* What a process leaves behind when it ends. */
void sim_fabrics_end(struct sim_process *process)
{
	struct sim_listener *listener;
	struct sim_endpoint *ep;

	while ((ep = LIST_FIRST(&process->endpoints))) {
		struct sim_connection *c = ep->connection;

		if (ep->is_server)
			sim_server_ended(c, true);
		if (!ep->is_server || ep->is_loopback)
			sim_client_died(c);
		sim_endpoint_free(ep);
	}
	while ((listener = LIST_FIRST(&process->listeners)))
		sim_listener_close(&listener->base);
	while (!LIST_EMPTY(&process->memories))
		forget_memory(LIST_FIRST(&process->memories));
	while (!LIST_EMPTY(&process->fabrics))
		fabric_end(LIST_FIRST(&process->fabrics));
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The server's side: listening, events, granting. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_private.h"

#define SCHEME "sim://"

int sim_address_check(const char *address, uint32_t *node)
{
	size_t scheme = strlen(SCHEME);
	unsigned long number;
	char *end;

	if (strncmp(address, SCHEME, scheme) != 0 || strlen(address) >= SIM_ADDRESS_BYTES)
		goto wrong;
	number = strtoul(address + scheme, &end, 10);
	if (end == address + scheme || *end != '/' || !end[1] || number > UINT32_MAX)
		goto wrong;
	*node = (uint32_t)number;
	return 0;
wrong:
	return base_fail(-EINVAL, "%s: an address is sim://NODE/NAME", address);
}

static struct sim_listener_list *bucket_of(struct sim *sim, const char *address)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (; *address; address++)
		hash = (hash ^ (unsigned char)*address) * 0x100000001b3ull;
	return &sim->listeners[hash % SIM_LISTENER_LISTS];
}

struct sim_listener *sim_listener_find(struct sim *sim, const char *address)
{
	struct sim_listener *listener;

	LIST_FOREACH(listener, bucket_of(sim, address), bucket)
	if (!strcmp(listener->base.address, address))
		return listener;
	return NULL;
}

int sim_listen(struct fabric *base, const char *address, struct fabric_listener **result)
{
	struct sim_fabric *fabric = (struct sim_fabric *)base;
	struct sim_process *process = fabric->process;
	struct sim *sim = process->sim;
	struct sim_listener *listener;
	uint32_t node;
	int ret = sim_address_check(address, &node);

	if (ret)
		return ret;
	if (node != process->device->node)
		return base_fail(-EADDRNOTAVAIL, "%s is not on node %u", address, process->device->node);
	if (sim_listener_find(sim, address))
		return base_fail(-EADDRINUSE, "another server has %s", address);
	listener = sim_alloc(sim, sizeof(*listener));
	*listener = (struct sim_listener){
		.base = { .ops = &sim_ops },
		.process = process,
		.fabric = fabric,
	};
	snprintf(listener->base.address, sizeof(listener->base.address), "%s", address);
	TAILQ_INIT(&listener->notes);
	LIST_INSERT_HEAD(&process->listeners, listener, link);
	LIST_INSERT_HEAD(bucket_of(sim, address), listener, bucket);
	process->is_server = true;
	sim_trace_as(sim, process->name, "listens at %s", address);
	*result = &listener->base;
	return 0;
}

void sim_listener_close(struct fabric_listener *base)
{
	struct sim_listener *l = (struct sim_listener *)base;
	struct sim_note *note;

	if (!l)
		return;
	while ((note = TAILQ_FIRST(&l->notes))) { /* of those that were not accepted */
		if (note->kind == FABRIC_CONNECTED)
			sim_refuse(note->connection);
		sim_note_free(note);
	}
	LIST_REMOVE(l, link);
	LIST_REMOVE(l, bucket);
	sim_free(l->process->sim, l, sizeof(*l));
}

static struct sim_endpoint *accept_client(struct sim_listener *l, struct sim_connection *c)
{
	struct sim_endpoint *ep = sim_endpoint_new(l->fabric, c);

	snprintf(ep->address, sizeof(ep->address), "%s", c->client_process->name);
	ep->is_server = true;
	c->server = ep;
	c->target = l->process->device;
	c->target->queue_pairs++;
	sim_accept(c);
	return ep;
}

int sim_next_event(struct fabric_listener *base, struct fabric_event *event)
{
	struct sim_listener *l = (struct sim_listener *)base;
	struct sim_note *note;

	while ((note = TAILQ_FIRST(&l->notes))) {
		struct sim_connection *c = note->connection;

		event->kind = note->kind;
		event->len_bytes = 0;
		if (note->kind == FABRIC_CONNECTED) {
			sim_note_free(note);
			if (c->client_gone)
				continue;
			event->endpoint = &accept_client(l, c)->base;
			return 1;
		}
		event->endpoint = &c->server->base;
		if (note->kind == FABRIC_MESSAGE) {
			event->len_bytes = note->len_bytes;
			memcpy(event->message, note->bytes, note->len_bytes);
		}
		sim_note_free(note);
		return 1;
	}
	return 0;
}

int sim_wait(struct fabric_listener *base, uint64_t deadline_ns)
{
	struct sim_listener *l = (struct sim_listener *)base;
	struct sim_process *process = l->process;

	if (TAILQ_EMPTY(&l->notes) && !l->is_woken)
		sim_block(process, l, sim_later(deadline_ns, process->sim->now + SIM_POLL_NS));
	l->is_woken = false;
	return 0;
}

void sim_wake_listener(struct fabric_listener *base)
{
	struct sim_listener *l = (struct sim_listener *)base;

	l->is_woken = true;
	sim_wake(l->process, l);
}

int sim_loopback(struct fabric_listener *base, struct fabric_endpoint **result)
{
	struct sim_listener *l = (struct sim_listener *)base;
	struct sim_connection *c = sim_connection_new(l->process->sim, l->process);
	struct sim_endpoint *ep = sim_endpoint_new(l->fabric, c);

	memcpy(ep->address, base->address, sizeof(ep->address));
	ep->is_server = ep->is_loopback = true;
	c->listener = l;
	c->client = c->server = ep;
	c->is_loopback = true;
	c->target = c->source;
	*result = &ep->base;
	return 0;
}

int sim_grant(struct fabric_endpoint *base, uint32_t region, const struct fabric_memory *memory,
	      uint32_t rights)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c = ep->connection;

	if (!ep->is_server || region >= FABRIC_MAX_REGIONS || !rights ||
	    c->granted & 1u << region || !memory->handle)
		return base_fail(-EINVAL, "region %u can't be granted to %s", region, base->address);
	c->regions[region] = (struct sim_region){ .memory = memory->handle, .rights = rights };
	c->granted |= 1u << region;
	if (ep->is_loopback)
		ep->known = c->granted;
	return 0;
}

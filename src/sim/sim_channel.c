/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connecting, and messages. What goes from one half to the other is a note: it arrives in the order
 * sent in its direction, and then waits to be taken. At most SIM_UNTAKEN messages are on their way to
 * a half or wait there.
 *
 * A connection request finds its listener when it arrives; the server's taking of the event is what
 * accepts it, so that a server that stands still answers nobody.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/sim_private.h"

#define LATE_TIMES 100

/* When a control message that is sent now arrives, after all before it. */
uint64_t sim_message_time(struct sim *sim, struct sim_connection *c, bool to_server)
{
	uint64_t way = sim->options.costs.message_ns;

	way += sim_random(sim, way / 2 + 1);
	if (sim_chance(sim, SIM_LATE_MESSAGE))
		way = sim_random_spread(sim, way, way * LATE_TIMES);
	c->arrival[to_server] = sim_later(sim->now + way, c->arrival[to_server] + 1);
	return c->arrival[to_server];
}

void sim_note_free(struct sim_note *note)
{
	struct sim_connection *c = note->connection;

	if (note->kind == FABRIC_MESSAGE)
		c->untaken[note->to_server]--;
	if (note->endpoint)
		TAILQ_REMOVE(&note->endpoint->notes, note, at_endpoint);
	if (note->at_listener.tqe_prev)
		TAILQ_REMOVE(&c->listener->notes, note, at_listener);
	sim_free_event(c->sim, note, sizeof(*note) + note->len_bytes);
}

static void to_endpoint(struct sim_endpoint *ep, struct sim_note *note)
{
	note->endpoint = ep;
	TAILQ_INSERT_TAIL(&ep->notes, note, at_endpoint);
}

static void to_listener(struct sim_listener *l, struct sim_note *note)
{
	TAILQ_INSERT_TAIL(&l->notes, note, at_listener);
	sim_wake(l->process, l);
}

static void arrive_at_server(struct sim *sim, struct sim_note *note);

static void arrive_at_client(struct sim *sim, struct sim_note *note)
{
	struct sim_connection *c = note->connection;
	struct sim_endpoint *ep = c->client;

	(void)sim;
	if (!ep) {
		sim_note_free(note);
		return;
	}
	if (note->kind == FABRIC_MESSAGE) {
		to_endpoint(ep, note);
		sim_wake(ep->process, ep);
		return;
	}
	if (note->kind == FABRIC_CONNECTED) {
		c->is_accepted = true;
		c->source->queue_pairs++;
	}
	c->is_refused |= note->kind == FABRIC_CLOSED;
	sim_note_free(note);
	sim_wake(ep->process, c);
}

static void note_arrived(struct sim *sim, struct sim_event *event)
{
	struct sim_note *note = sim_container(event, struct sim_note, event);

	if (note->to_server)
		arrive_at_server(sim, note);
	else
		arrive_at_client(sim, note);
}

static struct sim_note *new_note(struct sim_connection *c, uint32_t kind, bool to_server, uint32_t len_bytes)
{
	struct sim_note *note = sim_alloc_event(c->sim, sizeof(*note) + len_bytes);

	*note = (struct sim_note){
		.event = { .run = note_arrived },
		.connection = c,
		.kind = kind,
		.len_bytes = len_bytes,
		.to_server = to_server,
		.granted = c->granted,
	};
	return note;
}

/* Without bytes: an answer to a connection request. */
static void answer_client(struct sim_connection *c, uint32_t kind)
{
	struct sim_note *note = new_note(c, kind, false, 0);

	sim_schedule(c->sim, &note->event, sim_message_time(c->sim, c, false));
}

void sim_accept(struct sim_connection *c)
{
	answer_client(c, FABRIC_CONNECTED);
}

void sim_refuse(struct sim_connection *c)
{
	answer_client(c, FABRIC_CLOSED);
}

static void arrive_at_server(struct sim *sim, struct sim_note *note)
{
	struct sim_connection *c = note->connection;

	if (note->kind == FABRIC_CONNECTED) {
		c->listener = sim_listener_find(sim, (const char *)note->bytes);
		if (c->listener) {
			to_listener(c->listener, note);
			return;
		}
		sim_refuse(c);
		sim_note_free(note);
		return;
	}
	if (!c->server || c->server_told) {
		sim_note_free(note);
		return;
	}
	if (note->kind != FABRIC_MESSAGE) {
		c->server_told = true;
		sim_trace_as(sim, "net", "connection %llu: %s hears that it is %s",
			     (unsigned long long)c->id, c->server->process->name,
			     note->kind == FABRIC_CLOSED ? "closed" : "broken");
	}
	to_endpoint(c->server, note);
	to_listener(c->listener, note);
}

/*
 * The server will hear of the end, once: after what was sent before, and after delay_ns, or when a
 * message would come if that is 0.
 */
void sim_tell_server(struct sim_connection *c, uint32_t kind, uint64_t delay_ns)
{
	struct sim *sim = c->sim;
	struct sim_note *note;
	uint64_t at;

	if (c->is_cut || c->server_told)
		return;
	at = delay_ns ? sim_later(sim->now + delay_ns, c->arrival[1] + 1) :
			sim_message_time(sim, c, true);
	note = new_note(c, kind, true, 0);
	sim_schedule(sim, &note->event, at);
}

int sim_connect(struct fabric *base, const char *address, uint64_t deadline_ns,
		struct fabric_endpoint **result)
{
	struct sim_fabric *fabric = (struct sim_fabric *)base;
	struct sim_process *process = fabric->process;
	struct sim *sim = process->sim;
	uint32_t len_bytes = (uint32_t)strlen(address) + 1, node;
	struct sim_connection *c;
	struct sim_endpoint *ep;
	struct sim_note *note;
	int ret = sim_address_check(address, &node);

	if (ret)
		return ret;
	c = sim_connection_new(sim, process);
	c->target = sim_device_of(sim, node);
	ep = sim_endpoint_new(fabric, c);
	snprintf(ep->address, sizeof(ep->address), "%s", address);
	c->client = ep;
	note = new_note(c, FABRIC_CONNECTED, true, len_bytes);
	memcpy(note->bytes, address, len_bytes);
	sim_schedule(sim, &note->event, sim_message_time(sim, c, true));
	while (!c->is_accepted && !c->is_refused && sim->now < deadline_ns)
		sim_block(process, c, deadline_ns);
	if (c->is_accepted) {
		sim_trace_as(sim, process->name, "connection %llu to %s", (unsigned long long)c->id,
			     address);
		*result = &ep->base;
		return 0;
	}
	c->client = NULL;
	c->client_gone = true;
	sim_endpoint_free(ep);
	if (c->is_refused)
		return base_fail(-ECONNREFUSED, "nobody listens at %s: is the server running?", address);
	sim_tell_server(c, FABRIC_CLOSED, 0);
	return base_fail(-ETIMEDOUT, "%s did not answer in time", address);
}

int sim_send(struct fabric_endpoint *base, const void *message, uint32_t len_bytes)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c = ep->connection;
	struct sim *sim = ep->process->sim;
	bool to_server = !ep->is_server;
	struct sim_note *note;

	if (!len_bytes || len_bytes > FABRIC_MAX_MESSAGE_BYTES)
		return base_fail(-EINVAL, "a message of %u bytes; 1 to %d are possible", len_bytes,
				 FABRIC_MAX_MESSAGE_BYTES);
	if (ep->is_loopback || (to_server ? ep->is_broken : c->server_told || c->is_cut))
		return base_fail(-ENOTCONN, "%s is gone; connect again", base->address);
	if (c->untaken[to_server] >= SIM_UNTAKEN)
		return base_fail(-EAGAIN, "%s takes no messages now", base->address);
	note = new_note(c, FABRIC_MESSAGE, to_server, len_bytes);
	memcpy(note->bytes, message, len_bytes);
	c->untaken[to_server]++;
	sim->stats.messages++;
	sim_schedule(sim, &note->event, sim_message_time(sim, c, to_server));
	sim_trace_as(sim, ep->process->name, "connection %llu: sends %u bytes",
		     (unsigned long long)c->id, len_bytes);
	return 0;
}

static int take(struct sim_endpoint *ep, void *message, uint32_t len_bytes)
{
	struct sim_note *note = TAILQ_FIRST(&ep->notes);
	uint32_t length = note->len_bytes;

	if (length > len_bytes) {
		sim_note_free(note);
		return base_fail(-EMSGSIZE, "a message of %u bytes from %s, for a buffer of %u",
				 length, ep->address, len_bytes);
	}
	memcpy(message, note->bytes, length);
	ep->known |= note->granted;
	sim_note_free(note);
	return (int)length;
}

int sim_recv(struct fabric_endpoint *base, void *message, uint32_t len_bytes, uint64_t deadline_ns)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim *sim = ep->process->sim;
	bool has_looked = false;

	for (;;) {
		if (!TAILQ_EMPTY(&ep->notes) && !ep->is_server)
			return take(ep, message, len_bytes);
		if (ep->is_broken || ep->is_server)
			return base_fail(-ENOTCONN, "%s is gone; connect again", base->address);
		if (sim->now >= deadline_ns) {
			if (has_looked)
				return base_fail(-EAGAIN, "no message from %s", base->address);
			deadline_ns = sim->now + SIM_POLL_NS;
		}
		has_looked = true;
		sim_block(ep->process, ep, deadline_ns);
	}
}

int sim_check(struct fabric_endpoint *base)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;

	return ep->is_broken ? base_fail(-ENOTCONN, "%s is gone; connect again", base->address) : 0;
}

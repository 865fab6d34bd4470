/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How connections end.
 *
 * The client's half ends when it sees the break, closes, or dies. Of the operations that had been sent
 * and had no effect yet, a prefix will land later, at the SIM_LATE rate and as long as the server has
 * not cut its half; the others never do. What has begun to land goes on: a WRITE's pieces may have
 * mixed with those of the WRITE before it. READs that nobody waits for are dropped.
 *
 * The server's half ends when it is cut or its process dies: nothing lands any more. The client is told,
 * or finds out by its next operations.
 */
#include <errno.h>
#include <inttypes.h>

#include "sim/sim_private.h"

#define SOON_TIMES  2 /* of the way, within which a break comes after a post */
#define LATE_MIN_NS 1000
#define DEATH_NS    1000000 /* a server's death is noticed within so much */

static uint64_t lease_of(const struct sim_connection *c)
{
	uint64_t lease_ns = c->server ? c->server->base.fabric->lease_ns : 0;

	return lease_ns ? lease_ns : sim_later(c->sim->options.lease_ns, NS_PER_MS);
}

static void drop(struct sim_connection *c, struct sim_op *op)
{
	sim_cancel(c->sim, &op->event);
	TAILQ_REMOVE(&c->ops, op, link);
	sim_op_free(c->sim, op);
}

/*
 * How many WRITEs and atomics have been sent and are not done, and how many of them must be, as a part
 * of them or something after them has had its effect.
 */
static uint32_t count_sent(const struct sim_connection *c, uint32_t *begun)
{
	const struct sim_op *op;
	uint32_t sent = 0;

	*begun = 0;
	TAILQ_FOREACH(op, &c->ops, link)
	{
		if (sim_op_is_read(op))
			continue;
		if (!op->is_issued || op->issued_ns > c->sim->now)
			break;
		sent++;
		if (op->number <= c->last_begun)
			*begun = sent;
	}
	return sent;
}

/* Half of it before a client can have come back, which takes some messages. */
static uint64_t late_ns(const struct sim_connection *c)
{
	uint64_t soon_ns = sim_later(4 * c->sim->options.costs.message_ns, 2 * LATE_MIN_NS);

	if (sim_random(c->sim, 2))
		return sim_random_spread(c->sim, LATE_MIN_NS, soon_ns);
	return sim_random_spread(c->sim, LATE_MIN_NS, lease_of(c));
}

/* Decides what of the operations under way will still land. */
static void orphan_operations(struct sim_connection *c)
{
	struct sim *sim = c->sim;
	uint32_t begun, sent = count_sent(c, &begun), landing = begun, i = 0;
	struct sim_op *op, *next;
	uint64_t at = sim->now;
	bool late;

	if (TAILQ_EMPTY(&c->ops))
		return;
	if (!sim->has_faults) /* what was sent is on its way, and nothing holds it up */
		landing = sent;
	late = sent > begun && sim_random(sim, SIM_CERTAIN) < sim->options.rate[SIM_LATE];
	if (late)
		landing = begun + 1 + (uint32_t)sim_random(sim, sent - begun);
	for (op = TAILQ_FIRST(&c->ops); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (sim_op_is_read(op) || i >= landing) {
			drop(c, op);
			continue;
		}
		i++;
		sim_sample(op);
		op->list = NULL;
		if (i <= begun || !late)
			continue;
		if (i == landing && sim_random(sim, 2)) /* of one list of adds, a prefix */
			op->limit = (uint32_t)sim_random(sim, op->count + 1u);
		op->event.run = sim_arrive;
		at += late_ns(c);
		sim_schedule(sim, &op->event, at);
	}
	c->unissued = NULL;
}

void sim_lose(struct sim_connection *c)
{
	struct sim *sim = c->sim;
	struct sim_list *list;

	c->client_gone = true;
	if (c->client && !c->client->is_broken) {
		c->client->is_broken = true;
		c->source->queue_pairs -= c->is_accepted;
	}
	sim_cancel(sim, &c->completion);
	sim_cancel(sim, &c->loss);
	orphan_operations(c);
	while ((list = TAILQ_FIRST(&c->lists))) {
		struct sim_op *op;

		while ((op = list->results)) {
			list->results = op->next;
			sim_op_free(sim, op);
		}
		list->status = -ENOTCONN;
		TAILQ_REMOVE(&c->lists, list, link);
		TAILQ_INSERT_TAIL(&c->done, list, link);
	}
}

/* When a server hears of a break whose client lives: soon, or only by the lease. */
static uint64_t break_news_ns(struct sim_connection *c)
{
	struct sim *sim = c->sim;

	if (sim_random(sim, 2))
		return lease_of(c);
	return sim_random_spread(sim, LATE_MIN_NS, lease_of(c));
}

static void lose_now(struct sim *sim, struct sim_event *event)
{
	struct sim_connection *c = sim_container(event, struct sim_connection, loss);

	sim_trace_as(sim, "net", "connection %" PRIu64 " of %s broke", c->id, c->client_process->name);
	sim_lose(c);
	if (c->loss_is_break)
		sim_tell_server(c, FABRIC_BROKEN, break_news_ns(c));
	if (c->client)
		sim_wake(c->client->process, c->client);
}

/* The server hears of it as of a break. */
void sim_abort(struct fabric_endpoint *base)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c = ep->connection;

	if (ep->is_server && !ep->is_loopback)
		return;
	if (!c->client_gone) {
		sim_trace_as(c->sim, ep->process->name, "connection %" PRIu64 ": gives up", c->id);
		sim_lose(c);
		if (!c->is_loopback)
			sim_tell_server(c, FABRIC_BROKEN, break_news_ns(c));
	}
	while (sim_deliver(ep))
		;
}

void sim_lose_later(struct sim_connection *c, uint64_t delay_ns)
{
	uint64_t at = c->sim->now + delay_ns;

	if (c->client_gone || (c->loss.sequence && c->loss_at <= at))
		return;
	c->loss.run = lose_now;
	c->loss_at = at;
	sim_schedule(c->sim, &c->loss, at);
}

/* Chance has its say whenever something was posted. */
void sim_posted(struct sim_connection *c)
{
	struct sim *sim = c->sim;

	if (!c->loss.sequence && sim_chance(sim, SIM_BREAK)) {
		c->loss_is_break = true;
		sim_lose_later(c, 1 + sim_random(sim, SOON_TIMES * sim->options.costs.one_way_ns + 1));
	}
	if (!c->server_told && sim_chance(sim, SIM_LEASE))
		sim_tell_server(c, FABRIC_BROKEN, 1 + sim_random(sim, lease_of(c)));
}

static void forget_lists(struct sim_connection *c)
{
	struct sim_list *list;

	while ((list = TAILQ_FIRST(&c->done))) {
		TAILQ_REMOVE(&c->done, list, link);
		sim_free(c->sim, list, sizeof(*list));
	}
	c->queued_lists = c->queued_ops = 0;
}

void sim_client_died(struct sim_connection *c)
{
	if (!c->client_gone) {
		sim_lose(c);
		if (c->sim->options.rate[SIM_LATE_MESSAGE] && sim_chance(c->sim, SIM_LATE_MESSAGE))
			sim_tell_server(c, FABRIC_BROKEN, lease_of(c));
		else
			sim_tell_server(c, FABRIC_CLOSED, 0);
	}
	forget_lists(c);
	c->client = NULL;
}

/*
 * Nothing lands from now on. What has begun is finished first, and what was before it: devices take
 * WRITEs in order, though their pieces reach memory in any. The last may stay half done.
 */
void sim_cut_off(struct sim_connection *c, const char *why)
{
	struct sim *sim = c->sim;
	uint32_t begun;

	if (c->is_cut)
		return;
	for (count_sent(c, &begun); begun; begun--) {
		struct sim_op *op = TAILQ_FIRST(&c->ops);

		while (sim_op_is_read(op))
			op = TAILQ_NEXT(op, link);
		if (op->number < c->last_begun || sim_random(sim, 2))
			sim_finish(op);
		drop(c, op);
	}
	c->is_cut = true;
	c->target->queue_pairs -= !c->is_loopback;
	sim_trace_as(sim, c->server->process->name, "connection %" PRIu64 " of %s: %s", c->id,
		     c->client_process->name, why);
}

void sim_server_ended(struct sim_connection *c, bool died)
{
	struct sim *sim = c->sim;

	sim_cut_off(c, died ? "cut by death" : "closed");
	if (died && !c->client_gone)
		sim_lose_later(c, sim_random_spread(sim, LATE_MIN_NS, DEATH_NS));
	else if (!c->client_gone)
		sim_lose_later(c, sim_message_time(sim, c, false) - sim->now);
	c->server = NULL;
}

int sim_cut(struct fabric_endpoint *base)
{
	struct sim_endpoint *ep = (struct sim_endpoint *)base;
	struct sim_connection *c = ep->connection;
	struct sim *sim = c->sim;

	if (ep->is_loopback || c->is_cut)
		return 0;
	if (!ep->is_server)
		return base_fail(-EINVAL, "only a server cuts");
	if (!c->cut_tries)
		c->cut_tries = (uint8_t)(1 + (sim->has_faults && !sim_random(sim, 4)) *
						     sim_random(sim, 4));
	if (--c->cut_tries) {
		sim_trace_as(sim, ep->process->name, "connection %" PRIu64 " of %s: can't be cut yet",
			     c->id, c->client_process->name);
		return -EAGAIN;
	}
	sim_cut_off(c, "cut");
	if (!c->client_gone)
		sim_lose_later(c, sim_message_time(sim, c, false) - sim->now);
	return 0;
}

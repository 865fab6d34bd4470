/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What becomes of an operation: it is issued, arrives at the target, takes effect there, and is
 * answered; a list completes when all its answers are there, and after the lists before it.
 *
 *  - Issued: in the order posted. A fenced one waits for the answers of all READs and atomics before
 *    it; READs and atomics wait for one another beyond the limit of those outstanding.
 *  - Arrival: in the order issued, each a little after the one before.
 *  - Effect: a WRITE after all atomics before it, an atomic after all WRITEs and atomics before it,
 *    a READ after both. Two WRITEs beside each other may mix, and nothing waits for a READ.
 *  - Torn: in pieces at several times, in any order, cut between aligned words.
 *  - Results are in local memory when the list completes, and not before.
 *
 * Nothing takes effect on a connection that was cut: its operations are lost as they arrive, and their
 * poster is told.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim/sim_private.h"

#define DELAY_TIMES    100
#define ORDER_TIMES    20 /* how much later than the way a READ may be sampled */
#define PIECES_TIMES   4  /* and how far apart pieces are */
#define NAK_NS         20000
#define MAX_SPREAD_OPS 32 /* a part of the jitter lies between two that arrive */

static void execute(struct sim *sim, struct sim_event *event);

static uint64_t way_ns(struct sim *sim)
{
	uint64_t way = sim->options.costs.one_way_ns + sim_random(sim, sim->options.costs.jitter_ns + 1);

	if (sim_chance(sim, SIM_DELAY))
		way *= 1 + sim_random(sim, DELAY_TIMES);
	return way;
}

static bool has_answer(const struct sim_op *op)
{
	return op->opcode != FABRIC_WRITE;
}

static uint64_t data_bytes(const struct sim_op *op)
{
	return op->opcode == FABRIC_READ_LIST ? op->count * op->len_bytes : op->len_bytes;
}

/* Up to a word lies in the operation itself. */
static void make_data(struct sim_op *op)
{
	uint64_t len_bytes = data_bytes(op);

	if (len_bytes <= sizeof(op->operand))
		op->data = (char *)&op->operand;
	else
		op->data = sim_alloc(op->connection->sim, len_bytes);
}

/* Takes the source of a WRITE, if that was not done. */
void sim_sample(struct sim_op *op)
{
	if (op->opcode != FABRIC_WRITE || op->data || !op->len_bytes)
		return;
	make_data(op);
	memcpy(op->data, op->local, op->len_bytes);
}

void sim_op_free(struct sim *sim, struct sim_op *op)
{
	size_t words = (op->opcode == FABRIC_FETCH_ADD_LIST ? 2 : 1) * (size_t)op->count;

	if (op->data && op->data != (char *)&op->operand)
		sim_free(sim, op->data, data_bytes(op));
	if (op->words)
		sim_free(sim, op->words, words * sizeof(uint64_t));
	sim_free_event(sim, op, sizeof(*op));
}

void sim_issue(struct sim_connection *c)
{
	struct sim *sim = c->sim;
	uint32_t most = sim->limits.outstanding_reads;
	struct sim_op *op;

	while ((op = c->unissued)) {
		uint64_t at = sim_later(sim_later(sim->now, op->issued_ns), c->sent_ns);

		if (op->flags & FABRIC_FENCE) {
			if (c->reads_flying)
				return;
			at = sim_later(at, c->response_ns);
		}
		if (has_answer(op)) {
			if (c->reads_flying >= most)
				return;
			op->slot = (uint8_t)(c->reads_issued++ % most);
			at = sim_later(at, c->responses[op->slot]);
			c->reads_flying++;
		}
		if (sim->has_queues)
			at = sim_device_send(c, op, at);
		c->sent_ns = op->issued_ns = at;
		op->is_issued = true;
		c->unissued = TAILQ_NEXT(op, link);
		at += way_ns(sim);
		c->arrived_ns += 1 + sim_random(sim, sim->options.costs.jitter_ns / MAX_SPREAD_OPS + 1);
		c->arrived_ns = sim_later(at, c->arrived_ns);
		sim_schedule(sim, &op->event, c->arrived_ns);
	}
}

static void trace_op(const struct sim_op *op, const char *what)
{
	struct sim_connection *c = op->connection;

	sim_trace_as(c->sim, "net", "connection %" PRIu64 " of %s: %s, region %u at %" PRIu64 ": %s",
		     c->id, c->client_process->name, sim_opcode_names[op->opcode], op->region,
		     op->words ? op->words[0] : op->offset, what);
}

/* The operation can have no effect, and its connection no future. */
static void lost(struct sim_op *op)
{
	struct sim_connection *c = op->connection;

	if (sim_traces(c->sim))
		trace_op(op, "lost");
	TAILQ_REMOVE(&c->ops, op, link);
	sim_op_free(c->sim, op);
	if (!c->client_gone)
		sim_lose_later(c, 1 + sim_random(c->sim, NAK_NS));
}

/* In how many pieces, in which order, how far apart. */
static void plan_pieces(struct sim *sim, struct sim_op *op)
{
	uint64_t most = op->opcode >= FABRIC_READ_LIST ? op->count : op->len_bytes / sizeof(uint64_t);
	uint64_t step = sim->options.costs.one_way_ns * PIECES_TIMES + 10;

	op->pieces = 1;
	if (most < 2 || op->opcode == FABRIC_FETCH_ADD || op->opcode == FABRIC_COMPARE_SWAP ||
	    !sim_chance(sim, SIM_TEAR))
		return;
	op->pieces = (uint8_t)(2 + sim_random(sim, sim_earlier(most, SIM_PIECES) - 1));
	op->step_ns = sim_random_spread(sim, 10, step);
	for (uint8_t i = 0; i < op->pieces; i++) {
		uint8_t other = (uint8_t)sim_random(sim, i + 1u);

		op->order[i] = i;
		if (op->opcode == FABRIC_FETCH_ADD_LIST) /* its adds are operations, and in order */
			continue;
		op->order[i] = op->order[other];
		op->order[other] = i;
	}
}

void sim_arrive(struct sim *sim, struct sim_event *event)
{
	struct sim_op *op = sim_container(event, struct sim_op, event);
	struct sim_connection *c = op->connection;
	uint64_t start, end;

	if (c->is_cut) {
		lost(op);
		return;
	}
	start = sim->has_queues ? sim_device_serve(c, op) : sim->now;
	start = sim_later(start, op->opcode == FABRIC_WRITE ? c->atomics_ns : c->effects_ns);
	if (sim_op_is_read(op) && sim_chance(sim, SIM_READ_ORDER))
		start += sim_random_spread(sim, 10, sim->options.costs.one_way_ns * ORDER_TIMES + 20);
	plan_pieces(sim, op);
	/* at one time, a later piece would come after what was scheduled before it */
	end = start + op->step_ns * (op->pieces - 1u) + (op->pieces > 1);
	if (!sim_op_is_read(op))
		c->effects_ns = sim_later(c->effects_ns, end);
	if (!sim_op_is_read(op) && op->opcode != FABRIC_WRITE)
		c->atomics_ns = sim_later(c->atomics_ns, end);
	event->run = execute;
	if (start > sim->now)
		sim_schedule(sim, event, start);
	else
		execute(sim, event);
}

/* Where piece i begins; pieces are cut between aligned words of the remote memory. */
static uint64_t cut_at(const struct sim_op *op, uint32_t i)
{
	uint32_t pieces = op->pieces ? op->pieces : 1;
	uint64_t at = op->offset + op->len_bytes * i / pieces;

	if (i >= pieces)
		return op->len_bytes;
	at -= at % sizeof(uint64_t);
	return at > op->offset ? at - op->offset : 0;
}

static void transfer(struct sim_op *op, char *base)
{
	uint64_t from = cut_at(op, op->order[op->piece]), end = cut_at(op, op->order[op->piece] + 1u);

	if (from >= end)
		return;
	if (op->opcode == FABRIC_WRITE) {
		const char *source = op->data ? op->data : op->local;

		memcpy(base + op->offset + from, source + from, end - from);
		return;
	}
	if (!op->data)
		make_data(op);
	memcpy(op->data + from, base + op->offset + from, end - from);
}

static void transfer_list(struct sim_op *op, char *base)
{
	uint32_t part = op->order[op->piece];
	uint32_t from = op->limit * part / op->pieces, end = op->limit * (part + 1) / op->pieces;

	if (op->opcode == FABRIC_READ_LIST && !op->data)
		make_data(op);
	for (uint32_t i = from; i < end; i++) {
		char *at = base + op->words[i];

		if (op->opcode == FABRIC_READ_LIST)
			memcpy(op->data + i * op->len_bytes, at, op->len_bytes);
		else
			*(uint64_t *)(void *)at += op->words[op->count + i];
	}
}

static void change_word(struct sim_op *op, uint64_t *word)
{
	uint64_t old = *word;

	if (op->opcode == FABRIC_FETCH_ADD)
		*word = old + op->operand;
	else if (old == op->compare)
		*word = op->operand;
	op->operand = old;
}

/* Whether the memory is still there. Rights that were granted stay. */
static bool may_execute(const struct sim_op *op)
{
	const struct sim_region *region = &op->connection->regions[op->region];

	return region->memory && region->memory->valid;
}

/* The target's device refuses it: that ends the connection for both. */
static void access_error(struct sim_op *op)
{
	struct sim_connection *c = op->connection;

	if (!c->is_loopback)
		sim_tell_server(c, FABRIC_BROKEN, 1);
	sim_cut_off(c, "memory is gone");
	lost(op);
}

static void give_answer(struct sim_op *op)
{
	struct sim_connection *c = op->connection;
	struct sim *sim = c->sim;
	struct sim_list *list = op->list;
	uint64_t response = (sim->has_queues ? sim_device_answer(c, op) : sim->now) + way_ns(sim);

	if (has_answer(op)) {
		c->reads_flying--;
		c->responses[op->slot] = response;
		c->response_ns = sim_later(c->response_ns, response);
	}
	list->ready_ns = sim_later(list->ready_ns, response);
	if (has_answer(op) && op->local) {
		op->next = list->results;
		list->results = op;
	} else {
		sim_op_free(sim, op);
	}
	if (!--list->left && list == TAILQ_FIRST(&c->lists))
		sim_schedule(sim, &c->completion, list->ready_ns);
	if (c->unissued)
		sim_issue(c);
}

/* The next piece, or all. */
static void have_effect(struct sim_op *op)
{
	struct sim_connection *c = op->connection;
	char *base = c->regions[op->region].memory->base;

	if (!sim_op_is_read(op))
		c->last_begun = sim_later(c->last_begun, op->number);
	if (op->opcode <= FABRIC_WRITE)
		transfer(op, base);
	else if (op->opcode >= FABRIC_READ_LIST)
		transfer_list(op, base);
	else
		change_word(op, (uint64_t *)(void *)(base + op->offset));
	op->piece++;
}

/* All that is left of it, now. */
void sim_finish(struct sim_op *op)
{
	if (!op->pieces)
		op->pieces = 1;
	while (may_execute(op) && op->piece < op->pieces)
		have_effect(op);
}

static void execute(struct sim *sim, struct sim_event *event)
{
	struct sim_op *op = sim_container(event, struct sim_op, event);
	struct sim_connection *c = op->connection;

	if (sim_unlikely(c->is_cut)) {
		lost(op);
		return;
	}
	if (sim_unlikely(!may_execute(op))) {
		access_error(op);
		return;
	}
	have_effect(op);
	if (op->piece < op->pieces) {
		sim_schedule(sim, event, sim->now + op->step_ns);
		return;
	}
	if (sim_traces(sim))
		trace_op(op, op->list ? "landed" : "landed late");
	TAILQ_REMOVE(&c->ops, op, link);
	if (op->list) {
		give_answer(op);
		return;
	}
	sim_count(sim, SIM_LATE);
	sim_op_free(sim, op);
}

static void copy_results(struct sim *sim, struct sim_list *list)
{
	struct sim_op *op;

	while ((op = list->results)) {
		list->results = op->next;
		if (op->data)
			memcpy(op->local, op->data, data_bytes(op));
		else if (!sim_op_is_read(op))
			memcpy(op->local, &op->operand, sizeof(op->operand));
		sim_op_free(sim, op);
	}
}

/* The first list has all its answers. */
void sim_complete(struct sim *sim, struct sim_event *event)
{
	struct sim_connection *c = sim_container(event, struct sim_connection, completion);
	struct sim_list *list = TAILQ_FIRST(&c->lists), *next = TAILQ_NEXT(list, link);

	copy_results(sim, list);
	TAILQ_REMOVE(&c->lists, list, link);
	TAILQ_INSERT_TAIL(&c->done, list, link);
	sim_trace_as(sim, "net", "connection %" PRIu64 " of %s: a list of %u is complete", c->id,
		     c->client_process->name, list->count);
	if (next && !next->left)
		sim_schedule(sim, event, next->ready_ns);
	sim_wake(c->client->process, c->client);
}

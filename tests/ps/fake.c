/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/copy.h"
#include "ps/fake.h"

#define MAX_PROCESSES 4096

struct packet {
	STAILQ_ENTRY(packet) next;
	struct fabric_event event;
};
STAILQ_HEAD(packets, packet);

struct region {
	char *base;
	uint64_t len_bytes;
	uint32_t rights;
};

struct fake_endpoint {
	struct fabric_endpoint base;
	struct fake_fabric *fabric;
	struct fake_endpoint *peer;
	LIST_ENTRY(fake_endpoint) all;
	uint64_t process;
	struct region regions[FABRIC_MAX_REGIONS]; /* of the side that posts */
	struct packets inbox;
	bool accepted, ended;
};

struct fake_fabric {
	struct fabric base;
	struct fabric_listener listener;
	bool listening;
	uint64_t now_ns, process, wait_deadline_ns;
	uint32_t waits, looks, grants_before_failure;
	int grant_failure;
	bool gone[MAX_PROCESSES], resists[MAX_PROCESSES];
	struct packets events;
	LIST_HEAD(endpoints, fake_endpoint) endpoints;
};

static struct fake_fabric *of_listener(struct fabric_listener *l)
{
	return (struct fake_fabric *)((char *)l - offsetof(struct fake_fabric, listener));
}

static struct fake_endpoint *of(struct fabric_endpoint *ep)
{
	return (struct fake_endpoint *)ep;
}

static void put(struct packets *to, uint32_t kind, struct fake_endpoint *ep, const void *message,
		uint32_t len_bytes)
{
	struct packet *p = calloc(1, sizeof(*p));

	p->event.kind = kind;
	p->event.endpoint = &ep->base;
	p->event.len_bytes = len_bytes;
	if (message)
		memcpy(p->event.message, message, len_bytes);
	STAILQ_INSERT_TAIL(to, p, next);
}

static void fake_close(struct fabric *base)
{
	struct fake_fabric *f = (struct fake_fabric *)base;
	struct packet *p;

	while ((p = STAILQ_FIRST(&f->events))) {
		STAILQ_REMOVE_HEAD(&f->events, next);
		free(p);
	}
	free(f);
}

static uint64_t fake_now(struct fabric *base)
{
	return ((struct fake_fabric *)base)->now_ns;
}

static int fake_register(struct fabric *base, struct fabric_memory *memory)
{
	(void)base;
	(void)memory;
	return 0;
}

static int fake_listen(struct fabric *base, const char *address, struct fabric_listener **listener)
{
	struct fake_fabric *f = (struct fake_fabric *)base;

	(void)address;
	f->listener.ops = base->ops;
	f->listening = true;
	strcpy(f->listener.address, "fake://");
	*listener = &f->listener;
	return 0;
}

static void fake_listener_close(struct fabric_listener *l)
{
	of_listener(l)->listening = false;
}

static int fake_next_event(struct fabric_listener *l, struct fabric_event *event)
{
	struct fake_fabric *f = of_listener(l);
	struct packet *p = STAILQ_FIRST(&f->events);

	f->looks++;
	if (!p)
		return 0;
	STAILQ_REMOVE_HEAD(&f->events, next);
	*event = p->event;
	free(p);
	return 1;
}

static int fake_wait(struct fabric_listener *l, uint64_t deadline_ns)
{
	of_listener(l)->waits++;
	of_listener(l)->wait_deadline_ns = deadline_ns;
	return 0;
}

static struct fake_endpoint *new_endpoint(struct fake_fabric *f)
{
	struct fake_endpoint *ep = calloc(1, sizeof(*ep));

	ep->base.ops = f->base.ops;
	ep->base.address = "process 77";
	ep->base.limits.max_ops = 64;
	ep->base.limits.outstanding_reads = 16;
	ep->base.limits.max_transfer_bytes = UINT64_MAX;
	ep->base.fabric = &f->base;
	ep->fabric = f;
	ep->process = f->process;
	STAILQ_INIT(&ep->inbox);
	LIST_INSERT_HEAD(&f->endpoints, ep, all);
	return ep;
}

static int fake_loopback(struct fabric_listener *l, struct fabric_endpoint **out)
{
	struct fake_endpoint *ep = new_endpoint(of_listener(l));

	ep->peer = ep;
	*out = &ep->base;
	return 0;
}

static void identity_of(uint64_t process, unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	memset(identity, 0, FABRIC_IDENTITY_BYTES);
	memcpy(identity, &process, sizeof(process));
}

static bool fake_peer_gone(struct fabric_listener *l, const unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	uint64_t process;

	memcpy(&process, identity, sizeof(process));
	return of_listener(l)->gone[process];
}

static int fake_grant(struct fabric_endpoint *base, uint32_t region,
		      const struct fabric_memory *memory, uint32_t rights)
{
	struct fake_fabric *f = of(base)->fabric;
	uint64_t len_bytes = f->base.grants_ready ? memory->ready_bytes : memory->len_bytes;

	if (f->grants_before_failure && !--f->grants_before_failure)
		return f->grant_failure;
	of(base)->peer->regions[region] = (struct region){ memory->base, len_bytes, rights };
	return 0;
}

static void fake_identity(struct fabric_endpoint *ep, unsigned char identity[FABRIC_IDENTITY_BYTES])
{
	identity_of(of(ep)->process, identity);
}

static int fake_cut(struct fabric_endpoint *ep)
{
	return of(ep)->fabric->resists[of(ep)->process] ? -EAGAIN : 0;
}

static int fake_connect(struct fabric *base, const char *address, uint64_t deadline_ns,
			struct fabric_endpoint **out)
{
	struct fake_fabric *f = (struct fake_fabric *)base;
	struct fake_endpoint *mine = new_endpoint(f), *theirs = new_endpoint(f);

	(void)address;
	(void)deadline_ns;
	mine->peer = theirs;
	theirs->peer = mine;
	theirs->accepted = true;
	put(&f->events, FABRIC_CONNECTED, theirs, NULL, 0);
	*out = &mine->base;
	return 0;
}

static int fake_send(struct fabric_endpoint *base, const void *message, uint32_t len_bytes)
{
	struct fake_endpoint *ep = of(base);

	if (!ep->peer || ep->ended)
		return -ENOTCONN;
	if (ep->accepted)
		put(&ep->peer->inbox, FABRIC_MESSAGE, ep->peer, message, len_bytes);
	else
		put(&ep->fabric->events, FABRIC_MESSAGE, ep->peer, message, len_bytes);
	return 0;
}

static int fake_recv(struct fabric_endpoint *base, void *message, uint32_t len_bytes, uint64_t deadline_ns)
{
	struct packet *p = STAILQ_FIRST(&of(base)->inbox);
	int ret;

	(void)deadline_ns;
	if (!p)
		return of(base)->peer ? -EAGAIN : -ENOTCONN;
	STAILQ_REMOVE_HEAD(&of(base)->inbox, next);
	ret = (int)p->event.len_bytes;
	memcpy(message, p->event.message, p->event.len_bytes < len_bytes ? p->event.len_bytes : len_bytes);
	free(p);
	return ret;
}

/* Tells the server, once. */
static void end(struct fake_endpoint *mine)
{
	if (mine->ended || mine->accepted || !mine->peer)
		return;
	mine->ended = true;
	put(&mine->fabric->events, FABRIC_CLOSED, mine->peer, NULL, 0);
}

/* No event comes of an endpoint that the server has closed. */
static void forget(struct fake_endpoint *ep)
{
	struct packet *p, *next;

	for (p = STAILQ_FIRST(&ep->fabric->events); p; p = next) {
		next = STAILQ_NEXT(p, next);
		if (p->event.endpoint != &ep->base)
			continue;
		STAILQ_REMOVE(&ep->fabric->events, p, packet, next);
		free(p);
	}
}

static void fake_endpoint_close(struct fabric_endpoint *base)
{
	struct fake_endpoint *ep = of(base);
	struct packet *p;

	if (ep->accepted)
		forget(ep);

	if (ep->peer != ep && ep->fabric->listening)
		end(ep);
	if (ep->peer)
		ep->peer->peer = NULL;
	while ((p = STAILQ_FIRST(&ep->inbox))) {
		STAILQ_REMOVE_HEAD(&ep->inbox, next);
		free(p);
	}
	LIST_REMOVE(ep, all);
	free(ep);
}

static int fake_op(struct fake_endpoint *ep, const struct fabric_op *op)
{
	const struct region *r = &ep->regions[op->region];
	static const uint32_t needs[] = {
		[FABRIC_READ] = FABRIC_MAY_READ,
		[FABRIC_WRITE] = FABRIC_MAY_WRITE,
		[FABRIC_FETCH_ADD] = FABRIC_MAY_ATOMIC,
		[FABRIC_COMPARE_SWAP] = FABRIC_MAY_ATOMIC,
	};
	uint64_t *word = (uint64_t *)(r->base + op->offset), old;

	if (op->opcode > FABRIC_COMPARE_SWAP)
		return -EOPNOTSUPP;
	if ((r->rights & needs[op->opcode]) != needs[op->opcode])
		return -EACCES;
	if (op->offset + (op->opcode <= FABRIC_WRITE ? op->len_bytes : 8) > r->len_bytes)
		return -ERANGE;
	if (op->opcode == FABRIC_READ) {
		base_copy(op->local, word, op->len_bytes);
	} else if (op->opcode == FABRIC_WRITE) {
		base_copy(word, op->local, op->len_bytes);
	} else {
		old = op->compare;
		if (op->opcode == FABRIC_FETCH_ADD)
			old = __atomic_fetch_add(word, op->operand, __ATOMIC_SEQ_CST);
		else
			__atomic_compare_exchange_n(word, &old, op->operand, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		if (op->local)
			*(uint64_t *)op->local = old;
	}
	return 0;
}

static int fake_post(struct fabric_endpoint *base, const struct fabric_op *ops, uint32_t n,
		     struct fabric_completion *completion)
{
	(void)completion;
	if (!of(base)->peer)
		return -ENOTCONN;
	for (uint32_t i = 0; i < n; i++) {
		int ret = fake_op(of(base), &ops[i]);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int fake_poll(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	(void)ep;
	(void)deadline_ns;
	return 0;
}

/* Nobody else runs meanwhile: a word that has not changed will not. */
static int fake_wait_word(struct fabric_endpoint *base, uint32_t region, uint64_t offset,
			  uint64_t seen, uint64_t *value, uint64_t deadline_ns)
{
	(void)deadline_ns;
	if (!of(base)->peer)
		return -ENOTCONN;
	*value = __atomic_load_n((uint64_t *)(of(base)->regions[region].base + offset), __ATOMIC_ACQUIRE);
	return *value == seen ? -ETIMEDOUT : 0;
}

int fake_open(struct fabric **fabric)
{
	static struct fabric_ops ops;
	struct fake_fabric *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	ops = fabric_defaults;
	ops.name = "fake";
	ops.close = fake_close;
	ops.now = fake_now;
	ops.register_memory = fake_register;
	ops.listen = fake_listen;
	ops.listener_close = fake_listener_close;
	ops.next_event = fake_next_event;
	ops.wait = fake_wait;
	ops.loopback = fake_loopback;
	ops.peer_gone = fake_peer_gone;
	ops.grant = fake_grant;
	ops.identity = fake_identity;
	ops.cut = fake_cut;
	ops.connect = fake_connect;
	ops.send = fake_send;
	ops.recv = fake_recv;
	ops.endpoint_close = fake_endpoint_close;
	ops.post = fake_post;
	ops.poll = fake_poll;
	ops.wait_word = fake_wait_word;
	f->base.ops = &ops;
	f->base.sees_deaths = true;
	f->now_ns = 1000000000;
	f->process = 1;
	STAILQ_INIT(&f->events);
	LIST_INIT(&f->endpoints);
	*fabric = &f->base;
	return 0;
}

void fake_advance(struct fabric *fabric, uint64_t ns)
{
	((struct fake_fabric *)fabric)->now_ns += ns;
}

void fake_process(struct fabric *fabric, uint64_t process)
{
	((struct fake_fabric *)fabric)->process = process;
}

void fake_kill(struct fabric *fabric, uint64_t process)
{
	struct fake_fabric *f = (struct fake_fabric *)fabric;
	struct fake_endpoint *ep;

	f->gone[process] = true;
	LIST_FOREACH(ep, &f->endpoints, all)
	if (ep->process == process && ep->peer != ep)
		end(ep);
}

void fake_fail_grant(struct fabric *fabric, uint32_t nth, int code)
{
	((struct fake_fabric *)fabric)->grants_before_failure = nth;
	((struct fake_fabric *)fabric)->grant_failure = code;
}

void fake_break(struct fabric *fabric, uint64_t process)
{
	struct fake_fabric *f = (struct fake_fabric *)fabric;
	struct fake_endpoint *ep;

	LIST_FOREACH(ep, &f->endpoints, all)
	if (ep->process == process && !ep->accepted && ep->peer && ep->peer != ep)
		put(&f->events, FABRIC_BROKEN, ep->peer, NULL, 0);
}

void fake_resist(struct fabric *fabric, uint64_t process, bool resists)
{
	((struct fake_fabric *)fabric)->resists[process] = resists;
}

uint32_t fake_waits(struct fabric *fabric, uint64_t *deadline_ns)
{
	*deadline_ns = ((struct fake_fabric *)fabric)->wait_deadline_ns;
	return ((struct fake_fabric *)fabric)->waits;
}

uint32_t fake_looks(struct fabric *fabric)
{
	return ((struct fake_fabric *)fabric)->looks;
}

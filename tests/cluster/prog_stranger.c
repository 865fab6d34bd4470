/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tries to get at a server's memory in ways that must not work, by connections of its own making. Prints
 * "refused" where each try was turned away, and else what worked.
 *
 *   prog_stranger ADDRESS wrong-key    proves the key with another one
 *   prog_stranger ADDRESS replay       sends the bytes of a good handshake again
 *   prog_stranger ADDRESS token        opens a second data connection with a session that has one
 *   prog_stranger ADDRESS right-rkey   knows address and rkey of the words, but is not in their domain
 *   prog_stranger ADDRESS idle N       opens N connections, says "idle", and proves nothing
 *
 * All but wrong-key and idle have the job's key, in RAMPS_KEY_FILE; right-rkey takes rank 3.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "verbs/verbs_proof.h"
#include "worker/worker_private.h"

#define BUFFER_BYTES 8192

struct line {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buffer[BUFFER_BYTES]; /* what is received, then what is sent */
	struct verbs_answer answer;
};

static struct addrinfo *server;
static struct verbs_key key;

static void fatal(const char *what)
{
	printf("fatal: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The event that comes next, or 0 if it is another. */
static int expect(struct line *line, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	int right;

	if (rdma_get_cm_event(line->events, &event))
		fatal("rdma_get_cm_event");
	right = event->event == type;
	if (right && type == RDMA_CM_EVENT_ESTABLISHED)
		memcpy(&line->answer, event->param.conn.private_data, sizeof(line->answer));
	rdma_ack_cm_event(event);
	return right;
}

static void receive(struct line *line)
{
	struct ibv_sge sge = { (uintptr_t)line->buffer, BUFFER_BYTES / 2, line->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(line->id->qp, &wr, &bad))
		fatal("ibv_post_recv");
}

/* Resolved, with a queue pair. */
static struct line *line_open(void)
{
	struct line *line = calloc(1, sizeof(*line));
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	line->events = rdma_create_event_channel();
	if (!line->events || rdma_create_id(line->events, &line->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(line->id, NULL, server->ai_addr, 2000) ||
	    !expect(line, RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(line->id, 2000) ||
	    !expect(line, RDMA_CM_EVENT_ROUTE_RESOLVED))
		fatal("no way to the server");
	line->cq = ibv_create_cq(line->id->verbs, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = line->cq;
	if (!line->cq || rdma_create_qp(line->id, NULL, &init))
		fatal("rdma_create_qp");
	line->mr = ibv_reg_mr(line->id->qp->pd, line->buffer, BUFFER_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!line->mr)
		fatal("ibv_reg_mr");
	receive(line);
	return line;
}

/* Whether the server took the connection. */
static int line_connect(struct line *line, struct verbs_hello *hello)
{
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(*hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 6,
		.rnr_retry_count = 6,
	};

	hello->len_bytes = sizeof(*hello);
	hello->version = VERBS_VERSION;
	hello->magic = VERBS_MAGIC;
	if (rdma_connect(line->id, &param))
		fatal("rdma_connect");
	return expect(line, RDMA_CM_EVENT_ESTABLISHED);
}

static struct line *control_open(const unsigned char nonce[VERBS_NONCE_BYTES])
{
	struct verbs_hello hello = { .kind = VERBS_CONTROL };
	struct line *line = line_open();

	memcpy(hello.nonce, nonce, VERBS_NONCE_BYTES);
	if (!line_connect(line, &hello))
		fatal("the server refuses control connections");
	return line;
}

/* The status of the next completion; -1 in 5 s none came. */
static int completed(struct line *line, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	for (int i = 0; i < 5000; i++) {
		while (ibv_poll_cq(line->cq, 1, &wc) > 0)
			if (wc.status != IBV_WC_SUCCESS || wc.opcode == opcode)
				return (int)wc.status;
		poll(NULL, 0, 1);
	}
	return -1;
}

static void say(struct line *line, uint32_t kind, const void *payload, uint32_t len_bytes)
{
	struct verbs_message *message = (struct verbs_message *)(line->buffer + BUFFER_BYTES / 2);
	struct ibv_sge sge = { (uintptr_t)message, sizeof(*message) + len_bytes, line->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	*message = (struct verbs_message){ .kind = kind, .len_bytes = len_bytes };
	memcpy(message + 1, payload, len_bytes);
	if (ibv_post_send(line->id->qp, &wr, &bad))
		fatal("ibv_post_send");
}

/* The kind of the server's answer; 0: it hung up. */
static uint32_t hear(struct line *line)
{
	if (completed(line, IBV_WC_RECV) != IBV_WC_SUCCESS)
		return 0;
	return ((const struct verbs_message *)line->buffer)->kind;
}

struct handshake {
	unsigned char nonce[VERBS_NONCE_BYTES];
	struct verbs_nonces nonces;
	struct verbs_proof proof;
	struct verbs_welcome welcome;
};

/* As a worker makes it. The kind of the server's answer. */
static uint32_t shake(struct line *line, struct handshake *h)
{
	uint32_t kind;

	memcpy(h->nonces.client, h->nonce, VERBS_NONCE_BYTES);
	memcpy(h->nonces.server, line->answer.nonce, VERBS_NONCE_BYTES);
	h->proof.pid = (uint32_t)getpid();
	h->proof.queue_pairs = 1;
	verbs_prove(&key, &h->nonces, VERBS_BY_CLIENT, VERBS_PROOF_CLAIM(&h->proof), h->proof.mac);
	say(line, VERBS_PROOF, &h->proof, sizeof(h->proof));
	kind = hear(line);
	if (kind == VERBS_WELCOME)
		memcpy(&h->welcome, line->buffer + sizeof(struct verbs_message), sizeof(h->welcome));
	return kind;
}

static const char *wrong_key(void)
{
	struct handshake h = { 0 };
	struct line *line;

	verbs_random(h.nonce, sizeof(h.nonce));
	line = control_open(h.nonce);
	verbs_random(key.bytes, 32);
	key.len_bytes = 32;
	return shake(line, &h) == VERBS_WELCOME ? "welcome with another key" : NULL;
}

static const char *replay(void)
{
	struct handshake h = { 0 };
	struct line *line;

	verbs_random(h.nonce, sizeof(h.nonce));
	line = control_open(h.nonce);
	if (shake(line, &h) != VERBS_WELCOME)
		return "the good handshake failed";
	line = control_open(h.nonce);
	say(line, VERBS_PROOF, &h.proof, sizeof(h.proof));
	return hear(line) == VERBS_WELCOME ? "welcome for the bytes of another handshake" : NULL;
}

/* A data connection by the session's token, or with an old connection's. Whether the server took it. */
static int data_open(const struct handshake *h, const struct verbs_hello *old, struct verbs_hello *used)
{
	struct verbs_hello hello = { .kind = VERBS_DATA };
	struct verbs_data_claim claim = { 0 };
	struct line *line = line_open();

	memcpy(hello.session, h->welcome.session, sizeof(hello.session));
	memcpy(claim.session, h->welcome.session, sizeof(claim.session));
	claim.qp_num = line->id->qp->qp_num;
	verbs_prove(&key, &h->nonces, VERBS_OF_DATA, VERBS_CLAIM(claim), hello.mac);
	if (old)
		hello = *old;
	if (used)
		*used = hello;
	return line_connect(line, &hello);
}

static const char *token(void)
{
	struct handshake h = { 0 };
	struct verbs_hello used;
	struct line *line;

	verbs_random(h.nonce, sizeof(h.nonce));
	line = control_open(h.nonce);
	if (shake(line, &h) != VERBS_WELCOME)
		return "the good handshake failed";
	if (!data_open(&h, NULL, &used))
		return "the first data connection failed";
	if (data_open(&h, &used, NULL))
		return "a token was good twice";
	if (data_open(&h, NULL, NULL))
		return "a session was good for two connections of one index";
	return NULL;
}

static int access_with(struct line *line, const struct verbs_granted *words, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = { (uintptr_t)line->buffer + BUFFER_BYTES / 2, 8, line->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	memset(line->buffer + BUFFER_BYTES / 2, 0x5a, 8);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = words->address;
		wr.wr.atomic.rkey = words->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = words->address;
		wr.wr.rdma.rkey = words->rkey;
	}
	if (ibv_post_send(line->id->qp, &wr, &bad))
		fatal("ibv_post_send");
	return completed(line, opcode == IBV_WR_RDMA_READ  ? IBV_WC_RDMA_READ :
			       opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE :
							     IBV_WC_FETCH_ADD);
}

/*
 * On a control connection of its own, as an error ends the connection. The server itself must say no; of
 * a WRITE to memory that workers may write nothing but the protection domain does.
 */
static const char *foreign_access(bool proven, enum ibv_wr_opcode opcode,
				  const struct verbs_granted *granted)
{
	static char text[64];
	struct handshake h = { 0 };
	struct line *line;
	bool by_domain = opcode == IBV_WR_RDMA_WRITE && granted->rights & FABRIC_MAY_WRITE;
	int status;

	verbs_random(h.nonce, sizeof(h.nonce));
	line = control_open(h.nonce);
	if (proven && shake(line, &h) != VERBS_WELCOME)
		return "the good handshake failed";
	status = access_with(line, granted, opcode);
	if (status == IBV_WC_REM_ACCESS_ERR || (!by_domain && status == IBV_WC_REM_INV_REQ_ERR))
		return NULL;
	snprintf(text, sizeof(text), "operation %d with the right rkey: status %d", opcode, status);
	return text;
}

static const char *right_rkey(const char *address)
{
	const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
					       IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;
	const struct verbs_endpoint *ep;

	options.servers = address;
	options.rank = 3;
	options.workers = 4;
	if (ramps_worker_join(&options, &worker)) {
		printf("fatal: join: %s\n", ramps_last_error()->text);
		exit(1);
	}
	ep = (const struct verbs_endpoint *)worker->links[0].ep;
	if (!(ep->data.granted[CORE_SLOTS].rights & FABRIC_MAY_WRITE))
		return "no memory that workers may write";
	for (int proven = 0; proven < 2; proven++)
		for (int i = 0; i < 3; i++)
			for (uint32_t region = CORE_WORDS; region <= CORE_SLOTS; region++) {
				const char *worked = foreign_access(proven, opcodes[i],
								    &ep->data.granted[region]);

				if (worked)
					return worked;
			}
	ramps_worker_leave(worker, 10000);
	ramps_worker_close(worker);
	return NULL;
}

static void idle(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		unsigned char nonce[VERBS_NONCE_BYTES];

		verbs_random(nonce, sizeof(nonce));
		control_open(nonce);
	}
	printf("idle\n");
	pause();
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "", *worked = "there is no such try";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || verbs_address_resolve(argv[1], false, &server) || verbs_key_load(&key))
		fatal("usage, address or key");
	if (!strcmp(mode, "wrong-key"))
		worked = wrong_key();
	else if (!strcmp(mode, "replay"))
		worked = replay();
	else if (!strcmp(mode, "token"))
		worked = token();
	else if (!strcmp(mode, "right-rkey"))
		worked = right_rkey(argv[1]);
	else if (!strcmp(mode, "idle") && argc == 4)
		idle((unsigned int)atoi(argv[3]));
	printf("%s\n", worked ? worked : "refused");
	return worked != NULL;
}

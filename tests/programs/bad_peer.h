/* SPDX-License-Identifier: BSD-2-Clause */
/* A worker that speaks to a server by the fabric alone, so that it may say what no worker would. */
#ifndef TESTS_PROGRAMS_BAD_PEER_H
#define TESTS_PROGRAMS_BAD_PEER_H

#include "core/message.h"
#include "fabric/fabric.h"

struct bad_peer {
	struct fabric *fabric;
	struct fabric_endpoint *ep;
	uint32_t rank, incarnation;
	struct core_header header;
};

uint64_t bad_random(uint64_t *state);

void bad_peer_open(struct bad_peer *peer, const char *address);
void bad_peer_close(struct bad_peer *peer);

/* A well-formed request; the rest is the caller's. */
void bad_peer_request(struct core_request *request, uint32_t kind);

/* Sends and takes the answer, within 5 s: its status. */
int bad_peer_ask(struct bad_peer *peer, const struct core_request *request, struct core_reply *reply);

/* Joins as rank of BAD_WORKERS, and reads the header. */
void bad_peer_join(struct bad_peer *peer, uint32_t rank);

void bad_peer_execute(struct bad_peer *peer, struct fabric_op op);

/* The rank's public state as the server tells it. */
void bad_peer_rank(struct bad_peer *peer, struct core_rank *rank);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#include "programs/bad_peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "programs/bad_support.h"
#include "shm/shm.h"

#define PATIENCE_NS (5 * NS_PER_S)

uint64_t bad_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void bad_peer_open(struct bad_peer *peer, const char *address)
{
	memset(peer, 0, sizeof(*peer));
	must_work(shm_open_fabric(&peer->fabric));
	must_work(fabric_connect(peer->fabric, address, fabric_now(peer->fabric) + PATIENCE_NS,
				 &peer->ep));
}

void bad_peer_close(struct bad_peer *peer)
{
	fabric_endpoint_close(peer->ep);
	fabric_close(peer->fabric);
}

void bad_peer_request(struct core_request *request, uint32_t kind)
{
	memset(request, 0, sizeof(*request));
	request->magic = CORE_MESSAGE_MAGIC;
	request->kind = kind;
	request->version = CORE_VERSION;
	request->layout_hash = core_layout_hash();
	strcpy(request->job, "default");
	request->workers = BAD_WORKERS;
	request->shards = 1;
}

int bad_peer_ask(struct bad_peer *peer, const struct core_request *request, struct core_reply *reply)
{
	int length;

	must_work(fabric_send(peer->ep, request, sizeof(*request)));
	length = fabric_recv(peer->ep, reply, sizeof(*reply), fabric_now(peer->fabric) + PATIENCE_NS);
	must_work(length);
	must(length == sizeof(*reply) && reply->magic == CORE_MESSAGE_MAGIC);
	return reply->status;
}

void bad_peer_execute(struct bad_peer *peer, struct fabric_op op)
{
	struct fabric_completion completion = { 0 };

	must_work(fabric_execute(peer->ep, &op, 1, &completion, fabric_now(peer->fabric) + PATIENCE_NS));
}

void bad_peer_join(struct bad_peer *peer, uint32_t rank)
{
	const int64_t deadline = bad_now_ms() + 5000;
	struct core_request request;
	struct core_reply reply;
	int ret;

	bad_peer_request(&request, CORE_JOIN);
	request.rank = rank;
	do
		ret = bad_peer_ask(peer, &request, &reply);
	while (ret == -EAGAIN && bad_now_ms() < deadline);
	if (ret < 0)
		fprintf(stderr, "rank %u: %s\n", rank, reply.text);
	must(ret == 0);
	peer->rank = rank;
	peer->incarnation = reply.incarnation;
	bad_peer_execute(peer, (struct fabric_op){
				       .opcode = FABRIC_READ,
				       .region = CORE_PUBLISHED,
				       .local = &peer->header,
				       .len_bytes = sizeof(peer->header),
			       });
}

void bad_peer_rank(struct bad_peer *peer, struct core_rank *rank)
{
	bad_peer_execute(peer, (struct fabric_op){
				       .opcode = FABRIC_READ,
				       .region = CORE_PUBLISHED,
				       .offset = peer->header.ranks_offset +
						 peer->rank * sizeof(struct core_rank),
				       .local = rank,
				       .len_bytes = sizeof(*rank),
			       });
}

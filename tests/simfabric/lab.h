/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small world for tests of the simulated fabric: a server that grants its memory to everyone, and the
 * test itself as a process on a node of its own.
 */
#ifndef SIMFABRIC_LAB_H
#define SIMFABRIC_LAB_H

#include "base/clock.h"
#include "sim/sim.h"
#include "support/support.h"

#define LAB_ADDRESS "sim://1/lab"
#define LAB_BYTES   65536u
#define LAB_LEASE   NS_PER_MS
#define LAB_LONG    (10 * NS_PER_S)

struct lab {
	struct sim_options options;
	struct sim *sim;
	struct sim_process *server;
	struct fabric_memory memory;
	uint64_t *words; /* the same */
	bool stop;       /* the server ends */
	bool holds;      /* it does not cut who is gone */
	unsigned int closed, broken;
	uint64_t heard_ns;   /* when the last of these was */
	uint64_t at_cut[32]; /* the first words when a connection was cut */
	bool has_cut;
	uint64_t hash; /* of the trace, if options.trace is lab_trace */
	/* What the server does from time to time. */
	void (*work)(struct lab *lab);
};

/* No faults, nothing begun. */
void lab_init(struct lab *lab, uint64_t seed);
/* The world, the server and the test's process. */
void lab_open(struct lab *lab);
void lab_close(struct lab *lab);
void lab_start_server(struct lab *lab);
void lab_trace(void *ctx, uint64_t now_ns, const char *who, const char *what);

struct lab_client {
	struct fabric *fabric;
	struct fabric_endpoint *ep;
	struct fabric_completion completion;
};

/* For any process: 0 or an error, the grants received. */
int lab_connect(struct lab_client *client);
void lab_disconnect(struct lab_client *client);
int lab_do(struct lab_client *client, const struct fabric_op *ops, uint32_t n);
/* Polls until nothing is pending. The status. */
int lab_finish(struct lab_client *client);
int lab_add(struct lab_client *client, uint64_t word, uint64_t addend, uint64_t *old);

#endif

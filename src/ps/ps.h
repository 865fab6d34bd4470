/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server as a step function: no threads, statics or clock of its own, so that a loop around
 * it serves in a process, in a program's thread, or in the simulator.
 */
#ifndef PS_PS_H
#define PS_PS_H

#include "core/arena.h"
#include "fabric/fabric.h"

struct ps_server;

/*
 * Begins to serve the arena at address: brings a resumed arena into order (restart.c), then
 * listens. The fabric and the arena stay the caller's and outlive the server. Errors of
 * core/arena.h and fabric_listen().
 */
int ps_open(struct fabric *fabric, struct core_arena *arena, const char *address,
	    struct ps_server **server);

/*
 * Takes what control messages and commits there are now. 1: there was something to do; 0:
 * nothing. Negative: the server can't go on. Never blocks.
 */
int ps_step(struct ps_server *server);

/* Sleeps until there may be something to do, ps_wake(), or the deadline. */
int ps_wait(struct ps_server *server, uint64_t deadline_ns);

/* Ends a ps_wait(), from any thread or a signal handler. */
void ps_wake(struct ps_server *server);

/* The address that workers connect to. */
const char *ps_address(const struct ps_server *server);

void ps_close(struct ps_server *server);

#endif

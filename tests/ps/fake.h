/* SPDX-License-Identifier: BSD-2-Clause */
/* A fabric within one thread, whose peers do what the test says. */
#ifndef TESTS_PS_FAKE_H
#define TESTS_PS_FAKE_H

#include "fabric/fabric.h"

/* Its clock stands still until fake_advance(). */
int fake_open(struct fabric **fabric);
void fake_advance(struct fabric *fabric, uint64_t ns);

/* Which process connects from now on; 1 at first. */
void fake_process(struct fabric *fabric, uint64_t process);

/* The process is gone: its connections end, without what fabric_endpoint_close() says. */
void fake_kill(struct fabric *fabric, uint64_t process);

/* The nth grant from now on returns code. */
void fake_fail_grant(struct fabric *fabric, uint32_t nth, int code);

/* Its connections break, as the server hears; the process lives. */
void fake_break(struct fabric *fabric, uint64_t process);

/* While true, fabric_cut() of connections of this process says -EAGAIN. */
void fake_resist(struct fabric *fabric, uint64_t process, bool resists);

/* Calls of fabric_wait() so far, and the deadline of the last. */
uint32_t fake_waits(struct fabric *fabric, uint64_t *deadline_ns);

/* Calls of fabric_next_event() so far. */
uint32_t fake_looks(struct fabric *fabric);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated cluster: nodes with a network device each, processes on them, and a fabric between,
 * under a virtual clock. One seed decides everything that happens, so that a seed replays exactly.
 *
 * A process is a coroutine that runs the shipping code of worker and server over the simulated
 * fabric. It gives way only where that fabric lets time pass (poll, wait_word, recv, connect, wait,
 * sleep) and in sim_pause(); everything between takes no virtual time but what the costs say of a
 * post. One thread runs the whole world: a struct sim belongs to the thread that opened it, and one
 * world exists at a time in a thread.
 *
 * Faults. Each kind has a rate of its own, and is counted when it happens. What a fault may do is
 * just what the RDMA specification and the seam (fabric/fabric.h) allow: the completions of one
 * endpoint stay in order, those of different endpoints do not; READs are sampled in any order and
 * in pieces, unless fenced; a WRITE lands in pieces in any order, before an atomic posted after it;
 * what was under way on a connection that breaks has landed, lands later or never, a prefix of what
 * was posted, until the server cuts it.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

enum sim_fault {
	SIM_DELAY = 0,  /* an operation or its completion takes up to 100 times as long */
	SIM_TEAR,       /* a READ or WRITE of more than 8 bytes is done in pieces, apart in time */
	SIM_READ_ORDER, /* a READ is sampled before one posted earlier */
	SIM_BREAK,      /* a connection breaks under operations; both processes live */
	SIM_LATE,       /* what was under way on a connection that broke lands later: the rate is of
			   breaks, the count of operations */
	SIM_LATE_MESSAGE, /* a control message, or the news of a break or death, comes late */
	SIM_LEASE,        /* a connection's lease runs out though its process lives */
	SIM_STALL,        /* a process stands still for a while, as by SIGSTOP */
	SIM_KILL_WORKER,  /* rates of these three are the harness's to use; sim counts sim_kill() */
	SIM_KILL_SERVER,
	SIM_REBIRTH, /* a rank came back as a new incarnation, or a server from its arena */
	SIM_FAULTS,
};

/* For output: "delay", "tear", ... */
extern const char *const sim_fault_names[SIM_FAULTS];

/* Of a device and the network, in nanoseconds. sim_costs_plain is quick and has no queues. */
struct sim_costs {
	uint64_t one_way_ns;     /* a packet from device to device */
	uint64_t jitter_ns;      /* up to so much more, at random */
	uint64_t post_ns;        /* of the poster's CPU for one doorbell */
	uint64_t byte_ps;        /* of the link, a byte, in picoseconds */
	uint64_t read_ns;        /* the target's device serves one READ */
	uint64_t write_ns;       /* one WRITE */
	uint64_t atomic_ns;      /* one atomic, whatever the word */
	uint64_t atomic_word_ns; /* between two atomics on the same word */
	uint32_t queue_pairs;    /* that the device holds in its cache; 0: all */
	uint64_t queue_pair_ns;  /* more for an operation on one that it does not hold */
	uint64_t message_ns;     /* a control message on its way */
};

extern const struct sim_costs sim_costs_plain;

#define SIM_CERTAIN 1000000u /* rates are in millionths, for each chance that there is */

struct sim_options {
	uint64_t seed;
	struct sim_costs costs;
	uint32_t rate[SIM_FAULTS];
	uint64_t lease_ns; /* from a break until a server takes a silent process for dead */
	/* A line of trace, when not NULL: time, process ("worker 3", "server 0", "net"), what happened. */
	void (*trace)(void *ctx, uint64_t now_ns, const char *who, const char *what);
	void *ctx;
};

struct sim;
struct sim_process;

struct sim *sim_open(const struct sim_options *options);

/* Ends what still runs, and frees all. */
void sim_close(struct sim *sim);

/*
 * Makes a process on a node (any number; one device each) that will run main(arg). It owns what it
 * allocates: that is given back when it is killed, and sim_leaked() tells what it left when it ended
 * by itself.
 */
struct sim_process *sim_spawn(struct sim *sim, const char *name, uint32_t node,
			      void (*main)(void *arg), void *arg);

/*
 * Makes the caller itself a process, of which there can be one: the world runs while it waits. Its
 * memory is nobody's, it can't be killed, and it does not count as alive.
 */
struct sim_process *sim_adopt(struct sim *sim, const char *name, uint32_t node);

/* Runs the world until every process has ended or the virtual time is reached. Returns how many live. */
uint32_t sim_run(struct sim *sim, uint64_t until_ns);

/*
 * Kills a process where it stands, which may be the caller: then it does not return. Its
 * connections break; what it had under way has an unknown fate until the servers cut them.
 */
void sim_kill(struct sim_process *process);
bool sim_alive(const struct sim_process *process);

/* Bytes that a process which has ended by itself had not freed, and endpoints it had not closed. */
uint64_t sim_leaked(const struct sim_process *process);

/* For code that runs in a process. */

struct sim *sim_here(void);
struct sim_process *sim_self(void);

/* A fabric for the process that calls. Addresses are "sim://NODE/NAME". */
int sim_open_fabric(struct fabric **fabric);

/* Lets up to so much time pass; 0: others that are due now run first. May be called at any store. */
void sim_pause(uint64_t duration_ns);

/*
 * Another process stands still until so much time has passed; BASE_FOREVER: until this is called with
 * 0. At the SIM_STALL rate processes do so by themselves.
 */
void sim_stall(struct sim_process *process, uint64_t duration_ns);

/*
 * What is allocated between true and false belongs to no process, and outlives the one that runs: for
 * a harness's hooks. Nests. The trace function is always called so.
 */
void sim_outside(struct sim *sim, bool outside);

uint64_t sim_now(const struct sim *sim);

/* From the seed's stream: a number below n; whether a fault of this kind happens now (and counts it). */
uint64_t sim_random(struct sim *sim, uint64_t n);
bool sim_chance(struct sim *sim, enum sim_fault kind);
void sim_count(struct sim *sim, enum sim_fault kind);

void sim_trace(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct sim_stats {
	uint64_t faults[SIM_FAULTS];
	uint64_t operations, lists, messages, switches, events;
	uint64_t busiest_device_ns; /* the most that one device has served */
};

void sim_get_stats(const struct sim *sim, struct sim_stats *stats);

#endif

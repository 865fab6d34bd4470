/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One suite for every fabric. A test program describes its fabric in a struct conformance_fabric and calls
 * conformance_run(); nothing in the suite knows which fabric it is.
 *
 * The server of most tests is a child process that grants its regions to everyone and does what messages
 * say; the test is its client, and so are other children. For what a server sees (events, cut) the test
 * is the server.
 */
#ifndef CONFORMANCE_CONFORMANCE_H
#define CONFORMANCE_CONFORMANCE_H

#include "fabric/fabric.h"
#include "support/support.h"

/*
 * The suite's processes. They are made by fork, unless the fabric has a kind of its own, as those of a
 * simulated world.
 */
struct conformance_processes {
	/* A process that runs body(arg), with arg_bytes of arg for its own. Its id, above 0. */
	pid_t (*spawn)(void (*body)(void *arg), const void *arg, size_t arg_bytes);
	/* As support_join(). */
	int (*join)(pid_t pid, int timeout_ms);
	/* SIGKILL, SIGSTOP or SIGCONT */
	void (*signal)(pid_t pid, int signal);
	/* Lets time pass. Who waits for something that no fabric call brings must call it. */
	void (*sleep)(unsigned int duration_us);
	/* Ends the process that calls, which is not the test's. */
	void (*end)(int status);
};

struct conformance_fabric {
	const char *name;
	int (*open)(struct fabric **fabric);
	/* A fresh address to listen on. */
	void (*address)(char *buf, size_t len_bytes);
	/* Zeroed memory to register, that forked children share; and its end. */
	int (*allocate)(struct fabric_memory *memory, uint64_t len_bytes);
	void (*release)(struct fabric_memory *memory);
	/* The server's death is seen after at most so long. */
	int death_ms;
	const struct conformance_processes *processes; /* NULL: forked ones */
};

extern const struct conformance_fabric *conformance;

/* The server's regions: */
enum conformance_region {
	WORDS = 0,     /* READ, ATOMIC */
	PUBLISHED = 1, /* READ */
	SLOTS = 2,     /* WRITE */
	SHARED = 3,    /* READ, WRITE */
	RAGGED = 4,    /* all; RAGGED_BYTES, which is no multiple of 8 */
	REGIONS = 5,
	MISSING = 6, /* never granted */
};

#define REGION_BYTES (1u << 20)
#define RAGGED_BYTES 4099u

/* What the server does for a message; each is answered by a message of `count` in .count, but for QUIET. */
enum conformance_command {
	ECHO = 1, /* answers with the same bytes */
	STORE,    /* stores value at offset of region, and notifies */
	SHUT,     /* cuts and closes the endpoint */
	FLOOD,    /* sends count messages, numbered in .value, as fast as they are taken */
	QUIET,    /* nothing at all; counted */
	COUNT,    /* answers with how many messages have come from this peer */
};

struct conformance_message {
	uint32_t command, region;
	uint64_t offset, value, count;
};

struct conformance_server {
	char address[256];
	pid_t pid;
	struct fabric_memory memory[REGIONS]; /* of this process: the test can look at it */
};

/* Starts and kills the child that serves. */
void conformance_start(struct conformance_server *server);
void conformance_kill(struct conformance_server *server);
void conformance_stop(struct conformance_server *server);

/* Memory for all regions, and granting it. */
void conformance_allocate(struct fabric_memory memory[REGIONS]);
void conformance_release(struct fabric_memory memory[REGIONS]);
int conformance_grant(struct fabric_endpoint *ep, const struct fabric_memory memory[REGIONS]);

struct conformance_client {
	struct fabric *fabric;
	struct fabric_endpoint *ep;
	struct fabric_completion completion;
};

/* Connects and receives the grants: 0 or -errno. */
int conformance_connect(const char *address, struct conformance_client *client);
void conformance_disconnect(struct conformance_client *client);

/* A deadline so many milliseconds from now. */
uint64_t conformance_in(const struct conformance_client *client, int timeout_ms);

/* Executes one operation within seconds. */
int conformance_do(struct conformance_client *client, const struct fabric_op *op);
int conformance_read(struct conformance_client *client, uint32_t region, uint64_t offset, void *to,
		     uint64_t len_bytes);
int conformance_write(struct conformance_client *client, uint32_t region, uint64_t offset,
		      const void *from, uint64_t len_bytes);
int conformance_add(struct conformance_client *client, uint64_t offset, uint64_t addend, uint64_t *old);
int conformance_swap(struct conformance_client *client, uint64_t offset, uint64_t compare,
		     uint64_t value, uint64_t *old);

/* Sends a command and takes the answer. */
int conformance_ask(struct conformance_client *client, struct conformance_message *message);

/* Runs body in n processes that are clients of the server. All must succeed within timeout_ms. */
struct conformance_job {
	struct conformance_server *server;
	void (*body)(struct conformance_client *client, unsigned int index, void *arg);
	void *arg;
};

/* As the functions of struct conformance_processes. */
pid_t conformance_fork(void (*body)(void *arg), const void *arg, size_t arg_bytes);
int conformance_wait(pid_t pid, int timeout_ms);
void conformance_signal(pid_t pid, int signal);
void conformance_sleep(unsigned int duration_us);
_Noreturn void conformance_end(int status);

void conformance_spawn(const struct conformance_job *job, unsigned int n, pid_t *pids);
void conformance_join(unsigned int n, const pid_t *pids, int timeout_ms);

/* The parts, as arrays of cmocka tests. */
extern const struct CMUnitTest conformance_ops_tests[];
extern const size_t conformance_ops_count;
extern const struct CMUnitTest conformance_order_tests[];
extern const size_t conformance_order_count;
extern const struct CMUnitTest conformance_wait_tests[];
extern const size_t conformance_wait_count;
extern const struct CMUnitTest conformance_channel_tests[];
extern const size_t conformance_channel_count;
extern const struct CMUnitTest conformance_server_tests[];
extern const size_t conformance_server_count;

/* Runs all parts. The number of failures. */
int conformance_run(const struct conformance_fabric *fabric);

/* Fixtures for tests that need a server and a client: *state is a struct conformance_world. */
struct conformance_world {
	struct conformance_server server;
	struct conformance_client client;
};

int conformance_setup(void **state);
int conformance_teardown(void **state);

#endif

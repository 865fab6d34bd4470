/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share. */
#ifndef SIM_PRIVATE_H
#define SIM_PRIVATE_H

#include <sys/queue.h>

#include "base/clock.h"
#include "base/error.h"
#include "sim/sim.h"

#define SIM_POLL_NS        50   /* what a look takes that finds nothing */
#define SIM_UNTAKEN        64   /* messages on their way to one side, or waiting there */
#define SIM_MAX_READS      16   /* outstanding, of one endpoint */
#define SIM_PIECES         4    /* into which a READ or WRITE is torn, at most */
#define SIM_ADDRESS_BYTES  128  /* "sim://NODE/NAME" */
#define SIM_LISTENER_LISTS 256  /* buckets */
#define SIM_DEVICE_LISTS   4096 /* buckets */
#define SIM_POOL_CLASSES   24   /* of memory of the world's own: up to 128 KiB */

#define sim_likely(x)   __builtin_expect(!!(x), 1)
#define sim_unlikely(x) __builtin_expect(!!(x), 0)

/* Something that will happen. It lies in what it happens to. */
struct sim_event {
	void (*run)(struct sim *sim, struct sim_event *event);
	uint64_t sequence; /* 0: it is not due */
};

struct sim_due {
	uint64_t at, sequence;
	struct sim_event *event;
};

struct sim_heap {
	struct sim_due *entries;
	uint32_t count, capacity, dead;
};

/* A place to continue at. */
struct sim_context {
	void *sp;        /* or a ucontext_t */
	void *sanitizer; /* TSan's fiber, or ASan's fake stack */
	const void *stack;
	size_t stack_bytes;
};

struct sim_device {
	LIST_ENTRY(sim_device) link;
	LIST_ENTRY(sim_device) all;
	uint32_t node;
	uint32_t queue_pairs; /* of connections that end here */
	uint64_t busy_until, out_until, in_until;
	uint64_t served_ns, out_ns, in_ns;
};

struct sim_memory {
	LIST_ENTRY(sim_memory) link;
	struct sim_process *process;
	char *base;
	uint64_t len_bytes;
	bool valid;
};

struct sim_block;
struct sim_mapping;
struct sim_file;
LIST_HEAD(sim_blocks, sim_block);
LIST_HEAD(sim_mappings, sim_mapping);
LIST_HEAD(sim_files, sim_file);

/* What a process has and must give back. */
struct sim_owned {
	struct sim_blocks blocks;
	struct sim_mappings mappings;
	struct sim_files files;
};

struct sim_process {
	struct sim *sim;
	LIST_ENTRY(sim_process) all;
	TAILQ_ENTRY(sim_process) ready;
	char name[32];
	uint64_t id;
	struct sim_device *device;
	void (*main)(void *arg);
	void *arg;
	struct sim_context context;
	char *stack;
	bool is_adopted, is_ready, is_blocked, has_ended, was_killed, is_server;
	const void *waits_on;   /* an endpoint, a listener, a connection, or NULL */
	uint64_t deadline_ns;   /* while it is blocked */
	uint64_t stalled_until; /* by a stall */
	uint64_t busy_until;    /* with posting */
	struct sim_event timer;
	uint64_t timer_at;
	struct base_error_state *errors;
	struct sim_owned owned;
	LIST_HEAD(sim_fabrics, sim_fabric) fabrics;
	LIST_HEAD(sim_endpoints, sim_endpoint) endpoints;
	LIST_HEAD(sim_own_listeners, sim_listener) listeners;
	LIST_HEAD(sim_memories, sim_memory) memories;
	uint64_t leaked;
};

struct sim_fabric {
	struct fabric base;
	LIST_ENTRY(sim_fabric) link;
	struct sim_process *process;
};

/* A message or news on its way, or waiting to be taken. */
struct sim_note {
	struct sim_event event;
	TAILQ_ENTRY(sim_note) at_endpoint, at_listener;
	struct sim_connection *connection;
	struct sim_endpoint *endpoint; /* that it waits at */
	uint32_t kind;                 /* enum fabric_event_kind */
	uint32_t len_bytes;
	uint32_t granted; /* regions, when it was sent */
	bool to_server;
	unsigned char bytes[];
};
TAILQ_HEAD(sim_notes, sim_note);

struct sim_endpoint {
	struct fabric_endpoint base;
	LIST_ENTRY(sim_endpoint) link;
	struct sim_process *process;
	struct sim_connection *connection;
	bool is_server, is_loopback, is_broken, has_completed;
	uint32_t known; /* regions that it may use */
	struct fabric_reading reading;
	struct sim_notes notes;
	struct fabric_limits limits;
	char address[SIM_ADDRESS_BYTES];
};

struct sim_listener {
	struct fabric_listener base;
	LIST_ENTRY(sim_listener) link;   /* of its process */
	LIST_ENTRY(sim_listener) bucket; /* of all, by address */
	struct sim_process *process;
	struct sim_fabric *fabric;
	struct sim_notes notes;
	bool is_woken;
};

struct sim_op {
	struct sim_event event;
	TAILQ_ENTRY(sim_op) link; /* of what the connection has posted and not done */
	struct sim_op *next;      /* of its list, with a result */
	struct sim_list *list;    /* NULL: its poster has given up on it */
	struct sim_connection *connection;
	uint8_t opcode, flags;
	uint8_t pieces, piece, order[SIM_PIECES];
	uint8_t slot;
	bool is_issued;
	uint16_t region;
	uint32_t count, limit; /* limit: of them will be done */
	uint64_t offset, len_bytes;
	void *local;
	uint64_t operand, compare; /* operand: the result too, once it is done */
	uint64_t *words;           /* of lists: offsets, then addends */
	char *data;                /* sampled source, or what was read */
	uint64_t issued_ns;
	uint64_t number;  /* in the connection */
	uint64_t step_ns; /* between pieces, at most */
};
TAILQ_HEAD(sim_ops, sim_op);

struct sim_list {
	TAILQ_ENTRY(sim_list) link;
	struct fabric_completion *completion;
	struct sim_op *results;
	uint32_t left;  /* operations that are not done */
	uint32_t count; /* as the limit counts */
	int32_t status;
	uint64_t ready_ns;
};
TAILQ_HEAD(sim_lists, sim_list);

struct sim_region {
	struct sim_memory *memory;
	uint32_t rights;
};

/* The two halves of a connection, and what is under way between them. It stays until the world ends. */
struct sim_connection {
	struct sim *sim;
	LIST_ENTRY(sim_connection) all;
	struct sim_endpoint *client, *server; /* NULL: not yet, or closed */
	struct sim_process *client_process;
	struct sim_listener *listener; /* while it connects */
	struct sim_device *source, *target;
	uint64_t id;
	bool is_loopback, is_accepted, is_refused;
	bool client_gone;    /* closed, dead, or it saw the break */
	bool is_cut;         /* nothing lands any more */
	bool server_told;    /* CLOSED or BROKEN has arrived: no message comes after it */
	uint8_t cut_tries;   /* that will fail, plus 1; 0: none was made */
	uint32_t untaken[2]; /* by direction: to the client, to the server */
	uint64_t arrival[2]; /* of the last message */
	struct sim_region regions[FABRIC_MAX_REGIONS];
	uint32_t granted;

	struct sim_ops ops;      /* posted, not done */
	struct sim_op *unissued; /* the first that waits for earlier ones */
	struct sim_lists lists;  /* not complete */
	struct sim_lists done;   /* complete, the poster has not looked */
	uint32_t queued_ops, queued_lists, max_lists;
	uint32_t reads_flying, reads_issued;
	uint64_t numbers, last_begun; /* of operations; the last WRITE or atomic that had an effect */
	uint64_t sent_ns, arrived_ns;    /* the last of all */
	uint64_t effects_ns, atomics_ns; /* of WRITEs and atomics, of atomics */
	uint64_t response_ns;            /* the last of READs and atomics */
	uint64_t responses[SIM_MAX_READS];
	struct sim_event completion, loss;
	uint64_t loss_at;
	bool loss_is_break; /* the server is there, and has not heard of it */
};

struct sim_pool {
	void *free;
};

struct sim_large {
	LIST_ENTRY(sim_large) link;
};

struct sim {
	uint64_t now, sequence, random;
	struct sim_heap heap;
	struct sim_process *current, *adopted;
	TAILQ_HEAD(sim_ready, sim_process) ready;
	LIST_HEAD(sim_processes, sim_process) processes;
	LIST_HEAD(sim_connections, sim_connection) connections;
	LIST_HEAD(sim_device_list, sim_device) devices[SIM_DEVICE_LISTS];
	LIST_HEAD(sim_all_devices, sim_device) all_devices;
	LIST_HEAD(sim_listener_list, sim_listener) listeners[SIM_LISTENER_LISTS];
	struct sim_context context; /* of the thread that runs the world */
	uint32_t live;
	uint32_t outside; /* >0: what is allocated is nobody's */
	uint64_t next_process, next_connection;
	struct sim_options options;
	struct fabric_limits limits;
	uint32_t max_lists;
	bool has_faults, has_queues;
	void *stacks; /* that are free */
	void *slabs;
	char *slab;
	size_t slab_left;
	struct sim_pool pools[SIM_POOL_CLASSES], event_pools[SIM_POOL_CLASSES];
	LIST_HEAD(sim_larges, sim_large) large;
	uint64_t *words; /* when an atomic on each is over: pairs of address and time */
	uint64_t word_count, word_capacity;
	struct sim_stats stats;
};

#define sim_traces(sim) sim_unlikely((sim)->options.trace != NULL)

/* sim_events.c */
void sim_schedule(struct sim *sim, struct sim_event *event, uint64_t at);
void sim_cancel(struct sim *sim, struct sim_event *event);
/* When the next one is due, BASE_FOREVER: none is; and what happens then. */
uint64_t sim_next_at(struct sim *sim);
void sim_run_next(struct sim *sim);

/* sim_world.c */
/* Runs what is due until `until` is ready, or, where that is NULL, until until_ns. */
void sim_loop(struct sim *sim, const struct sim_process *until, uint64_t until_ns);
/* Between low and high, each power of two as likely. */
uint64_t sim_random_spread(struct sim *sim, uint64_t low, uint64_t high);
void sim_trace_as(struct sim *sim, const char *who, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* sim_pool.c: memory of the world's own */
void *sim_raw_alloc(size_t len_bytes);
void sim_raw_free(void *block);
void *sim_alloc(struct sim *sim, size_t len_bytes);
void sim_free(struct sim *sim, void *block, size_t len_bytes);
/* For what begins with a struct sim_event: it stays one, and is not due, until it is another's. */
void *sim_alloc_event(struct sim *sim, size_t len_bytes);
void sim_free_event(struct sim *sim, void *block, size_t len_bytes);
void sim_pool_end(struct sim *sim);

/* sim_switch.c */
int sim_stack_get(struct sim *sim, struct sim_process *process);
void sim_stack_put(struct sim *sim, struct sim_process *process);
void sim_stacks_end(struct sim *sim);
void sim_context_of_thread(struct sim_context *context);
void sim_context_make(struct sim_context *context, char *stack, size_t len_bytes);
void sim_context_end(struct sim_context *context);
/* ends: `from` is never continued */
void sim_context_switch(struct sim_context *from, struct sim_context *to, bool ends);
_Noreturn void sim_process_main(void); /* sim_process.c: where a new context begins */
void sim_context_begun(void);

/* sim_process.c */
struct sim_process *sim_caller(void);
/* The process gives way until it is woken or the deadline. */
void sim_block(struct sim_process *process, const void *on, uint64_t deadline_ns);
void sim_wake(struct sim_process *process, const void *on);
void sim_resume(struct sim *sim, struct sim_process *process);
void sim_process_free(struct sim_process *process);
uint64_t sim_time_of(const struct sim_process *process);

/* sim_memory.c: gives back all; how many bytes, descriptors and mappings there were */
uint64_t sim_owned_count(const struct sim_owned *owned);
void sim_owned_end(struct sim_owned *owned);

/* sim_fabric.c */
extern const struct fabric_ops sim_ops;
void sim_fabrics_end(struct sim_process *process);
uint64_t sim_fabrics_count(const struct sim_process *process);
struct sim_connection *sim_connection_new(struct sim *sim, struct sim_process *client);
struct sim_endpoint *sim_endpoint_new(struct sim_fabric *fabric, struct sim_connection *connection);
void sim_endpoint_free(struct sim_endpoint *ep);
void sim_endpoint_close(struct fabric_endpoint *ep);

/* sim_channel.c */
uint64_t sim_message_time(struct sim *sim, struct sim_connection *c, bool to_server);
void sim_tell_server(struct sim_connection *c, uint32_t kind, uint64_t delay_ns);
void sim_note_free(struct sim_note *note);
void sim_accept(struct sim_connection *c);
void sim_refuse(struct sim_connection *c);
int sim_connect(struct fabric *fabric, const char *address, uint64_t deadline_ns,
		struct fabric_endpoint **ep);
int sim_send(struct fabric_endpoint *ep, const void *message, uint32_t len_bytes);
int sim_recv(struct fabric_endpoint *ep, void *message, uint32_t len_bytes, uint64_t deadline_ns);
int sim_check(struct fabric_endpoint *ep);

/* sim_listener.c */
int sim_address_check(const char *address, uint32_t *node);
struct sim_listener *sim_listener_find(struct sim *sim, const char *address);
int sim_listen(struct fabric *fabric, const char *address, struct fabric_listener **listener);
void sim_listener_close(struct fabric_listener *listener);
int sim_next_event(struct fabric_listener *listener, struct fabric_event *event);
int sim_wait(struct fabric_listener *listener, uint64_t deadline_ns);
void sim_wake_listener(struct fabric_listener *listener);
int sim_loopback(struct fabric_listener *listener, struct fabric_endpoint **ep);
int sim_grant(struct fabric_endpoint *ep, uint32_t region, const struct fabric_memory *memory,
	      uint32_t rights);

/* sim_loss.c */
/* The client's half ends; how the server hears of it is the caller's. */
void sim_lose(struct sim_connection *c);
/* The client will see the connection's end after so long, if it does not sooner. */
void sim_lose_later(struct sim_connection *c, uint64_t delay_ns);
void sim_client_died(struct sim_connection *c);
void sim_server_ended(struct sim_connection *c, bool died);
void sim_cut_off(struct sim_connection *c, const char *why);
void sim_posted(struct sim_connection *c);
int sim_cut(struct fabric_endpoint *ep);
void sim_abort(struct fabric_endpoint *ep);

/* sim_post.c */
int sim_post(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
	     struct fabric_completion *completion);
int sim_poll(struct fabric_endpoint *ep, uint64_t deadline_ns);
int sim_refuse_op(const struct sim_endpoint *ep, const struct fabric_op *op, int code);
int sim_admit(const struct sim_endpoint *ep, const struct fabric_op *op);
extern const char *const sim_opcode_names[];
/* Hands the poster what has completed. */
bool sim_deliver(struct sim_endpoint *ep);

/* sim_execute.c */
void sim_issue(struct sim_connection *c);
void sim_sample(struct sim_op *op);
void sim_finish(struct sim_op *op);
void sim_op_free(struct sim *sim, struct sim_op *op);
void sim_arrive(struct sim *sim, struct sim_event *event);
void sim_complete(struct sim *sim, struct sim_event *event);

static inline bool sim_op_is_write(const struct sim_op *op)
{
	return op->opcode == FABRIC_WRITE;
}

static inline bool sim_op_is_read(const struct sim_op *op)
{
	return op->opcode == FABRIC_READ || op->opcode == FABRIC_READ_LIST;
}

/* sim_device.c */
struct sim_device *sim_device_of(struct sim *sim, uint32_t node);
void sim_device_end(struct sim *sim);
/* The poster's device sends it, not before `ready`: when it has left. */
uint64_t sim_device_send(struct sim_connection *c, const struct sim_op *op, uint64_t ready);
/* The target's device takes it up now: when it is served. */
uint64_t sim_device_serve(struct sim_connection *c, const struct sim_op *op);
/* Its answer leaves now: when it is there, without the way. */
uint64_t sim_device_answer(struct sim_connection *c, const struct sim_op *op);

static inline uint64_t sim_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t sim_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* For whoever has a member's address. */
#define sim_container(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps: an RDMA parameter server.
 *
 * Servers expose memory; workers read parameters out of it, add updates into it and meet at
 * barriers made of its words, without a server's CPU in the way. This header is the whole public
 * interface.
 *
 * Conventions
 *
 *  - Every function returns 0 (or a count) or a negative errno. ramps_last_error() has the detail
 *    of this thread's last failure: one line that says what happened and what to do.
 *  - timeout_ms: -1 waits for ever, 0 does not block, else milliseconds on a monotonic clock.
 *  - Structs of options begin with `size`; fill them with RAMPS_..._INIT and set what differs. A
 *    NULL pointer to options means the defaults (and, where said, the environment).
 *  - A worker and everything opened from it belong to one thread at a time; ramps_worker_clone()
 *    gives another thread its own. Only ramps_worker_interrupt() may be called from anywhere.
 *  - Closing a worker before its tables, barriers, clocks and buffers is safe: their calls return
 *    -ENOTCONN, and each still has to be closed.
 *  - Names of jobs, tables, barriers and clocks are 1 to 63 bytes of letters, digits, '.', '_',
 *    '-' and '/', not beginning with '.' or '/', without "..".
 *  - After fork() the child may only close what it inherited; it may join anew.
 *
 * Errors that any call on a worker or on what was opened from it may return, besides its own:
 *
 *  -EINVAL     a parameter is out of its stated range, or a NULL pointer where none is allowed
 *  -ENOTCONN   the worker was closed, or a server is gone; the next call tries to reach it again
 *  -EHOSTUNREACH  over a network: there is no way to a lost server, or no RDMA device here any more
 *  -ESTALE     this incarnation was fenced: a newer process has the rank
 *  -EBUSY      another thread is inside a call on this worker
 *  -ENOMEM     no memory
 */
#ifndef RAMPS_RAMPS_H
#define RAMPS_RAMPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAMPS_VERSION_MAJOR 0
#define RAMPS_VERSION_MINOR 1
#define RAMPS_VERSION_PATCH 0

#define RAMPS_NAME_BYTES 64 /* a name and its terminating zero */

struct ramps_server;
struct ramps_worker;
struct ramps_table;
struct ramps_barrier;
struct ramps_clock;
struct ramps_buffer;

/* The version of the library in use, "0.1.0". Never fails. */
const char *ramps_version(void);

/*
 * Errors and log
 */

struct ramps_error {
	int code;              /* the errno of the last failed call, positive; 0: none yet */
	const char *call;      /* the public function that failed */
	const char *peer;      /* the address of the server concerned, or "" */
	const char *text;      /* one line: what happened and what to do */
	const uint32_t *ranks; /* ranks that a wait was waiting for, or that died */
	uint32_t rank_count;
	uint64_t unknown_ops; /* operations whose fate is not known; see ramps_table_push() */
};

/*
 * The detail of the last failed call in this thread. Never NULL. The struct and what it points to
 * belong to the library and hold until this thread's next call that fails.
 */
const struct ramps_error *ramps_last_error(void);

enum ramps_log_level {
	RAMPS_LOG_ERROR = 0,
	RAMPS_LOG_WARNING = 1,
	RAMPS_LOG_INFO = 2,
	RAMPS_LOG_DEBUG = 3,
};

/*
 * Sends log lines of `level` and more severe to `log`; NULL turns logging off, as it is at start.
 * `line` has no newline and holds for the call only. `log` may be called from any thread of the
 * library and must not call back into it. Set it before the first server or worker is made.
 */
void ramps_set_log(void (*log)(void *ctx, int level, const char *line), void *ctx, int level);

/*
 * Server
 */

enum ramps_on_death {
	RAMPS_ON_DEATH_FAIL = 0,     /* waits of the others return -EOWNERDEAD */
	RAMPS_ON_DEATH_CONTINUE = 1, /* the others go on without the dead rank until it is back */
};

struct ramps_server_options {
	size_t size;
	const char *address; /* "shm://NAME", or "embed:" for a name of its own; NULL: "embed:" */
	const char *job;     /* name of the job; NULL: RAMPS_JOB, else "default" */
	uint64_t arena_bytes; /* most memory for tables; 0: 1 GiB. Used memory grows with the tables */
	uint64_t slots_bytes; /* staging of each worker, rounded to 64 KiB cells; 0: 4 MiB */
	uint32_t max_workers; /* 1 .. 16384; 0: 1024 */
	uint32_t on_death;    /* enum ramps_on_death */
	uint32_t keep;        /* 1: ramps_server_stop() leaves the arena for a later server */
	uint32_t fresh;       /* 1: discard an arena that an earlier server left */
	/*
	 * Over a network: a rank whose connection broke, or that has fallen silent, counts as dead
	 * after so long. 0: 5,000.
	 */
	uint32_t lease_ms;
};
#define RAMPS_SERVER_OPTIONS_INIT                           \
	{                                                   \
		.size = sizeof(struct ramps_server_options) \
	}

/*
 * Starts a server in a thread of this process. Where an earlier server of the same address and
 * job was killed, its arena is taken over with all that is in it. options may be NULL. The server
 * belongs to the caller, who ends it by ramps_server_stop().
 *
 * -EADDRINUSE  another server has this address
 * -EEXIST      what is in the arena's place is no arena of this job, version or user; nothing was
 *              changed
 * -ENOSPC      /dev/shm is too full
 * -EACCES, -EMFILE, -ENAMETOOLONG
 */
int ramps_server_start(const struct ramps_server_options *options, struct ramps_server **server);

/*
 * Writes the address that workers join by, with its terminating zero. Returns its length.
 * -ENOSPC: len_bytes does not hold it.
 */
int ramps_server_address(const struct ramps_server *server, char *buf, size_t len_bytes);

/*
 * Whether the server still serves. Does not block. 0: it does. Else the error that it could not go
 * on from; its memory is as it was, and ramps_server_stop() then leaves the arena for another.
 */
int ramps_server_check(const struct ramps_server *server);

/*
 * Ends the server: its workers' next waits return -ENOTCONN. Removes the arena unless `keep` was
 * set. NULL is allowed. Returns within a second.
 */
void ramps_server_stop(struct ramps_server *server);

/*
 * Worker
 */

#define RAMPS_FROM_ENVIRONMENT UINT32_MAX

struct ramps_worker_options {
	size_t size;
	/*
	 * Addresses with commas between, in the same order in every worker; NULL: RAMPS_SERVERS.
	 * "embed:" starts a server in this process, for a program that runs alone.
	 */
	const char *servers;
	const char *job;    /* NULL: RAMPS_JOB, else "default" */
	uint32_t rank;      /* 0 .. workers-1, or RAMPS_FROM_ENVIRONMENT */
	uint32_t workers;   /* number of workers in the job, or RAMPS_FROM_ENVIRONMENT */
	int32_t timeout_ms; /* for joining: servers may start later than workers. Default 10000 */
};
#define RAMPS_WORKER_OPTIONS_INIT                                                            \
	{                                                                                    \
		.size = sizeof(struct ramps_worker_options), .rank = RAMPS_FROM_ENVIRONMENT, \
		.workers = RAMPS_FROM_ENVIRONMENT, .timeout_ms = 10000                       \
	}

/*
 * Joins a job. Rank and number of workers come both from one source: the options, else RAMPS_RANK
 * and RAMPS_WORKERS, else the launcher that started this process (Open MPI, MPICH, Slurm); with
 * "embed:" and none of these, rank 0 of 1. A rank whose process died is joined again as its next
 * incarnation. Blocks until every server has admitted this rank, or timeout_ms.
 *
 * -EINVAL        no servers named, half a rank given, or sources that contradict each other
 * -ERANGE        the rank is not below the number of workers, or that is above the servers' limit
 * -EADDRINUSE    a live process has this rank
 * -ECONNREFUSED  no server at an address; text names it
 * -EPROTO        a server of another job, number of workers or order of servers
 * -EPROTONOSUPPORT  a server of another version; text names both
 * -ETIMEDOUT     a server is there but did not answer
 * -EMFILE        no descriptors left
 */
int ramps_worker_join(const struct ramps_worker_options *options, struct ramps_worker **worker);

/*
 * Opens the same rank for another thread, with connections of its own. Clones share the rank's
 * clock, its place in barriers and its staging; pushes of one rank to a synchronous table count
 * together. The clone belongs to the caller and is closed like a worker, in any order. Errors as
 * in ramps_worker_join().
 */
int ramps_worker_clone(struct ramps_worker *worker, struct ramps_worker **clone);

struct ramps_worker_info {
	size_t size; /* set by the caller */
	uint32_t rank, workers, servers;
	uint32_t incarnation; /* 1: the rank's first life */
	uint32_t live;        /* ranks that are in the job now */
	const char *job;      /* holds until the worker is closed */
};
#define RAMPS_WORKER_INFO_INIT                           \
	{                                                \
		.size = sizeof(struct ramps_worker_info) \
	}

/* What this worker is. Does not block. */
int ramps_worker_info(const struct ramps_worker *worker, struct ramps_worker_info *info);

/*
 * Makes the call that this worker is waiting in, or else its next call that would wait, return
 * -EINTR within 50 ms. From any thread or a signal handler.
 */
void ramps_worker_interrupt(struct ramps_worker *worker);

/* How far a push has come. */
enum ramps_level {
	RAMPS_LANDED = 0,  /* in the servers' memory; survives the death of any process */
	RAMPS_POSTED = 1,  /* handed over; the source stays untouched until a later flush */
	RAMPS_APPLIED = 2, /* in the weights */
};

/*
 * Waits until all earlier pushes of this worker have reached `level`.
 * -ETIMEDOUT: the ranks whose contribution is missing are in ramps_last_error(). -EINTR,
 * -EOWNERDEAD. -EIO: the connection broke, and unknown_ops in ramps_last_error() additions that were
 * posted to direct tables may or may not have landed; they are not reported again.
 */
int ramps_worker_flush(struct ramps_worker *worker, uint32_t level, int timeout_ms);

/*
 * Leaves the job: waits until this rank's pushes are applied; from then on barriers, clocks and
 * synchronous tables do without it. The worker must still be closed. On error it has not left.
 * -ETIMEDOUT, -EINTR, -EOWNERDEAD.
 */
int ramps_worker_leave(struct ramps_worker *worker, int timeout_ms);

/*
 * Ends the connections. A rank that closes without leaving counts as dead. NULL is allowed. Does
 * not block.
 */
void ramps_worker_close(struct ramps_worker *worker);

/*
 * Memory that pulls and pushes move without a copy on the way. Over verbs the card has to know it
 * first; other memory goes through a registered piece of the library's own. Over shared memory all
 * memory is alike, and a buffer costs nothing.
 *
 * addr NULL: allocates len_bytes, zeroed, at a page's border. Else it is the caller's memory, which
 * stays where it is until the buffer is closed. One worker's operations use it; clones make their own.
 * Does not block.
 * -ENOMEM  no memory, or no more may be locked: text names the limit; -ENOSPC  too many buffers
 */
int ramps_buffer_create(struct ramps_worker *worker, void *addr, size_t len_bytes,
			struct ramps_buffer **buffer);

/* The memory. Holds until the buffer is closed. */
void *ramps_buffer_data(const struct ramps_buffer *buffer);

/* No operation may be under way in it. NULL is allowed. */
void ramps_buffer_close(struct ramps_buffer *buffer);

/*
 * Tables: rows x dim values, row after row, split over the servers by range.
 */

enum ramps_type {
	RAMPS_FLOAT32 = 1,
	RAMPS_INT64 = 2,
};

enum ramps_mode {
	RAMPS_DIRECT = 1, /* a push adds to the parameter itself by fetch-add; no server in the way */
	RAMPS_SLOTS = 2, /* a push stages a gradient; the server sums and takes the optimiser's step */
};

struct ramps_schema {
	size_t size;
	const char *name;
	uint64_t rows, dim; /* each at least 1; rows * dim * 8 below 2^47 */
	uint32_t type;      /* enum ramps_type; RAMPS_SLOTS takes RAMPS_FLOAT32 */
	uint32_t mode;      /* enum ramps_mode */
	/*
	 * Direct float32: a value is stored as round(x * 2^fraction_bits), so that it must stay
	 * below 2^(63-fraction_bits); 0 .. 62.
	 */
	uint32_t fraction_bits;
	uint32_t synchronous; /* slots: 1: a step takes one push of every rank; 0: each push is a step */
	float rate;           /* slots: SGD's learning rate; finite, at least 0 */
	const void *initial; /* rows * dim values of `type` that a new table starts with; NULL: zeros */
};
#define RAMPS_SCHEMA_INIT                                                                        \
	{                                                                                        \
		.size = sizeof(struct ramps_schema), .rows = 1, .dim = 1, .type = RAMPS_FLOAT32, \
		.mode = RAMPS_DIRECT, .fraction_bits = 32, .rate = 0.01f                         \
	}

/*
 * Creates a table and opens it; one rank does so, usually rank 0, the others open it. If a table
 * of this name and schema exists it is opened as it is, and `initial` is not used. If its creator
 * died before it was ready, it is completed. Blocks until every server has the table. The table
 * belongs to the caller.
 *
 * -EEXIST     a table of this name has another schema; text names both
 * -ENOSPC     a server's arena does not hold it; text names the size needed
 * -EOVERFLOW  rows * dim is too large
 * -EDOM       an initial value is NaN, infinite or does not fit fixed point
 */
int ramps_table_create(struct ramps_worker *worker, const struct ramps_schema *schema,
		       struct ramps_table **table);

/*
 * Opens a table by name, waiting until it is ready. expected may be NULL; else its rows, dim,
 * type, mode and synchronous must be the table's.
 *
 * -ENOENT     timeout_ms is 0 and there is no such table yet
 * -ETIMEDOUT  it did not come in time
 * -EEXIST     it is another than expected; text names both
 * -EOWNERDEAD its creator died before it was ready, and the servers' policy is to fail
 * -EINTR
 */
int ramps_table_open(struct ramps_worker *worker, const char *name,
		     const struct ramps_schema *expected, int timeout_ms, struct ramps_table **table);

struct ramps_table_info {
	size_t size;      /* set by the caller */
	const char *name; /* holds until the table is closed */
	uint64_t rows, dim;
	uint32_t type, mode, fraction_bits, synchronous;
	float rate;
	uint32_t servers;        /* servers that hold a part */
	uint64_t chunk_elements; /* values that are updated and versioned together */
	uint64_t chunks;
};
#define RAMPS_TABLE_INFO_INIT                           \
	{                                               \
		.size = sizeof(struct ramps_table_info) \
	}

int ramps_table_info(const struct ramps_table *table, struct ramps_table_info *info);

/* What a pull promises. */
enum ramps_read {
	RAMPS_RELAXED = 0,  /* each value is whole; neighbours may be of different steps */
	RAMPS_SNAPSHOT = 1, /* each chunk is as of one step; slots only */
};

struct ramps_transfer {
	size_t size;
	uint32_t level; /* push: enum ramps_level, how far to wait */
	uint32_t read;  /* pull: enum ramps_read */
	float weight; /* push to slots: the number of samples that the pushed sum is over; at least 0 */
	float rate; /* push to slots: learning rate for this step; NaN or negative: the table's. In a
			 * synchronous step the lowest rank's counts */
	uint64_t steps; /* set by a pull from slots: updates in the weights, the least of its chunks */
	uint64_t unknown_ops; /* set by a push that returns -EIO */
};
#define RAMPS_TRANSFER_INIT                                                          \
	{                                                                            \
		.size = sizeof(struct ramps_transfer), .weight = 1.0f, .rate = -1.0f \
	}

/*
 * Reads rows first_row .. first_row+rows-1 into dst, rows * dim values of the table's type. Any
 * alignment that the type allows. After an error what is in dst is not defined. transfer may be
 * NULL: relaxed.
 *
 * -ERANGE      rows beyond the table's end
 * -EOPNOTSUPP  a snapshot of a direct table
 * -EAGAIN      no snapshot in 8 tries: the chunk changes all the time
 * -ETIMEDOUT, -EINTR
 */
int ramps_table_pull(struct ramps_table *table, uint64_t first_row, uint64_t rows, void *dst,
		     struct ramps_transfer *transfer, int timeout_ms);

/*
 * Contributes rows * dim values. Direct: adds src to the parameters. Slots: src is a sum of
 * gradients over `weight` samples; the server subtracts rate * (sum of pushes) / (sum of
 * weights), over one push (asynchronous) or over one push of every rank, summed in rank order
 * (synchronous, where a push must begin and end at a chunk's border or the table's). Without
 * weights that is the mean over contributions.
 *
 * A call returns when the push has reached transfer->level, by default landed: it then counts
 * exactly once, whatever process dies. Pushes of one worker to one chunk apply in order. Waits
 * for room in the staging slots; all ranks push synchronous tables in the same order, or what
 * they have under way fits the slots. When it fails half-way (-ETIMEDOUT, -EINTR, -ENOTCONN,
 * -EOWNERDEAD, -EIO), what had landed stays. Repeat the call, the same rows, to the same level: it
 * goes on where it stopped, behind what is in doubt, and every value counts once. A push of other
 * rows to this table instead gives the rest up.
 *
 * -ERANGE      rows beyond the table's end
 * -EDOM        a value is NaN, infinite or does not fit fixed point; nothing was sent
 * -EIO         the connection broke: unknown_ops additions to shared words may or may not have
 *              landed, each at most once; slots never return this, their own commit word tells
 * -EOWNERDEAD  a rank that this synchronous step needs is dead
 * -ETIMEDOUT, -EINTR
 */
int ramps_table_push(struct ramps_table *table, uint64_t first_row, uint64_t rows, const void *src,
		     struct ramps_transfer *transfer, int timeout_ms);

/*
 * The same for n rows anywhere, in the order of `rows`: dst and src hold n * dim values. A row
 * may stand more than once. Direct tables only, else -EOPNOTSUPP.
 */
int ramps_table_pull_rows(struct ramps_table *table, const uint64_t *rows, size_t n, void *dst,
			  struct ramps_transfer *transfer, int timeout_ms);
int ramps_table_push_rows(struct ramps_table *table, const uint64_t *rows, size_t n,
			  const void *src, struct ramps_transfer *transfer, int timeout_ms);

/*
 * Points *view at the rows where they lie, read-only, without a copy: always what is there now,
 * as a relaxed pull would read it. Holds until the table is closed.
 *
 * -EOPNOTSUPP  the fabric has no shared memory, or the table is fixed point
 * -EXDEV       the rows lie on more than one server
 * -ERANGE
 */
int ramps_table_view(struct ramps_table *table, uint64_t first_row, uint64_t rows, const void **view);

/* NULL is allowed. */
void ramps_table_close(struct ramps_table *table);

/*
 * Many operations at once
 */

enum ramps_op_kind {
	RAMPS_PULL = 1,
	RAMPS_PUSH = 2,
	RAMPS_PULL_ROWS = 3,
	RAMPS_PUSH_ROWS = 4,
};

#define RAMPS_OP_FOLLOW 1u /* begin after all operations submitted before are complete */

struct ramps_op {
	uint32_t kind;  /* enum ramps_op_kind */
	uint32_t flags; /* RAMPS_OP_... */
	struct ramps_table *table;
	uint64_t first_row, rows; /* of pull and push; rows is the count of row_ids otherwise */
	const uint64_t *row_ids; /* of pull_rows and push_rows; stays valid until reaped, like data */
	void *data;              /* destination or source; a push only reads it */
	struct ramps_transfer transfer; /* size 0: the defaults */
	uint64_t tag;                   /* returned in ramps_done */
};

struct ramps_done {
	uint64_t tag;
	int32_t status; /* 0 or -errno as the blocking call would have returned */
	uint32_t reserved;
	uint64_t steps, unknown_ops; /* as in ramps_transfer */
};

#define RAMPS_SUBMIT_MAX 256 /* operations of one worker that may be submitted and not yet reaped */

/*
 * Takes up to n operations and begins them. Returns how many were taken, from the first on;
 * -EAGAIN if none because RAMPS_SUBMIT_MAX are under way. Each one taken is reaped exactly once,
 * in any order; an operation that is wrong in itself is taken and reaped with its error. A push that
 * ends with -EIO has handed over all its values, those in doubt among them. Does not block.
 */
int ramps_worker_submit(struct ramps_worker *worker, const struct ramps_op *ops, size_t n);

/*
 * Returns up to n completed operations, waiting for at least one. 0: none are under way.
 * -ETIMEDOUT, -EINTR, -ENOTCONN: none completed; they stay under way, also while a server is gone.
 */
int ramps_worker_reap(struct ramps_worker *worker, struct ramps_done *done, size_t n, int timeout_ms);

/*
 * Barriers
 */

struct ramps_group {
	const uint32_t *ranks; /* ascending, each below the number of workers, this rank among them */
	uint32_t count;
};

/*
 * Opens the barrier of this name, made by whoever comes first. group NULL: all ranks. A barrier
 * is used any number of times. -EEXIST: it has another group. -ENOSPC: the server's arena is
 * full.
 */
int ramps_barrier_open(struct ramps_worker *worker, const char *name,
		       const struct ramps_group *group, struct ramps_barrier **barrier);

/*
 * The first half of ramps_barrier_wait(), to overlap work: this rank has arrived. Waits only
 * until its earlier pushes are applied. -EALREADY: it has arrived and not yet waited.
 */
int ramps_barrier_arrive(struct ramps_barrier *barrier, int timeout_ms);

/*
 * Arrives, if this rank has not, and waits until all have: then every rank sees every push that
 * any rank made before arriving. After -ETIMEDOUT or -EINTR the arrival stands, and the next call
 * goes on waiting.
 *
 * -ETIMEDOUT   ramps_last_error()->ranks have not arrived
 * -EOWNERDEAD  ramps_last_error()->ranks died, and the servers' policy is to fail
 * -EINTR
 */
int ramps_barrier_wait(struct ramps_barrier *barrier, int timeout_ms);

void ramps_barrier_close(struct ramps_barrier *barrier);

/*
 * Clocks: stale-synchronous steps
 */

/*
 * Opens the clock of this name. It holds a count for every rank, from 0; a rank that comes late
 * begins at the least of those that are live. Errors as in ramps_barrier_open().
 */
int ramps_clock_open(struct ramps_worker *worker, const char *name, struct ramps_clock **clock);

/*
 * Waits until this rank's pushes are applied, then counts one step. Returns 0. -ETIMEDOUT: not
 * counted.
 */
int ramps_clock_advance(struct ramps_clock *clock, int timeout_ms);

/*
 * Waits until no live rank is more than `staleness` steps behind this one.
 * -ETIMEDOUT: ramps_last_error()->ranks are. -EOWNERDEAD as for barriers. -EINTR.
 */
int ramps_clock_wait(struct ramps_clock *clock, uint64_t staleness, int timeout_ms);

/* Reads this rank's count and a lower bound of the live ranks' least. Either may be NULL. */
int ramps_clock_read(struct ramps_clock *clock, uint64_t *own, uint64_t *slowest);

void ramps_clock_close(struct ramps_clock *clock);

#ifdef __cplusplus
}
#endif

#endif

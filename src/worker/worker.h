/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client, as the public functions use it. Every function here is called between
 * worker_enter() and worker_exit(), and its contract is that of the public function of the same
 * name in ramps.h.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include "fabric/fabric.h"

struct worker_join_options {
	const char *const *addresses; /* of the servers, in order */
	uint32_t servers;
	const char *job;
	uint32_t rank, workers;
	int timeout_ms;
};

/* The fabric is the worker's from then on, and closed with it; on error it stays the caller's. */
int worker_join(struct fabric *fabric, const struct worker_join_options *options,
		struct ramps_worker **worker);
int worker_clone(struct ramps_worker *worker, struct fabric *fabric, struct ramps_worker **clone);
void worker_close(struct ramps_worker *worker);

/*
 * Calls stop(server) when the last clone of this worker is closed: for a server that lives in
 * this program.
 */
void worker_own_server(struct ramps_worker *worker, struct ramps_server *server,
		       void (*stop)(struct ramps_server *));
const char *worker_address(const struct ramps_worker *worker);

/*
 * 0, -EBUSY, or -ENOTCONN after a fork; connects again where a server was lost. NULL is
 * -ENOTCONN.
 */
int worker_enter(struct ramps_worker *worker);
void worker_exit(struct ramps_worker *worker);

int worker_info(struct ramps_worker *worker, struct ramps_worker_info *info);
void worker_interrupt(struct ramps_worker *worker);
int worker_flush(struct ramps_worker *worker, uint32_t level, int timeout_ms);
int worker_leave(struct ramps_worker *worker, int timeout_ms);
int worker_submit(struct ramps_worker *worker, const struct ramps_op *ops, size_t n);
int worker_reap(struct ramps_worker *worker, struct ramps_done *done, size_t n, int timeout_ms);

int worker_table_create(struct ramps_worker *worker, const struct ramps_schema *schema,
			struct ramps_table **table);
int worker_table_open(struct ramps_worker *worker, const char *name,
		      const struct ramps_schema *expected, int timeout_ms, struct ramps_table **table);
int worker_table_info(const struct ramps_table *table, struct ramps_table_info *info);

/*
 * A blocking pull or push: the operation to fill in, all but its table and tag, and the call that
 * does it.
 */
struct ramps_op *worker_table_op(struct ramps_table *table);
int worker_table_run(struct ramps_table *table, struct ramps_transfer *transfer, int timeout_ms);

/* Of an operation whose caller gave no transfer; its size is 0. */
extern const struct ramps_transfer worker_transfer_defaults;

int worker_table_view(struct ramps_table *table, uint64_t first_row, uint64_t rows, const void **view);
struct ramps_worker *worker_of_table(const struct ramps_table *table);
void worker_table_close(struct ramps_table *table);

int worker_buffer_create(struct ramps_worker *worker, void *addr, size_t len_bytes,
			 struct ramps_buffer **buffer);
void *worker_buffer_data(const struct ramps_buffer *buffer);
void worker_buffer_close(struct ramps_buffer *buffer);

int worker_barrier_open(struct ramps_worker *worker, const char *name,
			const struct ramps_group *group, struct ramps_barrier **barrier);
int worker_barrier_arrive(struct ramps_barrier *barrier, int timeout_ms);
int worker_barrier_wait(struct ramps_barrier *barrier, int timeout_ms);
struct ramps_worker *worker_of_barrier(const struct ramps_barrier *barrier);
void worker_barrier_close(struct ramps_barrier *barrier);

int worker_clock_open(struct ramps_worker *worker, const char *name, struct ramps_clock **clock);
int worker_clock_advance(struct ramps_clock *clock, int timeout_ms);
int worker_clock_wait(struct ramps_clock *clock, uint64_t staleness, int timeout_ms);
int worker_clock_read(struct ramps_clock *clock, uint64_t *own, uint64_t *least);
struct ramps_worker *worker_of_clock(const struct ramps_clock *clock);
void worker_clock_close(struct ramps_clock *clock);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* A server over the fake fabric, and workers that do single steps of the protocol. */
#ifndef TESTS_PS_JOB_H
#define TESTS_PS_JOB_H

#include "core/message.h"
#include "core/schema.h"
#include "ps/fake.h"
#include "ps/ps_private.h"

#define JOB_CELLS 8

struct job {
	char root[64], directory[96];
	struct core_arena_options options;
	struct fabric *fabric;
	struct core_arena *arena;
	struct ps_server *server;
	const char *address; /* of a server in another process; NULL: `server`, over the fake fabric */
	uint32_t generation; /* members join as process rank + 1 + 100 * generation */
};

struct member {
	struct job *job;
	struct fabric_endpoint *ep;
	uint32_t rank, workers, incarnation;
	uint64_t arena_id, tail;
	struct core_request request;
	struct core_reply reply;
};

void job_open(struct job *job, uint32_t on_death);
/* A directory for an arena, and options for it, without a server. */
void job_prepare(struct job *job, uint32_t on_death);
void job_remove(struct job *job);
void job_close(struct job *job);
/* Ends the server, not in order, and begins another on its arena. Members' connections are gone. */
void job_restart(struct job *job);
/* Steps until there is nothing to do. */
void job_run(struct job *job);

/* Joins over a new connection as a process of its own. The server's answer. */
int member_join(struct member *m, struct job *job, uint32_t rank, uint32_t workers);
/* Sends m->request with the fields that every request has. */
int member_ask(struct member *m, uint32_t kind);
/* A request as a joining worker sends it; the test may change it before member_ask(). */
void member_prepare(struct member *m, struct job *job, uint32_t rank, uint32_t workers);
void member_close(struct member *m);
int member_leave(struct member *m);

/* Creates a table of slots; its entry, ready, is m->reply.entry. */
uint32_t member_table(struct member *m, const char *name, uint64_t values, uint32_t synchronous,
		      float rate);

/* A cell of a push; the ring's position is filled in. */
struct core_cell member_cell(const struct member *m, uint32_t entry, uint32_t chunk, uint64_t step,
			     uint32_t count);
/* Stages and commits it with all values `value`, or `values` if not NULL. Does not step. */
void member_commit(struct member *m, const struct core_cell *cell, const float *values, float value);
/* member_cell() and member_commit() of a whole chunk of `count` values. */
void member_push(struct member *m, uint32_t entry, uint32_t chunk, uint64_t step, uint32_t count,
		 float value);

const struct core_entry *job_entry(const struct job *job, uint32_t entry);
const float *job_values(const struct job *job, uint32_t entry);
const struct core_chunk *job_chunk(const struct job *job, uint32_t entry, uint32_t chunk);
uint64_t job_head(const struct job *job, uint32_t rank);
uint32_t job_state(const struct job *job, uint32_t rank);
uint64_t job_dropped(const struct job *job, uint32_t rank);

#endif

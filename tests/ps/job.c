/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ps/job.h"

static float staged[CORE_CHUNK_BYTES / sizeof(float)];

void job_prepare(struct job *job, uint32_t on_death)
{
	memset(job, 0, sizeof(*job));
	strcpy(job->root, "/dev/shm/ramps-test.XXXXXX");
	assert_non_null(mkdtemp(job->root));
	snprintf(job->directory, sizeof(job->directory), "%s/arena", job->root);
	job->options = (struct core_arena_options){
		.directory = job->directory,
		.job = "test",
		.arena_bytes = 16 << 20,
		.max_workers = 64,
		.cells = JOB_CELLS,
		.on_death = on_death,
	};
}

void job_open(struct job *job, uint32_t on_death)
{
	job_prepare(job, on_death);
	assert_int_equal(fake_open(&job->fabric), 0);
	assert_int_equal(core_arena_open(&job->options, &job->arena), 0);
	assert_int_equal(ps_open(job->fabric, job->arena, "fake://", &job->server), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void job_close(struct job *job)
{
	struct fabric_event event;

	while (fabric_next_event(job->server->listener, &event) == 1)
		if (event.kind == FABRIC_CONNECTED)
			fabric_endpoint_close(event.endpoint);
	ps_close(job->server);
	core_arena_close(job->arena, true);
	fabric_close(job->fabric);
	assert_int_equal(access(job->directory, F_OK), -1);
	job_remove(job);
}

void job_remove(struct job *job)
{
	nftw(job->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void job_restart(struct job *job)
{
	struct fabric_event event;

	ps_close(job->server);
	core_arena_close(job->arena, false);
	assert_int_equal(core_arena_open(&job->options, &job->arena), 0);
	assert_true(job->arena->resumed);
	assert_int_equal(ps_open(job->fabric, job->arena, "fake://", &job->server), 0);
	/* what was said to the server before */
	while (fabric_next_event(job->server->listener, &event) == 1)
		;
}

void job_run(struct job *job)
{
	int quiet = 0;

	/* a busy server does not look for messages in each step; one that found nothing does */
	while (quiet < 2) {
		int ret = ps_step(job->server);

		assert_true(ret >= 0);
		quiet = ret ? 0 : quiet + 1;
		fake_advance(job->fabric, 1000);
	}
}

static uint64_t soon(const struct job *job)
{
	return fabric_now(job->fabric) + 10 * NS_PER_S;
}

void member_prepare(struct member *m, struct job *job, uint32_t rank, uint32_t workers)
{
	memset(m, 0, sizeof(*m));
	m->job = job;
	m->rank = rank;
	m->workers = workers;
	if (!job->address)
		fake_process(job->fabric, rank + 1 + 100 * job->generation);
	assert_int_equal(fabric_connect(job->fabric, job->address ? job->address : "fake://",
					soon(job), &m->ep),
			 0);
	m->request.version = CORE_VERSION;
	m->request.layout_hash = core_layout_hash();
	strcpy(m->request.job, "test");
	m->request.rank = rank;
	m->request.workers = workers;
	m->request.shards = 1;
	m->request.magic = CORE_MESSAGE_MAGIC;
}

int member_ask(struct member *m, uint32_t kind)
{
	int ret;

	m->request.kind = kind;
	memset(&m->reply, 0, sizeof(m->reply));
	assert_int_equal(fabric_send(m->ep, &m->request, sizeof(m->request)), 0);
	if (!m->job->address)
		job_run(m->job);
	ret = fabric_recv(m->ep, &m->reply, sizeof(m->reply), soon(m->job));
	assert_int_equal(ret, (int)sizeof(m->reply));
	if (m->reply.status < 0)
		assert_string_not_equal(m->reply.text, "");
	else
		assert_string_equal(m->reply.text, "");
	return m->reply.status;
}

int member_join(struct member *m, struct job *job, uint32_t rank, uint32_t workers)
{
	const struct core_rank_words *words;
	int ret;

	member_prepare(m, job, rank, workers);
	ret = member_ask(m, CORE_JOIN);
	if (ret < 0)
		return ret;
	m->incarnation = m->reply.incarnation;
	m->arena_id = m->reply.arena_id;
	words = core_arena_at(job->arena, CORE_WORDS, core_arena_header(job->arena)->rank_words_offset);
	m->tail = words[rank].tail;
	return ret;
}

void member_close(struct member *m)
{
	if (m->ep)
		fabric_endpoint_close(m->ep);
	m->ep = NULL;
}

int member_leave(struct member *m)
{
	return member_ask(m, CORE_LEAVE);
}

uint32_t member_table(struct member *m, const char *name, uint64_t values, uint32_t synchronous, float rate)
{
	struct core_entry *e = &m->request.entry;
	uint32_t index;

	memset(e, 0, sizeof(*e));
	e->kind = CORE_TABLE;
	strcpy(e->name, name);
	e->table.rows = values;
	e->table.dim = 1;
	e->table.type = RAMPS_FLOAT32;
	e->table.mode = RAMPS_SLOTS;
	e->table.synchronous = synchronous;
	e->table.rate = rate;
	assert_int_equal(member_ask(m, CORE_CREATE), 0);
	index = e->index = m->reply.entry.index;
	assert_int_equal(member_ask(m, CORE_SET_READY), 0);
	assert_int_equal(job_entry(m->job, index)->state, CORE_READY);
	return index;
}

struct core_cell member_cell(const struct member *m, uint32_t entry, uint32_t chunk, uint64_t step,
			     uint32_t count)
{
	return (struct core_cell){
		.position = m->tail,
		.step = job_entry(m->job, entry)->table.synchronous ? step : m->tail,
		.kind = CORE_CELL_PUSH,
		.entry = entry,
		.chunk = chunk,
		.count = count,
		.weight = 1,
		.rate = -1,
	};
}

void member_commit(struct member *m, const struct core_cell *cell, const float *values, float value)
{
	const struct core_header *h = core_arena_header(m->job->arena);
	uint32_t at = (uint32_t)(m->tail % h->cells);
	struct fabric_completion completion = { 0 };
	struct fabric_op ops[3] = {
		{
			.opcode = FABRIC_WRITE,
			.region = CORE_SLOTS,
			.offset = core_cell_data(h->cells, at),
			.len_bytes = CORE_CHUNK_BYTES,
			.local = staged,
		},
		{
			.opcode = FABRIC_WRITE,
			.region = CORE_SLOTS,
			.offset = at * sizeof(*cell),
			.len_bytes = sizeof(*cell),
			.local = (void *)cell,
		},
		{
			.opcode = FABRIC_FETCH_ADD,
			.region = CORE_WORDS,
			.offset = h->rank_words_offset + m->rank * sizeof(struct core_rank_words),
			.operand = 1,
		},
	};

	for (uint32_t i = 0; i < CORE_CHUNK_BYTES / sizeof(float); i++)
		staged[i] = values && i < cell->count ? values[i] : value;
	assert_int_equal(fabric_execute(m->ep, ops, 3, &completion, soon(m->job)), 0);
	m->tail++;
}

void member_push(struct member *m, uint32_t entry, uint32_t chunk, uint64_t step, uint32_t count,
		 float value)
{
	struct core_cell cell = member_cell(m, entry, chunk, step, count);

	member_commit(m, &cell, NULL, value);
}

const struct core_entry *job_entry(const struct job *job, uint32_t entry)
{
	const struct core_entry *entries = core_arena_at(job->arena, CORE_PUBLISHED,
							 core_arena_header(job->arena)->entries_offset);

	return entries + entry;
}

const float *job_values(const struct job *job, uint32_t entry)
{
	return core_arena_at(job->arena, CORE_PUBLISHED, job_entry(job, entry)->table.data_offset);
}

const struct core_chunk *job_chunk(const struct job *job, uint32_t entry, uint32_t chunk)
{
	const struct core_chunk *chunks = core_arena_at(job->arena, CORE_PUBLISHED,
							job_entry(job, entry)->table.chunks_offset);

	return &chunks[chunk];
}

static const struct core_rank *rank_of(const struct job *job, uint32_t rank)
{
	const struct core_rank *ranks = core_arena_at(job->arena, CORE_PUBLISHED,
						      core_arena_header(job->arena)->ranks_offset);

	return ranks + rank;
}

uint64_t job_head(const struct job *job, uint32_t rank)
{
	return word_acquire(&rank_of(job, rank)->head);
}

uint32_t job_state(const struct job *job, uint32_t rank)
{
	const uint64_t *states = core_arena_at(job->arena, CORE_PUBLISHED,
					       core_arena_header(job->arena)->states_offset);

	return core_state_of(word_acquire(&states[rank]));
}

uint64_t job_dropped(const struct job *job, uint32_t rank)
{
	return word_load(&rank_of(job, rank)->dropped);
}

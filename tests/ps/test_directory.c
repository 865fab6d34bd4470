/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ps/job.h"

static struct job job;
static struct member a, b;

static int setup(void **state)
{
	(void)state;
	job_open(&job, RAMPS_ON_DEATH_FAIL);
	return member_join(&a, &job, 0, 3) || member_join(&b, &job, 1, 3);
}

static int teardown(void **state)
{
	(void)state;
	member_close(&a);
	member_close(&b);
	job_close(&job);
	return 0;
}

static void want_table(struct member *m, const char *name, uint64_t rows, uint64_t dim, uint32_t mode)
{
	memset(&m->request.entry, 0, sizeof(m->request.entry));
	m->request.entry.kind = CORE_TABLE;
	strcpy(m->request.entry.name, name);
	m->request.entry.table = (struct core_table){ .rows = rows,
						      .dim = dim,
						      .type = RAMPS_FLOAT32,
						      .mode = mode,
						      .rate = 0.5f };
}

static void want_barrier(struct member *m, const char *name, uint32_t members, uint64_t group)
{
	memset(&m->request.entry, 0, sizeof(m->request.entry));
	memset(m->request.group, 0, sizeof(m->request.group));
	m->request.entry.kind = CORE_BARRIER;
	strcpy(m->request.entry.name, name);
	m->request.entry.barrier.members = members;
	m->request.entry.barrier.fan_in = 2;
	m->request.group[0] = group;
}

static void want_clock(struct member *m, const char *name, uint32_t members)
{
	memset(&m->request.entry, 0, sizeof(m->request.entry));
	m->request.entry.kind = CORE_CLOCK;
	strcpy(m->request.entry.name, name);
	m->request.entry.clock.members = members;
}

static uint64_t entries(void)
{
	return job.server->header->entries;
}

static int create(struct member *m)
{
	return member_ask(m, CORE_CREATE);
}

static void says(const struct member *m, const char *word)
{
	if (!strstr(m->reply.text, word))
		fail_msg("'%s' is not in '%s'", word, m->reply.text);
}

static void creating_again_gives_what_is_there(void **state)
{
	struct core_entry first;

	(void)state;
	want_table(&a, "w", 100, 30, RAMPS_SLOTS);
	assert_int_equal(create(&a), 0);
	first = a.reply.entry;
	assert_int_equal(first.table.elements, 3000);
	assert_int_equal(first.table.chunk_elements, 16384 / 30 * 30);
	assert_int_equal(first.state, CORE_PREPARING);
	want_table(&b, "w", 100, 30, RAMPS_SLOTS);
	b.request.entry.table.rate = 7; /* a setting, not the shape */
	assert_int_equal(create(&b), 0);
	assert_memory_equal(&b.reply.entry, &first, sizeof(first));
	want_table(&b, "w", 30, 100, RAMPS_SLOTS);
	assert_int_equal(create(&b), -EEXIST);
	says(&b, "100 x 30 float32 slots");
	says(&b, "30 x 100 float32 slots");
	assert_int_equal(entries(), 1);
	/* other kinds have names of their own */
	want_clock(&b, "w", 3);
	assert_int_equal(create(&b), 0);
	assert_int_equal(entries(), 2);
	assert_int_equal(create(&b), 0);
	want_barrier(&b, "w", 3, 0);
	assert_int_equal(create(&b), 0);
	assert_int_equal(create(&a), 0);
	assert_int_equal(entries(), 3);
}

static void a_lookup_finds_it_or_says_that_it_is_not_there(void **state)
{
	(void)state;
	want_table(&a, "w", 10, 10, RAMPS_DIRECT);
	assert_int_equal(member_ask(&b, CORE_LOOKUP), -EINVAL); /* of no kind */
	want_table(&b, "w", 0, 0, 0);
	assert_int_equal(member_ask(&b, CORE_LOOKUP), -ENOENT);
	says(&b, "table w");
	assert_int_equal(create(&a), 0);
	assert_int_equal(member_ask(&b, CORE_LOOKUP), 0);
	assert_int_equal(b.reply.entry.index, 0);
	assert_int_equal(b.reply.entry.state, CORE_PREPARING);
	a.request.entry.index = 0;
	assert_int_equal(member_ask(&a, CORE_SET_READY), 0);
	assert_int_equal(member_ask(&b, CORE_LOOKUP), 0);
	assert_int_equal(b.reply.entry.state, CORE_READY);
	a.request.entry.index = 1;
	assert_int_equal(member_ask(&a, CORE_SET_READY), -EINVAL);
	a.request.entry.index = UINT32_MAX;
	assert_int_equal(member_ask(&a, CORE_SET_READY), -EINVAL);
}

static void what_a_message_must_not_ask_for_is_refused(void **state)
{
	const uint64_t used = job.server->header->used_bytes;
	struct core_entry *e = &a.request.entry;

	(void)state;
#define BAD(want, change, code)                                         \
	do {                                                            \
		want;                                                   \
		change;                                                 \
		assert_int_equal(create(&a), code);                     \
		assert_int_equal(entries(), 0);                         \
		assert_int_equal(job.server->header->used_bytes, used); \
	} while (0)
#define TABLE   want_table(&a, "w", 10, 10, RAMPS_SLOTS)
#define BARRIER want_barrier(&a, "b", 2, 5)
	BAD(TABLE, e->kind = 0, -EINVAL);
	BAD(TABLE, e->kind = 4, -EINVAL);
	BAD(TABLE, e->kind = UINT32_MAX, -EINVAL);
	BAD(TABLE, e->name[0] = '\0', -EINVAL);
	BAD(TABLE, memset(e->name, 'x', sizeof(e->name)), -EINVAL);
	BAD(TABLE, strcpy(e->name, "a b"), -EINVAL);
	BAD(TABLE, e->table.rows = 0, -EINVAL);
	BAD(TABLE, e->table.dim = 0, -EINVAL);
	BAD(TABLE, e->table.rows = e->table.dim = 1ull << 32, -EOVERFLOW);
	BAD(TABLE, e->table.rows = UINT64_MAX, -EOVERFLOW);
	BAD(TABLE, e->table.type = RAMPS_INT64, -EINVAL);
	BAD(TABLE, e->table.mode = 9, -EINVAL);
	BAD(TABLE, e->table.synchronous = 2, -EINVAL);
	BAD(TABLE, e->table.rate = NAN, -EINVAL);
	BAD(TABLE, e->table.rate = -1, -EINVAL);
	BAD(TABLE, e->table.rows = 1 << 20, -ENOSPC);
	says(&a, "table w needs 4197"); /* 40 MiB and a little, of 16 */
	says(&a, "16777216");
	BAD(TABLE, e->table.rows = (1ull << 43) - 1; e->table.dim = 1, -ENOSPC);
	BAD(BARRIER, e->barrier.members = 0, -EINVAL);
	BAD(BARRIER, e->barrier.members = 4, -EINVAL);
	BAD(BARRIER, e->barrier.members = UINT32_MAX, -EINVAL);
	BAD(BARRIER, e->barrier.fan_in = 1, -EINVAL);
	BAD(BARRIER, e->barrier.fan_in = 0, -EINVAL);
	BAD(BARRIER, e->barrier.fan_in = 33, -EINVAL);
	BAD(BARRIER, a.request.group[0] = 1, -EINVAL);
	BAD(BARRIER, a.request.group[0] = 7, -EINVAL);
	BAD(BARRIER, a.request.group[0] = 9, -EINVAL);
	BAD(BARRIER, a.request.group[255] = 1; a.request.group[0] = 1, -EINVAL);
	BAD(want_clock(&a, "c", 2), , -EINVAL);
	BAD(want_clock(&a, "c", 0), , -EINVAL);
	TABLE;
	assert_int_equal(create(&a), 0);
}

static void objects_do_not_overlap(void **state)
{
	uint64_t words = 0, published = 0, priv = 0;
	char name[32];

	(void)state;
	for (int i = 0; i < 60; i++) {
		const struct core_entry *e = &a.reply.entry;

		snprintf(name, sizeof(name), "t%d", i);
		if (i % 4 == 0)
			want_table(&a, name, 1 + (uint64_t)i, 17, RAMPS_DIRECT);
		else if (i % 4 == 1)
			want_table(&a, name, 1 + (uint64_t)i, 400, RAMPS_SLOTS);
		else if (i % 4 == 2)
			want_barrier(&a, name, 2, 3);
		else
			want_clock(&a, name, 3);
		assert_int_equal(create(&a), 0);
		assert_int_equal(e->index, i);
		if (i % 4 == 0) {
			assert_true(e->table.data_offset >= words);
			assert_true(e->words_end >= e->table.data_offset + 8 * e->table.elements);
		} else if (i % 4 == 1) {
			assert_true(e->table.chunks_offset >= published);
			assert_true(e->table.data_offset >= e->table.chunks_offset + 16);
			assert_int_equal(e->table.data_offset % CORE_PAGE_BYTES, 0);
			assert_true(e->published_end >= e->table.data_offset + 4 * e->table.elements);
			assert_true(e->table.applied_offset >= priv);
			assert_true(e->private_end >= e->table.applied_offset + 3 * 8);
		} else if (i % 4 == 2) {
			assert_true(e->barrier.nodes_offset >= words);
			assert_true(e->words_end >= e->barrier.nodes_offset + sizeof(struct core_node));
			assert_true(e->barrier.group_offset >= published);
		} else {
			assert_true(e->clock.words_offset >= words);
			assert_true(e->words_end >= e->clock.words_offset + 3 * 8);
		}
		words = e->words_end;
		published = e->published_end;
		priv = e->private_end;
	}
	assert_int_equal(job.server->header->used_bytes,
			 words + published + priv - core_arena_fixed(job.arena, CORE_WORDS) -
				 core_arena_fixed(job.arena, CORE_PUBLISHED) -
				 core_arena_fixed(job.arena, CORE_PRIVATE));
}

static void a_full_arena_still_takes_what_fits(void **state)
{
	(void)state;
	want_table(&a, "big", 3 << 20, 1, RAMPS_SLOTS);
	assert_int_equal(create(&a), 0);
	want_table(&a, "big2", 3 << 20, 1, RAMPS_SLOTS);
	assert_int_equal(create(&a), -ENOSPC);
	says(&a, "big2");
	want_table(&a, "small", 1000, 1, RAMPS_DIRECT);
	assert_int_equal(create(&a), 0);
}

static void a_table_is_split_over_the_shards(void **state)
{
	struct job part[3];
	uint64_t covered = 0;

	(void)state;
	for (uint32_t shard = 0; shard < 3; shard++) {
		struct member m;

		job_open(&part[shard], RAMPS_ON_DEATH_FAIL);
		member_prepare(&m, &part[shard], 0, 1);
		m.request.shard = shard;
		m.request.shards = 3;
		m.request.incarnation = 1;
		assert_int_equal(member_ask(&m, CORE_JOIN), 0);
		want_table(&m, "w", 100, 1000, RAMPS_SLOTS); /* 7 chunks of 16 rows */
		/* where a part lies is the server's business */
		m.request.entry.table.first_element = 77;
		m.request.entry.table.elements = 1ull << 50;
		assert_int_equal(create(&m), 0);
		covered += m.reply.entry.table.elements;
		assert_true(m.reply.entry.table.elements >= 20000);
		assert_int_equal(m.reply.entry.table.first_element % 16000, 0);
		want_table(&m, "tiny", 1, 1, RAMPS_SLOTS); /* on one of them; an empty part elsewhere */
		assert_int_equal(create(&m), 0);
		assert_int_equal(m.reply.entry.table.elements,
				 core_first_shard("tiny", 3) == shard ? 1 : 0);
		member_close(&m);
		job_close(&part[shard]);
	}
	assert_int_equal(covered, 100000);
}

static void a_barrier_begins_at_the_generation_asked_for(void **state)
{
	const struct core_node *nodes;

	(void)state;
	want_barrier(&a, "b", 3, 0);
	a.request.entry.barrier.first_generation = UINT32_MAX - 1;
	assert_int_equal(create(&a), 0);
	assert_int_equal(sync_barrier_nodes(3, 2), 3);
	nodes = core_arena_at(job.arena, CORE_WORDS, a.reply.entry.barrier.nodes_offset);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(nodes[i].word, (uint64_t)(UINT32_MAX - 1) << 32);
		assert_int_equal(nodes[i].released, UINT32_MAX - 1);
	}
	assert_int_equal(create(&a), 0);
	a.request.entry.barrier.first_generation = 5;
	assert_int_equal(create(&a), -EEXIST);
	want_barrier(&a, "g", 2, 5);
	assert_int_equal(create(&a), 0);
	want_barrier(&b, "g", 2, 6);
	assert_int_equal(create(&b), -EEXIST);
	want_barrier(&b, "g", 2, 5);
	assert_int_equal(create(&b), 0);
	b.request.entry.barrier.fan_in = 3;
	assert_int_equal(create(&b), -EEXIST);
	says(&b, "fan-in 2");
}

static void another_rank_completes_a_table_whose_creator_died(void **state)
{
	(void)state;
	want_table(&a, "w", 10, 10, RAMPS_SLOTS);
	want_table(&b, "w", 10, 10, RAMPS_SLOTS);
	assert_int_equal(create(&a), 0);
	assert_int_equal(create(&b), 0);
	assert_int_equal(b.reply.entry.creator, core_state(0, 1));
	fake_kill(job.fabric, 1);
	job_run(&job);
	assert_int_equal(create(&b), 0);
	assert_int_equal(b.reply.entry.creator, core_state(1, 1));
	/* the dead rank's next life does not take it away again */
	job.generation = 1;
	member_close(&a);
	assert_int_equal(member_join(&a, &job, 0, 3), 0);
	want_table(&a, "w", 10, 10, RAMPS_SLOTS);
	assert_int_equal(create(&a), 0);
	assert_int_equal(a.reply.entry.creator, core_state(1, 1));
	/* nor is anyone appointed when it is ready */
	b.request.entry.index = 0;
	assert_int_equal(member_ask(&b, CORE_SET_READY), 0);
	fake_kill(job.fabric, 2);
	job_run(&job);
	assert_int_equal(create(&a), 0);
	assert_int_equal(a.reply.entry.creator, core_state(1, 1));
	assert_int_equal(a.reply.entry.state, CORE_READY);
}

static void a_restarted_server_knows_its_objects(void **state)
{
	uint32_t w;

	(void)state;
	w = member_table(&a, "w", 100, 1, 1);
	want_barrier(&a, "b", 2, 3);
	assert_int_equal(create(&a), 0);
	want_table(&a, "later", 5, 5, RAMPS_DIRECT);
	assert_int_equal(create(&a), 0);
	member_push(&a, w, 0, 0, 100, 1);
	job_run(&job);
	job_restart(&job);
	member_close(&a);
	member_close(&b);
	fake_kill(job.fabric, 1);
	fake_kill(job.fabric, 2);
	fake_advance(job.fabric, NS_PER_S);
	job_run(&job);
	job.generation = 1;
	assert_int_equal(member_join(&a, &job, 0, 3), 0);
	assert_int_equal(a.incarnation, 2);
	assert_int_equal(member_join(&b, &job, 1, 3), 0);
	want_table(&b, "later", 5, 5, RAMPS_DIRECT);
	assert_int_equal(member_ask(&b, CORE_LOOKUP), 0);
	assert_int_equal(b.reply.entry.index, 2);
	want_barrier(&b, "b", 2, 3);
	assert_int_equal(create(&b), 0);
	assert_int_equal(b.reply.entry.index, 1);
	want_table(&b, "new", 5, 5, RAMPS_SLOTS);
	assert_int_equal(create(&b), 0);
	assert_int_equal(b.reply.entry.index, 3);
	assert_int_equal(entries(), 4);
}

static void die(void *ctx)
{
	if (--*(int *)ctx == 0)
		raise(SIGKILL);
}

/* Killed at `at` while it creates a barrier whose words are not zero. Whether it was. */
static bool create_and_die(int at)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		struct member m;

		if (fake_open(&job.fabric) || core_arena_open(&job.options, &job.arena) ||
		    ps_open_points(job.fabric, job.arena, "fake://", die, &at, &job.server))
			_exit(1);
		for (uint32_t g = 0; g < job.generation; g++)
			fake_kill(job.fabric, 3 + 100 * g);
		if (member_join(&m, &job, 2, 3))
			_exit(2);
		want_barrier(&m, "dies", 3, 0);
		m.request.entry.barrier.first_generation = 77;
		_exit(create(&m) ? 3 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status);
}

static void killed_while_it_creates_it_leaves_no_trace(void **state)
{
	const uint64_t *words;
	bool killed = true;

	(void)state;
	for (int at = 1; killed; at++) {
		ps_close(job.server);
		core_arena_close(job.arena, false);
		killed = create_and_die(at);
		assert_true(killed || at == 3); /* before and after it is published */
		assert_int_equal(core_arena_open(&job.options, &job.arena), 0);
		assert_int_equal(ps_open(job.fabric, job.arena, "fake://", &job.server), 0);
		assert_int_equal(entries(), at == 1 ? 0 : 1);
		member_close(&a);
		member_close(&b);
		fake_kill(job.fabric, 1 + 100 * job.generation);
		fake_kill(job.fabric, 2 + 100 * job.generation);
		fake_advance(job.fabric, NS_PER_S);
		job_run(&job);
		job.generation++;
		assert_int_equal(member_join(&a, &job, 0, 3), 0);
		assert_int_equal(member_join(&b, &job, 1, 3), 0);
		if (at > 1)
			continue;
		words = core_arena_at(job.arena, CORE_WORDS, core_arena_fixed(job.arena, CORE_WORDS));
		assert_int_equal(core_arena_extend(job.arena, CORE_WORDS,
						   core_arena_fixed(job.arena, CORE_WORDS) + 4096),
				 0);
		for (int i = 0; i < 512; i++)
			assert_int_equal(words[i], 0);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(creating_again_gives_what_is_there),
		T(a_lookup_finds_it_or_says_that_it_is_not_there),
		T(what_a_message_must_not_ask_for_is_refused),
		T(objects_do_not_overlap),
		T(a_full_arena_still_takes_what_fits),
		T(a_table_is_split_over_the_shards),
		T(a_barrier_begins_at_the_generation_asked_for),
		T(another_rank_completes_a_table_whose_creator_died),
		T(a_restarted_server_knows_its_objects),
		T(killed_while_it_creates_it_leaves_no_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

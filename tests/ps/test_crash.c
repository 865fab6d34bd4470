/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 600 s */
/*
 * A server that is killed at each store of the update protocol, up to three times in a row, also while it
 * restarts, then left to finish: its tables must be what an undisturbed server makes, to the bit, and no
 * chunk's version may ever go back. What it is to apply lies committed in the rings before the first life.
 */
#include <cblas.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "ps/job.h"

#define CHUNK  16384u
#define RANKS  3u
#define LAST   70u   /* values of the synchronous table's second chunk */
#define SLICE  3000u /* of the asynchronous table's chunk: a rank's own */
#define STEPS  2u
#define CHUNKS 3u /* in all */

static struct job job;
static char template[160];
static float expected_s[CHUNK + LAST], expected_w[CHUNK];
static volatile uint64_t *shared; /* [0]: points passed */
static uint64_t alarm_us;         /* the child's life, if it is not 0 */
static bool quick;

static float value_at(uint32_t rank, uint32_t push, uint32_t i)
{
	uint32_t x = (rank * 977 + push * 131 + i) * 2654435761u;

	return (float)(int32_t)x / 3e8f;
}

/* Two steps of each chunk of `s`, in the one or the other order, and two pushes of a slice of `w`. */
static void commit_all(struct member *m, uint32_t s, uint32_t w)
{
	static float g[CHUNK];

	for (uint32_t i = 0; i < 2 * STEPS; i++) {
		uint32_t step = i % STEPS, chunk = (i / STEPS + m->rank) % 2, n = chunk ? LAST : CHUNK;
		struct core_cell cell = member_cell(m, s, chunk, step, n);

		for (uint32_t k = 0; k < n; k++)
			g[k] = value_at(m->rank, 10 + chunk * STEPS + step, k);
		cell.weight = (float)(m->rank + 1);
		member_commit(m, &cell, g, 0);
		if (i % 2)
			continue;
		cell = member_cell(m, w, 0, 0, SLICE);
		cell.first = m->rank * SLICE;
		for (uint32_t k = 0; k < SLICE; k++)
			g[k] = value_at(m->rank, i, k);
		member_commit(m, &cell, g, 0);
	}
}

static void expect(void)
{
	static float g[CHUNK], sum[CHUNK];

	for (uint32_t chunk = 0; chunk < 2; chunk++)
		for (uint32_t step = 0; step < STEPS; step++) {
			uint32_t n = chunk ? LAST : CHUNK;

			for (uint32_t r = 0; r < RANKS; r++) {
				for (uint32_t k = 0; k < n; k++)
					g[k] = value_at(r, 10 + chunk * STEPS + step, k);
				if (r == 0)
					memcpy(sum, g, sizeof(sum));
				else
					cblas_saxpy((int)n, 1, g, 1, sum, 1);
			}
			cblas_saxpy((int)n, -0.3f / 6.0f, sum, 1, expected_s + chunk * CHUNK, 1);
		}
	for (uint32_t r = 0; r < RANKS; r++)
		for (uint32_t push = 0; push < 4; push += 2) {
			for (uint32_t k = 0; k < SLICE; k++)
				g[k] = value_at(r, push, k);
			cblas_saxpy(SLICE, -0.7f, g, 1, expected_w + r * SLICE, 1);
		}
}

static int setup(void **state)
{
	struct member m[RANKS];
	uint32_t s, w;

	(void)state;
	quick = getenv("QUICK") || getenv("SAN");
	job_prepare(&job, RAMPS_ON_DEATH_FAIL);
	job.options.arena_bytes = 1 << 20;
	snprintf(template, sizeof(template), "%s/template", job.root);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	assert_int_equal(fake_open(&job.fabric), 0);
	assert_int_equal(core_arena_open(&job.options, &job.arena), 0);
	assert_int_equal(ps_open(job.fabric, job.arena, "fake://", &job.server), 0);
	for (uint32_t r = 0; r < RANKS; r++)
		assert_int_equal(member_join(&m[r], &job, r, RANKS), 0);
	s = member_table(&m[0], "s", CHUNK + LAST, 1, 0.3f);
	w = member_table(&m[0], "w", CHUNK, 0, 0.7f);
	assert_int_equal(s, 0);
	assert_int_equal(w, 1);
	for (uint32_t r = 0; r < RANKS; r++)
		commit_all(&m[r], s, w);
	ps_close(job.server);
	core_arena_close(job.arena, false);
	for (uint32_t r = 0; r < RANKS; r++)
		member_close(&m[r]);
	fabric_close(job.fabric);
	assert_int_equal(rename(job.directory, template), 0);
	expect();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	munmap((void *)shared, 4096);
	job_remove(&job);
	return 0;
}

static void copy_file(const char *from, const char *to)
{
	static char block[1 << 16];
	int in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct stat st;
	off_t at = 0;

	assert_true(in >= 0 && out >= 0);
	assert_int_equal(fstat(in, &st), 0);
	assert_int_equal(ftruncate(out, st.st_size), 0);
	while ((at = lseek(in, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(in, at, SEEK_HOLE);

		while (at < end) {
			size_t n = (size_t)(end - at) < sizeof(block) ? (size_t)(end - at) :
									sizeof(block);

			assert_int_equal(pread(in, block, n, at), (ssize_t)n);
			assert_int_equal(pwrite(out, block, n, at), (ssize_t)n);
			at += (off_t)n;
		}
	}
	close(in);
	close(out);
}

static void fresh_copy(void)
{
	DIR *dir = opendir(template);
	struct dirent *item;
	char from[512], to[512];

	assert_non_null(dir);
	mkdir(job.directory, 0700);
	while ((item = readdir(dir))) {
		if (item->d_name[0] == '.')
			continue;
		snprintf(from, sizeof(from), "%s/%s", template, item->d_name);
		snprintf(to, sizeof(to), "%s/%s", job.directory, item->d_name);
		copy_file(from, to);
	}
	closedir(dir);
}

static void point(void *ctx)
{
	if (++shared[0] == *(uint64_t *)ctx)
		raise(SIGKILL);
}

/* The child's life: serves what there is, and is killed at point `at`; 0: never. */
static void serve(uint64_t at)
{
	struct fabric *fabric;
	struct core_arena *arena;
	struct ps_server *server;

	if (fake_open(&fabric) || core_arena_open(&job.options, &arena))
		_exit(1);
	/* unhandled, it ends the process as SIGKILL does */
	setitimer(ITIMER_REAL, &(struct itimerval){ .it_value.tv_usec = (suseconds_t)alarm_us }, NULL);
	if (ps_open_points(fabric, arena, "fake://", at ? point : NULL, &at, &server))
		_exit(2);
	for (int quiet = 0; quiet < 2;)
		quiet = ps_step(server) ? 0 : quiet + 1;
	if (server->undo->valid || server->pending)
		_exit(3);
	_exit(0);
}

/* Whether the child was killed. */
static bool life(uint64_t at)
{
	int status;
	pid_t child;

	shared[0] = 0;
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		serve(at);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), alarm_us ? SIGALRM : SIGKILL);
		return true;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static const struct core_entry *entry_of(const struct core_arena *arena, uint32_t index)
{
	const struct core_entry *e = core_arena_at(arena, CORE_PUBLISHED,
						   core_arena_header(arena)->entries_offset);

	return e + index;
}

/* The versions only grow. */
static void check_versions(uint64_t seen[CHUNKS])
{
	struct core_arena *arena;

	assert_int_equal(core_arena_attach(job.directory, &arena), 0);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		const struct core_entry *e = entry_of(arena, i / 2);
		const struct core_chunk *c = core_arena_at(arena, CORE_PUBLISHED, e->table.chunks_offset);
		uint64_t version = c[i % 2].version;

		/* after a life that was killed in a change, the next one makes another version */
		assert_true(version >= seen[i]);
		seen[i] = version;
	}
	core_arena_close(arena, false);
}

static void check_result(void)
{
	const uint64_t steps[CHUNKS] = { STEPS, STEPS, 2 * RANKS };
	struct core_arena *arena;
	const struct core_rank_words *words;
	const struct core_rank *ranks;
	const struct core_header *h;

	assert_int_equal(core_arena_attach(job.directory, &arena), 0);
	h = core_arena_header(arena);
	assert_memory_equal(core_arena_at(arena, CORE_PUBLISHED, entry_of(arena, 0)->table.data_offset),
			    expected_s, sizeof(expected_s));
	assert_memory_equal(core_arena_at(arena, CORE_PUBLISHED, entry_of(arena, 1)->table.data_offset),
			    expected_w, sizeof(expected_w));
	for (uint32_t i = 0; i < CHUNKS; i++) {
		const struct core_chunk *c = core_arena_at(arena, CORE_PUBLISHED,
							   entry_of(arena, i / 2)->table.chunks_offset);

		assert_int_equal(c[i % 2].version % 2, 0);
		assert_int_equal(c[i % 2].steps, steps[i]);
	}
	words = core_arena_at(arena, CORE_WORDS, h->rank_words_offset);
	ranks = core_arena_at(arena, CORE_PUBLISHED, h->ranks_offset);
	for (uint32_t r = 0; r < RANKS; r++) {
		assert_int_equal(words[r].tail, 2 * STEPS + 2);
		assert_int_equal(ranks[r].head, words[r].tail);
		assert_int_equal(ranks[r].dropped, 0);
	}
	core_arena_close(arena, false);
}

static uint64_t count_points(void)
{
	fresh_copy();
	assert_false(life(UINT64_MAX));
	check_result();
	assert_true(shared[0] > 50);
	return shared[0];
}

/* Killed at each of the given points in turn, then left to finish. */
static void trial(const uint64_t *at, uint32_t n)
{
	uint64_t seen[CHUNKS] = { 0 };

	fresh_copy();
	for (uint32_t i = 0; i < n; i++) {
		if (!life(at[i]))
			break;
		check_versions(seen);
	}
	assert_false(life(0));
	check_versions(seen);
	check_result();
}

static void killed_once_anywhere_it_applies_each_push_once(void **state)
{
	uint64_t points = count_points();

	(void)state;
	for (uint64_t at = 1; at <= points; at++)
		trial(&at, 1);
}

static void killed_again_while_it_restarts_too(void **state)
{
	uint64_t points = count_points();

	(void)state;
	for (uint64_t at = 1; at <= points; at += quick ? 3 : 1)
		for (uint64_t again = 1; again <= 7; again += quick ? 2 : 1)
			trial((uint64_t[]){ at, again }, 2);
}

static void killed_three_times_too(void **state)
{
	uint64_t points = count_points(), seed = 7;
	int rounds = quick ? 60 : 1500;

	(void)state;
	for (int i = 0; i < rounds; i++) {
		uint64_t at[3];

		for (int k = 0; k < 3; k++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			at[k] = 1 + (seed >> 33) % (k ? points / 2 : points);
		}
		trial(at, 3);
	}
}

/* Also between the points: in the middle of a sum. */
static void killed_at_any_moment_it_applies_each_push_once(void **state)
{
	int rounds = quick ? 60 : 1000, killed = 0;
	uint64_t seed = 3;

	(void)state;
	for (int i = 0; i < rounds; i++) {
		uint64_t seen[CHUNKS] = { 0 };

		fresh_copy();
		for (int k = 0; k < 3; k++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			alarm_us = 1 + (seed >> 33) % 500;
			killed += life(0);
			check_versions(seen);
		}
		alarm_us = 0;
		assert_false(life(0));
		check_versions(seen);
		check_result();
	}
	print_message("killed %d times in %d rounds\n", killed, rounds);
	assert_true(killed > rounds / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_once_anywhere_it_applies_each_push_once),
		cmocka_unit_test(killed_again_while_it_restarts_too),
		cmocka_unit_test(killed_three_times_too),
		cmocka_unit_test(killed_at_any_moment_it_applies_each_push_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

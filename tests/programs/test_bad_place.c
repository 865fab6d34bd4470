/* SPDX-License-Identifier: BSD-2-Clause */
/* What may lie where a server wants its arena: it is taken only if it is right, and else not changed by a byte. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/layout.h"
#include "programs/bad_support.h"

#include <cmocka.h>

#define NOBODY 65534u

static const char *address, *directory; /* of the test that runs */

static struct ramps_server_options options_of(const char *job)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;

	options.address = address;
	options.job = job;
	options.arena_bytes = 1u << 20;
	options.slots_bytes = 1u << 16;
	options.max_workers = 4;
	options.keep = 1;
	return options;
}

static const char *path_of(const char *name)
{
	static char paths[4][300];
	static uint32_t count;
	char *path = paths[count++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static void begin(void)
{
	address = bad_address();
	directory = bad_directory(address);
}

static void write_file(const char *path, const void *bytes, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	must(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
	close(fd);
}

static void write_at(const char *path, size_t offset, const void *bytes, size_t length)
{
	int fd = open(path, O_WRONLY);

	must(fd >= 0 && pwrite(fd, bytes, length, (off_t)offset) == (ssize_t)length);
	close(fd);
}

/* An arena with a table and a barrier, that a server has left behind. */
static void leave_arena(void *unused)
{
	struct ramps_server_options options = options_of("mine");
	struct ramps_worker_options join = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_barrier *barrier;
	struct ramps_server *server;
	struct ramps_worker *worker;
	struct ramps_table *table;

	(void)unused;
	must_work(ramps_server_start(&options, &server));
	join.servers = address;
	join.job = "mine";
	join.rank = 0;
	join.workers = 1;
	must_work(ramps_worker_join(&join, &worker));
	schema.name = "table";
	schema.mode = RAMPS_SLOTS;
	schema.rows = 100;
	must_work(ramps_table_create(worker, &schema, &table));
	must_work(ramps_barrier_open(worker, "barrier", NULL, &barrier));
	ramps_barrier_close(barrier);
	ramps_table_close(table);
	must_work(ramps_worker_leave(worker, 5000));
	ramps_worker_close(worker);
	ramps_server_stop(server);
}

static void start_mine(void *unused)
{
	struct ramps_server_options options = options_of("mine");
	struct ramps_server *server;

	(void)unused;
	must_work(ramps_server_start(&options, &server));
	ramps_server_stop(server);
}

/* A server does not start, says why, and leaves all as it was. */
static void refused(int code, const char *words)
{
	struct ramps_server_options options = options_of("mine");
	const uint64_t before = bad_digest(directory);
	struct ramps_server *server;

	must_fail(ramps_server_start(&options, &server), code, words);
	must(bad_digest(directory) == before);
}

static void a_file_or_link_in_the_place_is_left_alone(void **state)
{
	(void)state;
	begin();
	write_file(directory, "precious", 8);
	refused(EEXIST, directory);
	must(unlink(directory) == 0);
	must(symlink("/nowhere/at/all", directory) == 0);
	refused(EEXIST, directory);
	must(unlink(directory) == 0);
	must(symlink(bad_root, directory) == 0);
	refused(EEXIST, directory);
	must(unlink(directory) == 0);
	must(mkfifo(directory, 0600) == 0);
	refused(EEXIST, directory);
	must(unlink(directory) == 0);
	bad_child(start_mine, NULL);
}

static void an_empty_directory_is_used(void **state)
{
	(void)state;
	begin();
	must(mkdir(directory, 0700) == 0);
	bad_child(start_mine, NULL);
}

static void a_directory_of_other_files_is_left_alone(void **state)
{
	(void)state;
	begin();
	must(mkdir(directory, 0700) == 0);
	write_file(path_of("thesis.tex"), "precious", 8);
	refused(EEXIST, "thesis.tex");
	must(mkdir(path_of("words"), 0700) == 0);
	refused(EEXIST, directory);
	must(rmdir(path_of("words")) == 0);
	write_file(path_of("published"), "", 0);
	refused(EEXIST, directory);
	write_file(path_of("lock"), "", 0);
	refused(EEXIST, "published");
}

static void a_file_beside_an_arena_stays(void **state)
{
	uint64_t before;

	(void)state;
	begin();
	bad_child(leave_arena, NULL);
	write_file(path_of("notes"), "precious", 8);
	before = bad_digest(path_of("notes"));
	bad_child(start_mine, NULL);
	must(bad_digest(path_of("notes")) == before);
}

static void an_arena_whose_files_are_cut_short_is_left_alone(void **state)
{
	static const char *const names[] = { "published", "words", "private" };

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		struct stat st;

		begin();
		bad_child(leave_arena, NULL);
		must(stat(path_of(names[i / 2]), &st) == 0);
		must(truncate(path_of(names[i / 2]), i % 2 ? st.st_size / 2 : 0) == 0);
		refused(EEXIST, names[i / 2]);
		must(unlink(path_of(names[i / 2])) == 0);
		refused(EEXIST, names[i / 2]);
	}
}

static void an_arena_with_links_or_no_files_in_it_is_left_alone(void **state)
{
	(void)state;
	begin();
	bad_child(leave_arena, NULL);
	must(link(path_of("words"), path_of("second-name")) == 0);
	refused(EEXIST, "words");
	must(unlink(path_of("second-name")) == 0);
	must(rename(path_of("words"), path_of("elsewhere")) == 0);
	must(symlink("elsewhere", path_of("words")) == 0);
	refused(EEXIST, "words");
	must(unlink(path_of("words")) == 0);
	must(mkfifo(path_of("words"), 0600) == 0);
	refused(EEXIST, "words");
	must(unlink(path_of("words")) == 0);
	must(mkdir(path_of("words"), 0700) == 0);
	refused(EEXIST, "words");
	must(rmdir(path_of("words")) == 0);
	must(rename(path_of("elsewhere"), path_of("words")) == 0);
	must(rename(path_of("lock"), path_of("elsewhere")) == 0);
	refused(EEXIST, "lock");
	must(mkdir(path_of("lock"), 0700) == 0);
	refused(EEXIST, "lock");
	must(rmdir(path_of("lock")) == 0);
	must(rename(path_of("elsewhere"), path_of("lock")) == 0);
	bad_child(start_mine, NULL);
}

static void an_arena_of_another_job_is_left_alone(void **state)
{
	struct ramps_server_options options;
	struct ramps_server *server;
	uint64_t before;

	(void)state;
	begin();
	bad_child(leave_arena, NULL);
	before = bad_digest(directory);
	options = options_of("yours");
	must_fail(ramps_server_start(&options, &server), EEXIST, "mine|yours");
	must(bad_digest(directory) == before);
	bad_child(start_mine, NULL);
}

static void an_arena_of_another_version_is_left_alone(void **state)
{
	static const struct {
		size_t at;
		uint32_t value;
		const char *words;
	} cases[] = {
		{ offsetof(struct core_header, version), 77, "77" },
		{ offsetof(struct core_header, layout_hash), 0xabad1dea, "abad1dea" },
		{ offsetof(struct core_header, magic), 0, "" },
		{ offsetof(struct core_header, magic), UINT32_MAX, "" },
		{ offsetof(struct core_header, arena_id), 12345, "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin();
		bad_child(leave_arena, NULL);
		write_at(path_of("published"), cases[i].at, &cases[i].value, 4);
		refused(EEXIST, cases[i].words);
		refused(EEXIST, directory);
	}
}

static void another_user_s_directory_is_left_alone(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("SKIP: only root can give a directory away\n");
		skip();
	}
	begin();
	bad_child(leave_arena, NULL);
	must(chown(path_of("published"), NOBODY, NOBODY) == 0);
	refused(EEXIST, "published");
	must(chown(path_of("published"), 0, 0) == 0);
	must(chown(directory, NOBODY, NOBODY) == 0);
	refused(EEXIST, directory);
	must(chown(directory, 0, 0) == 0);
	bad_child(start_mine, NULL);
}

static void a_directory_that_others_may_write_to_is_left_alone(void **state)
{
	static const mode_t modes[] = { 0777, 0720, 0702, 01777 };

	(void)state;
	begin();
	must(mkdir(directory, 0700) == 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		must(chmod(directory, modes[i]) == 0);
		refused(EEXIST, directory);
	}
	must(chmod(directory, 0700) == 0);
	bad_child(start_mine, NULL);
}

static void start_as_nobody(void *unused)
{
	struct ramps_server_options options = options_of("mine");
	struct ramps_server *server;

	(void)unused;
	must(seteuid(NOBODY) == 0);
	must_fail(ramps_server_start(&options, &server), EACCES, bad_root);
}

static void a_place_that_may_not_be_written_to_is_told(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("SKIP: only root can become another user\n");
		skip();
	}
	begin();
	bad_child(start_as_nobody, NULL);
}

static void start_in(void *root)
{
	struct ramps_server_options options = options_of("mine");
	struct ramps_server *server;
	const char *where = root;

	must(setenv("RAMPS_SHM_DIR", where, 1) == 0);
	must_fail(ramps_server_start(&options, &server),
		  strlen(where) > 200 ? ENAMETOOLONG : ENOENT, strlen(where) > 200 ? "" : where);
}

static void a_place_that_is_not_there_is_told(void **state)
{
	char missing[] = "/dev/shm/not/there", longest[512];

	(void)state;
	begin();
	bad_child(start_in, missing);
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	bad_child(start_in, longest);
}

static void a_second_server_at_an_address_is_refused_and_the_first_named(void **state)
{
	struct ramps_server_options options, other;
	struct bad_server first;
	struct ramps_server *server;
	char number[16];

	(void)state;
	begin();
	options = options_of("mine");
	bad_server_start(&first, &options);
	snprintf(number, sizeof(number), "%d", (int)first.pid);
	must_fail(ramps_server_start(&options, &server), EADDRINUSE, number);
	other = options_of("yours");
	must_fail(ramps_server_start(&other, &server), EADDRINUSE, number);
	options.fresh = 1;
	must_fail(ramps_server_start(&options, &server), EADDRINUSE, number);
	bad_server_stop(&first);
	bad_child(start_mine, NULL);
}

static void a_left_arena_is_no_server(void **state)
{
	struct ramps_worker_options join = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;
	uint64_t before;

	(void)state;
	begin();
	bad_child(leave_arena, NULL);
	before = bad_digest(directory);
	join.servers = address;
	join.rank = 0;
	join.workers = 1;
	join.timeout_ms = 50;
	must_fail(ramps_worker_join(&join, &worker), ECONNREFUSED, address);
	must(bad_digest(directory) == before);
}

#define SERVED 2

static void embed_where_an_arena_was_left(void *unused)
{
	struct ramps_worker *worker;
	struct ramps_table *table;
	char own[32];

	(void)unused;
	snprintf(own, sizeof(own), "shm://embed-%d-0", (int)getpid());
	address = own;
	directory = bad_directory(own);
	leave_arena(NULL);
	must(setenv("RAMPS_JOB", "mine", 1) == 0);
	must_work(bad_join("embed:", 0, 1, &worker));
	must_fail(ramps_table_open(worker, "table", NULL, 0, &table), ENOENT, "table");
	ramps_worker_close(worker);
	must(access(directory, F_OK) < 0);
}

/* Numbers of processes come again, in containers soon. */
static void a_program_that_runs_alone_does_not_find_what_an_earlier_one_left(void **state)
{
	(void)state;
	bad_child(embed_where_an_arena_was_left, NULL);
}

/* What says that it is an arena is checked first. The rest is found out only when it is open. */
static void start_damaged(void *whole)
{
	struct ramps_server_options options = options_of("mine");
	const uint64_t before = bad_digest(directory);
	struct ramps_server *server;
	int ret = ramps_server_start(&options, &server);

	if (ret == 0) {
		ramps_server_stop(server);
		_exit(SERVED);
	}
	must_fail(ret, EEXIST, directory);
	must(!*(bool *)whole || bad_digest(directory) == before);
}

/* Damages one word: 1 if a server took the arena over all the same. */
static int damage(size_t at, uint32_t value)
{
	bool whole = at < offsetof(struct core_header, on_death);
	uint32_t good = 0;
	int fd = open(path_of("published"), O_RDONLY), status;

	must(fd >= 0 && pread(fd, &good, 4, (off_t)at) == 4);
	close(fd);
	if (value == good)
		return 0;
	write_at(path_of("published"), at, &value, 4);
	status = bad_fork(start_damaged, &whole);
	if (status && status >> 8 != SERVED)
		fprintf(stderr, "%#x at byte %zu\n", value, at);
	must(status == 0 || status >> 8 == SERVED);
	write_at(path_of("published"), at, &good, 4);
	return status != 0;
}

/* Every word of the header and of the directory's entries, one at a time. */
static void a_damaged_arena_is_refused_or_served_and_crashes_nobody(void **state)
{
	static const uint32_t values[] = { 0, 1, 0x7fffffff, UINT32_MAX };
	const size_t words = (sizeof(struct core_header) + 2 * sizeof(struct core_entry)) / 4;
	const uint32_t step = bad_rounds(10) < 10 ? 7 : 1;
	struct core_header header;
	bool made = false;

	(void)state;
	begin();
	for (size_t i = 0; i < 4 * words; i += step) {
		size_t at = i / 4 * 4;

		if (!made) {
			int fd;

			bad_child(leave_arena, NULL);
			fd = open(path_of("published"), O_RDONLY);
			must(fd >= 0 && read(fd, &header, sizeof(header)) == sizeof(header));
			close(fd);
			made = true;
		}
		if (at >= sizeof(header))
			at += header.entries_offset - sizeof(header);
		if (damage(at, values[i % 4])) {
			/* what it did there may have been wrong */
			bad_remove(directory);
			made = false;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_or_link_in_the_place_is_left_alone),
		cmocka_unit_test(an_empty_directory_is_used),
		cmocka_unit_test(a_directory_of_other_files_is_left_alone),
		cmocka_unit_test(a_file_beside_an_arena_stays),
		cmocka_unit_test(an_arena_whose_files_are_cut_short_is_left_alone),
		cmocka_unit_test(an_arena_with_links_or_no_files_in_it_is_left_alone),
		cmocka_unit_test(an_arena_of_another_job_is_left_alone),
		cmocka_unit_test(an_arena_of_another_version_is_left_alone),
		cmocka_unit_test(another_user_s_directory_is_left_alone),
		cmocka_unit_test(a_directory_that_others_may_write_to_is_left_alone),
		cmocka_unit_test(a_place_that_may_not_be_written_to_is_told),
		cmocka_unit_test(a_place_that_is_not_there_is_told),
		cmocka_unit_test(a_second_server_at_an_address_is_refused_and_the_first_named),
		cmocka_unit_test(a_left_arena_is_no_server),
		cmocka_unit_test(a_program_that_runs_alone_does_not_find_what_an_earlier_one_left),
		cmocka_unit_test(a_damaged_arena_is_refused_or_served_and_crashes_nobody),
	};

	return cmocka_run_group_tests(tests, bad_setup, bad_teardown);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/error.h"
#include "core/arena.h"
#include "core/scratch.h"

static char directory[96];
static uint64_t entries_offset;

static int setup(void **state)
{
	if (scratch_setup(state))
		return -1;
	snprintf(directory, sizeof(directory), "%s/arena", scratch_root);
	return 0;
}

static struct core_arena_options options(void)
{
	return (struct core_arena_options){
		.directory = directory,
		.job = "test",
		.arena_bytes = 8 << 20,
		.max_workers = 16,
		.cells = 4,
	};
}

static struct core_arena *must_open(void)
{
	struct core_arena_options o = options();
	struct core_arena *arena;

	assert_int_equal(core_arena_open(&o, &arena), 0);
	return arena;
}

/* An arena with a table-like entry and values in all regions, closed and left there. */
static void leave_arena(void)
{
	struct core_arena *arena = must_open();
	struct core_entry *e = core_arena_at(arena, CORE_PUBLISHED,
					     core_arena_header(arena)->entries_offset);
	struct fabric_memory *slots;

	entries_offset = core_arena_header(arena)->entries_offset;
	e->words_end = core_arena_fixed(arena, CORE_WORDS) + 100;
	e->published_end = core_arena_fixed(arena, CORE_PUBLISHED) + 5000;
	e->private_end = core_arena_fixed(arena, CORE_PRIVATE) + 10000;
	assert_int_equal(core_arena_extend(arena, CORE_WORDS, e->words_end), 0);
	assert_int_equal(core_arena_extend(arena, CORE_PUBLISHED, e->published_end), 0);
	assert_int_equal(core_arena_extend(arena, CORE_PRIVATE, e->private_end), 0);
	assert_int_equal(core_arena_slots(arena, 3, &slots), 0);
	memset(slots->base, 7, slots->len_bytes);
	memset(core_arena_at(arena, CORE_WORDS, e->words_end - 100), 4, 100);
	memset(core_arena_at(arena, CORE_PUBLISHED, e->published_end - 5000), 5, 5000);
	memset(core_arena_at(arena, CORE_PRIVATE, e->private_end - 10000), 6, 10000);
	core_arena_header(arena)->entries = 1;
	core_arena_close(arena, false);
}

static void refused(const struct core_arena_options *o, int code, const char *word)
{
	struct core_arena *arena = NULL;
	uint64_t before = scratch_digest(directory);

	assert_int_equal(core_arena_open(o, &arena), code);
	base_end("test", code);
	if (!strstr(base_last_error()->text, word))
		fail_msg("'%s' is not in '%s'", word, base_last_error()->text);
	assert_true(scratch_digest(directory) == before);
}

static const char *file(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static void a_new_arena_is_empty_and_goes_when_removed(void **state)
{
	struct core_arena *arena = must_open();
	struct core_header *h = core_arena_header(arena);
	struct stat st;

	(void)state;
	assert_false(arena->resumed);
	assert_int_equal(h->magic, CORE_MAGIC);
	assert_int_equal(h->lives, 1);
	assert_int_equal(h->server_pid, getpid());
	assert_int_equal(h->entries, 0);
	assert_int_equal(h->used_bytes, 0);
	assert_string_equal(h->job, "test");
	assert_int_equal(core_arena_free(arena), 8 << 20);
	assert_int_equal(stat(directory, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(file("words"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* long, but without memory beyond the fixed part */
	assert_true((uint64_t)st.st_size >= arena->arena_bytes);
	assert_true((uint64_t)st.st_blocks * 512 <= core_arena_fixed(arena, CORE_WORDS) + 4096);
	core_arena_close(arena, true);
	assert_int_equal(access(directory, F_OK), -1);
	core_arena_close(NULL, true);
}

static void a_resumed_arena_keeps_its_contents(void **state)
{
	struct core_arena_options o = options();
	struct core_arena *arena;
	struct fabric_memory *slots;
	const unsigned char *at;
	uint64_t id;

	(void)state;
	leave_arena();
	o.max_workers = 99;
	o.cells = 77;
	o.on_death = RAMPS_ON_DEATH_CONTINUE;
	o.arena_bytes = 32 << 20; /* larger: taken over */
	assert_int_equal(core_arena_open(&o, &arena), 0);
	assert_true(arena->resumed);
	assert_int_equal(arena->max_workers, 16);
	assert_int_equal(arena->cells, 4);
	assert_int_equal(arena->arena_bytes, 32 << 20);
	assert_int_equal(core_arena_header(arena)->on_death, RAMPS_ON_DEATH_CONTINUE);
	assert_int_equal(core_arena_header(arena)->lives, 2);
	assert_int_equal(core_arena_header(arena)->used_bytes, 15100);
	id = core_arena_header(arena)->arena_id;
	at = core_arena_at(arena, CORE_PUBLISHED, core_arena_fixed(arena, CORE_PUBLISHED));
	for (int i = 0; i < 5000; i++)
		assert_int_equal(at[i], 5);
	at = core_arena_at(arena, CORE_WORDS, core_arena_fixed(arena, CORE_WORDS));
	for (int i = 0; i < 100; i++)
		assert_int_equal(at[i], 4);
	assert_int_equal(core_arena_slots(arena, 3, &slots), 0);
	for (uint64_t i = 0; i < slots->len_bytes; i += 1001)
		assert_int_equal(((unsigned char *)slots->base)[i], 7);
	assert_int_equal(core_arena_extend(arena, CORE_WORDS,
					   core_arena_fixed(arena, CORE_WORDS) + (20 << 20)),
			 0);
	core_arena_close(arena, false);

	o.arena_bytes = 1 << 20; /* smaller: it keeps its size */
	assert_int_equal(core_arena_open(&o, &arena), 0);
	assert_int_equal(arena->arena_bytes, 32 << 20);
	assert_true(core_arena_header(arena)->arena_id == id);
	core_arena_close(arena, false);

	o.fresh = true;
	assert_int_equal(core_arena_open(&o, &arena), 0);
	assert_false(arena->resumed);
	assert_true(core_arena_header(arena)->arena_id != id);
	assert_int_equal(arena->max_workers, 99);
	assert_int_equal(access(file("slots-3"), F_OK), -1);
	core_arena_close(arena, true);
}

static void what_an_unfinished_entry_left_is_zero_again(void **state)
{
	struct core_arena *arena;
	uint64_t end;
	const unsigned char *at;

	(void)state;
	leave_arena();
	arena = must_open();
	for (uint32_t r = 0; r < CORE_REGIONS; r++) {
		if (r == CORE_SLOTS)
			continue;
		end = arena->allocated[r];
		assert_int_equal(core_arena_extend(arena, r, end + 50000), 0);
		memset(core_arena_at(arena, r, end), 9, 50000);
	}
	core_arena_close(arena, false); /* without an entry over it */
	arena = must_open();
	assert_int_equal(core_arena_header(arena)->used_bytes, 15100);
	for (uint32_t r = 0; r < CORE_REGIONS; r++) {
		if (r == CORE_SLOTS)
			continue;
		end = arena->allocated[r];
		assert_int_equal(core_arena_extend(arena, r, end + 50000), 0);
		at = core_arena_at(arena, r, end);
		for (int i = 0; i < 50000; i++)
			assert_int_equal(at[i], 0);
	}
	core_arena_close(arena, true);
}

static void two_servers_do_not_share_an_arena(void **state)
{
	struct core_arena *arena = must_open();
	struct core_arena_options o = options();
	char pid[32];

	(void)state;
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	refused(&o, -EADDRINUSE, pid);
	o.fresh = true;
	refused(&o, -EADDRINUSE, pid);
	core_arena_close(arena, true);
}

static void a_dying_server_is_waited_for(void **state)
{
	struct core_arena *arena;
	int to_child[2], from_child[2], status;
	char c = 0;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(to_child) | pipe(from_child), 0);
	child = fork();
	if (child == 0) {
		struct core_arena_options o = options();

		if (core_arena_open(&o, &arena))
			_exit(1);
		core_arena_header(arena)->members = 12345;
		if (write(from_child[1], &c, 1) != 1 || read(to_child[0], &c, 1) != 1)
			_exit(2);
		usleep(200000); /* takes its time to die */
		_exit(0);
	}
	assert_int_equal(read(from_child[0], &c, 1), 1);
	assert_int_equal(write(to_child[1], &c, 1), 1);
	arena = must_open();
	assert_true(arena->resumed);
	assert_int_equal(core_arena_header(arena)->members, 12345);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	core_arena_close(arena, true);
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
	close(from_child[1]);
}

static void what_is_no_arena_is_left_alone(void **state)
{
	struct core_arena_options o = options();

	(void)state;
	for (int fresh = 0; fresh < 2; fresh++) {
		o.fresh = fresh;
		assert_int_equal(mkdir(directory, 0700), 0);
		scratch_write(file("notes.txt"), "mine");
		refused(&o, -EEXIST, "notes.txt");
		scratch_write(file("lock"), "");
		refused(&o, -EEXIST, "published");
		scratch_write(file("published"), "");
		refused(&o, -EEXIST, "empty");
		scratch_write(file("published"), "short");
		refused(&o, -EEXIST, "short");
		assert_int_equal(truncate(file("published"), 1 << 20), 0);
		refused(&o, -EEXIST, "no arena");
		assert_int_equal(unlink(file("lock")), 0);
		refused(&o, -EEXIST, "no lock");
		assert_int_equal(unlink(file("notes.txt")), 0);
		refused(&o, -EEXIST, "no lock");
		assert_int_equal(unlink(file("published")), 0);

		assert_int_equal(mkdir(file("words"), 0700), 0);
		refused(&o, -EEXIST, "words");
		assert_int_equal(rmdir(file("words")), 0);
		assert_int_equal(symlink("/etc/passwd", file("slots-0")), 0);
		refused(&o, -EEXIST, "slots-0");
		assert_int_equal(unlink(file("slots-0")), 0);
		assert_int_equal(rmdir(directory), 0);
	}
	scratch_write(directory, "a file");
	o.fresh = false;
	struct core_arena *arena;
	assert_int_equal(core_arena_open(&o, &arena), -EEXIST);
	assert_int_equal(unlink(directory), 0);
}

static void a_link_in_the_directorys_place_is_refused(void **state)
{
	struct core_arena_options o = options();
	char real[128];

	(void)state;
	leave_arena();
	snprintf(real, sizeof(real), "%s/real", scratch_root);
	assert_int_equal(rename(directory, real), 0);
	assert_int_equal(symlink(real, directory), 0);
	refused(&o, -EEXIST, "link");
	o.fresh = true;
	refused(&o, -EEXIST, "link");
	assert_int_equal(unlink(directory), 0);
	assert_int_equal(rename(real, directory), 0);
	core_arena_close(must_open(), true);
}

/* Moves a file of an arena away, puts something else there, and back. */
static void with_other_file(const char *name, void (*make)(const char *path), const char *word)
{
	struct core_arena_options o = options();
	char path[256], aside[256];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	snprintf(aside, sizeof(aside), "%s/aside", scratch_root);
	assert_int_equal(rename(path, aside), 0);
	make(path);
	refused(&o, -EEXIST, word);
	unlink(path);
	assert_int_equal(rename(aside, path), 0);
}

static void make_nothing(const char *path)
{
	(void)path;
}

static void make_empty(const char *path)
{
	scratch_write(path, "");
}

static void make_short(const char *path)
{
	make_empty(path);
	assert_int_equal(truncate(path, 5000), 0);
}

static void make_link(const char *path)
{
	char aside[256];

	snprintf(aside, sizeof(aside), "%s/aside", scratch_root);
	assert_int_equal(symlink(aside, path), 0);
}

static void make_hard_link(const char *path)
{
	char aside[256];

	snprintf(aside, sizeof(aside), "%s/aside", scratch_root);
	assert_int_equal(link(aside, path), 0);
}

static void make_fifo(const char *path)
{
	assert_int_equal(mkfifo(path, 0600), 0);
}

static void an_arena_with_a_file_missing_or_replaced_is_refused(void **state)
{
	const char *names[] = { "words", "published", "private" };

	(void)state;
	leave_arena();
	for (int i = 0; i < 3; i++) {
		with_other_file(names[i], make_nothing, names[i]);
		with_other_file(names[i], make_empty, names[i]);
		with_other_file(names[i], make_short, i == 1 ? "no arena" : names[i]);
		with_other_file(names[i], make_link, names[i]);
		with_other_file(names[i], make_hard_link, names[i]);
		with_other_file(names[i], make_fifo, names[i]);
	}
	with_other_file("slots-3", make_link, "slots-3");
	with_other_file("lock", make_nothing, "no lock");
	with_other_file("lock", make_link, "lock");
	core_arena_close(must_open(), true);
}

static void another_users_files_are_refused(void **state)
{
	const char *names[] = { "words", "published", "private", "lock", "slots-3" };
	struct core_arena_options o = options();

	(void)state;
	if (geteuid() != 0) {
		print_message("SKIP: only root can give files away\n");
		skip();
	}
	leave_arena();
	for (int i = 0; i < 5; i++) {
		assert_int_equal(chown(file(names[i]), 12345, (gid_t)-1), 0);
		refused(&o, -EEXIST, names[i]);
		o.fresh = true;
		refused(&o, -EEXIST, names[i]);
		o.fresh = false;
		assert_int_equal(chown(file(names[i]), 0, (gid_t)-1), 0);
	}
	assert_int_equal(chown(directory, 12345, (gid_t)-1), 0);
	refused(&o, -EEXIST, "another user");
	assert_int_equal(chown(directory, 0, (gid_t)-1), 0);
	assert_int_equal(chmod(directory, 0777), 0);
	refused(&o, -EEXIST, "others may write");
	assert_int_equal(chmod(directory, 0700), 0);
	core_arena_close(must_open(), true);
}

/* Changes header bytes, expects a refusal, changes them back. */
static void with_header(size_t offset, uint64_t value, size_t len, const char *word)
{
	struct core_arena_options o = options();
	unsigned char old[8];
	int fd = open(file("published"), O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, old, len, (off_t)offset), (ssize_t)len);
	assert_int_equal(pwrite(fd, &value, len, (off_t)offset), (ssize_t)len);
	refused(&o, -EEXIST, word);
	assert_int_equal(pwrite(fd, old, len, (off_t)offset), (ssize_t)len);
	close(fd);
}

static void an_arena_of_another_job_version_or_shape_is_refused(void **state)
{
	struct core_arena_options o = options();
	struct core_arena *arena;

#define WITH(field, value, word)                                \
	with_header(offsetof(struct core_header, field), value, \
		    sizeof(((struct core_header *)0)->field), word)
	(void)state;
	leave_arena();
	WITH(magic, CORE_MAGIC + 1, "no arena");
	WITH(magic, 0, "no arena");
	WITH(version, 9, "version 9");
	WITH(layout_hash, 0x1234abcd, "1234abcd");
	WITH(max_workers, 17, "damaged");
	WITH(max_workers, 0, "damaged");
	WITH(max_workers, 1 << 30, "damaged");
	WITH(cells, 0, "damaged");
	WITH(arena_bytes, 1ull << 40, "short");
	WITH(arena_bytes, UINT64_MAX, "damaged");
	WITH(states_offset, 0, "damaged");
	WITH(entries, CORE_MAX_ENTRIES + 1, "damaged");
	WITH(arena_id, 1, "damaged");
	with_header(entries_offset + offsetof(struct core_entry, words_end), 1ull << 50, 8, "damaged");
	with_header(entries_offset + offsetof(struct core_entry, private_end), 5, 8, "damaged");
	o.job = "other";
	refused(&o, -EEXIST, "job test");
	/* what the text recommends works */
	o.fresh = true;
	assert_int_equal(core_arena_open(&o, &arena), 0);
	assert_string_equal(core_arena_header(arena)->job, "other");
	core_arena_close(arena, true);
}

static void the_fabrics_files_are_no_arena(void **state)
{
	struct core_arena *arena;

	(void)state;
	assert_int_equal(mkdir(directory, 0700), 0);
	arena = must_open(); /* an empty directory is nothing */
	assert_false(arena->resumed);
	core_arena_close(arena, true);
	assert_int_equal(mkdir(directory, 0700), 0);
	scratch_write(file("socket"), "");
	scratch_write(file("bells"), "");
	arena = must_open();
	assert_false(arena->resumed);
	core_arena_close(arena, true);
	/* they stay, and so does the directory */
	assert_int_equal(access(file("socket"), F_OK), 0);
	assert_int_equal(access(file("lock"), F_OK), -1);
	assert_int_equal(access(file("words"), F_OK), -1);
}

static void an_arena_killed_while_it_was_made_is_made_anew(void **state)
{
	const char *kept[][4] = {
		{ "lock" },
		{ "lock", "words" },
		{ "lock", "words", "published" },
		{ "lock", "words", "published", "private" },
	};
	struct core_arena *arena;

	(void)state;
	for (int fresh = 0; fresh < 2; fresh++)
		for (int i = 0; i < 4; i++)
			for (int empty = 0; empty < 2; empty++) {
				struct core_arena_options o = options();

				o.fresh = fresh;
				assert_int_equal(mkdir(directory, 0700), 0);
				for (int k = 0; k < 4 && kept[i][k]; k++) {
					scratch_write(file(kept[i][k]), "");
					if (k && !empty)
						assert_int_equal(truncate(file(kept[i][k]), 1 << 23), 0);
				}
				if (i || !empty)
					scratch_write(file("lock"), "new 123456\n");
				assert_int_equal(core_arena_open(&o, &arena), 0);
				assert_false(arena->resumed);
				core_arena_close(arena, true);
				assert_int_equal(access(directory, F_OK), -1);
			}
}

static void an_arena_killed_while_it_was_removed_is_made_anew(void **state)
{
	struct core_arena *arena;

	(void)state;
	leave_arena();
	scratch_write(file("lock"), "new 123456\n");
	arena = must_open(); /* nothing was removed yet */
	assert_true(arena->resumed);
	core_arena_close(arena, false);
	scratch_write(file("lock"), "new 123456\n");
	assert_int_equal(unlink(file("published")), 0);
	arena = must_open();
	assert_false(arena->resumed);
	assert_int_equal(access(file("slots-3"), F_OK), -1);
	core_arena_close(arena, true);
}

static void a_full_arena_says_so(void **state)
{
	struct core_arena *arena = must_open();
	uint64_t fixed = core_arena_fixed(arena, CORE_PUBLISHED);

	(void)state;
	assert_int_equal(core_arena_extend(arena, CORE_PUBLISHED, fixed + (5 << 20)), 0);
	assert_int_equal(core_arena_extend(arena, CORE_WORDS,
					   core_arena_fixed(arena, CORE_WORDS) + (4 << 20)),
			 -ENOSPC);
	base_end("test", -ENOSPC);
	assert_non_null(strstr(base_last_error()->text, "4194304"));
	assert_non_null(strstr(base_last_error()->text, "3145728"));
	assert_int_equal(core_arena_extend(arena, CORE_WORDS,
					   core_arena_fixed(arena, CORE_WORDS) + (3 << 20)),
			 0);
	assert_int_equal(core_arena_free(arena), 0);
	core_arena_trim(arena, CORE_PUBLISHED, fixed + 1000);
	assert_int_equal(core_arena_header(arena)->used_bytes, (3 << 20) + 1000);
	core_arena_close(arena, true);
}

static void a_full_file_system_says_so_and_nothing_stays(void **state)
{
	struct core_arena_options o = options();
	struct core_arena *arena;
	struct fabric_memory *slots;
	char mounted[128], inside[160];

	(void)state;
	snprintf(mounted, sizeof(mounted), "%s/small", scratch_root);
	snprintf(inside, sizeof(inside), "%s/arena", mounted);
	assert_int_equal(mkdir(mounted, 0700), 0);
	if (mount("tmpfs", mounted, "tmpfs", 0, "size=2m") < 0) {
		print_message("SKIP: no file system can be mounted here\n");
		skip();
	}
	o.directory = inside;
	o.arena_bytes = 1 << 30;
	assert_int_equal(core_arena_open(&o, &arena), -ENOSPC); /* the directory alone is larger */
	assert_int_equal(access(inside, F_OK), -1);
	assert_int_equal(mount("tmpfs", mounted, "tmpfs", MS_REMOUNT, "size=8m"), 0);
	assert_int_equal(core_arena_open(&o, &arena), 0);
	assert_int_equal(core_arena_extend(arena, CORE_WORDS,
					   core_arena_fixed(arena, CORE_WORDS) + (16 << 20)),
			 -ENOSPC);
	base_end("test", -ENOSPC);
	assert_non_null(strstr(base_last_error()->text, "16777216"));
	assert_int_equal(core_arena_header(arena)->used_bytes, 0);
	assert_int_equal(core_arena_slots(arena, 0, &slots), 0);
	for (uint32_t rank = 1; rank < 16; rank++)
		if (core_arena_slots(arena, rank, &slots) == -ENOSPC) {
			/* what there is can still be used */
			assert_int_equal(core_arena_extend(arena, CORE_WORDS,
							   arena->allocated[CORE_WORDS] + 4096),
					 0);
			memset(core_arena_at(arena, CORE_WORDS, arena->allocated[CORE_WORDS] - 4096),
			       1, 4096);
			core_arena_close(arena, true);
			assert_int_equal(umount(mounted), 0);
			return;
		}
	fail_msg("the file system never became full");
}

static void an_attached_arena_is_read_only(void **state)
{
	struct core_arena *arena, *view;
	struct core_arena_options o = options();
	uint64_t before;

	(void)state;
	assert_int_equal(core_arena_attach(directory, &view), -ENOENT);
	assert_int_equal(mkdir(directory, 0700), 0);
	assert_int_equal(core_arena_attach(directory, &view), -ENOENT);
	assert_int_equal(rmdir(directory), 0);
	leave_arena();
	before = scratch_digest(directory);
	assert_int_equal(core_arena_attach(directory, &view), 0);
	assert_string_equal(core_arena_header(view)->job, "test");
	assert_int_equal(core_arena_header(view)->entries, 1);
	core_arena_close(view, false);
	assert_true(scratch_digest(directory) == before);

	assert_int_equal(core_arena_open(&o, &arena), 0);
	assert_int_equal(core_arena_attach(directory, &view), 0); /* while it is in use */
	core_arena_header(arena)->members = 77;
	assert_int_equal(core_arena_header(view)->members, 77);
	core_arena_close(view, false);
	core_arena_close(arena, true);
}

static void options_out_of_range_are_refused(void **state)
{
	char longest[400];
	struct core_arena *arena;
	struct core_arena_options o;

	(void)state;
#define BAD(field, value, code) \
	(o = options(), o.field = (value), assert_int_equal(core_arena_open(&o, &arena), code))
	memset(longest, 'x', sizeof(longest));
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	BAD(max_workers, 0, -EINVAL);
	BAD(max_workers, 16385, -EINVAL);
	BAD(cells, 0, -EINVAL);
	BAD(arena_bytes, 0, -EINVAL);
	BAD(arena_bytes, UINT64_MAX, -EINVAL);
	BAD(on_death, 2, -EINVAL);
	BAD(job, "a/../b", -EINVAL);
	BAD(directory, longest, -ENAMETOOLONG);
	BAD(directory, "/dev/shm/ramps-test-no-such/arena", -ENOENT);
	assert_int_equal(access(directory, F_OK), -1);
}

static int teardown(void **state)
{
	char mounted[128];

	snprintf(mounted, sizeof(mounted), "%s/small", scratch_root);
	umount2(mounted, MNT_DETACH); /* where a test failed in between */
	return scratch_teardown(state);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_new_arena_is_empty_and_goes_when_removed),
		T(a_resumed_arena_keeps_its_contents),
		T(what_an_unfinished_entry_left_is_zero_again),
		T(two_servers_do_not_share_an_arena),
		T(a_dying_server_is_waited_for),
		T(what_is_no_arena_is_left_alone),
		T(a_link_in_the_directorys_place_is_refused),
		T(an_arena_with_a_file_missing_or_replaced_is_refused),
		T(another_users_files_are_refused),
		T(an_arena_of_another_job_version_or_shape_is_refused),
		T(the_fabrics_files_are_no_arena),
		T(an_arena_killed_while_it_was_made_is_made_anew),
		T(an_arena_killed_while_it_was_removed_is_made_anew),
		T(a_full_arena_says_so),
		T(a_full_file_system_says_so_and_nothing_stays),
		T(an_attached_arena_is_read_only),
		T(options_out_of_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

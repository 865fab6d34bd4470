/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/scratch.h"

char scratch_root[64];

int scratch_setup(void **state)
{
	(void)state;
	strcpy(scratch_root, "/dev/shm/ramps-test.XXXXXX");
	return mkdtemp(scratch_root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int scratch_teardown(void **state)
{
	(void)state;
	return nftw(scratch_root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *scratch_path(const char *name)
{
	static char paths[4][300];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch_root, name);
	return path;
}

static uint64_t fold(uint64_t hash, const void *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211ull;
	return hash;
}

static uint64_t fold_file(uint64_t hash, int dir, const char *name)
{
	static char block[65536];
	struct stat st;
	ssize_t n;
	int fd;

	assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	hash = fold(hash, name, strlen(name));
	hash = fold(hash, &st.st_ino, sizeof(st.st_ino));
	hash = fold(hash, &st.st_mode, sizeof(st.st_mode));
	hash = fold(hash, &st.st_size, sizeof(st.st_size));
	hash = fold(hash, &st.st_blocks, sizeof(st.st_blocks));
	hash = fold(hash, &st.st_mtim, sizeof(st.st_mtim));
	if (!S_ISREG(st.st_mode))
		return hash;
	fd = openat(dir, name, O_RDONLY);
	assert_true(fd >= 0);
	while ((n = read(fd, block, sizeof(block))) > 0)
		hash = fold(hash, block, (size_t)n);
	close(fd);
	return hash;
}

uint64_t scratch_digest(const char *directory)
{
	uint64_t hash = 14695981039346656037ull;
	struct dirent **names;
	int n = scandir(directory, &names, NULL, alphasort), dir;

	assert_true(n >= 0);
	dir = open(directory, O_RDONLY | O_DIRECTORY);
	assert_true(dir >= 0);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.')
			hash = fold_file(hash, dir, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	close(dir);
	return hash;
}

void scratch_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that a command leaves: each is written beside its place and then renamed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

static int fail(const char *command, const char *path)
{
	cli_error(command, "%s: %s", path, strerror(errno));
	return -1;
}

/* Where the bytes for a path go. */
struct place {
	char path[PATH_MAX];  /* behind symbolic links */
	char other[PATH_MAX]; /* beside it, to be renamed; "": written where it is, a device or a
				 pipe */
};

static int place_take(const char *command, const char *path, struct place *place)
{
	struct stat there;
	bool is_there = !stat(path, &there), is_file = is_there && S_ISREG(there.st_mode);

	*place->other = '\0';
	if (!*path) {
		cli_error(command, "an output has an empty name");
		return -1;
	}
	errno = is_there && S_ISDIR(there.st_mode) ? EISDIR : 0;
	if (errno || (is_there && access(path, W_OK)))
		return fail(command, path);
	if (is_file && !realpath(path, place->path))
		return fail(command, path);
	errno = ENAMETOOLONG;
	if (!is_file && snprintf(place->path, PATH_MAX, "%s", path) >= PATH_MAX)
		return fail(command, path);
	/* A link to nothing is written through, too, and what is open already has more in it than
	 * ours. */
	if ((is_there && !is_file) || (!is_there && !lstat(path, &there)) ||
	    !strncmp(path, "/dev/std", 8) || !strncmp(path, "/dev/fd/", 8))
		return 0;
	errno = ENAMETOOLONG;
	if (snprintf(place->other, PATH_MAX, "%s.part-%d", place->path, (int)getpid()) >= PATH_MAX)
		return fail(command, path);
	return 0;
}

static bool folder_is_writable(const char *path)
{
	char folder[PATH_MAX], *slash;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	return !access(slash ? folder : ".", W_OK | X_OK);
}

int cli_output_check(const char *command, const char *path, bool make)
{
	struct place place;
	int fd;

	if (!path)
		return 0;
	if (place_take(command, path, &place))
		return -1;
	if (!*place.other)
		return 0;
	if (!make)
		return folder_is_writable(place.path) ? 0 : fail(command, path);
	fd = open(place.other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return fail(command, path);
	close(fd);
	unlink(place.other);
	return 0;
}

int cli_output_write(const char *command, const char *path, int (*write)(FILE *, const void *),
		     const void *what)
{
	struct place place;
	bool beside;
	FILE *file;
	int code = 0;

	if (place_take(command, path, &place))
		return -1;
	beside = *place.other;
	file = fopen(beside ? place.other : place.path, beside ? "wxe" : "ae");
	if (!file)
		return fail(command, path);
	errno = 0;
	if (write(file, what) || fflush(file) || ferror(file) || (beside && fsync(fileno(file))))
		code = errno ? errno : EIO;
	if (fclose(file) && !code)
		code = errno;
	if (!code && beside && rename(place.other, place.path))
		code = errno;
	if (code && beside)
		unlink(place.other);
	errno = code;
	return code ? fail(command, path) : 0;
}

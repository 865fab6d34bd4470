/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server's directory. /dev/shm belongs to everybody, so what stands in a directory's place must
 * be our own: a link or another user's directory could point us at somebody else's server.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/name.h"
#include "shm/shm_private.h"

static const char scheme[] = "shm://";

int shm_directory(const char *address, char *buf, size_t len_bytes)
{
	const char *top = getenv("RAMPS_SHM_DIR"), *name;
	int ret, length;

	if (!address || strncmp(address, scheme, sizeof(scheme) - 1) != 0)
		return base_fail(-EINVAL, "'%s' is no address of the form shm://NAME",
				 address ? address : "");
	name = address + sizeof(scheme) - 1;
	ret = base_name_check("server", name);
	if (ret)
		return ret;
	length = snprintf(buf, len_bytes, "%s/ramps.%u.%s", top && *top ? top : "/dev/shm",
			  (unsigned int)geteuid(), name);
	if (length < 0 || (size_t)length >= len_bytes)
		return base_fail(-ENAMETOOLONG,
				 "the directory of %s has a path of %d bytes; set "
				 "RAMPS_SHM_DIR to a shorter one",
				 address, length);
	for (char *c = buf + length - strlen(name); *c; c++)
		if (*c == '/')
			*c = '+';
	return 0;
}

/* Opens the directory, and makes it first where asked. A descriptor, or -errno with text. */
int shm_open_directory(const char *path, bool make)
{
	struct stat file;
	int dir, ret;

	if (make && mkdir(path, 0700) && errno != EEXIST)
		return base_fail(errno == ENOENT || errno == ENOTDIR ? -EADDRNOTAVAIL : -errno,
				 "making %s: %s; check RAMPS_SHM_DIR", path, strerrordesc_np(errno));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0) {
		ret = -errno;
		if (ret == -ELOOP || ret == -ENOTDIR)
			return base_fail(-EACCES, "%s is not a directory; remove it", path);
		return base_fail(ret, "opening %s: %s", path, strerrordesc_np(-ret));
	}
	if (fstat(dir, &file))
		ret = base_fail(-errno, "%s: %s", path, strerrordesc_np(errno));
	else if (file.st_uid != geteuid())
		ret = base_fail(-EACCES, "%s belongs to user %u, not to this one", path,
				(unsigned int)file.st_uid);
	else if (file.st_mode & 022)
		ret = base_fail(-EACCES, "%s can be written by others; chmod it to 0700", path);
	else
		return dir;
	close(dir);
	return ret;
}

/* A path to the socket that fits into a socket address. */
void shm_socket_path(int dir, const char *directory, char *buf, size_t len_bytes)
{
	const size_t fits = sizeof(((struct sockaddr_un *)0)->sun_path);

	if (strlen(directory) + sizeof("/socket") <= fits)
		snprintf(buf, len_bytes, "%.100s/socket", directory);
	else
		snprintf(buf, len_bytes, "/proc/self/fd/%d/socket", dir);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/name.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define NAME_MAX_LENGTH 63

static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/";

int base_name_check(const char *what, const char *name)
{
	size_t length;

	if (!name || !*name)
		return base_fail(-EINVAL,
				 "the name of the %s is missing; give one of 1 to 63 bytes", what);
	length = strnlen(name, NAME_MAX_LENGTH + 1);
	if (length > NAME_MAX_LENGTH)
		return base_fail(-EINVAL, "the name of the %s, '%.63s...', is longer than 63 bytes",
				 what, name);
	if (*name == '.' || *name == '/')
		return base_fail(-EINVAL, "the name of the %s, '%s', begins with '%c'", what, name,
				 *name);
	if (strstr(name, ".."))
		return base_fail(-EINVAL, "the name of the %s, '%s', has '..' in it", what, name);
	if (strspn(name, allowed) != length)
		return base_fail(-EINVAL,
				 "the name of the %s has the byte 0x%02x in it; use letters, digits, . _ - /",
				 what, (unsigned char)name[strspn(name, allowed)]);
	return 0;
}

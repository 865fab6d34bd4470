/* SPDX-License-Identifier: BSD-2-Clause */
/* Items, and the reading of small files under the root. */
#include "doctor.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define PATH_BYTES 512

/* Of the namespaces that the kernel starts with. */
#define FIRST_PIDS   "pid:[4026531836]"
#define FIRST_GROUPS "cgroup:[4026531835]"

struct doctor_item *doctor_add(struct doctor *doctor, const char *name, const char *label)
{
	struct doctor_item *item = &doctor->items[doctor->count];

	if (doctor->count + 1 < DOCTOR_ITEMS)
		doctor->count++;
	*item = (struct doctor_item){ .name = name, .label = label };
	return item;
}

void doctor_found(struct doctor_item *item, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(item->found, sizeof(item->found), fmt, args);
	va_end(args);
}

static void __attribute__((format(printf, 3, 0)))
mend(struct doctor_item *item, bool as_root, const char *fmt, va_list args)
{
	item->state = DOCTOR_MEND;
	item->as_root = as_root;
	vsnprintf(item->text, sizeof(item->text), fmt, args);
}

void doctor_mend(struct doctor_item *item, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	mend(item, false, fmt, args);
	va_end(args);
}

void doctor_mend_as_root(struct doctor_item *item, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	mend(item, true, fmt, args);
	va_end(args);
}

void doctor_skip(struct doctor *doctor, const char *name, const char *label, const char *why)
{
	struct doctor_item *item = doctor_add(doctor, name, label);

	item->state = DOCTOR_SKIPPED;
	snprintf(item->text, sizeof(item->text), "%s", why);
}

/* The path under the root. */
static void __attribute__((format(printf, 3, 0)))
path_make(const struct doctor *doctor, char path[PATH_BYTES], const char *fmt, va_list args)
{
	int length = snprintf(path, PATH_BYTES, "%.200s/", doctor->root);

	vsnprintf(path + length, PATH_BYTES - (size_t)length, fmt, args);
}

bool doctor_exists(const struct doctor *doctor, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list args;

	va_start(args, fmt);
	path_make(doctor, path, fmt, args);
	va_end(args);
	return access(path, F_OK) == 0;
}

static bool first_line(const char *path, char *buf, size_t len_bytes)
{
	FILE *in = fopen(path, "re");
	bool got;

	if (!in)
		return false;
	got = fgets(buf, (int)len_bytes, in) != NULL;
	fclose(in);
	if (got)
		buf[strcspn(buf, "\n")] = '\0';
	return got;
}

bool doctor_line(const struct doctor *doctor, char *buf, size_t len_bytes, const char *fmt, ...)
{
	char path[PATH_BYTES];
	va_list args;

	va_start(args, fmt);
	path_make(doctor, path, fmt, args);
	va_end(args);
	return first_line(path, buf, len_bytes);
}

int64_t doctor_number(const struct doctor *doctor, int64_t missing, const char *fmt, ...)
{
	char path[PATH_BYTES], line[64], *end;
	long long value;
	va_list args;

	va_start(args, fmt);
	path_make(doctor, path, fmt, args);
	va_end(args);
	if (!first_line(path, line, sizeof(line)))
		return missing;
	value = strtoll(line, &end, 0);
	return end == line ? missing : value;
}

bool doctor_field(const struct doctor *doctor, const char *path, const char *key, char *buf,
		  size_t len_bytes)
{
	char full[PATH_BYTES], line[512];
	bool found = false;
	FILE *in;

	snprintf(full, sizeof(full), "%.200s/%s", doctor->root, path);
	in = fopen(full, "re");
	while (in && !found && fgets(line, sizeof(line), in)) {
		const char *rest = line + strlen(key);

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		rest += strspn(rest, ": \t");
		snprintf(buf, len_bytes, "%.*s", (int)strcspn(rest, "\n"), rest);
		found = true;
	}
	if (in)
		fclose(in);
	return found;
}

bool doctor_link(const struct doctor *doctor, char *buf, size_t len_bytes, const char *fmt, ...)
{
	char path[PATH_BYTES], target[PATH_BYTES];
	const char *last;
	va_list args;
	ssize_t n;

	va_start(args, fmt);
	path_make(doctor, path, fmt, args);
	va_end(args);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = '\0';
	last = strrchr(target, '/');
	snprintf(buf, len_bytes, "%s", last ? last + 1 : target);
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

uint32_t doctor_names(const struct doctor *doctor, char ***names, const char *fmt, ...)
{
	char path[PATH_BYTES];
	struct dirent *entry;
	uint32_t count = 0;
	va_list args;
	DIR *dir;

	va_start(args, fmt);
	path_make(doctor, path, fmt, args);
	va_end(args);
	*names = NULL;
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		*names = cli_grow(*names, count + 1, sizeof(**names));
		(*names)[count] = strdup(entry->d_name);
		if (!(*names)[count++])
			cli_no_memory();
	}
	if (dir)
		closedir(dir);
	if (count)
		qsort(*names, count, sizeof(**names), by_name);
	return count;
}

void doctor_names_free(char **names, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
}

/* Marks alone also lie in the files of a virtual machine that was made of a container's. */
bool doctor_in_container(const struct doctor *doctor)
{
	char pids[64] = "", groups[64] = "";
	bool marked = doctor_exists(doctor, ".dockerenv") ||
		      doctor_exists(doctor, "run/.containerenv") ||
		      doctor_exists(doctor, "var/run/secrets/kubernetes.io");

	doctor_link(doctor, pids, sizeof(pids), "proc/self/ns/pid");
	doctor_link(doctor, groups, sizeof(groups), "proc/self/ns/cgroup");
	return marked && (strcmp(pids, FIRST_PIDS) != 0 || strcmp(groups, FIRST_GROUPS) != 0);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The children's output. Each line is written whole, in one call, behind the rank's prefix, so that lines of
 * different ranks don't mix. What ends without a newline gets one; a line longer than LINE_BYTES is cut into
 * several.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define LINE_BYTES 65536u

static int write_all(int to, const char *from, size_t len_bytes)
{
	while (len_bytes) {
		ssize_t written = write(to, from, len_bytes);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -1;
		from += written;
		len_bytes -= (size_t)written;
	}
	return 0;
}

static int file_open(const struct run *run, const struct run_child *child, const char *ending)
{
	char path[512], name[RUN_NAME_BYTES];
	int fd;

	snprintf(name, sizeof(name), "%s", child->name);
	for (char *at = name; *at; at++)
		if (*at == ' ')
			*at = '-';
	snprintf(path, sizeof(path), "%s/%s.%s", run->output_dir, name, ending);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0)
		cli_error("run", "%s: %s", path, strerror(errno));
	return fd;
}

static int pipe_open(struct run_output *output, int to, const struct run_child *child, int *child_end)
{
	int ends[2];
	size_t bytes = strlen(child->name) + 8;

	if (pipe2(ends, O_CLOEXEC)) {
		cli_error("run", "a pipe for %s: %s", child->name, strerror(errno));
		return -1;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	output->from = ends[0];
	output->to = to;
	output->line = cli_alloc(LINE_BYTES, 1);
	output->prefix = cli_alloc(bytes, 1);
	if (child->kind == RUN_WORKER)
		snprintf(output->prefix, bytes, "[%u] ", child->number);
	else
		snprintf(output->prefix, bytes, "[%s] ", child->name);
	*child_end = ends[1];
	return 0;
}

int run_output_open(struct run *run, struct run_child *child, int child_ends[2])
{
	child->out.from = child->err.from = -1;
	child_ends[0] = child_ends[1] = -1;
	if (run->output_dir) {
		child_ends[0] = file_open(run, child, "out");
		child_ends[1] = file_open(run, child, "err");
		return child_ends[0] < 0 || child_ends[1] < 0 ? -1 : 0;
	}
	/* The line that says where a server serves is for those who start it by hand. */
	if (child->kind == RUN_SERVER) {
		child_ends[0] = open("/dev/null", O_WRONLY | O_CLOEXEC);
		return pipe_open(&child->err, STDERR_FILENO, child, &child_ends[1]);
	}
	if (!run->prefix)
		return 0;
	if (pipe_open(&child->out, STDOUT_FILENO, child, &child_ends[0]))
		return -1;
	return pipe_open(&child->err, STDERR_FILENO, child, &child_ends[1]);
}

static int line_pass(struct run_output *output, const char *line, size_t len_bytes)
{
	size_t before = strlen(output->prefix);
	char *whole = cli_alloc(before + len_bytes + 1, 1);
	int ret;

	memcpy(whole, output->prefix, before);
	memcpy(whole + before, line, len_bytes);
	if (!len_bytes || line[len_bytes - 1] != '\n')
		whole[before + len_bytes++] = '\n';
	ret = write_all(output->to, whole, before + len_bytes);
	free(whole);
	return ret;
}

/* Passes on the lines that are complete, and keeps the rest. */
static int lines_pass(struct run_output *output)
{
	uint32_t done = 0;
	int ret = 0;

	while (!ret && done < output->filled) {
		char *at = output->line + done;
		char *end = memchr(at, '\n', output->filled - done);
		uint32_t length = end ? (uint32_t)(end - at) + 1 : output->filled - done;

		if (!end && length < LINE_BYTES)
			break;
		ret = line_pass(output, at, length);
		done += length;
	}
	memmove(output->line, output->line + done, output->filled - done);
	output->filled -= done;
	return ret;
}

int run_output_pass(struct run_output *output)
{
	for (;;) {
		ssize_t got = read(output->from, output->line + output->filled,
				   LINE_BYTES - output->filled);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return 0;
		if (got <= 0) {
			int ret = output->filled ? line_pass(output, output->line, output->filled) : 0;

			run_output_close(output);
			return ret;
		}
		output->filled += (uint32_t)got;
		if (lines_pass(output))
			return -1;
	}
}

void run_output_close(struct run_output *output)
{
	if (output->from >= 0)
		close(output->from);
	output->from = -1;
	output->filled = 0;
	free(output->line);
	free(output->prefix);
	output->line = output->prefix = NULL;
}

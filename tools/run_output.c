/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The children's output. Each line goes whole behind its rank's prefix, so that lines of different
 * ranks don't mix. What ends without a newline gets one; a line longer than LINE_BYTES is cut into
 * several.
 *
 * Whoever reads our stdout may be slow, or have stopped. So that the run is watched all the same,
 * nothing here waits: lines queue in a sink, which is written to when poll() says so, PIPE_BUF bytes
 * at a time, as that much fits then. While much is queued no more is read, and the children wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define LINE_BYTES  65536u
#define QUEUE_BYTES 65536u
#define DRAIN_READS 32

static void sink_add(struct run_sink *sink, const char *from, size_t len_bytes)
{
	if (sink->fd < 0)
		return;
	if (sink->begin == sink->end)
		sink->begin = sink->end = 0;
	if (sink->end + len_bytes > sink->room) {
		sink->room = 2 * (sink->end + len_bytes);
		sink->queue = cli_grow(sink->queue, sink->room, 1);
	}
	memcpy(sink->queue + sink->end, from, len_bytes);
	sink->end += len_bytes;
}

/* Up to the end of a line, where one is near: others may write to the same place. */
static size_t sink_piece(const struct run_sink *sink)
{
	size_t most = sink->end - sink->begin;
	const char *from = sink->queue + sink->begin, *last;

	if (most > PIPE_BUF)
		most = PIPE_BUF;
	last = memrchr(from, '\n', most);
	return last ? (size_t)(last - from) + 1 : most;
}

int run_sink_flush(struct run_sink *sink)
{
	while (sink->fd >= 0 && sink->begin < sink->end) {
		struct pollfd polled = { .fd = sink->fd, .events = POLLOUT };
		ssize_t written;

		if (poll(&polled, 1, 0) <= 0)
			return 0;
		written = write(sink->fd, sink->queue + sink->begin, sink_piece(sink));
		if (written < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (written < 0) {
			int code = errno;

			sink->fd = -1;
			sink->begin = sink->end = 0;
			return -code;
		}
		sink->begin += (size_t)written;
	}
	return 0;
}

void run_say(struct run *run, const char *fmt, ...)
{
	char line[1024];
	va_list args;
	int length;

	va_start(args, fmt);
	length = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (length < 0)
		return;
	sink_add(&run->sinks[1], "ramps run: ", strlen("ramps run: "));
	sink_add(&run->sinks[1], line, strlen(line));
	sink_add(&run->sinks[1], "\n", 1);
}

static int file_open(const struct run *run, const struct run_child *child, const char *ending)
{
	char path[PATH_MAX], name[RUN_NAME_BYTES];
	int fd = -1;

	snprintf(name, sizeof(name), "%s", child->name);
	for (char *at = name; *at; at++)
		if (*at == ' ')
			*at = '-';
	if (snprintf(path, sizeof(path), "%s/%s.%s", run->output_dir, name, ending) < (int)sizeof(path))
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	else
		errno = ENAMETOOLONG;
	if (fd < 0)
		cli_error("run", "%s: %s", path, strerror(errno));
	return fd;
}

static int pipe_open(struct run_output *output, struct run_sink *to, const struct run_child *child,
		     int *child_end)
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
	/* The line that says where a server serves is for those who start it by hand, and for us. */
	if (child->kind == RUN_SERVER && child->host) {
		child->out.heard = child->heard;
		if (pipe_open(&child->out, &run->sinks[0], child, &child_ends[0]))
			return -1;
	} else if (child->kind == RUN_SERVER && !run->output_dir) {
		child_ends[0] = open("/dev/null", O_WRONLY | O_CLOEXEC);
	} else if (run->output_dir) {
		child_ends[0] = file_open(run, child, "out");
		if (child_ends[0] < 0)
			return -1;
	}
	if (run->output_dir) {
		child_ends[1] = file_open(run, child, "err");
		return child_ends[1] < 0 ? -1 : 0;
	}
	if (child->kind == RUN_SERVER)
		return pipe_open(&child->err, &run->sinks[1], child, &child_ends[1]);
	if (!run->prefix)
		return 0;
	if (pipe_open(&child->out, &run->sinks[0], child, &child_ends[0]))
		return -1;
	return pipe_open(&child->err, &run->sinks[1], child, &child_ends[1]);
}

/* "... at verbs://HOST:PORT, ..." */
static void line_hear(char *heard, const char *line, size_t len_bytes)
{
	const char *at = memmem(line, len_bytes, "verbs://", 8);
	size_t length = 0;

	if (!at || *heard)
		return;
	while (at + length < line + len_bytes && !strchr(", \n", at[length]) && length < 255)
		length++;
	memcpy(heard, at, length);
	heard[length] = '\0';
}

static void line_pass(struct run_output *output, const char *line, size_t len_bytes)
{
	if (output->heard) {
		line_hear(output->heard, line, len_bytes);
		return;
	}
	sink_add(output->to, output->prefix, strlen(output->prefix));
	sink_add(output->to, line, len_bytes);
	if (!len_bytes || line[len_bytes - 1] != '\n')
		sink_add(output->to, "\n", 1);
}

/* Passes on the lines that are complete, and keeps the rest. */
static void lines_pass(struct run_output *output)
{
	uint32_t done = 0;

	while (done < output->filled) {
		char *at = output->line + done;
		char *end = memchr(at, '\n', output->filled - done);
		uint32_t length = end ? (uint32_t)(end - at) + 1 : output->filled - done;

		if (!end && length < LINE_BYTES)
			break;
		line_pass(output, at, length);
		done += length;
	}
	memmove(output->line, output->line + done, output->filled - done);
	output->filled -= done;
}

bool run_output_wanted(const struct run_output *output)
{
	return output->from >= 0 && output->to->end - output->to->begin < QUEUE_BYTES;
}

void run_output_take(struct run_output *output)
{
	ssize_t got = read(output->from, output->line + output->filled, LINE_BYTES - output->filled);

	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0) {
		run_output_close(output);
		return;
	}
	output->filled += (uint32_t)got;
	lines_pass(output);
}

/* Of a pipe that is still being written to, what fits into it and no more. */
void run_output_drain(struct run_output *output)
{
	for (int reads = 0; output->from >= 0 && reads < DRAIN_READS; reads++) {
		struct pollfd polled = { .fd = output->from, .events = POLLIN };

		if (poll(&polled, 1, 0) <= 0)
			break;
		run_output_take(output);
	}
}

void run_output_close(struct run_output *output)
{
	if (output->from < 0)
		return;
	if (output->filled)
		line_pass(output, output->line, output->filled);
	close(output->from);
	output->from = -1;
	output->filled = 0;
	free(output->line);
	free(output->prefix);
	output->line = output->prefix = NULL;
}

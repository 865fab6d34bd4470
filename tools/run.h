/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps run: servers and workers of one job as children of this process.
 *
 *   cmd_run.c      options, what is to be started, --dry-run
 *   run_loop.c     starting, watching and ending the children
 *   run_output.c   their output, line by line
 *   run_janitor.c  cleaning up, also when this process is killed
 */
#ifndef RUN_H
#define RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RUN_NAME_BYTES 64

/* What is to be written to stdout or stderr, as whoever reads it takes it. */
struct run_sink {
	int fd; /* -1: nobody takes it, and it is thrown away */
	char *queue;
	size_t begin, end, room;
};

struct run_output {
	int from; /* pipe, or -1 */
	struct run_sink *to;
	char *prefix; /* before each line */
	char *line;   /* what has come of a line that is not complete */
	uint32_t filled;
};

enum run_kind {
	RUN_SERVER,
	RUN_WORKER,
};

struct run_child {
	enum run_kind kind;
	uint32_t number;           /* of the server, or rank */
	pid_t pid;                 /* 0: not running */
	char name[RUN_NAME_BYTES]; /* "server 0", "rank 3": for people */
	char **argv;
	char **environment; /* what is set beside our own, "NAME=value" */
	struct run_output out, err;
	char directory[256]; /* of a server's arena */
};

struct run {
	struct run_child *children; /* servers, then workers */
	uint32_t servers, workers;
	uint32_t ranks; /* of the job: more than workers where a launcher started several of us */
	bool prefix;
	const char *output_dir;
	char id[32];           /* of this process alone; all that it starts has it as RAMPS_RUN */
	char private_dir[256]; /* for the key; "" until made */
	int janitor;           /* pipe to it */
	struct run_sink sinks[2];
	sigset_t taken, before; /* signals that we take; the mask that children begin with */
	bool hangup_ignored;    /* as under nohup: it stays so */
};

/* From now on signals wait for run_loop(), so that none of them leaves something behind. */
void run_signals_block(struct run *run);

/* Starts, watches and ends all. Returns the exit status of the run. */
int run_loop(struct run *run);

/*
 * How many other ranks of the job are in it, and may still need its servers; *absent: how many have
 * never been. -1: the servers don't know.
 */
int run_others(const struct run *run, uint32_t *absent);

/* The janitor: a process that waits for this one's death. 0 or -1. */
int run_janitor_start(struct run *run);
/* A child with a process group of its own has begun, or has ended. */
void run_janitor_add(const struct run *run, pid_t pid);
void run_janitor_drop(const struct run *run, pid_t pid);
/* All is over and clean. */
void run_janitor_dismiss(struct run *run);
/* Kills what is left of the run, and removes arenas and the run's own directory. */
void run_clean(struct run *run);
void run_remove_private(struct run *run);

/* Pipes or files for the child's stdout and stderr. 0 or -1 after a line of error. */
int run_output_open(struct run *run, struct run_child *child, int child_ends[2]);
/* Whether there is room for more of it. */
bool run_output_wanted(const struct run_output *output);
/* Takes what has come, one read of it. At the end of the pipe `from` becomes -1. */
void run_output_take(struct run_output *output);
/* All that is in the pipe. */
void run_output_drain(struct run_output *output);
void run_output_close(struct run_output *output);

/* Writes as much as can be written without waiting. 0 or -errno; then the sink is closed. */
int run_sink_flush(struct run_sink *sink);
/* A line of our own, among the children's. */
void run_say(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif

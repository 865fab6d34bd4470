/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps run: servers and workers of one job as children of this process.
 *
 *   cmd_run.c      options, what is to be started, --dry-run
 *   run_loop.c     starting, watching and ending the children
 *   run_output.c   their output, line by line
 *   run_janitor.c  cleaning up when this process is killed
 */
#ifndef RUN_H
#define RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RUN_NAME_BYTES 64

struct run_output {
	int from;     /* pipe, or -1 */
	int to;       /* stdout, stderr, or a file */
	char *prefix; /* before each line; NULL: none */
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
	char private_dir[256]; /* for the key; "" until made */
	int janitor;           /* pipe to it */
};

/* Starts, watches and ends all. Returns the exit status of the run. */
int run_loop(struct run *run);

/* Waits for other ranks of the job to leave its servers, after this process's own worker has ended. */
bool run_others_left(const struct run *run);

/* The janitor: a process that waits for this one's death. 0 or -1. */
int run_janitor_start(struct run *run);
void run_janitor_tell(const struct run *run, pid_t pid);
/* All is ended and removed: it has nothing to do. */
void run_janitor_dismiss(struct run *run);
void run_remove(const struct run *run);

/* Pipes or files for the child's stdout and stderr. 0 or -1 after a line of error. */
int run_output_open(struct run *run, struct run_child *child, int child_ends[2]);
/* Passes on what has come. 0, or -1: nobody takes it. At the end of the pipe `from` becomes -1. */
int run_output_pass(struct run_output *output);
void run_output_close(struct run_output *output);

#endif

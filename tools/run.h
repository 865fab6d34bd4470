/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps run: servers and workers of one job as children of this process.
 *
 *   cmd_run.c      options, and where it runs
 *   run_plan.c     what is to be started, --dry-run
 *   run_child.c    starting a child, and signals to it
 *   run_loop.c     starting, watching and ending the children
 *   run_output.c   their output, line by line
 *   run_hosts.c    the host file, and what is sent to other hosts
 *   cmd_agent.c    the process that starts one child there
 *   run_janitor.c  cleaning up, also when this process is killed
 */
#ifndef RUN_H
#define RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define RUN_NAME_BYTES     64
#define RUN_HOST_BYTES     200
#define RUN_KEY_BYTES      32u
#define RUN_MOST_KEY_BYTES 4096u

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
	char *heard; /* in place of passing lines on: 256 bytes for the address that a server tells */
	char *line; /* what has come of a line that is not complete */
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
	char directory[256]; /* of a server's arena here */

	/* On another host the child here is rsh, whose other end runs `ramps agent`. */
	const struct run_host *host;
	char **rsh;
	int feed; /* the agent's standard input; -1: closed */
	char heard[256];
};

struct run_host {
	char name[RUN_HOST_BYTES], address[RUN_HOST_BYTES];
	uint32_t workers, servers;
};

/* Where the children run, when not here. */
struct run_hosts {
	struct run_host *list;
	uint32_t count, workers, servers;
	char **rsh;     /* words of the command */
	char **exports; /* names of variables that go along */
	uint32_t export_count;
	char ramps[256], directory[4096]; /* this program, and where it was started */
};

struct run {
	struct run_child *children; /* servers, then workers */
	uint32_t servers, workers;
	uint32_t ranks; /* of the job: more than workers where a launcher started several of us */
	bool prefix;
	const char *output_dir;
	const struct run_hosts *hosts; /* NULL: all is here */
	unsigned char key[RUN_MOST_KEY_BYTES];
	uint32_t key_bytes;    /* 0: there is none */
	char id[32];           /* of this process alone; all that it starts has it as RAMPS_RUN */
	char private_dir[256]; /* for the key; "" until made */
	int janitor;           /* pipe to it */
	struct run_sink sinks[2];
	sigset_t taken, before; /* signals that we take; the mask that children begin with */
	bool hangup_ignored;    /* as under nohup: it stays so */
};

struct run_options {
	uint64_t workers, servers;
	const char *job, *output_dir, *arena, *slots, *on_death, *lease;
	const char *hosts_file, *rsh;
	struct run_hosts hosts;
	bool no_prefix, dry_run, inside; /* inside: a launcher started this for one rank */
	uint32_t rank, ranks;
	char **program;
};

/* Fills run->children. The servers' addresses are the job's, whether this process starts them or not. */
void run_plan(const struct run_options *options, struct run *run);
void run_plan_show(const struct run *run);
void run_plan_free(struct run *run);

/* From now on signals wait for run_loop(), so that none of them leaves something behind. */
void run_signals_block(struct run *run);

/* Starts, watches and ends all. Returns the exit status of the run. */
int run_loop(struct run *run);

/*
 * How many other ranks of the job are in it, and may still need its servers; *absent: how many have
 * never been. -1: the servers don't know.
 */
int run_others(const struct run *run, uint32_t *absent);

/* Reads a host file. 0, or -1 after a line of error. */
int run_hosts_read(struct run_hosts *hosts, const char *path);
void run_hosts_free(struct run_hosts *hosts);
/* Cuts a command into words. The list is one allocation. */
char **run_words(const char *text);
/* Gives each child its host and argv, by the counts of the file. */
void run_hosts_place(struct run *run);
/* Sends to the agent what it is to start. 0 or -1. */
int run_hosts_feed(const struct run *run, struct run_child *child);
/* The servers' addresses, when all have told theirs; NULL until then. */
char *run_hosts_servers(const struct run *run);

/* The signals that are passed on, and their number. */
extern const int run_passed[];
extern const size_t run_passed_count;

/* Starts a child, in a process group of its own. 0, or -1 after a line of error. */
int run_child_start(struct run *run, struct run_child *child, const struct rlimit *files);
void run_child_signal(struct run_child *child, int number);
/* It has ended, or is to: an agent ends what it started. */
void run_child_leave(struct run_child *child);

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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server side: a server of the job "bench.TEST", so that a client of another test is refused as
 * of another job. What it holds and how many ranks there are is the client's choice. It looks at its
 * own arena, as `ramps stat` does: when all ranks have left, the test is over. When one has died the
 * server begins afresh at the same address, with nothing left of that client.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "bench.h"
#include "cli.h"
#include "stat.h"

#define LOOK_NS 50000000

enum end {
	DONE = 1,
	DIED,
	SIGNALLED,
	FAILED,
};

void bench_job_name(const struct bench_options *options, char name[RAMPS_NAME_BYTES])
{
	snprintf(name, RAMPS_NAME_BYTES, "bench.%s", options->test->name);
}

/* DONE or DIED once every rank has joined and none is there any more, or one has died; else 0. */
static int look(const char *directory, uint32_t *seen)
{
	struct stat_sample *sample = NULL;
	uint32_t left = 0, dead = 0, live = 0;
	int end = 0;

	if (stat_take(directory, &sample))
		return 0;
	for (uint32_t rank = 0; rank < sample->workers; rank++) {
		uint32_t state = core_state_of(sample->states[rank]);

		left += state == CORE_LEFT;
		dead += state == CORE_DEAD;
		live += state == CORE_LIVE;
	}
	if (live > *seen)
		*seen = live;
	if (sample->workers && left == sample->workers)
		end = DONE;
	else if (dead && !live)
		end = DIED;
	stat_free(sample);
	return end;
}

static int watch(const struct ramps_server *server, const char *directory, const sigset_t *ending,
		 bool quiet)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint32_t seen = 0, told = 0;
	int end;

	while (sigtimedwait(ending, NULL, &pause) < 0) {
		if (ramps_server_check(server))
			return FAILED;
		end = look(directory, &seen);
		if (seen > told && !quiet) {
			printf(" %u worker%s connected\n", seen, seen == 1 ? "" : "s");
			fflush(stdout);
			told = seen;
		}
		if (end)
			return end;
	}
	return SIGNALLED;
}

static int start(const struct bench_options *options, const char *address, struct ramps_server **server)
{
	struct ramps_server_options how = RAMPS_SERVER_OPTIONS_INIT;
	char job[RAMPS_NAME_BYTES];

	bench_job_name(options, job);
	how.address = address;
	how.job = job;
	how.arena_bytes = options->arena;
	how.max_workers = BENCH_MAX_WORKERS;
	how.fresh = 1;
	if (!ramps_server_start(&how, server))
		return 0;
	cli_error("bench", "%s", ramps_last_error()->text);
	return -1;
}

static void announce(const char *address)
{
	printf("\n************************************\n"
	       "* Waiting for client to connect... *\n"
	       "************************************\n"
	       " Server          : %s, pid %d\n",
	       address, (int)getpid());
	fflush(stdout);
}

/* One client. The address becomes the one listened at. */
static int serve_one(const struct bench_options *options, char address[256], const sigset_t *ending,
		     int *ready_fd)
{
	const struct api_fabric *kind;
	struct ramps_server *server;
	char directory[256];
	int end;

	if (start(options, address, &server))
		return FAILED;
	/* The arena lies where the address that was asked for says. */
	if (api_fabric_of(address, &kind) || kind->directory(address, directory, sizeof(directory))) {
		ramps_server_stop(server);
		return FAILED;
	}
	ramps_server_address(server, address, 256);
	if (*ready_fd >= 0) {
		if (write(*ready_fd, address, strlen(address)) < 0)
			cli_error("bench", "can't tell the address: %m");
		close(*ready_fd);
		*ready_fd = -1;
	}
	if (!options->self)
		announce(address);
	end = watch(server, directory, ending, options->self);
	if (end == FAILED && ramps_server_check(server))
		cli_error("bench", "%s", ramps_last_error()->text);
	ramps_server_stop(server);
	return end;
}

int bench_serve(const struct bench_options *options, int ready_fd)
{
	char address[256];
	sigset_t ending;
	int end;

	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	if (!options->self) {
		sigaddset(&ending, SIGINT);
		sigaddset(&ending, SIGHUP);
	}
	sigprocmask(SIG_BLOCK, &ending, NULL);
	signal(SIGPIPE, SIG_IGN);
	snprintf(address, sizeof(address), "%s", options->listen);
	do {
		end = serve_one(options, address, &ending, &ready_fd);
		if (end == DIED && !options->self)
			printf(" The client died; beginning afresh\n");
	} while (end == DIED && !options->self);
	if (!options->self && end == DONE)
		printf(" The client is done\n");
	return end == FAILED                      ? CLI_FAILED :
	       end == SIGNALLED && !options->self ? CLI_INTERRUPTED :
						    CLI_OK;
}

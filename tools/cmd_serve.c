/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps serve: a server with a process of its own, until a signal ends it. The signals are blocked before
 * the server's thread is made, so that this thread alone takes them.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "api/api.h"
#include "cli.h"
#include "stat.h"

#define DEFAULT_ADDRESS "shm://default"

struct serve {
	struct ramps_server_options options;
	int log_level;
};

enum {
	KEY_JOB = 256,
	KEY_ARENA,
	KEY_SLOTS,
	KEY_MAX_WORKERS,
	KEY_ON_DEATH,
	KEY_KEEP,
	KEY_FRESH,
	KEY_LEASE,
};

static const struct argp_option options[] = {
	{ "job", KEY_JOB, "NAME", 0, "name of the job (RAMPS_JOB, else default)", 0 },
	{ "arena", KEY_ARENA, "SIZE", 0, "most memory for tables (1G)", 0 },
	{ "slots", KEY_SLOTS, "SIZE", 0, "staging of each worker (4M)", 0 },
	{ "max-workers", KEY_MAX_WORKERS, "N", 0, "1 to 16384 (1024)", 0 },
	{ "on-death", KEY_ON_DEATH, "fail|continue", 0,
	  "when a worker dies: the others' waits fail (fail), or go on without it", 0 },
	{ "lease", KEY_LEASE, "SECONDS", 0,
	  "over a network: a rank that is silent for so long is dead (5)", 0 },
	{ "keep", KEY_KEEP, NULL, 0, "leave the arena at the end, for a later server", 0 },
	{ "fresh", KEY_FRESH, NULL, 0, "discard an arena that an earlier server left", 0 },
	{ "ib-dev", 'd', "DEVICE", 0, "verbs: the RDMA device (that of the address)", 1 },
	{ "ib-port", 'i', "PORT", 0, "verbs: its port", 1 },
	{ "gid-index", 'x', "INDEX", 0, "verbs: the GID, which must be that of the address", 1 },
	{ "mtu", 'm', "BYTES", 0, "verbs: path MTU, 256 to 4096 (the port's)", 1 },
	{ "sl", 'S', "LEVEL", 0, "verbs: service level, 0 to 15", 1 },
	{ "tclass", 'T', "CLASS", 0, "verbs: traffic class, 0 to 255", 1 },
	{ "qp-timeout", 'u', "N", 0, "verbs: ACK timeout, 4.096 us * 2^N (14)", 1 },
	{ "tx-depth", 't', "N", 0, "verbs: depth of the send queue", 1 },
	{ "inline_size", 'I', "BYTES", 0, "verbs: largest inline WRITE", 1 },
	{ "verbose", 'v', NULL, 0, "log more; twice: everything", 0 },
	{ "quiet", 'q', NULL, 0, "log errors only", 0 },
	{ 0 },
};

static void parse_size(struct argp_state *state, const char *option, const char *text, uint64_t *bytes)
{
	int ret = cli_parse_size(text, bytes);

	if (ret == -ERANGE)
		argp_error(state, "%s: %s is out of range", option, text);
	else if (ret)
		argp_error(state, "%s: '%s' is not a size; write it like 4096, 64K or 2GiB", option, text);
}

static uint32_t parse_on_death(struct argp_state *state, const char *text)
{
	if (!strcmp(text, "continue"))
		return RAMPS_ON_DEATH_CONTINUE;
	if (strcmp(text, "fail") != 0)
		argp_error(state, "--on-death: '%s' is neither fail nor continue", text);
	return RAMPS_ON_DEATH_FAIL;
}

static uint32_t parse_max_workers(struct argp_state *state, const char *text)
{
	uint64_t count = 0;

	if (cli_parse_count(text, 1, CORE_MAX_WORKERS, &count))
		argp_error(state, "--max-workers: '%s' is not a number from 1 to %u", text,
			   CORE_MAX_WORKERS);
	return (uint32_t)count;
}

static uint32_t parse_lease(struct argp_state *state, const char *text)
{
	uint64_t seconds = 0;

	if (cli_parse_count(text, 1, 86400, &seconds))
		argp_error(state, "--lease: '%s' is not a number of seconds from 1 to 86400", text);
	return (uint32_t)(seconds * 1000);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct serve *serve = state->input;
	struct ramps_server_options *to = &serve->options;

	switch (key) {
	case KEY_JOB:
		to->job = arg;
		return 0;
	case KEY_ARENA:
		parse_size(state, "--arena", arg, &to->arena_bytes);
		return 0;
	case KEY_SLOTS:
		parse_size(state, "--slots", arg, &to->slots_bytes);
		return 0;
	case KEY_MAX_WORKERS:
		to->max_workers = parse_max_workers(state, arg);
		return 0;
	case KEY_ON_DEATH:
		to->on_death = parse_on_death(state, arg);
		return 0;
	case KEY_LEASE:
		to->lease_ms = parse_lease(state, arg);
		return 0;
	case KEY_KEEP:
		to->keep = 1;
		return 0;
	case KEY_FRESH:
		to->fresh = 1;
		return 0;
	case 'v':
		serve->log_level = serve->log_level < RAMPS_LOG_INFO ? RAMPS_LOG_INFO : RAMPS_LOG_DEBUG;
		return 0;
	case 'q':
		serve->log_level = RAMPS_LOG_ERROR;
		return 0;
	case ARGP_KEY_ARG:
		if (to->address)
			argp_error(state, "one address, not also '%s'", arg);
		to->address = arg;
		return 0;
	default:
		return arg && cli_verbs_letter(key, arg) ? 0 : ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	options,
	parse_option,
	"[ADDRESS]",
	"Run a server until SIGTERM or SIGINT. ADDRESS is shm://NAME or verbs://HOST:PORT; "
	"without one, shm://default. SIZE is in bytes, or with K, M, G or T in units of 1024.",
	NULL,
	NULL,
	NULL,
};

static void log_line(void *ctx, int level, const char *line)
{
	static const char *const names[] = { "error: ", "warning: ", "", "debug: " };

	(void)ctx;
	cli_error("serve", "%s%s", level >= 0 && level < 4 ? names[level] : "", line);
}

static void block_signals(sigset_t *ending)
{
	struct sigaction hangup;

	sigemptyset(ending);
	sigaddset(ending, SIGTERM);
	sigaddset(ending, SIGINT);
	/* Under nohup(1) it stays ignored. */
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		sigaddset(ending, SIGHUP);
	sigprocmask(SIG_BLOCK, ending, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void end_at_once(int number)
{
	(void)number;
	_exit(CLI_INTERRUPTED);
}

/* From now on a signal does not wait for the server to end. */
static void unblock_signals(const sigset_t *ending)
{
	struct sigaction action = { .sa_handler = end_at_once };

	for (int number = 1; number < SIGRTMIN; number++)
		if (sigismember(ending, number) == 1)
			sigaction(number, &action, NULL);
	sigprocmask(SIG_UNBLOCK, ending, NULL);
}

/* Until a signal comes, or the server can't go on. */
static int wait_for_end(const sigset_t *ending, const struct ramps_server *server)
{
	const struct timespec second = { .tv_sec = 1 };

	while (sigtimedwait(ending, NULL, &second) < 0)
		if (ramps_server_check(server))
			return CLI_FAILED;
	return CLI_OK;
}

static uint32_t count_tables(const struct stat_sample *sample)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < sample->count; i++)
		n += sample->objects[i].entry.kind == CORE_TABLE;
	return n;
}

/*
 * The sizes are the arena's: they are rounded, and one that was there keeps its own. Its directory is
 * named by the address that was asked for, whose port may have been chosen since.
 */
static void announce(const char *asked, const char *address)
{
	char directory[256], arena[CLI_TEXT_BYTES], slots[CLI_TEXT_BYTES];
	const struct api_fabric *kind;
	struct stat_sample *sample = NULL;

	if (api_fabric_of(asked, &kind) || kind->directory(asked, directory, sizeof(directory)) ||
	    stat_take(directory, &sample)) {
		printf("ramps: serving at %s, pid %d\n", address, (int)getpid());
	} else {
		const struct core_header *header = &sample->header;
		uint32_t tables = count_tables(sample);

		printf("ramps: serving job %s at %s, arena %s, slots %s a worker, pid %d",
		       header->job, address, cli_text_size(arena, header->arena_bytes),
		       cli_text_size(slots, (uint64_t)header->cells * CORE_CHUNK_BYTES), (int)getpid());
		if (header->lives > 1)
			printf(", resumed %u table%s", tables, tables == 1 ? "" : "s");
		putchar('\n');
	}
	stat_free(sample);
	if (fflush(stdout))
		cli_error("serve", "can't write to stdout, serving all the same: %m");
}

int cmd_serve(int argc, char **argv)
{
	struct serve serve = {
		.options = RAMPS_SERVER_OPTIONS_INIT,
		.log_level = RAMPS_LOG_WARNING,
	};
	struct ramps_server *server;
	char address[256] = "";
	sigset_t ending;
	int ret, status;

	if (argp_parse(&parser, argc, argv, 0, NULL, &serve))
		return CLI_USAGE;
	if (!serve.options.address)
		serve.options.address = DEFAULT_ADDRESS;
	if (strncmp(serve.options.address, "shm://", 6) != 0 &&
	    strncmp(serve.options.address, "verbs://", 8) != 0) {
		cli_error("serve", "'%s' is no address to serve at: use shm://NAME or verbs://HOST:PORT",
			  serve.options.address);
		return CLI_USAGE;
	}
	block_signals(&ending);
	ramps_set_log(log_line, NULL, serve.log_level);
	ret = ramps_server_start(&serve.options, &server);
	if (ret) {
		cli_error("serve", "%s", ramps_last_error()->text);
		return ret == -EINVAL ? CLI_USAGE : CLI_FAILED;
	}
	ramps_server_address(server, address, sizeof(address));
	announce(serve.options.address, address);
	status = wait_for_end(&ending, server);
	unblock_signals(&ending);
	ramps_server_stop(server);
	return status;
}

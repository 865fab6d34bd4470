/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps stat: looks at the arenas of servers, living or dead, without asking them. Two samples a moment
 * apart make the rates; with --watch each sample is compared with the one before.
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "api/api.h"
#include "base/clock.h"
#include "cli.h"
#include "core/layout.h"
#include "stat.h"

#define FIRST_WAIT_S    0.1
#define DEFAULT_WATCH_S 1.0

#define TO_SCREEN   "\033[?1049h\033[?7l" /* the other screen, long lines cut */
#define FROM_SCREEN "\033[?7h\033[?1049l"
#define REDRAW      "\033[H\033[2J"

struct target {
	char *address;
	char directory[256];
	struct stat_sample *before, *now;
	char error[512]; /* why there is no `now` */
};

struct job {
	const char *addresses;
	bool watch, seconds_follow, json, all;
	double watch_s;
	uint64_t count; /* samples to show; 0: without end */
	struct target *targets;
	uint32_t target_count;
	bool screen;
};

enum {
	KEY_COUNT = 256,
	KEY_JSON,
	KEY_ALL,
};

static const struct argp_option options[] = {
	{ "watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "go on showing, every SECONDS (1)", 0 },
	{ "count", KEY_COUNT, "N", 0, "stop after N times; implies --watch", 0 },
	{ "json", KEY_JSON, NULL, 0, "one JSON object; with --watch one a line", 0 },
	{ "all", KEY_ALL, NULL, 0, "all workers, clocks and tables, however many", 0 },
	{ 0 },
};

static void parse_seconds(struct argp_state *state, struct job *job, const char *text)
{
	if (cli_parse_seconds(text, &job->watch_s))
		argp_error(state, "--watch: '%s' is not a number of seconds from 0.001 to 86400", text);
	job->seconds_follow = false;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct job *job = state->input;

	switch (key) {
	case 'w':
		job->watch = true;
		job->seconds_follow = !arg;
		if (arg)
			parse_seconds(state, job, arg);
		return 0;
	case KEY_COUNT:
		job->watch = true;
		if (cli_parse_count(arg, 1, UINT64_MAX, &job->count))
			argp_error(state, "--count: '%s' is not a number from 1 on", arg);
		return 0;
	case KEY_JSON:
		job->json = true;
		return 0;
	case KEY_ALL:
		job->all = true;
		return 0;
	case ARGP_KEY_ARG:
		/* "--watch 2": no address looks like a number. */
		if (job->seconds_follow && strspn(arg, "0123456789.") == strlen(arg))
			parse_seconds(state, job, arg);
		else if (job->addresses)
			argp_error(state, "put commas between several addresses, no blanks: '%s'", arg);
		else
			job->addresses = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	options,
	parse_option,
	"[ADDRESS[,ADDRESS...]]",
	"Show what servers hold and what their workers do, from their memory and without asking "
	"them: dead servers too. ADDRESS is shm://NAME, or verbs://HOST:PORT of a server on this machine; without one, RAMPS_SERVERS or "
	"shm://default.",
	NULL,
	NULL,
	NULL,
};

static int find_targets(struct job *job)
{
	char *list = strdup(job->addresses), *rest = list, *address;

	if (!list)
		cli_no_memory();
	while ((address = strsep(&rest, ","))) {
		const struct api_fabric *kind;
		struct target *target;
		int ret;

		job->targets = cli_grow(job->targets, job->target_count + 1, sizeof(*target));
		target = &job->targets[job->target_count];
		memset(target, 0, sizeof(*target));
		ret = api_fabric_of(address, &kind);
		if (!ret)
			ret = kind->directory(address, target->directory, sizeof(target->directory));
		if (ret) {
			cli_error("stat",
				  "'%s' is no address of a server here: use shm://NAME or verbs://HOST:PORT",
				  address);
			free(list);
			return CLI_USAGE;
		}
		target->address = strdup(address);
		if (!target->address)
			cli_no_memory();
		job->target_count++;
	}
	free(list);
	return CLI_OK;
}

static void free_targets(struct job *job)
{
	for (uint32_t i = 0; i < job->target_count; i++) {
		stat_free(job->targets[i].before);
		stat_free(job->targets[i].now);
		free(job->targets[i].address);
	}
	free(job->targets);
}

/* Returns how many servers' arenas were there. */
static uint32_t take_samples(struct job *job)
{
	uint32_t there = 0;

	for (uint32_t i = 0; i < job->target_count; i++) {
		struct target *target = &job->targets[i];
		int ret;

		stat_free(target->before);
		target->before = target->now;
		target->now = NULL;
		ret = stat_take(target->directory, &target->now);
		there += ret == 0;
		if (ret == -ENOENT)
			snprintf(target->error, sizeof(target->error),
				 "no server at %s (%s): start one by 'ramps serve %s'",
				 target->address, target->directory, target->address);
		else if (ret)
			snprintf(target->error, sizeof(target->error), "%s: %s", target->address,
				 ramps_last_error()->text);
	}
	return there;
}

static void render_json(const struct job *job, FILE *out)
{
	json_t *sample = json_object(), *servers = json_array();
	struct timespec now;
	int ret = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	for (uint32_t i = 0; i < job->target_count; i++) {
		const struct target *target = &job->targets[i];

		ret |= json_array_append_new(
			servers, target->now ? stat_json(target->address, target->before, target->now) :
					       json_pack("{s:s, s:s}", "address", target->address,
							 "error", target->error));
	}
	ret |= json_object_set_new(sample, "time_ms",
				   json_integer(now.tv_sec * 1000ll + now.tv_nsec / 1000000));
	ret |= json_object_set_new(sample, "servers", servers);
	ret |= json_dumpf(sample, out,
			  JSON_REAL_PRECISION(7) | (job->watch ? JSON_COMPACT : JSON_INDENT(2)));
	if (ret)
		cli_no_memory();
	json_decref(sample);
	fputc('\n', out);
}

static void render_text(const struct job *job, FILE *out)
{
	const char *gap = "";

	for (uint32_t i = 0; i < job->target_count; i++) {
		const struct target *target = &job->targets[i];

		if (target->now) {
			fputs(gap, out);
			stat_print(out, target->address, target->before, target->now, job->all);
		} else if (job->watch) {
			fprintf(out, "%s%s\n", gap, target->error);
		} else {
			continue;
		}
		gap = "\n";
	}
}

/* What fits on the screen: its other lines would scroll the first away. */
static size_t fitting(const char *text, size_t length)
{
	struct winsize window;
	unsigned int lines = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) || window.ws_row < 2)
		return length;
	for (size_t i = 0; i < length; i++)
		if (text[i] == '\n' && ++lines == window.ws_row - 1u)
			return i;
	return length;
}

/* 0, or -errno of stdout. */
static int show(const struct job *job, bool first)
{
	char *text;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	if (!out)
		cli_no_memory();
	if (job->json)
		render_json(job, out);
	else
		render_text(job, out);
	if (fclose(out))
		cli_no_memory();
	errno = 0;
	if (job->screen) {
		fputs(REDRAW, stdout);
		length = fitting(text, length);
	} else if (!first && !job->json) {
		fputc('\n', stdout);
	}
	fwrite(text, 1, length, stdout);
	free(text);
	return fflush(stdout) || ferror(stdout) ? -(errno ? errno : EIO) : 0;
}

static void block_signals(sigset_t *ending)
{
	sigemptyset(ending);
	sigaddset(ending, SIGINT);
	sigaddset(ending, SIGTERM);
	sigaddset(ending, SIGHUP);
	sigprocmask(SIG_BLOCK, ending, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Whether a signal asks to end, within this time. */
static bool ended(const sigset_t *ending, double seconds)
{
	struct timespec timeout = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};

	return sigtimedwait(ending, NULL, &timeout) > 0;
}

static int look(struct job *job, const sigset_t *ending)
{
	bool stopped = false;
	int ret = 0;

	if (take_samples(job) && ended(ending, job->watch_s < FIRST_WAIT_S ? job->watch_s : FIRST_WAIT_S))
		return CLI_INTERRUPTED;
	if (job->screen)
		fputs(TO_SCREEN, stdout);
	for (uint64_t n = 1; !ret && !stopped; n++) {
		take_samples(job);
		ret = show(job, n == 1);
		stopped = n == job->count || ended(ending, job->watch_s);
	}
	if (job->screen) {
		fputs(FROM_SCREEN, stdout);
		job->screen = false;
		if (!ret)
			ret = show(job, true); /* the last one stays to be read */
	}
	if (ret && ret != -EPIPE) { /* whoever closed a pipe has seen enough */
		cli_error("stat", "can't write to stdout: %s", strerrordesc_np(-ret));
		return CLI_FAILED;
	}
	return CLI_OK;
}

int cmd_stat(int argc, char **argv)
{
	struct job job = { .watch_s = DEFAULT_WATCH_S };
	sigset_t ending;
	int status;

	if (argp_parse(&parser, argc, argv, 0, NULL, &job))
		return CLI_USAGE;
	if (!job.addresses || !*job.addresses)
		job.addresses = getenv("RAMPS_SERVERS");
	if (!job.addresses || !*job.addresses)
		job.addresses = "shm://default";
	if (!job.watch)
		job.count = 1;
	job.screen = job.watch && !job.json && isatty(STDOUT_FILENO);
	block_signals(&ending);
	status = find_targets(&job);
	if (status == CLI_OK)
		status = look(&job, &ending);
	for (uint32_t i = 0; i < job.target_count && status < CLI_USAGE && !job.watch; i++) {
		if (job.targets[i].now)
			continue;
		cli_error("stat", "%s", job.targets[i].error);
		status = CLI_FAILED;
	}
	free_targets(&job);
	return status;
}

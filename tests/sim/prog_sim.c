/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs seeds of the simulated cluster. See docs/simulator.md. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum key {
	KEY_SEEDS = 's',
	KEY_FIRST = 'f',
	KEY_JOBS = 'j',
	KEY_SEED = 'x',
	KEY_TRACE = 't',
	KEY_QUIET = 'q',
	KEY_FAULTS = 256,
	KEY_WITHOUT_FAULTS,
	KEY_WITHOUT_TABLES,
	KEY_WITHOUT,
	KEY_WORKERS,
	KEY_SERVERS,
	KEY_ROUNDS,
	KEY_OPS,
	KEY_PROFILE,
	KEY_NO_SHRINK,
	KEY_SECONDS,
	KEY_FAILURES,
};

static const struct argp_option arguments[] = {
	{ "seeds", KEY_SEEDS, "N", 0, "Run N seeds (1000)", 0 },
	{ "first", KEY_FIRST, "SEED", 0, "Begin with this one (1)", 0 },
	{ "jobs", KEY_JOBS, "N", 0, "In so many processes (1)", 0 },
	{ "quiet", KEY_QUIET, NULL, 0, "No tables, only what they come to", 0 },
	{ "profile", KEY_PROFILE, "speed", 0, "All seeds of one size: 8 workers, 1,000 calls each", 0 },
	{ "failures", KEY_FAILURES, "N", 0, "End a job after N failures (5)", 0 },
	{ "no-shrink", KEY_NO_SHRINK, NULL, 0, "Don't make the first failing seed small", 0 },
	{ "seconds", KEY_SECONDS, "N", 0, "A seed that takes longer in real time has failed (60)", 0 },
	{ NULL, 0, NULL, 0, "One seed:", 1 },
	{ "seed", KEY_SEED, "SEED", 0, "Run this one, and say what it is", 1 },
	{ "trace", KEY_TRACE, NULL, 0, "With all that happens", 1 },
	{ NULL, 0, NULL, 0, "Less of what a seed decides:", 2 },
	{ "faults", KEY_FAULTS, "LIST", 0, "These kinds only, or \"none\"", 2 },
	{ "without-faults", KEY_WITHOUT_FAULTS, "LIST", 0, "Not these kinds", 2 },
	{ "without-tables", KEY_WITHOUT_TABLES, "LIST", 0,
	  "Not these kinds: int, fixed, part, whole, step", 2 },
	{ "without", KEY_WITHOUT, "LIST", 0,
	  "Not these: barrier, group, clock, leave, submit, posted, timeout, interrupt", 2 },
	{ "workers", KEY_WORKERS, "N", 0, "At most so many", 2 },
	{ "servers", KEY_SERVERS, "N", 0, "At most so many", 2 },
	{ "rounds", KEY_ROUNDS, "N", 0, "At most so many", 2 },
	{ "ops", KEY_OPS, "N", 0, "At most so many of a worker in a round", 2 },
	{ 0 },
};

static uint64_t number(struct argp_state *state, const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (!*text || *end)
		argp_error(state, "%s is no number", text);
	return value;
}

/* Bits of the names in a list. */
static uint32_t bits_of(struct argp_state *state, const char *list, const char *const *names, uint32_t n)
{
	uint32_t bits = 0;

	while (*list) {
		size_t len = strcspn(list, ",");
		uint32_t i = 0;

		while (i < n && (strncmp(names[i], list, len) != 0 || names[i][len]))
			i++;
		if (i == n)
			argp_error(state, "there is no %.*s", (int)len, list);
		bits |= 1u << i;
		list += len + (list[len] == ',');
	}
	return bits;
}

static error_t parse_less(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	const uint32_t all = (1u << SIM_FAULTS) - 1;

	switch (key) {
	case KEY_FAULTS:
		o->off |= strcmp(arg, "none") == 0 ?
				  all :
				  all & ~bits_of(state, arg, sim_fault_names, SIM_FAULTS);
		return 0;
	case KEY_WITHOUT_FAULTS:
		o->off |= bits_of(state, arg, sim_fault_names, SIM_FAULTS);
		return 0;
	case KEY_WITHOUT_TABLES:
		o->tables_off |= bits_of(state, arg, table_kind_names, TABLE_KINDS);
		return 0;
	case KEY_WITHOUT:
		o->things_off |= bits_of(state, arg, thing_names, THINGS);
		return 0;
	case KEY_WORKERS:
		o->most_workers = (uint32_t)number(state, arg);
		return 0;
	case KEY_SERVERS:
		o->most_servers = (uint32_t)number(state, arg);
		return 0;
	case KEY_ROUNDS:
		o->most_rounds = (uint32_t)number(state, arg);
		return 0;
	case KEY_OPS:
		o->most_ops = (uint32_t)number(state, arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_SEEDS:
		o->seeds = number(state, arg);
		return 0;
	case KEY_FIRST:
		o->first = number(state, arg);
		return 0;
	case KEY_JOBS:
		o->jobs = (uint32_t)number(state, arg);
		if (!o->jobs || o->jobs > 256)
			argp_error(state, "1 to 256 jobs");
		return 0;
	case KEY_SEED:
		o->seed = number(state, arg);
		o->one = true;
		return 0;
	case KEY_TRACE:
		o->trace = true;
		return 0;
	case KEY_QUIET:
		o->quiet = true;
		return 0;
	case KEY_PROFILE:
		if (strcmp(arg, "speed") != 0)
			argp_error(state, "there is no profile but speed");
		o->speed = true;
		return 0;
	case KEY_NO_SHRINK:
		o->no_shrink = true;
		return 0;
	case KEY_SECONDS:
		o->seconds = (uint32_t)number(state, arg);
		return 0;
	case KEY_FAILURES:
		o->most_failures = (uint32_t)number(state, arg);
		return 0;
	default:
		return parse_less(key, arg, state);
	}
}

static int run_one(const struct options *options, struct totals *totals)
{
	struct verdict verdict;
	struct plan plan;

	plan_make(&plan, options->seed, options);
	printf("seed %llu\n", (unsigned long long)options->seed);
	plan_print(&plan, stdout);
	world_run(options->seed, options, totals, &verdict);
	printf("  %-10s %llu calls, %llu operations, %.3f ms; hash %016llx\n", "length",
	       (unsigned long long)verdict.calls, (unsigned long long)totals->operations,
	       (double)verdict.now_ns / 1e6, (unsigned long long)verdict.hash);
	if (!verdict.failed) {
		printf("all hold\n");
		return 0;
	}
	printf("FAILED: %s\n  %s\n", verdict.invariant, verdict.text);
	return 1;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { arguments,
					  parse,
					  NULL,
					  "Runs a job of workers and servers in a simulated cluster, with "
					  "faults, by seeds.",
					  NULL,
					  NULL,
					  NULL };
	static struct totals totals;
	struct options options = { .first = 1, .seeds = 1000, .jobs = 1 };

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	return options.one ? run_one(&options, &totals) : jobs_run(&options, &totals);
}

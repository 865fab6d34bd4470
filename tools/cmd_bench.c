/* SPDX-License-Identifier: BSD-2-Clause */
/* ramps bench: options. Letters mean what they mean to perftest; see bench_letters.c. */
#include <argp.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "bench.h"
#include "cli.h"

#define DEFAULT_LISTEN   "shm://bench"
#define DEFAULT_ARENA    (128ull << 20)
#define DEFAULT_MARGIN   2.0
#define DEFAULT_INFINITE 5.0
#define DEFAULT_JSON     "perftest_out.json" /* perftest's */
#define MOST_ITERS       10000000000ull

enum {
	KEY_SELF = 256,
	KEY_LISTEN,
	KEY_ARENA,
	KEY_GBITS,
	KEY_OUTPUT,
	KEY_JSON,
	KEY_JSON_FILE,
	KEY_INFINITE,
	KEY_WARM_UP,
	KEY_PIN,
	KEY_PLOT,
	KEY_LIMIT_BW,
	KEY_PATTERN,
	KEY_SPAN,
	KEY_LEVEL,
	KEY_STALENESS,
	KEY_BATCH,
};

static const struct argp_option options[] = {
	{ 0, 0, 0, 0, "Roles", 1 },
	{ "self", KEY_SELF, NULL, 0, "be both sides", 1 },
	{ "listen", KEY_LISTEN, "ADDRESS", 0,
	  "of the server side (" DEFAULT_LISTEN ", with -d or -p verbs://)", 1 },
	{ "arena", KEY_ARENA, "SIZE", 0,
	  "memory of the server side (128M, with --self at least twice the span)", 1 },
	{ "workers", 'w', "N", 0, "processes of the client (1; 2 where they wait for each other)", 1 },
	{ "pin_cores", KEY_PIN, "N,N...", 0,
	  "bind to cores: with --self the server side first, then the workers", 1 },
	{ 0, 0, 0, 0, "What to measure", 2 },
	{ "size", 's', "BYTES", 0, "of a pull or push (8 for latency, 65536 for bandwidth)", 2 },
	{ "all", 'a', NULL, 0, "sizes from 4 to 2^23", 2 },
	{ "iters", 'n', "N", 0,
	  "operations of each connection (1000; over shared memory a quarter of a second's)", 2 },
	{ "duration", 'D', "SECONDS", 0, "measure for a time", 2 },
	{ "margin", 'f', "SECONDS", 0, "of -D that does not count, at both ends (2)", 2 },
	{ "run_infinitely", KEY_INFINITE, NULL, 0, "until a signal, a row every -D seconds (5)", 2 },
	{ "tx-depth", 't', "N", 0, "operations under way (128; over shared memory 1)", 2 },
	{ "qp", 'q', "N", 0, "connections (1)", 2 },
	{ "cq-mod", 'Q', "N", 0, "operations to wait for together (100, above 8 KiB 1)", 2 },
	{ "post_list", 'l', "N", 0, "fetch-adds in one list (1)", 2 },
	{ "pattern", KEY_PATTERN, "one|stride8|stride64|random", 0, "words to add to (one)", 2 },
	{ "span", KEY_SPAN, "SIZE", 0, "memory that they are spread over (1M; random: 64M)", 2 },
	{ "level", KEY_LEVEL, "landed|applied", 0, "what a push waits for (landed)", 2 },
	{ "staleness", KEY_STALENESS, "N", 0, "of clock_lat (0)", 2 },
	{ "perform_warm_up", KEY_WARM_UP, NULL, 0, "100 operations more before measuring", 2 },
	{ "batch", KEY_BATCH, "N", 0,
	  "operations between two time stamps (as many as their cost asks for)", 2 },
	{ 0, 0, 0, 0, "What to say", 3 },
	{ "report-cycles", 'C', NULL, 0, "in cycles", 3 },
	{ "report-histogram", 'H', NULL, 0, "print all samples, sorted", 3 },
	{ "report-unsorted", 'U', NULL, 0, "print all samples as they came", 3 },
	{ "noPeak", 'N', NULL, 0, "no peak bandwidth", 3 },
	{ "report_gbits", KEY_GBITS, NULL, 0, "in Gb/s, not MiB/s", 3 },
	{ "output", KEY_OUTPUT, "bandwidth|message_rate|latency", 0, "print this figure alone", 3 },
	{ "out_json", KEY_JSON, NULL, 0, "write " DEFAULT_JSON, 3 },
	{ "out_json_file", KEY_JSON_FILE, "FILE", 0, "its name", 3 },
	{ "plot", KEY_PLOT, "FILE.svg", 0, "draw the distribution, or with -a the curve over sizes", 3 },
	{ "limit_bw", KEY_LIMIT_BW, "X", 0, "fail below this bandwidth", 3 },
	{ "limit_msgrate", 'y', "X", 0, "fail below this many million operations a second", 3 },
	{ 0, 0, 0, 0, "Over verbs", 4 },
	{ "ib-dev", 'd', "DEVICE", 0, "the RDMA device", 4 },
	{ "ib-port", 'i', "N", 0, "its port", 4 },
	{ "gid-index", 'x', "N", 0, "of the port", 4 },
	{ "port", 'p', "PORT", 0, "to listen at or connect to", 4 },
	{ "mtu", 'm', "BYTES", 0, "path MTU", 4 },
	{ "sl", 'S', "N", 0, "service level", 4 },
	{ "tos", 'T', "N", 0, "type of service", 4 },
	{ "qp-timeout", 'u', "N", 0, "4 us * 2^N until something is sent again", 4 },
	{ "inline_size", 'I', "BYTES", 0, "largest inline message", 4 },
	{ "connection", 'c', "RC", 0, "reliable connections, as always", 4 },
	{ "rdma_cm", 'R', NULL, 0, "connect by rdma_cm, as always", 4 },
	{ "CPU-freq", 'F', NULL, 0, "taken for perftest's sake: there is no warning to suppress", 5 },
	{ "help", 'h', NULL, OPTION_HIDDEN, NULL, 6 },
	/* Refused, with a reason. */
	{ "bidirectional", 'b', NULL, OPTION_HIDDEN, NULL, 6 },
	{ "events", 'e', NULL, OPTION_HIDDEN, NULL, 6 },
	{ "vector", 'X', "N", OPTION_HIDDEN, NULL, 6 },
	{ "outs", 'o', "N", OPTION_HIDDEN, NULL, 6 },
	{ "hop_limit", 'L', "N", OPTION_HIDDEN, NULL, 6 },
	{ "dualport", 'O', NULL, OPTION_HIDDEN, NULL, 6 },
	{ "rx-depth", 'r', "N", OPTION_HIDDEN, NULL, 6 },
	{ "com_rdma_cm", 'z', NULL, OPTION_HIDDEN, NULL, 6 },
	{ "report-counters", 'W', "NAMES", OPTION_HIDDEN, NULL, 6 },
	{ 0 },
};

/* In the order of bench_options.verbs_values; perftest's letters for them follow. */
const char *const bench_verbs_names[] = { "device", "port",    "gid",    "mtu", "sl",
					  "tc",     "timeout", "inline", NULL };
static const char verbs_letters[] = "dixmSTuI";

static uint64_t number(struct argp_state *state, int letter, const char *text, uint64_t most)
{
	char name[3] = { '-', (char)letter, '\0' };

	return cli_argp_count(state, name, text, most);
}

static double seconds(struct argp_state *state, int letter, const char *text)
{
	double value = 0;

	if (letter == 'f' && !strcmp(text, "0"))
		return 0;
	if (cli_parse_seconds(text, &value))
		argp_error(state, "-%c: '%s' is not a number of seconds", letter, text);
	return value;
}

static uint32_t word(struct argp_state *state, const char *option, const char *text,
		     const char *const *words)
{
	for (uint32_t i = 0; words[i]; i++)
		if (!strcmp(words[i], text))
			return i;
	argp_error(state, "%s: '%s' is none of %s, %s%s%s%s%s", option, text, words[0], words[1],
		   words[2] ? ", " : "", words[2] ? words[2] : "", words[2] && words[3] ? ", " : "",
		   words[2] && words[3] ? words[3] : "");
	return 0;
}

static double limit(struct argp_state *state, const char *option, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0))
		argp_error(state, "%s: '%s' is not a number", option, text);
	return value;
}

static void check_cores(struct argp_state *state, const char *text)
{
	char *copy = strdup(text), *rest = copy, *part;
	cpu_set_t allowed;
	uint64_t core = 0;

	if (!copy)
		cli_no_memory();
	CPU_ZERO(&allowed);
	sched_getaffinity(0, sizeof(allowed), &allowed);
	while ((part = strsep(&rest, ",")) != NULL)
		if (cli_parse_count(part, 0, CPU_SETSIZE - 1, &core))
			argp_error(state, "--pin_cores: '%s' is not a list like 0,1", text);
		else if (!CPU_ISSET(core, &allowed))
			argp_error(state, "--pin_cores: this process may not run on core %s", part);
	free(copy);
}

static error_t parse_word(int key, char *arg, struct argp_state *state)
{
	static const char *const patterns[] = { "one", "stride8", "stride64", "random", NULL };
	static const char *const outputs[] = { "bandwidth", "message_rate", "latency", NULL };
	static const char *const levels[] = { "landed", "applied", NULL };
	struct bench_options *to = state->input;

	switch (key) {
	case KEY_OUTPUT:
		to->output = BENCH_BANDWIDTH + word(state, "--output", arg, outputs);
		return 0;
	case KEY_PIN:
		check_cores(state, arg);
		to->cores = arg;
		return 0;
	case KEY_LIMIT_BW:
		to->limit_bw = limit(state, "--limit_bw", arg);
		return 0;
	case KEY_PATTERN:
		to->given['P'] = 1;
		to->pattern = word(state, "--pattern", arg, patterns);
		return 0;
	case KEY_SPAN:
		if (cli_parse_size(arg, &to->span))
			argp_error(state, "--span: '%s' is not a size; write it like 4096 or 64M", arg);
		return 0;
	case KEY_LEVEL:
		to->level = word(state, "--level", arg, levels) ? RAMPS_APPLIED : RAMPS_LANDED;
		return 0;
	case KEY_STALENESS:
		to->staleness = cli_argp_count(state, "--staleness", arg, 1000000);
		return 0;
	case KEY_BATCH:
		to->given['B'] = 1;
		to->batch = cli_argp_count(state, "--batch", arg, 1000000);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_flag(int key, char *arg, struct argp_state *state)
{
	struct bench_options *to = state->input;

	switch (key) {
	case KEY_SELF:
		to->self = true;
		return 0;
	case KEY_LISTEN:
		to->listen = arg;
		return 0;
	case KEY_ARENA:
		if (cli_parse_size(arg, &to->arena))
			argp_error(state, "--arena: '%s' is not a size; write it like 4096 or 64M", arg);
		return 0;
	case KEY_GBITS:
		to->gbits = true;
		return 0;
	case KEY_JSON:
		to->json = true;
		return 0;
	case KEY_JSON_FILE:
		to->json_file = arg;
		return 0;
	case KEY_INFINITE:
		to->infinite = true;
		return 0;
	case KEY_WARM_UP:
		to->warm_up = true;
		return 0;
	case KEY_PLOT:
		to->plot = arg;
		return 0;
	default:
		return parse_word(key, arg, state);
	}
}

static error_t parse_letter(int key, char *arg, struct argp_state *state)
{
	struct bench_options *to = state->input;
	const char *verbs = strchr(verbs_letters, key);

	to->given[key] = 1;
	if (verbs)
		to->verbs_values[verbs - verbs_letters] = arg;
	switch (key) {
	case 'w':
		to->workers = (uint32_t)number(state, key, arg, BENCH_MAX_WORKERS);
		break;
	case 's':
		to->bytes = number(state, key, arg, 1u << 31);
		break;
	case 'a':
		to->all = true;
		break;
	case 'n':
		to->iters = number(state, key, arg, MOST_ITERS);
		break;
	case 'D':
		to->duration = seconds(state, key, arg);
		break;
	case 'f':
		to->margin = seconds(state, key, arg);
		break;
	case 't':
		to->depth = number(state, key, arg, 1u << 20);
		break;
	case 'q':
		to->qps = number(state, key, arg, BENCH_MAX_QPS);
		break;
	case 'Q':
		to->cq_mod = number(state, key, arg, 1u << 20);
		break;
	case 'l':
		to->list = number(state, key, arg, 65536);
		break;
	case 'C':
		to->cycles = true;
		break;
	case 'H':
		to->histogram = true;
		break;
	case 'U':
		to->unsorted = true;
		break;
	case 'N':
		to->no_peak = true;
		break;
	case 'y':
		to->limit_rate = limit(state, "-y", arg);
		break;
	case 'p':
		if (strcmp(arg, "0") != 0) /* which lets a server side choose */
			number(state, key, arg, 65535);
		to->port = arg;
		break;
	case 'c':
		to->connection = arg;
		break;
	case 'h':
		argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
		break;
	default:
		bench_refuse_letter(state, key);
	}
	return 0;
}

static void take_argument(struct argp_state *state, const char *arg)
{
	struct bench_options *to = state->input;

	if (to->server)
		argp_error(state, "one server, not also '%s'", arg);
	else if (to->test)
		to->server = arg;
	else if (!(to->test = bench_test_of(arg)))
		argp_error(state, "there is no test '%s'; 'ramps bench --help' lists them", arg);
}

/* A host name means verbs there, as it does to perftest. */
static const char *address_of(struct argp_state *state, struct bench_options *to, const char *host)
{
	int length;

	if (strstr(host, "://"))
		return host;
	length = snprintf(to->address, sizeof(to->address), "verbs://%s%s%s", host,
			  to->port ? ":" : "", to->port ? to->port : "");
	if (length >= (int)sizeof(to->address))
		argp_error(state, "'%.32s...' is too long for a host", host);
	return to->address;
}

/* A name that no other process can have now. */
static const char *own_address(struct bench_options *to)
{
	snprintf(to->address, sizeof(to->address), "shm://bench-self-%d", (int)getpid());
	return to->address;
}

static void choose_address(struct argp_state *state, struct bench_options *to)
{
	bool verbs_wanted = to->given['d'] || to->port;
	const struct api_fabric *kind;
	const char *address;

	if (to->server && (to->self || to->listen))
		argp_error(state, "'%s' and %s: be the client of a server, or the server side",
			   to->server, to->self ? "--self" : "--listen");
	if (!to->server && !to->listen && to->self && verbs_wanted)
		argp_error(state, "--self over verbs: say at which of this node's addresses, like "
				  "--listen verbs://192.168.1.1:0");
	if (to->server)
		address = to->server = address_of(state, to, to->server);
	else if (to->listen)
		address = to->listen = address_of(state, to, to->listen);
	else if (verbs_wanted)
		address = to->listen = address_of(state, to, "0.0.0.0");
	else
		address = to->listen = to->self ? own_address(to) : DEFAULT_LISTEN;
	to->verbs = !strncmp(address, "verbs://", 8);
	if (base_end("ramps bench", api_fabric_of(address, &kind)))
		argp_error(state, "%s", ramps_last_error()->text);
}

/* What perftest's letters set goes into RAMPS_VERBS, before what is there. */
static void set_verbs(const struct bench_options *to)
{
	const char *before = getenv("RAMPS_VERBS");
	char *text;
	size_t length;
	FILE *out;

	if (!to->verbs)
		return;
	out = open_memstream(&text, &length);
	if (!out)
		cli_no_memory();
	if (before)
		fputs(before, out);
	for (int i = 0; bench_verbs_names[i]; i++)
		if (to->verbs_values[i])
			fprintf(out, "%s%s=%s", ftell(out) > 0 ? "," : "", bench_verbs_names[i],
				to->verbs_values[i]);
	if (fclose(out) || (*text && setenv("RAMPS_VERBS", text, 1)))
		cli_no_memory();
	free(text);
}

static void finish(struct argp_state *state)
{
	struct bench_options *to = state->input;

	if (!to->test) {
		argp_error(state, "which test? 'ramps bench --help' lists them");
		return;
	}
	choose_address(state, to);
	if (!to->bytes)
		to->bytes = to->test->default_bytes;
	if (!to->workers)
		to->workers = to->test->default_workers ? to->test->default_workers : 1;
	if (!to->qps)
		to->qps = 1;
	if (!to->arena)
		to->arena = 2 * to->span > DEFAULT_ARENA ? 2 * to->span : DEFAULT_ARENA;
	if (to->infinite && !to->given['D'])
		to->duration = DEFAULT_INFINITE;
	if (to->connection && strcmp(to->connection, "RC") != 0 && to->verbs)
		argp_error(state, "-c %s: the operations need reliable connections: RC alone",
			   to->connection);
	bench_check_letters(state, to);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG) {
		take_argument(state, arg);
		return 0;
	}
	if (key == ARGP_KEY_END) {
		finish(state);
		return 0;
	}
	if (key >= KEY_SELF && key <= KEY_BATCH)
		return parse_flag(key, arg, state);
	if (key > 32 && key < 127)
		return parse_letter(key, arg, state);
	return ARGP_ERR_UNKNOWN;
}

static const struct argp parser = {
	options,
	parse_option,
	"TEST [SERVER]",
	"Measure latency and bandwidth. Without SERVER it is the server side, with one the client. TEST is "
	"pull_lat, pull_bw, push_lat, push_bw, add_lat, add_bw, barrier_lat, clock_lat or round_lat. SERVER is an "
	"address like shm://bench or verbs://host:port; a host name alone means verbs.",
	NULL,
	NULL,
	NULL,
};

int cmd_bench(int argc, char **argv)
{
	struct bench_options to = {
		.margin = DEFAULT_MARGIN,
		.json_file = DEFAULT_JSON,
	};

	if (argp_parse(&parser, argc, argv, 0, NULL, &to))
		return CLI_USAGE;
	set_verbs(&to);
	if (cli_output_check("bench", to.json ? to.json_file : NULL, true) ||
	    cli_output_check("bench", to.plot, true))
		return CLI_FAILED;
	if (to.server || to.self)
		return bench_run_client(&to);
	if (bench_pin(&to, 0)) {
		cli_error("bench", "%s", ramps_last_error()->text);
		return CLI_FAILED;
	}
	return bench_serve(&to, -1);
}

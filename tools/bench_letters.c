/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is refused of perftest's options, and why: always, over shared memory, or by the test. The
 * reasons are the product: a script that moves from perftest to here should learn what to change.
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct refusal {
	const char *letters, *reason;
};

static const struct refusal always[] = {
	{ "b", "the server side begins no operations; measure both directions with a pull and a push test at once" },
	{ "e", "how a wait sleeps is the library's choice: it spins for a moment, then sleeps by itself" },
	{ "X", "how a wait sleeps is the library's choice: it has no completion vectors" },
	{ "o", "outstanding reads and atomics are the most that both devices can; they are not set by hand" },
	{ "L", "the hop limit is the system's" },
	{ "O", "one port only; start a server side on each" },
	{ "r", "there is no receive queue to size: all operations are one-sided" },
	{ "z", "data connections are made by rdma_cm always" },
	{ "W", "read the device's counters before and after, in /sys/class/infiniband" },
};

static const struct refusal over_shm[] = {
	{ "c", "there are no queue pairs, so no connection type" },
	{ "d", "there is no device" },
	{ "i", "there is no device with ports" },
	{ "I", "there is no device to post anything inline to" },
	{ "m", "there is no MTU" },
	{ "p", "there are no ports; an address is shm://NAME" },
	{ "R", "there is no rdma_cm" },
	{ "S", "there are no service levels" },
	{ "T", "there is no type of service" },
	{ "u", "there is no timeout: nothing is sent again" },
	{ "x", "there are no GIDs" },
};

static const struct refusal of_latency[] = {
	{ "N", "a latency has no peak bandwidth" },
	{ "q", "a latency is of one operation at a time, on one connection" },
	{ "Q", "each operation is waited for" },
	{ "t", "a latency is of one operation at a time" },
	{ "y", "give a limit to a bandwidth test" },
};

static const struct refusal of_bandwidth[] = {
	{ "C", "a bandwidth is not counted in cycles" },
	{ "H", "a bandwidth has no samples of single operations; use the latency test" },
	{ "U", "a bandwidth has no samples of single operations; use the latency test" },
};

static const char *reason_in(const struct refusal *list, size_t count, int letter)
{
	for (size_t i = 0; i < count; i++)
		if (strchr(list[i].letters, letter))
			return list[i].reason;
	return NULL;
}

#define REASON(list, letter) reason_in(list, sizeof(list) / sizeof((list)[0]), letter)

void bench_refuse_letter(struct argp_state *state, int letter)
{
	const char *reason = REASON(always, letter);

	if (reason)
		argp_error(state, "-%c: %s", letter, reason);
}

static void check_letter(struct argp_state *state, const struct bench_options *options, int letter)
{
	const struct bench_test *test = options->test;
	const char *reason = NULL;

	if (!options->verbs)
		reason = REASON(over_shm, letter);
	if (reason)
		argp_error(state, "-%c: over shared memory %s", letter, reason);
	reason = test->latency ? REASON(of_latency, letter) : REASON(of_bandwidth, letter);
	if (!reason && !test->sized && (letter == 's' || letter == 'a'))
		reason = test->adds ? "a fetch-add has 8 bytes" : "no data is moved";
	if (!reason && letter == 'l' && !test->adds)
		reason = "lists are of fetch-adds; a pull or a push is one transfer of any size";
	if (reason)
		argp_error(state, "-%c: %s: %s", letter, test->name, reason);
}

static void check_together(struct argp_state *state, const struct bench_options *options)
{
	const char *given = options->given;

	if (given['D'] && given['n'])
		argp_error(state, "-n and -D: either a number of iterations or a duration");
	if (given['a'] && given['s'])
		argp_error(state, "-a and -s: either all sizes or one");
	if (given['f'] && (!given['D'] || options->infinite))
		argp_error(state, "-f: margins are of a duration, which -D gives");
	if (options->infinite && given['n'])
		argp_error(state, "--run_infinitely and -n: either without end or a number");
	if (options->infinite && given['a'])
		argp_error(state, "--run_infinitely and -a: it would never come to the second size");
	if (given['D'] && !options->infinite && options->duration <= 2 * options->margin)
		argp_error(state, "-D %g: it must be longer than both margins of %g s (-f)",
			   options->duration, options->margin);
	if (options->qps > 1 && options->test->meets)
		argp_error(state, "-q: %s: a rank has one place in it", options->test->name);
}

static void check_words(struct argp_state *state, const struct bench_options *options)
{
	const struct bench_test *test = options->test;

	if (options->infinite && test->latency)
		argp_error(state, "--run_infinitely: %s: it is for bandwidth tests", test->name);
	if (options->gbits && test->latency)
		argp_error(state, "--report_gbits: %s: it is for bandwidth tests", test->name);
	if (options->output == BENCH_LATENCY && !test->latency)
		argp_error(state, "--output=latency: %s measures a bandwidth", test->name);
	if ((options->output == BENCH_BANDWIDTH || options->output == BENCH_RATE) && test->latency)
		argp_error(state, "--output: %s measures a latency", test->name);
	if (options->output != BENCH_ALL && (options->histogram || options->unsorted))
		argp_error(state, "--output: one figure, not also the samples");
	if ((options->given['P'] || options->span) && !test->adds)
		argp_error(state, "--pattern and --span: %s adds to no words", test->name);
	if (options->span && options->pattern == BENCH_ONE)
		argp_error(state, "--span: one word has no span; give a --pattern too");
	if (options->level != RAMPS_LANDED && !test->pushes)
		argp_error(state, "--level: %s does not push, or waits by itself", test->name);
	if (options->staleness && strcmp(test->name, "clock_lat") != 0)
		argp_error(state, "--staleness: it is for clock_lat");
	if (options->given['B'] && !test->latency)
		argp_error(state, "--batch: samples are of latency tests");
	if (options->plot && !test->latency && !options->all)
		argp_error(state, "--plot: of a bandwidth only the curve over sizes: give -a too");
	if (options->workers > 1 && options->plot && options->infinite)
		argp_error(state, "--plot: a test without end has no plot");
}

/* Everything that can be seen before a connection is made. */
void bench_check_letters(struct argp_state *state, struct bench_options *options)
{
	for (int letter = 'A'; letter <= 'z'; letter++)
		if (options->given[letter])
			check_letter(state, options, letter);
	check_together(state, options);
	check_words(state, options);
	if (options->test->sized && !options->all &&
	    (options->bytes % sizeof(float) || options->bytes > BENCH_MAX_BYTES))
		argp_error(state, "-s %llu: a value has 4 bytes: a multiple of 4, up to %u",
			   (unsigned long long)options->bytes, BENCH_MAX_BYTES);
	if (options->depth / (options->list ? options->list : 1) > RAMPS_SUBMIT_MAX)
		argp_error(state, "-t: at most %d operations of a connection are under way",
			   RAMPS_SUBMIT_MAX);
	if (options->span % 64 || options->span > 1u << 30)
		argp_error(state, "--span: a multiple of 64, up to 1G");
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes a failing seed small: leaves out one thing after another, and keeps what still fails by the
 * same invariant.
 */
#include <string.h>

#include "harness.h"

struct shrinking {
	uint64_t seed;
	struct options options;
	struct verdict verdict;
	uint32_t tried, kept;
	uint64_t until_ns;
};

#define SHRINK_NS (60 * NS_PER_S)

static bool try(struct shrinking *s, const struct options *options)
{
	struct verdict verdict;

	if (base_now_ns() > s->until_ns)
		return false;
	s->tried++;
	jobs_one(s->seed, options, &verdict);
	if (!verdict.failed || strcmp(verdict.invariant, s->verdict.invariant) != 0)
		return false;
	s->kept++;
	s->options = *options;
	s->verdict = verdict;
	return true;
}

static void try_bits(struct shrinking *s, uint32_t *field, uint32_t bits)
{
	for (uint32_t i = 0; i < bits; i++) {
		struct options less = s->options;
		uint32_t *at = (uint32_t *)((char *)&less + ((char *)field - (char *)&s->options));

		if (*at >> i & 1)
			continue;
		*at |= 1u << i;
		try(s, &less);
	}
}

/* Halves a limit as long as it fails, then takes one by one. */
static void try_fewer(struct shrinking *s, uint32_t *field, uint32_t now, uint32_t least)
{
	uint32_t limit = *field && *field < now ? *field : now;

	for (uint32_t step = (limit - least + 1) / 2; limit > least && step;) {
		struct options less = s->options;
		uint32_t *at = (uint32_t *)((char *)&less + ((char *)field - (char *)&s->options));

		*at = limit - step > least ? limit - step : least;
		if (try(s, &less))
			limit = *at;
		else if (step == 1)
			break;
		step = step > 1 ? step / 2 : (limit > least);
	}
}

void shrink(uint64_t seed, const struct options *options, const struct verdict *verdict)
{
	struct shrinking s = {
		.seed = seed,
		.options = *options,
		.until_ns = base_now_ns() + SHRINK_NS,
	};
	struct plan plan;

	s.options.trace = false;
	if (!s.options.seconds || s.options.seconds > 20)
		s.options.seconds = 20;
	jobs_one(seed, &s.options, &s.verdict);
	if (!s.verdict.failed || strcmp(s.verdict.invariant, verdict->invariant) != 0) {
		printf("  it does not fail so when it is run again: %s\n",
		       s.verdict.failed ? s.verdict.text : "it passes");
		return;
	}
	if (s.verdict.hash != verdict->hash && strcmp(verdict->invariant, "crash") != 0)
		printf("  it fails again, but not in the same way: hash %016llx, was %016llx\n",
		       (unsigned long long)s.verdict.hash, (unsigned long long)verdict->hash);
	plan_make(&plan, seed, options);
	for (int round = 0; round < 2; round++) {
		try_bits(&s, &s.options.off, SIM_FAULTS);
		try_bits(&s, &s.options.tables_off, TABLE_KINDS);
		try_bits(&s, &s.options.things_off, THINGS);
		try_fewer(&s, &s.options.most_rounds, plan.rounds, 1);
		try_fewer(&s, &s.options.most_workers, plan.workers, 1);
		try_fewer(&s, &s.options.most_servers, plan.servers, 1);
		try_fewer(&s, &s.options.most_ops, plan.ops, 1);
	}
	plan_make(&plan, seed, &s.options);
	printf("\nthe smallest that still fails, of %u tried: %s\n  %s\n", s.tried,
	       s.verdict.invariant, s.verdict.text);
	plan_print(&plan, stdout);
	printf("  %-10s %llu calls, %.3f ms\n  %-10s ", "length",
	       (unsigned long long)s.verdict.calls, (double)s.verdict.now_ns / 1e6, "replay");
	s.options.seconds = options->seconds;
	report_command(&s.options, seed, stdout);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What many seeds came to, for people. */
#include <string.h>

#include "harness.h"

static void count_text(char *text, size_t len_bytes, uint64_t n)
{
	if (n < 100000)
		snprintf(text, len_bytes, "%llu", (unsigned long long)n);
	else if (n < 10000000)
		snprintf(text, len_bytes, "%.1f k", (double)n / 1e3);
	else
		snprintf(text, len_bytes, "%.1f M", (double)n / 1e6);
}

static void row(const char *name, uint64_t n)
{
	char text[32];

	count_text(text, sizeof(text), n);
	printf("  %-22s %10s", name, text);
}

static void print_calls(const struct totals *t)
{
	char text[32];

	printf("\n%-18s", "calls");
	for (uint32_t r = 0; r < RESULTS; r++)
		printf(" %10s", result_names[r]);
	printf("\n");
	for (uint32_t c = 0; c < CALLS; c++) {
		printf("  %-16s", call_names[c]);
		for (uint32_t r = 0; r < RESULTS; r++) {
			count_text(text, sizeof(text), t->calls[c][r]);
			printf(" %10s", t->calls[c][r] ? text : "-");
		}
		printf("\n");
	}
}

static void print_faults(const struct totals *t)
{
	printf("\nfaults%46s\n", "seeds");
	for (uint32_t i = 0; i < SIM_FAULTS; i++) {
		row(sim_fault_names[i], t->faults[i]);
		printf(" %16llu\n", (unsigned long long)t->seeds_with[i]);
	}
}

static void print_events(const struct totals *t)
{
	printf("\nevents\n");
	for (uint32_t i = 0; i < EVENTS; i++) {
		row(event_names[i], t->events[i]);
		printf(i % 2 || i + 1 == EVENTS ? "\n" : "    ");
	}
}

void report_totals(const struct totals *t, const struct options *options, double seconds)
{
	double cpu = (double)t->cpu_ns / 1e9;

	if (!options->quiet) {
		print_calls(t);
		print_faults(t);
		print_events(t);
		printf("\n");
	}
	printf("%llu seeds in %.1f s: %.1f a second, %.0f a minute and core (%u jobs)\n",
	       (unsigned long long)t->seeds, seconds, (double)t->seeds / (seconds > 0 ? seconds : 1),
	       (double)t->seeds * 60 / (cpu > 0 ? cpu : 1), options->jobs);
	printf("%.0f calls and %.0f operations a seed, %.1f s of virtual time in all, %.2f us of CPU a call\n",
	       (double)t->calls_made / (double)(t->seeds ? t->seeds : 1),
	       (double)t->operations / (double)(t->seeds ? t->seeds : 1),
	       (double)t->virtual_ns / 1e9, cpu * 1e6 / (double)(t->calls_made ? t->calls_made : 1));
	if (t->failed)
		printf("%llu seeds FAILED\n", (unsigned long long)t->failed);
	else
		printf("all hold\n");
}

/* One word for a shell, though names have spaces. */
static void print_bits(FILE *to, const char *option, uint32_t bits, const char *const *names, uint32_t n)
{
	const char *before = option;

	for (uint32_t i = 0; i < n; i++) {
		if (!(bits >> i & 1))
			continue;
		fprintf(to, "%s%s", before, names[i]);
		before = ",";
	}
	if (bits)
		fputc('\'', to);
}

void report_command(const struct options *options, uint64_t seed, FILE *to)
{
	fprintf(to, "build/tests/sim/prog_sim --seed %llu", (unsigned long long)seed);
	if (options->speed)
		fprintf(to, " --profile speed");
	if (options->most_workers)
		fprintf(to, " --workers %u", options->most_workers);
	if (options->most_servers)
		fprintf(to, " --servers %u", options->most_servers);
	if (options->most_rounds)
		fprintf(to, " --rounds %u", options->most_rounds);
	if (options->most_ops)
		fprintf(to, " --ops %u", options->most_ops);
	print_bits(to, " --without-faults '", options->off, sim_fault_names, SIM_FAULTS);
	print_bits(to, " --without-tables '", options->tables_off, table_kind_names, TABLE_KINDS);
	print_bits(to, " --without '", options->things_off, thing_names, THINGS);
	fprintf(to, " --trace\n");
}

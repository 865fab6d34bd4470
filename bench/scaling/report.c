/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of the study, and what of it a test holds on to. */
#include "report.h"

#include <stdlib.h>

#include "scaling.h"

#define ROUNDS      5
#define BIG         4096u
#define GOAL_TRIPS  6
#define GOAL_SERIAL 2

const unsigned int report_sizes[REPORT_SIZES] = { 8, 64, 512, 4096, 16384 };

static const uint32_t fan_ins[] = { 4, 8, 16, 32 };
#define FAN_INS (sizeof(fan_ins) / sizeof(*fan_ins))

static double round_trip_us(void)
{
	return (double)(2 * study_costs.one_way_ns + study_costs.jitter_ns) / 1e3;
}

static double goal_us(const struct study_result *r)
{
	return GOAL_TRIPS * round_trip_us() + GOAL_SERIAL * r->serial_us;
}

static struct study_result run(const struct study_method *method, uint32_t workers, uint32_t fan_in,
			       uint64_t late_ns)
{
	const struct study_case what = {
		.workers = workers,
		.rounds = workers > BIG ? 3 : ROUNDS,
		.fan_in = fan_in,
		.late_ns = late_ns,
	};

	return study_run(method, &what);
}

static bool barriers(FILE *file, struct report_line lines[REPORT_LINES])
{
	const struct study_method *others[] = { &study_counter, &study_dissemination };
	bool failed = false;

	fprintf(file, "All arrive at once: us until the last one is through.\n\n| workers |");
	for (size_t f = 0; f < FAN_INS; f++)
		fprintf(file, " fan-in %u |", fan_ins[f]);
	fprintf(file, " one counter | dissemination |\n|--:|--:|--:|--:|--:|--:|--:|\n");
	for (int i = 0; i < REPORT_SIZES; i++) {
		struct study_result r;

		fprintf(file, "| %u |", report_sizes[i]);
		for (size_t f = 0; f < FAN_INS; f++) {
			r = run(&study_barrier, report_sizes[i], fan_ins[f], 0);
			failed |= r.failed;
			fprintf(file, " %.1f |", r.time_us);
			if (fan_ins[f] == SYNC_DEFAULT_FAN_IN)
				lines[0].us[i] = r.time_us;
		}
		for (int m = 0; m < 2; m++) {
			r = run(others[m], report_sizes[i], 0, 0);
			failed |= r.failed;
			fprintf(file, " %.1f |", r.time_us);
			lines[1 + m].us[i] = r.time_us;
		}
		fprintf(file, "\n");
	}
	return failed;
}

static bool details(FILE *file)
{
	bool failed = false;

	fprintf(file,
		"\nFan-in %u, the default, in us. Serial: what the server's device serves in a round. Goal: "
		"%d round trips of %.1f us and %d times serial. Late: one worker comes so much after the "
		"others, and the time is from then on.\n\n"
		"| workers | time | serial | goal | operations a worker | late 1 ms | late 10 ms |\n"
		"|--:|--:|--:|--:|--:|--:|--:|\n",
		SYNC_DEFAULT_FAN_IN, GOAL_TRIPS, round_trip_us(), GOAL_SERIAL);
	for (int i = 0; i < REPORT_SIZES; i++) {
		struct study_result r = run(&study_barrier, report_sizes[i], SYNC_DEFAULT_FAN_IN, 0);
		struct study_result late = run(&study_barrier, report_sizes[i], SYNC_DEFAULT_FAN_IN,
					       1000000);
		struct study_result later = run(&study_barrier, report_sizes[i],
						SYNC_DEFAULT_FAN_IN, 10000000);

		failed |= r.failed || late.failed || later.failed;
		fprintf(file, "| %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", report_sizes[i],
			r.time_us, r.serial_us, goal_us(&r), r.operations, late.time_us, later.time_us);
	}
	return failed;
}

static bool clocks(FILE *file)
{
	bool failed = false;

	fprintf(file, "\nThe clock: all advance and read it at once, in us.\n\n"
		      "| workers | until the last has read | serial |\n|--:|--:|--:|\n");
	for (int i = 0; i < REPORT_SIZES; i++) {
		struct study_result r = run(&study_clock, report_sizes[i], 0, 0);

		failed |= r.failed;
		fprintf(file, "| %u | %.1f | %.1f |\n", report_sizes[i], r.time_us, r.serial_us);
	}
	return failed;
}

int report_tables(FILE *file, FILE *svg)
{
	struct report_line lines[REPORT_LINES] = {
		{ .name = "barrier", .colour = "#0072b2" },
		{ .name = "one counter", .colour = "#d55e00" },
		{ .name = "dissemination", .colour = "#009e73" },
	};
	bool failed = barriers(file, lines);

	failed |= details(file);
	failed |= clocks(file);
	failed |= report_transfers(file);
	if (svg)
		report_draw(svg, lines);
	return failed;
}

static int say(bool holds, const char *name, double is, double limit)
{
	printf("%s %s: %.1f us, limit %.1f us\n", holds ? "ok" : "not ok", name, is, limit);
	return !holds;
}

int report_check(bool small)
{
	uint32_t workers = small ? 512 : BIG;
	struct study_result r = run(&study_barrier, workers, SYNC_DEFAULT_FAN_IN, 0);
	struct study_result counter = run(&study_counter, workers, 0, 0);
	struct study_result late = run(&study_barrier, workers, SYNC_DEFAULT_FAN_IN, 1000000);
	/* An add each, and half as much again for the tree; three READs each to wait. */
	double atomics_us = 1.5 * workers *
			    (double)(study_costs.atomic_ns + study_costs.queue_pair_ns) / 1e3;
	double reads_us = 3.0 * workers * (double)(study_costs.read_ns + study_costs.queue_pair_ns) / 1e3;
	int failed = r.failed || counter.failed || late.failed;

	if (failed)
		printf("not ok scaling: a study failed\n");
	failed |= say(r.time_us > round_trip_us() && r.time_us <= goal_us(&r),
		      "barrier meets its goal", r.time_us, goal_us(&r));
	failed |= say(r.serial_us > 0 && r.serial_us <= atomics_us + reads_us,
		      "barrier spares the server's device", r.serial_us, atomics_us + reads_us);
	failed |= say(r.time_us < counter.time_us, "barrier is faster than one counter", r.time_us,
		      counter.time_us);
	failed |= say(late.time_us < 600, "who comes late is noticed", late.time_us, 600);
	return failed;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a person sees: on a terminal one line that is written over, else a line with every epoch and
 * at most one in 5 seconds; at the end a table.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "train.h"

const char *const train_sync_names[] = { "bsp", "async", "ssp" };

#define TERMINAL_NS 100000000u
#define PLAIN_NS    5000000000u

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void train_report_begin(struct train_report *report, const struct train_options *options, const char *model)
{
	report->options = options;
	report->begun_ns = report->shown_ns = report->before_ns = now_ns();
	report->terminal = isatty(STDOUT_FILENO) == 1;
	if (options->quiet)
		return;
	printf("%s: %u worker%s, %u server%s, %s, batch %u, %u epoch%s\n", model, report->workers,
	       report->workers == 1 ? "" : "s", report->servers, report->servers == 1 ? "" : "s",
	       train_sync_names[options->sync], options->batch, options->epochs,
	       options->epochs == 1 ? "" : "s");
	fflush(stdout);
}

static double per_second(const struct train_report *report, const struct train_totals *totals,
			 enum train_count count, uint64_t now)
{
	uint64_t done = totals->counts[count] - report->before.counts[count];

	return (double)done / ((double)(now - report->before_ns) * 1e-9);
}

/* "36.5 k images/s" */
static void text_images(char *buf, double per_second)
{
	char rate[CLI_TEXT_BYTES];
	const char *unit;

	cli_text_rate(rate, per_second);
	unit = strchr(rate, '/');
	snprintf(buf, 2 * CLI_TEXT_BYTES, "%.*s%simages/s", unit ? (int)(unit - rate) : 0, rate,
		 unit && unit > rate && unit[-1] == ' ' ? "" : " ");
}

void train_report_progress(struct train_report *report, const struct train_point *point,
			   const struct train_totals *totals)
{
	uint64_t now = now_ns(), every = report->terminal ? TERMINAL_NS : PLAIN_NS;
	char images[2 * CLI_TEXT_BYTES];
	double left;

	if (report->options->quiet || now - report->shown_ns < every || !point->step)
		return;
	left = point->seconds / (double)point->step * (double)(report->steps - point->step);
	text_images(images, per_second(report, totals, TRAIN_IMAGES, now));
	printf("%sepoch %5.2f of %u  step %llu of %llu  loss %.4f  %s  pull %.0f MB/s  push %.0f MB/s"
	       "  %.0f s left%s",
	       report->terminal ? "\r\033[K" : "", point->epoch, report->options->epochs,
	       (unsigned long long)point->step, (unsigned long long)report->steps, point->loss,
	       images, per_second(report, totals, TRAIN_PULLED, now) * 1e-6,
	       per_second(report, totals, TRAIN_PUSHED, now) * 1e-6, left, report->terminal ? "" : "\n");
	fflush(stdout);
	report->line_open = report->terminal;
	report->shown_ns = report->before_ns = now;
	report->before = *totals;
}

static void line_close(struct train_report *report)
{
	if (report->line_open)
		fputs("\r\033[K", stdout);
	report->line_open = false;
}

void train_report_epoch(struct train_report *report, uint32_t epoch, double loss, double accuracy)
{
	if (report->options->quiet)
		return;
	line_close(report);
	printf("epoch %*u of %u  loss %.4f  test accuracy %4.1f %%  %.1f s\n",
	       report->options->epochs > 9 ? 2 : 1, epoch + 1, report->options->epochs, loss,
	       100 * accuracy, (double)(now_ns() - report->begun_ns) * 1e-9);
	fflush(stdout);
}

void train_report_end(struct train_report *report, const struct train_totals *totals,
		      const char *model, double accuracy, bool stopped)
{
	static const struct {
		const char *name;
		enum train_count count;
	} shares[] = {
		{ "compute", TRAIN_COMPUTE_NS },
		{ "pull", TRAIN_PULL_NS },
		{ "push", TRAIN_PUSH_NS },
		{ "wait", TRAIN_WAIT_NS },
	};
	double seconds = (double)(now_ns() - report->begun_ns) * 1e-9, all = 1e-9;

	line_close(report);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		all += (double)totals->counts[shares[i].count];
	if (!report->options->quiet) {
		if (stopped)
			printf("stopped when asked to, after this step\n");
		printf("\n  %-8s %9.2f s\n", "time", seconds);
		printf("  %-8s %9.0f\n", "images/s", (double)totals->counts[TRAIN_IMAGES] / seconds);
		for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
			printf("  %-8s %9.1f %%\n", shares[i].name,
			       100 * (double)totals->counts[shares[i].count] / all);
		printf("\n");
	}
	printf("%s: test accuracy %.1f %%\n", model, 100 * accuracy);
	fflush(stdout);
}

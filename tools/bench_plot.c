/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plot as SVG: of one size the distribution of its samples, how many lie in each of some hundred
 * intervals that grow by equal factors, with the median and the percentiles marked; of all sizes the
 * curve over size. Both axes of values are logarithmic but that of counts. Colours are of the set by
 * Okabe and Ito. data-x0 and so on give the ranges of what is drawn, as logarithms to base 10.
 */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "cli.h"

#define WIDTH  790
#define HEIGHT 400
#define LEFT   80
#define TOP    60
#define WIDE   640
#define TALL   270
#define BINS   120

#define BLUE       "#0072b2"
#define LIGHT_BLUE "#9fcbe5"
#define ORANGE     "#d55e00"

struct plot {
	const struct bench_run *run;
	const struct bench_row *rows;
	size_t count;
	double x0, x1, y0, y1; /* logarithms, but the distribution's y */
};

static double at_x(const struct plot *p, double x)
{
	return LEFT + WIDE * (x - p->x0) / (p->x1 - p->x0);
}

static double at_y(const struct plot *p, double y)
{
	return TOP + TALL - TALL * (y - p->y0) / (p->y1 - p->y0);
}

static double lg(double value)
{
	return log10(value > 1e-6 ? value : 1e-6);
}

static const char *unit_of(const struct bench_run *run)
{
	if (!run->test->latency)
		return run->options->gbits ? "Gb/s" : "MiB/s";
	return run->options->cycles ? "cycles" : "us";
}

static void draw_head(FILE *file, const struct plot *p, const char *what)
{
	const struct bench_run *run = p->run;

	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
		"<style>.head{font-size:15px;font-weight:bold;fill:#222}.label{font-size:12px;fill:#444}"
		".tick{font-size:11px;fill:#444}.grid{stroke:#e3e3e3;stroke-width:1}"
		".axis{stroke:#444;stroke-width:1}</style>\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"24\"><tspan class=\"head\">%s</tspan> <tspan class=\"label\">%s, over %s, "
		"%u worker%s</tspan></text>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, run->test->name, what,
		run->options->verbs ? "verbs" : "shared memory", run->options->workers,
		run->options->workers == 1 ? "" : "s");
}

static void tick_x(FILE *file, const struct plot *p, double x, const char *text)
{
	fprintf(file,
		"<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n"
		"<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n",
		at_x(p, x), at_x(p, x), TOP + TALL, TOP + TALL + 4, at_x(p, x), TOP + TALL + 19, text);
}

static void tick_y(FILE *file, const struct plot *p, double y, const char *text)
{
	fprintf(file,
		"<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
		"<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
		LEFT, LEFT + WIDE, at_y(p, y), at_y(p, y), LEFT - 8, at_y(p, y) + 4, text);
}

static void draw_labels(FILE *file, const char *x, const char *y)
{
	fprintf(file,
		"<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n"
		"<text class=\"label\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">%s</text>\n"
		"<text class=\"label\" x=\"%d\" y=\"%d\">%s</text>\n",
		LEFT, LEFT + WIDE, TOP + TALL, TOP + TALL, LEFT + WIDE / 2, TOP + TALL + 42, x,
		LEFT - 60, TOP - 14, y);
}

/* 1, 2 and 5 times the powers of ten within an axis of logarithms; of a long one the powers alone. */
static void ticks_log(FILE *file, const struct plot *p, double from, double to,
		      void (*tick)(FILE *, const struct plot *, double, const char *))
{
	static const double steps[] = { 1, 2, 5 };
	size_t used = to - from > 3 ? 1 : 3;

	for (int power = (int)floor(from); power <= (int)ceil(to); power++) {
		for (size_t i = 0; i < used; i++) {
			double value = steps[i] * pow(10, power);
			char text[32];

			if (log10(value) < from - 1e-9 || log10(value) > to + 1e-9)
				continue;
			snprintf(text, sizeof(text), "%g", value);
			tick(file, p, log10(value), text);
		}
	}
}

static void mark(FILE *file, const struct plot *p, double value, const char *name, int line)
{
	double x = at_x(p, lg(value));
	bool right = x > LEFT + WIDE - 130;

	fprintf(file,
		"<line id=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"" ORANGE
		"\" stroke-dasharray=\"4 3\"/>\n"
		"<text class=\"tick\" text-anchor=\"%s\" x=\"%.1f\" y=\"%d\">%s: %.4g %s</text>\n",
		name, x, x, TOP, TOP + TALL, right ? "end" : "start", right ? x - 4 : x + 4,
		TOP + 12 + 14 * line, name, value, unit_of(p->run));
}

static void draw_distribution(FILE *file, struct plot *p)
{
	const struct base_stats *stats = &p->rows[0].stats;
	uint64_t bins[BINS] = { 0 }, most = 1;
	char text[64];

	p->x0 = lg(stats->least) - 0.02;
	p->x1 = lg(stats->most) + 0.02;
	for (size_t i = 0; i < stats->count; i++) {
		int bin = (int)(BINS * (lg(p->rows[0].samples[i]) - p->x0) / (p->x1 - p->x0));

		bin = bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin;
		if (++bins[bin] > most)
			most = bins[bin];
	}
	p->y1 = 100.0 * (double)most / (double)stats->count;
	snprintf(text, sizeof(text), "%llu bytes, %zu samples",
		 (unsigned long long)p->rows[0].bytes, stats->count);
	draw_head(file, p, text);
	for (int i = 0; i <= 4; i++) {
		snprintf(text, sizeof(text), "%.3g %%", p->y1 * i / 4);
		tick_y(file, p, p->y1 * i / 4, text);
	}
	for (int i = 0; i < BINS; i++) {
		double x = LEFT + (double)WIDE * i / BINS;
		double tall = TALL * (double)bins[i] / (double)most;

		if (bins[i])
			fprintf(file,
				"<rect class=\"bin\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
				"fill=\"" BLUE "\"/>\n",
				x, TOP + TALL - tall, (double)WIDE / BINS, tall);
	}
	ticks_log(file, p, p->x0, p->x1, tick_x);
	snprintf(text, sizeof(text), "time of an operation (%s)", unit_of(p->run));
	draw_labels(file, text, "share of samples");
	mark(file, p, stats->median, "median", 0);
	mark(file, p, stats->p99, "99%", 1);
	mark(file, p, stats->p999, "99.9%", 2);
	mark(file, p, stats->p9999, "99.99%", 3);
}

static double value_of(const struct plot *p, const struct bench_row *row, const char *id)
{
	if (!strcmp(id, "p99"))
		return row->stats.p99;
	if (!strcmp(id, "median"))
		return row->stats.median;
	(void)p;
	return row->average;
}

static void draw_curve(FILE *file, const struct plot *p, const char *id, const char *colour, int down)
{
	fprintf(file,
		"<polyline id=\"%s\" data-x0=\"%g\" data-x1=\"%g\" data-y0=\"%g\" data-y1=\"%g\" "
		"data-box=\"%d %d %d %d\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
		id, p->x0, p->x1, p->y0, p->y1, LEFT, TOP, WIDE, TALL, colour);
	for (size_t i = 0; i < p->count; i++)
		fprintf(file, "%.2f,%.2f ", at_x(p, lg((double)p->rows[i].bytes)),
			at_y(p, lg(value_of(p, &p->rows[i], id))));
	fprintf(file, "\"/>\n<text class=\"tick\" x=\"%d\" y=\"%.1f\" fill=\"%s\">%s</text>\n",
		LEFT + WIDE + 4, at_y(p, lg(value_of(p, &p->rows[p->count - 1], id))) + down,
		colour, id);
}

static void draw_over_size(FILE *file, struct plot *p)
{
	const char *low = p->run->test->latency ? "median" : "average";
	const char *high = p->run->test->latency ? "p99" : "average";
	char text[64];

	p->y0 = 1e9;
	p->y1 = -1e9;
	for (size_t i = 0; i < p->count; i++) {
		p->y0 = fmin(p->y0, lg(value_of(p, &p->rows[i], low)));
		p->y1 = fmax(p->y1, lg(value_of(p, &p->rows[i], high)));
	}
	p->y0 = floor(p->y0);
	p->y1 = ceil(p->y1 + 1e-9);
	p->x0 = lg((double)p->rows[0].bytes);
	p->x1 = lg((double)p->rows[p->count - 1].bytes);
	draw_head(file, p, "by size");
	ticks_log(file, p, p->y0, p->y1, tick_y);
	for (size_t i = 0; i < p->count; i += 3) {
		cli_text_size(text, p->rows[i].bytes);
		tick_x(file, p, lg((double)p->rows[i].bytes), text);
	}
	snprintf(text, sizeof(text), "%s (%s)", p->run->test->latency ? "latency" : "bandwidth",
		 unit_of(p->run));
	draw_labels(file, "size", text);
	if (p->run->test->latency)
		draw_curve(file, p, "p99", LIGHT_BLUE, -2);
	draw_curve(file, p, low, BLUE, 10);
}

static int draw(FILE *file, const void *what)
{
	struct plot plot = *(const struct plot *)what;

	if (plot.count > 1)
		draw_over_size(file, &plot);
	else
		draw_distribution(file, &plot);
	fputs("</svg>\n", file);
	return 0;
}

int bench_plot_write(const struct bench_run *run, const struct bench_row *rows, size_t count)
{
	const struct plot plot = { .run = run, .rows = rows, .count = count };

	return cli_output_write("bench", run->options->plot, draw, &plot) ? CLI_FAILED : CLI_OK;
}

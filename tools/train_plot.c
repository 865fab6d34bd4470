/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loss and accuracy over time as SVG, two panels over one axis of time. Colours are of the set by
 * Okabe and Ito, which people who see red and green alike tell apart, and which print in grey. Each
 * series is one polyline with an id; data-x0 and so on give the ranges of its panel, so that a
 * program can read values back.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "train.h"

#define WIDTH  760
#define HEIGHT 340
#define LEFT   70
#define TOP    60
#define PANEL  280 /* width */
#define GAP    100
#define TALL   210

#define BLUE       "#0072b2"
#define LIGHT_BLUE "#9fcbe5"
#define ORANGE     "#d55e00"

struct axis {
	double least, most, tick;
	int digits;
};

struct panel {
	const char *title, *unit;
	int left;
	struct axis x, y;
};

/* A range with round ends: ticks at 1, 2 or 5 times a power of ten, about five of them. */
static struct axis axis_over(double least, double most)
{
	double span = most > least ? most - least : fabs(most) + 1, power, over;
	struct axis axis;

	power = pow(10, floor(log10(span / 5)));
	over = span / 5 / power;
	axis.tick = power * (over <= 1 ? 1 : over <= 2 ? 2 : over <= 5 ? 5 : 10);
	axis.least = floor(least / axis.tick + 1e-9) * axis.tick;
	axis.most = ceil(most / axis.tick - 1e-9) * axis.tick;
	if (axis.most <= axis.least)
		axis.most = axis.least + axis.tick;
	axis.digits = axis.tick >= 0.999 ? 0 : (int)ceil(-log10(axis.tick) - 1e-9);
	return axis;
}

static double at_x(const struct panel *p, double value)
{
	return p->left + PANEL * (value - p->x.least) / (p->x.most - p->x.least);
}

static double at_y(const struct panel *p, double value)
{
	return TOP + TALL - TALL * (value - p->y.least) / (p->y.most - p->y.least);
}

static void draw_frame(FILE *file, const struct panel *p)
{
	fprintf(file, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text>\n", p->left, TOP - 12, p->title);
	for (int i = 0; p->y.least + i * p->y.tick <= p->y.most + p->y.tick / 2; i++) {
		double value = p->y.least + i * p->y.tick, y = at_y(p, value);

		fprintf(file, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
			p->left, p->left + PANEL, y, y);
		fprintf(file, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%.*f%s</text>\n",
			p->left - 8, y + 4, p->y.digits, value, p->unit);
	}
	for (int i = 0; p->x.least + i * p->x.tick <= p->x.most + p->x.tick / 2; i++) {
		double value = p->x.least + i * p->x.tick, x = at_x(p, value);

		fprintf(file, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
			x, x, TOP + TALL, TOP + TALL + 4);
		fprintf(file, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%.*f</text>\n",
			x, TOP + TALL + 19, p->x.digits, value);
	}
	fprintf(file, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", p->left,
		p->left + PANEL, TOP + TALL, TOP + TALL);
	fprintf(file, "<text class=\"label\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">time (s)</text>\n",
		p->left + PANEL / 2, TOP + TALL + 40);
}

static double value_of(const struct train_point *point, const char *id)
{
	if (!strcmp(id, "accuracy"))
		return point->accuracy < 0 ? NAN : 100 * point->accuracy;
	if (!strcmp(id, "epoch-loss"))
		return point->epoch_loss < 0 ? NAN : point->epoch_loss;
	return point->loss;
}

static void draw_series(FILE *file, const struct panel *p, const struct train_record *record,
			const char *id, const char *style)
{
	fprintf(file,
		"<polyline id=\"%s\" data-x0=\"%g\" data-x1=\"%g\" data-y0=\"%g\" data-y1=\"%g\" "
		"data-box=\"%d %d %d %d\" fill=\"none\" %s points=\"",
		id, p->x.least, p->x.most, p->y.least, p->y.most, p->left, TOP, PANEL, TALL, style);
	for (size_t i = 0; i < record->count; i++) {
		double value = value_of(&record->points[i], id);

		if (!isnan(value))
			fprintf(file, "%.2f,%.2f ", at_x(p, record->points[i].seconds), at_y(p, value));
	}
	fputs("\"/>\n", file);
}

static void draw_dots(FILE *file, const struct panel *p, const struct train_record *record,
		      const char *id, const char *colour)
{
	for (size_t i = 0; i < record->count; i++) {
		double value = value_of(&record->points[i], id);

		if (!isnan(value))
			fprintf(file, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3\" fill=\"%s\"/>\n",
				at_x(p, record->points[i].seconds), at_y(p, value), colour);
	}
}

static void draw_legend(FILE *file, const struct panel *p, const struct train_record *record)
{
	unsigned long long steps = record->count ? (unsigned long long)record->points[0].step : 1;
	int x = p->left + PANEL - 118, y = TOP + 14;

	fprintf(file,
		"<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"" LIGHT_BLUE "\" stroke-width=\"1.5\"/>\n"
		"<text class=\"tick\" x=\"%d\" y=\"%d\">mean of %llu step%s</text>\n"
		"<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"" BLUE "\" stroke-width=\"2\"/>\n"
		"<text class=\"tick\" x=\"%d\" y=\"%d\">mean of an epoch</text>\n",
		x, x + 18, y, y, x + 24, y + 4, steps, steps == 1 ? "" : "s", x, x + 18, y + 16,
		y + 16, x + 24, y + 20);
}

static void ranges(const struct train_record *record, struct panel *loss, struct panel *accuracy)
{
	double most_loss = 0, least_accuracy = 100, most_accuracy = 0, last = 0;

	for (size_t i = 0; i < record->count; i++) {
		const struct train_point *point = &record->points[i];
		double percent = 100 * point->accuracy;

		last = point->seconds;
		if (isfinite(point->loss) && point->loss > most_loss)
			most_loss = point->loss;
		if (point->accuracy >= 0 && percent < least_accuracy)
			least_accuracy = percent;
		if (point->accuracy >= 0 && percent > most_accuracy)
			most_accuracy = percent;
	}
	if (most_accuracy - least_accuracy < 1) { /* all the same, or none */
		most_accuracy = fmin(most_accuracy + 1, 100);
		least_accuracy = most_accuracy - 2;
	}
	loss->x = accuracy->x = axis_over(0, last);
	loss->y = axis_over(0, most_loss);
	accuracy->y = axis_over(least_accuracy, most_accuracy);
}

struct plot {
	const struct train_record *record;
	const char *title;
};

static int plot_draw(FILE *file, const void *what)
{
	const struct plot *plot = what;
	struct panel loss = { .title = "Training loss (cross-entropy, nats)", .unit = "", .left = LEFT };
	struct panel accuracy = { .title = "Test accuracy", .unit = " %", .left = LEFT + PANEL + GAP };

	ranges(plot->record, &loss, &accuracy);
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
		"<style>.head{font-size:15px;font-weight:bold;fill:#222}.title{font-size:13px;fill:#222}"
		".label{font-size:12px;fill:#444}.tick{font-size:11px;fill:#444}"
		".grid{stroke:#e3e3e3;stroke-width:1}.axis{stroke:#444;stroke-width:1}</style>\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"20\"><tspan class=\"head\">%.*s</tspan><tspan class=\"label\">%s</tspan></text>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, (int)strcspn(plot->title, ","),
		plot->title, plot->title + strcspn(plot->title, ","));
	draw_frame(file, &loss);
	draw_series(file, &loss, plot->record, "loss", "stroke=\"" LIGHT_BLUE "\" stroke-width=\"1.2\"");
	draw_series(file, &loss, plot->record, "epoch-loss", "stroke=\"" BLUE "\" stroke-width=\"2\"");
	draw_dots(file, &loss, plot->record, "epoch-loss", BLUE);
	draw_legend(file, &loss, plot->record);
	draw_frame(file, &accuracy);
	draw_series(file, &accuracy, plot->record, "accuracy", "stroke=\"" ORANGE "\" stroke-width=\"2\"");
	draw_dots(file, &accuracy, plot->record, "accuracy", ORANGE);
	fputs("</svg>\n", file);
	return 0;
}

int train_plot_write(const char *path, const struct train_record *record, const char *title)
{
	struct plot plot = { record, title };

	return train_output_write(path, plot_draw, &plot);
}

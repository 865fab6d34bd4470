/* SPDX-License-Identifier: BSD-2-Clause */
/* Times over workers as SVG; both axes are logarithmic. Colours are of the set by Okabe and Ito. */
#include <math.h>

#include "report.h"

#define WIDTH  760
#define HEIGHT 420
#define LEFT   80
#define TOP    50
#define WIDE   500
#define TALL   300

static const double least_x = 8, most_x = 16384, least_y = 1, most_y = 100000;

static double at_x(double workers)
{
	return LEFT + WIDE * log(workers / least_x) / log(most_x / least_x);
}

static double at_y(double us)
{
	return TOP + TALL - TALL * log(us / least_y) / log(most_y / least_y);
}

static void draw_axes(FILE *svg)
{
	static const char *const labels[] = { "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms" };
	double us = least_y;

	for (int i = 0; i < 6; i++, us *= 10) {
		fprintf(svg, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n",
			LEFT, at_y(us), LEFT + WIDE, at_y(us));
		fprintf(svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
			at_y(us) + 4, labels[i]);
	}
	for (int i = 0; i < REPORT_SIZES; i++)
		fprintf(svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
			at_x(report_sizes[i]), TOP + TALL + 20, report_sizes[i]);
	fprintf(svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">workers</text>\n",
		LEFT + WIDE / 2, TOP + TALL + 42);
}

/* The name stands at the line's end: at 16,384 workers, or at the last size that was run. */
static void draw_line(FILE *svg, const struct report_line *line)
{
	int last = 0;

	fprintf(svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", line->colour);
	for (int i = 0; i < REPORT_SIZES; i++) {
		if (line->us[i] <= 0)
			continue;
		fprintf(svg, "%.1f,%.1f ", at_x(report_sizes[i]), at_y(line->us[i]));
		last = i;
	}
	fprintf(svg, "\"/>\n");
	for (int i = 0; i <= last; i++)
		if (line->us[i] > 0)
			fprintf(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n",
				at_x(report_sizes[i]), at_y(line->us[i]), line->colour);
	fprintf(svg, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s</text>\n",
		at_x(report_sizes[last]) + 10, at_y(line->us[last]) + 4, line->colour, line->name);
}

void report_draw(FILE *svg, const struct report_line lines[REPORT_LINES])
{
	fprintf(svg,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"13\">\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
		"<text x=\"%d\" y=\"28\" font-size=\"16\">A barrier of all workers, in the simulator</text>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
	draw_axes(svg);
	for (int i = 0; i < REPORT_LINES; i++)
		draw_line(svg, &lines[i]);
	fprintf(svg, "</svg>\n");
}

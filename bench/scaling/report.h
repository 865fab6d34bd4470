/* SPDX-License-Identifier: BSD-2-Clause */
/* What is run and how it is shown. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stdio.h>

#define REPORT_SIZES 5
#define REPORT_LINES 3

/* Times in us by size; 0: not run. */
struct report_line {
	const char *name, *colour;
	double us[REPORT_SIZES];
};

extern const unsigned int report_sizes[REPORT_SIZES];

/* 0, or 1 when something failed. svg may be NULL. */
int report_tables(FILE *file, FILE *svg);
int report_check(bool small);

/* transfer.c: pulls and pushes. Whether something failed. */
bool report_transfers(FILE *file);

void report_draw(FILE *svg, const struct report_line lines[REPORT_LINES]);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a set of measured values says. */
#ifndef BASE_STATS_H
#define BASE_STATS_H

#include <stddef.h>
#include <stdint.h>

struct base_stats {
	size_t count;
	double least, most;
	double mean, deviation; /* the deviation is of a sample: over count - 1 */
	double median;          /* of an even count the mean of the middle two */
	double p99, p999, p9999;
};

/* Sorts values[count] in place, and says what is in them; all 0 of none. */
void base_stats_of(double *values, size_t count, struct base_stats *stats);

/*
 * The least of sorted values that at least `share` of them, in 1/10000, are not above: always one
 * of the values.
 */
double base_stats_share(const double *sorted, size_t count, uint32_t share);

/*
 * The highest rate over any run of whole intervals; takes count^2 / 2 steps. At time_at[i] done_at[i] was
 * done, both growing. `under_way` were begun ahead of what was done: a run begins when its first operation
 * did, so that what piled up and was found at once is no rate. 0 of fewer than two.
 */
double base_stats_peak(const double *time_at, const double *done_at, size_t count, double under_way);

#endif

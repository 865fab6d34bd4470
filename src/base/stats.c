/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double base_stats_share(const double *sorted, size_t count, uint32_t share)
{
	/* Whole numbers: 0.999 * 1000 may come out above 999. */
	size_t place = (size_t)(((unsigned __int128)count * share + 9999) / 10000);

	if (!count)
		return 0;
	return sorted[place ? place - 1 : 0];
}

void base_stats_of(double *values, size_t count, struct base_stats *stats)
{
	double sum = 0, squares = 0;

	*stats = (struct base_stats){ .count = count };
	if (!count)
		return;
	qsort(values, count, sizeof(*values), order);
	for (size_t i = 0; i < count; i++)
		sum += values[i];
	stats->mean = sum / (double)count;
	/* Twice through: the difference of two large sums would lose the digits of a small deviation. */
	for (size_t i = 0; i < count; i++)
		squares += (values[i] - stats->mean) * (values[i] - stats->mean);
	stats->deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;
	stats->least = values[0];
	stats->most = values[count - 1];
	stats->median = (values[(count - 1) / 2] + values[count / 2]) / 2;
	stats->p99 = base_stats_share(values, count, 9900);
	stats->p999 = base_stats_share(values, count, 9990);
	stats->p9999 = base_stats_share(values, count, 9999);
}

double base_stats_peak(const double *time_at, const double *done_at, size_t count, double under_way)
{
	size_t begun = 0;
	double peak = 0;

	for (size_t i = 0; i < count; i++) {
		/* The next operation was begun no earlier than when so many before it were done. */
		while (begun < i && done_at[begun + 1] <= done_at[i] - under_way)
			begun++;
		for (size_t j = i + 1; j < count; j++) {
			double took = time_at[j] - time_at[begun];

			if (took > 0 && (done_at[j] - done_at[i]) > peak * took)
				peak = (done_at[j] - done_at[i]) / took;
		}
	}
	return peak;
}

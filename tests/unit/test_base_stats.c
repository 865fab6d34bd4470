/* SPDX-License-Identifier: BSD-2-Clause */
/* Statistics of sets whose answers are known. */
#include "base/stats.h"

#include <math.h>

#include "support/support.h"

static void assert_near(double value, double expected)
{
	assert_true(fabs(value - expected) <= 1e-12 * (1 + fabs(expected)));
}

/* 1 .. n, in an order that is not theirs: n and `step` have no common factor. */
static double *shuffled(size_t n, size_t step)
{
	double *values = calloc(n, sizeof(*values));

	assert_non_null(values);
	for (size_t i = 0; i < n; i++)
		values[i] = (double)(i * step % n + 1);
	return values;
}

static void whole_numbers_have_known_answers(void **state)
{
	double *values = shuffled(10000, 7919);
	struct base_stats stats;

	(void)state;
	base_stats_of(values, 10000, &stats);
	assert_int_equal(stats.count, 10000);
	assert_near(stats.least, 1);
	assert_near(stats.most, 10000);
	assert_near(stats.median, 5000.5);
	assert_near(stats.mean, 5000.5);
	assert_near(stats.p99, 9900);
	assert_near(stats.p999, 9990);
	assert_near(stats.p9999, 9999);
	/* Of 1 .. n it is sqrt(n (n + 1) / 12). */
	assert_near(stats.deviation, sqrt(10000.0 * 10001 / 12));
	for (int i = 0; i < 10000; i++)
		assert_near(values[i], i + 1);
	free(values);
}

static void a_percentile_is_a_value_that_enough_do_not_exceed(void **state)
{
	double values[1001];

	(void)state;
	for (int i = 0; i < 1001; i++)
		values[i] = i + 1;
	assert_near(base_stats_share(values, 1000, 9990), 999); /* 0.999 * 1000 is above 999 in a double */
	assert_near(base_stats_share(values, 1001, 9990), 1000);
	assert_near(base_stats_share(values, 100, 9900), 99);
	assert_near(base_stats_share(values, 101, 9900), 100);
	assert_near(base_stats_share(values, 99, 9999), 99);
	assert_near(base_stats_share(values, 3, 5000), 2);
	assert_near(base_stats_share(values, 4, 5000), 2);
	assert_near(base_stats_share(values, 1, 1), 1);
	assert_near(base_stats_share(values, 10, 0), 1);
	assert_near(base_stats_share(values, 10, 10000), 10);
}

static void the_largest_value_is_the_maximum(void **state)
{
	double values[] = { 2, 1, 1000, 2 };
	struct base_stats stats;

	(void)state;
	base_stats_of(values, 4, &stats);
	assert_near(stats.most, 1000);
	assert_near(stats.median, 2);
	assert_near(stats.mean, 251.25);
	assert_near(stats.p9999, 1000);
}

static void a_small_deviation_beside_a_large_mean_keeps_its_digits(void **state)
{
	double values[] = { 1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4, 1e9 + 5 };
	struct base_stats stats;

	(void)state;
	base_stats_of(values, 5, &stats);
	assert_near(stats.deviation, sqrt(2.5));
}

static void few_values_and_none(void **state)
{
	double values[] = { 7, 3 };
	struct base_stats stats;

	(void)state;
	base_stats_of(values, 2, &stats);
	assert_near(stats.median, 5);
	assert_near(stats.deviation, sqrt(8));
	base_stats_of(values, 1, &stats);
	assert_near(stats.median, 3);
	assert_near(stats.deviation, 0);
	assert_near(stats.p9999, 3);
	base_stats_of(values, 0, &stats);
	assert_int_equal(stats.count, 0);
	assert_near(stats.mean, 0);
	assert_near(base_stats_share(values, 0, 9900), 0);
}

static void the_peak_is_of_the_best_run(void **state)
{
	/* Rates 1, 4, 3, 1: the best single interval, and not the first to any. */
	const double time_at[] = { 0, 1, 2, 3, 4 }, done_at[] = { 0, 1, 5, 8, 9 };
	const double steady_time[] = { 10, 12, 14 }, steady_done[] = { 0, 6, 12 };

	(void)state;
	assert_near(base_stats_peak(time_at, done_at, 5, 0), 4);
	assert_near(base_stats_peak(steady_time, steady_done, 3, 0), 3);
	assert_near(base_stats_peak(time_at, done_at, 2, 0), 1);
	assert_near(base_stats_peak(time_at, done_at, 1, 0), 0);
}

/* Ten operations are under way and come back five at once, twice a second. */
static void what_piles_up_is_no_peak(void **state)
{
	double time_at[41], done_at[41];

	(void)state;
	for (int i = 0; i <= 40; i++) { /* found one by one, almost at the same time */
		int pile = (i + 4) / 5, place = (i + 4) % 5;

		time_at[i] = i ? pile * 0.5 + place * 1e-9 : 0;
		done_at[i] = i;
	}
	assert_true(base_stats_peak(time_at, done_at, 41, 0) > 1e8);
	assert_true(base_stats_peak(time_at, done_at, 41, 10) < 11);
	/* Never below the average. */
	assert_true(base_stats_peak(time_at, done_at, 41, 10) >= 40 / time_at[40]);
	assert_true(base_stats_peak(time_at, done_at, 41, 1000) >= 40 / time_at[40]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_numbers_have_known_answers),
		cmocka_unit_test(a_percentile_is_a_value_that_enough_do_not_exceed),
		cmocka_unit_test(the_largest_value_is_the_maximum),
		cmocka_unit_test(a_small_deviation_beside_a_large_mean_keeps_its_digits),
		cmocka_unit_test(few_values_and_none),
		cmocka_unit_test(the_peak_is_of_the_best_run),
		cmocka_unit_test(what_piles_up_is_no_peak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

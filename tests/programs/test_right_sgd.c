/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/*
 * Synchronous SGD is the same mathematics however many workers and servers there are. Softmax regression on
 * made-up data: the weights after 200 steps are those of a plain loop in C.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "programs/job_harness.h"
#include <cmocka.h>

#define CLASSES  10u
#define FEATURES 64u
#define STRIDE   128u /* columns between features, so that the table has several chunks */
#define DIM      (FEATURES * STRIDE)
#define WEIGHTS  (CLASSES * DIM) /* 5 chunks */
#define SAMPLES  2048u
#define BATCH    128u
#define STEPS    200u
#define RATE     0.5f

static float data[SAMPLES][FEATURES];
static uint32_t labels[SAMPLES];
static float *result; /* shared: what rank 0 had at the end */
static uint32_t steps;

static float normal(uint64_t *random)
{
	float sum = 0;

	for (uint32_t i = 0; i < 12; i++)
		sum += (float)(job_random(random) >> 40) / (float)(1u << 24);
	return sum - 6.0f;
}

/* Classes are clouds that overlap. */
static void make_data(void)
{
	static float centre[CLASSES][FEATURES];
	uint64_t random = 42;

	for (uint32_t c = 0; c < CLASSES; c++)
		for (uint32_t f = 0; f < FEATURES; f++)
			centre[c][f] = 0.3f * normal(&random);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		labels[i] = (uint32_t)(job_random(&random) % CLASSES);
		for (uint32_t f = 0; f < FEATURES; f++)
			data[i][f] = centre[labels[i]][f] + normal(&random);
	}
}

static void scores(const float *weights, uint32_t sample, float p[CLASSES])
{
	float sum = 0, top = -INFINITY;

	for (uint32_t c = 0; c < CLASSES; c++) {
		p[c] = 0;
		for (uint32_t f = 0; f < FEATURES; f++)
			p[c] += weights[c * DIM + f * STRIDE] * data[sample][f];
		top = p[c] > top ? p[c] : top;
	}
	for (uint32_t c = 0; c < CLASSES; c++)
		sum += p[c] = expf(p[c] - top);
	for (uint32_t c = 0; c < CLASSES; c++)
		p[c] /= sum;
}

/* Adds the gradients of n samples from `first` on. */
static void add_gradients(const float *weights, uint32_t first, uint32_t n, float *gradient)
{
	for (uint32_t i = first; i < first + n; i++) {
		uint32_t sample = i % SAMPLES;
		float p[CLASSES];

		scores(weights, sample, p);
		p[labels[sample]] -= 1.0f;
		for (uint32_t c = 0; c < CLASSES; c++)
			for (uint32_t f = 0; f < FEATURES; f++)
				gradient[c * DIM + f * STRIDE] += p[c] * data[sample][f];
	}
}

static struct ramps_schema schema_of(void)
{
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;

	schema.name = "softmax";
	schema.rows = CLASSES;
	schema.dim = DIM;
	schema.mode = RAMPS_SLOTS;
	schema.synchronous = 1;
	schema.rate = RATE;
	return schema;
}

static void train(uint32_t rank)
{
	struct ramps_schema schema = schema_of();
	struct ramps_transfer push = RAMPS_TRANSFER_INIT, pull = RAMPS_TRANSFER_INIT;
	struct ramps_worker *worker = job_join(rank);
	struct ramps_table *table = job_table(worker, &schema);
	uint32_t share = BATCH / job.workers;
	static float weights[WEIGHTS], gradient[WEIGHTS];

	push.level = RAMPS_APPLIED;
	push.weight = (float)share;
	pull.read = RAMPS_SNAPSHOT;
	for (uint32_t step = 0; step < steps; step++) {
		OK(ramps_table_pull(table, 0, CLASSES, weights, &pull, JOB_TIMEOUT_MS));
		CHECK_U64(pull.steps, step);
		memset(gradient, 0, sizeof(gradient));
		add_gradients(weights, step * BATCH + rank * share, share, gradient);
		OK(ramps_table_push(table, 0, CLASSES, gradient, &push, JOB_TIMEOUT_MS));
	}
	OK(ramps_table_pull(table, 0, CLASSES, weights, &pull, JOB_TIMEOUT_MS));
	CHECK_U64(pull.steps, steps);
	if (!rank)
		memcpy(result, weights, sizeof(weights));
	ramps_table_close(table);
	job_leave(worker);
}

static void train_plain(float *weights)
{
	static float gradient[WEIGHTS];

	memset(weights, 0, WEIGHTS * sizeof(*weights));
	for (uint32_t step = 0; step < steps; step++) {
		memset(gradient, 0, sizeof(gradient));
		add_gradients(weights, step * BATCH, BATCH, gradient);
		for (uint32_t i = 0; i < WEIGHTS; i++)
			weights[i] -= RATE * gradient[i] / (float)BATCH;
	}
}

static void train_with(uint32_t servers, uint32_t workers, float *weights)
{
	job_start(servers, workers);
	job_run(workers, train, 100000);
	job_stop();
	memcpy(weights, result, WEIGHTS * sizeof(*weights));
}

static void begin(void)
{
	make_data();
	steps = job_quick() ? 40 : STEPS;
	result = job_shared(WEIGHTS * sizeof(*result));
}

static void expect_near(const float *a, const float *b)
{
	double difference = 0, norm = 0;
	uint32_t right = 0;

	for (uint32_t i = 0; i < WEIGHTS; i++) {
		difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		norm += (double)b[i] * (double)b[i];
	}
	difference = sqrt(difference / norm);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		float p[CLASSES];
		uint32_t best = 0;

		scores(a, i, p);
		for (uint32_t c = 1; c < CLASSES; c++)
			best = p[c] > p[best] ? c : best;
		right += best == labels[i];
	}
	print_message("apart by %.2g, %.1f %% right\n", difference, 100.0 * right / SAMPLES);
	CHECK(norm > 0.1 && difference < 1e-5);
	CHECK(right > SAMPLES / 2); /* it has learnt something */
}

static void one_worker_is_the_plain_loop(void **state)
{
	static float plain[WEIGHTS], one[WEIGHTS];

	(void)state;
	begin();
	train_plain(plain);
	train_with(1, 1, one);
	expect_near(one, plain);
}

static void four_workers_with_a_quarter_of_the_batch_are_one_worker(void **state)
{
	static float one[WEIGHTS], four[WEIGHTS];

	(void)state;
	begin();
	train_with(1, 1, one);
	train_with(1, 4, four);
	expect_near(four, one);
}

static void three_servers_are_one_server_bit_for_bit(void **state)
{
	static float one[WEIGHTS], three[WEIGHTS];

	(void)state;
	begin();
	train_with(1, 4, one);
	train_with(3, 4, three);
	CHECK(!memcmp(one, three, sizeof(one)));
}

static void the_same_run_again_is_the_same_bit_for_bit(void **state)
{
	static float first[WEIGHTS], again[WEIGHTS];

	(void)state;
	begin();
	train_with(2, 4, first);
	train_with(2, 4, again);
	CHECK(!memcmp(first, again, sizeof(first)));
	for (uint32_t i = 0; i < WEIGHTS; i++)
		CHECK(i % STRIDE == 0 || first[i] == 0.0f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		job_test(one_worker_is_the_plain_loop),
		job_test(four_workers_with_a_quarter_of_the_batch_are_one_worker),
		job_test(three_servers_are_one_server_bit_for_bit),
		job_test(the_same_run_again_is_the_same_bit_for_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Text, in perftest 4.5's columns: a program that splits its lines at blanks finds each figure where
 * it was. Columns that perftest has not come after the last of its own. Its formats have two decimals
 * of a microsecond; what is below 10 gets as many as make it four digits.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cli.h"

#define LINE \
	"---------------------------------------------------------------------------------------\n"

static char device[512];
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;

/* The fabric's line about its device; warnings go where a person sees them. */
static void keep_log(void *ctx, int level, const char *line)
{
	(void)ctx;
	if (level < RAMPS_LOG_INFO) {
		cli_error("bench", "%s", line);
		return;
	}
	pthread_mutex_lock(&device_lock);
	if (!*device)
		snprintf(device, sizeof(device), "%s", line);
	pthread_mutex_unlock(&device_lock);
}

void bench_report_listen(void)
{
	ramps_set_log(keep_log, NULL, RAMPS_LOG_INFO);
}

const char *bench_report_device(void)
{
	return device;
}

const char *bench_report_cores(char *buf, size_t len_bytes)
{
	uint32_t cores[CPU_SETSIZE], count = 0;
	cpu_set_t set;
	char *text;

	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof(set), &set);
	for (uint32_t i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			cores[count++] = i;
	text = cli_text_ranks(cores, count, 8);
	snprintf(buf, len_bytes, "%s", text);
	free(text);
	return buf;
}

static void head_cores(const struct bench_options *options)
{
	char cores[128];

	bench_report_cores(cores, sizeof(cores));
	if (!options->cores)
		printf(" Cores           : any of %s\n", cores);
	else if (options->self)
		printf(" Cores           : %s for the server, then the workers, in turn\n",
		       options->cores);
	else
		printf(" Cores           : %s for the workers, in turn\n", options->cores);
}

static void head_stamps(const struct bench_run *run)
{
	if (run->clock.counter)
		printf(" Time stamps     : TSC of %.0f MHz, %.1f ns each%s\n", run->clock.per_us,
		       run->clock.cost / run->clock.per_us * 1e3,
		       run->test->latency ? ", taken off" : "");
	else
		printf(" Time stamps     : clock_gettime(), %.1f ns each%s\n", run->clock.cost,
		       run->test->latency ? ", taken off" : "");
}

static void head_columns(const struct bench_run *run)
{
	const char *unit = run->options->cycles ? "cycles" : "usec";

	if (!run->test->latency) {
		const char *rate = run->options->gbits ? "Gb" : "MB";

		printf(" #bytes     #iterations    BW peak[%s/sec]    BW average[%s/sec]   MsgRate[Mpps]\n",
		       rate, rate);
	} else if (run->options->duration > 0) {
		printf(" #bytes        #iterations       t_avg[%s]    tps average    t_min[%s]"
		       "    t_max[%s]  t_typical[%s]    t_stdev[%s]   99%% percentile[%s]"
		       "   99.9%% percentile[%s]   99.99%% percentile[%s]   ops/sample\n",
		       unit, unit, unit, unit, unit, unit, unit, unit);
	} else {
		printf(" #bytes #iterations    t_min[%s]    t_max[%s]  t_typical[%s]    t_avg[%s]    t_stdev[%s]"
		       "   99%% percentile[%s]   99.9%% percentile[%s]   99.99%% percentile[%s]   ops/sample\n",
		       unit, unit, unit, unit, unit, unit, unit, unit);
	}
}

const char *bench_report_verbs(const char *before, const char *otherwise)
{
	static char value[64];
	const char *at = strstr(device, before);

	if (!at)
		return otherwise;
	at += strlen(before);
	snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, ", "), at);
	return value;
}

static void head_fabric(const struct bench_run *run)
{
	unsigned long long qps = (unsigned long long)run->options->qps;

	if (!run->options->verbs) {
		printf(" Dual-port       : OFF\t\tDevice         : none\n"
		       " Number of qps   : %llu\t\tTransport type : shared memory\n"
		       " Connection type : none\t\tUsing SRQ      : OFF\n",
		       qps);
		return;
	}
	printf(" Dual-port       : OFF\t\tDevice         : %s\n",
	       bench_report_verbs("RDMA device ", "?"));
	printf(" Number of qps   : %llu\t\tTransport type : RDMA\n"
	       " Connection type : RC\t\tUsing SRQ      : OFF\n",
	       qps);
	printf(" Mtu             : %s[B]\n", bench_report_verbs("MTU ", "?"));
	printf(" GID index       : %s\n", bench_report_verbs("GID ", "none"));
	printf(" rdma_cm QPs\t : ON\n");
	printf(" Fabric          : %s\n", *device ? device : "verbs");
}

static void head_test(const struct bench_run *run)
{
	static const char *const patterns[] = { "one word", "stride of 8 bytes",
						"stride of 64 bytes", "random" };
	const struct bench_options *options = run->options;
	char size[CLI_TEXT_BYTES];

	printf(" TX depth        : %llu\n", (unsigned long long)run->depth);
	if (run->list > 1)
		printf(" Post List       : %llu\n", (unsigned long long)run->list);
	if (!run->test->latency)
		printf(" CQ Moderation   : %llu\n", (unsigned long long)run->cq_mod);
	if (run->test->adds && options->pattern == BENCH_ONE)
		printf(" Adds            : to one word\n");
	else if (run->test->adds)
		printf(" Adds            : %s, over %s\n", patterns[options->pattern],
		       cli_text_size(size, bench_span(options)));
	if (run->test->pushes)
		printf(" Push waits for  : %s\n", options->level == RAMPS_APPLIED ? "applied" : "landed");
	if (run->steps)
		printf(" Staleness       : %llu\n", (unsigned long long)options->staleness);
	printf(" Workers         : %u\n", options->workers);
}

void bench_report_head(const struct bench_run *run)
{
	char name[64] = "?";

	if (run->options->output != BENCH_ALL)
		return;
	gethostname(name, sizeof(name) - 1);
	printf(LINE "                    %s\n", run->test->title);
	head_fabric(run);
	head_test(run);
	head_cores(run->options);
	head_stamps(run);
	printf(LINE " local address: %s PID %d\n remote address: %s\n" LINE, name, (int)getpid(),
	       run->address);
	head_columns(run);
	fflush(stdout);
}

/* %-7.2f, with more digits where two decimals say little. */
static const char *digits(char buf[32], double value)
{
	int decimals = value >= 10 ? 2 : value >= 1 ? 3 : value >= 0.1 ? 4 : 5;

	snprintf(buf, 32, "%-7.*f", value > 0 ? decimals : 2, value);
	return buf;
}

static void print_samples(const struct bench_run *run, const struct bench_row *row)
{
	const double *samples = row->raw ? row->raw : row->samples;

	if (!run->options->histogram && !row->raw)
		return;
	printf("#, %s\n", run->options->cycles ? "cycles" : "usec");
	for (size_t i = 0; i < row->stats.count; i++)
		printf("%zu, %g\n", i + 1, samples[i]);
	printf(LINE);
	head_columns(run);
}

static void row_latency(const struct bench_run *run, const struct bench_row *row)
{
	const struct base_stats *s = &row->stats;
	char t[8][32];

	digits(t[0], s->least);
	digits(t[1], s->most);
	digits(t[2], s->median);
	digits(t[3], row->mean);
	digits(t[4], s->deviation);
	digits(t[5], s->p99);
	digits(t[6], s->p999);
	digits(t[7], s->p9999);
	print_samples(run, row);
	if (row->timed)
		printf(" %-7llu       %-10llu       %s        %-7.2f        %s        %s      %s  \t%s\t\t%s\t\t%s\t\t%s\t\t%llu\n",
		       (unsigned long long)row->bytes, (unsigned long long)row->iters, t[3],
		       row->per_second, t[0], t[1], t[2], t[4], t[5], t[6], t[7],
		       (unsigned long long)row->batch);
	else
		printf(" %-7llu %llu          %s        %s      %s  \t       %s     \t%s\t\t%s \t\t%s\t\t%s\t\t%llu\n",
		       (unsigned long long)row->bytes, (unsigned long long)row->iters, t[0], t[1],
		       t[2], t[3], t[4], t[5], t[6], t[7], (unsigned long long)row->batch);
}

/* --output: the one figure and nothing else. */
static void print_one(const struct bench_run *run, const struct bench_row *row)
{
	double value = run->options->output == BENCH_LATENCY   ? row->mean :
		       run->options->output == BENCH_BANDWIDTH ? row->average :
								 row->rate;

	printf("%f\n", value);
}

void bench_report_row(const struct bench_run *run, const struct bench_row *row)
{
	if (run->options->output != BENCH_ALL)
		print_one(run, row);
	else if (run->test->latency)
		row_latency(run, row);
	else
		printf(" %-7llu    %-10llu       %-7.2f            %-7.2f\t\t   %-7.6f\n",
		       (unsigned long long)row->bytes, (unsigned long long)row->iters, row->peak,
		       row->average, row->rate);
	fflush(stdout);
}

void bench_report_tail(const struct bench_run *run)
{
	if (run->options->output == BENCH_ALL)
		printf(LINE);
	fflush(stdout);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report as JSON: perftest's names, in quotes, and nothing but what JSON has. "results" is the last
 * row, as in perftest; "rows" are all of them, in full precision and with what perftest does not have.
 */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "bench.h"
#include "cli.h"

/* jansson takes no infinities: there is none in a good result. */
static void set_real(json_t *object, const char *key, double value)
{
	json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void set_count(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
	json_t *text = json_string(value);

	json_object_set_new(object, key, text ? text : json_string("?"));
}

static json_t *about_test(const struct bench_run *run)
{
	static const char *const patterns[] = { "one", "stride8", "stride64", "random" };
	const struct bench_options *options = run->options;
	json_t *info = json_object();
	char text[256] = "?";

	set_text(info, "test", run->test->name);
	set_text(info, "Dual_port", "OFF");
	set_text(info, "Device", options->verbs ? bench_report_verbs("RDMA device ", "?") : "none");
	set_count(info, "Number_of_qps", options->qps);
	set_text(info, "Transport_type", options->verbs ? "RDMA" : "shared memory");
	set_text(info, "Connection_type", options->verbs ? "RC" : "none");
	set_text(info, "Using_SRQ", "OFF");
	set_count(info, "TX_depth", run->depth);
	if (!run->test->latency)
		set_count(info, "CQ_Moderation", run->cq_mod);
	set_count(info, "Post_List", run->list);
	set_count(info, "Workers", options->workers);
	set_text(info, "Server", run->address);
	if (options->verbs) {
		set_text(info, "Mtu", bench_report_verbs("MTU ", "?"));
		set_text(info, "GID_index", bench_report_verbs("GID ", "none"));
		set_text(info, "Fabric", bench_report_device());
	}
	if (!gethostname(text, sizeof(text) - 1))
		set_text(info, "Host", text);
	set_text(info, "Cores",
		 options->cores ? options->cores : bench_report_cores(text, sizeof(text)));
	set_text(info, "Time_stamps", run->clock.counter ? "TSC" : "clock_gettime");
	set_real(info, "Time_stamp_ns", run->clock.cost / run->clock.per_us * 1e3);
	set_text(info, "Unit",
		 !run->test->latency ? options->gbits ? "Gb/s" : "MiB/s" :
		 options->cycles     ? "cycles" :
				       "usec");
	if (run->test->adds) {
		set_text(info, "Pattern", patterns[options->pattern]);
		set_count(info, "Span", bench_span(options));
	}
	if (run->test->pushes)
		set_text(info, "Level", options->level == RAMPS_APPLIED ? "applied" : "landed");
	return info;
}

static json_t *about_row(const struct bench_run *run, const struct bench_row *row)
{
	json_t *object = json_object();

	set_count(object, "MsgSize", row->bytes);
	set_count(object, "n_iterations", row->iters);
	if (!run->test->latency) {
		set_real(object, "BW_peak", row->peak);
		set_real(object, "BW_average", row->average);
		set_real(object, "MsgRate", row->rate);
		return object;
	}
	set_real(object, "t_min", row->stats.least);
	set_real(object, "t_max", row->stats.most);
	set_real(object, "t_typical", row->stats.median);
	set_real(object, "t_avg", row->mean);
	set_real(object, "t_stdev", row->stats.deviation);
	set_real(object, "percentile_99", row->stats.p99);
	set_real(object, "percentile_99.9", row->stats.p999);
	set_real(object, "percentile_99.99", row->stats.p9999);
	set_real(object, "tps_average", row->per_second);
	set_count(object, "n_samples", row->stats.count);
	set_count(object, "ops_per_sample", row->batch);
	return object;
}

static int write_text(FILE *file, const void *what)
{
	return json_dumpf(what, file, JSON_INDENT(2)) || fputc('\n', file) == EOF;
}

int bench_json_write(const struct bench_run *run, const struct bench_row *rows, size_t count)
{
	json_t *all = json_object(), *list = json_array();
	int ret;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, about_row(run, &rows[i]));
	json_object_set_new(all, "test_info", about_test(run));
	json_object_set_new(all, "results", about_row(run, &rows[count - 1]));
	json_object_set_new(all, "rows", list);
	ret = cli_output_write("bench", run->options->json_file, write_text, all);
	json_decref(all);
	return ret ? CLI_FAILED : CLI_OK;
}

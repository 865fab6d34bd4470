/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps train: options, and the order of things. Everything that can be found wrong before training
 * is: data and outputs first, then the job.
 */
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "api/api.h"
#include "cli.h"
#include "train.h"

#define DEFAULT_DATA   "/usr/share/datasets/fashion-mnist"
#define DEFAULT_HIDDEN 128
#define MOST_HIDDEN    65536
#define AT_ONCE_US     500000

enum {
	KEY_MODEL = 256,
	KEY_DATA,
	KEY_SYNC,
	KEY_EPOCHS,
	KEY_BATCH,
	KEY_RATE,
	KEY_SCHEDULE,
	KEY_SEED,
	KEY_SAVE,
	KEY_PLOT,
	KEY_LOG,
};

static const struct argp_option options[] = {
	{ "model", KEY_MODEL, "softmax|mlp[:HIDDEN]", 0, "what to train (softmax)", 0 },
	{ "data", KEY_DATA, "DIR", 0, "folder with the four IDX files, plain or .gz", 0 },
	{ "sync", KEY_SYNC, "bsp|async|ssp:S", 0,
	  "steps of all workers together (bsp), of each alone, or at most S apart", 0 },
	{ "epochs", KEY_EPOCHS, "N", 0, "passes over the data (10)", 0 },
	{ "batch", KEY_BATCH, "N", 0, "samples of a step, of all workers together (128)", 0 },
	{ "rate", KEY_RATE, "X", 0, "learning rate (0.2 for softmax, 0.3 for mlp)", 0 },
	{ "schedule", KEY_SCHEDULE, "constant|linear|cosine", 0, "of the rate (linear, to 0)", 0 },
	{ "seed", KEY_SEED, "N", 0, "of the order of samples and the starting weights (1)", 0 },
	{ "save", KEY_SAVE, "FILE", 0, "write the weights as safetensors", 0 },
	{ "plot", KEY_PLOT, "FILE.svg", 0, "draw loss and accuracy over time", 0 },
	{ "log", KEY_LOG, "FILE.csv", 0, "write what the plot shows", 0 },
	{ "quiet", 'q', NULL, 0, "print the last line only", 0 },
	{ 0 },
};

static void parse_model(struct argp_state *state, struct train_options *to, const char *text)
{
	if (!strcmp(text, "softmax")) {
		to->kind = TRAIN_SOFTMAX;
	} else if (!strcmp(text, "mlp")) {
		to->kind = TRAIN_MLP;
	} else if (!strncmp(text, "mlp:", 4)) {
		to->kind = TRAIN_MLP;
		to->hidden = (uint32_t)cli_argp_count(state, "--model mlp", text + 4, MOST_HIDDEN);
	} else {
		argp_error(state, "--model: '%s' is none of softmax, mlp and mlp:HIDDEN", text);
	}
}

static void parse_sync(struct argp_state *state, struct train_options *to, const char *text)
{
	uint64_t staleness = 0;

	if (!strcmp(text, "bsp")) {
		to->sync = TRAIN_BSP;
	} else if (!strcmp(text, "async")) {
		to->sync = TRAIN_ASYNC;
	} else if (!strncmp(text, "ssp:", 4) && !cli_parse_count(text + 4, 0, 1000000, &staleness)) {
		to->sync = TRAIN_SSP;
		to->staleness = (uint32_t)staleness;
	} else {
		argp_error(state, "--sync: '%s' is none of bsp, async and ssp:S, S the steps apart", text);
	}
}

static void parse_schedule(struct argp_state *state, struct train_options *to, const char *text)
{
	if (!strcmp(text, "constant"))
		to->schedule = TRAIN_CONSTANT;
	else if (!strcmp(text, "linear"))
		to->schedule = TRAIN_LINEAR;
	else if (!strcmp(text, "cosine"))
		to->schedule = TRAIN_COSINE;
	else
		argp_error(state, "--schedule: '%s' is none of constant, linear and cosine", text);
}

static void parse_rate(struct argp_state *state, struct train_options *to, const char *text)
{
	char *end;

	to->rate = strtof(text, &end);
	if (end == text || *end || !(to->rate > 0) || isinf(to->rate))
		argp_error(state, "--rate: '%s' is not a number above 0", text);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct train_options *to = state->input;

	switch (key) {
	case KEY_MODEL:
		parse_model(state, to, arg);
		return 0;
	case KEY_DATA:
		to->data = arg;
		return 0;
	case KEY_SYNC:
		parse_sync(state, to, arg);
		return 0;
	case KEY_EPOCHS:
		to->epochs = (uint32_t)cli_argp_count(state, "--epochs", arg, 100000);
		return 0;
	case KEY_BATCH:
		to->batch = (uint32_t)cli_argp_count(state, "--batch", arg, 1000000);
		return 0;
	case KEY_RATE:
		parse_rate(state, to, arg);
		return 0;
	case KEY_SCHEDULE:
		parse_schedule(state, to, arg);
		return 0;
	case KEY_SEED:
		if (cli_parse_count(arg, 0, UINT64_MAX / 2, &to->seed))
			argp_error(state, "--seed: '%s' is not a number", arg);
		return 0;
	case KEY_SAVE:
		to->save = arg;
		return 0;
	case KEY_PLOT:
		to->plot = arg;
		return 0;
	case KEY_LOG:
		to->log = arg;
		return 0;
	case 'q':
		to->quiet = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	options,
	parse_option,
	"",
	"Train a model on images, as one worker of a job: alone, or started by 'ramps run'.\v"
	"Without RAMPS_SERVERS the worker is alone and brings its own server. One Ctrl-C ends "
	"the training after this step and saves what was asked for, a second one at once.",
	NULL,
	NULL,
	NULL,
};

/* What a signal handler has to know. */
static struct ramps_worker *volatile interrupted;
static volatile sig_atomic_t alone; /* the server is ours, and is to be ended before this process */
static volatile sig_atomic_t speaks; /* rank 0, to a terminal or not */

enum {
	IN_FILE = 1,
	ON_TERMINAL,
};

static void on_interrupt(int number)
{
	static const char line[] = "\nramps train: stopping after this step; again to stop at once\n";
	size_t skip = speaks == ON_TERMINAL ? 0 : 1; /* there a line of progress is open */
	const struct itimerval soon = { .it_value.tv_usec = AT_ONCE_US };
	int saved_errno = errno;

	(void)number;
	train_stop++;
	if (!interrupted && !alone)
		_exit(CLI_INTERRUPTED);
	if (train_stop == 1 && train_running) {
		if (speaks && write(STDERR_FILENO, line + skip, sizeof(line) - 1 - skip) < 0)
			speaks = 0;
	} else {
		/* What waits returns, and all is closed; what computes is given a moment. */
		if (interrupted)
			ramps_worker_interrupt(interrupted);
		setitimer(ITIMER_REAL, &soon, NULL);
	}
	errno = saved_errno;
}

static void on_alarm(int number)
{
	(void)number;
	_exit(CLI_INTERRUPTED);
}

static void catch_interrupts(void)
{
	struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART }, hangup;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* Under nohup(1) it stays ignored. */
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Before there is a job, so that nobody waits for who finds it. Rank 0 alone makes files. */
static int outputs_check(const struct train_options *to)
{
	const char *const paths[] = { to->save, to->plot, to->log };
	uint32_t rank = 0, workers;

	if (base_end("train", api_rank(&rank, &workers)) <= 0)
		rank = 0;
	for (int i = 0; i < 3; i++) {
		if (train_output_check(paths[i], rank == 0))
			return -1;
		for (int k = 0; k < i; k++) {
			if (paths[i] && paths[k] && !strcmp(paths[i], paths[k])) {
				cli_error("train",
					  "%s is to hold two outputs: give each a name of its own",
					  paths[i]);
				return -1;
			}
		}
	}
	return 0;
}

static int outputs_write(const struct train_options *to, const struct train_model *model,
			 const struct train_record *record, const struct ramps_worker_info *info)
{
	uint64_t steps = record->count ? record->points[record->count - 1].step : 0;
	char shape[64], title[200];
	int ret = 0;

	if (model->hidden)
		snprintf(shape, sizeof(shape), "%u-%u-%u", model->inputs, model->hidden, model->classes);
	else
		snprintf(shape, sizeof(shape), "%u-%u", model->inputs, model->classes);
	snprintf(title, sizeof(title), "%s %s, %u worker%s, %u server%s, %s, batch %u", model->name,
		 shape, info->workers, info->workers == 1 ? "" : "s", info->servers,
		 info->servers == 1 ? "" : "s", train_sync_names[to->sync], to->batch);
	if (to->save && train_save_write(to->save, model, steps))
		ret = -1;
	if (to->log && train_log_write(to->log, record))
		ret = -1;
	if (to->plot && train_plot_write(to->plot, record, title))
		ret = -1;
	return ret;
}

static int join(struct ramps_worker **worker, struct ramps_worker_info *info)
{
	struct ramps_worker_options how = RAMPS_WORKER_OPTIONS_INIT;
	int ret;

	if (!getenv("RAMPS_SERVERS")) {
		how.servers = "embed:";
		alone = 1;
	}
	ret = ramps_worker_join(&how, worker);
	if (!ret)
		ret = ramps_worker_info(*worker, info);
	if (ret)
		return train_fail("joining the job");
	if (info->rank == 0)
		speaks = isatty(STDOUT_FILENO) ? ON_TERMINAL : IN_FILE;
	interrupted = *worker;
	return 0;
}

static int train(const struct train_options *to, const struct train_data *data)
{
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_worker *worker = NULL;
	struct train_record record = { 0 };
	struct train_model model = { 0 };
	int ret = join(&worker, &info);

	if (!ret && !train_stop)
		ret = train_run(worker, to, data, &model, &record);
	else
		ret = -1;
	if (ret >= 0 && info.rank == 0)
		ret = outputs_write(to, &model, &record, &info);
	train_model_close(&model);
	free(record.points);
	interrupted = NULL;
	ramps_worker_close(worker);
	alone = 0;
	if (ret < 0 && (train_stop > 1 || (train_stop && !train_running)))
		return CLI_INTERRUPTED;
	return ret < 0 ? CLI_FAILED : CLI_OK;
}

int cmd_train(int argc, char **argv)
{
	struct train_options to = {
		.hidden = DEFAULT_HIDDEN,
		.data = DEFAULT_DATA,
		.epochs = 10,
		.batch = 128,
		.schedule = TRAIN_LINEAR,
		.seed = 1,
	};
	struct train_data data = { 0 };
	int status = CLI_FAILED;

	argp_parse(&parser, argc, argv, 0, NULL, &to);
	if (to.rate == 0)
		to.rate = to.kind == TRAIN_SOFTMAX ? 0.2f : 0.3f;
	catch_interrupts();
	if (!outputs_check(&to) && !train_data_load(to.data, &data))
		status = train(&to, &data);
	train_data_free(&data);
	return status;
}

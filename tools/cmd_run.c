/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps run: options, and where it runs.
 *
 * By itself it starts servers and workers here. Inside mpirun or srun, which start it once for each
 * rank, it starts the one worker of that rank, and for rank 0 the servers, under names that all
 * ranks derive from the launcher's job. With RAMPS_SERVERS in the environment it starts no servers.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "cli.h"
#include "run.h"
#include "stat.h"

#define MOST_WORKERS 4096u

enum {
	KEY_NO_PREFIX = 256,
	KEY_OUTPUT_DIR,
	KEY_DRY_RUN,
	KEY_JOB,
	KEY_ARENA,
	KEY_SLOTS,
	KEY_ON_DEATH,
	KEY_LEASE,
	KEY_HOSTS,
	KEY_RSH,
};

static const struct argp_option argp_options[] = {
	{ "workers", 'n', "W", 0, "workers to start (1); not inside mpirun or srun", 0 },
	{ "servers", 's', "S", 0, "servers to start (1)", 0 },
	{ "no-prefix", KEY_NO_PREFIX, NULL, 0, "leave the workers' output as it is", 0 },
	{ "output-dir", KEY_OUTPUT_DIR, "DIR", 0, "write each one's output to files in DIR", 0 },
	{ "dry-run", KEY_DRY_RUN, NULL, 0, "show what would be started", 0 },
	{ "hosts", KEY_HOSTS, "FILE", 0, "run on the hosts of FILE, over verbs", 0 },
	{ "rsh", KEY_RSH, "COMMAND", 0, "what runs a command on a host (ssh)", 0 },
	{ "export", 'x', "NAME", 0, "send this variable too, beside RAMPS_*; again for more", 0 },
	{ "job", KEY_JOB, "NAME", 0, "name of the job (RAMPS_JOB, else default)", 0 },
	{ "arena", KEY_ARENA, "SIZE", 0, "as for ramps serve", 1 },
	{ "slots", KEY_SLOTS, "SIZE", 0, "as for ramps serve", 1 },
	{ "on-death", KEY_ON_DEATH, "fail|continue", 0, "as for ramps serve", 1 },
	{ "lease", KEY_LEASE, "SECONDS", 0, "as for ramps serve", 1 },
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct run_options *to = state->input;

	switch (key) {
	case 'n':
		to->workers = cli_argp_count(state, "-n", arg, MOST_WORKERS);
		return 0;
	case 's':
		to->servers = cli_argp_count(state, "-s", arg, CORE_MAX_SERVERS);
		return 0;
	case KEY_NO_PREFIX:
		to->no_prefix = true;
		return 0;
	case KEY_OUTPUT_DIR:
		to->output_dir = arg;
		return 0;
	case KEY_DRY_RUN:
		to->dry_run = true;
		return 0;
	case KEY_JOB:
		to->job = arg;
		return 0;
	case KEY_ARENA:
		to->arena = arg;
		return 0;
	case KEY_SLOTS:
		to->slots = arg;
		return 0;
	case KEY_ON_DEATH:
		to->on_death = arg;
		return 0;
	case KEY_LEASE:
		to->lease = arg;
		return 0;
	case KEY_HOSTS:
		to->hosts_file = arg;
		return 0;
	case KEY_RSH:
		to->rsh = arg;
		return 0;
	case 'x':
		to->hosts.exports = cli_grow(to->hosts.exports, to->hosts.export_count + 1,
					     sizeof(char *));
		to->hosts.exports[to->hosts.export_count++] = arg;
		return 0;
	case ARGP_KEY_ARGS:
		to->program = state->argv + state->next;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no program given: ramps run -n 4 -s 2 -- PROGRAM ARGUMENTS");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	argp_options,
	parse_option,
	"[--] PROGRAM [ARGUMENT...]",
	"Run a program as the workers of a job, with servers, on this machine or on those of a host file. The workers find "
	"RAMPS_SERVERS, RAMPS_JOB, RAMPS_KEY_FILE, RAMPS_RANK and RAMPS_WORKERS in their "
	"environment.\vThe first that fails ends all, and its status is the run's. Signals are "
	"passed on to the workers. Nothing is left behind.",
	NULL,
	NULL,
	NULL,
};

/* The key is for this run alone, in a directory that only this user reads. */
static int key_place(struct run *run)
{
	const char *under = getenv("TMPDIR");

	if (snprintf(run->private_dir, sizeof(run->private_dir), "%s/ramps-run.XXXXXX",
		     under ? under : "/tmp") < (int)sizeof(run->private_dir))
		return 0;
	cli_error("run", "TMPDIR is too long");
	*run->private_dir = '\0';
	return -1;
}

static int key_make(struct run *run)
{
	char path[300];
	int fd;

	run->key_bytes = RUN_KEY_BYTES;
	if (getrandom(run->key, run->key_bytes, 0) != run->key_bytes) {
		cli_error("run", "random bytes for the key: %s", strerror(errno));
		return -1;
	}
	if (run->hosts) /* it goes to the hosts, and is in no file here */
		return 0;
	if (key_place(run))
		return -1;
	if (!mkdtemp(run->private_dir)) {
		cli_error("run", "a directory for the key: %s: %s", run->private_dir, strerror(errno));
		*run->private_dir = '\0';
		return -1;
	}
	snprintf(path, sizeof(path), "%s/key", run->private_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, run->key, run->key_bytes) != run->key_bytes) {
		cli_error("run", "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		run_clean(run);
		return -1;
	}
	close(fd);
	return 0;
}

/* If nobody has joined, the program has no use for servers. */
int run_others(const struct run *run, uint32_t *absent)
{
	struct stat_sample *sample = NULL;
	int live = 0;

	*absent = 0;
	if (run->ranks == run->workers || !run->servers)
		return 0;
	if (stat_take(run->children[0].directory, &sample))
		return -1;
	for (uint32_t rank = 0; rank < sample->workers; rank++) {
		uint32_t state = core_state_of(sample->states[rank]);

		live += state == CORE_LIVE;
		*absent += state != CORE_LIVE && state != CORE_LEFT && state != CORE_DEAD;
	}
	stat_free(sample);
	return live;
}

/* Slurm's variables in a batch script are the script's; only srun starts ranks. */
static bool in_batch_script(void)
{
	return !getenv("RAMPS_RANK") && !getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMI_RANK") &&
	       getenv("SLURM_PROCID") && !getenv("SLURM_STEP_ID");
}

/* Who runs where: from the options, or from the launcher that started this. 0, or an exit status. */
static int ranks_take(struct run_options *options)
{
	int ret = in_batch_script() ? 0 : base_end("run", api_rank(&options->rank, &options->ranks));

	if (ret < 0) {
		cli_error("run", "%s", ramps_last_error()->text);
		return CLI_USAGE;
	}
	options->inside = ret > 0;
	if (options->inside && options->workers) {
		cli_error("run",
			  "-n %llu, but the launcher that started this says %u workers: leave out -n",
			  (unsigned long long)options->workers, options->ranks);
		return CLI_USAGE;
	}
	if (options->inside && options->rank >= options->ranks) {
		cli_error("run", "the launcher says rank %u of %u workers", options->rank, options->ranks);
		return CLI_USAGE;
	}
	if (!options->inside)
		options->ranks = options->workers ? (uint32_t)options->workers : 1;
	return 0;
}

/* With a host file: where all is to run. 0, or an exit status. */
static int hosts_take(struct run_options *options, struct run *run)
{
	struct run_hosts *hosts = &options->hosts;
	ssize_t length;

	if (!options->hosts_file) {
		if (!options->rsh)
			return CLI_OK;
		cli_error("run", "--rsh without --hosts: name the hosts");
		return CLI_USAGE;
	}
	if (options->inside) {
		cli_error("run", "--hosts inside a launcher, which has chosen the hosts");
		return CLI_USAGE;
	}
	if (run_hosts_read(hosts, options->hosts_file))
		return CLI_USAGE;
	hosts->rsh = run_words(options->rsh ? options->rsh : "ssh");
	length = readlink("/proc/self/exe", hosts->ramps, sizeof(hosts->ramps) - 1);
	if (length <= 0 || !hosts->rsh[0] || !getcwd(hosts->directory, sizeof(hosts->directory))) {
		cli_error("run", "%s", hosts->rsh[0] ? strerror(errno) : "--rsh says no command");
		return CLI_FAILED;
	}
	hosts->ramps[length] = '\0';
	if (hosts->servers)
		options->servers = hosts->servers;
	else
		hosts->list[0].servers = (uint32_t)options->servers;
	if (options->workers > hosts->workers || !hosts->workers) {
		cli_error("run", "-n %llu, but %s has room for %u workers: write workers=N behind a host",
			  (unsigned long long)options->workers, options->hosts_file, hosts->workers);
		return CLI_USAGE;
	}
	if (!options->workers)
		options->ranks = hosts->workers;
	run->hosts = hosts;
	return CLI_OK;
}

/* Two runs may have the same pid, in containers that share memory. */
static void id_make(struct run *run)
{
	uint32_t number = 0;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		number = (uint32_t)time(NULL);
	snprintf(run->id, sizeof(run->id), "%d-%08x", (int)getpid(), number);
}

/* For workers on other hosts: the key of servers that are there. */
static int key_read(struct run *run)
{
	const char *path = getenv("RAMPS_KEY_FILE");
	FILE *file;

	if (!run->hosts || !path)
		return 0;
	file = fopen(path, "re");
	if (file)
		run->key_bytes = (uint32_t)fread(run->key, 1, sizeof(run->key), file);
	if (!file || ferror(file) || !run->key_bytes) {
		cli_error("run", "RAMPS_KEY_FILE %s: %s", path,
			  run->key_bytes || !file ? strerror(errno) : "empty");
		if (file)
			fclose(file);
		return -1;
	}
	fclose(file);
	return 0;
}

/* What is made before anything is started, if not for show: a folder for output, and the key. */
static int places_make(const struct run_options *options, struct run *run)
{
	if (run->output_dir && !options->dry_run && mkdir(run->output_dir, 0777) && errno != EEXIST) {
		cli_error("run", "%s: %s", run->output_dir, strerror(errno));
		return -1;
	}
	if (options->inside)
		return 0;
	if (getenv("RAMPS_SERVERS"))
		return key_read(run);
	if (options->dry_run && run->hosts)
		return 0;
	return options->dry_run ? key_place(run) : key_make(run);
}

int cmd_run(int argc, char **argv)
{
	struct run_options options = { .servers = 1 };
	struct run run = { 0 };
	int status;

	argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &options);
	status = ranks_take(&options);
	if (!status && base_end("run", api_job(options.job, &options.job))) {
		cli_error("run", "%s", ramps_last_error()->text);
		status = CLI_USAGE;
	}
	if (!status)
		status = hosts_take(&options, &run);
	if (status)
		return status;
	run.prefix = !options.no_prefix;
	run.output_dir = options.output_dir;
	id_make(&run);
	run_signals_block(&run);
	if (places_make(&options, &run))
		return CLI_FAILED;
	run_plan(&options, &run);
	if (options.dry_run)
		run_plan_show(&run);
	else
		status = run_loop(&run);
	run_plan_free(&run);
	run_hosts_free(&options.hosts);
	return status;
}

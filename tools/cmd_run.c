/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps run: options, and what is to be started.
 *
 * By itself it starts servers and workers here. Inside mpirun or srun, which start it once for each
 * rank, it starts the one worker of that rank, and for rank 0 the servers, under names that all
 * ranks derive from the launcher's job. With RAMPS_SERVERS in the environment it starts no servers.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "cli.h"
#include "run.h"
#include "shm/shm.h"
#include "stat.h"

#define MOST_WORKERS 4096u
#define KEY_BYTES    32u

struct options {
	uint64_t workers, servers;
	const char *job, *output_dir, *arena, *slots, *on_death;
	bool no_prefix, dry_run, inside; /* inside: a launcher started this for one rank */
	uint32_t rank, ranks;
	char **program;
};

enum {
	KEY_NO_PREFIX = 256,
	KEY_OUTPUT_DIR,
	KEY_DRY_RUN,
	KEY_JOB,
	KEY_ARENA,
	KEY_SLOTS,
	KEY_ON_DEATH,
};

static const struct argp_option argp_options[] = {
	{ "workers", 'n', "W", 0, "workers to start (1); not inside mpirun or srun", 0 },
	{ "servers", 's', "S", 0, "servers to start (1)", 0 },
	{ "no-prefix", KEY_NO_PREFIX, NULL, 0, "leave the workers' output as it is", 0 },
	{ "output-dir", KEY_OUTPUT_DIR, "DIR", 0, "write each one's output to files in DIR", 0 },
	{ "dry-run", KEY_DRY_RUN, NULL, 0, "show what would be started", 0 },
	{ "job", KEY_JOB, "NAME", 0, "name of the job (RAMPS_JOB, else default)", 0 },
	{ "arena", KEY_ARENA, "SIZE", 0, "as for ramps serve", 1 },
	{ "slots", KEY_SLOTS, "SIZE", 0, "as for ramps serve", 1 },
	{ "on-death", KEY_ON_DEATH, "fail|continue", 0, "as for ramps serve", 1 },
	{ 0 },
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *to = state->input;

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
	"Run a program as the workers of a job, with servers, on this machine. The workers find "
	"RAMPS_SERVERS, RAMPS_JOB, RAMPS_KEY_FILE, RAMPS_RANK and RAMPS_WORKERS in their "
	"environment.\vThe first that fails ends all, and its status is the run's. Signals are "
	"passed on to the workers. Nothing is left behind.",
	NULL,
	NULL,
	NULL,
};

static char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static char *text(const char *fmt, ...)
{
	va_list args;
	char *made;

	va_start(args, fmt);
	if (vasprintf(&made, fmt, args) < 0)
		cli_no_memory();
	va_end(args);
	return made;
}

/* What all ranks' processes of a launcher's job have in common, and no other job of this user here. */
static void job_tag(const struct options *options, const struct run *run, char *tag, size_t len_bytes)
{
	const char *id = getenv("PMIX_NAMESPACE"), *step = NULL;
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
	char parent[32];

	if (!options->inside) {
		snprintf(tag, len_bytes, "run-%s", run->id);
		return;
	}
	if (!id && getenv("SLURM_JOB_ID")) {
		id = getenv("SLURM_JOB_ID");
		step = getenv("SLURM_STEP_ID");
	}
	if (!id) {
		snprintf(parent, sizeof(parent), "p%d", (int)getppid());
		id = parent;
	}
	for (int i = 0; i < 2; i++)
		for (const char *at = i ? step : id; at && *at; at++)
			hash = (hash ^ (unsigned char)*at) * 0x100000001b3ull;
	snprintf(tag, len_bytes, "run-%016llx", (unsigned long long)hash);
}

static void server_plan(const struct options *options, const struct run *run, const char *address,
			uint32_t number, struct run_child *child)
{
	char **argv = cli_alloc(16, sizeof(*argv)), **set = cli_alloc(2, sizeof(*set));
	uint32_t n = 0;

	child->kind = RUN_SERVER;
	child->number = number;
	snprintf(child->name, sizeof(child->name), "server %u", number);
	argv[n++] = text("/proc/self/exe");
	argv[n++] = text("serve");
	argv[n++] = text("%s", address);
	argv[n++] = text("--fresh");
	argv[n++] = text("--job=%s", options->job);
	if (options->arena)
		argv[n++] = text("--arena=%s", options->arena);
	if (options->slots)
		argv[n++] = text("--slots=%s", options->slots);
	if (options->on_death)
		argv[n++] = text("--on-death=%s", options->on_death);
	child->argv = argv;
	set[0] = text("RAMPS_RUN=%s", run->id);
	child->environment = set;
}

static void worker_plan(const struct options *options, const struct run *run, const char *servers,
			uint32_t rank, struct run_child *child)
{
	char **set = cli_alloc(8, sizeof(*set));
	uint32_t n = 0;

	child->kind = RUN_WORKER;
	child->number = rank;
	snprintf(child->name, sizeof(child->name), "rank %u", rank);
	set[n++] = text("RAMPS_RUN=%s", run->id);
	set[n++] = text("RAMPS_SERVERS=%s", servers);
	set[n++] = text("RAMPS_JOB=%s", options->job);
	set[n++] = text("RAMPS_RANK=%u", rank);
	set[n++] = text("RAMPS_WORKERS=%u", options->ranks);
	if (*run->private_dir)
		set[n++] = text("RAMPS_KEY_FILE=%s/key", run->private_dir);
	child->argv = options->program;
	child->environment = set;
}

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
	unsigned char key[KEY_BYTES];
	char path[300];
	int fd;

	if (getrandom(key, sizeof(key), 0) != sizeof(key)) {
		cli_error("run", "random bytes for the key: %s", strerror(errno));
		return -1;
	}
	if (key_place(run))
		return -1;
	if (!mkdtemp(run->private_dir)) {
		cli_error("run", "a directory for the key: %s: %s", run->private_dir, strerror(errno));
		*run->private_dir = '\0';
		return -1;
	}
	snprintf(path, sizeof(path), "%s/key", run->private_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, key, sizeof(key)) != sizeof(key)) {
		cli_error("run", "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		run_clean(run);
		return -1;
	}
	close(fd);
	return 0;
}

/* Fills run->children. The servers' addresses are the job's, whether this process starts them or
 * not. */
static void plan(const struct options *options, struct run *run)
{
	char tag[RUN_NAME_BYTES], *servers = NULL;
	const char *given = getenv("RAMPS_SERVERS");
	bool starts = !given && (!options->inside || !options->rank);

	job_tag(options, run, tag, sizeof(tag));
	run->servers = starts ? (uint32_t)options->servers : 0;
	run->workers = options->inside ? 1 : options->ranks;
	run->ranks = options->ranks;
	run->children = cli_alloc(run->servers + run->workers, sizeof(*run->children));
	for (uint32_t i = 0; i < options->servers && !given; i++) {
		char *address = text("shm://%s-%u", tag, i), *before = servers;

		servers = before ? text("%s,%s", before, address) : text("%s", address);
		free(before);
		if (starts) {
			server_plan(options, run, address, i, &run->children[i]);
			shm_directory(address, run->children[i].directory,
				      sizeof(run->children[i].directory));
		}
		free(address);
	}
	for (uint32_t i = 0; i < run->workers; i++)
		worker_plan(options, run, given ? given : servers,
			    options->inside ? options->rank : i, &run->children[run->servers + i]);
	free(servers);
}

/* As a shell would read it. */
static void word_show(const char *word)
{
	if (*word && !strpbrk(word, " \t\n\"'`\\$&;|<>()*?[]#~{}!")) {
		printf(" %s", word);
		return;
	}
	fputs(" '", stdout);
	for (const char *at = word; *at; at++) {
		if (*at == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*at);
	}
	putchar('\'');
}

static void plan_show(const struct run *run)
{
	for (uint32_t i = 0; i < run->servers + run->workers; i++) {
		const struct run_child *child = &run->children[i];

		printf("%s:", child->name);
		for (char **set = child->environment; *set; set++)
			word_show(*set);
		if (child->kind == RUN_SERVER)
			fputs(" ramps", stdout);
		for (char **arg = child->argv + (child->kind == RUN_SERVER); *arg; arg++)
			word_show(*arg);
		putchar('\n');
	}
}

static void list_free(char **list)
{
	for (char **at = list; *at; at++)
		free(*at);
	free(list);
}

static void plan_free(struct run *run)
{
	for (uint32_t i = 0; i < run->servers + run->workers; i++) {
		list_free(run->children[i].environment);
		if (run->children[i].kind == RUN_SERVER)
			list_free(run->children[i].argv);
	}
	free(run->children);
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
static int ranks_take(struct options *options)
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

/* Two runs may have the same pid, in containers that share memory. */
static void id_make(struct run *run)
{
	uint32_t number = 0;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		number = (uint32_t)time(NULL);
	snprintf(run->id, sizeof(run->id), "%d-%08x", (int)getpid(), number);
}

/* What is made before anything is started, if not for show: a folder for output, and the key. */
static int places_make(const struct options *options, struct run *run)
{
	if (run->output_dir && !options->dry_run && mkdir(run->output_dir, 0777) && errno != EEXIST) {
		cli_error("run", "%s: %s", run->output_dir, strerror(errno));
		return -1;
	}
	if (options->inside || getenv("RAMPS_SERVERS"))
		return 0;
	return options->dry_run ? key_place(run) : key_make(run);
}

int cmd_run(int argc, char **argv)
{
	struct options options = { .servers = 1 };
	struct run run = { 0 };
	int status;

	argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &options);
	status = ranks_take(&options);
	if (!status && base_end("run", api_job(options.job, &options.job))) {
		cli_error("run", "%s", ramps_last_error()->text);
		status = CLI_USAGE;
	}
	if (status)
		return status;
	run.prefix = !options.no_prefix;
	run.output_dir = options.output_dir;
	id_make(&run);
	run_signals_block(&run);
	if (places_make(&options, &run))
		return CLI_FAILED;
	plan(&options, &run);
	if (options.dry_run)
		plan_show(&run);
	else
		status = run_loop(&run);
	plan_free(&run);
	return status;
}

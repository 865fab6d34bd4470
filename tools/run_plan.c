/* SPDX-License-Identifier: BSD-2-Clause */
/* ramps run: what is to be started, and --dry-run. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"
#include "shm/shm.h"

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
static void job_tag(const struct run_options *options, const struct run *run, char *tag, size_t len_bytes)
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

static void server_plan(const struct run_options *options, const struct run *run,
			const char *address, uint32_t number, struct run_child *child)
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
	if (options->lease)
		argv[n++] = text("--lease=%s", options->lease);
	child->argv = argv;
	set[0] = text("RAMPS_RUN=%s", run->id);
	child->environment = set;
}

/* On another host it chooses its port. */
static void server_address_set(struct run_child *child)
{
	const char *address = child->host->address;

	free(child->argv[2]);
	child->argv[2] = text(strchr(address, ':') ? "verbs://[%s]:0" : "verbs://%s:0", address);
}

static void worker_plan(const struct run_options *options, const struct run *run,
			const char *servers, uint32_t rank, struct run_child *child)
{
	char **set = cli_alloc(8, sizeof(*set));
	uint32_t n = 0;

	child->kind = RUN_WORKER;
	child->number = rank;
	snprintf(child->name, sizeof(child->name), "rank %u", rank);
	set[n++] = text("RAMPS_RUN=%s", run->id);
	if (servers)
		set[n++] = text("RAMPS_SERVERS=%s", servers);
	set[n++] = text("RAMPS_JOB=%s", options->job);
	set[n++] = text("RAMPS_RANK=%u", rank);
	set[n++] = text("RAMPS_WORKERS=%u", options->ranks);
	if (*run->private_dir && !run->hosts)
		set[n++] = text("RAMPS_KEY_FILE=%s/key", run->private_dir);
	child->argv = options->program;
	child->environment = set;
}

/* Fills run->children. The servers' addresses are the job's, whether this process starts them or
 * not. */
void run_plan(const struct run_options *options, struct run *run)
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

		if (run->hosts) {
			server_plan(options, run, "", i, &run->children[i]);
			free(address);
			continue;
		}
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
	run_hosts_place(run);
	for (uint32_t i = 0; run->hosts && i < run->servers; i++)
		server_address_set(&run->children[i]);
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

void run_plan_show(const struct run *run)
{
	for (uint32_t i = 0; i < run->servers + run->workers; i++) {
		const struct run_child *child = &run->children[i];

		printf("%s:", child->name);
		for (char **word = child->rsh; word && *word; word++)
			word_show(*word);
		if (child->rsh)
			fputs(" <<", stdout);
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

void run_plan_free(struct run *run)
{
	for (uint32_t i = 0; i < run->servers + run->workers; i++) {
		list_free(run->children[i].environment);
		free(run->children[i].rsh);
		if (run->children[i].kind == RUN_SERVER)
			list_free(run->children[i].argv);
	}
	free(run->children);
}

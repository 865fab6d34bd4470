/* SPDX-License-Identifier: BSD-2-Clause */
/* The `ramps` command: finds the subcommand and runs it. */
#include <argp.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "cli.h"

struct command {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
	{ "run", "start servers and workers of a job, here or on hosts", cmd_run },
	{ "train", "train a model on images, as a worker of a job", cmd_train },
	{ "serve", "run a server until SIGTERM or SIGINT", cmd_serve },
	{ "bench", "measure latency and bandwidth, as perftest does", cmd_bench },
	{ "stat", "show what servers hold and their workers do", cmd_stat },
	{ "doctor", "say whether this node is fit, and what mends it", cmd_doctor },
	{ "agent", NULL, cmd_agent }, /* for ramps run alone */
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
	fputs("Usage: ramps COMMAND [OPTION...]\n\n", out);
	for (size_t i = 0; i < COMMANDS && commands[i].summary; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fputs("\n'ramps COMMAND --help' lists a command's options, 'ramps --version' says the version.\n",
	      out);
}

/* Letters to insert, delete or replace to make b of a. */
static size_t distance(const char *a, const char *b)
{
	size_t row[33], len = strlen(b);

	if (strlen(a) > 32 || len > 32)
		return SIZE_MAX;
	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (; *a; a++) {
		size_t diagonal = row[0]++;

		for (size_t j = 1; j <= len; j++) {
			size_t best = diagonal + (*a != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[len];
}

static int unknown(const char *name)
{
	const struct command *nearest = NULL;
	size_t least = 4;

	for (size_t i = 0; i < COMMANDS && commands[i].summary; i++) {
		size_t d = distance(name, commands[i].name);

		if (d < least && d < strlen(commands[i].name) - 1) {
			least = d;
			nearest = &commands[i];
		}
	}
	if (nearest)
		cli_error("", "no command '%s'; did you mean 'ramps %s'?", name, nearest->name);
	else
		cli_error("", "no command '%s'; 'ramps --help' lists the commands", name);
	return CLI_USAGE;
}

/* What a subcommand opens must not become its stdin, stdout or stderr. */
static void hold_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
			exit(CLI_FAILED);
}

static int finish(void)
{
	if (fflush(stdout) || ferror(stdout)) {
		cli_error("", "can't write to stdout: %m");
		return CLI_FAILED;
	}
	return CLI_OK;
}

static int run(const struct command *command, int argc, char **argv)
{
	static char name[32], version[32];

	snprintf(name, sizeof(name), "ramps %s", command->name);
	snprintf(version, sizeof(version), "ramps %s", ramps_version());
	argp_program_version = version;
	argp_err_exit_status = CLI_USAGE;
	argv[0] = name;
	return command->run(argc, argv);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	hold_standard_descriptors();
	if (!strcmp(name, "help") && argc > 2) { /* "ramps help X" is "ramps X --help" */
		static char option[] = "--help";

		name = argv[2];
		argv[1] = argv[2];
		argv[2] = option;
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			return run(&commands[i], argc - 1, argv + 1);
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		printf("ramps %s\n", ramps_version());
		return finish();
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_help(stdout);
		return finish();
	}
	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	return unknown(name);
}

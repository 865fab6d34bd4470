/* SPDX-License-Identifier: BSD-2-Clause */
/* What the subcommands of `ramps` share: exit statuses, parsing of options, printing for people. */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_status {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_INTERRUPTED = 130, /* as a shell says of SIGINT */
};

#define CLI_TEXT_BYTES 32 /* holds what the cli_text functions write */

int cmd_agent(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/* One line "ramps COMMAND: ..." to stderr. */
void cli_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Writes a file by write(), which returns 0 or sets errno: beside its place, then renamed. check() says
 * whether that is possible, also by making it where `make`; path may be NULL there. 0, or -1 and a line on
 * stderr.
 */
int cli_output_check(const char *command, const char *path, bool make);
int cli_output_write(const char *command, const char *path, int (*write)(FILE *, const void *),
		     const void *what);

/* malloc, calloc and the like for a program that can only give up: end it when there is no memory. */
void *cli_alloc(size_t count, size_t size);
void *cli_grow(void *old, size_t count, size_t size);
void cli_no_memory(void) __attribute__((noreturn));

/* A size above 0: digits, then nothing, K, M, G or T (of 1024), "KiB", "B" and so on. -EINVAL, -ERANGE. */
int cli_parse_size(const char *text, uint64_t *bytes);

/* A decimal number of least .. most. -EINVAL, -ERANGE. */
int cli_parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *value);

/* An option's number of 1 .. most; ends the program with a line of usage where text is none. */
struct argp_state;
uint64_t cli_argp_count(struct argp_state *state, const char *option, const char *text, uint64_t most);

/* Seconds, "0.5", of 0.001 .. 86400. -EINVAL, -ERANGE. */
int cli_parse_seconds(const char *text, double *seconds);

/* "64 KiB", "1.50 GiB"; "950 /s", "12.3 k/s", negative: "-". Both return buf, of CLI_TEXT_BYTES. */
const char *cli_text_size(char *buf, uint64_t bytes);
const char *cli_text_rate(char *buf, double per_second);

/* "3, 7-9" of ascending numbers; "..." after `most` ranges. "" of none. The caller frees it. */
char *cli_text_ranks(const uint32_t *ranks, uint32_t count, uint32_t most);

/* Whether the letter is one of perftest's for the verbs fabric: then RAMPS_VERBS says so from now on. */
bool cli_verbs_letter(int letter, const char *value);

/*
 * Aligned columns. A head is "<NAME" or ">NAME", for left and right, and ends with a tab unless it is the
 * last; rows have a tab between cells. The longest cell makes a column's width.
 */
struct cli_columns;

struct cli_columns *cli_columns_open(const char *heads);
void cli_columns_row(struct cli_columns *columns, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void cli_columns_close(struct cli_columns *columns, FILE *out); /* prints and frees */

#endif

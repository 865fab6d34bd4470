/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 16

void cli_error(const char *command, const char *fmt, ...)
{
	char line[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	line[strcspn(line, "\n")] = '\0';
	fprintf(stderr, "ramps%s%s: %s\n", *command ? " " : "", command, line);
}

void cli_no_memory(void)
{
	cli_error("", "out of memory");
	exit(CLI_FAILED);
}

void *cli_alloc(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		cli_no_memory();
	return memory;
}

void *cli_grow(void *old, size_t count, size_t size)
{
	void *memory = reallocarray(old, count, size);

	if (!memory)
		cli_no_memory();
	return memory;
}

int cli_parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	unsigned long long parsed;
	char *end;

	if (!*text || strspn(text, "0123456789") != strlen(text))
		return -EINVAL;
	errno = 0;
	parsed = strtoull(text, &end, 10);
	if (errno || parsed < least || parsed > most)
		return -ERANGE;
	*value = parsed;
	return 0;
}

int cli_parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	size_t digits = strspn(text, "0123456789");
	const char *rest = text + digits;
	unsigned int shift = 0;
	char number[24];
	uint64_t value;
	int ret;

	if (!digits)
		return -EINVAL;
	if (digits >= sizeof(number))
		return -ERANGE;
	memcpy(number, text, digits);
	number[digits] = '\0';
	if (*rest && strchr(units, *rest & ~0x20)) {
		shift = 10 * (unsigned int)(strchr(units, *rest & ~0x20) - units + 1);
		rest++;
	}
	/* "KB" means 1000 to some: it is refused. */
	if (*rest && strcmp(rest, shift ? "iB" : "B") != 0)
		return -EINVAL;
	ret = cli_parse_count(number, 1, UINT64_MAX >> shift, &value);
	if (!ret)
		*bytes = value << shift;
	return ret;
}

int cli_parse_seconds(const char *text, double *seconds)
{
	double value;

	if (!*text || strspn(text, "0123456789.") != strlen(text) || strcmp(text, ".") == 0 ||
	    strchr(text, '.') != strrchr(text, '.'))
		return -EINVAL;
	value = strtod(text, NULL);
	if (value < 0.001 || value > 86400)
		return -ERANGE;
	*seconds = value;
	return 0;
}

/* Three digits, none where the value is whole. */
static const char *scaled(char *buf, double value, const char *unit)
{
	int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;

	if (value >= 1e15)
		snprintf(buf, CLI_TEXT_BYTES, "%.3g %s", value, unit);
	else if (value == (double)(uint64_t)value)
		snprintf(buf, CLI_TEXT_BYTES, "%.0f %s", value, unit);
	else
		snprintf(buf, CLI_TEXT_BYTES, "%.*f %s", decimals, value, unit);
	return buf;
}

const char *cli_text_size(char *buf, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	size_t i = 0;

	while (value >= 1024 && i + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		i++;
	}
	return scaled(buf, value, units[i]);
}

const char *cli_text_rate(char *buf, double per_second)
{
	static const char *const units[] = { "/s", "k/s", "M/s", "G/s" };
	size_t i = 0;

	if (per_second < 0) {
		strcpy(buf, "-");
		return buf;
	}
	while (per_second >= 1000 && i + 1 < sizeof(units) / sizeof(units[0])) {
		per_second /= 1000;
		i++;
	}
	return scaled(buf, per_second, units[i]);
}

char *cli_text_ranks(const uint32_t *ranks, uint32_t count, uint32_t most)
{
	uint32_t ranges = 0, end;
	size_t length;
	char *text;
	FILE *out = open_memstream(&text, &length);

	if (!out)
		cli_no_memory();
	for (uint32_t i = 0; i < count; i = end) {
		for (end = i + 1; end < count && ranks[end] == ranks[end - 1] + 1; end++)
			;
		fputs(i ? ", " : "", out);
		if (++ranges > most) {
			fputs("...", out);
			break;
		}
		fprintf(out, "%u", ranks[i]);
		if (end - i == 2)
			fprintf(out, ", %u", ranks[i + 1]);
		else if (end - i > 2)
			fprintf(out, "-%u", ranks[end - 1]);
	}
	if (fclose(out))
		cli_no_memory();
	return text;
}

struct cli_columns {
	uint32_t count, rows;
	bool right[MAX_COLUMNS];
	int width[MAX_COLUMNS];
	char **cells; /* count of each row, the heads first */
};

/* Takes a line apart into the cells of a new row. */
static void add_row(struct cli_columns *columns, char *line)
{
	char **row;

	columns->cells = cli_grow(columns->cells, (size_t)(columns->rows + 1) * columns->count,
				  sizeof(*columns->cells));
	row = columns->cells + (size_t)columns->rows++ * columns->count;
	for (uint32_t i = 0; i < columns->count; i++) {
		const char *cell = strsep(&line, "\t");
		int width;

		row[i] = strdup(cell ? cell : "");
		if (!row[i])
			cli_no_memory();
		width = (int)strlen(row[i]);
		if (width > columns->width[i])
			columns->width[i] = width;
	}
}

struct cli_columns *cli_columns_open(const char *heads)
{
	struct cli_columns *columns = cli_alloc(1, sizeof(*columns));
	char line[512];
	size_t length = 0;

	columns->count = 1;
	for (const char *c = heads; *c && length + 1 < sizeof(line); c++) {
		if (*c == '\t')
			columns->count++;
		if (*c == '>')
			columns->right[columns->count - 1] = true;
		if (*c != '<' && *c != '>')
			line[length++] = *c;
	}
	line[length] = '\0';
	add_row(columns, line);
	return columns;
}

void cli_columns_row(struct cli_columns *columns, const char *fmt, ...)
{
	va_list args;
	char *line;

	va_start(args, fmt);
	if (vasprintf(&line, fmt, args) < 0)
		cli_no_memory();
	va_end(args);
	add_row(columns, line);
	free(line);
}

void cli_columns_close(struct cli_columns *columns, FILE *out)
{
	for (uint32_t i = 0; i < columns->rows * columns->count; i++) {
		uint32_t column = i % columns->count;
		bool last = column + 1 == columns->count;
		int width = columns->width[column];

		if (last && !columns->right[column])
			width = 0; /* no blanks at the end of lines */
		fprintf(out, "%*s%s", columns->right[column] ? width : -width, columns->cells[i],
			last ? "\n" : "  ");
		free(columns->cells[i]);
	}
	free(columns->cells);
	free(columns);
}

uint64_t cli_argp_count(struct argp_state *state, const char *option, const char *text, uint64_t most)
{
	uint64_t value = 0;

	if (cli_parse_count(text, 1, most, &value))
		argp_error(state, "%s: '%s' is not a number from 1 to %llu", option, text,
			   (unsigned long long)most);
	return value;
}

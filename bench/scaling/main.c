/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scaling                        the tables, as Markdown
 * scaling --update FILE SVG      puts them between the marks in FILE, and draws SVG
 * scaling --check [--small]      whether what must hold does, as lines that tests/run reads
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define BEGIN_MARK "<!-- tables: begin; written by make scaling -->"
#define END_MARK   "<!-- tables: end -->"

/* Copies `from` to `to` up to the line that is `mark`, or to the end; without it where not `copies`. */
static bool copy_until(FILE *from, FILE *to, const char *mark, bool copies)
{
	char line[1024];

	while (fgets(line, sizeof(line), from)) {
		bool found = mark && strncmp(line, mark, strlen(mark)) == 0;

		if (copies || found)
			fputs(line, to);
		if (found)
			return true;
	}
	return false;
}

/* The tables take minutes: the page is read when they are there. */
static int update(const char *path, const char *svg_path)
{
	FILE *tables = tmpfile(), *made = tmpfile(), *svg = fopen(svg_path, "w"), *page = NULL;
	int failed = 1;

	if (!tables || !made || !svg || report_tables(tables, svg))
		goto out;
	page = fopen(path, "r");
	if (!page || !copy_until(page, made, BEGIN_MARK, true)) {
		fprintf(stderr, "scaling: no line '%s' in %s\n", BEGIN_MARK, path);
		goto out;
	}
	rewind(tables);
	copy_until(tables, made, NULL, true);
	copy_until(page, made, END_MARK, false);
	copy_until(page, made, NULL, true);
	rewind(made);
	page = freopen(path, "w", page);
	if (!page)
		goto out;
	copy_until(made, page, NULL, true);
	failed = ferror(page) != 0;
out:
	if (failed)
		perror("scaling");
	if (page)
		failed |= fclose(page) != 0;
	if (svg)
		failed |= fclose(svg) != 0;
	if (made)
		fclose(made);
	if (tables)
		fclose(tables);
	return failed;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return report_tables(stdout, NULL);
	if (argc == 4 && !strcmp(argv[1], "--update"))
		return update(argv[2], argv[3]);
	if (argc >= 2 && !strcmp(argv[1], "--check"))
		return report_check(argc == 3 && !strcmp(argv[2], "--small"));
	fprintf(stderr, "usage: scaling [--update FILE SVG | --check [--small]]\n");
	return 2;
}

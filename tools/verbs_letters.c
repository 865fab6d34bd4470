/* SPDX-License-Identifier: BSD-2-Clause */
/* perftest's letters for what RAMPS_VERBS says. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct {
	int letter;
	const char *name;
} names[] = {
	{ 'd', "device" }, { 'i', "port" },    { 'x', "gid" },   { 'm', "mtu" },    { 'S', "sl" },
	{ 'T', "tc" },     { 'u', "timeout" }, { 't', "depth" }, { 'I', "inline" },
};

bool cli_verbs_letter(int letter, const char *value)
{
	const char *before = getenv("RAMPS_VERBS");
	char *text;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].letter != letter)
			continue;
		if (asprintf(&text, "%s%s%s=%s", before ? before : "", before && *before ? "," : "",
			     names[i].name, value) < 0 ||
		    setenv("RAMPS_VERBS", text, 1))
			cli_no_memory();
		free(text);
		return true;
	}
	return false;
}

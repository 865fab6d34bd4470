/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children on other hosts. There `RSH HOST ramps agent` is run, with words that no shell takes apart.
 * What the agent is to start goes to its standard input, line by line, values in hexadecimal: so the
 * key is on no command line, and nothing has to be quoted. While the input is open the agent passes on
 * the signals that it is told of; at its end it ends what it has started and removes what it made. So
 * nothing stays behind there when this process is killed, or the network is.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "run.h"

#define MOST_PER_HOST 4096u

static int bad_line(const char *path, uint32_t line, const char *why, const char *word)
{
	cli_error("run", "%s, line %u: %s '%s'; a line is HOST [workers=N] [servers=N] [address=ADDRESS]",
		  path, line, why, word);
	return -1;
}

static int host_word(struct run_host *host, const char *word, const char *path, uint32_t line)
{
	uint64_t count;

	if (!strncmp(word, "address=", 8) && word[8] && strlen(word + 8) < RUN_HOST_BYTES) {
		strcpy(host->address, word + 8);
		return 0;
	}
	if (!strncmp(word, "workers=", 8) && !cli_parse_count(word + 8, 0, MOST_PER_HOST, &count)) {
		host->workers = (uint32_t)count;
		return 0;
	}
	if (!strncmp(word, "slots=", 6) && !cli_parse_count(word + 6, 0, MOST_PER_HOST, &count)) {
		host->workers = (uint32_t)count;
		return 0;
	}
	if (!strncmp(word, "servers=", 8) && !cli_parse_count(word + 8, 0, 64, &count)) {
		host->servers = (uint32_t)count;
		return 0;
	}
	return bad_line(path, line, "no such thing, or no such number:", word);
}

static int host_line(struct run_hosts *hosts, char *text, const char *path, uint32_t line)
{
	struct run_host host = { .workers = 1 };
	char *rest = NULL, *word;

	text[strcspn(text, "#")] = '\0';
	word = strtok_r(text, " \t\r\n", &rest);
	if (!word)
		return 0;
	if (strlen(word) >= RUN_HOST_BYTES || *word == '-')
		return bad_line(path, line, "no host's name:", word);
	strcpy(host.name, word);
	strcpy(host.address, strchr(word, '@') ? strchr(word, '@') + 1 : word);
	while ((word = strtok_r(NULL, " \t\r\n", &rest)))
		if (host_word(&host, word, path, line))
			return -1;
	hosts->list = cli_grow(hosts->list, hosts->count + 1, sizeof(*hosts->list));
	hosts->list[hosts->count++] = host;
	hosts->workers += host.workers;
	hosts->servers += host.servers;
	return 0;
}

int run_hosts_read(struct run_hosts *hosts, const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	uint32_t line = 0;
	int ret = 0;

	if (!file) {
		cli_error("run", "%s: %s", path, strerror(errno));
		return -1;
	}
	while (!ret && getline(&text, &room, file) >= 0)
		ret = host_line(hosts, text, path, ++line);
	free(text);
	fclose(file);
	if (!ret && !hosts->count) {
		cli_error("run", "%s names no host", path);
		return -1;
	}
	return ret;
}

char **run_words(const char *text)
{
	size_t length = strlen(text) + 1;
	char **words = cli_alloc(1, (length / 2 + 2) * sizeof(*words) + length);
	char *copy = (char *)(words + length / 2 + 2), *rest = NULL;
	uint32_t n = 0;

	memcpy(copy, text, length);
	for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
		words[n++] = word;
	words[n] = NULL;
	return words;
}

void run_hosts_free(struct run_hosts *hosts)
{
	free(hosts->list);
	free(hosts->rsh);
	free(hosts->exports);
}

static char **rsh_argv(const struct run_hosts *hosts, const struct run_host *host)
{
	uint32_t n = 0;
	char **argv;

	while (hosts->rsh[n])
		n++;
	argv = cli_alloc(n + 4, sizeof(*argv));
	memcpy(argv, hosts->rsh, n * sizeof(*argv));
	argv[n++] = (char *)host->name;
	argv[n++] = (char *)hosts->ramps;
	argv[n++] = (char *)"agent";
	return argv;
}

static const struct run_host *host_of(const struct run_hosts *hosts, const struct run_child *child)
{
	uint32_t left = child->number;

	for (uint32_t i = 0; i < hosts->count; i++) {
		uint32_t here = child->kind == RUN_SERVER ? hosts->list[i].servers :
							    hosts->list[i].workers;

		if (left < here)
			return &hosts->list[i];
		left -= here;
	}
	return &hosts->list[0]; /* servers that no line asks for */
}

void run_hosts_place(struct run *run)
{
	for (uint32_t i = 0; i < run->servers + run->workers; i++) {
		struct run_child *child = &run->children[i];
		size_t used = strlen(child->name);

		child->feed = -1;
		if (!run->hosts)
			continue;
		child->host = host_of(run->hosts, child);
		child->rsh = rsh_argv(run->hosts, child->host);
		snprintf(child->name + used, sizeof(child->name) - used, " on %.40s", child->host->name);
	}
}

struct script {
	char *text;
	size_t used, room;
};

static void add(struct script *script, const char *tag, const void *value, size_t len_bytes)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *from = value;

	if (!script->text || script->used + strlen(tag) + 2 * len_bytes + 3 > script->room) {
		script->room = 2 * script->room + strlen(tag) + 2 * len_bytes + 3;
		script->text = cli_grow(script->text, script->room, 1);
	}
	script->used += (size_t)sprintf(script->text + script->used, "%s ", tag);
	for (size_t i = 0; i < len_bytes; i++) {
		script->text[script->used++] = digits[from[i] >> 4];
		script->text[script->used++] = digits[from[i] & 15];
	}
	script->text[script->used++] = '\n';
}

static void add_text(struct script *script, const char *tag, const char *value)
{
	add(script, tag, value, strlen(value));
}

/* Our own settings go along, but for those that say who a process is. */
static bool goes_along(const struct run_hosts *hosts, const char *setting)
{
	static const char *const own[] = { "RAMPS_RANK=",     "RAMPS_WORKERS=", "RAMPS_SERVERS=",
					   "RAMPS_KEY_FILE=", "RAMPS_JOB=",     "RAMPS_RUN=" };

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strncmp(setting, own[i], strlen(own[i])))
			return false;
	for (uint32_t i = 0; i < hosts->export_count; i++) {
		size_t length = strlen(hosts->exports[i]);

		if (!strncmp(setting, hosts->exports[i], length) && setting[length] == '=')
			return true;
	}
	return !strncmp(setting, "RAMPS_", 6);
}

int run_hosts_feed(const struct run *run, struct run_child *child)
{
	struct script script = { 0 };
	ssize_t written;

	if (run->key_bytes)
		add(&script, "key", run->key, run->key_bytes);
	add_text(&script, "dir", run->hosts->directory);
	for (char **set = environ; *set; set++)
		if (goes_along(run->hosts, *set))
			add_text(&script, "set", *set);
	for (char **set = child->environment; *set; set++)
		add_text(&script, "set", *set);
	if (child->kind == RUN_SERVER)
		add_text(&script, "arg", run->hosts->ramps);
	for (char **arg = child->argv + (child->kind == RUN_SERVER); *arg; arg++)
		add_text(&script, "arg", *arg);
	add_text(&script, child->kind == RUN_SERVER ? "serve" : "go", "");
	written = write(child->feed, script.text, script.used);
	free(script.text);
	return written == (ssize_t)script.used ? 0 : -1;
}

char *run_hosts_servers(const struct run *run)
{
	char *all = NULL, *longer;

	for (uint32_t i = 0; i < run->servers; i++) {
		const struct run_child *child = &run->children[i];
		const char *port = strrchr(child->heard, ':');

		if (!port) {
			free(all);
			return NULL;
		}
		if (asprintf(&longer, strchr(child->host->address, ':') ? "%s%sverbs://[%s]%s" : "%s%sverbs://%s%s",
			     all ? all : "", all ? "," : "", child->host->address, port) < 0)
			cli_no_memory();
		free(all);
		all = longer;
	}
	return all;
}

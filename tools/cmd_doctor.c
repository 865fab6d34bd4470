/* SPDX-License-Identifier: BSD-2-Clause */
/* ramps doctor: whether this node is fit for RDMA and shared memory, and what to do where it is not. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include <ramps/ramps.h>

#include "api/api.h"
#include "cli.h"
#include "doctor.h"

#define DEFAULT_ARENA_BYTES (1ull << 30) /* as ramps serve has it */
#define DEFAULT_TIMEOUT_S   5.0

struct options {
	struct doctor doctor;
	const char *connect, *serve;
	double timeout_s;
	bool json;
};

enum {
	KEY_JSON = 256,
	KEY_ARENA,
	KEY_CONNECT,
	KEY_SERVE,
	KEY_TIMEOUT,
	KEY_FABRIC,
	KEY_ROOT,
};

static const struct argp_option options[] = {
	{ "device", 'd', "NAME", 0, "the RDMA device (one whose port is active)", 0 },
	{ "ib-dev", 0, NULL, OPTION_ALIAS, NULL, 0 },
	{ "port", 'i', "N", 0, "its port (1)", 0 },
	{ "ib-port", 0, NULL, OPTION_ALIAS, NULL, 0 },
	{ "gid-index", 'x', "N", 0, "of the port (the best one)", 0 },
	{ "arena", KEY_ARENA, "SIZE", 0, "memory that a server here is to have (1G)", 0 },
	{ "fabric", KEY_FABRIC, "shm|verbs", 0, "look only at what shm:// needs, or at all (verbs)", 0 },
	{ "connect", KEY_CONNECT, "ADDRESS", 0,
	  "try every operation on a 'ramps doctor --serve' there, or those that do not disturb on a server",
	  0 },
	{ "timeout", KEY_TIMEOUT, "SECONDS", 0, "for the connection (5)", 0 },
	{ "serve", KEY_SERVE, "ADDRESS", 0, "give memory for --connect, until SIGTERM or SIGINT", 0 },
	{ "json", KEY_JSON, NULL, 0, "one JSON object", 0 },
	{ "root", KEY_ROOT, "DIRECTORY", OPTION_HIDDEN, "read sys, proc and dev below it", 0 },
	{ 0 },
};

/* An address of a kind that this build has. */
static const char *parse_address(struct argp_state *state, const char *option, const char *text)
{
	const struct api_fabric *kind;
	char directory[256];
	int ret = api_fabric_of(text, &kind);

	if (!ret)
		ret = kind->directory(text, directory, sizeof(directory));
	base_end("ramps doctor", ret);
	if (ret)
		argp_error(state, "%s: %s", option, ramps_last_error()->text);
	return text;
}

static uint64_t parse_number(struct argp_state *state, const char *option, const char *text, uint64_t most)
{
	uint64_t value = 0;

	if (cli_parse_count(text, 0, most, &value))
		argp_error(state, "%s: '%s' is not a number from 0 to %llu", option, text,
			   (unsigned long long)most);
	return value;
}

static void parse_device(struct argp_state *state, struct doctor *doctor, const char *text)
{
	if (!*text || strchr(text, '/') || *text == '.' || strlen(text) >= sizeof(doctor->at.device))
		argp_error(state, "-d: '%s' is no name of a device", text);
	doctor->device = text;
}

static void parse_fabric(struct argp_state *state, struct doctor *doctor, const char *text)
{
	doctor->shm_only = !strcmp(text, "shm");
	if (!doctor->shm_only && strcmp(text, "verbs") != 0)
		argp_error(state, "--fabric: '%s' is neither shm nor verbs", text);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *to = state->input;

	switch (key) {
	case 'd':
		parse_device(state, &to->doctor, arg);
		return 0;
	case 'i':
		to->doctor.port = (uint32_t)cli_argp_count(state, "-i", arg, 255);
		return 0;
	case 'x':
		to->doctor.gid_index = (int32_t)parse_number(state, "-x", arg, 65535);
		return 0;
	case KEY_ARENA:
		if (cli_parse_size(arg, &to->doctor.arena_bytes) || to->doctor.arena_bytes >> 46)
			argp_error(state,
				   "--arena: '%s' is not a size up to 64T; write it like 64K or 2GiB",
				   arg);
		return 0;
	case KEY_FABRIC:
		parse_fabric(state, &to->doctor, arg);
		return 0;
	case KEY_CONNECT:
		to->connect = parse_address(state, "--connect", arg);
		return 0;
	case KEY_SERVE:
		to->serve = parse_address(state, "--serve", arg);
		return 0;
	case KEY_TIMEOUT:
		if (cli_parse_seconds(arg, &to->timeout_s))
			argp_error(state, "--timeout: '%s' is not a number of seconds from 0.001 to 86400",
				   arg);
		return 0;
	case KEY_JSON:
		to->json = true;
		return 0;
	case KEY_ROOT:
		to->doctor.root = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "what is '%s'? An address follows --connect or --serve", arg);
		return EINVAL;
	case ARGP_KEY_END:
		if (to->serve && (to->connect || to->json))
			argp_error(state, "--serve goes without --connect and --json");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp parser = {
	options,
	parse_option,
	"",
	"Say whether this node is fit for RDMA and for shared memory, item by item, and what mends what "
	"is not. ADDRESS is as for ramps serve.",
	NULL,
	NULL,
	NULL,
};

static uint32_t count_state(const struct doctor *doctor, enum doctor_state state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < doctor->count; i++)
		n += doctor->items[i].state == state;
	return n;
}

static void print_text(const struct doctor *doctor)
{
	struct cli_columns *columns = cli_columns_open("<ITEM\t<FOUND\t<VERDICT");
	const char *as_root = geteuid() ? "MEND as root: " : "MEND: ", *gap = "";
	uint32_t broken = count_state(doctor, DOCTOR_MEND);

	for (uint32_t i = 0; i < doctor->count; i++) {
		const struct doctor_item *item = &doctor->items[i];

		if (item->state == DOCTOR_OK)
			cli_columns_row(columns, "%s\t%s\tOK", item->label, item->found);
		else if (item->state == DOCTOR_MEND)
			cli_columns_row(columns, "%s\t%s\t%s%s", item->label, item->found,
					item->as_root ? as_root : "MEND: ", item->text);
		else
			cli_columns_row(columns, "%s\t-\tnot looked at: %s", item->label, item->text);
	}
	cli_columns_close(columns, stdout);
	if (!broken) {
		printf("\nfit for %s\n", doctor->shm_only ? "shm://" : "shm:// and verbs://");
		return;
	}
	printf("\nnot fit, to mend: ");
	for (uint32_t i = 0; i < doctor->count; i++) {
		if (doctor->items[i].state != DOCTOR_MEND)
			continue;
		printf("%s%s", gap, doctor->items[i].label);
		gap = ", ";
	}
	putchar('\n');
}

static void set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		cli_no_memory();
}

/* Text of the system may be of any bytes; JSON's is UTF-8. */
static json_t *text(const char *bytes)
{
	json_t *string = json_string(bytes);
	char plain[512];
	size_t i;

	if (string)
		return string;
	for (i = 0; bytes[i] && i + 1 < sizeof(plain); i++)
		plain[i] = (bytes[i] & 0x80) ? '?' : bytes[i];
	plain[i] = '\0';
	return json_string(plain);
}

static json_t *item_json(const struct doctor_item *item)
{
	static const char *const states[] = { "ok", "mend", "not looked at" };
	json_t *object = json_object();

	set(object, "name", json_string(item->name));
	set(object, "state", json_string(states[item->state]));
	set(object, "found", item->state == DOCTOR_SKIPPED ? json_null() : text(item->found));
	set(object, "mend", item->state == DOCTOR_MEND ? text(item->text) : json_null());
	set(object, "as_root", json_boolean(item->as_root));
	set(object, "why_not", item->state == DOCTOR_SKIPPED ? text(item->text) : json_null());
	set(object, "us", item->us > 0 ? json_real(item->us) : json_null());
	return object;
}

static void print_json(const struct doctor *doctor)
{
	const struct doctor_port *at = &doctor->at;
	json_t *object = json_object(), *items = json_array();

	for (uint32_t i = 0; i < doctor->count; i++)
		if (json_array_append_new(items, item_json(&doctor->items[i])))
			cli_no_memory();
	set(object, "fit", json_boolean(!count_state(doctor, DOCTOR_MEND)));
	set(object, "fabric", json_string(doctor->shm_only ? "shm" : "verbs"));
	set(object, "device", *at->device ? text(at->device) : json_null());
	set(object, "port", *at->device ? json_integer(at->number) : json_null());
	set(object, "gid_index",
	    *at->device && at->gid_index >= 0 ? json_integer(at->gid_index) : json_null());
	set(object, "items", items);
	if (json_dumpf(object, stdout, JSON_REAL_PRECISION(7) | JSON_INDENT(2)))
		cli_no_memory();
	putchar('\n');
	json_decref(object);
}

static void look(struct doctor *doctor)
{
	doctor_check_node(doctor);
	if (doctor->shm_only)
		return;
	doctor_check_memlock(doctor);
	doctor_check_device(doctor);
	doctor_check_port(doctor);
}

/* The verbs fabric takes device, port and GID from its environment. */
static void hand_on(const struct doctor *doctor)
{
	const char *before = getenv("RAMPS_VERBS");
	char list[512], port[32] = "", gid[32] = "";

	if (!*doctor->at.device || (!doctor->device && doctor->port == 1 && doctor->gid_index < 0))
		return;
	if (doctor->port != 1)
		snprintf(port, sizeof(port), ",port=%u", doctor->port);
	if (doctor->gid_index >= 0)
		snprintf(gid, sizeof(gid), ",gid=%d", doctor->gid_index);
	snprintf(list, sizeof(list), "%s%sdevice=%s%s%s", before ? before : "",
		 before && *before ? "," : "", doctor->at.device, port, gid);
	setenv("RAMPS_VERBS", list, 1);
}

int cmd_doctor(int argc, char **argv)
{
	struct options to = {
		.doctor = { .root = "", .port = 1, .gid_index = -1, .arena_bytes = DEFAULT_ARENA_BYTES },
		.timeout_s = DEFAULT_TIMEOUT_S,
	};
	struct doctor *doctor = &to.doctor;

	if (argp_parse(&parser, argc, argv, 0, NULL, &to))
		return CLI_USAGE;
	if (to.connect && !strncmp(to.connect, "shm://", 6))
		doctor->shm_only = true;
	if (to.serve) {
		snprintf(doctor->at.device, sizeof(doctor->at.device), "%s",
			 doctor->device ? doctor->device : "");
		hand_on(doctor);
		return doctor_serve(to.serve);
	}
	look(doctor);
	if (to.connect) {
		hand_on(doctor);
		doctor_connect(doctor, to.connect, to.timeout_s);
	}
	if (to.json)
		print_json(doctor);
	else
		print_text(doctor);
	if (fflush(stdout) || ferror(stdout)) {
		cli_error("doctor", "can't write to stdout: %m");
		return CLI_FAILED;
	}
	return count_state(doctor, DOCTOR_MEND) ? CLI_FAILED : CLI_OK;
}

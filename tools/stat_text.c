/* SPDX-License-Identifier: BSD-2-Clause */
/* A sample for people: a line or two on the server, then what there is of workers, tables, clocks, barriers. */
#include "stat.h"

#include <stdlib.h>

#include "cli.h"

#define FEW_RANKS   32u /* rows of workers and counts of a clock without --all */
#define FEW_OBJECTS 64u /* rows of tables, clocks and barriers */
#define FEW_RANGES  8u  /* of a list of ranks */

struct view {
	FILE *out;
	const struct stat_sample *before, *now; /* before: NULL if there are no rates */
	uint32_t few_ranks, few_objects, few_ranges;
	uint32_t *ranks; /* room for a list of all */
};

static const char *rate_text(const struct view *view, char *buf, uint64_t before, uint64_t now)
{
	return cli_text_rate(buf, view->before ? stat_rate(view->before, view->now, before, now) : -1);
}

static void print_more(const struct view *view, uint32_t count, uint32_t shown, const char *what)
{
	if (count > shown)
		fprintf(view->out, "... and %u more %s: --all shows them\n", count - shown, what);
}

/* ", 2 dead (3, 7)", or nothing where no rank is in that state. */
static void print_state(const struct view *view, uint32_t state)
{
	uint32_t n = stat_in_state(view->now, state, view->ranks);
	char *list;

	if (!n)
		return;
	list = cli_text_ranks(view->ranks, n, view->few_ranges);
	fprintf(view->out, ", %u %s (%s)", n, stat_rank_state(core_state(state, 0)), list);
	free(list);
}

static void print_server(const struct view *view, const char *address)
{
	const struct core_header *header = &view->now->header;
	char used[CLI_TEXT_BYTES], most[CLI_TEXT_BYTES], ring[CLI_TEXT_BYTES];
	FILE *out = view->out;

	fprintf(out, "%s  job %s, pid %llu, %s", address, header->job,
		(unsigned long long)header->server_pid,
		view->now->alive ? header->asleep ? "alive, asleep" : "alive" : "dead");
	fprintf(out, ", life %llu", (unsigned long long)header->lives);
	if (header->shards > 1)
		fprintf(out, ", server %u of %u", header->shard, header->shards);
	fprintf(out, ", on death %s\n", header->on_death == RAMPS_ON_DEATH_CONTINUE ? "continue" : "fail");
	fprintf(out, "arena %s of %s, slots %s a worker, ", cli_text_size(used, header->used_bytes),
		cli_text_size(most, header->arena_bytes),
		cli_text_size(ring, (uint64_t)header->cells * CORE_CHUNK_BYTES));
	if (!view->now->workers) {
		fputs("no worker has joined yet\n", out);
		return;
	}
	fprintf(out, "%u of %u workers live", stat_in_state(view->now, CORE_LIVE, view->ranks),
		view->now->workers);
	print_state(view, CORE_DEAD);
	print_state(view, CORE_LEFT);
	print_state(view, CORE_ABSENT);
	fputc('\n', out);
}

static void print_workers(const struct view *view)
{
	const struct stat_sample *now = view->now, *before = view->before;
	struct cli_columns *columns;
	uint32_t rows = now->workers < view->few_ranks ? now->workers : view->few_ranks;

	if (!rows)
		return;
	fputc('\n', view->out);
	columns = cli_columns_open(">RANK\t<STATE\t>LIFE\t>PID\t>APPLIED\t>APPLIED/S\t>DROPPED\t"
				   ">STAGED\t>ADDED\t>ADDED/S");
	for (uint32_t i = 0; i < rows; i++) {
		const struct core_rank *rank = &now->ranks[i];
		uint64_t landed = stat_landed(&now->words[i]);
		char applied_rate[CLI_TEXT_BYTES], landed_rate[CLI_TEXT_BYTES];

		rate_text(view, applied_rate, before ? before->ranks[i].applied : 0, rank->applied);
		rate_text(view, landed_rate, before ? stat_landed(&before->words[i]) : 0, landed);
		cli_columns_row(columns, "%u\t%s\t%u\t%llu\t%llu\t%s\t%llu\t%llu of %u\t%llu\t%s", i,
				stat_rank_state(now->states[i]), core_incarnation_of(now->states[i]),
				(unsigned long long)rank->pid, (unsigned long long)rank->applied,
				applied_rate, (unsigned long long)rank->dropped,
				(unsigned long long)stat_staged(now, i), now->header.cells,
				(unsigned long long)landed, landed_rate);
	}
	cli_columns_close(columns, view->out);
	print_more(view, now->workers, rows, "workers");
}

static void add_table(const struct view *view, struct cli_columns *columns,
		      const struct stat_object *object)
{
	const struct core_entry *entry = &object->entry;
	const struct core_table *table = &entry->table;
	const struct stat_object *before = stat_before(view->before, object);
	char size[CLI_TEXT_BYTES], rate[CLI_TEXT_BYTES], step[CLI_TEXT_BYTES] = "-";
	char updates[CLI_TEXT_BYTES] = "-";

	cli_text_rate(rate, -1);
	if (table->mode == RAMPS_SLOTS) {
		rate_text(view, rate, before ? before->entry.steps : entry->steps, entry->steps);
		snprintf(updates, sizeof(updates), "%llu", (unsigned long long)entry->steps);
		if (object->step != STAT_UNKNOWN)
			snprintf(step, sizeof(step), "%llu", (unsigned long long)object->step);
	}
	cli_columns_row(columns, "%s\t%llu x %llu\t%s\t%s\t%s\t%s\t%llu\t%s\t%s\t%s\t%s",
			entry->name, (unsigned long long)table->rows,
			(unsigned long long)table->dim, stat_type(table), stat_mode(table),
			table->mode == RAMPS_DIRECT ? "-" :
			table->synchronous          ? "yes" :
						      "no",
			cli_text_size(size, object->bytes), (unsigned long long)table->elements,
			step, updates, rate, stat_entry_state(entry));
}

static void add_barrier(const struct view *view, struct cli_columns *columns,
			const struct stat_object *object)
{
	const struct core_barrier *barrier = &object->entry.barrier;
	char *missing = NULL;

	if (object->arrivals)
		missing = cli_text_ranks(view->ranks, stat_missing(object, view->ranks), view->few_ranges);
	cli_columns_row(columns, "%s\t%u\t%u\t%u of %u\t%s", object->entry.name, barrier->members,
			object->generation, object->arrivals, barrier->members, missing ? missing : "");
	free(missing);
}

static void add_clock(const struct view *view, struct cli_columns *columns,
		      const struct stat_object *object)
{
	uint32_t workers = view->now->workers;
	uint32_t shown = workers < view->few_ranks ? workers : view->few_ranks;
	uint64_t least, most;
	char *slowest, *counts;
	size_t length;
	FILE *out = open_memstream(&counts, &length);

	if (!out)
		cli_no_memory();
	for (uint32_t rank = 0; rank < shown; rank++)
		fprintf(out, "%s%llu", rank ? " " : "", (unsigned long long)object->counts[rank]);
	if (shown < workers)
		fprintf(out, " and %u more", workers - shown);
	if (fclose(out))
		cli_no_memory();
	stat_clock_range(view->now, object, &least, &most);
	slowest = cli_text_ranks(view->ranks,
				 least == most ? 0 : stat_at_count(view->now, object, least, view->ranks),
				 view->few_ranges);
	cli_columns_row(columns, "%s\t%llu\t%llu\t%s\t%s", object->entry.name, (unsigned long long)least,
			(unsigned long long)most, *slowest ? slowest : "-", counts);
	free(slowest);
	free(counts);
}

struct kind {
	enum core_kind kind;
	const char *heads, *name;
	void (*add)(const struct view *view, struct cli_columns *columns,
		    const struct stat_object *object);
};

static const struct kind kinds[] = {
	{ CORE_TABLE,
	  "<TABLE\t>SHAPE\t<TYPE\t<MODE\t<SYNC\t>SIZE\t>ELEMENTS\t>STEP\t>UPDATES\t>UPDATES/S\t<STATE",
	  "tables", add_table },
	{ CORE_CLOCK, "<CLOCK\t>LEAST\t>MOST\t<SLOWEST\t<COUNTS BY RANK", "clocks", add_clock },
	{ CORE_BARRIER, "<BARRIER\t>MEMBERS\t>GENERATION\t>ARRIVED\t<MISSING", "barriers", add_barrier },
};

static void print_kind(const struct view *view, const struct kind *kind)
{
	struct cli_columns *columns = NULL;
	uint32_t found = 0, shown = 0;

	for (uint32_t i = 0; i < view->now->count; i++) {
		if (view->now->objects[i].entry.kind != kind->kind || found++ >= view->few_objects)
			continue;
		if (!columns)
			columns = cli_columns_open(kind->heads);
		kind->add(view, columns, &view->now->objects[i]);
		shown++;
	}
	if (!columns)
		return;
	fputc('\n', view->out);
	cli_columns_close(columns, view->out);
	print_more(view, found, shown, kind->name);
}

void stat_print(FILE *out, const char *address, const struct stat_sample *before,
		const struct stat_sample *now, bool all)
{
	struct view view = {
		.out = out,
		.before = stat_comparable(before, now),
		.now = now,
		.few_ranks = all ? UINT32_MAX : FEW_RANKS,
		.few_objects = all ? UINT32_MAX : FEW_OBJECTS,
		.few_ranges = all ? UINT32_MAX : FEW_RANGES,
		.ranks = cli_alloc(now->workers, sizeof(uint32_t)),
	};

	print_server(&view, address);
	print_workers(&view);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		print_kind(&view, &kinds[i]);
	if (now->damaged)
		fprintf(out, "\n%u entries of the directory are damaged\n", now->damaged);
	free(view.ranks);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* A sample as JSON. The names of the fields are documented in ramps-stat(1) and do not change. */
#include "stat.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli.h"

static void set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value))
		cli_no_memory();
}

static void append(json_t *array, json_t *value)
{
	if (json_array_append_new(array, value))
		cli_no_memory();
}

/* JSON's integers here end at 2^63 - 1. */
static json_t *number(uint64_t value)
{
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *rate(const struct stat_sample *before, const struct stat_sample *now,
		    uint64_t before_count, uint64_t now_count)
{
	return before ? real(stat_rate(before, now, before_count, now_count)) : json_null();
}

static json_t *rank_array(const uint32_t *ranks, uint32_t count)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < count; i++)
		append(array, number(ranks[i]));
	return array;
}

static void set_server(json_t *object, const struct stat_sample *now, uint32_t *ranks)
{
	const struct core_header *header = &now->header;

	set(object, "job", json_string(header->job));
	set(object, "pid", number(header->server_pid));
	set(object, "alive", json_boolean(now->alive));
	set(object, "asleep", json_boolean(now->alive && header->asleep));
	set(object, "lives", number(header->lives));
	set(object, "on_death",
	    json_string(header->on_death == RAMPS_ON_DEATH_CONTINUE ? "continue" : "fail"));
	set(object, "shard", number(header->shard));
	set(object, "shards", number(header->shards));
	set(object, "arena_bytes", number(header->arena_bytes));
	set(object, "used_bytes", number(header->used_bytes));
	set(object, "slots_bytes", number((uint64_t)header->cells * CORE_CHUNK_BYTES));
	set(object, "max_workers", number(header->max_workers));
	set(object, "workers_of_job", number(now->workers));
	set(object, "live_workers", number(stat_in_state(now, CORE_LIVE, ranks)));
	set(object, "damaged_entries", number(now->damaged));
}

static json_t *worker(const struct stat_sample *before, const struct stat_sample *now, uint32_t index)
{
	const struct core_rank *rank = &now->ranks[index];
	uint64_t landed = stat_landed(&now->words[index]);
	json_t *object = json_object();

	set(object, "rank", number(index));
	set(object, "state", json_string(stat_rank_state(now->states[index])));
	set(object, "incarnation", number(core_incarnation_of(now->states[index])));
	set(object, "pid", number(rank->pid));
	set(object, "applied", number(rank->applied));
	set(object, "applied_per_s",
	    rate(before, now, before ? before->ranks[index].applied : 0, rank->applied));
	set(object, "dropped", number(rank->dropped));
	set(object, "staged_cells", number(stat_staged(now, index)));
	set(object, "added", number(landed));
	set(object, "added_per_s",
	    rate(before, now, before ? stat_landed(&before->words[index]) : 0, landed));
	return object;
}

static json_t *table_object(const struct stat_sample *before, const struct stat_sample *now,
			    const struct stat_object *of)
{
	const struct core_table *table = &of->entry.table;
	const struct stat_object *old = stat_before(before, of);
	bool slots = table->mode == RAMPS_SLOTS;
	json_t *object = json_object();

	set(object, "name", json_string(of->entry.name));
	set(object, "rows", number(table->rows));
	set(object, "dim", number(table->dim));
	set(object, "type", json_string(stat_type(table)));
	set(object, "mode", json_string(stat_mode(table)));
	set(object, "synchronous", json_boolean(slots && table->synchronous));
	set(object, "fraction_bits", number(table->fraction_bits));
	set(object, "rate", real((double)table->rate));
	set(object, "state", json_string(stat_entry_state(&of->entry)));
	set(object, "first_element", number(table->first_element));
	set(object, "elements", number(table->elements));
	set(object, "bytes", number(of->bytes));
	set(object, "step", of->step == STAT_UNKNOWN ? json_null() : number(of->step));
	set(object, "updates", slots ? number(of->entry.steps) : json_null());
	set(object, "updates_per_s",
	    slots && old ? rate(before, now, old->entry.steps, of->entry.steps) : json_null());
	return object;
}

static json_t *clock_object(const struct stat_sample *now, const struct stat_object *of, uint32_t *ranks)
{
	json_t *object = json_object(), *counts = json_array();
	uint64_t least, most;

	for (uint32_t rank = 0; rank < now->workers; rank++)
		append(counts, number(of->counts[rank]));
	stat_clock_range(now, of, &least, &most);
	set(object, "name", json_string(of->entry.name));
	set(object, "least", number(least));
	set(object, "most", number(most));
	set(object, "slowest", rank_array(ranks, stat_at_count(now, of, least, ranks)));
	set(object, "counts", counts);
	return object;
}

static json_t *barrier_object(const struct stat_object *of, uint32_t *ranks)
{
	json_t *object = json_object();

	set(object, "name", json_string(of->entry.name));
	set(object, "members", number(of->entry.barrier.members));
	set(object, "generation", number(of->generation));
	set(object, "arrived", number(of->arrivals));
	set(object, "missing", rank_array(ranks, stat_missing(of, ranks)));
	return object;
}

json_t *stat_json(const char *address, const struct stat_sample *before, const struct stat_sample *now)
{
	json_t *object = json_object(), *workers = json_array(), *tables = json_array();
	json_t *clocks = json_array(), *barriers = json_array();
	uint32_t *ranks = cli_alloc(now->workers, sizeof(*ranks));

	before = stat_comparable(before, now);
	for (uint32_t i = 0; i < now->workers; i++)
		append(workers, worker(before, now, i));
	for (uint32_t i = 0; i < now->count; i++) {
		const struct stat_object *of = &now->objects[i];

		if (of->entry.kind == CORE_TABLE)
			append(tables, table_object(before, now, of));
		else if (of->entry.kind == CORE_CLOCK)
			append(clocks, clock_object(now, of, ranks));
		else
			append(barriers, barrier_object(of, ranks));
	}
	set(object, "address", json_string(address));
	set(object, "interval_s",
	    before ? real((double)(now->time_ns - before->time_ns) / (double)NS_PER_S) : json_null());
	set_server(object, now, ranks);
	set(object, "workers", workers);
	set(object, "tables", tables);
	set(object, "clocks", clocks);
	set(object, "barriers", barriers);
	free(ranks);
	return object;
}

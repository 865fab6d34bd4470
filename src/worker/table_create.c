/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creating tables. Every server has its own directory entry for its part. A table is created on
 * each, filled with its initial values, and only then set ready on each, shard 0 last. Shard 0
 * says who is filling it in: others wait for it there, and where that process dies the next
 * creator takes over. Filling in can be done again from the start: assigning a chunk is
 * idempotent, and to a direct word the creator, who is alone with it, adds what it lacks.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "worker/worker_private.h"

static int create_entry(struct ramps_worker *worker, uint32_t shard,
			const struct core_request *asked, struct core_entry *entry)
{
	struct core_request request = *asked;
	struct core_reply reply;
	int ret;

	core_part(&request.entry.table, request.entry.name, shard, worker->member->shards,
		  &request.entry.table.first_element, &request.entry.table.elements);
	ret = worker_call(worker, shard, &request, &reply, worker_deadline(worker, 10000));
	*entry = reply.entry;
	return ret;
}

static bool is_creator(struct ramps_worker *worker, const struct core_entry *entry)
{
	return entry->state == CORE_PREPARING &&
	       entry->creator == core_state(worker->member->rank, worker->member->incarnation);
}

static uint64_t initial_word(const struct ramps_table *table, const void *initial, uint64_t at)
{
	if (table->core.type == RAMPS_INT64)
		return ((const uint64_t *)initial)[at];
	return (uint64_t)llrint(((const float *)initial)[at] * table->scale);
}

/* Adds to n words of one server, from `element` on, what they lack. */
static int fill_words(struct ramps_worker *worker, struct ramps_table *table, uint64_t element,
		      uint64_t n, const void *initial)
{
	uint32_t shard = worker_part_of(table, element);
	const struct worker_part *part = &table->parts[shard];
	uint64_t offset = part->data_offset + (element - part->first) * 8;
	uint64_t now[WORKER_BLOCK], offsets[WORKER_BLOCK], addends[WORKER_BLOCK];
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD_LIST,
		.region = CORE_WORDS,
		.offsets = offsets,
		.addends = addends,
	};
	int ret = worker_read(worker, shard, CORE_WORDS, offset, now, n * 8);

	if (ret)
		return ret;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t lacks = initial_word(table, initial, element + i) - now[i];

		if (!lacks)
			continue;
		offsets[op.count] = offset + i * 8;
		addends[op.count++] = lacks;
	}
	return op.count ? worker_execute(worker, shard, &op) : 0;
}

/*
 * To direct words: this rank is the only one that changes them, so that it can add what they
 * lack.
 */
static int fill_direct(struct ramps_worker *worker, struct ramps_table *table, const void *initial)
{
	uint64_t at = 0, n;

	for (; at < table->elements; at += n) {
		const struct worker_part *part = &table->parts[worker_part_of(table, at)];
		uint64_t left = part->first + part->elements - at;
		int ret;

		n = left < worker->block ? left : worker->block;
		ret = fill_words(worker, table, at, n, initial);
		if (ret)
			return ret;
	}
	return 0;
}

/* To slots: as a push of cells that assign. */
static int fill_slots(struct ramps_worker *worker, struct ramps_table *table, const void *initial)
{
	struct ramps_op *op = &worker->blocking->op;
	int ret;

	*op = (struct ramps_op){
		.kind = RAMPS_PUSH,
		.flags = WORKER_OP_ASSIGN,
		.rows = table->core.rows,
		.data = (void *)initial,
		.transfer = worker_transfer_defaults,
	};
	op->transfer.level = RAMPS_APPLIED;
	table->child.worker = worker;
	ret = worker_request_begin(worker->blocking, table);
	if (!ret)
		ret = worker_request_run(worker, worker->blocking, -1);
	table->child.worker = NULL;
	return ret;
}

static int check_initial(const struct ramps_schema *schema, uint64_t elements)
{
	const float *values = schema->initial;
	double limit = schema->mode == RAMPS_DIRECT ? ldexp(1.0, 62 - (int)schema->fraction_bits) :
						      INFINITY;

	if (!values || schema->type != RAMPS_FLOAT32)
		return 0;
	for (uint64_t i = 0; i < elements; i++)
		if (!isfinite(values[i]) || fabs((double)values[i]) >= limit)
			return base_fail(-EDOM, "initial value %llu of table %s is %g",
					 (unsigned long long)i, schema->name, (double)values[i]);
	return 0;
}

/* This rank is to fill the table in: does so, and sets every part ready. */
static int table_fill(struct ramps_worker *worker, struct ramps_table *table,
		      const struct ramps_schema *schema)
{
	int ret = 0;

	if (schema->initial && table->core.mode == RAMPS_DIRECT)
		ret = fill_direct(worker, table, schema->initial);
	else if (schema->initial)
		ret = fill_slots(worker, table, schema->initial);
	/* Shard 0 last: there openers look who is filling the table in. */
	for (uint32_t shard = worker->member->shards; shard-- > 0 && !ret;) {
		struct core_request request = { .kind = CORE_SET_READY };
		struct core_reply reply;

		request.entry.index = table->parts[shard].entry;
		ret = worker_call(worker, shard, &request, &reply, worker_deadline(worker, 10000));
	}
	return ret;
}

/*
 * A part on another shard than 0. Only whom shard 0 made the creator comes here while it is not
 * ready: where this shard still has another one, it has not yet seen that one die.
 */
static int create_part(struct ramps_worker *worker, uint32_t shard,
		       const struct core_request *request, bool creator, struct core_entry *entry)
{
	uint64_t deadline_ns = worker_deadline(worker, 10000);
	int ret;

	for (;;) {
		ret = create_entry(worker, shard, request, entry);
		if (ret || !creator || entry->state == CORE_READY || is_creator(worker, entry))
			return ret;
		if (fabric_now(worker->fabric) >= deadline_ns)
			return base_fail(-ETIMEDOUT, "server %s has another creator for table %s",
					 worker_link(worker, shard)->address, request->entry.name);
		fabric_sleep(worker->fabric, fabric_now(worker->fabric) + 5 * NS_PER_MS);
	}
}

/*
 * One try; -EOWNERDEAD: its creator died meanwhile, so that a new try may make this rank the
 * creator.
 */
static int create_once(struct ramps_worker *worker, const struct ramps_schema *schema,
		       const struct core_request *request, struct ramps_table *table)
{
	struct core_entry entry = { 0 };
	bool creator;
	int ret;

	table->elements = 0;
	table->holders = 0;
	ret = create_entry(worker, 0, request, &entry);
	if (!ret)
		ret = worker_table_take(table, 0, &entry);
	creator = !ret && is_creator(worker, &entry);
	if (!ret && !creator)
		ret = worker_await_ready(worker, 0, entry.index, BASE_FOREVER);
	for (uint32_t shard = 1; shard < worker->member->shards && !ret; shard++) {
		ret = create_part(worker, shard, request, creator, &entry);
		if (!ret)
			ret = worker_table_take(table, shard, &entry);
	}
	return ret || !creator ? ret : table_fill(worker, table, schema);
}

int worker_table_create(struct ramps_worker *worker, const struct ramps_schema *schema,
			struct ramps_table **table)
{
	struct core_request request = { .kind = CORE_CREATE, .entry.kind = CORE_TABLE };
	struct ramps_table *made;
	int ret;

	ret = core_schema_check(schema, &request.entry.table);
	if (!ret)
		ret = check_initial(schema, schema->rows * schema->dim);
	if (!ret)
		ret = worker_table_make(worker, schema->name, &made);
	if (ret)
		return ret;
	memcpy(request.entry.name, made->name, sizeof(request.entry.name));
	do {
		ret = create_once(worker, schema, &request, made);
	} while (ret == -EOWNERDEAD);
	if (!ret)
		ret = worker_table_finish(worker, made);
	if (ret) {
		worker_table_free(made);
		return ret;
	}
	worker_child_add(worker, &made->child);
	*table = made;
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Opening tables: what a worker keeps of one, and waiting for it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "worker/worker_private.h"

uint32_t worker_part_of(struct ramps_table *table, uint64_t element)
{
	const struct worker_part *part = &table->parts[table->last_part];

	if (element - part->first < part->elements)
		return table->last_part;
	for (uint32_t shard = 0;; shard++) {
		part = &table->parts[shard];
		if (element - part->first < part->elements) {
			table->last_part = shard;
			return shard;
		}
	}
}

struct ramps_worker *worker_of_table(const struct ramps_table *table)
{
	return table ? table->child.worker : NULL;
}

static uint64_t entry_offset(const struct worker_link *link, uint32_t index)
{
	return link->header.entries_offset + index * sizeof(struct core_entry);
}

static int table_steps(struct ramps_worker *worker, struct ramps_table *table)
{
	struct worker_member *member = worker->member;
	struct worker_steps *steps;
	uint64_t bytes = sizeof(*steps) + table->chunks * sizeof(uint64_t);
	int ret = 0;

	pthread_mutex_lock(&member->lock);
	for (steps = member->steps; steps; steps = steps->next)
		if (!strcmp(steps->name, table->name))
			goto out;
	ret = -ENOMEM;
	steps = calloc(1, bytes);
	if (!steps)
		goto out;
	memcpy(steps->name, table->name, sizeof(steps->name));
	for (uint64_t chunk = 0; chunk < table->chunks; chunk++) {
		uint32_t shard = worker_part_of(table, chunk * table->core.chunk_elements);
		struct worker_part *part = &table->parts[shard];
		uint64_t local = chunk - part->first / table->core.chunk_elements;
		struct core_chunk state;

		ret = worker_read(worker, shard, CORE_PUBLISHED,
				  part->chunks_offset + local * sizeof(state), &state, sizeof(state));
		if (ret) {
			free(steps);
			goto out;
		}
		steps->next_step[chunk] = state.steps;
	}
	steps->next = member->steps;
	member->steps = steps;
out:
	pthread_mutex_unlock(&member->lock);
	table->steps = ret ? NULL : steps;
	return ret;
}

void worker_table_free(struct ramps_table *table)
{
	free(table);
}

int worker_table_make(struct ramps_worker *worker, const char *name, struct ramps_table **table)
{
	uint32_t shards = worker->member->shards;
	struct ramps_table *made = calloc(1, sizeof(*made) + shards * sizeof(struct worker_part));

	if (!made)
		return -ENOMEM;
	memcpy(made->name, name, strlen(name) + 1);
	*table = made;
	return 0;
}

/* Takes the table's shape from the first entry, and this shard's part from each. */
int worker_table_take(struct ramps_table *table, uint32_t shard, const struct core_entry *entry)
{
	const struct core_table *core = &entry->table;
	char here[160], there[160];

	if (!table->elements) {
		table->core = *core;
		table->elements = core->rows * core->dim;
		table->chunks = (table->elements + core->chunk_elements - 1) / core->chunk_elements;
		table->value_shift = core_value_bytes(core) == 8 ? 3 : 2;
		table->scale = ldexp(1.0, (int)core->fraction_bits);
		table->unscale = 1.0 / table->scale;
	} else if (!core_schema_same(&table->core, core)) {
		return base_fail(-EEXIST, "table %s is %s on one server and %s on another",
				 table->name, core_schema_text(&table->core, here, sizeof(here)),
				 core_schema_text(core, there, sizeof(there)));
	}
	table->parts[shard] = (struct worker_part){
		.first = core->first_element,
		.elements = core->elements,
		.data_offset = core->data_offset,
		.chunks_offset = core->chunks_offset,
		.entry = entry->index,
	};
	if (core->elements) {
		table->holders++;
		table->last_part = shard;
	}
	return 0;
}

/* When every part is known and ready. */
int worker_table_finish(struct ramps_worker *worker, struct ramps_table *table)
{
	if (table->core.mode == RAMPS_DIRECT) {
		if (!worker->adds)
			worker->adds = calloc(worker->member->shards, sizeof(*worker->adds));
		table->adds = worker->adds;
		return table->adds ? 0 : -ENOMEM;
	}
	if (table->core.synchronous && !table->steps)
		return table_steps(worker, table);
	return 0;
}

/*
 * Waits until the part on shard is ready. -EOWNERDEAD: whoever was filling the table in died, and
 * nobody has taken it over.
 */
int worker_await_ready(struct ramps_worker *worker, uint32_t shard, uint32_t index, uint64_t deadline_ns)
{
	const struct core_header *header = &worker_link(worker, shard)->header;
	struct worker_wait wait = {
		.shard = shard,
		.region = CORE_PUBLISHED,
		.offset = entry_offset(worker_link(worker, shard), index),
		.seen = CORE_PREPARING,
	};

	for (;;) {
		struct core_entry entry;
		uint64_t state = 0;
		uint32_t rank;
		int ret = worker_read(worker, shard, CORE_PUBLISHED, wait.offset, &entry, sizeof(entry));

		if (ret || entry.state == CORE_READY)
			return ret;
		rank = core_state_of(entry.creator);
		if (rank < worker->member->workers)
			ret = worker_read(worker, shard, CORE_PUBLISHED,
					  header->states_offset + 8ull * rank, &state, sizeof(state));
		if (ret)
			return ret;
		if (state != core_state(CORE_LIVE, core_incarnation_of(entry.creator))) {
			base_fail(-EOWNERDEAD, "rank %u died while it filled in the table", rank);
			base_error_ranks(&rank, 1);
			return -EOWNERDEAD;
		}
		ret = worker_wait(worker, &wait, deadline_ns);
		if (ret)
			return ret;
	}
}

/* Waits until the directory of `shard` has the name, and its part is ready. */
static int lookup(struct ramps_worker *worker, uint32_t shard, const char *name,
		  uint64_t deadline_ns, struct core_entry *entry)
{
	struct core_request request = { .kind = CORE_LOOKUP, .entry.kind = CORE_TABLE };
	struct worker_wait wait = {
		.shard = shard,
		.region = CORE_PUBLISHED,
		.offset = offsetof(struct core_header, entries),
	};
	struct core_reply reply;
	int ret;

	memcpy(request.entry.name, name, strlen(name) + 1);
	for (;;) {
		ret = worker_read(worker, shard, CORE_PUBLISHED, wait.offset, &wait.seen, 8);
		if (!ret)
			ret = worker_call(worker, shard, &request, &reply,
					  worker_deadline(worker, 10000));
		if (ret != -ENOENT)
			break;
		if (fabric_now(worker->fabric) >= deadline_ns)
			return base_fail(-ENOENT, "there is no table %s", name);
		ret = worker_wait(worker, &wait, deadline_ns);
		if (ret == -ETIMEDOUT)
			return base_fail(ret, "nobody created table %s in time", name);
		if (ret)
			return ret;
	}
	if (ret)
		return ret;
	wait.offset = entry_offset(worker_link(worker, shard), reply.entry.index);
	wait.seen = CORE_PREPARING;
	do {
		ret = worker_await_ready(worker, shard, reply.entry.index, deadline_ns);
		/* The next life of that rank may still come and finish it. */
		if (ret == -EOWNERDEAD &&
		    worker_link(worker, shard)->header.on_death != RAMPS_ON_DEATH_FAIL) {
			ret = worker_wait(worker, &wait, deadline_ns);
			ret = ret ? ret : 1;
		}
	} while (ret == 1);
	if (ret == -ETIMEDOUT)
		return base_fail(ret, "table %s is there, but rank %u has not filled it in", name,
				 core_state_of(reply.entry.creator));
	*entry = reply.entry;
	return ret;
}

static int check_expected(const struct ramps_table *table, const struct ramps_schema *expected)
{
	struct ramps_schema asked = *expected;
	struct core_table core;
	char is[160], want[160];
	int ret;

	asked.name = table->name;
	ret = core_schema_check(&asked, &core);
	if (ret || core_schema_same(&core, &table->core))
		return ret;
	return base_fail(-EEXIST, "table %s is %s, not %s", table->name,
			 core_schema_text(&table->core, is, sizeof(is)),
			 core_schema_text(&core, want, sizeof(want)));
}

int worker_table_open(struct ramps_worker *worker, const char *name,
		      const struct ramps_schema *expected, int timeout_ms, struct ramps_table **table)
{
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);
	struct ramps_table *made;
	int ret;

	ret = base_name_check("table", name);
	if (!ret)
		ret = worker_table_make(worker, name, &made);
	if (ret)
		return ret;
	for (uint32_t shard = 0; shard < worker->member->shards && !ret; shard++) {
		struct core_entry entry;

		ret = lookup(worker, shard, name, deadline_ns, &entry);
		if (!ret)
			ret = worker_table_take(made, shard, &entry);
	}
	if (ret == -ENOENT && timeout_ms) /* the time was up at the first look */
		ret = base_fail(-ETIMEDOUT, "nobody created table %s in time", name);
	if (!ret && expected)
		ret = check_expected(made, expected);
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

int worker_table_info(const struct ramps_table *table, struct ramps_table_info *info)
{
	*info = (struct ramps_table_info){
		.size = info->size,
		.name = table->name,
		.rows = table->core.rows,
		.dim = table->core.dim,
		.type = table->core.type,
		.mode = table->core.mode,
		.fraction_bits = table->core.fraction_bits,
		.synchronous = table->core.synchronous,
		.rate = table->core.rate,
		.servers = table->holders,
		.chunk_elements = table->core.chunk_elements,
		.chunks = table->chunks,
	};
	return 0;
}

struct ramps_op *worker_table_op(struct ramps_table *table)
{
	return &table->child.worker->blocking->op;
}

int worker_table_run(struct ramps_table *table, struct ramps_transfer *transfer, int timeout_ms)
{
	struct ramps_worker *worker = table->child.worker;
	struct worker_request *request = worker->blocking;
	int ret = worker_request_begin(request, table);

	if (!ret)
		ret = worker_request_run(worker, request, timeout_ms);
	if (ret == -EIO)
		base_error_unknown(request->unknown);
	if (transfer) {
		transfer->steps = request->steps;
		transfer->unknown_ops = ret == -EIO ? request->unknown : 0;
	}
	return ret;
}

int worker_table_view(struct ramps_table *table, uint64_t first_row, uint64_t rows, const void **view)
{
	struct ramps_worker *worker = table->child.worker;
	uint64_t element = first_row * table->core.dim, n = rows * table->core.dim;
	struct worker_part *part;
	uint32_t shard;

	if (!rows || first_row >= table->core.rows || rows > table->core.rows - first_row)
		return base_fail(-ERANGE, "%llu rows from row %llu of table %s, which has %llu",
				 (unsigned long long)rows, (unsigned long long)first_row,
				 table->name, (unsigned long long)table->core.rows);
	if (table->core.mode == RAMPS_DIRECT && table->core.type == RAMPS_FLOAT32)
		return base_fail(-EOPNOTSUPP, "table %s is fixed point: pull it", table->name);
	shard = worker_part_of(table, element);
	part = &table->parts[shard];
	if (n > part->first + part->elements - element)
		return base_fail(-EXDEV, "the rows lie on more than one server: pull them, or view fewer");
	*view = fabric_map(worker_link(worker, shard)->ep,
			   table->core.mode == RAMPS_DIRECT ? CORE_WORDS : CORE_PUBLISHED,
			   part->data_offset + ((element - part->first) << table->value_shift),
			   n << table->value_shift);
	return *view ? 0 : base_fail(-EOPNOTSUPP, "this fabric has no shared memory: pull the rows");
}

void worker_table_close(struct ramps_table *table)
{
	if (!table)
		return;
	if (table->child.worker)
		worker_requests_fail(table->child.worker, table);
	worker_child_remove(&table->child);
	worker_table_free(table);
}

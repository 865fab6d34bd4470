/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/schema.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/name.h"

#define MAX_ELEMENTS      (1ull << 44) /* times 8 bytes is 2^47, a process's address space */
#define MAX_FRACTION_BITS 62u

static int check_kind(const struct ramps_schema *s)
{
	if (s->type != RAMPS_FLOAT32 && s->type != RAMPS_INT64)
		return base_fail(-EINVAL, "table %s: no such type: %u", s->name, s->type);
	if (s->mode != RAMPS_DIRECT && s->mode != RAMPS_SLOTS)
		return base_fail(-EINVAL, "table %s: no such mode: %u", s->name, s->mode);
	if (s->mode == RAMPS_SLOTS && s->type != RAMPS_FLOAT32)
		return base_fail(-EINVAL, "table %s: slots take float32 only", s->name);
	if (s->synchronous > 1 || (s->synchronous && s->mode != RAMPS_SLOTS))
		return base_fail(-EINVAL, "table %s: synchronous is 0, or 1 in a table of slots",
				 s->name);
	if (s->mode == RAMPS_DIRECT && s->type == RAMPS_FLOAT32 && s->fraction_bits > MAX_FRACTION_BITS)
		return base_fail(-EINVAL, "table %s: %u fraction bits, at most %u", s->name,
				 s->fraction_bits, MAX_FRACTION_BITS);
	if (s->mode == RAMPS_SLOTS && !(isfinite(s->rate) && s->rate >= 0))
		return base_fail(-EINVAL, "table %s: rate %g is not finite and at least 0", s->name,
				 (double)s->rate);
	return 0;
}

/* A chunk is whole rows where a row fits, so that rows can be pushed by chunks. */
static uint32_t chunk_elements(uint64_t dim, uint32_t value_bytes)
{
	uint32_t most = CORE_CHUNK_BYTES / value_bytes;

	return dim < most ? most - most % (uint32_t)dim : most;
}

int core_schema_check(const struct ramps_schema *schema, struct core_table *table)
{
	int ret = base_name_check("table", schema->name);

	if (ret < 0)
		return ret;
	ret = check_kind(schema);
	if (ret < 0)
		return ret;
	if (schema->rows == 0 || schema->dim == 0)
		return base_fail(-EINVAL, "table %s: rows and dim must be at least 1", schema->name);
	if (schema->rows >= MAX_ELEMENTS || schema->dim >= MAX_ELEMENTS ||
	    schema->rows >= (MAX_ELEMENTS + schema->dim - 1) / schema->dim)
		return base_fail(-EOVERFLOW,
				 "table %s: %" PRIu64 " x %" PRIu64 " values are too many, at most "
				 "2^44 - 1",
				 schema->name, schema->rows, schema->dim);
	*table = (struct core_table){
		.rows = schema->rows,
		.dim = schema->dim,
		.type = schema->type,
		.mode = schema->mode,
		.synchronous = schema->synchronous,
	};
	if (schema->mode == RAMPS_SLOTS)
		table->rate = schema->rate;
	else if (schema->type == RAMPS_FLOAT32)
		table->fraction_bits = schema->fraction_bits;
	table->chunk_elements = chunk_elements(table->dim, core_value_bytes(table));
	return 0;
}

int core_schema_same(const struct core_table *a, const struct core_table *b)
{
	return a->rows == b->rows && a->dim == b->dim && a->type == b->type && a->mode == b->mode &&
	       a->fraction_bits == b->fraction_bits && a->synchronous == b->synchronous;
}

const char *core_schema_text(const struct core_table *table, char *buf, uint32_t len_bytes)
{
	const char *type = table->type == RAMPS_INT64 ? "int64" : "float32";
	char detail[48] = "";

	if (table->mode == RAMPS_SLOTS)
		snprintf(detail, sizeof(detail), "slots %s",
			 table->synchronous ? "synchronous" : "asynchronous");
	else if (table->type == RAMPS_FLOAT32)
		snprintf(detail, sizeof(detail), "direct with %u fraction bits", table->fraction_bits);
	else
		snprintf(detail, sizeof(detail), "direct");
	snprintf(buf, len_bytes, "%" PRIu64 " x %" PRIu64 " %s %s", table->rows, table->dim, type, detail);
	return buf;
}

void core_part(const struct core_table *table, const char *name, uint32_t shard, uint32_t shards,
	       uint64_t *first_element, uint64_t *elements)
{
	uint64_t total = table->rows * table->dim;
	uint64_t chunks = (total + table->chunk_elements - 1) / table->chunk_elements;
	uint64_t place = (shard + shards - core_first_shard(name, shards)) % shards;
	uint64_t each = chunks / shards, more = chunks % shards;
	uint64_t first = place * each + (place < more ? place : more);
	uint64_t end = first + each + (place < more ? 1 : 0);

	first *= table->chunk_elements;
	end *= table->chunk_elements;
	*first_element = first < total ? first : total;
	*elements = (end < total ? end : total) - *first_element;
}

uint32_t core_first_shard(const char *name, uint32_t shards)
{
	uint64_t hash = 14695981039346656037ull; /* FNV-1a */

	for (; *name; name++) {
		hash ^= (unsigned char)*name;
		hash *= 1099511628211ull;
	}
	return (uint32_t)((hash ^ hash >> 32) % shards);
}

uint32_t core_value_bytes(const struct core_table *table)
{
	return table->mode == RAMPS_SLOTS ? 4 : 8;
}

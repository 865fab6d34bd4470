/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables: checks of a schema, and where its chunks lie. */
#ifndef CORE_SCHEMA_H
#define CORE_SCHEMA_H

#include "core/layout.h"

/* Fills the parts of `table` that all servers share; 0, -EINVAL or -EOVERFLOW with text. */
int core_schema_check(const struct ramps_schema *schema, struct core_table *table);

/*
 * Whether two tables have the same rows, dim, type, mode, fraction bits and synchronous. Not the
 * rate: it is a setting.
 */
int core_schema_same(const struct core_table *a, const struct core_table *b);

/* One line, "1000 x 64 float32 slots synchronous", for error texts. Returns buf. */
const char *core_schema_text(const struct core_table *table, char *buf, uint32_t len_bytes);

/*
 * The part of a table of rows * dim values that `shard` of `shards` holds: whole chunks, in one
 * range; the ranges follow one another from shard core_first_shard(name) on, so that small tables
 * spread.
 */
void core_part(const struct core_table *table, const char *name, uint32_t shard, uint32_t shards,
	       uint64_t *first_element, uint64_t *elements);

/*
 * The shard that holds a table's first chunk, and whole barriers and clocks: by a hash of the
 * name.
 */
uint32_t core_first_shard(const char *name, uint32_t shards);

/* Bytes of a value where it lies in the arena: 8 (direct) or 4 (slots). */
uint32_t core_value_bytes(const struct core_table *table);

#endif

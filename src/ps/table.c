/* SPDX-License-Identifier: BSD-2-Clause */
/* What the server keeps of a table of slots beside the arena. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "ps/ps_private.h"

void ps_table_close(struct ps_table *table)
{
	if (!table)
		return;
	free(table->pending);
	free(table->pending_count);
	free(table);
}

int ps_table_open(struct ps_server *server, struct core_entry *entry)
{
	const struct core_table *shape = &entry->table;
	struct ps_table *t = calloc(1, sizeof(*t));

	if (!t)
		goto err;
	t->entry = entry;
	t->shape = shape;
	t->chunk_count = (uint32_t)((shape->elements + shape->chunk_elements - 1) / shape->chunk_elements);
	t->data = core_arena_at(server->arena, CORE_PUBLISHED, shape->data_offset);
	t->chunks = core_arena_at(server->arena, CORE_PUBLISHED, shape->chunks_offset);
	t->applied = core_arena_at(server->arena, CORE_PRIVATE, shape->applied_offset);
	if (shape->synchronous && t->chunk_count) {
		t->pending = calloc((size_t)t->chunk_count * ps_workers(server), sizeof(*t->pending));
		t->pending_count = calloc(t->chunk_count, sizeof(*t->pending_count));
		if (!t->pending || !t->pending_count)
			goto err;
	}
	server->tables[entry->index] = t;
	return 0;
err:
	ps_table_close(t);
	return base_fail(-ENOMEM, "no memory for table %s", entry->name);
}

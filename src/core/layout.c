/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/layout.h"

#include <stddef.h>

static uint32_t fold(uint32_t hash, uint64_t value)
{
	for (int i = 0; i < 8; i++) {
		hash ^= (uint32_t)(value & 0xff);
		hash *= 16777619u; /* FNV-1a */
		value >>= 8;
	}
	return hash;
}

#define TYPE(type) (hash = fold(hash, sizeof(struct type)))
#define FIELD(type, field) \
	(hash = fold(fold(hash, offsetof(struct type, field)), sizeof(((struct type *)0)->field)))

static uint32_t fold_shared(uint32_t hash)
{
	TYPE(core_header);
	FIELD(core_header, magic);
	FIELD(core_header, version);
	FIELD(core_header, layout_hash);
	FIELD(core_header, arena_id);
	FIELD(core_header, job);
	FIELD(core_header, max_workers);
	FIELD(core_header, cells);
	FIELD(core_header, on_death);
	FIELD(core_header, workers);
	FIELD(core_header, shard);
	FIELD(core_header, shards);
	FIELD(core_header, arena_bytes);
	FIELD(core_header, states_offset);
	FIELD(core_header, ranks_offset);
	FIELD(core_header, entries_offset);
	FIELD(core_header, rank_words_offset);
	FIELD(core_header, server_pid);
	FIELD(core_header, lives);
	FIELD(core_header, entries);
	FIELD(core_header, members);
	FIELD(core_header, asleep);
	FIELD(core_header, used_bytes);
	TYPE(core_rank);
	FIELD(core_rank, head);
	FIELD(core_rank, applied);
	FIELD(core_rank, dropped);
	FIELD(core_rank, pid);
	TYPE(core_rank_words);
	FIELD(core_rank_words, tail);
	FIELD(core_rank_words, heartbeat);
	FIELD(core_rank_words, landed);
	TYPE(core_cell);
	FIELD(core_cell, position);
	FIELD(core_cell, step);
	FIELD(core_cell, kind);
	FIELD(core_cell, entry);
	FIELD(core_cell, chunk);
	FIELD(core_cell, first);
	FIELD(core_cell, count);
	FIELD(core_cell, weight);
	FIELD(core_cell, rate);
	return hash;
}

static uint32_t fold_directory(uint32_t hash)
{
	TYPE(core_entry);
	FIELD(core_entry, state);
	FIELD(core_entry, kind);
	FIELD(core_entry, index);
	FIELD(core_entry, name);
	FIELD(core_entry, table);
	FIELD(core_entry, barrier);
	FIELD(core_entry, clock);
	FIELD(core_entry, steps);
	FIELD(core_entry, words_end);
	FIELD(core_entry, published_end);
	FIELD(core_entry, private_end);
	FIELD(core_entry, creator);
	TYPE(core_table);
	FIELD(core_table, rows);
	FIELD(core_table, dim);
	FIELD(core_table, type);
	FIELD(core_table, mode);
	FIELD(core_table, fraction_bits);
	FIELD(core_table, synchronous);
	FIELD(core_table, rate);
	FIELD(core_table, chunk_elements);
	FIELD(core_table, first_element);
	FIELD(core_table, elements);
	FIELD(core_table, data_offset);
	FIELD(core_table, chunks_offset);
	FIELD(core_table, applied_offset);
	TYPE(core_barrier);
	FIELD(core_barrier, members);
	FIELD(core_barrier, fan_in);
	FIELD(core_barrier, nodes_offset);
	FIELD(core_barrier, group_offset);
	FIELD(core_barrier, first_generation);
	TYPE(core_clock);
	FIELD(core_clock, words_offset);
	FIELD(core_clock, members);
	TYPE(core_chunk);
	FIELD(core_chunk, version);
	FIELD(core_chunk, steps);
	TYPE(core_node);
	FIELD(core_node, word);
	FIELD(core_node, released);
	return hash;
}

static uint32_t fold_private(uint32_t hash)
{
	TYPE(core_private);
	FIELD(core_private, magic);
	FIELD(core_private, arena_id);
	FIELD(core_private, valid);
	FIELD(core_private, version);
	FIELD(core_private, steps);
	FIELD(core_private, entry);
	FIELD(core_private, chunk);
	FIELD(core_private, first);
	FIELD(core_private, count);
	FIELD(core_private, first_rank);
	FIELD(core_private, ranks);
	FIELD(core_private, undo_data_offset);
	FIELD(core_private, undo_applied_offset);
	FIELD(core_private, rank_private_offset);
	TYPE(core_rank_private);
	FIELD(core_rank_private, identity);
	FIELD(core_rank_private, left_at);
	return hash;
}

uint32_t core_layout_hash(void)
{
	uint32_t hash = 2166136261u;
	const uint16_t one = 1;

	hash = fold(hash, CORE_MAGIC);
	hash = fold(hash, CORE_CHUNK_BYTES);
	hash = fold(hash, CORE_MAX_ENTRIES);
	hash = fold(hash, *(const uint8_t *)&one); /* byte order */
	hash = fold_shared(hash);
	hash = fold_directory(hash);
	return fold_private(hash);
}

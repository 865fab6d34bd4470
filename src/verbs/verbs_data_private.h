/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the data path share. */
#ifndef VERBS_VERBS_DATA_PRIVATE_H
#define VERBS_VERBS_DATA_PRIVATE_H

#include "base/word.h"
#include "verbs/verbs_data.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define VERBS_LINE_BYTES 64ull

/* A signalled work request, and those before it back to the signalled one before. */
struct verbs_flight {
	struct fabric_completion *completion; /* NULL: within a list */
	uint64_t stage_end, copy_end;         /* free, and to be copied, up to here */
	uint32_t wrs;                         /* none: a list of nothing */
};

struct verbs_copy {
	void *to;
	uint32_t from; /* offset in the staging */
	uint32_t len_bytes;
	bool is_word; /* an atomic's result */
};

struct verbs_buffer {
	uintptr_t base, end;
	uint32_t lkey;
	struct ibv_mr *mr;
};

struct verbs_buffer_table {
	struct verbs_buffer_table *older; /* somebody may be reading it */
	uint32_t count;
	struct verbs_buffer buffers[];
};

/* Whether all of this memory is registered, and by what key. */
static inline bool verbs_buffer_find(const struct verbs_data *data, const void *local,
				     uint64_t len_bytes, uint32_t *lkey)
{
	const struct verbs_buffers *buffers = data->config.buffers;
	const struct verbs_buffer_table *table;
	uintptr_t at = (uintptr_t)local;

	if (!buffers)
		return false;
	table = __atomic_load_n(&buffers->table, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; table && i < table->count; i++) {
		const struct verbs_buffer *buffer = &table->buffers[i];

		if (at >= buffer->base && at < buffer->end && len_bytes <= buffer->end - at) {
			*lkey = buffer->lkey;
			return true;
		}
	}
	return false;
}

/* verbs_staging.c */
int verbs_staging_open(struct verbs_data *data);
void verbs_staging_close(struct verbs_data *data);

static inline uint64_t verbs_lines(uint64_t len_bytes)
{
	return (len_bytes + VERBS_LINE_BYTES - 1) & ~(VERBS_LINE_BYTES - 1);
}

/*
 * Takes len_bytes in one run: its offset in the staging, or UINT64_MAX where there is no room. It is given
 * back, in order of taking, with the flight.
 */
static inline uint64_t verbs_stage_take(struct verbs_data *data, uint64_t len_bytes)
{
	uint64_t at = data->stage_tail & (data->staging_bytes - 1);
	uint64_t need = verbs_lines(len_bytes), skip = 0;

	if (at + need > data->staging_bytes) {
		skip = data->staging_bytes - at;
		at = 0;
	}
	if (data->stage_tail + skip + need - data->stage_head > data->staging_bytes)
		return UINT64_MAX;
	data->stage_tail += skip + need;
	return at;
}

/* verbs_plan.c */
/* What a list takes: exact, but that the staging may lose up to one run at its end. */
struct verbs_plan {
	uint64_t wrs, ops;
	uint64_t stage_bytes, largest_run;
};

/* How the local memory of a READ or WRITE is reached. */
enum verbs_way { VERBS_INLINE, VERBS_DIRECT, VERBS_STAGED };

static inline enum verbs_way verbs_way_of(const struct verbs_data *data, const struct fabric_op *op,
					  uint64_t len_bytes, uint32_t *lkey)
{
	if (op->opcode == FABRIC_WRITE && len_bytes <= data->inline_bytes)
		return VERBS_INLINE;
	if (!(op->flags & FABRIC_INLINE) && verbs_buffer_find(data, op->local, len_bytes, lkey))
		return VERBS_DIRECT;
	return VERBS_STAGED;
}

/* The largest transfer of one work request. */
static inline uint64_t verbs_unit_of(const struct verbs_data *data, enum verbs_way way)
{
	return way == VERBS_DIRECT ? data->config.max_message_bytes & ~(VERBS_LINE_BYTES - 1) :
				     data->piece_bytes;
}

/* What is transferred next, of len_bytes left, from a remote offset on. */
static inline uint64_t verbs_cut(uint64_t offset, uint64_t len_bytes, uint64_t unit)
{
	return likely(len_bytes <= unit) ? len_bytes : unit - offset % VERBS_LINE_BYTES;
}

static inline uint64_t verbs_pieces(uint64_t offset, uint64_t len_bytes, uint64_t unit)
{
	return likely(len_bytes <= unit) ? 1 : (len_bytes + offset % VERBS_LINE_BYTES + unit - 1) / unit;
}

/* Elements of a list of READs that share a run of the staging. */
static inline uint64_t verbs_run_elements(const struct verbs_data *data, uint64_t len_bytes)
{
	return len_bytes ? data->piece_bytes / len_bytes : UINT32_MAX;
}

int verbs_plan(const struct verbs_data *data, const struct fabric_op *ops, uint32_t n,
	       struct verbs_plan *plan);

/* verbs_post.c: */
/* Posts of a large list what there is room for. */
void verbs_rest_issue(struct verbs_data *data);

/* verbs_data.c */
int verbs_data_gone(const struct verbs_data *data);

static inline void verbs_complete(struct verbs_data *data, struct fabric_completion *completion, int status)
{
	completion->pending--;
	data->lists--;
	if (unlikely(status) && !completion->status)
		completion->status = status;
	data->completed++;
}

#endif

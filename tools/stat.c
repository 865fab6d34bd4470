/* SPDX-License-Identifier: BSD-2-Clause */
/* What text and JSON both need to know of a sample. */
#include "stat.h"

#include "base/clock.h"

const struct stat_sample *stat_comparable(const struct stat_sample *before, const struct stat_sample *now)
{
	return before && before->header.arena_id == now->header.arena_id &&
			       before->workers == now->workers ?
		       before :
		       NULL;
}

double stat_rate(const struct stat_sample *before, const struct stat_sample *now,
		 uint64_t before_count, uint64_t now_count)
{
	if (now_count < before_count || now->time_ns <= before->time_ns)
		return 0;
	return (double)(now_count - before_count) /
	       ((double)(now->time_ns - before->time_ns) / (double)NS_PER_S);
}

uint64_t stat_landed(const struct core_rank_words *words)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < CORE_QUEUE_PAIRS; i++)
		sum += words->landed[i];
	return sum;
}

uint64_t stat_staged(const struct stat_sample *sample, uint32_t rank)
{
	uint64_t head = sample->ranks[rank].head, tail = sample->words[rank].tail;

	return tail > head ? tail - head : 0;
}

const struct stat_object *stat_before(const struct stat_sample *before, const struct stat_object *object)
{
	uint32_t index = object->entry.index;

	if (!before || !before->count)
		return NULL;
	/* Damaged entries are left out: it lies at its index or before. */
	for (uint32_t i = (index < before->count ? index : before->count - 1) + 1; i-- > 0;) {
		if (before->objects[i].entry.index < index)
			break;
		if (before->objects[i].entry.index == index)
			return &before->objects[i];
	}
	return NULL;
}

uint32_t stat_in_state(const struct stat_sample *sample, uint32_t state, uint32_t *ranks)
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < sample->workers; rank++)
		if (core_state_of(sample->states[rank]) == state)
			ranks[n++] = rank;
	return n;
}

uint32_t stat_at_count(const struct stat_sample *sample, const struct stat_object *clock,
		       uint64_t value, uint32_t *ranks)
{
	uint32_t n = 0, live = stat_in_state(sample, CORE_LIVE, ranks);

	for (uint32_t rank = 0; rank < sample->workers; rank++)
		if (clock->counts[rank] == value &&
		    (!live || core_state_of(sample->states[rank]) == CORE_LIVE))
			ranks[n++] = rank;
	return n;
}

uint32_t stat_missing(const struct stat_object *barrier, uint32_t *ranks)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < barrier->entry.barrier.members; i++)
		if (!barrier->arrived[i])
			ranks[n++] = barrier->ranks[i];
	return n;
}

void stat_clock_range(const struct stat_sample *sample, const struct stat_object *clock,
		      uint64_t *least, uint64_t *most)
{
	bool any_live = false;

	for (uint32_t rank = 0; rank < sample->workers; rank++)
		any_live |= core_state_of(sample->states[rank]) == CORE_LIVE;
	*least = UINT64_MAX;
	*most = 0;
	for (uint32_t rank = 0; rank < sample->workers; rank++) {
		uint64_t count = clock->counts[rank];

		if (any_live && core_state_of(sample->states[rank]) != CORE_LIVE)
			continue;
		if (count < *least)
			*least = count;
		if (count > *most)
			*most = count;
	}
	if (*least > *most)
		*least = *most;
}

const char *stat_rank_state(uint64_t state)
{
	static const char *const names[] = { "absent", "live", "left", "dead" };
	uint32_t i = core_state_of(state);

	return i < sizeof(names) / sizeof(names[0]) ? names[i] : "damaged";
}

const char *stat_type(const struct core_table *table)
{
	return table->type == RAMPS_FLOAT32 ? "float32" : "int64";
}

const char *stat_mode(const struct core_table *table)
{
	return table->mode == RAMPS_DIRECT ? "direct" : "slots";
}

const char *stat_entry_state(const struct core_entry *entry)
{
	return entry->state == CORE_READY ? "ready" : "preparing";
}

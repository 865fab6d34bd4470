/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The directory: creating and finding tables, barriers and clocks.
 *
 * A new entry gets memory behind that of the last entry; it is filled in, and published by
 * raising `entries` over it. A server killed before that leaves no trace: the next life gives
 * what lies behind the last entry back (core/arena.c). Creating again what is there gives what is
 * there. All that comes in a message is checked: the peer may be wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/name.h"
#include "ps/ps_private.h"

#define NAMES (2 * CORE_MAX_ENTRIES)

static const char *const kinds[] = {
	[CORE_TABLE] = "table",
	[CORE_BARRIER] = "barrier",
	[CORE_CLOCK] = "clock",
};

static uint32_t *slot_of(const struct ps_server *server, uint32_t kind, const char *name)
{
	uint32_t hash = 2166136261u ^ kind; /* FNV-1a */
	uint32_t *slot;

	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	for (;; hash++) {
		slot = &server->names[hash % NAMES];
		if (!*slot || (server->entries[*slot - 1].kind == kind &&
			       strcmp(server->entries[*slot - 1].name, name) == 0))
			return slot;
	}
}

int ps_entry_open(struct ps_server *server, uint32_t index)
{
	struct core_entry *e = &server->entries[index];
	int ret = 0;

	if (e->kind == CORE_TABLE && e->table.mode == RAMPS_SLOTS)
		ret = ps_table_open(server, e);
	else if (e->kind == CORE_BARRIER)
		ret = ps_barrier_add(server, &e->barrier);
	if (ret < 0)
		return ret;
	*slot_of(server, e->kind, e->name) = index + 1;
	server->ends[CORE_WORDS] = e->words_end;
	server->ends[CORE_PUBLISHED] = e->published_end;
	server->ends[CORE_PRIVATE] = e->private_end;
	return 0;
}

/* Memory for an object that is being made: grows the ends of `e`. Returns the offset. */
static uint64_t place(uint64_t *end, uint64_t len_bytes, uint64_t align)
{
	uint64_t at = core_round_up(*end, align);

	*end = core_round_up(at + len_bytes, CORE_LINE_BYTES);
	return at;
}

/*
 * Where growing means to register anew, and to tell all peers, it is done in steps that grow with what
 * is there.
 */
static int extend(struct ps_server *server, uint32_t region, uint64_t end)
{
	struct core_arena *arena = server->arena;
	uint64_t have = arena->allocated[region], step = core_arena_free(arena) / 2;
	int ret = -ENOSPC;

	if (!server->fabric->grants_ready)
		return core_arena_extend(arena, region, end);
	if (step > have)
		step = have;
	step = core_round_up(have + step, CORE_PAGE_BYTES);
	if (end > have && step > end)
		ret = core_arena_extend(arena, region, step);
	if (ret < 0)
		ret = core_arena_extend(arena, region, end);
	if (ret < 0 || region == CORE_PRIVATE || server->granted[region] >= end)
		return ret;
	ret = ps_grant_again(server, region);
	if (ret == 0) /* else the next entry tries again */
		server->granted[region] = arena->allocated[region];
	return ret;
}

static int allocate(struct ps_server *server, const struct core_entry *e)
{
	const uint64_t ends[CORE_REGIONS] = {
		[CORE_WORDS] = e->words_end,
		[CORE_PUBLISHED] = e->published_end,
		[CORE_PRIVATE] = e->private_end,
	};
	uint64_t need = 0, lacks = 0, left = core_arena_free(server->arena);
	int ret = 0;

	for (uint32_t r = 0; r < CORE_REGIONS; r++) {
		if (r == CORE_SLOTS)
			continue;
		need += ends[r] - server->ends[r];
		if (ends[r] > server->arena->allocated[r])
			lacks += ends[r] - server->arena->allocated[r];
	}
	if (lacks > left)
		return base_fail(-ENOSPC,
				 "%s %s needs %" PRIu64 " bytes, the arena of %" PRIu64
				 " has %" PRIu64 " left: start the server with a larger arena",
				 kinds[e->kind], e->name, need, server->arena->arena_bytes, left);
	for (uint32_t r = 0; r < CORE_REGIONS && ret == 0; r++)
		if (r != CORE_SLOTS)
			ret = extend(server, r, ends[r]);
	return ret;
}

/*
 * Of an entry that was not published; another may fit. What a card has pinned stays where it is: with
 * other pages behind the same addresses, the card and this process would see different memory.
 */
static void give_back(struct ps_server *server, const uint64_t ends[CORE_REGIONS])
{
	for (uint32_t r = 0; r < CORE_REGIONS; r++) {
		server->ends[r] = ends[r];
		if (r == CORE_SLOTS)
			continue;
		if (!server->fabric->grants_ready)
			core_arena_trim(server->arena, r, ends[r]);
		else
			memset(core_arena_at(server->arena, r, ends[r]), 0,
			       server->arena->allocated[r] - ends[r]);
	}
}

static int plan_table(const struct ps_server *server, const struct core_table *asked,
		      struct core_entry *e)
{
	const struct ramps_schema schema = {
		.name = e->name,
		.rows = asked->rows,
		.dim = asked->dim,
		.type = asked->type,
		.mode = asked->mode,
		.fraction_bits = asked->fraction_bits,
		.synchronous = asked->synchronous,
		.rate = asked->rate,
	};
	struct core_table *t = &e->table;
	uint64_t chunks;
	int ret = core_schema_check(&schema, t);

	if (ret < 0)
		return ret;
	core_part(t, e->name, server->header->shard, server->header->shards, &t->first_element,
		  &t->elements);
	chunks = (t->elements + t->chunk_elements - 1) / t->chunk_elements;
	if (chunks > UINT32_MAX)
		return base_fail(-EOVERFLOW, "table %s has too many chunks", e->name);
	e->state = CORE_PREPARING;
	if (t->mode == RAMPS_DIRECT) {
		t->data_offset = place(&e->words_end, t->elements * sizeof(uint64_t), CORE_LINE_BYTES);
		return 0;
	}
	t->chunks_offset = place(&e->published_end, chunks * sizeof(struct core_chunk), CORE_LINE_BYTES);
	t->data_offset = place(&e->published_end, t->elements * sizeof(float), CORE_PAGE_BYTES);
	t->applied_offset = place(&e->private_end, chunks * ps_workers(server) * sizeof(uint64_t),
				  CORE_LINE_BYTES);
	return 0;
}

/* The bits of a group's ranks, which have to be exactly its members. */
static int check_group(const struct ps_server *server, const struct core_entry *e, const uint64_t *group)
{
	uint32_t workers = ps_workers(server), count = 0;

	for (uint32_t i = 0; i < CORE_MAX_WORKERS / 64; i++) {
		uint64_t valid = i < workers / 64 ? UINT64_MAX : 0;

		if (i == workers / 64)
			valid = (1ull << workers % 64) - 1;
		if (group[i] & ~valid)
			return base_fail(-EINVAL, "barrier %s: a rank of its group is not below %u",
					 e->name, workers);
		count += (uint32_t)__builtin_popcountll(group[i]);
	}
	if (count != e->barrier.members)
		return base_fail(-EINVAL, "barrier %s: %u ranks in a group of %u", e->name, count,
				 e->barrier.members);
	return 0;
}

static int plan_barrier(const struct ps_server *server, const struct core_barrier *asked,
			struct core_entry *e)
{
	struct core_barrier *b = &e->barrier;
	uint32_t workers = ps_workers(server);

	b->members = asked->members;
	b->fan_in = asked->fan_in;
	b->first_generation = asked->first_generation;
	if (b->members == 0 || b->members > workers)
		return base_fail(-EINVAL, "barrier %s: %u members, not 1 to %u", e->name,
				 b->members, workers);
	if (b->fan_in < 2 || b->fan_in > CORE_MAX_FAN_IN)
		return base_fail(-EINVAL, "barrier %s: fan-in %u, not 2 to %u", e->name, b->fan_in,
				 CORE_MAX_FAN_IN);
	b->nodes_offset = place(&e->words_end,
				sync_barrier_nodes(b->members, b->fan_in) * sizeof(struct core_node),
				CORE_LINE_BYTES);
	e->state = CORE_READY;
	if (b->members < workers)
		b->group_offset = place(&e->published_end, (workers + 63) / 64 * sizeof(uint64_t),
					CORE_LINE_BYTES);
	return 0;
}

static int plan_clock(const struct ps_server *server, const struct core_clock *asked,
		      struct core_entry *e)
{
	if (asked->members != ps_workers(server))
		return base_fail(-EINVAL, "clock %s: %u members, the job has %u workers", e->name,
				 asked->members, ps_workers(server));
	e->state = CORE_READY;
	e->clock.members = asked->members;
	e->clock.words_offset = place(&e->words_end, asked->members * sizeof(uint64_t), CORE_LINE_BYTES);
	return 0;
}

/*
 * What an entry says of itself when it is put behind the last one; it has its kind and name
 * already.
 */
static int plan(const struct ps_server *server, const struct core_entry *asked, struct core_entry *e)
{
	e->words_end = server->ends[CORE_WORDS];
	e->published_end = server->ends[CORE_PUBLISHED];
	e->private_end = server->ends[CORE_PRIVATE];
	switch (e->kind) {
	case CORE_TABLE:
		return plan_table(server, &asked->table, e);
	case CORE_BARRIER:
		return plan_barrier(server, &asked->barrier, e);
	default:
		return plan_clock(server, &asked->clock, e);
	}
}

int ps_raise_word(struct ps_server *server, uint64_t offset, uint64_t value)
{
	const uint64_t *word = core_arena_at(server->arena, CORE_WORDS, offset);
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.region = CORE_WORDS,
		.offset = offset,
		.operand = value - word_load(word),
	};

	if (op.operand == 0)
		return 0;
	return fabric_execute(server->self.ep, &op, 1, &server->self.completion,
			      fabric_now(server->fabric) + PS_LOOPBACK_NS);
}

static int init_barrier(struct ps_server *server, const struct core_barrier *b, const uint64_t *group)
{
	uint64_t nodes = sync_barrier_nodes(b->members, b->fan_in), g = b->first_generation;
	int ret = 0;

	if (b->group_offset)
		memcpy(core_arena_at(server->arena, CORE_PUBLISHED, b->group_offset), group,
		       (ps_workers(server) + 63) / 64 * sizeof(uint64_t));
	for (uint64_t i = 0; i < nodes && ret == 0 && g; i++) {
		uint64_t at = b->nodes_offset + i * sizeof(struct core_node);

		ret = ps_raise_word(server, at + offsetof(struct core_node, word), g << 32);
		if (ret == 0) /* the generation before is released */
			ret = ps_raise_word(server, at + offsetof(struct core_node, released), g);
	}
	return ret;
}

static bool same_group(const struct ps_server *server, const struct core_barrier *b, const uint64_t *group)
{
	return !b->group_offset ||
	       memcmp(core_arena_at(server->arena, CORE_PUBLISHED, b->group_offset), group,
		      (ps_workers(server) + 63) / 64 * sizeof(uint64_t)) == 0;
}

/* Whether what was asked for is what is there. */
static int check_same(const struct ps_server *server, const struct core_entry *have,
		      const struct core_entry *asked, const uint64_t *group)
{
	const struct core_barrier *a = &have->barrier, *b = &asked->barrier;
	char is[128], wanted[128];

	if (have->kind == CORE_TABLE && !core_schema_same(&have->table, &asked->table))
		return base_fail(-EEXIST, "table %s is %s, not %s: give it another name",
				 have->name, core_schema_text(&have->table, is, sizeof(is)),
				 core_schema_text(&asked->table, wanted, sizeof(wanted)));
	if (have->kind == CORE_BARRIER && (a->members != b->members || a->fan_in != b->fan_in ||
					   a->first_generation != b->first_generation))
		return base_fail(-EEXIST,
				 "barrier %s has %u members and fan-in %u, not %u and %u: give it "
				 "another name",
				 have->name, a->members, a->fan_in, b->members, b->fan_in);
	if (have->kind == CORE_BARRIER && !same_group(server, a, group))
		return base_fail(-EEXIST, "barrier %s is of %u other ranks: give it another name",
				 have->name, a->members);
	return 0;
}

static int publish(struct ps_server *server, const struct core_entry *e, const uint64_t *group)
{
	struct core_entry *to = &server->entries[e->index];
	uint64_t ends[CORE_REGIONS];
	int ret = allocate(server, e);

	memcpy(ends, server->ends, sizeof(ends));
	if (ret == 0 && e->kind == CORE_BARRIER)
		ret = init_barrier(server, &e->barrier, group);
	if (ret == 0) {
		memcpy(to, e, sizeof(*to));
		ret = ps_entry_open(server, e->index);
	}
	if (ret < 0) {
		give_back(server, ends);
		return ret;
	}
	ps_point(server);
	word_publish(&server->header->entries, (uint64_t)e->index + 1);
	ps_notify(server, &server->header->entries);
	ps_point(server);
	return 0;
}

static int check_name(const struct core_entry *e)
{
	if (e->kind < CORE_TABLE || e->kind > CORE_CLOCK)
		return base_fail(-EINVAL, "no such kind of object: %u", e->kind);
	if (memchr(e->name, '\0', sizeof(e->name)) == NULL)
		return base_fail(-EINVAL, "the name of a %s does not end", kinds[e->kind]);
	return base_name_check(kinds[e->kind], e->name);
}

/* An entry of an earlier life is right if it is what would be made of it now. */
bool ps_entry_is_right(const struct ps_server *server, uint32_t index)
{
	const struct core_entry *have = &server->entries[index];
	struct core_entry e = { .kind = have->kind };

	if (have->index != index || (have->state != CORE_PREPARING && have->state != CORE_READY) ||
	    check_name(have) < 0 || *slot_of(server, have->kind, have->name))
		return false;
	memcpy(e.name, have->name, sizeof(e.name));
	/* Compared to the bit, as it was made in the same way. */
	/* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	return plan(server, have, &e) == 0 && memcmp(&e.table, &have->table, sizeof(e.table)) == 0 &&
	       e.words_end == have->words_end && e.published_end == have->published_end &&
	       e.private_end == have->private_end;
}

/* Who fills a table in that is being prepared: the first who asked, while that process lives. */
static void appoint_creator(struct ps_server *server, struct core_entry *e, uint32_t rank)
{
	uint64_t creator = word_load(&e->creator);
	uint32_t old = core_state_of(creator), incarnation = core_incarnation_of(creator);

	if (word_load(&server->states[old]) == core_state(CORE_LIVE, incarnation))
		return;
	word_publish(&e->creator,
		     core_state(rank, core_incarnation_of(word_load(&server->states[rank]))));
}

int ps_create(struct ps_server *server, uint32_t rank, const struct core_request *request,
	      struct core_entry *entry)
{
	struct core_entry e = { .kind = request->entry.kind };
	uint32_t found;
	int ret = check_name(&request->entry);

	if (ret < 0)
		return ret;
	memcpy(e.name, request->entry.name, strlen(request->entry.name));
	e.index = (uint32_t)word_load(&server->header->entries);
	e.creator = core_state(rank, core_incarnation_of(word_load(&server->states[rank])));
	ret = plan(server, &request->entry, &e);
	if (ret == 0 && e.kind == CORE_BARRIER && e.barrier.group_offset)
		ret = check_group(server, &e, request->group);
	if (ret < 0)
		return ret;
	found = *slot_of(server, e.kind, e.name);
	if (found) {
		ret = check_same(server, &server->entries[found - 1], &e, request->group);
		if (ret == 0 && server->entries[found - 1].state == CORE_PREPARING)
			appoint_creator(server, &server->entries[found - 1], rank);
		e.index = found - 1;
	} else if (e.index == CORE_MAX_ENTRIES) {
		ret = base_fail(-ENOSPC, "%s %s: the directory is full, it holds %u", kinds[e.kind],
				e.name, CORE_MAX_ENTRIES);
	} else {
		ret = publish(server, &e, request->group);
	}
	if (ret == 0)
		*entry = server->entries[e.index];
	return ret;
}

int ps_lookup(struct ps_server *server, const struct core_request *request, struct core_entry *entry)
{
	uint32_t found;
	int ret = check_name(&request->entry);

	if (ret < 0)
		return ret;
	found = *slot_of(server, request->entry.kind, request->entry.name);
	if (!found)
		return base_fail(-ENOENT, "there is no %s %s", kinds[request->entry.kind],
				 request->entry.name);
	*entry = server->entries[found - 1];
	return 0;
}

int ps_set_ready(struct ps_server *server, uint32_t rank, uint32_t index)
{
	struct core_entry *e = &server->entries[index];

	if (index >= word_load(&server->header->entries))
		return base_fail(-EINVAL, "there is no entry %u", index);
	/* initial values that it has committed come first */
	ps_ring_scan(server, rank, UINT32_MAX);
	if (e->state == CORE_READY)
		return 0;
	if (word_load(&e->creator) !=
	    core_state(rank, core_incarnation_of(word_load(&server->states[rank]))))
		return base_fail(-EPERM, "%s %s is being filled in by rank %u, not by rank %u",
				 kinds[e->kind], e->name, core_state_of(word_load(&e->creator)), rank);
	word_publish(&e->state, CORE_READY);
	ps_notify(server, &e->state);
	return 0;
}

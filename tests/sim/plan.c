/* SPDX-License-Identifier: BSD-2-Clause */
/* What a seed decides. Limits of the command line cut it down afterwards: all else stays. */
#include <string.h>

#include "harness.h"

const char *const table_kind_names[TABLE_KINDS] = { "int", "fixed", "part", "whole", "step" };
const char *const thing_names[THINGS] = {
	"barrier", "group", "clock", "leave", "submit", "posted", "timeout", "interrupt",
};

/* splitmix64 */
uint64_t draw(uint64_t *state, uint64_t n)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	z ^= z >> 31;
	return n ? z % n : z;
}

static uint64_t pick(uint64_t *rng, uint64_t low, uint64_t high)
{
	return low + draw(rng, high - low + 1);
}

static void plan_blocks(uint64_t *rng, struct plan_table *t, uint32_t most, bool large)
{
	uint64_t rows_per_chunk = t->chunk_elements / t->dim;

	if (!large) {
		t->rows = pick(rng, 1, most / t->dim);
		t->blocks = 1;
		t->block_rows = (uint32_t)t->rows;
		t->chunks = 1;
		return;
	}
	t->block_rows = 8;
	t->blocks = 3;
	t->chunks = (uint32_t)pick(rng, 2, MAX_CHUNKS);
	t->rows = rows_per_chunk * (t->chunks - 1) + pick(rng, 8, 200);
	t->block_first[0] = rows_per_chunk - pick(rng, 1, 8);
	t->block_first[1] = t->chunks > 2 ? 2 * rows_per_chunk - pick(rng, 1, 8) : 3;
	t->block_first[2] = t->rows - 8;
	if (t->block_first[2] < t->block_first[0] + 8 || t->block_first[2] < t->block_first[1] + 8)
		t->blocks = 2;
}

static void plan_table(uint64_t *rng, struct plan *plan, struct plan_table *t, enum table_kind kind)
{
	uint32_t most = kind == TABLE_INT || kind == TABLE_FIXED ? CORE_CHUNK_BYTES / 8 :
								   CORE_CHUNK_BYTES / 4;
	uint32_t least = 3 * plan->workers + 4;

	t->kind = kind;
	snprintf(t->name, sizeof(t->name), "%s-%u", table_kind_names[kind], (unsigned)draw(rng, 100));
	t->initial = draw(rng, 2);
	if (kind == TABLE_WHOLE || kind == TABLE_STEP) {
		t->dim = 1;
		t->chunk_elements = most;
		t->chunks = draw(rng, 1000) < 30 ? 2 : 1;
		t->rows = (uint64_t)most * (t->chunks - 1) + pick(rng, least, least + 20);
		return;
	}
	t->dim = (uint32_t)pick(rng, 1, 3);
	t->chunk_elements = most - most % t->dim;
	plan_blocks(rng, t, 48, draw(rng, 1000) < 150);
	/* values of a large direct table are filled in one by one */
	if (t->chunks > 1 && kind != TABLE_PART)
		t->initial = false;
}

static void plan_faults(uint64_t *rng, struct plan *plan)
{
	static const uint32_t usual[SIM_FAULTS] = {
		[SIM_DELAY] = 20000,       [SIM_TEAR] = 100000,    [SIM_READ_ORDER] = 100000,
		[SIM_BREAK] = 2000,        [SIM_LATE] = 500000,    [SIM_LATE_MESSAGE] = 50000,
		[SIM_LEASE] = 300,         [SIM_STALL] = 300,      [SIM_KILL_WORKER] = 20000,
		[SIM_KILL_SERVER] = 20000, [SIM_REBIRTH] = 900000,
	};
	uint64_t how = draw(rng, 10), only = draw(rng, SIM_FAULTS);

	for (uint32_t i = 0; i < SIM_FAULTS; i++) {
		uint64_t scale = pick(rng, 10, 300);

		if (how == 0 || (how <= 4 && i != only && i != SIM_REBIRTH && i != SIM_LATE))
			continue;
		plan->rate[i] = (uint32_t)(usual[i] * scale / 100);
		if (how >= 8 && draw(rng, 3) == 0)
			plan->rate[i] = 0;
		if (plan->rate[i] > SIM_CERTAIN)
			plan->rate[i] = SIM_CERTAIN;
	}
	plan->kills = (uint32_t)pick(rng, 1, 6);
	plan->server_kills = (uint32_t)pick(rng, 1, 4);
	plan->rebirth = plan->on_death == RAMPS_ON_DEATH_FAIL || draw(rng, 2);
}

static void plan_speed(struct plan *plan)
{
	plan->workers = 8;
	plan->servers = 1;
	plan->rounds = 10;
	plan->ops = 72; /* with what each round ends with, 1,000 calls a worker */
	plan->short_timeout = plan->leave = plan->interrupt = 0;
}

static void plan_limit(struct plan *plan, const struct options *o)
{
	uint32_t kept = 0;

	if (o->most_workers && plan->workers > o->most_workers)
		plan->workers = o->most_workers;
	if (o->most_servers && plan->servers > o->most_servers)
		plan->servers = o->most_servers;
	if (o->most_rounds && plan->rounds > o->most_rounds)
		plan->rounds = o->most_rounds;
	if (o->most_ops && plan->ops > o->most_ops)
		plan->ops = o->most_ops;
	plan->group_mask &= (1u << plan->workers) - 1;
	for (uint32_t i = 0; i < SIM_FAULTS; i++)
		if (o->off >> i & 1)
			plan->rate[i] = 0;
	for (uint32_t i = 0; i < plan->tables; i++)
		if (!(o->tables_off >> plan->table[i].kind & 1))
			plan->table[kept++] = plan->table[i];
	plan->tables = kept;
	plan->barrier &= !(o->things_off >> THING_BARRIER & 1);
	plan->group &= !(o->things_off >> THING_GROUP & 1) && __builtin_popcount(plan->group_mask) > 1;
	plan->clock &= !(o->things_off >> THING_CLOCK & 1);
	plan->leave *= !(o->things_off >> THING_LEAVE & 1);
	plan->submit *= !(o->things_off >> THING_SUBMIT & 1);
	plan->posted *= !(o->things_off >> THING_POSTED & 1);
	plan->short_timeout *= !(o->things_off >> THING_TIMEOUT & 1);
	plan->interrupt *= !(o->things_off >> THING_INTERRUPT & 1);
}

static void plan_tables(uint64_t *rng, struct plan *plan)
{
	static const uint32_t often[TABLE_KINDS] = { 700, 600, 500, 700, 600 };

	for (uint32_t kind = 0; kind < TABLE_KINDS; kind++) {
		uint64_t own = *rng ^ (kind + 1) * 0x9e3779b97f4a7c15ull;

		if (draw(&own, 1000) >= often[kind] || (kind == TABLE_FIXED && plan->workers > 3))
			continue;
		plan_table(&own, plan, &plan->table[plan->tables++], kind);
		if (kind == TABLE_WHOLE && draw(&own, 4) == 0) {
			plan_table(&own, plan, &plan->table[plan->tables++], kind);
			strcat(plan->table[plan->tables - 1].name, "b");
		}
	}
	draw(rng, 0);
}

void plan_make(struct plan *plan, uint64_t seed, const struct options *options)
{
	uint64_t rng = seed * 0xd1342543de82ef95ull + 1;

	memset(plan, 0, sizeof(*plan));
	plan->seed = seed;
	plan->workers = (uint32_t)pick(&rng, 1, draw(&rng, 3) ? 4 : MAX_WORKERS);
	plan->servers = (uint32_t)pick(&rng, 1, MAX_SERVERS);
	plan->cells = (uint32_t)(draw(&rng, 4) ? pick(&rng, 4, 8) : pick(&rng, 1, 3));
	plan->on_death = draw(&rng, 2) ? RAMPS_ON_DEATH_FAIL : RAMPS_ON_DEATH_CONTINUE;
	plan->rounds = (uint32_t)pick(&rng, 1, 12);
	plan->ops = (uint32_t)pick(&rng, 0, 24);
	plan->barrier = draw(&rng, 3);
	plan->group = draw(&rng, 2);
	plan->clock = draw(&rng, 2);
	plan->group_mask = (uint32_t)draw(&rng, 1u << MAX_WORKERS);
	plan->staleness = (uint32_t)draw(&rng, 4);
	plan->leave = draw(&rng, 3) ? 0 : (uint32_t)draw(&rng, 150);
	plan->interrupt = draw(&rng, 2) ? 0 : (uint32_t)draw(&rng, 100);
	plan->short_timeout = draw(&rng, 2) ? 0 : (uint32_t)draw(&rng, 300);
	plan->submit = (uint32_t)draw(&rng, 300);
	plan->posted = (uint32_t)draw(&rng, 500);
	plan->fan_in = draw(&rng, 2) ? CORE_MAX_FAN_IN : (uint32_t)pick(&rng, 2, 3);
	plan->one_node = draw(&rng, 5) == 0;
	plan->pause_ns = draw(&rng, 2) ? draw(&rng, 20000) : 0;
	plan->think_ns = draw(&rng, 2) ? draw(&rng, 30000) : 500;
	plan->lease_ns = pick(&rng, 20, 400) * NS_PER_MS;
	plan_faults(&rng, plan);
	if (options->speed)
		plan_speed(plan);
	plan_tables(&rng, plan);
	plan_limit(plan, options);
}

void plan_print(const struct plan *plan, FILE *to)
{
	fprintf(to, "  %-10s %u workers, %u servers, rings of %u cells, %s on death, lease %llu ms%s\n",
		"job", plan->workers, plan->servers, plan->cells,
		plan->on_death == RAMPS_ON_DEATH_FAIL ? "fail" : "continue",
		(unsigned long long)(plan->lease_ns / NS_PER_MS), plan->one_node ? ", one node" : "");
	fprintf(to, "  %-10s %u rounds of %u operations", "work", plan->rounds, plan->ops);
	if (plan->barrier)
		fprintf(to, ", barrier (fan-in %u)", plan->fan_in);
	if (plan->group)
		fprintf(to, ", group of ranks %#x", plan->group_mask);
	if (plan->clock)
		fprintf(to, ", clock (%u)", plan->staleness);
	fprintf(to, "; of 1000: leave %u, interrupt %u, short timeouts %u, submit %u, posted %u\n",
		plan->leave, plan->interrupt, plan->short_timeout, plan->submit, plan->posted);
	for (uint32_t i = 0; i < plan->tables; i++) {
		const struct plan_table *t = &plan->table[i];

		fprintf(to, "  %-10s %s: %llu x %u, %u chunks%s\n", i ? "" : "tables", t->name,
			(unsigned long long)t->rows, t->dim, t->chunks, t->initial ? ", filled" : "");
	}
	fprintf(to, "  %-10s", "faults");
	for (uint32_t i = 0; i < SIM_FAULTS; i++)
		if (plan->rate[i])
			fprintf(to, " %s %.2f%%", sim_fault_names[i], plan->rate[i] / 10000.0);
	fprintf(to, "\n");
}

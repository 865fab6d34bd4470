/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pulls and pushes by the shipping worker from and to the shipping server: a table of 4 MiB, cut over
 * the servers, that all workers pull whole, and then push whole, at once. What is modelled is the
 * network and the devices; the processors of workers and servers take no time.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ps/ps.h"
#include "report.h"
#include "scaling.h"
#include "worker/worker.h"

#define VALUES      (1u << 20)
#define CELLS       4
#define MAX_SERVERS CORE_MAX_SERVERS
#define TIMEOUT_MS  60000
#define STEP_NS     1000000ull
#define PHASE_NS    (60 * NS_PER_S) /* no phase takes as long */
#define SEED        1

enum phase { PULL, PUSH, PHASES };

struct transfer {
	uint32_t workers, servers;
	struct sim *sim;
	char addresses[MAX_SERVERS][32], directories[MAX_SERVERS][64];
	const char *list[MAX_SERVERS];
	float *values; /* of all workers: nobody looks at them */
	uint32_t ready, left, ended;
	uint64_t start_ns;
	double us[PHASES];
	bool failed;
};

/* One process. */
struct part {
	struct transfer *all;
	uint32_t number;
};

static void fail(struct transfer *t, const char *what, int code)
{
	if (!t->failed)
		fprintf(stderr, "scaling: %u workers, %u servers: %s: error %d: %s\n", t->workers,
			t->servers, what, code, ramps_last_error()->text);
	t->failed = true;
}

static void serve(struct transfer *t, struct ps_server *ps)
{
	while (t->ended < t->workers) {
		int ret = ps_step(ps);

		if (ret < 0) {
			fail(t, "a server", ret);
			return;
		}
		sim_pause(0);
		if (!ret)
			ps_wait(ps, sim_now(t->sim) + STEP_NS);
	}
}

static void server_main(void *arg)
{
	struct part *part = arg;
	struct transfer *t = part->all;
	struct core_arena_options options = {
		.directory = t->directories[part->number],
		.job = "scaling",
		.arena_bytes = 1ull << 36,
		.max_workers = t->workers,
		.cells = CELLS,
		.on_death = RAMPS_ON_DEATH_FAIL,
		.fresh = true,
	};
	struct core_arena *arena = NULL;
	struct ps_server *ps = NULL;
	struct fabric *fabric;
	int ret = sim_open_fabric(&fabric);

	if (ret) {
		fail(t, "fabric", ret);
		return;
	}
	ret = core_arena_open(&options, &arena);
	if (!ret)
		ret = ps_open(fabric, arena, t->addresses[part->number], &ps);
	if (ret)
		fail(t, "a server's start", ret);
	else
		serve(t, ps);
	ps_close(ps);
	core_arena_close(arena, true);
	fabric_close(fabric);
}

static uint64_t begin_of(const struct transfer *t, uint32_t phase)
{
	return t->start_ns + phase * PHASE_NS;
}

static void end_phase(struct transfer *t, uint32_t phase)
{
	if (++t->left < t->workers)
		return;
	t->left = 0;
	t->us[phase] = (double)(sim_now(t->sim) - begin_of(t, phase)) / 1e3;
}

static void sleep_until(const struct transfer *t, uint64_t at)
{
	uint64_t now = sim_now(t->sim);

	if (now < at)
		sim_pause(at - now);
}

static int transfer_all(struct transfer *t, struct ramps_table *table)
{
	struct ramps_transfer how = RAMPS_TRANSFER_INIT;
	int ret = 0;

	if (++t->ready == t->workers)
		t->start_ns = sim_now(t->sim) + 2 * STEP_NS;
	while (!t->start_ns && !t->failed)
		sim_pause(STEP_NS);
	how.level = RAMPS_APPLIED;
	for (uint32_t phase = 0; phase < PHASES && !ret && !t->failed; phase++) {
		sleep_until(t, begin_of(t, phase));
		ret = phase == PULL ? ramps_table_pull(table, 0, VALUES, t->values, &how, TIMEOUT_MS) :
				      ramps_table_push(table, 0, VALUES, t->values, &how, TIMEOUT_MS);
		end_phase(t, phase);
	}
	return ret;
}

static int work(struct transfer *t, struct fabric *fabric, uint32_t rank)
{
	struct worker_join_options options = {
		.addresses = t->list,
		.servers = t->servers,
		.job = "scaling",
		.rank = rank,
		.workers = t->workers,
		.timeout_ms = TIMEOUT_MS,
	};
	struct ramps_schema schema = RAMPS_SCHEMA_INIT;
	struct ramps_table *table = NULL;
	struct ramps_worker *worker;
	int ret;

	sim_pause(1000); /* servers first */
	ret = worker_join(fabric, &options, &worker);
	if (ret) {
		fabric_close(fabric);
		return ret;
	}
	schema.name = "weights";
	schema.rows = VALUES;
	schema.mode = RAMPS_SLOTS;
	ret = rank ? ramps_table_open(worker, schema.name, &schema, TIMEOUT_MS, &table) :
		     ramps_table_create(worker, &schema, &table);
	if (!ret)
		ret = transfer_all(t, table);
	ramps_table_close(table);
	worker_close(worker);
	return ret;
}

static void worker_main(void *arg)
{
	struct part *part = arg;
	struct fabric *fabric;
	int ret = sim_open_fabric(&fabric);

	if (!ret)
		ret = work(part->all, fabric, part->number);
	if (ret)
		fail(part->all, "a worker", ret);
	part->all->ended++;
}

static void run_world(struct transfer *t, struct part *parts)
{
	char name[32];

	for (uint32_t i = 0; i < t->servers; i++) {
		snprintf(t->addresses[i], sizeof(t->addresses[i]), "sim://%u/ps", i);
		snprintf(t->directories[i], sizeof(t->directories[i]),
			 "/dev/shm/ramps-scaling-%d-%u", getpid(), i);
		t->list[i] = t->addresses[i];
	}
	for (uint32_t i = 0; i < t->servers + t->workers; i++) {
		bool server = i < t->servers;

		parts[i] = (struct part){ .all = t, .number = server ? i : i - t->servers };
		snprintf(name, sizeof(name), "%s %u", server ? "server" : "worker", parts[i].number);
		if (!sim_spawn(t->sim, name, i, server ? server_main : worker_main, &parts[i]))
			fail(t, "a process", -1);
	}
	if (sim_run(t->sim, BASE_FOREVER - 1))
		fail(t, "processes that wait for ever", -1);
}

static struct transfer run(uint32_t workers, uint32_t servers)
{
	struct sim_options options = { .seed = SEED, .costs = study_costs, .lease_ns = NS_PER_S };
	struct transfer t = { .workers = workers, .servers = servers };
	struct part *parts = calloc(workers + servers, sizeof(*parts));

	t.values = calloc(VALUES, sizeof(*t.values));
	t.sim = sim_open(&options);
	if (parts && t.values)
		run_world(&t, parts);
	else
		t.failed = true;
	sim_close(t.sim);
	free(t.values);
	free(parts);
	return t;
}

bool report_transfers(FILE *file)
{
	static const uint32_t workers[] = { 8, 64, 512 }, servers[] = { 1, 4, 16, 64 };
	bool failed = false;

	fprintf(file, "\nAll pull a table of 4 MiB at once, then all push it (until it is applied): "
		      "ms.\n\n| workers |");
	for (int s = 0; s < 4; s++)
		fprintf(file, " %u server%s: pull, push |", servers[s], s ? "s" : "");
	fprintf(file, "\n|--:|--:|--:|--:|--:|\n");
	for (int w = 0; w < 3; w++) {
		fprintf(file, "| %u |", workers[w]);
		for (int s = 0; s < 4; s++) {
			struct transfer t;

			if (workers[w] * servers[s] > 8192) { /* rings: 256 KiB a pair */
				fprintf(file, " |");
				continue;
			}
			t = run(workers[w], servers[s]);
			failed |= t.failed;
			fprintf(file, " %.2f, %.2f |", t.us[PULL] / 1e3, t.us[PUSH] / 1e3);
		}
		fprintf(file, "\n");
	}
	return failed;
}

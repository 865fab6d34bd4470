/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A world with one server, which grants its words and does nothing else, and workers on nodes of
 * their own that go through rounds. A round begins at the same virtual time for all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "scaling.h"

#define ADDRESS   "sim://0/study"
#define SEED      1
#define SETTLE_NS 100000ull
#define PERIOD_NS 1000000000ull /* between the begins of two rounds, at least */

/*
 * A card's published rates, each the reciprocal of what is in docs/scaling.md. One way, and what a
 * device holds of queue pairs, are assumptions that are told there too.
 */
const struct sim_costs study_costs = {
	.one_way_ns = 800,
	.jitter_ns = 100,
	.post_ns = 50,
	.byte_ps = 80,         /* 100 Gbit/s */
	.read_ns = 15,         /* 65 M/s */
	.write_ns = 9,         /* 106 M/s */
	.atomic_ns = 120,      /* 8.3 M/s */
	.atomic_word_ns = 455, /* 2.2 M/s */
	.queue_pairs = 256,
	.queue_pair_ns = 38,
	.message_ns = 20000,
};

struct study {
	const struct study_method *method;
	const struct study_case *what;
	struct sim *sim;
	struct study_worker *workers;
	uint32_t connected, ready, left; /* left: in this round */
	uint64_t start_ns, last_arrival_ns;
	struct sim_stats before;
	struct study_result result;
};

const struct study_case *study_case_of(const struct study_worker *worker)
{
	return worker->study->what;
}

static void fail(struct study *study, const char *what, int code)
{
	if (!study->result.failed)
		fprintf(stderr, "scaling: %s with %u workers: %s: error %d\n", study->method->name,
			study->what->workers, what, code);
	study->result.failed = true;
}

/*
 * The server
 */

struct memories {
	struct fabric_memory words, published;
};

static void take_event(struct study *study, const struct fabric_event *event, const struct memories *m)
{
	struct fabric_endpoint *ep = event->endpoint;
	int ret;

	if (event->kind == FABRIC_CLOSED || event->kind == FABRIC_BROKEN) {
		fabric_cut(ep);
		fabric_endpoint_close(ep);
		study->connected--;
	}
	if (event->kind != FABRIC_CONNECTED)
		return;
	study->connected++;
	ret = fabric_grant(ep, CORE_WORDS, &m->words, FABRIC_MAY_READ | FABRIC_MAY_ATOMIC);
	if (!ret)
		ret = fabric_grant(ep, CORE_PUBLISHED, &m->published, FABRIC_MAY_READ);
	if (!ret)
		ret = fabric_send(ep, "", 1);
	if (ret)
		fail(study, "grant", ret);
}

static void serve(struct study *study, struct fabric *fabric, const struct memories *m)
{
	struct fabric_listener *listener;
	struct fabric_event *event = malloc(sizeof(*event));
	bool seen = false;

	if (!event || fabric_listen(fabric, ADDRESS, &listener)) {
		free(event);
		fail(study, "listen", -1);
		return;
	}
	while (!seen || study->connected) {
		fabric_wait(listener, BASE_FOREVER);
		while (fabric_next_event(listener, event) == 1) {
			take_event(study, event, m);
			seen = true;
		}
	}
	fabric_listener_close(listener);
	free(event);
}

static bool make_memory(struct fabric *fabric, struct fabric_memory *memory, uint64_t len_bytes)
{
	memory->len_bytes = core_round_up(len_bytes, CORE_PAGE_BYTES);
	memory->fd = -1;
	memory->base = aligned_alloc(CORE_PAGE_BYTES, memory->len_bytes);
	if (!memory->base)
		return false;
	memset(memory->base, 0, memory->len_bytes);
	return fabric_register(fabric, memory) == 0;
}

static void server_main(void *arg)
{
	struct study *study = arg;
	struct memories m = { 0 };
	struct fabric *fabric;
	uint64_t *states;

	if (sim_open_fabric(&fabric)) {
		fail(study, "fabric", -1);
		return;
	}
	if (make_memory(fabric, &m.words, study->method->words_bytes(study->what)) &&
	    make_memory(fabric, &m.published, study->what->workers * sizeof(uint64_t))) {
		states = m.published.base;
		for (uint32_t i = 0; i < study->what->workers; i++)
			states[i] = core_state(CORE_LIVE, 1);
		serve(study, fabric, &m);
	} else {
		fail(study, "memory", -1);
	}
	fabric_unregister(fabric, &m.words);
	fabric_unregister(fabric, &m.published);
	free(m.words.base);
	free(m.published.base);
	fabric_close(fabric);
}

/*
 * A worker
 */

static uint64_t begin_of(const struct study *study, uint32_t round)
{
	return study->start_ns + round * (PERIOD_NS + study->what->late_ns);
}

/* The last worker that is through sums the round up. */
static void end_round(struct study *study, uint32_t round)
{
	struct study_result *r = &study->result;
	struct sim_stats now;
	double n = study->what->rounds - 1;

	if (++study->left < study->what->workers)
		return;
	study->left = 0;
	sim_get_stats(study->sim, &now);
	if (round) {
		r->time_us += (double)(sim_now(study->sim) - study->last_arrival_ns) / 1e3 / n;
		r->serial_us += (double)(now.busiest_device_ns - study->before.busiest_device_ns) /
				1e3 / n;
		r->operations += (double)(now.operations - study->before.operations) /
				 study->what->workers / n;
	}
	study->before = now;
}

static int go_through(struct study_worker *worker)
{
	struct study *study = worker->study;
	struct fabric *fabric = worker->peer.fabric;
	int ret = 0;

	if (++study->ready == study->what->workers)
		study->start_ns = fabric_now(fabric) + SETTLE_NS;
	while (!study->start_ns)
		fabric_sleep(fabric, fabric_now(fabric) + SETTLE_NS / 2);
	for (uint32_t round = 0; round < study->what->rounds && !ret && !study->result.failed; round++) {
		uint64_t begin_ns = begin_of(study, round);

		/* not the same one again, and all over the tree */
		if (worker->index == (round * 2654435761u + study->what->workers / 3) % study->what->workers)
			begin_ns += study->what->late_ns;
		fabric_sleep(fabric, begin_ns);
		study->last_arrival_ns = fabric_now(fabric);
		ret = study->method->round(worker, round);
		end_round(study, round);
	}
	return ret;
}

static int join(struct study_worker *worker)
{
	struct fabric_endpoint *ep;
	char hello;
	int ret;

	ret = fabric_connect(worker->peer.fabric, ADDRESS, BASE_FOREVER, &ep);
	if (ret)
		return ret;
	worker->peer.ep = ep;
	ret = fabric_recv(ep, &hello, 1, BASE_FOREVER);
	return ret < 0 ? ret : 0;
}

static void worker_main(void *arg)
{
	struct study_worker *worker = arg;
	struct study *study = worker->study;
	int ret = sim_open_fabric(&worker->peer.fabric);

	if (ret) {
		fail(study, "fabric", ret);
		return;
	}
	worker->peer.workers = study->what->workers;
	worker->peer.on_death = RAMPS_ON_DEATH_CONTINUE;
	ret = join(worker);
	if (!ret)
		ret = study->method->open(worker);
	if (!ret)
		ret = go_through(worker);
	if (ret)
		fail(study, "a round", ret);
	study->method->close(worker);
	fabric_endpoint_close(worker->peer.ep);
	fabric_close(worker->peer.fabric);
}

struct study_result study_run(const struct study_method *method, const struct study_case *what)
{
	struct sim_options options = { .seed = SEED, .costs = study_costs, .lease_ns = NS_PER_S };
	struct study study = { .method = method, .what = what };
	char name[32];

	study.workers = calloc(what->workers, sizeof(*study.workers));
	study.sim = sim_open(&options);
	if (!study.workers || !study.sim) {
		fail(&study, "a world", -1);
		goto out;
	}
	sim_spawn(study.sim, "server", 0, server_main, &study);
	for (uint32_t i = 0; i < what->workers; i++) {
		study.workers[i].study = &study;
		study.workers[i].index = i;
		snprintf(name, sizeof(name), "worker %u", i);
		if (!sim_spawn(study.sim, name, i + 1, worker_main, &study.workers[i]))
			fail(&study, "a process", -1);
	}
	if (sim_run(study.sim, BASE_FOREVER - 1))
		fail(&study, "processes that wait for ever", -1);
out:
	sim_close(study.sim);
	free(study.workers);
	return study.result;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections that end: what lands, what is told, and nothing after the cut. */
#include <errno.h>
#include <string.h>

#include "lab.h"

#define SEEDS 300
#define ADDS  24 /* each to a word of its own */

/* How far a series of adds, one word each, has come. They took effect in order, each at most once. */
static unsigned int prefix(const struct lab *lab)
{
	unsigned int n = 0;

	while (n < ADDS && lab->words[n] == 1)
		n++;
	for (unsigned int i = n; i < ADDS; i++)
		assert_int_equal(lab->words[i], 0);
	return n;
}

/* Posts all adds, in lists of three. */
static int post_adds(struct lab_client *client, uint64_t old[ADDS])
{
	for (unsigned int i = 0; i < ADDS; i += 3) {
		struct fabric_op ops[3];
		int ret;

		for (unsigned int k = 0; k < 3; k++) {
			old[i + k] = 77;
			ops[k] = (struct fabric_op){
				.opcode = FABRIC_FETCH_ADD,
				.offset = 8 * (i + k),
				.operand = 1,
				.local = &old[i + k],
			};
		}
		while ((ret = fabric_post(client->ep, ops, 3, &client->completion)) == -EAGAIN)
			fabric_poll(client->ep, fabric_now(client->fabric) + LAB_LONG);
		if (ret)
			return ret;
	}
	return 0;
}

/* Adds that came back with a result: they must have landed. */
static unsigned int acknowledged(const uint64_t old[ADDS])
{
	unsigned int n = 0;

	while (n < ADDS && old[n] == 0)
		n++;
	return n;
}

struct tally {
	unsigned int broke, partly, late, much_later, never, unknown;
};

/* One world: adds, a break perhaps; then the server cuts, and nothing more lands. */
static void break_once(uint64_t seed, bool late, struct tally *tally)
{
	unsigned int seen, soon, before_cut, told;
	struct lab_client client;
	struct sim_stats stats;
	uint64_t old[ADDS];
	struct lab lab;

	lab_init(&lab, seed);
	lab.options.rate[SIM_BREAK] = SIM_CERTAIN / 8;
	lab.options.rate[SIM_TEAR] = lab.options.rate[SIM_DELAY] = SIM_CERTAIN / 20;
	lab.options.rate[SIM_LATE] = late ? SIM_CERTAIN : 0;
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	lab.holds = true;
	post_adds(&client, old);
	lab_finish(&client);
	seen = prefix(&lab);
	told = acknowledged(old);
	assert_true(told <= seen);
	tally->unknown += told < seen;
	if (fabric_check(client.ep)) {
		tally->broke++;
		assert_error(fabric_post(client.ep, &(struct fabric_op){ .opcode = FABRIC_FETCH_ADD },
					 1, &client.completion),
			     ENOTCONN);
		sim_pause(100 * sim_costs_plain.one_way_ns);
		soon = prefix(&lab);
		for (int i = 0; i < 100; i++) {
			sim_pause(LAB_LEASE / 20);
			prefix(&lab);
		}
		before_cut = prefix(&lab);
		tally->much_later += before_cut > soon;
		tally->late += before_cut > seen;
		tally->partly += seen > 0 && seen < ADDS;
		assert_int_equal(lab.broken, 1);
		assert_int_equal(lab.closed, 0);
		sim_get_stats(lab.sim, &stats);
		assert_true(stats.faults[SIM_LATE] >= before_cut - seen);
	} else {
		assert_int_equal(seen, ADDS);
		tally->never++;
	}
	lab.holds = false;
	lab_disconnect(&client);
	sim_pause(LAB_LEASE);
	lab_close(&lab);
}

static void what_lands_of_a_broken_connection_is_a_prefix(void **state)
{
	struct tally tally = { 0 };

	(void)state;
	for (uint64_t seed = 1; seed <= support_rounds(SEEDS); seed++)
		break_once(seed, true, &tally);
	assert_true(tally.broke && tally.partly && tally.late && tally.unknown);
	assert_true(tally.much_later > tally.broke / 4);
	print_message("%u broke, %u partly, %u with more later, %u of unknown fate\n", tally.broke,
		      tally.partly, tally.late, tally.unknown);
	memset(&tally, 0, sizeof(tally));
	for (uint64_t seed = 1; seed <= support_rounds(SEEDS); seed++)
		break_once(seed, false, &tally);
	assert_true(tally.broke && tally.partly);
	/* a delayed list of an operation that had begun is all that may follow */
	assert_int_equal(tally.late, 0);
}

/* The server cuts at some time in between: what is there then is all there will ever be. */
static void nothing_lands_after_the_cut(void **state)
{
	unsigned int in_between = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= support_rounds(SEEDS); seed++) {
		struct lab_client client;
		unsigned int at_cut;
		uint64_t old[ADDS];
		struct lab lab;

		lab_init(&lab, seed);
		lab.options.rate[SIM_BREAK] = lab.options.rate[SIM_LATE] = SIM_CERTAIN;
		lab_open(&lab);
		assert_ok(lab_connect(&client));
		post_adds(&client, old);
		lab_finish(&client);
		while (!lab.has_cut)
			sim_pause(1000);
		at_cut = prefix(&lab);
		in_between += at_cut > 0 && at_cut < ADDS;
		sim_pause(30 * LAB_LEASE);
		assert_memory_equal(lab.words, lab.at_cut, sizeof(lab.at_cut));
		lab_disconnect(&client);
		lab_close(&lab);
	}
	assert_true(in_between > 0);
}

/* WRITEs mix with their neighbours; cut in the middle they must not leave a later one without an earlier. */
static void what_is_cut_is_a_prefix_of_writes_too(void **state)
{
	enum { WRITES = 6, EACH = 16 };
	unsigned int partly = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= support_rounds(4 * SEEDS); seed++) {
		struct fabric_op ops[WRITES];
		struct lab_client client;
		unsigned int full = 0;
		uint64_t ones[EACH];
		struct lab lab;

		lab_init(&lab, seed);
		lab.options.rate[SIM_TEAR] = SIM_CERTAIN / 2;
		lab.options.rate[SIM_LATE] = SIM_CERTAIN / 2;
		lab_open(&lab);
		assert_ok(lab_connect(&client));
		memset(ones, 1, sizeof(ones));
		for (unsigned int i = 0; i < WRITES; i++)
			ops[i] = (struct fabric_op){
				.opcode = FABRIC_WRITE,
				.offset = i * sizeof(ones),
				.len_bytes = sizeof(ones),
				.local = ones,
			};
		assert_ok(fabric_post(client.ep, ops, WRITES, &client.completion));
		sim_pause(sim_random(lab.sim, 6 * sim_costs_plain.one_way_ns));
		if (seed % 2)
			sim_kill(lab.server);
		else
			fabric_abort(client.ep);
		if (!client.completion.pending) /* the source is ours again, also of what lands later */
			memset(ones, 2, sizeof(ones));
		sim_pause(10 * LAB_LEASE);
		for (unsigned int i = 0; i < WRITES * EACH; i++)
			assert_true(lab.words[i] == 0 || lab.words[i] == 0x0101010101010101ull);
		while (full < WRITES * EACH && lab.words[full])
			full++;
		partly += full > 0 && full < WRITES * EACH;
		/* the last one that has begun may have holes */
		for (unsigned int i = (full / EACH + 1) * EACH; i < WRITES * EACH; i++)
			assert_int_equal(lab.words[i], 0);
		lab_disconnect(&client);
		lab_close(&lab);
	}
	assert_true(partly > 0);
}

/* The process lives, but the server takes it for gone; it finds out by its next operations. */
static void a_lease_ends_though_the_client_lives(void **state)
{
	struct lab_client client;
	struct sim_stats stats;
	uint64_t old;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab.options.rate[SIM_LEASE] = SIM_CERTAIN;
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	lab.holds = true;
	assert_ok(lab_add(&client, 0, 1, &old));
	while (!lab.broken)
		sim_pause(1000);
	assert_ok(lab_add(&client, 0, 1, &old));
	assert_int_equal(old, 1);
	lab.holds = false;
	sim_pause(LAB_LEASE);
	assert_error(lab_add(&client, 0, 1, &old), ENOTCONN);
	assert_int_equal(lab.words[0], 2);
	assert_int_equal(lab.broken, 1);
	sim_get_stats(lab.sim, &stats);
	assert_true(stats.faults[SIM_LEASE] >= 1);
	lab_disconnect(&client);
	lab_close(&lab);
}

static void hang(void *arg)
{
	struct lab_client client;
	uint64_t value;

	(void)arg;
	child_check(lab_connect(&client) == 0);
	fabric_wait_word(client.ep, 0, 0, 0, &value, BASE_FOREVER);
}

/* When the server hears of a death: in a moment, or, as of a node that is gone, when the lease ends. */
static void a_death_is_heard_of_soon_or_by_the_lease(void **state)
{
	struct sim_process *victim;
	uint64_t killed_ns;
	struct lab lab;

	(void)state;
	for (int late = 0; late < 2; late++) {
		lab_init(&lab, 1);
		lab_open(&lab);
		victim = sim_spawn(lab.sim, "victim", 2, hang, NULL);
		sim_pause(NS_PER_MS);
		assert_true(sim_alive(victim));
		if (late) {
			lab_close(&lab);
			lab_init(&lab, 1);
			lab.options.rate[SIM_LATE_MESSAGE] = SIM_CERTAIN;
			lab_open(&lab);
			victim = sim_spawn(lab.sim, "victim", 2, hang, NULL);
			sim_pause(20 * NS_PER_MS);
		}
		killed_ns = sim_now(lab.sim);
		sim_kill(victim);
		assert_false(sim_alive(victim));
		sim_pause(10 * LAB_LEASE);
		assert_int_equal(lab.closed, !late);
		assert_int_equal(lab.broken, late);
		if (late)
			assert_true(lab.heard_ns - killed_ns >= LAB_LEASE);
		else
			assert_true(lab.heard_ns - killed_ns < 4 * sim_costs_plain.message_ns);
		lab_close(&lab);
	}
}

static void a_close_is_heard_as_one_and_an_abort_as_a_break(void **state)
{
	struct lab_client client;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	assert_ok(lab_connect(&client));
	lab_disconnect(&client);
	sim_pause(5 * LAB_LEASE);
	assert_int_equal(lab.closed, 1);
	assert_ok(lab_connect(&client));
	fabric_abort(client.ep);
	assert_error(fabric_check(client.ep), ENOTCONN);
	lab_disconnect(&client);
	sim_pause(5 * LAB_LEASE);
	assert_int_equal(lab.closed, 1);
	assert_int_equal(lab.broken, 1);
	lab_close(&lab);
}

/* A server that is killed: its clients learn it, its memory stays as it is, and a new one has it again. */
static void nothing_lands_between_two_lives_of_a_server(void **state)
{
	unsigned int in_between = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= support_rounds(SEEDS / 2); seed++) {
		unsigned int at_death, told;
		struct lab_client client;
		uint64_t old[ADDS];
		struct lab lab;

		lab_init(&lab, seed);
		lab_open(&lab);
		assert_ok(lab_connect(&client));
		assert_ok(post_adds(&client, old));
		sim_pause(sim_random(lab.sim, 3 * sim_costs_plain.one_way_ns));
		sim_kill(lab.server);
		at_death = prefix(&lab);
		in_between += at_death > 0 && at_death < ADDS;
		assert_error(lab_finish(&client), ENOTCONN);
		told = acknowledged(old);
		assert_true(told <= at_death);
		assert_int_equal(prefix(&lab), at_death);
		lab_start_server(&lab);
		sim_pause(10 * LAB_LEASE);
		assert_int_equal(prefix(&lab), at_death);
		lab_disconnect(&client);
		assert_ok(lab_connect(&client));
		assert_ok(lab_add(&client, ADDS, 1, old));
		lab_disconnect(&client);
		lab_close(&lab);
	}
	assert_true(in_between > 0);
}

static void an_unregistered_region_ends_the_connection(void **state)
{
	struct fabric_memory extra = { .len_bytes = 4096 };
	struct fabric_listener *l;
	struct fabric_event event;
	struct fabric *fabric;
	struct fabric_endpoint *ep;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	extra.base = lab.memory.base;
	assert_ok(sim_open_fabric(&fabric));
	assert_ok(fabric_listen(fabric, "sim://0/here", &l));
	assert_error(fabric_listen(fabric, "sim://0/here", &l), EADDRINUSE);
	assert_error(fabric_listen(fabric, "sim://1/there", &l), EADDRNOTAVAIL);
	assert_ok(fabric_register(fabric, &extra));
	assert_ok(fabric_loopback(l, &ep));
	assert_ok(fabric_grant(ep, 1, &extra, FABRIC_MAY_ATOMIC));
	{
		struct lab_client self = { .fabric = fabric, .ep = ep };
		struct fabric_op op = { .opcode = FABRIC_FETCH_ADD, .region = 1, .operand = 1 };

		assert_ok(lab_do(&self, &op, 1));
		fabric_unregister(fabric, &extra);
		assert_error(lab_do(&self, &op, 1), ENOTCONN);
	}
	assert_int_equal(lab.words[0], 1);
	assert_int_equal(fabric_next_event(l, &event), 0);
	fabric_endpoint_close(ep);
	fabric_listener_close(l);
	fabric_close(fabric);
	lab_close(&lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_lands_of_a_broken_connection_is_a_prefix),
		cmocka_unit_test(nothing_lands_after_the_cut),
		cmocka_unit_test(what_is_cut_is_a_prefix_of_writes_too),
		cmocka_unit_test(a_lease_ends_though_the_client_lives),
		cmocka_unit_test(a_death_is_heard_of_soon_or_by_the_lease),
		cmocka_unit_test(a_close_is_heard_as_one_and_an_abort_as_a_break),
		cmocka_unit_test(nothing_lands_between_two_lives_of_a_server),
		cmocka_unit_test(an_unregistered_region_ends_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

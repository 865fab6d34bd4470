/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes: what they own, how they end, and that a seed decides everything. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include <ramps/ramps.h>

#include "base/error.h"
#include "lab.h"

#define BLOCKS 100

struct possessions {
	unsigned int descriptors, mappings;
};

static struct possessions now_there(void)
{
	return (struct possessions){ support_descriptors(), support_mappings() };
}

static char *blocks[BLOCKS];
static void *mapping;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void possess(void)
{
	void *aligned = NULL;

	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = i % 3 ? malloc(100 + (size_t)i) : calloc(3, (size_t)i);
		child_check(blocks[i] != NULL);
	}
	blocks[0] = realloc(blocks[0], 5000);
	memset(blocks[0], 7, 5000);
	blocks[1] = realloc(blocks[1], 10);
	free(blocks[2]);
	blocks[2] = strdup("text");
	child_check(posix_memalign(&aligned, 4096, 10) == 0 && (uintptr_t)aligned % 4096 == 0);
	free(aligned);
	aligned = aligned_alloc(64, 128);
	child_check(aligned && (uintptr_t)aligned % 64 == 0);
	child_check(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
	mapping = mmap(NULL, 8192, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child_check(mapping != MAP_FAILED);
}

static void possess_and_wait(void *arg)
{
	struct fabric *fabric;

	(void)arg;
	possess();
	child_check(sim_open_fabric(&fabric) == 0);
	fabric_sleep(fabric, BASE_FOREVER - 1);
}

static void a_killed_process_gives_everything_back(void **state)
{
	struct possessions before = now_there(), there;
	struct sim_process *process;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	for (int i = 0; i < 10; i++) {
		process = sim_spawn(lab.sim, "rich", 5, possess_and_wait, NULL);
		sim_pause(1000);
		there = now_there();
		assert_int_equal(there.descriptors, before.descriptors + 1);
		assert_int_equal(there.mappings, before.mappings + 1);
		sim_kill(process);
		assert_int_equal(sim_leaked(process), 0);
		there = now_there();
		assert_int_equal(there.descriptors, before.descriptors);
		assert_int_equal(there.mappings, before.mappings);
	}
	lab_close(&lab); /* LeakSanitizer sees the blocks */
}

static void end_with(void *arg)
{
	size_t bytes = *(size_t *)arg;
	char *freed = malloc(1000), *outside;

	sim_outside(sim_here(), true);
	outside = malloc(10);
	sim_outside(sim_here(), false);
	*(char **)((size_t *)arg + 1) = outside;
	blocks[0] = bytes ? malloc(bytes) : NULL;
	free(freed);
}

static void end_connected(void *arg)
{
	struct lab_client client;

	(void)arg;
	child_check(lab_connect(&client) == 0);
}

static void what_an_ended_process_left_is_told(void **state)
{
	struct {
		size_t bytes;
		char *outside;
	} args[] = { { 0, NULL }, { 1, NULL }, { 1234, NULL } };
	struct sim_process *process;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	for (int i = 0; i < 3; i++) {
		process = sim_spawn(lab.sim, "leaky", 5, end_with, &args[i]);
		sim_pause(1000);
		assert_false(sim_alive(process));
		assert_int_equal(sim_leaked(process), args[i].bytes);
		strcpy(args[i].outside, "not gone");
		free(args[i].outside);
	}
	process = sim_spawn(lab.sim, "unclosed", 5, end_connected, NULL);
	sim_pause(10 * NS_PER_MS);
	assert_false(sim_alive(process));
	assert_true(sim_leaked(process) >= 2);
	assert_int_equal(lab.closed, 1);
	lab_close(&lab);
}

static void lock_for_long(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	sim_pause(NS_PER_MS);
	pthread_mutex_unlock(&lock);
}

static void a_lock_that_another_holds_gives_way(void **state)
{
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	sim_spawn(lab.sim, "holder", 5, lock_for_long, NULL);
	sim_pause(10);
	pthread_mutex_lock(&lock);
	assert_true(sim_now(lab.sim) >= NS_PER_MS);
	pthread_mutex_unlock(&lock);
	lab_close(&lab);
}

static void fail_in_turn(void *arg)
{
	const char *text = arg;

	for (int i = 0; i < 5; i++) {
		child_check(base_fail(-EINVAL, "%s %d", text, i) == -EINVAL);
		sim_pause(100);
		base_end(text, -EINVAL);
		sim_pause(100);
		child_check(!strcmp(base_last_error()->call, text));
		child_check(!strncmp(base_last_error()->text, text, strlen(text)));
	}
}

static void each_process_has_a_last_error_of_its_own(void **state)
{
	struct sim_process *one, *other;
	struct lab lab;
	char text[] = "one", other_text[] = "the other";

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	base_end("test", base_fail(-EIO, "mine"));
	one = sim_spawn(lab.sim, "one", 5, fail_in_turn, text);
	other = sim_spawn(lab.sim, "other", 5, fail_in_turn, other_text);
	sim_pause(NS_PER_MS);
	assert_false(sim_alive(one) || sim_alive(other));
	assert_string_equal(base_last_error()->text, "mine");
	lab_close(&lab);
}

/* Adds, pulls, messages; connects again when the connection breaks; ends when told. */
static void work(void *arg)
{
	unsigned int rounds = *(unsigned int *)arg;
	struct lab_client client;
	uint64_t words[32], value;
	struct fabric_op read = { .opcode = FABRIC_READ, .len_bytes = sizeof(words), .local = words };

	while (rounds) {
		if (lab_connect(&client))
			continue;
		for (; rounds; rounds--) {
			if (lab_add(&client, sim_random(sim_here(), 32), 1, &value) ||
			    lab_do(&client, &read, 1))
				break;
			if (rounds % 8 == 0)
				fabric_wait_word(client.ep, 0, 0, 1ull << 40, &value, 0);
			if (rounds % 16 == 0)
				fabric_send(client.ep, &value, sizeof(value));
		}
		lab_disconnect(&client);
	}
}

/* The trace of a world with all faults; *left: who had not ended. */
static uint64_t run_all_faults(uint64_t seed, struct sim_stats *stats)
{
	struct sim_process *clients[8];
	unsigned int rounds = 100;
	struct lab lab;

	lab_init(&lab, seed);
	for (int i = 0; i < SIM_FAULTS; i++)
		lab.options.rate[i] = SIM_CERTAIN / 100;
	lab.options.rate[SIM_LATE] = SIM_CERTAIN / 2;
	lab_open(&lab);
	for (uint32_t i = 0; i < 8; i++) {
		char name[16];

		snprintf(name, sizeof(name), "worker %u", i);
		clients[i] = sim_spawn(lab.sim, name, 2 + i, work, &rounds);
	}
	sim_pause(NS_PER_MS);
	sim_kill(clients[3]);
	sim_kill(lab.server);
	sim_pause(NS_PER_MS);
	lab_start_server(&lab);
	for (int i = 0; i < 8; i++)
		while (sim_alive(clients[i]) && sim_now(lab.sim) < LAB_LONG)
			sim_pause(NS_PER_MS);
	for (int i = 0; i < 8; i++) {
		assert_false(sim_alive(clients[i]));
		assert_int_equal(sim_leaked(clients[i]), 0);
	}
	sim_get_stats(lab.sim, stats);
	lab_close(&lab);
	return lab.hash;
}

static void a_seed_decides_everything(void **state)
{
	struct sim_stats stats = { 0 }, again = { 0 };
	uint64_t hash, last = 0, all[SIM_FAULTS] = { 0 };

	(void)state;
	for (uint64_t seed = 1; seed <= support_rounds(16); seed++) {
		hash = run_all_faults(seed, &stats);
		assert_int_equal(hash, run_all_faults(seed, &again));
		assert_memory_equal(&stats, &again, sizeof(stats));
		assert_int_not_equal(hash, last);
		last = hash;
		for (int i = 0; i < SIM_FAULTS; i++)
			all[i] += stats.faults[i];
	}
	for (int i = 0; i < SIM_FAULTS; i++)
		if (i != SIM_REBIRTH && i != SIM_LATE) /* these few seeds may have none: test_breaks.c has */
			assert_true(all[i] > 0);
	assert_int_equal(stats.faults[SIM_KILL_SERVER], 1);
	assert_int_equal(stats.faults[SIM_KILL_WORKER], 1);
}

static void kill_oneself(void *arg)
{
	blocks[0] = malloc(100);
	sim_pause(10);
	*(bool *)arg = blocks[0] != NULL;
	sim_kill(sim_self());
	*(bool *)arg = false;
}

static void a_process_may_kill_itself(void **state)
{
	struct sim_process *process;
	bool before = false;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab_open(&lab);
	process = sim_spawn(lab.sim, "tired", 5, kill_oneself, &before);
	sim_pause(1000);
	assert_false(sim_alive(process));
	assert_true(before);
	lab_close(&lab);
}

static void two_thousand_processes_run(void **state)
{
	unsigned int rounds = 20, n = 2000;
	struct sim_stats stats;
	uint64_t sum = 0;
	struct lab lab;

	(void)state;
	lab_init(&lab, 1);
	lab.options.trace = NULL;
	lab_open(&lab);
	for (uint32_t i = 0; i < n; i++)
		assert_non_null(sim_spawn(lab.sim, "worker", 2 + i, work, &rounds));
	assert_int_equal(sim_run(lab.sim, NS_PER_S), 1);
	for (int i = 0; i < 32; i++)
		sum += lab.words[i];
	assert_int_equal(sum, n * rounds);
	sim_get_stats(lab.sim, &stats);
	assert_true(stats.operations >= 2ull * n * rounds);
	lab_close(&lab);
}

static void add_to_one(void *arg)
{
	struct lab_client client;
	uint64_t *spent_ns = arg, begin_ns;

	child_check(lab_connect(&client) == 0);
	begin_ns = fabric_now(client.fabric);
	for (int i = 0; i < 100; i++)
		child_check(lab_add(&client, 0, 1, NULL) == 0);
	*spent_ns = fabric_now(client.fabric) - begin_ns;
	lab_disconnect(&client);
}

/* n clients add to one word: the time that the busiest of them took for each add. */
static uint64_t time_of_adds(uint32_t n, const struct sim_costs *costs, uint64_t *busiest_ns)
{
	uint64_t spent_ns[64] = { 0 }, most_ns = 0;
	struct sim_stats stats;
	struct lab lab;

	lab_init(&lab, 1);
	lab.options.costs = *costs;
	lab_open(&lab);
	for (uint32_t i = 0; i < n; i++)
		sim_spawn(lab.sim, "worker", 2 + i, add_to_one, &spent_ns[i]);
	sim_run(lab.sim, NS_PER_S);
	assert_int_equal(lab.words[0], 100 * n);
	for (uint32_t i = 0; i < n; i++)
		most_ns = spent_ns[i] > most_ns ? spent_ns[i] : most_ns;
	sim_get_stats(lab.sim, &stats);
	*busiest_ns = stats.busiest_device_ns;
	lab_close(&lab);
	return most_ns / 100;
}

static void a_device_serves_one_after_the_other(void **state)
{
	struct sim_costs costs = {
		.one_way_ns = 800,
		.jitter_ns = 10,
		.message_ns = 1000,
		.atomic_ns = 100,
	};
	uint64_t busiest_ns;

	(void)state;
	assert_in_range(time_of_adds(1, &costs, &busiest_ns), 1700, 1800);
	assert_in_range(time_of_adds(64, &costs, &busiest_ns), 6000, 7000);
	assert_int_equal(busiest_ns, 64 * 100 * 100);
	costs.atomic_ns = 0;
	costs.atomic_word_ns = 400;
	assert_in_range(time_of_adds(64, &costs, &busiest_ns), 24000, 27000);
	costs.atomic_word_ns = 0;
	costs.queue_pairs = 32;
	costs.queue_pair_ns = 1000;
	assert_in_range(time_of_adds(32, &costs, &busiest_ns), 1600, 1700);
	assert_in_range(time_of_adds(64, &costs, &busiest_ns), 25000, 35000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_process_gives_everything_back),
		cmocka_unit_test(what_an_ended_process_left_is_told),
		cmocka_unit_test(a_lock_that_another_holds_gives_way),
		cmocka_unit_test(each_process_has_a_last_error_of_its_own),
		cmocka_unit_test(a_seed_decides_everything),
		cmocka_unit_test(a_process_may_kill_itself),
		cmocka_unit_test(two_thousand_processes_run),
		cmocka_unit_test(a_device_serves_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

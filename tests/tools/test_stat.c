/* SPDX-License-Identifier: BSD-2-Clause */
/* `ramps stat` on an arena made by hand: what is in it is what is shown. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/word.h"
#include "core/schema.h"
#include "tools/arena.h"

#include <cmocka.h>

#define WORKERS 12u

static struct hand_arena hand;

static int make(void **state)
{
	(void)state;
	hand_arena_make(&hand, WORKERS);
	for (uint32_t i = 0; i < WORKERS; i++)
		hand_states(&hand)[i] = core_state(CORE_LIVE, 1);
	return 0;
}

static int make_many(void **state)
{
	(void)state;
	hand_arena_make(&hand, 3 * WORKERS);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	hand_arena_remove(&hand);
	return 0;
}

static json_t *server_of(json_t *json)
{
	json_t *servers = json_object_get(json, "servers");

	assert_int_equal(json_array_size(servers), 1);
	return json_array_get(servers, 0);
}

static json_t *item(json_t *server, const char *list, size_t index)
{
	json_t *found = json_array_get(json_object_get(server, list), index);

	assert_non_null(found);
	return found;
}

static void has_number(json_t *object, const char *key, uint64_t value)
{
	json_t *found = json_object_get(object, key);

	if (!json_is_integer(found))
		fail_msg("%s is no integer", key);
	if ((uint64_t)json_integer_value(found) != value)
		fail_msg("%s is %lld, not %llu", key, json_integer_value(found),
			 (unsigned long long)value);
}

static void has_text(json_t *object, const char *key, const char *value)
{
	json_t *found = json_object_get(object, key);

	if (!json_is_string(found))
		fail_msg("%s is no string", key);
	assert_string_equal(json_string_value(found), value);
}

static void has_ranks(json_t *object, const char *key, const uint32_t *ranks, size_t count)
{
	json_t *found = json_object_get(object, key);

	assert_int_equal(json_array_size(found), count);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(json_integer_value(json_array_get(found, i)), ranks[i]);
}

static void json_tells_of_the_server(void **state)
{
	json_t *json, *server;

	(void)state;
	hand_header(&hand)->asleep = 1;
	hand_states(&hand)[3] = core_state(CORE_DEAD, 2);
	json = stat_json_of(ARENA_ADDRESS);
	server = server_of(json);
	has_text(server, "address", ARENA_ADDRESS);
	has_text(server, "job", "by-hand");
	has_text(server, "on_death", "fail");
	has_number(server, "pid", (uint64_t)getpid());
	assert_true(json_is_true(json_object_get(server, "alive")));
	assert_true(json_is_true(json_object_get(server, "asleep")));
	has_number(server, "lives", 1);
	has_number(server, "arena_bytes", 64 << 20);
	has_number(server, "slots_bytes", 16 * CORE_CHUNK_BYTES);
	has_number(server, "max_workers", 2ull * WORKERS);
	has_number(server, "workers_of_job", WORKERS);
	has_number(server, "live_workers", WORKERS - 1);
	has_number(server, "damaged_entries", 0);
	json_decref(json);
}

static void json_tells_of_workers(void **state)
{
	json_t *json, *worker;

	(void)state;
	hand_states(&hand)[5] = core_state(CORE_DEAD, 3);
	hand_ranks(&hand)[5] = (struct core_rank){ .head = 100, .applied = 90, .dropped = 10, .pid = 4711 };
	hand_words(&hand)[5].tail = 107;
	for (uint32_t i = 0; i < CORE_QUEUE_PAIRS; i++)
		hand_words(&hand)[5].landed[i] = 1000 + i;
	json = stat_json_of(ARENA_ADDRESS);
	assert_int_equal(json_array_size(json_object_get(server_of(json), "workers")), WORKERS);
	worker = item(server_of(json), "workers", 5);
	has_number(worker, "rank", 5);
	has_text(worker, "state", "dead");
	has_number(worker, "incarnation", 3);
	has_number(worker, "pid", 4711);
	has_number(worker, "applied", 90);
	has_number(worker, "dropped", 10);
	has_number(worker, "staged_cells", 7);
	has_number(worker, "added", 4006);
	json_decref(json);
}

static void json_tells_of_tables(void **state)
{
	struct core_entry *slots = hand_table(&hand, "dense/w", RAMPS_SLOTS, 1000, 64);
	struct core_entry *direct = hand_table(&hand, "counts", RAMPS_DIRECT, 10, 3);
	struct core_chunk *chunks = hand_chunks(&hand, slots);
	json_t *json, *table;

	(void)state;
	slots->table.synchronous = 1;
	slots->steps = 40;
	for (uint32_t i = 0; i < 4; i++)
		chunks[i].steps = 11 - i % 2;
	direct->table.type = RAMPS_INT64;
	direct->state = CORE_PREPARING;
	json = stat_json_of(ARENA_ADDRESS);
	table = item(server_of(json), "tables", 0);
	has_text(table, "name", "dense/w");
	has_number(table, "rows", 1000);
	has_number(table, "dim", 64);
	has_text(table, "type", "float32");
	has_text(table, "mode", "slots");
	has_text(table, "state", "ready");
	assert_true(json_is_true(json_object_get(table, "synchronous")));
	has_number(table, "elements", 64000);
	has_number(table, "bytes", 256000);
	has_number(table, "step", 10);
	has_number(table, "updates", 40);
	table = item(server_of(json), "tables", 1);
	has_text(table, "mode", "direct");
	has_text(table, "type", "int64");
	has_text(table, "state", "preparing");
	has_number(table, "bytes", 240);
	assert_true(json_is_null(json_object_get(table, "step")));
	assert_true(json_is_null(json_object_get(table, "updates")));
	json_decref(json);
}

static void clock_names_the_slowest_live_ranks(void **state)
{
	static const uint32_t slowest[] = { 4, 6 };
	uint64_t *counts = hand_clock(&hand, "train");
	json_t *json, *clock;
	char *output;

	(void)state;
	for (uint32_t i = 0; i < WORKERS; i++)
		counts[i] = 20 + i % 2;
	counts[4] = counts[6] = 17;
	counts[8] = 3; /* dead: waited for by nobody */
	counts[9] = 17;
	hand_states(&hand)[8] = hand_states(&hand)[9] = core_state(CORE_DEAD, 1);
	json = stat_json_of(ARENA_ADDRESS);
	clock = item(server_of(json), "clocks", 0);
	has_text(clock, "name", "train");
	has_number(clock, "least", 17);
	has_number(clock, "most", 21);
	has_ranks(clock, "slowest", slowest, 2);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(clock, "counts"), 8)), 3);
	json_decref(json);
	assert_int_equal(run_ramps("stat " ARENA_ADDRESS, &output), 0);
	assert_non_null(strstr(output, "train     17    21  4, 6     20 21 20"));
	free(output);
}

static void barrier_names_the_missing_ranks(void **state)
{
	static const uint32_t missing[] = { 3, 7, 8, 9 };
	struct core_node *nodes = hand_barrier(&hand, "epoch", NULL, WORKERS);
	json_t *json, *barrier;
	char *output;

	(void)state;
	nodes[0].word = 17ull << 32 | (0xfff & ~(1u << 3 | 7u << 7));
	json = stat_json_of(ARENA_ADDRESS);
	barrier = item(server_of(json), "barriers", 0);
	has_text(barrier, "name", "epoch");
	has_number(barrier, "members", WORKERS);
	has_number(barrier, "generation", 17);
	has_number(barrier, "arrived", 8);
	has_ranks(barrier, "missing", missing, 4);
	json_decref(json);
	assert_int_equal(run_ramps("stat " ARENA_ADDRESS, &output), 0);
	assert_non_null(strstr(output, "8 of 12  3, 7-9\n"));
	free(output);
}

static void barrier_of_a_group_names_ranks_not_members(void **state)
{
	static const uint32_t missing[] = { 9, 11 };
	const uint64_t group = 1u << 2 | 1u << 9 | 1u << 10 | 1u << 11;
	struct core_node *nodes = hand_barrier(&hand, "few", &group, 4);
	json_t *json;

	(void)state;
	nodes[0].word = 1u << 0 | 1u << 2;
	json = stat_json_of(ARENA_ADDRESS);
	has_ranks(item(server_of(json), "barriers", 0), "missing", missing, 2);
	json_decref(json);
}

static bool stop;

static void *count_up(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
		__atomic_fetch_add(&hand_ranks(&hand)[2].applied, 7, __ATOMIC_RELAXED);
		__atomic_fetch_add(&hand_words(&hand)[2].landed[1], 9, __ATOMIC_RELAXED);
	}
	return NULL;
}

static double ratio(json_t *before, json_t *now, const char *key, const char *rate_key)
{
	double interval = json_real_value(
		json_object_get(json_array_get(json_object_get(now, "servers"), 0), "interval_s"));
	json_t *a = item(server_of(before), "workers", 2), *b = item(server_of(now), "workers", 2);
	double moved = (double)(json_integer_value(json_object_get(b, key)) -
				json_integer_value(json_object_get(a, key)));

	assert_true(moved > 0);
	return json_real_value(json_object_get(b, rate_key)) / (moved / interval);
}

static void rates_are_of_the_time_between_two_samples(void **state)
{
	json_t *lines[2];
	char *output, *rest;
	pthread_t thread;

	(void)state;
	stop = false;
	assert_int_equal(pthread_create(&thread, NULL, count_up, NULL), 0);
	assert_int_equal(run_ramps("stat --json --watch 0.05 --count 2 " ARENA_ADDRESS, &output), 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	rest = output;
	for (int i = 0; i < 2; i++) {
		lines[i] = json_loads(strsep(&rest, "\n"), 0, NULL);
		assert_non_null(lines[i]);
	}
	assert_string_equal(rest, "");
	assert_float_equal(ratio(lines[0], lines[1], "applied", "applied_per_s"), 1, 1e-4);
	assert_float_equal(ratio(lines[0], lines[1], "added", "added_per_s"), 1, 1e-4);
	json_decref(lines[0]);
	json_decref(lines[1]);
	free(output);
}

static void dead_server_is_shown_as_dead(void **state)
{
	json_t *json;
	char *output;

	(void)state;
	hand_table(&hand, "weights", RAMPS_SLOTS, 5, 5);
	hand_arena_kill(&hand);
	json = stat_json_of(ARENA_ADDRESS);
	assert_true(json_is_false(json_object_get(server_of(json), "alive")));
	has_text(item(server_of(json), "tables", 0), "name", "weights");
	json_decref(json);
	assert_int_equal(run_ramps("stat " ARENA_ADDRESS, &output), 0);
	assert_non_null(strstr(output, ", dead, "));
	free(output);
}

static void damaged_entries_are_counted_and_left_out(void **state)
{
	uint32_t n = 0;
	json_t *json;

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		hand_table(&hand, "table", RAMPS_SLOTS, 10, 10);
	for (uint32_t i = 0; i < 4; i++)
		hand_barrier(&hand, "barrier", NULL, WORKERS);
	for (uint32_t i = 0; i < 3; i++)
		hand_clock(&hand, "clock");
	hand_entry(&hand, n++)->kind = 99;
	hand_entry(&hand, n++)->index = 77;
	memset(hand_entry(&hand, n++)->name, 'x', RAMPS_NAME_BYTES);
	strcpy(hand_entry(&hand, n++)->name, "\"\xff\n");
	hand_entry(&hand, n++)->table.elements = 1ull << 63;
	hand_entry(&hand, n++)->table.rows = 1ull << 62;
	hand_entry(&hand, n++)->table.chunk_elements = 0;
	n++; /* good */
	hand_entry(&hand, n++)->barrier.members = 0xffffffff;
	hand_entry(&hand, n++)->barrier.fan_in = 0;
	hand_entry(&hand, n++)->barrier.nodes_offset = 1ull << 40;
	n++; /* good */
	hand_entry(&hand, n++)->clock.members = WORKERS + 1;
	hand_entry(&hand, n++)->clock.words_offset = UINT64_MAX - 7;
	json = stat_json_of(ARENA_ADDRESS);
	/* a name of 64 bytes lost its last one and is whole again */
	has_number(server_of(json), "damaged_entries", 11);
	assert_int_equal(json_array_size(json_object_get(server_of(json), "tables")), 2);
	assert_int_equal(json_array_size(json_object_get(server_of(json), "barriers")), 1);
	assert_int_equal(json_array_size(json_object_get(server_of(json), "clocks")), 1);
	json_decref(json);
}

static int64_t blocks_of(const char *file)
{
	char path[320];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", hand.directory, file);
	assert_int_equal(stat(path, &st), 0);
	return st.st_blocks;
}

static void looking_takes_no_memory_of_the_arena(void **state)
{
	struct core_entry *table = hand_table(&hand, "holes", RAMPS_SLOTS, 1 << 12, 1 << 10);
	int64_t before;
	json_t *json;

	(void)state;
	table->table.chunks_offset = 32 << 20; /* nothing was allocated there */
	before = blocks_of("published");
	json = stat_json_of(ARENA_ADDRESS);
	has_number(item(server_of(json), "tables", 0), "step", 0);
	json_decref(json);
	assert_int_equal(blocks_of("published"), before);
}

static void nothing_there_is_one_line_that_says_what_to_do(void **state)
{
	char *output, expected[512];

	(void)state;
	assert_int_equal(run_ramps("stat shm://nobody", &output), 1 << 8);
	snprintf(expected, sizeof(expected),
		 "ramps stat: no server at shm://nobody (%s/ramps.%u.nobody): start one by "
		 "'ramps serve shm://nobody'\n",
		 hand.root, (unsigned int)getuid());
	assert_string_equal(output, expected);
	free(output);
}

static void several_servers_have_a_block_each(void **state)
{
	char *output;
	json_t *json, *servers;

	(void)state;
	assert_int_equal(run_ramps("stat " ARENA_ADDRESS "," ARENA_ADDRESS, &output), 0);
	assert_non_null(strstr(output, "\n\n" ARENA_ADDRESS));
	free(output);
	assert_int_equal(run_ramps("stat --json shm://nobody," ARENA_ADDRESS " 2>/dev/null", &output),
			 1 << 8);
	json = json_loads(output, 0, NULL);
	servers = json_object_get(json, "servers");
	assert_int_equal(json_array_size(servers), 2);
	assert_non_null(json_object_get(json_array_get(servers, 0), "error"));
	has_text(json_array_get(servers, 1), "job", "by-hand");
	json_decref(json);
	free(output);
}

static void long_lists_are_cut_unless_all_is_asked_for(void **state)
{
	char *output;

	(void)state;
	hand_clock(&hand, "many");
	assert_int_equal(run_ramps("stat " ARENA_ADDRESS, &output), 0);
	assert_non_null(strstr(output, "\n  31  absent"));
	assert_null(strstr(output, "\n  32  absent"));
	assert_non_null(strstr(output, "\n... and 4 more workers: --all shows them\n"));
	assert_non_null(strstr(output, " 0 0 and 4 more\n"));
	free(output);
	assert_int_equal(run_ramps("stat --all " ARENA_ADDRESS, &output), 0);
	assert_non_null(strstr(output, "\n  35  absent"));
	assert_null(strstr(output, "more"));
	free(output);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(json_tells_of_the_server, make, drop),
		cmocka_unit_test_setup_teardown(json_tells_of_workers, make, drop),
		cmocka_unit_test_setup_teardown(json_tells_of_tables, make, drop),
		cmocka_unit_test_setup_teardown(clock_names_the_slowest_live_ranks, make, drop),
		cmocka_unit_test_setup_teardown(barrier_names_the_missing_ranks, make, drop),
		cmocka_unit_test_setup_teardown(barrier_of_a_group_names_ranks_not_members, make, drop),
		cmocka_unit_test_setup_teardown(rates_are_of_the_time_between_two_samples, make, drop),
		cmocka_unit_test_setup_teardown(dead_server_is_shown_as_dead, make, drop),
		cmocka_unit_test_setup_teardown(damaged_entries_are_counted_and_left_out, make, drop),
		cmocka_unit_test_setup_teardown(looking_takes_no_memory_of_the_arena, make, drop),
		cmocka_unit_test_setup_teardown(nothing_there_is_one_line_that_says_what_to_do, make, drop),
		cmocka_unit_test_setup_teardown(long_lists_are_cut_unless_all_is_asked_for,
						make_many, drop),
		cmocka_unit_test_setup_teardown(several_servers_have_a_block_each, make, drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

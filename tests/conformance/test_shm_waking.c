/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/*
 * Bells over shared memory: waiters that sleep at once, and changes that come just when they do.
 *
 * A wake-up that is lost shows as a wait of SHM_LOOK_NS.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/word.h"
#include "conformance_shm.h"
#include "shm/shm_private.h"

#define LONG_MS 60000
#define JOIN_MS 200000
#define PLAYERS 4

struct game {
	unsigned int rounds, players;
	uint64_t *late; /* in memory that all share: one for each player */
};

/* Burns a time from nothing to max_ns, by rounds in which nobody is asked for the time. */
static void burn(uint32_t *seed, uint32_t max)
{
	*seed = *seed * 1664525u + 1013904223u;
	for (uint32_t i = (*seed >> 8) % max; i; i--)
		__asm__ volatile("" ::: "memory");
}

static void play(struct conformance_client *client, unsigned int index, void *arg)
{
	const struct game *game = arg;
	uint64_t value = 0, started_ns;
	uint32_t seed = index + 1;

	((struct shm_fabric *)client->fabric)->awake_ns = 0;
	for (uint64_t turn = index; turn < game->rounds; turn += game->players) {
		while (value != turn) {
			/* A page fault at the bell is time between a look and a promise to sleep. */
			child_check(!madvise(shm_of(client->ep)->bells, SHM_BELLS_BYTES, MADV_DONTNEED));
			started_ns = base_now_ns();
			child_check(fabric_wait_word(client->ep, WORDS, 64, value, &value,
						     conformance_in(client, LONG_MS)) == 0);
			if (base_now_ns() - started_ns >= SHM_LOOK_NS * 9 / 10)
				game->late[index]++;
		}
		burn(&seed, 20000);
		child_check(conformance_add(client, 64, 1, &value) == 0);
		value++;
	}
}

static uint64_t count_late(struct conformance_world *world, unsigned int players, unsigned int rounds)
{
	struct game game = {
		.rounds = rounds,
		.players = players,
		.late = world->server.memory[SLOTS].base,
	};
	const struct conformance_job job = { .server = &world->server, .body = play, .arg = &game };
	uint64_t late = 0;
	pid_t pids[PLAYERS];

	conformance_spawn(&job, players, pids);
	conformance_join(players, pids, JOIN_MS);
	for (unsigned int i = 0; i < players; i++)
		late += game.late[i];
	return late;
}

/* A machine that stalls is late at times; a protocol that loses wake-ups is so in every try. */
#define FEW   2
#define TRIES 3

static void check_players(struct conformance_world *world, unsigned int players, unsigned int rounds)
{
	uint64_t late = FEW + 1;

	for (int i = 0; i < TRIES && late > FEW; i++) {
		memset(world->server.memory[WORDS].base, 0, REGION_BYTES);
		memset(world->server.memory[SLOTS].base, 0, REGION_BYTES);
		late = count_late(world, players, rounds);
		print_message("%u of %u were late\n", (unsigned int)late, rounds);
	}
	assert_true(late <= FEW);
}

static void two_who_sleep_at_once_wake_each_other(void **state)
{
	check_players(*state, 2, support_rounds(100000));
}

static void four_on_one_bell_wake_each_other(void **state)
{
	check_players(*state, 4, support_rounds(60000));
}

/* The other player of the server: its turn is when `published` is odd. */
static void answer(struct conformance_client *client, unsigned int index, void *arg)
{
	const struct game *game = arg;
	uint64_t value = 0, started_ns;
	uint32_t seed = 7;

	(void)index;
	((struct shm_fabric *)client->fabric)->awake_ns = 0;
	for (uint64_t turn = 0; turn < game->rounds; turn++) {
		child_check(!madvise(shm_of(client->ep)->bells, SHM_BELLS_BYTES, MADV_DONTNEED));
		started_ns = base_now_ns();
		child_check(fabric_wait_word(client->ep, PUBLISHED, 64, turn, &value,
					     conformance_in(client, LONG_MS)) == 0);
		if (base_now_ns() - started_ns >= SHM_LOOK_NS * 9 / 10)
			game->late[0]++;
		burn(&seed, 10000);
		child_check(conformance_add(client, 64, 1, NULL) == 0);
	}
}

#define FAR_BYTES (64u << 20)

/* Leaves stores under way that take long, as a server's that has just changed weights. */
static void busy_stores(uint32_t *seed)
{
	static char far[FAR_BYTES];

	for (int i = 0; i < 40; i++) {
		*seed = *seed * 1664525u + 1013904223u;
		*(volatile char *)&far[(*seed >> 4) % FAR_BYTES] = 1;
	}
}

/* The server stores plainly: without its barrier the look at the bell overtakes the store. */
static uint64_t serve_game(struct fabric_listener *l, struct conformance_client *self,
			   struct conformance_server *where, unsigned int rounds)
{
	static struct fabric_event event;
	const struct conformance_message hello = { .command = ECHO };
	struct game game = { .rounds = rounds, .late = where->memory[SLOTS].base };
	const struct conformance_job job = { .server = where, .body = answer, .arg = &game };
	uint64_t *word = (uint64_t *)where->memory[PUBLISHED].base + 8;
	uint64_t value = 0, deadline_ns = base_deadline(base_now_ns(), LONG_MS);
	uint32_t seed = 1;
	pid_t pid;

	for (int i = 0; i < REGIONS; i++)
		memset(where->memory[i].base, 0, where->memory[i].len_bytes);
	conformance_spawn(&job, 1, &pid);
	while (!fabric_next_event(l, &event) || event.kind != FABRIC_CONNECTED)
		assert_ok(fabric_wait(l, deadline_ns));
	assert_ok(conformance_grant(event.endpoint, where->memory));
	assert_ok(fabric_send(event.endpoint, &hello, sizeof(hello)));
	for (uint64_t turn = 0; turn < rounds; turn++) {
		burn(&seed, 10000);
		busy_stores(&seed);
		word_publish(word, turn + 1);
		fabric_notify(l, PUBLISHED, 64);
		assert_ok(fabric_wait_word(self->ep, WORDS, 64, turn, &value,
					   conformance_in(self, LONG_MS)));
	}
	conformance_join(1, &pid, JOIN_MS);
	fabric_endpoint_close(event.endpoint);
	return game.late[0];
}

static void the_servers_stores_wake_sleepers(void **state)
{
	struct conformance_server where;
	struct conformance_client self = { 0 };
	unsigned int rounds = support_rounds(200000);
	struct fabric_listener *l;
	uint64_t late = FEW + 1;

	(void)state;
	conformance_allocate(where.memory);
	support_shm_address(where.address, sizeof(where.address));
	assert_ok(shm_open_fabric(&self.fabric));
	for (int i = 0; i < REGIONS; i++)
		assert_ok(fabric_register(self.fabric, &where.memory[i]));
	assert_ok(fabric_listen(self.fabric, where.address, &l));
	assert_ok(fabric_loopback(l, &self.ep));
	assert_ok(conformance_grant(self.ep, where.memory));
	for (int i = 0; i < TRIES && late > FEW; i++) {
		late = serve_game(l, &self, &where, rounds);
		print_message("%u of %u were late\n", (unsigned int)late, rounds);
	}
	assert_true(late <= FEW);
	fabric_endpoint_close(self.ep);
	fabric_listener_close(l);
	fabric_close(self.fabric);
	conformance_release(where.memory);
}

#define WITH_SERVER(test) \
	cmocka_unit_test_setup_teardown(test, conformance_setup, conformance_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_SERVER(two_who_sleep_at_once_wake_each_other),
		WITH_SERVER(four_on_one_bell_wake_each_other),
		cmocka_unit_test(the_servers_stores_wake_sleepers),
	};

	conformance = &conformance_shm;
	return cmocka_run_group_tests(tests, support_shm_setup, support_shm_teardown);
}

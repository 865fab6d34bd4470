/* SPDX-License-Identifier: BSD-2-Clause */
/* Mappings of the fabric over shared memory, its forks, and a server within the client's own process. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/word.h"
#include "conformance_shm.h"
#include "shm/shm_private.h"

#define WORLD   struct conformance_world *world = *state
#define LONG_MS 20000

static void memory_that_may_only_be_read_can_not_be_made_writable(void **state)
{
	WORLD;
	void *published = (void *)(uintptr_t)fabric_map(world->client.ep, PUBLISHED, 0, 4096);
	void *words = (void *)(uintptr_t)fabric_map(world->client.ep, WORDS, 0, 4096);

	assert_non_null(published);
	assert_int_equal(mprotect(published, 4096, PROT_READ | PROT_WRITE), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(mprotect(words, 4096, PROT_READ | PROT_WRITE), 0);
}

static int connect_again(struct conformance_world *world, struct fabric_endpoint **ep)
{
	struct conformance_message hello;
	int ret = fabric_connect(world->client.fabric, world->server.address,
				 conformance_in(&world->client, LONG_MS), ep);

	if (ret)
		return ret;
	ret = fabric_recv(*ep, &hello, sizeof(hello), conformance_in(&world->client, LONG_MS));
	return ret < 0 ? ret : 0;
}

static void a_new_connection_finds_memory_at_the_same_address(void **state)
{
	WORLD;
	struct fabric_endpoint *again;
	const uint64_t *words = fabric_map(world->client.ep, WORDS, 0, 8);
	const void *published = fabric_map(world->client.ep, PUBLISHED, 0, 8);
	unsigned int mappings = support_mappings();

	assert_ok(conformance_add(&world->client, 0, 3, NULL));
	for (int i = 0; i < 3; i++) {
		assert_ok(connect_again(world, &again));
		assert_ptr_equal(fabric_map(again, WORDS, 0, 8), words);
		assert_ptr_equal(fabric_map(again, PUBLISHED, 0, 8), published);
		fabric_endpoint_close(world->client.ep);
		world->client.ep = again;
		assert_int_equal(word_acquire(words), 3);
	}
	assert_int_equal(support_mappings(), mappings);
}

static void opening_a_large_region_touches_none_of_it(void **state)
{
	struct conformance_client client = { 0 };
	struct fabric_memory memory = { .len_bytes = 1ull << 38 };
	char address[SHM_ADDRESS_BYTES];
	struct fabric_listener *l;

	(void)state;
	memory.fd = memfd_create("large", MFD_CLOEXEC);
	assert_int_equal(ftruncate(memory.fd, 1ll << 38), 0);
	memory.base = mmap(NULL, memory.len_bytes, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_NORESERVE, memory.fd, 0);
	assert_true(memory.base != MAP_FAILED);
	support_shm_address(address, sizeof(address));
	assert_ok(shm_open_fabric(&client.fabric));
	assert_ok(fabric_register(client.fabric, &memory));
	assert_ok(fabric_listen(client.fabric, address, &l));
	assert_ok(fabric_loopback(l, &client.ep));
	assert_ok(fabric_grant(client.ep, 0, &memory, FABRIC_MAY_ATOMIC));
	assert_ok(conformance_add(&client, (1ull << 38) - 8, 1, NULL));
	fabric_endpoint_close(client.ep);
	fabric_listener_close(l);
	fabric_close(client.fabric);
	munmap(memory.base, memory.len_bytes);
	close(memory.fd);
}

static void a_forked_child_that_closes_disturbs_nobody(void **state)
{
	WORLD;
	struct conformance_message message = { .command = COUNT };
	uint64_t old;
	pid_t pid = fork();

	if (!pid) {
		/* Nothing is mapped here. */
		conformance_disconnect(&world->client);
		_exit(0);
	}
	assert_int_equal(support_join(pid, LONG_MS), 0);
	assert_ok(conformance_ask(&world->client, &message));
	assert_int_equal(message.count, 1);
	assert_ok(conformance_add(&world->client, 8, 1, &old));
	assert_int_equal(old, 0);
	assert_ok(fabric_check(world->client.ep));
}

/* The server dies; a child that it forked still holds its sockets open. */
static void hold_sockets(void *arg)
{
	int *ready = arg;
	char address[SHM_ADDRESS_BYTES] = { 0 };
	static struct fabric_event event;
	const struct conformance_message hello = { .command = ECHO };
	struct fabric_listener *l;
	struct fabric *fabric;
	pid_t pid;

	child_check(shm_open_fabric(&fabric) == 0);
	support_shm_address(address, sizeof(address));
	child_check(fabric_listen(fabric, address, &l) == 0);
	child_check(write(ready[1], address, sizeof(address)) > 0);
	while (!fabric_next_event(l, &event))
		fabric_wait(l, BASE_FOREVER);
	child_check(fabric_send(event.endpoint, &hello, sizeof(hello)) == 0);
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	child_check(write(ready[1], &pid, sizeof(pid)) == sizeof(pid));
	raise(SIGKILL);
}

static void a_dead_server_is_seen_though_its_child_holds_the_socket(void **state)
{
	struct conformance_client client;
	char address[SHM_ADDRESS_BYTES];
	struct fabric_listener *l;
	uint64_t before_ns;
	pid_t pid, holder;
	int ready[2], ret;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	pid = support_spawn(hold_sockets, ready);
	assert_int_equal(read(ready[0], address, sizeof(address)), sizeof(address));
	assert_ok(conformance_connect(address, &client));
	assert_int_equal(read(ready[0], &holder, sizeof(holder)), sizeof(holder));
	assert_int_equal(support_join(pid, LONG_MS), 128 + SIGKILL);
	before_ns = base_now_ns();
	assert_error(fabric_recv(client.ep, address, sizeof(address), conformance_in(&client, LONG_MS)),
		     ENOTCONN);
	assert_true(base_now_ns() - before_ns < NS_PER_S);
	conformance_disconnect(&client);
	kill(holder, SIGKILL);
	close(ready[0]);
	close(ready[1]);
	/* The kernel ends the holder in its own time. */
	before_ns = base_now_ns();
	assert_ok(shm_open_fabric(&client.fabric));
	while ((ret = fabric_listen(client.fabric, address, &l)) == -EADDRINUSE)
		assert_true(base_now_ns() - before_ns < 5 * NS_PER_S);
	assert_ok(ret);
	fabric_listener_close(l);
	fabric_close(client.fabric);
}

/*
 * A server in a thread
 */

struct inside {
	struct fabric *fabric;
	struct fabric_listener *listener;
	struct conformance_server where;
	pthread_t thread;
	uint64_t stop;
	int cuts_refused;
};

static void *serve_inside(void *arg)
{
	struct inside *inside = arg;
	const struct conformance_message hello = { .command = ECHO };
	struct fabric_event *event = calloc(1, sizeof(*event));

	while (!word_acquire(&inside->stop)) {
		while (fabric_next_event(inside->listener, event)) {
			struct fabric_endpoint *ep = event->endpoint;

			if (event->kind == FABRIC_CONNECTED) {
				conformance_grant(ep, inside->where.memory);
				fabric_send(ep, &hello, sizeof(hello));
			} else if (event->kind == FABRIC_MESSAGE) {
				/* It lives in this process: a cut must wait for it, not kill it. */
				while (fabric_cut(ep) == -EAGAIN)
					__atomic_fetch_add(&inside->cuts_refused, 1, __ATOMIC_RELAXED);
				fabric_endpoint_close(ep);
			} else {
				if (fabric_cut(ep) == 0)
					fabric_endpoint_close(ep);
			}
		}
		fabric_wait(inside->listener, BASE_FOREVER);
	}
	free(event);
	return NULL;
}

static int inside_setup(void **state)
{
	struct inside *inside = calloc(1, sizeof(*inside));

	conformance_allocate(inside->where.memory);
	assert_ok(shm_open_fabric(&inside->fabric));
	for (int i = 0; i < REGIONS; i++)
		assert_ok(fabric_register(inside->fabric, &inside->where.memory[i]));
	support_shm_address(inside->where.address, sizeof(inside->where.address));
	assert_ok(fabric_listen(inside->fabric, inside->where.address, &inside->listener));
	assert_int_equal(pthread_create(&inside->thread, NULL, serve_inside, inside), 0);
	*state = inside;
	return 0;
}

static int inside_teardown(void **state)
{
	struct inside *inside = *state;

	word_publish(&inside->stop, 1);
	fabric_wake(inside->listener);
	pthread_join(inside->thread, NULL);
	fabric_listener_close(inside->listener);
	fabric_close(inside->fabric);
	conformance_release(inside->where.memory);
	free(inside);
	return 0;
}

static void a_cut_waits_for_a_thread_of_its_own_process(void **state)
{
	struct inside *inside = *state;
	const struct conformance_message message = { .command = QUIET };
	struct conformance_client client;

	assert_ok(conformance_connect(inside->where.address, &client));
	assert_ok(fabric_send(client.ep, &message, sizeof(message)));
	while (!__atomic_load_n(&inside->cuts_refused, __ATOMIC_RELAXED))
		usleep(100);
	conformance_disconnect(&client);
	/* The server is free again. */
	assert_ok(conformance_connect(inside->where.address, &client));
	conformance_disconnect(&client);
}

struct player {
	struct inside *inside;
	unsigned int index, rounds;
	int ret;
	pthread_t thread;
};

static void *play(void *arg)
{
	struct player *player = arg;
	struct conformance_client client;
	uint64_t value = 0, data[32];

	player->ret = conformance_connect(player->inside->where.address, &client);
	if (player->ret)
		return NULL;
	for (uint64_t turn = player->index; turn < player->rounds && !player->ret; turn += 2) {
		while (value != turn && !player->ret)
			player->ret = fabric_wait_word(client.ep, WORDS, 64, value, &value,
						       conformance_in(&client, LONG_MS));
		if (!player->ret)
			player->ret = conformance_read(&client, SHARED, 0, data, sizeof(data));
		if (!player->ret && turn && data[31] != turn)
			player->ret = -EILSEQ;
		for (int i = 0; i < 32; i++)
			data[i] = turn + 1;
		if (!player->ret)
			player->ret = conformance_write(&client, SHARED, 0, data, sizeof(data));
		if (!player->ret)
			player->ret = conformance_add(&client, 64, 1, &value);
		value++;
	}
	conformance_disconnect(&client);
	return NULL;
}

static void threads_of_one_process_play_by_the_same_rules(void **state)
{
	struct player players[2] = { { 0 } };

	for (unsigned int i = 0; i < 2; i++) {
		players[i].inside = *state;
		players[i].index = i;
		players[i].rounds = support_rounds(20000);
		assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
	}
	for (unsigned int i = 0; i < 2; i++) {
		pthread_join(players[i].thread, NULL);
		assert_ok(players[i].ret);
	}
}

static void a_server_keeps_nothing_of_clients_that_left(void **state)
{
	struct inside *inside = *state;
	struct conformance_client client;
	unsigned int descriptors, mappings;
	uint64_t deadline_ns;

	assert_ok(conformance_connect(inside->where.address, &client));
	conformance_disconnect(&client);
	usleep(20000);
	descriptors = support_descriptors();
	mappings = support_mappings();
	for (int i = 0; i < 100; i++) {
		assert_ok(conformance_connect(inside->where.address, &client));
		conformance_disconnect(&client);
	}
	deadline_ns = base_deadline(base_now_ns(), LONG_MS);
	while (support_descriptors() > descriptors)
		assert_true(base_now_ns() < deadline_ns);
	assert_int_equal(support_mappings(), mappings);
}

static void memory_without_a_file_is_for_loopback_only(void **state)
{
	struct inside *inside = *state;
	struct fabric_memory memory = { .len_bytes = 4096, .fd = -1 };
	static struct fabric_event event;
	struct fabric_endpoint *self, *client;
	struct fabric_listener *l;
	char address[SHM_ADDRESS_BYTES];
	pid_t pid;

	memory.base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	support_shm_address(address, sizeof(address));
	assert_error(fabric_register(inside->fabric, &(struct fabric_memory){ .len_bytes = 8 }), EINVAL);
	assert_ok(fabric_register(inside->fabric, &memory));
	assert_ok(fabric_listen(inside->fabric, address, &l));
	assert_ok(fabric_loopback(l, &self));
	assert_ok(fabric_grant(self, 0, &memory, FABRIC_MAY_READ));
	assert_ptr_equal(fabric_map(self, 0, 0, 4096), memory.base);
	pid = fork();
	if (!pid) {
		struct fabric *fabric;

		child_check(shm_open_fabric(&fabric) == 0);
		child_check(fabric_connect(fabric, address, base_deadline(base_now_ns(), LONG_MS),
					   &client) == 0);
		fabric_endpoint_close(client);
		_exit(0);
	}
	while (!fabric_next_event(l, &event))
		assert_ok(fabric_wait(l, base_deadline(base_now_ns(), LONG_MS)));
	assert_error(fabric_grant(event.endpoint, 0, &memory, FABRIC_MAY_READ), EOPNOTSUPP);
	assert_int_equal(support_join(pid, LONG_MS), 0);
	fabric_endpoint_close(event.endpoint);
	fabric_endpoint_close(self);
	fabric_listener_close(l);
	fabric_unregister(inside->fabric, &memory);
	munmap(memory.base, 4096);
}

static void an_identity_means_one_life_of_one_process(void **state)
{
	struct inside *inside = *state;
	unsigned char identity[FABRIC_IDENTITY_BYTES] = { 0 };

	assert_true(fabric_peer_gone(inside->listener, identity)); /* nobody */
	shm_identify(getpid(), identity);
	assert_false(fabric_peer_gone(inside->listener, identity));
	identity[8] ^= 1; /* started at another time */
	assert_true(fabric_peer_gone(inside->listener, identity));
	identity[8] ^= 1;
	identity[0] ^= 1; /* before the machine's last boot */
	assert_true(fabric_peer_gone(inside->listener, identity));
	identity[0] ^= 1;
	assert_false(fabric_peer_gone(inside->listener, identity));
}

#define WITH_SERVER(test) \
	cmocka_unit_test_setup_teardown(test, conformance_setup, conformance_teardown)
#define INSIDE(test) cmocka_unit_test_setup_teardown(test, inside_setup, inside_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_SERVER(memory_that_may_only_be_read_can_not_be_made_writable),
		WITH_SERVER(a_new_connection_finds_memory_at_the_same_address),
		WITH_SERVER(a_forked_child_that_closes_disturbs_nobody),
		cmocka_unit_test(opening_a_large_region_touches_none_of_it),
		cmocka_unit_test(a_dead_server_is_seen_though_its_child_holds_the_socket),
		INSIDE(a_cut_waits_for_a_thread_of_its_own_process),
		INSIDE(threads_of_one_process_play_by_the_same_rules),
		INSIDE(a_server_keeps_nothing_of_clients_that_left),
		INSIDE(memory_without_a_file_is_for_loopback_only),
		INSIDE(an_identity_means_one_life_of_one_process),
	};

	conformance = &conformance_shm;
	return cmocka_run_group_tests(tests, support_shm_setup, support_shm_teardown);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server sees: here the test is the server, and its clients are children. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/word.h"
#include "conformance.h"

#define SERVER  struct server *server = *state
#define LONG_MS 20000

struct server {
	struct fabric *fabric;
	struct fabric_listener *listener;
	struct conformance_server where; /* address and memory, for clients */
	struct fabric_event event;
};

static int setup(void **state)
{
	struct server *server = calloc(1, sizeof(*server));

	conformance_allocate(server->where.memory);
	assert_ok(conformance->open(&server->fabric));
	for (int i = 0; i < REGIONS; i++)
		assert_ok(fabric_register(server->fabric, &server->where.memory[i]));
	conformance->address(server->where.address, sizeof(server->where.address));
	assert_ok(fabric_listen(server->fabric, server->where.address, &server->listener));
	strcpy(server->where.address, server->listener->address);
	*state = server;
	return 0;
}

static int teardown(void **state)
{
	SERVER;

	fabric_listener_close(server->listener);
	for (int i = 0; i < REGIONS; i++)
		fabric_unregister(server->fabric, &server->where.memory[i]);
	fabric_close(server->fabric);
	conformance_release(server->where.memory);
	free(server);
	return 0;
}

/* Waits for the next event, which must be of this kind. The endpoint that it is of. */
static struct fabric_endpoint *expect(struct server *server, uint32_t kind)
{
	uint64_t deadline_ns = fabric_now(server->fabric) + LONG_MS * NS_PER_MS;
	int ret;

	while (!(ret = fabric_next_event(server->listener, &server->event))) {
		assert_true(fabric_now(server->fabric) < deadline_ns);
		assert_ok(fabric_wait(server->listener, deadline_ns));
	}
	assert_int_equal(ret, 1);
	assert_int_equal(server->event.kind, kind);
	return server->event.endpoint;
}

static void expect_nothing(struct server *server, int for_ms)
{
	uint64_t deadline_ns = fabric_now(server->fabric) + (uint64_t)for_ms * NS_PER_MS;

	do {
		assert_int_equal(fabric_next_event(server->listener, &server->event), 0);
		assert_ok(fabric_wait(server->listener, deadline_ns));
	} while (fabric_now(server->fabric) < deadline_ns);
}

/* Takes a connection in, as conformance_connect() expects it. */
static struct fabric_endpoint *admit(struct server *server)
{
	struct fabric_endpoint *ep = expect(server, FABRIC_CONNECTED);
	const struct conformance_message hello = { .command = ECHO };

	assert_ok(conformance_grant(ep, server->where.memory));
	assert_ok(fabric_send(ep, &hello, sizeof(hello)));
	return ep;
}

static void cut_and_close(struct server *server, struct fabric_endpoint *ep)
{
	uint64_t deadline_ns = fabric_now(server->fabric) + LONG_MS * NS_PER_MS;
	int ret;

	while ((ret = fabric_cut(ep)) == -EAGAIN) {
		assert_true(fabric_now(server->fabric) < deadline_ns);
		assert_ok(fabric_wait(server->listener, fabric_now(server->fabric) + NS_PER_MS));
	}
	assert_ok(ret);
	fabric_endpoint_close(ep);
}

/* What a client does; see each body. */
static pid_t client(struct server *server,
		    void (*body)(struct conformance_client *, unsigned int, void *), void *arg)
{
	struct conformance_job job = { .server = &server->where, .body = body, .arg = arg };
	pid_t pid;

	conformance_spawn(&job, 1, &pid);
	return pid;
}

static void do_nothing(struct conformance_client *c, unsigned int index, void *arg)
{
	(void)c, (void)index, (void)arg;
}

static void send_three(struct conformance_client *c, unsigned int index, void *arg)
{
	struct conformance_message message = { .command = QUIET };

	(void)index, (void)arg;
	for (message.value = 0; message.value < 3; message.value++)
		child_check(fabric_send(c->ep, &message, sizeof(message)) == 0);
}

static void send_and_hang(struct conformance_client *c, unsigned int index, void *arg)
{
	send_three(c, index, arg);
	for (;;)
		conformance_sleep(1000000);
}

static void send_and_die(struct conformance_client *c, unsigned int index, void *arg)
{
	send_three(c, index, arg);
	conformance_end(0);
}

/* Adds without end to the word at 8. */
static void add_for_ever(struct conformance_client *c, unsigned int index, void *arg)
{
	(void)index, (void)arg;
	send_three(c, index, arg);
	for (;;)
		child_check(conformance_add(c, 8, 1, NULL) == 0);
}

static void expect_three(struct server *server, const struct fabric_endpoint *ep)
{
	struct conformance_message message;

	for (uint64_t i = 0; i < 3; i++) {
		assert_ptr_equal(expect(server, FABRIC_MESSAGE), ep);
		assert_int_equal(server->event.len_bytes, sizeof(message));
		memcpy(&message, server->event.message, sizeof(message));
		assert_int_equal(message.value, i);
	}
}

static void connected_messages_and_closed_come_in_this_order(void **state)
{
	SERVER;
	pid_t pid = client(server, send_three, NULL);
	struct fabric_endpoint *ep = admit(server);

	expect_three(server, ep);
	assert_ptr_equal(expect(server, FABRIC_CLOSED), ep);
	expect_nothing(server, 20);
	assert_int_equal(conformance_wait(pid, LONG_MS), 0);
	cut_and_close(server, ep);
	expect_nothing(server, 20);
}

static void what_a_peer_sent_before_it_died_comes_first(void **state)
{
	SERVER;
	pid_t pid = client(server, send_and_die, NULL);
	struct fabric_endpoint *ep = admit(server);

	assert_int_equal(conformance_wait(pid, LONG_MS), 0);
	expect_three(server, ep);
	assert_ptr_equal(expect(server, FABRIC_CLOSED), ep);
	cut_and_close(server, ep);
}

static void a_killed_peer_is_seen_within_a_second(void **state)
{
	SERVER;
	pid_t pid = client(server, send_and_hang, NULL);
	struct fabric_endpoint *ep = admit(server);
	unsigned char identity[FABRIC_IDENTITY_BYTES];
	uint64_t before_ns;

	expect_three(server, ep);
	fabric_identity(ep, identity);
	assert_false(fabric_peer_gone(server->listener, identity));
	before_ns = fabric_now(server->fabric);
	conformance_signal(pid, SIGKILL);
	assert_ptr_equal(expect(server, FABRIC_CLOSED), ep);
	assert_true(fabric_now(server->fabric) - before_ns < NS_PER_S);
	cut_and_close(server, ep);
	assert_int_equal(fabric_peer_gone(server->listener, identity), server->fabric->sees_deaths);
	assert_int_equal(conformance_wait(pid, LONG_MS), 128 + SIGKILL);
	assert_int_equal(fabric_peer_gone(server->listener, identity), server->fabric->sees_deaths);
}

static void after_cut_nothing_lands(void **state)
{
	SERVER;
	pid_t pid = client(server, add_for_ever, NULL);
	struct fabric_endpoint *ep = admit(server);
	const uint64_t *word = (uint64_t *)server->where.memory[WORDS].base + 1;
	uint64_t deadline_ns, seen;
	int ret;

	expect_three(server, ep);
	deadline_ns = fabric_now(server->fabric) + LONG_MS * NS_PER_MS;
	while (word_acquire(word) < 1000) {
		assert_true(fabric_now(server->fabric) < deadline_ns);
		conformance_sleep(10);
	}
	while ((ret = fabric_cut(ep)) == -EAGAIN) {
		assert_true(fabric_now(server->fabric) < deadline_ns);
		conformance_sleep(10);
	}
	seen = word_acquire(word);
	assert_ok(ret);
	conformance_sleep(20000);
	assert_int_equal(word_acquire(word), seen);
	assert_ok(fabric_cut(ep));
	fabric_endpoint_close(ep);
	assert_int_not_equal(conformance_wait(pid, LONG_MS), 0);
	expect_nothing(server, 20);
}

static void close_and_live_on(struct conformance_client *c, unsigned int index, void *arg)
{
	struct conformance_client again;
	struct conformance_message message = { .command = QUIET };

	(void)index, (void)arg;
	child_check(conformance_connect(((struct server *)arg)->where.address, &again) == 0);
	/* With its messages unread, too. */
	while (!fabric_send(again.ep, &message, sizeof(message)))
		;
	conformance_disconnect(&again);
	child_check(fabric_recv(c->ep, &message, sizeof(message), conformance_in(c, LONG_MS)) > 0);
}

static void cut_does_not_harm_a_peer_that_closed(void **state)
{
	SERVER;
	pid_t pid = client(server, close_and_live_on, server);
	struct fabric_endpoint *first = admit(server), *second = admit(server);
	const struct conformance_message message = { .command = ECHO };

	/* Its message queue is full when it closes; wait for that, then cut without looking at it. */
	conformance_sleep(100000);
	cut_and_close(server, second);
	assert_ok(fabric_send(first, &message, sizeof(message)));
	while (expect(server, FABRIC_CLOSED) != first)
		;
	cut_and_close(server, first);
	assert_int_equal(conformance_wait(pid, LONG_MS), 0);
}

static void many_peers_are_told_apart(void **state)
{
	SERVER;
	enum { PEERS = 20 };
	struct fabric_endpoint *eps[PEERS];
	const struct conformance_job job = { .server = &server->where, .body = send_three };
	unsigned int connected = 0, messages = 0, closed = 0;
	uint64_t deadline_ns = fabric_now(server->fabric) + LONG_MS * NS_PER_MS;
	pid_t pids[PEERS];

	conformance_spawn(&job, PEERS, pids);
	while (closed < PEERS) {
		const struct conformance_message hello = { .command = ECHO };
		struct fabric_endpoint *ep;

		assert_true(fabric_now(server->fabric) < deadline_ns);
		if (!fabric_next_event(server->listener, &server->event)) {
			assert_ok(fabric_wait(server->listener, deadline_ns));
			continue;
		}
		ep = server->event.endpoint;
		switch (server->event.kind) {
		case FABRIC_CONNECTED:
			assert_null(ep->user);
			ep->user = &eps[connected];
			eps[connected++] = ep;
			assert_ok(conformance_grant(ep, server->where.memory));
			assert_ok(fabric_send(ep, &hello, sizeof(hello)));
			break;
		case FABRIC_MESSAGE:
			assert_ptr_equal(*(struct fabric_endpoint **)ep->user, ep);
			messages++;
			break;
		default:
			assert_ptr_equal(*(struct fabric_endpoint **)ep->user, ep);
			closed++;
			cut_and_close(server, ep);
		}
	}
	assert_int_equal(messages, 3 * PEERS);
	conformance_join(PEERS, pids, LONG_MS);
}

static void a_region_is_granted_once_and_rights_are_needed(void **state)
{
	SERVER;
	pid_t pid = client(server, do_nothing, NULL);
	struct fabric_endpoint *ep = admit(server);
	const struct fabric_memory *memory = server->where.memory;

	assert_error(fabric_grant(ep, WORDS, &memory[WORDS], FABRIC_MAY_READ), EINVAL);
	assert_error(fabric_grant(ep, FABRIC_MAX_REGIONS, memory, FABRIC_MAY_READ), EINVAL);
	assert_error(fabric_grant(ep, MISSING, memory, 0), EINVAL);
	assert_ptr_equal(expect(server, FABRIC_CLOSED), ep);
	cut_and_close(server, ep);
	assert_int_equal(conformance_wait(pid, LONG_MS), 0);
}

static void wake_ends_a_wait_even_before_it_begins(void **state)
{
	SERVER;
	uint64_t before_ns = fabric_now(server->fabric),
		 far_ns = fabric_now(server->fabric) + 60 * NS_PER_S;

	fabric_wake(server->listener);
	assert_ok(fabric_wait(server->listener, far_ns));
	fabric_wake(server->listener);
	assert_int_equal(fabric_next_event(server->listener, &server->event), 0);
	assert_ok(fabric_wait(server->listener, far_ns));
	assert_true(fabric_now(server->fabric) - before_ns < 5 * NS_PER_S);
	before_ns = fabric_now(server->fabric);
	assert_ok(fabric_wait(server->listener, fabric_now(server->fabric) + 50 * NS_PER_MS));
	assert_true(fabric_now(server->fabric) - before_ns >= 49 * NS_PER_MS);
}

static void wait_for_the_server(struct conformance_client *c, unsigned int index, void *arg)
{
	uint64_t value;

	(void)index, (void)arg;
	child_check(conformance_add(c, 0, 1, NULL) == 0);
	child_check(fabric_wait_word(c->ep, WORDS, 8, 0, &value, conformance_in(c, LONG_MS)) == 0);
	child_check(value == 7);
}

static void loopback_reaches_the_servers_own_memory(void **state)
{
	SERVER;
	struct conformance_client self = { .fabric = server->fabric };
	pid_t pid = client(server, wait_for_the_server, NULL);
	struct fabric_endpoint *ep = admit(server);
	uint64_t value;

	assert_ok(fabric_loopback(server->listener, &self.ep));
	assert_error(conformance_add(&self, 8, 7, NULL), EACCES);
	assert_ok(conformance_grant(self.ep, server->where.memory));
	assert_ok(fabric_wait_word(self.ep, WORDS, 0, 0, &value, conformance_in(&self, LONG_MS)));
	assert_error(fabric_wait_word(self.ep, WORDS, 0, 1, &value, conformance_in(&self, 100)),
		     ETIMEDOUT);
	assert_ok(conformance_add(&self, 8, 7, &value));
	assert_int_equal(value, 0);
	assert_int_equal(((uint64_t *)server->where.memory[WORDS].base)[1], 7);
	assert_error(conformance_write(&self, PUBLISHED, 0, &value, 8), EACCES);
	assert_error(conformance_add(&self, REGION_BYTES, 1, NULL), ERANGE);
	assert_ok(fabric_check(self.ep));
	assert_ptr_equal(expect(server, FABRIC_CLOSED), ep);
	cut_and_close(server, ep);
	assert_int_equal(conformance_wait(pid, LONG_MS), 0);
	assert_ok(fabric_cut(self.ep));
	fabric_endpoint_close(self.ep);
}

static void an_address_has_one_listener(void **state)
{
	SERVER;
	struct fabric_listener *second;
	pid_t pid;
	struct fabric_endpoint *ep;

	assert_error(fabric_listen(server->fabric, server->where.address, &second), EADDRINUSE);
	assert_error(fabric_listen(server->fabric, "no address at all", &second), EINVAL);
	/* The first is none the worse. */
	pid = client(server, do_nothing, NULL);
	ep = admit(server);
	assert_ptr_equal(expect(server, FABRIC_CLOSED), ep);
	cut_and_close(server, ep);
	assert_int_equal(conformance_wait(pid, LONG_MS), 0);
}

#define AS_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

const struct CMUnitTest conformance_server_tests[] = {
	AS_SERVER(connected_messages_and_closed_come_in_this_order),
	AS_SERVER(what_a_peer_sent_before_it_died_comes_first),
	AS_SERVER(a_killed_peer_is_seen_within_a_second),
	AS_SERVER(after_cut_nothing_lands),
	AS_SERVER(cut_does_not_harm_a_peer_that_closed),
	AS_SERVER(many_peers_are_told_apart),
	AS_SERVER(a_region_is_granted_once_and_rights_are_needed),
	AS_SERVER(wake_ends_a_wait_even_before_it_begins),
	AS_SERVER(loopback_reaches_the_servers_own_memory),
	AS_SERVER(an_address_has_one_listener),
};
const size_t conformance_server_count = sizeof(conformance_server_tests) /
					sizeof(conformance_server_tests[0]);

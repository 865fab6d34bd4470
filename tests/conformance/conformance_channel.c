/* SPDX-License-Identifier: BSD-2-Clause */
/* Connecting, messages, closing: as a client sees them. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include <ramps/ramps.h>

#include "base/clock.h"
#include "base/error.h"
#include "conformance.h"

#define WORLD   struct conformance_world *world = *state
#define LONG_MS 20000

static void messages_come_whole_in_all_sizes(void **state)
{
	static const uint32_t sizes[] = { 4, 5, 32, 1000, FABRIC_MAX_MESSAGE_BYTES };
	static unsigned char to[FABRIC_MAX_MESSAGE_BYTES], from[FABRIC_MAX_MESSAGE_BYTES];
	WORLD;
	struct fabric_endpoint *ep = world->client.ep;
	const uint32_t echo = ECHO;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(to, (int)i + 1, sizeof(to));
		memcpy(to, &echo, sizeof(echo));
		assert_ok(fabric_send(ep, to, sizes[i]));
		assert_int_equal(fabric_recv(ep, from, sizeof(from),
					     conformance_in(&world->client, LONG_MS)),
				 sizes[i]);
		assert_memory_equal(to, from, sizes[i]);
	}
	assert_error(fabric_send(ep, to, 0), EINVAL);
	assert_error(fabric_send(ep, to, FABRIC_MAX_MESSAGE_BYTES + 1), EINVAL);
	assert_error(fabric_recv(ep, from, sizeof(from), 0), EAGAIN);
}

static void a_message_too_long_for_the_buffer_is_an_error(void **state)
{
	WORLD;
	struct conformance_message message = { .command = ECHO };

	assert_ok(fabric_send(world->client.ep, &message, sizeof(message)));
	assert_error(fabric_recv(world->client.ep, &message, 8, conformance_in(&world->client, LONG_MS)),
		     EMSGSIZE);
	assert_ok(conformance_ask(&world->client, &message));
}

static void receiving_waits_until_its_deadline(void **state)
{
	WORLD;
	struct conformance_message message;
	uint64_t before_ns = fabric_now(world->client.fabric), took_ns;

	assert_error(fabric_recv(world->client.ep, &message, sizeof(message),
				 conformance_in(&world->client, 60)),
		     EAGAIN);
	took_ns = fabric_now(world->client.fabric) - before_ns;
	assert_true(took_ns >= 60 * NS_PER_MS && took_ns < 1000 * NS_PER_MS);
}

static void messages_keep_their_order(void **state)
{
	WORLD;
	struct conformance_message message = { .command = FLOOD, .count = support_rounds(20000) };
	uint64_t count = message.count;

	assert_ok(fabric_send(world->client.ep, &message, sizeof(message)));
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(fabric_recv(world->client.ep, &message, sizeof(message),
					     conformance_in(&world->client, LONG_MS)),
				 sizeof(message));
		assert_int_equal(message.value, i);
	}
}

static void sending_to_a_server_that_takes_nothing_says_so_and_loses_nothing(void **state)
{
	WORLD;
	struct conformance_message message = { .command = QUIET };
	uint64_t sent = 0, deadline_ns;
	int ret;

	conformance_signal(world->server.pid, SIGSTOP);
	while (sent < 1000000 && !(ret = fabric_send(world->client.ep, &message, sizeof(message))))
		sent++;
	conformance_signal(world->server.pid, SIGCONT);
	assert_error(ret, EAGAIN);
	message.command = COUNT;
	deadline_ns = conformance_in(&world->client, LONG_MS);
	while ((ret = fabric_send(world->client.ep, &message, sizeof(message))) == -EAGAIN) {
		assert_true(fabric_now(world->client.fabric) < deadline_ns);
		conformance_sleep(10);
	}
	assert_ok(ret);
	assert_ok(fabric_recv(world->client.ep, &message, sizeof(message), deadline_ns));
	assert_int_equal(message.count, sent + 1);
}

static void nobody_there_is_said_at_once(void **state)
{
	WORLD;
	struct fabric_endpoint *ep;
	char address[256];
	uint64_t before_ns = fabric_now(world->client.fabric);

	conformance->address(address, sizeof(address));
	assert_error(fabric_connect(world->client.fabric, address,
				    conformance_in(&world->client, LONG_MS), &ep),
		     ECONNREFUSED);
	assert_true(fabric_now(world->client.fabric) - before_ns < 2 * NS_PER_S);
	base_end("fabric_connect", -ECONNREFUSED);
	assert_non_null(strstr(base_last_error()->text, address));
	assert_error(fabric_connect(world->client.fabric, "no address at all",
				    conformance_in(&world->client, LONG_MS), &ep),
		     EINVAL);
	conformance_kill(&world->server);
	assert_error(fabric_connect(world->client.fabric, world->server.address,
				    conformance_in(&world->client, LONG_MS), &ep),
		     ECONNREFUSED);
}

static void a_server_that_does_not_answer_times_out(void **state)
{
	WORLD;
	struct fabric_endpoint *ep;
	uint64_t before_ns = fabric_now(world->client.fabric);

	conformance_signal(world->server.pid, SIGSTOP);
	assert_error(fabric_connect(world->client.fabric, world->server.address,
				    conformance_in(&world->client, 200), &ep),
		     ETIMEDOUT);
	assert_true(fabric_now(world->client.fabric) - before_ns < 2 * NS_PER_S);
	conformance_signal(world->server.pid, SIGCONT);
}

static void the_death_of_the_server_ends_everything(void **state)
{
	WORLD;
	struct conformance_client *client = &world->client;
	struct conformance_message message = { .command = ECHO };
	uint64_t value = 0, deadline_ns;
	int ret = 0;

	conformance_kill(&world->server);
	assert_error(fabric_recv(client->ep, &message, sizeof(message), conformance_in(client, LONG_MS)),
		     ENOTCONN);
	assert_error(fabric_send(client->ep, &message, sizeof(message)), ENOTCONN);
	assert_error(fabric_check(client->ep), ENOTCONN);
	deadline_ns = conformance_in(client, conformance->death_ms);
	while (!ret && fabric_now(client->fabric) < deadline_ns)
		ret = conformance_read(client, WORDS, 0, &value, 8);
	assert_error(ret, ENOTCONN);
	assert_error(conformance_add(client, 0, 1, NULL), ENOTCONN);
}

/* Posting alone, with neither messages nor waits. */
static void who_only_posts_sees_the_death_of_the_server(void **state)
{
	WORLD;
	struct conformance_client *client = &world->client;
	uint64_t value = 0, deadline_ns;
	int ret = 0;

	assert_ok(fabric_check(client->ep));
	conformance_kill(&world->server);
	deadline_ns = conformance_in(client, conformance->death_ms);
	while (!ret && fabric_now(client->fabric) < deadline_ns)
		ret = conformance_read(client, WORDS, 0, &value, 8);
	assert_error(ret, ENOTCONN);
}

static void what_the_server_said_before_it_closed_is_still_heard(void **state)
{
	WORLD;
	struct conformance_message message = { .command = ECHO };

	assert_ok(fabric_send(world->client.ep, &message, sizeof(message)));
	message.command = SHUT;
	assert_ok(fabric_send(world->client.ep, &message, sizeof(message)));
	assert_ok(fabric_recv(world->client.ep, &message, sizeof(message),
			      conformance_in(&world->client, LONG_MS)));
	assert_int_equal(message.command, ECHO);
	assert_error(fabric_recv(world->client.ep, &message, sizeof(message),
				 conformance_in(&world->client, LONG_MS)),
		     ENOTCONN);
}

static void a_closed_client_can_connect_anew(void **state)
{
	WORLD;
	uint64_t old;

	for (uint64_t i = 0; i < 20; i++) {
		assert_ok(conformance_add(&world->client, 8, 1, &old));
		assert_int_equal(old, i);
		conformance_disconnect(&world->client);
		assert_ok(conformance_connect(world->server.address, &world->client));
	}
}

static void a_hundred_connections_leave_nothing_behind(void **state)
{
	WORLD;
	unsigned int descriptors = support_descriptors(), mappings = support_mappings();
	struct conformance_client client;

	for (int i = 0; i < 100; i++) {
		assert_ok(conformance_connect(world->server.address, &client));
		conformance_disconnect(&client);
	}
	assert_int_equal(support_descriptors(), descriptors);
	assert_int_equal(support_mappings(), mappings);
}

static void closing_completes_what_is_outstanding(void **state)
{
	WORLD;
	struct fabric_completion completion = { 0 };
	uint64_t old[8];

	for (int i = 0; i < 8; i++) {
		const struct fabric_op op = {
			.opcode = FABRIC_FETCH_ADD,
			.region = WORDS,
			.offset = 8,
			.operand = 1,
			.local = &old[i],
		};

		assert_ok(fabric_post(world->client.ep, &op, 1, &completion));
	}
	fabric_endpoint_close(world->client.ep);
	fabric_close(world->client.fabric);
	world->client.ep = NULL;
	assert_int_equal(completion.pending, 0);
	assert_true(completion.status == 0 || completion.status == -ENOTCONN);
}

#define WITH_SERVER(test) \
	cmocka_unit_test_setup_teardown(test, conformance_setup, conformance_teardown)

const struct CMUnitTest conformance_channel_tests[] = {
	WITH_SERVER(messages_come_whole_in_all_sizes),
	WITH_SERVER(a_message_too_long_for_the_buffer_is_an_error),
	WITH_SERVER(receiving_waits_until_its_deadline),
	WITH_SERVER(messages_keep_their_order),
	WITH_SERVER(sending_to_a_server_that_takes_nothing_says_so_and_loses_nothing),
	WITH_SERVER(nobody_there_is_said_at_once),
	WITH_SERVER(a_server_that_does_not_answer_times_out),
	WITH_SERVER(the_death_of_the_server_ends_everything),
	WITH_SERVER(who_only_posts_sees_the_death_of_the_server),
	WITH_SERVER(what_the_server_said_before_it_closed_is_still_heard),
	WITH_SERVER(a_closed_client_can_connect_anew),
	WITH_SERVER(a_hundred_connections_leave_nothing_behind),
	WITH_SERVER(closing_completes_what_is_outstanding),
};
const size_t conformance_channel_count = sizeof(conformance_channel_tests) /
					 sizeof(conformance_channel_tests[0]);

/* SPDX-License-Identifier: BSD-2-Clause */
#include "conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/word.h"

#define SOON_MS   10000
#define MAX_PEERS 64

const struct conformance_fabric *conformance;

static const uint32_t rights_of[REGIONS] = {
	[WORDS] = FABRIC_MAY_READ | FABRIC_MAY_ATOMIC,
	[PUBLISHED] = FABRIC_MAY_READ,
	[SLOTS] = FABRIC_MAY_WRITE,
	[SHARED] = FABRIC_MAY_READ | FABRIC_MAY_WRITE,
	[RAGGED] = FABRIC_MAY_READ | FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC,
};

void conformance_allocate(struct fabric_memory memory[REGIONS])
{
	for (int i = 0; i < REGIONS; i++)
		assert_ok(conformance->allocate(&memory[i], i == RAGGED ? RAGGED_BYTES : REGION_BYTES));
}

void conformance_release(struct fabric_memory memory[REGIONS])
{
	for (int i = 0; i < REGIONS; i++)
		conformance->release(&memory[i]);
}

int conformance_grant(struct fabric_endpoint *ep, const struct fabric_memory memory[REGIONS])
{
	for (uint32_t i = 0; i < REGIONS; i++) {
		int ret = fabric_grant(ep, i, &memory[i], rights_of[i]);

		if (ret)
			return ret;
	}
	return 0;
}

/*
 * Processes
 */

static pid_t fork_one(void (*body)(void *arg), const void *arg, size_t arg_bytes)
{
	(void)arg_bytes; /* a child has all that its parent had */
	return support_spawn(body, (void *)(uintptr_t)arg);
}

static void signal_one(pid_t pid, int signal)
{
	kill(pid, signal);
}

static void sleep_for(unsigned int duration_us)
{
	usleep(duration_us);
}

static const struct conformance_processes forked = {
	.spawn = fork_one,
	.join = support_join,
	.signal = signal_one,
	.sleep = sleep_for,
	.end = _exit,
};

static const struct conformance_processes *processes(void)
{
	return conformance->processes ? conformance->processes : &forked;
}

pid_t conformance_fork(void (*body)(void *arg), const void *arg, size_t arg_bytes)
{
	pid_t pid = processes()->spawn(body, arg, arg_bytes);

	assert_true(pid > 0);
	return pid;
}

int conformance_wait(pid_t pid, int timeout_ms)
{
	return processes()->join(pid, timeout_ms);
}

void conformance_signal(pid_t pid, int signal)
{
	processes()->signal(pid, signal);
}

void conformance_sleep(unsigned int duration_us)
{
	processes()->sleep(duration_us);
}

_Noreturn void conformance_end(int status)
{
	processes()->end(status);
	_exit(status);
}

/*
 * The serving child
 */

static void shut(struct fabric_endpoint *ep)
{
	/* A peer that closed is cut at once, one that is being killed soon; the test's deadline watches. */
	while (fabric_cut(ep) == -EAGAIN)
		conformance_sleep(1000);
	fabric_endpoint_close(ep);
}

static void flood(struct fabric_endpoint *ep, uint64_t count)
{
	struct conformance_message message = { .command = FLOOD };

	for (; message.value < count; message.value++) {
		int ret;

		while ((ret = fabric_send(ep, &message, sizeof(message))) == -EAGAIN)
			conformance_sleep(100);
		if (ret)
			return;
	}
}

static void obey(struct fabric_listener *l, struct fabric_event *event,
		 struct fabric_memory memory[REGIONS])
{
	struct fabric_endpoint *ep = event->endpoint;
	struct conformance_message message = { 0 };
	uint64_t *count = ep->user;

	memcpy(&message, event->message,
	       event->len_bytes < sizeof(message) ? event->len_bytes : sizeof(message));
	++*count;
	switch (message.command) {
	case ECHO:
		fabric_send(ep, event->message, event->len_bytes);
		return;
	case STORE:
		word_publish((uint64_t *)((char *)memory[message.region].base + message.offset),
			     message.value);
		fabric_notify(l, message.region, message.offset);
		break;
	case FLOOD:
		flood(ep, message.count);
		return;
	case SHUT:
		free(ep->user);
		fabric_endpoint_close(ep);
		return;
	case QUIET:
		return;
	default:
		message.count = *count;
	}
	fabric_send(ep, &message, sizeof(message));
}

struct serving {
	struct conformance_server *server;
	int ready; /* a pipe's end */
};

static void serve(void *arg)
{
	struct serving *serving = arg;
	struct fabric_memory *memory = serving->server->memory;
	struct fabric_event event;
	const struct conformance_message hello = { .command = ECHO };
	struct fabric_listener *l;
	struct fabric *fabric;

	child_check(conformance->open(&fabric) == 0);
	for (int i = 0; i < REGIONS; i++)
		child_check(fabric_register(fabric, &memory[i]) == 0);
	child_check(fabric_listen(fabric, serving->server->address, &l) == 0);
	child_check(write(serving->ready, l->address, sizeof(l->address)) > 0);
	for (;;) {
		while (fabric_next_event(l, &event) == 1) {
			switch (event.kind) {
			case FABRIC_CONNECTED:
				event.endpoint->user = calloc(1, sizeof(uint64_t));
				child_check(conformance_grant(event.endpoint, memory) == 0);
				child_check(fabric_send(event.endpoint, &hello, sizeof(hello)) == 0);
				break;
			case FABRIC_MESSAGE:
				obey(l, &event, memory);
				break;
			default:
				free(event.endpoint->user);
				shut(event.endpoint);
			}
		}
		child_check(fabric_wait(l, BASE_FOREVER) == 0);
	}
}

void conformance_start(struct conformance_server *server)
{
	struct serving serving = { .server = server };
	int waits = SOON_MS;
	ssize_t length;
	int ends[2];

	conformance_allocate(server->memory);
	conformance->address(server->address, sizeof(server->address));
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	serving.ready = ends[1];
	server->pid = conformance_fork(serve, &serving, sizeof(serving));
	while ((length = read(ends[0], server->address, sizeof(server->address))) < 0 && --waits)
		conformance_sleep(1000);
	assert_int_equal(length, sizeof(server->address));
	close(ends[1]);
	close(ends[0]);
}

void conformance_kill(struct conformance_server *server)
{
	if (server->pid > 0) {
		conformance_signal(server->pid, SIGKILL);
		conformance_wait(server->pid, SOON_MS);
	}
	server->pid = 0;
}

/* A killed server leaves its place behind; the next one to listen there takes it over and cleans up. */
void conformance_stop(struct conformance_server *server)
{
	struct fabric_listener *l;
	struct fabric *fabric;

	conformance_kill(server);
	assert_ok(conformance->open(&fabric));
	if (fabric_listen(fabric, server->address, &l) == 0)
		fabric_listener_close(l);
	fabric_close(fabric);
	conformance_release(server->memory);
}

/*
 * Clients
 */

uint64_t conformance_in(const struct conformance_client *client, int timeout_ms)
{
	return base_deadline(fabric_now(client->fabric), timeout_ms);
}

int conformance_connect(const char *address, struct conformance_client *client)
{
	struct conformance_message hello;
	int ret;

	*client = (struct conformance_client){ 0 };
	ret = conformance->open(&client->fabric);
	if (ret)
		return ret;
	ret = fabric_connect(client->fabric, address, conformance_in(client, SOON_MS), &client->ep);
	if (ret)
		goto close_fabric;
	ret = fabric_recv(client->ep, &hello, sizeof(hello), conformance_in(client, SOON_MS));
	if (ret < 0)
		goto close_endpoint;
	return 0;
close_endpoint:
	fabric_endpoint_close(client->ep);
close_fabric:
	fabric_close(client->fabric);
	return ret;
}

void conformance_disconnect(struct conformance_client *client)
{
	fabric_endpoint_close(client->ep);
	fabric_close(client->fabric);
}

int conformance_do(struct conformance_client *client, const struct fabric_op *op)
{
	return fabric_execute(client->ep, op, 1, &client->completion, conformance_in(client, SOON_MS));
}

int conformance_read(struct conformance_client *client, uint32_t region, uint64_t offset, void *to,
		     uint64_t len_bytes)
{
	const struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = (uint16_t)region,
		.offset = offset,
		.len_bytes = len_bytes,
		.local = to,
	};

	return conformance_do(client, &op);
}

int conformance_write(struct conformance_client *client, uint32_t region, uint64_t offset,
		      const void *from, uint64_t len_bytes)
{
	const struct fabric_op op = {
		.opcode = FABRIC_WRITE,
		.region = (uint16_t)region,
		.offset = offset,
		.len_bytes = len_bytes,
		.local = (void *)(uintptr_t)from,
	};

	return conformance_do(client, &op);
}

int conformance_add(struct conformance_client *client, uint64_t offset, uint64_t addend, uint64_t *old)
{
	const struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.flags = FABRIC_WAITABLE,
		.region = WORDS,
		.offset = offset,
		.operand = addend,
		.local = old,
	};

	return conformance_do(client, &op);
}

int conformance_swap(struct conformance_client *client, uint64_t offset, uint64_t compare,
		     uint64_t value, uint64_t *old)
{
	const struct fabric_op op = {
		.opcode = FABRIC_COMPARE_SWAP,
		.flags = FABRIC_WAITABLE,
		.region = WORDS,
		.offset = offset,
		.operand = value,
		.compare = compare,
		.local = old,
	};

	return conformance_do(client, &op);
}

int conformance_ask(struct conformance_client *client, struct conformance_message *message)
{
	int ret = fabric_send(client->ep, message, sizeof(*message));

	if (!ret)
		ret = fabric_recv(client->ep, message, sizeof(*message), conformance_in(client, SOON_MS));
	return ret < 0 ? ret : 0;
}

struct child {
	struct conformance_job job;
	unsigned int index;
};

static void run_client(void *arg)
{
	const struct child *child = arg;
	struct conformance_client client;

	child_check(conformance_connect(child->job.server->address, &client) == 0);
	child->job.body(&client, child->index, child->job.arg);
	conformance_disconnect(&client);
}

void conformance_spawn(const struct conformance_job *job, unsigned int n, pid_t *pids)
{
	for (unsigned int i = 0; i < n; i++) {
		struct child child = { .job = *job, .index = i };

		pids[i] = conformance_fork(run_client, &child, sizeof(child));
	}
}

void conformance_join(unsigned int n, const pid_t *pids, int timeout_ms)
{
	unsigned int failed = 0;

	for (unsigned int i = 0; i < n; i++)
		failed += conformance_wait(pids[i], timeout_ms) != 0;
	assert_int_equal(failed, 0);
}

int conformance_setup(void **state)
{
	struct conformance_world *world = calloc(1, sizeof(*world));

	if (!world)
		return -1;
	conformance_start(&world->server);
	assert_ok(conformance_connect(world->server.address, &world->client));
	*state = world;
	return 0;
}

int conformance_teardown(void **state)
{
	struct conformance_world *world = *state;

	if (world->client.ep)
		conformance_disconnect(&world->client);
	conformance_stop(&world->server);
	free(world);
	return 0;
}

int conformance_run(const struct conformance_fabric *fabric)
{
	static const struct {
		const char *name;
		const struct CMUnitTest *tests;
		const size_t *count;
	} parts[] = {
		{ "operations", conformance_ops_tests, &conformance_ops_count },
		{ "order", conformance_order_tests, &conformance_order_count },
		{ "waiting", conformance_wait_tests, &conformance_wait_count },
		{ "channel", conformance_channel_tests, &conformance_channel_count },
		{ "server", conformance_server_tests, &conformance_server_count },
	};
	int failed = 0;

	conformance = fabric;
	support_end_child = conformance_end;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s: %s", fabric->name, parts[i].name);
		failed += _cmocka_run_group_tests(name, parts[i].tests, *parts[i].count,
						  support_shm_setup, support_shm_teardown);
	}
	return failed;
}

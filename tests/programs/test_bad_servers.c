/* SPDX-License-Identifier: BSD-2-Clause */
/* Joining where no server is, another than was meant, one of another version, or something that is no server. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/message.h"
#include "programs/bad_support.h"
#include "shm/shm.h"

#include <cmocka.h>

#define SHORT_MS 200

static int join_within(const char *servers, const char *name, int timeout_ms, struct ramps_worker **worker)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;

	options.servers = servers;
	options.job = name;
	options.rank = 0;
	options.workers = 2;
	options.timeout_ms = timeout_ms;
	return ramps_worker_join(&options, worker);
}

static void no_server_is_told_when_the_time_is_up(void **state)
{
	const char *address = bad_address();
	struct ramps_worker *worker;
	int64_t start = bad_now_ms();

	(void)state;
	must_fail(join_within(address, NULL, 0, &worker), ECONNREFUSED, address);
	must(bad_now_ms() - start < bad_soon_ms());
	start = bad_now_ms();
	must_fail(join_within(address, NULL, SHORT_MS, &worker), ECONNREFUSED, address);
	must(bad_now_ms() - start >= SHORT_MS - 1);
	must(bad_now_ms() - start < SHORT_MS + bad_soon_ms());
	assert_string_equal(ramps_last_error()->peer, address);
}

static void the_missing_one_of_two_servers_is_named(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	const char *there = bad_address(), *missing = bad_address();
	struct ramps_worker *worker;
	struct bad_server server;
	char both[128];

	(void)state;
	options.address = there;
	bad_server_start(&server, &options);
	snprintf(both, sizeof(both), "%s,%s", there, missing);
	must_fail(join_within(both, NULL, SHORT_MS, &worker), ECONNREFUSED, missing);
	/* the half that was joined does not stand in the way */
	must_fail(join_within(both, NULL, SHORT_MS, &worker), ECONNREFUSED, missing);
	bad_server_stop(&server);
}

static void a_server_that_starts_late_is_waited_for(void **state)
{
	const char *address = bad_address();
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_worker *worker;
	struct bad_server server;
	pid_t pid;
	int status;

	(void)state;
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(join_within(address, NULL, 20000, &worker) ? 1 : 0);
	options.address = address;
	bad_server_start(&server, &options);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	bad_server_stop(&server);
}

static void a_server_of_another_job_is_refused(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_worker *worker;
	struct bad_server server;

	(void)state;
	options.address = bad_address();
	options.job = "mine";
	bad_server_start(&server, &options);
	must_fail(join_within(options.address, "yours", 5000, &worker), EPROTO, "mine|yours");
	must_fail(join_within(options.address, NULL, 5000, &worker), EPROTO, "mine|default");
	assert_string_equal(ramps_last_error()->peer, options.address);
	must_work(join_within(options.address, "mine", 5000, &worker));
	ramps_worker_close(worker);
	bad_server_stop(&server);
}

static void another_order_or_number_of_servers_is_refused(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	const char *first = bad_address(), *second = bad_address();
	struct ramps_worker *worker, *other;
	struct bad_server servers[2];
	char both[128], swapped[128];

	(void)state;
	options.address = first;
	bad_server_start(&servers[0], &options);
	options.address = second;
	bad_server_start(&servers[1], &options);
	snprintf(both, sizeof(both), "%s,%s", first, second);
	snprintf(swapped, sizeof(swapped), "%s,%s", second, first);
	must_work(bad_join(both, 0, 2, &worker));
	must_fail(bad_join(swapped, 1, 2, &other), EPROTO, "server|order");
	must_fail(bad_join(first, 1, 2, &other), EPROTO, "server|1");
	must_fail(bad_join(second, 1, 2, &other), EPROTO, "server|1");
	must_work(bad_join(both, 1, 2, &other));
	ramps_worker_close(other);
	ramps_worker_close(worker);
	bad_server_stop(&servers[0]);
	bad_server_stop(&servers[1]);
}

static void wrong_lists_of_servers_are_refused(void **state)
{
	static const char *const lists[] = {
		"shm://a,",
		",shm://a",
		"shm://a,,shm://b",
		"shm://a,shm://a",
		"shm://a shm://b",
		"shm://a,tcp:b",
		"embed",
		"shm://a,embed:",
		"shm://",
		"tcp://host:1",
		"/dev/shm/a",
		",",
		"shm://a;shm://b\n",
	};
	struct ramps_worker *worker;
	char many[65 * 16] = "", *at = many;

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		must_fail(join_within(lists[i], NULL, 0, &worker), EINVAL, "");
	for (int i = 0; i < 65; i++)
		at += snprintf(at, 16, "%sshm://s%d", i ? "," : "", i);
	must_fail(join_within(many, NULL, 0, &worker), EINVAL, "64");
}

/* What is no server: says something to whoever asks, or nothing. */

enum answer {
	ANSWER_NOTHING,
	ANSWER_OTHER_VERSION,
	ANSWER_OTHER_MAGIC,
	ANSWER_SHORT,
	ANSWER_RUBBISH,
	ANSWER_BARE_ADMISSION, /* that it is in, without any memory granted */
	ANSWER_ENDLESS_TEXT,
	ANSWER_CLOSE,
	ANSWERS,
};

static void answer(struct fabric_endpoint *ep, enum answer how)
{
	struct core_reply reply = {
		.magic = CORE_MESSAGE_MAGIC,
		.version = CORE_VERSION,
		.layout_hash = core_layout_hash(),
		.incarnation = 1,
	};
	uint32_t length = sizeof(reply);

	if (how == ANSWER_OTHER_VERSION) {
		reply.version = 77;
		reply.status = -EPROTONOSUPPORT;
		snprintf(reply.text, sizeof(reply.text),
			 "the server is of version 77, the worker of %u", CORE_VERSION);
	} else if (how == ANSWER_OTHER_MAGIC) {
		reply.magic ^= 1;
	} else if (how == ANSWER_SHORT) {
		length = 9;
	} else if (how == ANSWER_RUBBISH) {
		memset(&reply, 0xa5, sizeof(reply));
	} else if (how == ANSWER_ENDLESS_TEXT) {
		reply.status = -EPROTO;
		memset(reply.text, 'x', sizeof(reply.text));
	}
	must_work(fabric_send(ep, &reply, length));
}

struct impostor {
	const char *address;
	enum answer how;
	int ready, hold;
};

static void impersonate(void *arg)
{
	const struct impostor *impostor = arg;
	struct fabric_listener *listener;
	struct fabric_event event;
	struct fabric *fabric;
	char byte = 0;

	must_work(shm_open_fabric(&fabric));
	must_work(fabric_listen(fabric, impostor->address, &listener));
	must(write(impostor->ready, &byte, 1) == 1);
	for (;;) {
		must_work(fabric_wait(listener, fabric_now(fabric) + NS_PER_S));
		while (fabric_next_event(listener, &event) == 1) {
			if (event.kind == FABRIC_MESSAGE && impostor->how == ANSWER_CLOSE)
				_exit(0);
			if (event.kind == FABRIC_MESSAGE && impostor->how != ANSWER_NOTHING)
				answer(event.endpoint, impostor->how);
			if (event.kind == FABRIC_CLOSED) {
				fabric_endpoint_close(event.endpoint);
				fabric_listener_close(listener);
				fabric_close(fabric);
				_exit(0);
			}
		}
	}
}

/* Joins an impostor and returns what that gave. */
static int join_impostor(enum answer how, int timeout_ms, const char **address)
{
	struct impostor impostor = { .address = bad_address(), .how = how };
	struct ramps_worker *worker;
	int ready[2], ret, status;
	char byte;
	pid_t pid;

	*address = impostor.address;
	assert_int_equal(pipe(ready), 0);
	impostor.ready = ready[1];
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		impersonate(&impostor);
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	ret = join_within(impostor.address, NULL, timeout_ms, &worker);
	close(ready[0]);
	close(ready[1]);
	if (ret == 0)
		ramps_worker_close(worker);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return ret;
}

#define join(how, timeout_ms) join_impostor(how, timeout_ms, &address)

static void a_server_that_does_not_answer_is_given_up_in_time(void **state)
{
	const int64_t start = bad_now_ms();
	const char *address;
	int ret = join(ANSWER_NOTHING, SHORT_MS);

	(void)state;
	assert_int_equal(ret, -ETIMEDOUT);
	assert_non_null(strstr(ramps_last_error()->text, address));
	must(bad_now_ms() - start < SHORT_MS + bad_soon_ms());
}

static void a_server_of_another_version_is_refused_and_both_are_named(void **state)
{
	const char *address;

	(void)state;
	assert_int_equal(join(ANSWER_OTHER_VERSION, 5000), -EPROTONOSUPPORT);
	assert_non_null(strstr(ramps_last_error()->text, "77"));
	assert_string_equal(ramps_last_error()->peer, address);
}

static void what_answers_as_no_server_does_is_refused(void **state)
{
	static const struct {
		enum answer how;
		int wanted;
	} cases[] = {
		{ ANSWER_OTHER_MAGIC, -EPROTONOSUPPORT },
		{ ANSWER_SHORT, -EPROTONOSUPPORT },
		{ ANSWER_RUBBISH, -EPROTONOSUPPORT },
		{ ANSWER_ENDLESS_TEXT, -EPROTO },
	};
	const char *address;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(join(cases[i].how, 5000), cases[i].wanted);
		assert_int_equal(ramps_last_error()->code, -cases[i].wanted);
		assert_null(strchr(ramps_last_error()->text, '\n'));
		assert_string_equal(ramps_last_error()->peer, address);
	}
	assert_true(join(ANSWER_BARE_ADMISSION, 5000) < 0);
	assert_string_not_equal(ramps_last_error()->text, "");
	assert_int_equal(join(ANSWER_CLOSE, 500), -ENOTCONN);
}

/* A worker of another version, as the server sees it. */

struct asked {
	uint32_t version, layout_hash;
	struct core_reply reply;
};

static void ask(const char *address, struct asked *asked)
{
	struct core_request request = {
		.magic = CORE_MESSAGE_MAGIC,
		.kind = CORE_JOIN,
		.version = asked->version,
		.layout_hash = asked->layout_hash,
		.job = "default",
		.workers = 2,
		.shards = 1,
	};
	struct fabric_endpoint *ep;
	struct fabric *fabric;
	uint64_t deadline_ns;

	must_work(shm_open_fabric(&fabric));
	deadline_ns = fabric_now(fabric) + 5 * NS_PER_S;
	must_work(fabric_connect(fabric, address, deadline_ns, &ep));
	must_work(fabric_send(ep, &request, sizeof(request)));
	must(fabric_recv(ep, &asked->reply, sizeof(asked->reply), deadline_ns) == sizeof(asked->reply));
	fabric_endpoint_close(ep);
	fabric_close(fabric);
}

static void a_worker_of_another_version_is_refused_and_both_are_named(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct asked version = { 42, core_layout_hash(), { 0 } };
	struct asked layout = { CORE_VERSION, ~core_layout_hash(), { 0 } };
	struct ramps_worker *worker;
	struct bad_server server;
	char hash[16];

	(void)state;
	options.address = bad_address();
	bad_server_start(&server, &options);
	ask(options.address, &version);
	assert_int_equal(version.reply.status, -EPROTONOSUPPORT);
	assert_non_null(strstr(version.reply.text, "42"));
	assert_non_null(strstr(version.reply.text, "version 2"));
	ask(options.address, &layout);
	assert_int_equal(layout.reply.status, -EPROTONOSUPPORT);
	snprintf(hash, sizeof(hash), "%08x", core_layout_hash());
	assert_non_null(strstr(layout.reply.text, hash));
	snprintf(hash, sizeof(hash), "%08x", ~core_layout_hash());
	assert_non_null(strstr(layout.reply.text, hash));
	must_work(bad_join(options.address, 0, 2, &worker));
	ramps_worker_close(worker);
	bad_server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_server_is_told_when_the_time_is_up),
		cmocka_unit_test(the_missing_one_of_two_servers_is_named),
		cmocka_unit_test(a_server_that_starts_late_is_waited_for),
		cmocka_unit_test(a_server_of_another_job_is_refused),
		cmocka_unit_test(another_order_or_number_of_servers_is_refused),
		cmocka_unit_test(wrong_lists_of_servers_are_refused),
		cmocka_unit_test(a_server_that_does_not_answer_is_given_up_in_time),
		cmocka_unit_test(a_server_of_another_version_is_refused_and_both_are_named),
		cmocka_unit_test(what_answers_as_no_server_does_is_refused),
		cmocka_unit_test(a_worker_of_another_version_is_refused_and_both_are_named),
	};

	return cmocka_run_group_tests(tests, bad_setup, bad_teardown);
}

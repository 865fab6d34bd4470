/* SPDX-License-Identifier: BSD-2-Clause */
/* A server in a thread of this process that loses what it can't do without. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <ramps/ramps.h>

#include "shm/shm.h"
#include "support/support.h"

/* The server's epoll descriptor, the only one of this process. */
static int find_epoll(void)
{
	for (int fd = 3; fd < 1000; fd++) {
		char path[64], to[64];
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, to, sizeof(to) - 1);
		if (length < 0)
			continue;
		to[length] = '\0';
		if (strstr(to, "eventpoll"))
			return fd;
	}
	return -1;
}

/* Something for the server to wake up for; whether it then has given up. */
static bool has_given_up(void *arg)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;

	options.servers = "shm://gives-up";
	options.rank = 0;
	options.workers = 1;
	options.timeout_ms = 10;
	if (!ramps_worker_join(&options, &worker))
		ramps_worker_close(worker);
	return ramps_server_check(arg) < 0;
}

static void server_that_cannot_go_on_says_so_and_keeps_its_arena(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct ramps_server *server;
	char directory[256];
	struct stat arena;
	int epoll;

	(void)state;
	options.address = "shm://gives-up";
	assert_ok(ramps_server_start(&options, &server));
	assert_ok(ramps_server_check(server));
	assert_ok(shm_directory(options.address, directory, sizeof(directory)));
	epoll = find_epoll();
	assert_true(epoll >= 0);
	/* Another file in its place: every look for events fails. */
	assert_int_equal(dup2(STDIN_FILENO, epoll), epoll);
	assert_true(support_wait(has_given_up, server, 20000));
	assert_non_null(strstr(ramps_last_error()->text, "can't go on"));
	ramps_server_stop(server);
	assert_int_equal(stat(directory, &arena), 0);

	options.fresh = 1;
	assert_ok(ramps_server_start(&options, &server));
	ramps_server_stop(server);
	assert_int_equal(stat(directory, &arena), -1);
}

static void check_of_no_server_is_refused(void **state)
{
	(void)state;
	assert_error(ramps_server_check(NULL), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(server_that_cannot_go_on_says_so_and_keeps_its_arena),
		cmocka_unit_test(check_of_no_server_is_refused),
	};

	return cmocka_run_group_tests(tests, support_shm_setup, support_shm_teardown);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* A shared-memory server's place: directory, socket, bells; who may have it and who may come in. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "conformance_shm.h"
#include "shm/shm_private.h"

#define LONG_MS 20000

struct place {
	struct fabric *fabric;
	struct fabric_listener *listener;
	char address[SHM_ADDRESS_BYTES], directory[512];
	struct fabric_event event;
};

static int setup(void **state)
{
	struct place *place;

	if (support_shm_setup(state))
		return -1;
	place = calloc(1, sizeof(*place));
	if (!place)
		return -1;
	support_shm_address(place->address, sizeof(place->address));
	assert_ok(shm_directory(place->address, place->directory, sizeof(place->directory)));
	assert_ok(shm_open_fabric(&place->fabric));
	*state = place;
	return 0;
}

static int teardown(void **state)
{
	struct place *place = *state;

	if (place->listener)
		fabric_listener_close(place->listener);
	fabric_close(place->fabric);
	free(place);
	return support_shm_teardown(state);
}

static void start(struct place *place)
{
	assert_ok(fabric_listen(place->fabric, place->address, &place->listener));
}

/* Takes events for so long, or until one came. */
static int event_within(struct place *place, int timeout_ms)
{
	uint64_t deadline_ns = base_deadline(base_now_ns(), timeout_ms);

	do {
		if (fabric_next_event(place->listener, &place->event))
			return 1;
		fabric_wait(place->listener, deadline_ns);
	} while (base_now_ns() < deadline_ns);
	return fabric_next_event(place->listener, &place->event);
}

static void connect_and_leave(void *arg)
{
	const struct place *place = arg;
	struct fabric_endpoint *ep;
	struct fabric *fabric;

	child_check(shm_open_fabric(&fabric) == 0);
	child_check(fabric_connect(fabric, place->address, base_deadline(base_now_ns(), LONG_MS),
				   &ep) == 0);
	fabric_endpoint_close(ep);
	fabric_close(fabric);
}

/* One that keeps to the rules is let in and noticed leaving. */
static void serves_an_honest_client(struct place *place)
{
	pid_t pid = support_spawn(connect_and_leave, place);

	assert_int_equal(event_within(place, LONG_MS), 1);
	assert_int_equal(place->event.kind, FABRIC_CONNECTED);
	assert_int_equal(event_within(place, LONG_MS), 1);
	assert_int_equal(place->event.kind, FABRIC_CLOSED);
	assert_ok(fabric_cut(place->event.endpoint));
	fabric_endpoint_close(place->event.endpoint);
	assert_int_equal(support_join(pid, LONG_MS), 0);
}

static void the_place_is_private_and_goes_with_its_server(void **state)
{
	struct place *place = *state;
	char path[600];
	struct stat file;

	start(place);
	assert_string_equal(place->listener->address, place->address);
	assert_int_equal(stat(place->directory, &file), 0);
	assert_int_equal(file.st_mode & 0777, 0700);
	snprintf(path, sizeof(path), "%s/socket", place->directory);
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_mode & 0777, 0600);
	fabric_listener_close(place->listener);
	place->listener = NULL;
	assert_int_equal(stat(place->directory, &file), -1);
}

static void other_files_in_the_directory_stay(void **state)
{
	struct place *place = *state;
	char path[600];

	assert_int_equal(mkdir(place->directory, 0700), 0);
	snprintf(path, sizeof(path), "%s/words", place->directory);
	close(creat(path, 0600));
	start(place);
	fabric_listener_close(place->listener);
	place->listener = NULL;
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(place->directory), 0);
}

static void listen_and_hang(void *arg)
{
	struct place *place = arg;

	child_check(fabric_listen(place->fabric, place->address, &place->listener) == 0);
	raise(SIGKILL);
}

static void a_dead_servers_place_is_taken_over(void **state)
{
	struct place *place = *state;
	char path[600];
	struct stat before, after;

	assert_int_equal(support_join(support_spawn(listen_and_hang, place), LONG_MS), 128 + SIGKILL);
	snprintf(path, sizeof(path), "%s/bells", place->directory);
	assert_int_equal(stat(path, &before), 0);
	start(place);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino); /* its clients may still ring them */
	serves_an_honest_client(place);
}

static void race_to_listen(void *arg)
{
	struct place *place = arg;
	int ret = fabric_listen(place->fabric, place->address, &place->listener);
	char byte;

	child_check(ret == 0 || ret == -EADDRINUSE);
	if (ret)
		_exit(7);
	/* Holds the place until all have tried. */
	child_check(read(place->event.kind ? (int)place->event.kind : -1, &byte, 1) == 0);
	fabric_listener_close(place->listener);
}

static void of_many_who_listen_at_once_one_has_it(void **state)
{
	enum { RACERS = 6 };
	struct place *place = *state;
	pid_t pids[RACERS];
	int ends[2], status;

	alarm(LONG_MS / 1000); /* two that won would wait for each other */
	for (unsigned int round = 0; round < support_rounds(40); round++) {
		assert_int_equal(pipe(ends), 0);
		place->event.kind = (uint32_t)ends[0];
		fcntl(ends[1], F_SETFD, FD_CLOEXEC);
		for (int i = 0; i < RACERS; i++) {
			pids[i] = fork();
			if (!pids[i]) {
				close(ends[1]);
				race_to_listen(place);
				_exit(0);
			}
		}
		close(ends[0]);
		/* The losers end; the winner does when the pipe closes. */
		for (int i = 0; i < RACERS - 1; i++)
			assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		close(ends[1]);
		assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	alarm(0);
}

static void what_is_not_our_directory_is_refused(void **state)
{
	struct place *place = *state;
	struct fabric_endpoint *ep;
	char elsewhere[600];

	snprintf(elsewhere, sizeof(elsewhere), "%s.real", place->directory);
	assert_int_equal(mkdir(elsewhere, 0700), 0);
	assert_int_equal(symlink(elsewhere, place->directory), 0);
	assert_error(fabric_listen(place->fabric, place->address, &place->listener), EACCES);
	assert_error(fabric_connect(place->fabric, place->address, 0, &ep), EACCES);
	assert_int_equal(unlink(place->directory), 0);
	assert_int_equal(rename(elsewhere, place->directory), 0);
	assert_int_equal(chmod(place->directory, 0777), 0);
	assert_error(fabric_listen(place->fabric, place->address, &place->listener), EACCES);
	if (geteuid() == 0) {
		assert_int_equal(chmod(place->directory, 0700), 0);
		assert_int_equal(chown(place->directory, 12345, 12345), 0);
		assert_error(fabric_listen(place->fabric, place->address, &place->listener), EACCES);
		assert_error(fabric_connect(place->fabric, place->address, 0, &ep), EACCES);
	}
	assert_int_equal(rmdir(place->directory), 0);
	close(creat(place->directory, 0600));
	assert_error(fabric_listen(place->fabric, place->address, &place->listener), EACCES);
	assert_int_equal(unlink(place->directory), 0);
	place->listener = NULL;
}

static void names_and_directories_may_be_long(void **state)
{
	struct place *place = *state;
	char name[80], deep[400], *top = strdup(getenv("RAMPS_SHM_DIR"));
	char path[SHM_PATH_BYTES];

	strcpy(name, "shm://");
	memset(name + 6, 'x', 63);
	name[6 + 63] = '\0';
	name[20] = '/';
	snprintf(deep, sizeof(deep), "%s/%0150d", top, 1);
	assert_int_equal(mkdir(deep, 0700), 0);
	setenv("RAMPS_SHM_DIR", deep, 1);
	assert_ok(shm_directory(name, path, sizeof(path)));
	assert_non_null(strchr(path, '+'));
	strcpy(place->address, name);
	start(place);
	serves_an_honest_client(place);
	fabric_listener_close(place->listener);
	place->listener = NULL;
	setenv("RAMPS_SHM_DIR", top, 1);
	assert_int_equal(rmdir(deep), 0);
	assert_error(shm_directory(name, path, 50), ENAMETOOLONG);
	strcat(name, "x");
	assert_error(shm_directory(name, path, sizeof(path)), EINVAL);
	assert_error(shm_directory("shm://", path, sizeof(path)), EINVAL);
	assert_error(shm_directory("shm://../x", path, sizeof(path)), EINVAL);
	assert_error(shm_directory("verbs://x:1", path, sizeof(path)), EINVAL);
	assert_error(shm_directory(NULL, path, sizeof(path)), EINVAL);
	setenv("RAMPS_SHM_DIR", "/dev/shm/ramps-test.is/not/there", 1);
	assert_error(fabric_listen(place->fabric, place->address, &place->listener), EADDRNOTAVAIL);
	setenv("RAMPS_SHM_DIR", top, 1);
	free(top);
}

static int raw_socket(const struct place *place)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(where.sun_path, sizeof(where.sun_path), "%.90s/socket", place->directory);
	assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
	return fd;
}

static void strangers_bring_no_events(void **state)
{
	struct place *place = *state;
	struct shm_frame frame = { .kind = SHM_HELLO, .fds = { -1, -1 } };
	unsigned int descriptors;
	pid_t sleeper;
	int fd;

	start(place);
	serves_an_honest_client(place);
	descriptors = support_descriptors();
	fd = raw_socket(place); /* rubbish */
	assert_true(write(fd, "GET / HTTP/1.0\r\n\r\n and more than a frame", 40) > 0);
	assert_int_equal(event_within(place, 50), 0);
	close(fd);
	fd = raw_socket(place); /* a hello without a descriptor */
	assert_ok(shm_send_frame(fd, &frame, NULL));
	assert_int_equal(event_within(place, 50), 0);
	close(fd);
	fd = raw_socket(place); /* something else first */
	frame.kind = SHM_MESSAGE;
	frame.payload_bytes = 4;
	assert_ok(shm_send_frame(fd, &frame, "abcd"));
	assert_int_equal(event_within(place, 50), 0);
	close(fd);
	sleeper = fork(); /* the descriptor of a process that it would have killed */
	if (!sleeper) {
		pause();
		_exit(0);
	}
	fd = raw_socket(place);
	frame = (struct shm_frame){ .kind = SHM_HELLO, .fds = { shm_pidfd_open(sleeper), -1 } };
	assert_ok(shm_send_frame(fd, &frame, NULL));
	close(frame.fds[0]);
	assert_int_equal(event_within(place, 50), 0);
	close(fd);
	assert_int_equal(kill(sleeper, SIGKILL), 0);
	assert_int_equal(support_join(sleeper, LONG_MS), 128 + SIGKILL);
	assert_int_equal(event_within(place, 10), 0);
	assert_int_equal(support_descriptors(), descriptors);
	serves_an_honest_client(place);
}

static void the_silent_can_not_keep_others_out(void **state)
{
	enum { SILENT = SHM_MAX_UNPROVEN + 40 };
	struct place *place = *state;
	unsigned int descriptors;
	static int fds[SILENT];

	start(place);
	serves_an_honest_client(place);
	descriptors = support_descriptors();
	for (int i = 0; i < SILENT; i++)
		fds[i] = raw_socket(place);
	assert_int_equal(event_within(place, 50), 0);
	assert_true(support_descriptors() <= descriptors + SILENT + SHM_MAX_UNPROVEN);
	serves_an_honest_client(place);
	assert_int_equal(event_within(place, (int)(SHM_UNPROVEN_NS / NS_PER_MS) + 500), 0);
	assert_int_equal(support_descriptors(), descriptors + SILENT); /* the server's ends are gone */
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
}

static void out_of_descriptors_is_said_on_both_sides(void **state)
{
	struct place *place = *state;
	struct rlimit before, low;
	struct fabric_endpoint *ep;
	struct pollfd fd = { .events = POLLIN };
	char byte;

	start(place);
	serves_an_honest_client(place);
	fd.fd = raw_socket(place);
	getrlimit(RLIMIT_NOFILE, &before);
	low = before;
	low.rlim_cur = (rlim_t)dup(0); /* the lowest that is free */
	close((int)low.rlim_cur);
	setrlimit(RLIMIT_NOFILE, &low);
	assert_error(fabric_connect(place->fabric, place->address,
				    base_deadline(base_now_ns(), LONG_MS), &ep),
		     EMFILE);
	/* The server turns it away, and does not go round in circles. */
	assert_int_equal(event_within(place, 50), 0);
	assert_int_equal(poll(&fd, 1, 1000), 1);
	assert_int_equal(read(fd.fd, &byte, 1), 0);
	setrlimit(RLIMIT_NOFILE, &before);
	close(fd.fd);
	serves_an_honest_client(place);
}

static void another_version_is_named(void **state)
{
	struct place *place = *state;
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	struct fabric_endpoint *ep;
	int fd, peer, status;
	pid_t pid;

	assert_int_equal(mkdir(place->directory, 0700), 0);
	snprintf(where.sun_path, sizeof(where.sun_path), "%.90s/socket", place->directory);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&where, sizeof(where)), 0);
	assert_int_equal(listen(fd, 1), 0);
	pid = fork();
	if (!pid) {
		const uint16_t welcome[12] = { 0x7372, 0x6d68, SHM_WELCOME, SHM_VERSION + 1 };

		peer = accept(fd, NULL, NULL);
		child_check(write(peer, welcome, sizeof(welcome)) > 0);
		pause();
	}
	assert_error(fabric_connect(place->fabric, place->address,
				    base_deadline(base_now_ns(), LONG_MS), &ep),
		     EPROTONOSUPPORT);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fd);
	assert_int_equal(unlink(where.sun_path), 0);
	assert_int_equal(rmdir(place->directory), 0);
}

#define PLACE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACE(the_place_is_private_and_goes_with_its_server),
		PLACE(other_files_in_the_directory_stay),
		PLACE(a_dead_servers_place_is_taken_over),
		PLACE(of_many_who_listen_at_once_one_has_it),
		PLACE(what_is_not_our_directory_is_refused),
		PLACE(names_and_directories_may_be_long),
		PLACE(strangers_bring_no_events),
		PLACE(the_silent_can_not_keep_others_out),
		PLACE(out_of_descriptors_is_said_on_both_sides),
		PLACE(another_version_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

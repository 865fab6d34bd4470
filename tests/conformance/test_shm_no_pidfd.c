/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/*
 * The fabric over shared memory where the kernel knows no pidfds: here a filter says so. It passes
 * the suite, and still sees a death that the socket does not tell.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "conformance_shm.h"
#include "shm/shm_private.h"

#define LONG_MS 20000

/* From here on, in this process and its children. */
static int forbid_pidfds(int code)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

struct place {
	struct fabric *fabric;
	struct fabric_listener *listener;
	char address[SHM_ADDRESS_BYTES];
	struct fabric_event event;
	int hold[2];
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
	assert_ok(shm_open_fabric(&place->fabric));
	assert_ok(fabric_listen(place->fabric, place->address, &place->listener));
	assert_int_equal(pipe(place->hold), 0);
	*state = place;
	return 0;
}

static int teardown(void **state)
{
	struct place *place = *state;

	close(place->hold[0]);
	close(place->hold[1]);
	fabric_listener_close(place->listener);
	fabric_close(place->fabric);
	free(place);
	return support_shm_teardown(state);
}

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

/* Connects; a child of its own then has all its descriptors until the test closes the pipe. */
static void connect_and_die(void *arg)
{
	struct place *place = arg;
	struct fabric_endpoint *ep;
	struct fabric *fabric;
	char byte;

	child_check(shm_open_fabric(&fabric) == 0);
	child_check(fabric_connect(fabric, place->address, base_deadline(base_now_ns(), LONG_MS),
				   &ep) == 0);
	child_check(fabric_send(ep, "last words", 10) == 0);
	if (!fork()) {
		close(place->hold[1]);
		_exit(read(place->hold[0], &byte, 1) ? 1 : 0);
	}
	raise(SIGKILL);
}

static void a_death_is_seen_though_a_child_holds_the_socket(void **state)
{
	struct place *place = *state;
	pid_t pid = support_spawn(connect_and_die, place);
	uint64_t died_ns;

	assert_int_equal(event_within(place, LONG_MS), 1);
	assert_int_equal(place->event.kind, FABRIC_CONNECTED);
	assert_int_equal(support_join(pid, LONG_MS), 128 + SIGKILL);
	died_ns = base_now_ns();
	assert_int_equal(event_within(place, LONG_MS), 1);
	assert_int_equal(place->event.kind, FABRIC_MESSAGE);
	assert_int_equal(event_within(place, LONG_MS), 1);
	assert_int_equal(place->event.kind, FABRIC_CLOSED);
	assert_true(base_now_ns() - died_ns < NS_PER_S);
	assert_ok(fabric_cut(place->event.endpoint));
	fabric_endpoint_close(place->event.endpoint);
}

static void serve_and_die(void *arg)
{
	struct place *place = arg;
	char byte;

	child_check(fabric_listen(place->fabric, place->address, &place->listener) == 0);
	child_check(write(place->hold[1], "s", 1) == 1);
	child_check(event_within(place, LONG_MS) == 1);
	if (!fork()) {
		close(place->hold[1]);
		_exit(read(place->hold[0], &byte, 1) ? 1 : 0);
	}
	raise(SIGKILL);
}

static bool is_free(void *arg)
{
	struct place *place = arg;

	return fabric_listen(place->fabric, place->address, &place->listener) == 0;
}

static void a_servers_death_ends_the_wait_for_its_message(void **state)
{
	struct place *place = *state, other = *place;
	char byte, message[FABRIC_MAX_MESSAGE_BYTES];
	struct fabric_endpoint *ep;
	struct fabric *fabric;
	uint64_t started_ns;
	pid_t pid;

	support_shm_address(other.address, sizeof(other.address));
	pid = support_spawn(serve_and_die, &other);
	assert_int_equal(read(place->hold[0], &byte, 1), 1);
	assert_ok(shm_open_fabric(&fabric));
	assert_ok(fabric_connect(fabric, other.address, base_deadline(base_now_ns(), LONG_MS), &ep));
	started_ns = base_now_ns();
	assert_error(fabric_recv(ep, message, sizeof(message), base_deadline(started_ns, LONG_MS)),
		     ENOTCONN);
	assert_true(base_now_ns() - started_ns < 2 * NS_PER_S);
	assert_error(fabric_check(ep), ENOTCONN);
	fabric_endpoint_close(ep);
	fabric_close(fabric);
	assert_int_equal(support_join(pid, LONG_MS), 128 + SIGKILL);
	/* Its child has its place still; then what it left is tidied up. */
	close(place->hold[1]);
	place->hold[1] = -1;
	assert_true(support_wait(is_free, &other, LONG_MS));
	fabric_listener_close(other.listener);
}

static void hello_with(struct place *place, const char *path)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	struct shm_frame frame = { .kind = SHM_HELLO, .fds = { -1, -1 } };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char directory[80];

	assert_ok(shm_directory(place->address, directory, sizeof(directory)));
	snprintf(where.sun_path, sizeof(where.sun_path), "%s/socket", directory);
	assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
	frame.fds[0] = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(frame.fds[0] >= 0);
	assert_ok(shm_send_frame(fd, &frame, NULL));
	close(frame.fds[0]);
	assert_int_equal(event_within(place, 50), 0);
	close(fd);
}

static void only_ones_own_directory_is_a_hello(void **state)
{
	struct place *place = *state;

	hello_with(place, "/proc/1");
	hello_with(place, "/proc");
	hello_with(place, "/tmp");
}

static void processes_that_end_and_their_numbers(void **state)
{
	unsigned char identity[FABRIC_IDENTITY_BYTES];
	struct place *place = *state;
	int pidfd, status;
	pid_t pid = fork();

	if (!pid)
		for (;;)
			pause();
	shm_identify(pid, identity);
	pidfd = shm_pidfd_open(pid);
	assert_true(pidfd >= 0 && shm_pidfd_silent(pidfd));
	assert_int_equal(shm_pidfd_pid(pidfd), pid);
	assert_false(shm_pidfd_ended(pidfd));
	assert_false(shm_peer_gone(place->listener, identity));
	assert_int_equal(shm_pidfd_kill(pidfd, pid), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	assert_true(shm_pidfd_ended(pidfd)); /* a zombie */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(shm_pidfd_ended(pidfd)); /* nothing */
	assert_true(shm_peer_gone(place->listener, identity));
	assert_int_equal(shm_pidfd_kill(pidfd, pid), -1);
	assert_int_equal(errno, ESRCH);
	assert_int_equal(shm_pidfd_pid(pidfd), -1);
	close(pidfd);
	assert_int_equal(shm_pidfd_open(pid), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_death_is_seen_though_a_child_holds_the_socket,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_servers_death_ends_the_wait_for_its_message,
						setup, teardown),
		cmocka_unit_test_setup_teardown(only_ones_own_directory_is_a_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(processes_that_end_and_their_numbers, setup, teardown),
	};

	if (forbid_pidfds(getenv("QUICK") ? EPERM : ENOSYS)) {
		print_error("no filter for system calls: %s\n", strerror(errno));
		return 1;
	}
	return cmocka_run_group_tests_name("no pidfds", tests, NULL, NULL) +
	       conformance_run(&conformance_shm);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* Control messages that no worker would send, from connected peers: the server goes on serving the others. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "programs/bad_peer.h"
#include "programs/bad_support.h"
#include "shm/shm_private.h"

#include <cmocka.h>

#define MESSAGES   20000u
#define CHILDREN   10u
#define FUZZ_RANK  6u
#define OTHER_RANK 5u
#define FIELDS     (offsetof(struct core_request, group) / 4)

static struct bad_job job;

static int begin(void **state)
{
	int ret = bad_setup(state);

	if (!ret)
		bad_job_begin(&job);
	return ret;
}

static int end(void **state)
{
	bad_job_end(&job);
	return bad_teardown(state);
}

/* The answers are of no interest. */
static void drain(struct bad_peer *peer, uint64_t wait_ns)
{
	unsigned char reply[FABRIC_MAX_MESSAGE_BYTES];
	uint64_t deadline_ns = wait_ns ? fabric_now(peer->fabric) + wait_ns : 0;

	while (fabric_recv(peer->ep, reply, sizeof(reply), deadline_ns) > 0)
		;
}

static void say(struct bad_peer *peer, const void *message, size_t length)
{
	int ret;

	while ((ret = fabric_send(peer->ep, message, (uint32_t)length)) == -EAGAIN)
		drain(peer, NS_PER_MS);
	must_work(ret);
}

/* Whatever was asked before, the server has got through it and answers this one: nobody else has this version. */
static void still_answers(struct bad_peer *peer)
{
	static uint32_t version = 1000000;
	const int64_t deadline = bad_now_ms() + 10000;
	struct core_request request;
	struct core_reply reply;
	char words[32];
	int ret;

	bad_peer_request(&request, CORE_JOIN);
	request.version = ++version;
	snprintf(words, sizeof(words), "version %u", version);
	do {
		say(peer, &request, sizeof(request));
		do {
			ret = fabric_recv(peer->ep, &reply, sizeof(reply),
					  fabric_now(peer->fabric) + 200 * NS_PER_MS);
			must(ret >= 0 || ret == -EAGAIN);
		} while (ret >= 0 && !strstr(reply.text, words));
		must(bad_now_ms() < deadline);
	} while (ret < 0); /* it had no room for the answer */
}

/* Something well-formed to begin with; names are of a few, so that some objects are found. */
static void draw_request(struct core_request *request, const struct bad_peer *peer, uint64_t *random)
{
	static const char *const names[] = { "plain", "counts", "grad", "fuzz/a", "fuzz/b" };
	uint64_t draw = bad_random(random);

	bad_peer_request(request, 1 + (uint32_t)(draw % 6));
	request->rank = FUZZ_RANK;
	request->how = (draw >> 8) % 2;
	request->incarnation = peer->incarnation;
	request->arena_id = peer->header.arena_id;
	request->entry.kind = 1 + (uint32_t)((draw >> 16) % 3);
	request->entry.index = (uint32_t)((draw >> 24) % 4);
	strcpy(request->entry.name, names[(draw >> 32) % 5]);
	if (request->entry.kind == CORE_TABLE)
		request->entry.table = (struct core_table){
			.rows = BAD_ROWS,
			.dim = BAD_DIM,
			.type = 1 + (uint32_t)((draw >> 40) % 2),
			.mode = 1 + (uint32_t)((draw >> 41) % 2),
			.fraction_bits = 32,
			.rate = 0.01f,
		};
	else if (request->entry.kind == CORE_BARRIER)
		request->entry.barrier = (struct core_barrier){ .members = 2, .fan_in = 32 };
	else
		request->entry.clock.members = BAD_WORKERS;
	request->group[0] = 1u << FUZZ_RANK | 1;
}

static uint32_t draw_value(uint64_t *random)
{
	static const uint32_t values[] = {
		0, 1, 2, 64, 1u << 16, INT32_MAX, 1u << 31, UINT32_MAX - 1, UINT32_MAX,
	};
	uint64_t draw = bad_random(random);

	return draw % 10 < 9 ? values[draw % 10] : (uint32_t)(draw >> 32);
}

/* Makes one message that is wrong in some way; its length. */
static size_t draw_message(unsigned char *message, const struct bad_peer *peer, uint64_t *random)
{
	struct core_request request;
	uint64_t how = bad_random(random);
	size_t length = sizeof(request);

	draw_request(&request, peer, random);
	memset(message, 0, FABRIC_MAX_MESSAGE_BYTES);
	memcpy(message, &request, sizeof(request));
	switch (how % 5) {
	case 0: /* nothing but noise, half of it with the right beginning */
		length = 1 + (how >> 8) % FABRIC_MAX_MESSAGE_BYTES;
		for (size_t i = (how >> 32) % 2 ? 8 : 0; i < length; i++)
			message[i] = (unsigned char)(bad_random(random) >> 32);
		break;
	case 1: /* too short */
		length = 1 + (how >> 8) % sizeof(request);
		break;
	case 2: /* too long */
		length = sizeof(request) + (how >> 8) % (FABRIC_MAX_MESSAGE_BYTES - sizeof(request) + 1);
		break;
	case 3: /* bits flipped */
		for (uint64_t n = 1 + (how >> 8) % 8; n; n--) {
			uint64_t bit = bad_random(random) % (8 * sizeof(request));

			message[bit / 8] ^= (unsigned char)(1u << bit % 8);
		}
		break;
	default: /* fields changed */
		for (uint64_t n = 1 + (how >> 8) % 3; n; n--) {
			uint32_t value = draw_value(random);

			memcpy(message + bad_random(random) % (sizeof(request) / 4) * 4, &value, 4);
		}
	}
	return length;
}

static void send_noise(void *arg)
{
	uint32_t child = *(uint32_t *)arg;
	uint64_t random = 0x9e3779b97f4a7c15ull * (child + 1);
	unsigned char message[FABRIC_MAX_MESSAGE_BYTES];
	struct bad_peer peer;

	for (uint32_t i = 0, n = bad_rounds(MESSAGES) / CHILDREN; i < n; i++) {
		if (i % 500 == 0) {
			bad_peer_open(&peer, job.address);
			if ((i / 500 + child) % 2)
				bad_peer_join(&peer, FUZZ_RANK);
		}
		say(&peer, message, draw_message(message, &peer, &random));
		drain(&peer, 0);
		if (i % 500 == 499 || i + 1 == n) {
			still_answers(&peer);
			bad_peer_close(&peer);
		}
	}
}

static void random_messages_harm_nobody(void **state)
{
	(void)state;
	for (uint32_t child = 0; child < CHILDREN; child++) {
		bad_child(send_noise, &child);
		bad_job_check(&job);
	}
}

static void send_every_field(void *arg)
{
	uint32_t kind = *(uint32_t *)arg;
	static const uint32_t values[] = { 0, 1, INT32_MAX, 1u << 31, UINT32_MAX };
	uint64_t random = kind + 1;
	struct core_request request;
	struct bad_peer peer;

	bad_peer_open(&peer, job.address);
	bad_peer_join(&peer, FUZZ_RANK);
	for (size_t field = 2; field < FIELDS; field++) {
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			draw_request(&request, &peer, &random);
			request.kind = kind;
			memcpy((char *)&request + 4 * field, &values[i], 4);
			say(&peer, &request, sizeof(request));
			drain(&peer, 0);
		}
	}
	still_answers(&peer);
	bad_peer_close(&peer);
}

static void every_field_with_every_extreme_harms_nobody(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind <= CORE_WAKE + 1; kind++) {
		bad_child(send_every_field, &kind);
		bad_job_check(&job);
	}
}

static void send_before_joining(void *unused)
{
	struct core_request request;
	struct core_reply reply;
	struct bad_peer peer;

	(void)unused;
	bad_peer_open(&peer, job.address);
	for (uint32_t kind = CORE_LEAVE; kind <= CORE_SET_READY; kind++) {
		bad_peer_request(&request, kind);
		request.rank = 0;
		request.entry.kind = CORE_TABLE;
		strcpy(request.entry.name, "plain");
		must(bad_peer_ask(&peer, &request, &reply) == -EPROTO);
		must(strcmp(reply.text, "join first") == 0);
		must(reply.entry.name[0] == '\0');
	}
	bad_peer_request(&request, CORE_JOIN);
	request.how = 2;
	request.rank = FUZZ_RANK;
	must(bad_peer_ask(&peer, &request, &reply) == -EPROTO);
	request.how = CORE_JOIN_AGAIN;
	must(bad_peer_ask(&peer, &request, &reply) == -ESTALE);
	bad_peer_close(&peer);
}

static void who_has_not_joined_is_given_nothing(void **state)
{
	(void)state;
	bad_child(send_before_joining, NULL);
	bad_job_check(&job);
}

static void declare_ready(void *unused)
{
	struct core_request request;
	struct core_reply reply;
	struct bad_peer maker, other;
	uint32_t index;

	(void)unused;
	bad_peer_open(&maker, job.address);
	bad_peer_join(&maker, FUZZ_RANK);
	bad_peer_open(&other, job.address);
	bad_peer_join(&other, OTHER_RANK);
	bad_peer_request(&request, CORE_CREATE);
	request.entry.kind = CORE_TABLE;
	strcpy(request.entry.name, "half-made");
	request.entry.table = (struct core_table){
		.rows = 1,
		.dim = 1,
		.type = RAMPS_INT64,
		.mode = RAMPS_DIRECT,
	};
	must_work(bad_peer_ask(&maker, &request, &reply));
	index = reply.entry.index;
	request.kind = CORE_SET_READY;
	request.entry.index = index;
	must(bad_peer_ask(&other, &request, &reply) < 0);
	request.kind = CORE_LOOKUP;
	must_work(bad_peer_ask(&other, &request, &reply));
	must(reply.entry.state == CORE_PREPARING);
	request.kind = CORE_SET_READY;
	request.entry.index = 4711;
	must(bad_peer_ask(&maker, &request, &reply) == -EINVAL);
	request.entry.index = index;
	must_work(bad_peer_ask(&maker, &request, &reply));
	bad_peer_close(&other);
	bad_peer_close(&maker);
}

static void only_its_creator_says_that_a_table_is_ready(void **state)
{
	(void)state;
	bad_child(declare_ready, NULL);
	bad_job_check(&job);
}

/* Below the messages: frames, and what is no frame. */

static int connect_bare(const char *address)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	must(fd >= 0);
	snprintf(where.sun_path, sizeof(where.sun_path), "%.80s/socket", bad_directory(address));
	must(connect(fd, (struct sockaddr *)&where, sizeof(where)) == 0);
	return fd;
}

static void send_frames(void *arg)
{
	uint64_t random = *(uint32_t *)arg + 99;

	for (uint32_t i = 0, n = bad_rounds(500); i < n; i++) {
		int fd = connect_bare(job.address);

		for (uint64_t count = 1 + bad_random(&random) % 4; count; count--) {
			unsigned char noise[5000];
			uint64_t draw = bad_random(&random);
			struct shm_frame frame = {
				.kind = (uint16_t)(draw % 7),
				.region = draw_value(&random),
				.rights = draw_value(&random),
				.len_bytes = bad_random(&random),
				.fds = { draw & 1 ? fd : -1, draw & 3 ? -1 : fd },
				.payload_bytes = (uint32_t)((draw >> 8) % sizeof(noise)),
			};

			for (size_t at = 0; at < sizeof(noise); at++)
				noise[at] = (unsigned char)(bad_random(&random) >> 32);
			if ((draw >> 32) % 4 == 0)
				send(fd, noise, (size_t)(draw >> 40) % sizeof(noise),
				     MSG_NOSIGNAL | MSG_DONTWAIT);
			else
				shm_send_frame(fd, &frame, noise);
		}
		close(fd);
	}
}

static void frames_that_are_none_harm_nobody(void **state)
{
	(void)state;
	for (uint32_t child = 0; child < 4; child++) {
		bad_child(send_frames, &child);
		bad_job_check(&job);
	}
}

/* Says who it is, takes nothing, and goes without a word: nothing has to be taken away from it. */
static void greet_and_go(void *unused)
{
	struct shm_frame hello = { .kind = SHM_HELLO, .fds = { -1, -1 } };
	struct ramps_worker *worker;
	char welcome[64];

	(void)unused;
	for (int i = 0; i < 20; i++) {
		int fd = connect_bare(job.address);

		hello.fds[0] = shm_pidfd_open(getpid());
		must(hello.fds[0] >= 0);
		must(shm_send_frame(fd, &hello, NULL) == 0);
		must(read(fd, welcome, sizeof(welcome)) > 0);
		close(hello.fds[0]);
		close(fd);
	}
	must_work(bad_join(job.address, FUZZ_RANK, BAD_WORKERS, &worker));
	must_work(ramps_worker_leave(worker, 5000));
	ramps_worker_close(worker);
}

static void a_client_that_goes_before_it_has_joined_is_not_killed(void **state)
{
	(void)state;
	bad_child(greet_and_go, NULL);
	bad_job_check(&job);
}

static void hold_connections(void *address)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker *worker;
	int fds[400];

	for (int i = 0; i < 400; i++)
		fds[i] = connect_bare(address);
	options.servers = address;
	options.rank = 0;
	options.workers = 2;
	options.timeout_ms = 2000; /* the silent ones are put out after five seconds */
	must_work(ramps_worker_join(&options, &worker));
	must_work(ramps_worker_leave(worker, 5000));
	ramps_worker_close(worker);
	for (int i = 0; i < 400; i++)
		close(fds[i]);
}

static void connections_that_say_nothing_keep_nobody_out(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct rlimit plenty, few;
	struct bad_server server;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &plenty), 0);
	few = plenty;
	few.rlim_cur = 350;
	options.address = bad_address();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	bad_server_start(&server, &options);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &plenty), 0);
	bad_child(hold_connections, (void *)(uintptr_t)options.address);
	bad_server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_messages_harm_nobody),
		cmocka_unit_test(every_field_with_every_extreme_harms_nobody),
		cmocka_unit_test(who_has_not_joined_is_given_nothing),
		cmocka_unit_test(only_its_creator_says_that_a_table_is_ready),
		cmocka_unit_test(frames_that_are_none_harm_nobody),
		cmocka_unit_test(a_client_that_goes_before_it_has_joined_is_not_killed),
		cmocka_unit_test(connections_that_say_nothing_keep_nobody_out),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

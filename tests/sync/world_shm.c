/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm/shm.h"
#include "sync/world.h"

#include <cmocka.h>

#define CONNECT_NS (20 * WORLD_S)

static struct fabric_listener *to_wake;
static char address[64];
static uint32_t connected;

static void on_chld(int signal_number)
{
	(void)signal_number;
	if (to_wake)
		fabric_wake(to_wake);
}

static void grant(struct world *w, struct fabric_endpoint *ep)
{
	assert_int_equal(fabric_grant(ep, CORE_WORDS, &w->words, FABRIC_MAY_READ | FABRIC_MAY_ATOMIC), 0);
	assert_int_equal(fabric_grant(ep, CORE_PUBLISHED, &w->published, FABRIC_MAY_READ), 0);
}

void world_shm_open(struct world *w)
{
	struct sigaction action = { .sa_handler = on_chld };
	static uint32_t count;
	struct fabric_endpoint *ep;
	sigset_t chld;

	snprintf(w->directory, sizeof(w->directory), "/dev/shm/ramps-test.XXXXXX");
	assert_non_null(mkdtemp(w->directory));
	setenv("RAMPS_SHM_DIR", w->directory, 1);
	snprintf(address, sizeof(address), "shm://sync-%d-%u", (int)getpid(), count++);
	assert_int_equal(shm_open_fabric(&w->fabric), 0);
	assert_int_equal(fabric_register(w->fabric, &w->words), 0);
	assert_int_equal(fabric_register(w->fabric, &w->published), 0);
	assert_int_equal(fabric_listen(w->fabric, address, &w->listener), 0);
	assert_int_equal(fabric_loopback(w->listener, &ep), 0);
	grant(w, ep);
	world_peer_init(w, w->fabric, ep, &w->server);
	to_wake = w->listener;
	sigaction(SIGCHLD, &action, NULL);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &chld, NULL);
}

static void take_events(struct world *w)
{
	static struct fabric_event event;

	while (fabric_next_event(w->listener, &event) > 0) {
		if (event.kind == FABRIC_CONNECTED) {
			connected++;
			grant(w, event.endpoint);
			assert_int_equal(fabric_send(event.endpoint, "go", 2), 0);
		} else if (event.kind == FABRIC_CLOSED) {
			fabric_cut(event.endpoint);
			fabric_endpoint_close(event.endpoint);
			connected--;
		}
	}
}

void world_shm_serve(struct world *w, uint64_t deadline_ns)
{
	take_events(w);
	assert_int_equal(fabric_wait(w->listener, deadline_ns), 0);
	take_events(w);
}

/* In a child: what it inherited stays untouched. */
void world_shm_connect(struct world *w, struct sync_peer *peer)
{
	struct fabric_endpoint *ep;
	struct fabric *fabric;
	char go[8];

	to_wake = NULL;
	CHECK_EQ(w, shm_open_fabric(&fabric), 0);
	CHECK_EQ(w, fabric_connect(fabric, address, base_now_ns() + CONNECT_NS, &ep), 0);
	CHECK_EQ(w, fabric_recv(ep, go, sizeof(go), base_now_ns() + CONNECT_NS), 2);
	world_peer_init(w, fabric, ep, peer);
}

void world_shm_close(struct world *w)
{
	uint64_t deadline_ns = base_now_ns() + 10 * WORLD_S;
	char command[128];

	while (connected && base_now_ns() < deadline_ns)
		world_shm_serve(w, deadline_ns);
	assert_int_equal(connected, 0);
	to_wake = NULL;
	signal(SIGCHLD, SIG_DFL);
	fabric_endpoint_close(w->server.ep);
	fabric_listener_close(w->listener);
	fabric_unregister(w->fabric, &w->published);
	fabric_unregister(w->fabric, &w->words);
	fabric_close(w->fabric);
	unsetenv("RAMPS_SHM_DIR");
	snprintf(command, sizeof(command), "rm -rf %s", w->directory);
	assert_int_equal(system(command), 0);
}

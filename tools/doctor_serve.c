/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps doctor --serve: memory that belongs to no job, for the operations of ramps doctor --connect. Each
 * peer has its own, so that several at a time do not disturb each other.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

#include <ramps/ramps.h>

#include "api/api.h"
#include "base/clock.h"
#include "cli.h"
#include "core/message.h"

#define MAX_PEERS    256u
#define CUT_RETRY_NS (10 * NS_PER_MS)

struct peer {
	LIST_ENTRY(peer) list;
	struct fabric_endpoint *ep;
	struct fabric_memory words, data;
	bool looked, closing;
};

LIST_HEAD(peers, peer);

struct serve {
	struct fabric *fabric;
	struct fabric_listener *listener;
	struct peers peers;
	uint32_t count, closing;
	struct fabric_event event;
};

static struct fabric_listener *to_wake;
static volatile sig_atomic_t stop;

static void end(int number)
{
	(void)number;
	stop = 1;
	if (to_wake)
		fabric_wake(to_wake);
}

static int memory_make(struct serve *serve, struct fabric_memory *memory, uint64_t len_bytes)
{
	int ret;

	memory->len_bytes = len_bytes;
	memory->fd = memfd_create("ramps-doctor", MFD_CLOEXEC);
	if (memory->fd < 0)
		return -errno;
	ret = -posix_fallocate(memory->fd, 0, (off_t)len_bytes);
	if (ret)
		goto fail_close;
	memory->base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	if (memory->base == MAP_FAILED) {
		ret = -errno;
		goto fail_close;
	}
	ret = fabric_register(serve->fabric, memory);
	if (ret)
		goto fail_unmap;
	return 0;
fail_unmap:
	munmap(memory->base, len_bytes);
fail_close:
	close(memory->fd);
	memory->base = NULL;
	return ret;
}

static void memory_drop(struct serve *serve, struct fabric_memory *memory)
{
	if (!memory->base)
		return;
	fabric_unregister(serve->fabric, memory);
	munmap(memory->base, memory->len_bytes);
	close(memory->fd);
}

static void connected(struct serve *serve, struct fabric_endpoint *ep)
{
	struct peer *peer;

	if (serve->count == MAX_PEERS) {
		fabric_endpoint_close(ep);
		return;
	}
	peer = cli_alloc(1, sizeof(*peer));
	peer->ep = ep;
	ep->user = peer;
	LIST_INSERT_HEAD(&serve->peers, peer, list);
	serve->count++;
}

/* The endpoint goes before the memory that it may use. */
static void peer_end(struct serve *serve, struct peer *peer)
{
	if (fabric_cut(peer->ep) == -EAGAIN) {
		serve->closing += !peer->closing;
		peer->closing = true;
		return;
	}
	serve->closing -= peer->closing;
	fabric_endpoint_close(peer->ep);
	memory_drop(serve, &peer->words);
	memory_drop(serve, &peer->data);
	LIST_REMOVE(peer, list);
	serve->count--;
	free(peer);
}

static int look(struct serve *serve, struct peer *peer)
{
	int ret = memory_make(serve, &peer->words, CORE_PAGE_BYTES);

	if (!ret)
		ret = memory_make(serve, &peer->data, DOCTOR_DATA_BYTES);
	if (!ret)
		ret = fabric_grant(peer->ep, DOCTOR_WORDS, &peer->words,
				   FABRIC_MAY_READ | FABRIC_MAY_ATOMIC);
	if (!ret)
		ret = fabric_grant(peer->ep, DOCTOR_DATA, &peer->data, FABRIC_MAY_READ | FABRIC_MAY_WRITE);
	return ret;
}

/* The first message is a CORE_LOOK; those after it are sent back. */
static int message(struct serve *serve, struct peer *peer)
{
	struct doctor_welcome welcome = {
		.magic = DOCTOR_MAGIC,
		.layout_hash = core_layout_hash(),
		.pid = (uint64_t)getpid(),
	};
	struct core_reply refusal = { .magic = CORE_MESSAGE_MAGIC, .status = -EPROTO };
	struct core_request request = { 0 };
	uint32_t length = serve->event.len_bytes;
	int ret;

	if (peer->looked)
		return fabric_send(peer->ep, serve->event.message, length);
	memcpy(&request, serve->event.message, length < sizeof(request) ? length : sizeof(request));
	if (request.magic != CORE_MESSAGE_MAGIC || request.kind != CORE_LOOK) {
		snprintf(refusal.text, sizeof(refusal.text),
			 "this is 'ramps doctor --serve', not a server of a job");
		return fabric_send(peer->ep, &refusal, sizeof(refusal));
	}
	ret = look(serve, peer);
	if (ret) {
		base_end("ramps doctor", ret);
		cli_error("doctor", "no memory for %s: %s", peer->ep->address, ramps_last_error()->text);
		refusal.status = ret;
		snprintf(refusal.text, sizeof(refusal.text),
			 "the other side has no memory to give: %s", strerrordesc_np(-ret));
		return fabric_send(peer->ep, &refusal, sizeof(refusal));
	}
	peer->looked = true;
	gethostname(welcome.host, sizeof(welcome.host) - 1);
	return fabric_send(peer->ep, &welcome, sizeof(welcome));
}

static int take_events(struct serve *serve)
{
	struct fabric_event *event = &serve->event;
	int ret;

	while ((ret = fabric_next_event(serve->listener, event)) == 1) {
		struct peer *peer = event->endpoint->user;

		if (event->kind == FABRIC_CONNECTED)
			connected(serve, event->endpoint);
		else if (event->kind == FABRIC_MESSAGE && peer && !peer->closing)
			message(serve, peer);
		else if (event->kind != FABRIC_MESSAGE && peer && !peer->closing)
			peer_end(serve, peer);
	}
	return ret;
}

static void retry_cuts(struct serve *serve)
{
	struct peer *peer, *next;

	for (peer = LIST_FIRST(&serve->peers); peer && serve->closing; peer = next) {
		next = LIST_NEXT(peer, list);
		if (peer->closing)
			peer_end(serve, peer);
	}
}

static int serve_until_signal(struct serve *serve)
{
	int ret = 0;

	while (!stop && ret >= 0) {
		uint64_t deadline_ns = serve->closing ? fabric_now(serve->fabric) + CUT_RETRY_NS :
							BASE_FOREVER;

		ret = take_events(serve);
		retry_cuts(serve);
		if (!ret && !stop)
			ret = fabric_wait(serve->listener, deadline_ns);
	}
	return ret;
}

static void end_peers(struct serve *serve)
{
	struct peer *peer, *next;
	uint64_t last = fabric_now(serve->fabric) + NS_PER_S;

	do {
		for (peer = LIST_FIRST(&serve->peers); peer; peer = next) {
			next = LIST_NEXT(peer, list);
			peer_end(serve, peer);
		}
		if (serve->count)
			fabric_sleep(serve->fabric, fabric_now(serve->fabric) + CUT_RETRY_NS);
	} while (serve->count && fabric_now(serve->fabric) < last);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = end };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int doctor_serve(const char *address)
{
	struct serve *serve = cli_alloc(1, sizeof(*serve));
	const struct api_fabric *kind;
	int ret;

	LIST_INIT(&serve->peers);
	catch_signals();
	ret = api_fabric_of(address, &kind);
	if (!ret)
		ret = kind->open(&serve->fabric);
	if (ret)
		goto out;
	ret = fabric_listen(serve->fabric, address, &serve->listener);
	if (ret)
		goto out_fabric;
	to_wake = serve->listener;
	printf("ramps: memory for 'ramps doctor --connect %s', pid %d\n", serve->listener->address,
	       (int)getpid());
	fflush(stdout);
	ret = serve_until_signal(serve);
	end_peers(serve);
	to_wake = NULL;
	fabric_listener_close(serve->listener);
out_fabric:
	fabric_close(serve->fabric);
out:
	if (ret) {
		base_end("ramps doctor", ret);
		cli_error("doctor", "%s", ramps_last_error()->text);
	}
	free(serve);
	return ret == -EINVAL ? CLI_USAGE : ret ? CLI_FAILED : CLI_OK;
}

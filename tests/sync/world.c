/* SPDX-License-Identifier: BSD-2-Clause */
#include "sync/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/word.h"

#define WORDS_BYTES     (1u << 20)
#define PUBLISHED_BYTES (1u << 16)
#define STATES_OFFSET   4096u

static bool in_child;

uint64_t world_now(void)
{
	return base_now_ns();
}

uint32_t world_rounds(uint32_t full, uint32_t quick)
{
	return getenv("SAN") || (getenv("QUICK") && strcmp(getenv("QUICK"), "0") != 0) ? quick : full;
}

uint32_t world_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ull;
	uint64_t z = *state;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (uint32_t)(z >> 32);
}

void world_fail(struct world *w, const char *file, int line, const char *what, int64_t a, int64_t b)
{
	base_end("the test", -EIO); /* makes the library's last text visible */
	if (!in_child) {
		fail_msg("%s:%d: %s: %lld, %lld; last error: %s", file, line, what, (long long)a,
			 (long long)b, base_last_error()->text);
		return;
	}
	if (!__atomic_exchange_n(&w->shared->failed, 1, __ATOMIC_SEQ_CST))
		snprintf(w->shared->report, sizeof(w->shared->report),
			 "%s:%d: %s: %lld, %lld; last error: %s", file, line, what, (long long)a,
			 (long long)b, base_last_error()->text);
	_exit(1);
}

static void *shared_memory(size_t len_bytes)
{
	void *base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

static void memory_init(struct fabric_memory *memory, const char *name, uint64_t len_bytes)
{
	memory->len_bytes = len_bytes;
	memory->fd = memfd_create(name, MFD_CLOEXEC);
	assert_int_not_equal(memory->fd, -1);
	assert_int_equal(ftruncate(memory->fd, (off_t)len_bytes), 0);
	memory->base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	assert_ptr_not_equal(memory->base, MAP_FAILED);
}

uint64_t *world_clock_word(struct world *w, uint32_t rank)
{
	return (uint64_t *)((char *)w->words.base + w->clock.words_offset) + rank;
}

struct core_node *world_nodes(struct world *w)
{
	return (struct core_node *)((char *)w->words.base + w->barrier.nodes_offset);
}

void world_set_state(struct world *w, uint32_t rank, uint32_t state)
{
	word_publish((uint64_t *)((char *)w->published.base + w->states_offset) + rank,
		     core_state(state, 1));
}

void world_peer_init(struct world *w, struct fabric *fabric, struct fabric_endpoint *ep,
		     struct sync_peer *peer)
{
	*peer = (struct sync_peer){ .fabric = fabric,
				    .ep = ep,
				    .workers = w->workers,
				    .on_death = w->on_death,
				    .states_offset = w->states_offset };
}

void world_peer(struct world *w, struct memory_endpoint *ep, struct sync_peer *peer)
{
	memory_endpoint_init(ep);
	ep->region[CORE_WORDS] = w->words.base;
	ep->len_bytes[CORE_WORDS] = w->words.len_bytes;
	ep->region[CORE_PUBLISHED] = w->published.base;
	ep->len_bytes[CORE_PUBLISHED] = w->published.len_bytes;
	world_peer_init(w, &memory_fabric, &ep->base, peer);
}

static void block_chld(void)
{
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
}

void world_open(struct world *w, bool shm, uint32_t workers, uint32_t fan_in, uint32_t first_generation)
{
	uint64_t nodes = sync_barrier_nodes(workers, fan_in);

	memset(w, 0, sizeof(*w));
	w->shm = shm;
	w->workers = workers;
	w->on_death = RAMPS_ON_DEATH_CONTINUE;
	w->shared = shared_memory(sizeof(*w->shared));
	memory_init(&w->words, "words", WORDS_BYTES);
	memory_init(&w->published, "published", PUBLISHED_BYTES);
	w->states_offset = STATES_OFFSET;
	w->clock = (struct core_clock){ .words_offset = 4096, .members = workers };
	w->barrier = (struct core_barrier){ .members = workers,
					    .fan_in = fan_in,
					    .nodes_offset = 8192,
					    .first_generation = first_generation };
	for (uint64_t i = 0; i < nodes; i++) {
		world_nodes(w)[i].word = (uint64_t)first_generation << 32;
		world_nodes(w)[i].released = first_generation;
	}
	for (uint32_t i = 0; i < workers; i++)
		world_set_state(w, i, CORE_LIVE);
	if (shm) {
		world_shm_open(w);
		return;
	}
	block_chld();
	world_peer(w, &w->server_memory, &w->server);
}

void world_close(struct world *w)
{
	if (w->shm)
		world_shm_close(w);
	munmap(w->words.base, w->words.len_bytes);
	munmap(w->published.base, w->published.len_bytes);
	close(w->words.fd);
	close(w->published.fd);
	munmap(w->shared, sizeof(*w->shared));
}

static void run_child(struct world *w, uint32_t rank,
		      void (*body)(struct world *, struct sync_peer *, uint32_t))
{
	static struct memory_endpoint ep;
	static struct sync_peer peer;

	in_child = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (w->shm)
		world_shm_connect(w, &peer);
	else
		world_peer(w, &ep, &peer);
	body(w, &peer, rank);
	_exit(0);
}

void world_spawn(struct world *w, uint32_t rank,
		 void (*body)(struct world *w, struct sync_peer *peer, uint32_t rank))
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_int_not_equal(pid, -1);
	if (!pid)
		run_child(w, rank, body);
	w->pids[rank] = pid;
}

uint32_t world_running(const struct world *w)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < WORLD_MAX; i++)
		count += w->pids[i] != 0;
	return count;
}

static void kill_all(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_MAX; i++) {
		if (!w->pids[i])
			continue;
		kill(w->pids[i], SIGKILL);
		waitpid(w->pids[i], NULL, 0);
		w->pids[i] = 0;
	}
}

/* A rank whose process has ended and is reaped, or -1. */
static int reap(struct world *w)
{
	for (uint32_t i = 0; i < WORLD_MAX; i++) {
		if (!w->pids[i] || waitpid(w->pids[i], &w->status[i], WNOHANG) != w->pids[i])
			continue;
		w->pids[i] = 0;
		if (WIFEXITED(w->status[i]) && !WEXITSTATUS(w->status[i]))
			return (int)i;
		if (WIFSIGNALED(w->status[i]) && WTERMSIG(w->status[i]) == SIGKILL)
			return (int)i;
		kill_all(w);
		fail_msg("rank %u: %s (status %x)", i, w->shared->report, w->status[i]);
	}
	return -1;
}

static void wait_for_chld(uint64_t ns)
{
	struct timespec wait = { .tv_sec = (time_t)(ns / WORLD_S), .tv_nsec = (long)(ns % WORLD_S) };
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigtimedwait(&chld, NULL, &wait);
}

int world_next_end(struct world *w, uint64_t deadline_ns)
{
	uint64_t now;
	int rank;

	for (;;) {
		rank = reap(w);
		now = base_now_ns();
		if (rank >= 0 || now >= deadline_ns)
			return rank;
		if (w->shm)
			world_shm_serve(w, deadline_ns);
		else
			wait_for_chld(deadline_ns - now);
	}
}

void world_join_all(struct world *w, uint32_t timeout_s)
{
	uint64_t deadline_ns = base_now_ns() + timeout_s * WORLD_S;
	char text[512] = "";
	size_t len = 0;

	while (world_running(w)) {
		if (world_next_end(w, deadline_ns) >= 0)
			continue;
		for (uint32_t i = 0; i < w->workers && len < sizeof(text) - 32; i++)
			len += (size_t)snprintf(text + len, sizeof(text) - len, " %u%s",
						(uint32_t)word_load(&w->shared->line[i].entered),
						w->pids[i] ? "" : "(ended)");
		kill_all(w);
		fail_msg("hung after %u s; entered:%s", timeout_s, text);
	}
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server in a thread of this process: the loop around the step function. With nothing to do it
 * looks for work for a moment, giving the core to whoever wants it, then sleeps until a commit or
 * a message wakes it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/ps.h"

#define IDLE_SPIN_NS        50000u
#define DEFAULT_ARENA_BYTES (1ull << 30)
#define DEFAULT_SLOTS_BYTES (4ull << 20)
#define DEFAULT_MAX_WORKERS 1024u
#define LEAST_ARENA_BYTES   (1ull << 16)

struct ramps_server {
	struct fabric *fabric;
	struct core_arena *arena;
	struct ps_server *ps;
	pthread_t thread;
	pid_t pid; /* that started it: a child may not stop it */
	uint32_t stop;
	bool keep;
	int failed;     /* -errno: the thread could not go on */
	char why[1024]; /* holds once failed is set */
};

static void serve_failed(struct ramps_server *server, int code)
{
	base_end("ramps_server_start", code);
	snprintf(server->why, sizeof(server->why), "server %s can't go on: %s",
		 ps_address(server->ps), base_last_error()->text);
	base_log(RAMPS_LOG_ERROR, "%s", server->why);
	__atomic_store_n(&server->failed, code, __ATOMIC_RELEASE);
}

static void *serve(void *arg)
{
	struct ramps_server *server = arg;
	uint64_t idle_since = 0;

	while (!__atomic_load_n(&server->stop, __ATOMIC_RELAXED)) {
		int ret = ps_step(server->ps);
		uint64_t now;

		if (ret < 0) {
			serve_failed(server, ret);
			break;
		}
		if (ret) {
			idle_since = 0;
			continue;
		}
		now = base_now_ns();
		if (!idle_since)
			idle_since = now;
		if (now - idle_since < IDLE_SPIN_NS) {
			sched_yield();
			continue;
		}
		ps_wait(server->ps, BASE_FOREVER);
		idle_since = 0;
	}
	return NULL;
}

/* Signals are for the program's own threads. */
static int thread_start(struct ramps_server *server)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&server->thread, NULL, serve, server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret ? base_fail(-ret, "no thread for the server: %s", strerror(ret)) : 0;
}

static int options_take(const struct ramps_server_options *from, struct ramps_server_options *options)
{
	int ret = api_options(options, from, sizeof(*options),
			      offsetof(struct ramps_server_options, arena_bytes));

	if (ret)
		return ret;
	if (!options->arena_bytes)
		options->arena_bytes = DEFAULT_ARENA_BYTES;
	if (!options->slots_bytes)
		options->slots_bytes = DEFAULT_SLOTS_BYTES;
	if (!options->max_workers)
		options->max_workers = DEFAULT_MAX_WORKERS;
	if (options->max_workers > CORE_MAX_WORKERS)
		return base_fail(-EINVAL, "at most %u workers, not %u", CORE_MAX_WORKERS,
				 options->max_workers);
	if (options->arena_bytes < LEAST_ARENA_BYTES || options->arena_bytes >> 46)
		return base_fail(-EINVAL, "an arena has 64 KiB to 64 TiB");
	if (options->slots_bytes > options->arena_bytes)
		return base_fail(-EINVAL, "slots of %llu bytes are larger than the arena of %llu",
				 (unsigned long long)options->slots_bytes,
				 (unsigned long long)options->arena_bytes);
	if (options->on_death > RAMPS_ON_DEATH_CONTINUE)
		return base_fail(-EINVAL, "on_death %u is not known", options->on_death);
	return 0;
}

/* An embedded server has a name that no other process can have now. */
static void embed_address(char *buf, size_t len_bytes)
{
	static uint32_t count;

	snprintf(buf, len_bytes, "shm://embed-%d-%u", (int)getpid(),
		 __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
}

static int arena_open(const struct api_fabric *kind, const char *address,
		      const struct ramps_server_options *options, struct core_arena **arena)
{
	struct core_arena_options wanted = {
		.arena_bytes = options->arena_bytes,
		.max_workers = options->max_workers,
		.cells = (uint32_t)((options->slots_bytes + CORE_CHUNK_BYTES - 1) / CORE_CHUNK_BYTES),
		.on_death = options->on_death,
		.fresh = options->fresh != 0,
	};
	char directory[256];
	int ret;

	ret = api_job(options->job, &wanted.job);
	if (!ret)
		ret = kind->directory(address, directory, sizeof(directory));
	wanted.directory = directory;
	return ret ? ret : core_arena_open(&wanted, arena);
}

static int server_start(const struct ramps_server_options *from, struct ramps_server **server)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	const struct api_fabric *kind;
	char address[API_ADDRESS_BYTES];
	struct ramps_server *made;
	int ret;

	ret = options_take(from, &options);
	if (ret)
		return ret;
	if (!options.address || !strcmp(options.address, API_EMBED)) {
		embed_address(address, sizeof(address));
		options.fresh = 1; /* a killed program of this number may have left one */
	} else if (snprintf(address, sizeof(address), "%s", options.address) >= (int)sizeof(address)) {
		return base_fail(-ENAMETOOLONG, "the server's address is too long");
	}
	ret = api_fabric_of(address, &kind);
	if (ret)
		return ret;
	made = calloc(1, sizeof(*made));
	if (!made)
		return -ENOMEM;
	made->pid = getpid();
	made->keep = options.keep != 0;
	ret = arena_open(kind, address, &options, &made->arena);
	if (ret)
		goto fail_free;
	ret = kind->open(&made->fabric);
	if (ret)
		goto fail_arena;
	made->fabric->lease_ns = options.lease_ms * NS_PER_MS;
	ret = ps_open(made->fabric, made->arena, address, &made->ps);
	if (ret)
		goto fail_fabric;
	ret = thread_start(made);
	if (ret)
		goto fail_ps;
	*server = made;
	return 0;
fail_ps:
	ps_close(made->ps);
fail_fabric:
	fabric_close(made->fabric);
fail_arena:
	core_arena_close(made->arena, !made->arena->resumed);
fail_free:
	free(made);
	return ret;
}

int ramps_server_start(const struct ramps_server_options *options, struct ramps_server **server)
{
	if (!server)
		return base_end(__func__, base_fail(-EINVAL, "no place for the server"));
	return base_end(__func__, server_start(options, server));
}

int ramps_server_address(const struct ramps_server *server, char *buf, size_t len_bytes)
{
	const char *address;
	size_t length;

	if (!server || !buf)
		return base_end(__func__, base_fail(-EINVAL, "no server, or no place for its address"));
	address = ps_address(server->ps);
	length = strlen(address);
	if (length >= len_bytes)
		return base_end(__func__, base_fail(-ENOSPC, "the address takes %zu bytes", length + 1));
	memcpy(buf, address, length + 1);
	return (int)length;
}

int ramps_server_check(const struct ramps_server *server)
{
	int failed;

	if (!server)
		return base_end(__func__, base_fail(-EINVAL, "no server given: it is NULL"));
	failed = __atomic_load_n(&server->failed, __ATOMIC_ACQUIRE);
	if (failed)
		base_fail(failed, "%s", server->why);
	return base_end(__func__, failed);
}

void ramps_server_stop(struct ramps_server *server)
{
	if (!server)
		return;
	if (server->pid != getpid())
		return;
	__atomic_store_n(&server->stop, 1, __ATOMIC_RELAXED);
	ps_wake(server->ps);
	pthread_join(server->thread, NULL);
	ps_close(server->ps);
	fabric_close(server->fabric);
	core_arena_close(server->arena, !server->keep && !server->failed);
	free(server);
}

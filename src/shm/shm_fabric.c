/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric over shared memory.
 *
 * A client maps the files behind a server's regions, by descriptors that the server passes over a
 * Unix socket, and operations are loads, stores and atomic instructions of its own. What a
 * region's rights lack, the mapping lacks too, as far as a mapping can: a region without WRITE
 * and ATOMIC comes as a descriptor that can't be mapped writable.
 *
 * Mappings are shared by all endpoints of a fabric and counted, so that a client that connects
 * anew finds the same memory at the same address as long as it still holds the old endpoint.
 *
 * A mapping can't be taken back from a live process: the server knows by a process descriptor
 * (pidfd) when a peer is gone, and kills one that it must be rid of (shm_peer.c). Mappings are
 * not inherited by a fork and descriptors not by an exec; a forked child can close what it
 * inherited, and nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "shm/shm_private.h"

static void fabric_free(struct fabric *base)
{
	struct shm_fabric *fabric = (struct shm_fabric *)base;

	if (!fabric)
		return;
	pthread_mutex_destroy(&fabric->lock);
	free(fabric);
}

static uint64_t now(struct fabric *fabric)
{
	(void)fabric;
	return base_now_ns();
}

static void sleep_until(struct fabric *fabric, uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};

	(void)fabric;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static int register_memory(struct fabric *fabric, struct fabric_memory *memory)
{
	(void)fabric;
	if (!memory->base || !memory->len_bytes ||
	    (uintptr_t)memory->base % (uintptr_t)sysconf(_SC_PAGESIZE))
		return base_fail(-EINVAL, "memory to register must be whole pages");
	memory->handle = memory;
	return 0;
}

static void unregister_memory(struct fabric *fabric, struct fabric_memory *memory)
{
	(void)fabric;
	memory->handle = NULL;
}

static int map_new(int fd, const struct stat *file, uint64_t len_bytes, bool writable,
		   struct shm_mapping **mapping)
{
	struct shm_mapping *m = calloc(1, sizeof(*m));
	int ret;

	if (!m)
		return base_fail(-ENOMEM, "no memory");
	m->dev = file->st_dev;
	m->ino = file->st_ino;
	m->len_bytes = len_bytes;
	m->writable = writable;
	m->base = mmap(NULL, len_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		       MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (m->base == MAP_FAILED) {
		ret = base_fail(-ENOMEM, "mapping %llu bytes of the server's memory: %s",
				(unsigned long long)len_bytes, strerrordesc_np(errno));
		free(m);
		return ret;
	}
	madvise(m->base, len_bytes, MADV_DONTFORK);
	*mapping = m;
	return 0;
}

int shm_map_file(struct shm_fabric *fabric, int fd, uint64_t len_bytes, bool writable,
		 struct shm_mapping **mapping)
{
	struct shm_mapping *m;
	struct stat file;
	int ret = 0;

	if (fstat(fd, &file))
		return base_fail(-errno, "the server's memory: %s", strerrordesc_np(errno));
	if (!len_bytes || (uint64_t)file.st_size < len_bytes)
		return base_fail(-EPROTO, "the server granted %llu bytes of a file of %llu",
				 (unsigned long long)len_bytes, (unsigned long long)file.st_size);
	pthread_mutex_lock(&fabric->lock);
	for (m = fabric->mappings; m; m = m->next)
		if (m->dev == file.st_dev && m->ino == file.st_ino && m->len_bytes == len_bytes &&
		    m->writable == writable)
			break;
	if (!m) {
		ret = map_new(fd, &file, len_bytes, writable, &m);
		if (ret)
			goto out;
		m->next = fabric->mappings;
		fabric->mappings = m;
	}
	m->refs++;
	*mapping = m;
out:
	pthread_mutex_unlock(&fabric->lock);
	return ret;
}

void shm_unmap_file(struct shm_fabric *fabric, struct shm_mapping *mapping, bool own)
{
	struct shm_mapping **at;
	bool last;

	if (own)
		pthread_mutex_lock(&fabric->lock);
	last = --mapping->refs == 0;
	if (last) {
		for (at = &fabric->mappings; *at != mapping; at = &(*at)->next)
			;
		*at = mapping->next;
	}
	if (own)
		pthread_mutex_unlock(&fabric->lock);
	if (!last)
		return;
	if (own)
		munmap(mapping->base, mapping->len_bytes);
	free(mapping);
}

int shm_endpoint_new(struct shm_fabric *fabric, enum shm_role role, struct shm_endpoint **result)
{
	struct shm_endpoint *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return base_fail(-ENOMEM, "no memory");
	ep->base.ops = &shm_ops;
	ep->base.fabric = &fabric->base;
	ep->base.address = ep->address;
	ep->base.limits = (struct fabric_limits){
		.max_ops = SHM_MAX_OPS,
		.outstanding_reads = SHM_MAX_OPS,
		.inline_bytes = UINT32_MAX,
		.max_transfer_bytes = UINT64_MAX,
		.fate_known = true,
		.atomics_with_cpu = true,
	};
	ep->fabric = fabric;
	ep->role = role;
	ep->socket = ep->pidfd = -1;
	ep->pid = getpid();
	ep->looked_ns = base_now_ns();
	*result = ep;
	return 0;
}

void shm_endpoint_free(struct shm_endpoint *ep)
{
	bool own = ep->pid == getpid(); /* else: a fork's copy, where nothing is mapped */

	for (int i = 0; i < FABRIC_MAX_REGIONS; i++)
		if (ep->mappings[i])
			shm_unmap_file(ep->fabric, ep->mappings[i], own);
	if (ep->role == SHM_CLIENT && ep->bells && own)
		munmap(ep->bells, SHM_BELLS_BYTES);
	if (ep->socket >= 0)
		close(ep->socket);
	if (ep->pidfd >= 0)
		close(ep->pidfd);
	free(ep);
}

/* Nothing is ever under way. */
static void endpoint_abort(struct fabric_endpoint *base)
{
	shm_of(base)->broken = true;
}

static void endpoint_close(struct fabric_endpoint *base)
{
	struct shm_endpoint *ep = shm_of(base);

	if (!ep)
		return;
	if (ep->pid == getpid() && ep->role == SHM_ACCEPTED)
		shm_forget(ep->listener, ep);
	if (ep->pid == getpid() && ep->role == SHM_CLIENT)
		shm_leave(ep);
	shm_endpoint_free(ep);
}

const struct fabric_ops shm_ops = {
	.name = "shm",
	.close = fabric_free,
	.now = now,
	.sleep = sleep_until,
	.register_memory = register_memory,
	.unregister_memory = unregister_memory,
	.buffer_open = fabric_any_buffer_open,
	.buffer_close = fabric_any_buffer_close,
	.listen = shm_listen,
	.listener_close = shm_listener_close,
	.next_event = shm_next_event,
	.wait = shm_wait,
	.wake = shm_wake,
	.notify = shm_notify,
	.loopback = shm_loopback,
	.peer_gone = shm_peer_gone,
	.grant = shm_grant,
	.identity = shm_identity,
	.cut = shm_cut,
	.connect = shm_connect,
	.send = shm_send,
	.recv = shm_recv,
	.check = shm_check,
	.map = shm_map,
	.abort = endpoint_abort,
	.endpoint_close = endpoint_close,
	.post = shm_post,
	.poll = shm_poll,
	.wait_word = shm_wait_word,
};

int shm_open_fabric(struct fabric **result)
{
	struct shm_fabric *fabric = calloc(1, sizeof(*fabric));

	if (!fabric)
		return base_fail(-ENOMEM, "no memory");
	fabric->base.ops = &shm_ops;
	fabric->base.sees_deaths = true;
	fabric->awake_ns = SHM_AWAKE_NS;
	pthread_mutex_init(&fabric->lock, NULL);
	*result = &fabric->base;
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Joining a job, and leaving it.
 *
 * A new life joins shard 0 first, which fences the rank's old life and chooses the incarnation;
 * the other shards fence it too before they admit the new one. So when worker_join() returns,
 * nothing of the old life can land anywhere.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "worker/worker_private.h"

#define LEAVE_MS 1000

/* Where this rank's ring stands: what an earlier life has committed stays. */
static int ring_begin(struct ramps_worker *worker, uint32_t shard)
{
	const struct core_header *header = &worker_link(worker, shard)->header;
	struct worker_ring *ring = &worker->member->rings[shard];
	uint32_t rank = worker->member->rank;
	int ret;

	ret = worker_read(worker, shard, CORE_WORDS,
			  worker_word(worker, shard, offsetof(struct core_rank_words, tail)),
			  &ring->tail, sizeof(ring->tail));
	if (!ret)
		ret = worker_read(worker, shard, CORE_PUBLISHED,
				  header->ranks_offset + rank * sizeof(struct core_rank) +
					  offsetof(struct core_rank, head),
				  &ring->head, sizeof(ring->head));
	/* Which of these carry synchronous pushes is not known. */
	ring->sync_tail = ring->tail;
	return ret ? ret : worker_flights_make(worker->member, worker_link(worker, shard), shard);
}

void worker_child_add(struct ramps_worker *worker, struct worker_child *child)
{
	child->worker = worker;
	child->next = worker->children;
	child->back = &worker->children;
	if (child->next)
		child->next->back = &child->next;
	worker->children = child;
}

void worker_child_remove(struct worker_child *child)
{
	if (!child->worker)
		return;
	*child->back = child->next;
	if (child->next)
		child->next->back = child->back;
	child->worker = NULL;
}

static void member_release(struct worker_member *member)
{
	if (__atomic_sub_fetch(&member->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (member->server)
		member->stop_server(member->server);
	while (member->steps) {
		struct worker_steps *next = member->steps->next;

		free(member->steps);
		member->steps = next;
	}
	while (member->objects) {
		struct worker_object *object = member->objects;

		member->objects = object->next;
		if (object->kind == CORE_BARRIER)
			sync_barrier_close(object->barrier);
		else
			sync_clock_close(object->clock);
		free(object);
	}
	worker_flights_free(member);
	pthread_mutex_destroy(&member->lock);
	free(member);
}

static size_t request_bytes(const struct worker_member *member)
{
	return (sizeof(struct worker_request) + 8ull * member->shards + 15) & ~15ull;
}

static int worker_requests_make(struct ramps_worker *worker)
{
	size_t each = request_bytes(worker->member);
	char *at = calloc(RAMPS_SUBMIT_MAX + 1, each);

	if (!at)
		return -ENOMEM;
	worker->requests = (struct worker_request *)at;
	worker->blocking = (struct worker_request *)(at + RAMPS_SUBMIT_MAX * each);
	for (uint32_t i = 0; i < RAMPS_SUBMIT_MAX; i++) {
		struct worker_request *request = (struct worker_request *)(at + i * each);

		request->next = worker->free;
		worker->free = request;
	}
	worker->last = &worker->first;
	return 0;
}

static void worker_free(struct ramps_worker *worker)
{
	free(worker->requests);
	free(worker->adds);
	if (worker->alive)
		munmap((void *)worker->alive, CORE_PAGE_BYTES);
	free(worker);
}

/* A worker without links; takes a reference on the member. */
static int worker_make(struct fabric *fabric, struct worker_member *member, struct ramps_worker **worker)
{
	size_t bytes = sizeof(struct ramps_worker) + member->shards * sizeof(struct worker_link);
	struct ramps_worker *made = aligned_alloc(64, core_round_up(bytes, 64));
	uint64_t *alive;
	int ret = -ENOMEM;

	if (!made)
		return ret;
	memset(made, 0, bytes);
	made->fabric = fabric;
	made->block = WORKER_BLOCK;
	made->member = member;
	alive = mmap(NULL, CORE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (alive == MAP_FAILED)
		goto fail;
	madvise(alive, CORE_PAGE_BYTES, MADV_WIPEONFORK);
	*alive = 1;
	made->alive = alive;
	ret = worker_requests_make(made);
	if (ret)
		goto fail;
	__atomic_add_fetch(&member->refs, 1, __ATOMIC_ACQ_REL);
	*worker = made;
	return 0;
fail:
	worker_free(made);
	return ret;
}

static void worker_unlink(struct ramps_worker *worker)
{
	for (uint32_t shard = worker->member->shards; shard-- > 0;)
		if (worker->links[shard].ep)
			fabric_endpoint_close(worker->links[shard].ep);
}

int worker_join(struct fabric *fabric, const struct worker_join_options *options,
		struct ramps_worker **worker)
{
	struct worker_member *member = calloc(1, sizeof(*member));
	struct ramps_worker *made = NULL;
	uint64_t deadline_ns;
	int ret = -ENOMEM;

	if (!member)
		return ret;
	member->refs = 1;
	pthread_mutex_init(&member->lock, NULL);
	member->rank = options->rank;
	member->workers = options->workers;
	member->shards = options->servers;
	member->fan_in = SYNC_DEFAULT_FAN_IN;
	memcpy(member->job, options->job, strlen(options->job) + 1);
	ret = worker_make(fabric, member, &made);
	if (ret)
		goto out;
	deadline_ns = worker_deadline(made, options->timeout_ms);
	for (uint32_t shard = 0; shard < member->shards && !ret; shard++) {
		strncpy(made->links[shard].address, options->addresses[shard],
			sizeof(made->links[shard].address) - 1);
		ret = worker_link_connect(made, shard, CORE_JOIN_NEW, deadline_ns);
		if (!ret)
			ret = ring_begin(made, shard);
	}
	if (ret) {
		worker_unlink(made);
		worker_free(made);
		member->refs--;
		goto out;
	}
	*worker = made;
out:
	member_release(member);
	return ret;
}

int worker_clone(struct ramps_worker *worker, struct fabric *fabric, struct ramps_worker **clone)
{
	struct worker_member *member = worker->member;
	uint64_t deadline_ns = worker_deadline(worker, 10000);
	struct ramps_worker *made;
	int ret;

	/* with the clone's connection alone, closing it would be the rank's death */
	ret = worker_links_check(worker);
	if (!ret && !worker->links[0].ep->limits.fate_known)
		ret = worker_flush_until(worker, RAMPS_LANDED, deadline_ns);
	if (!ret)
		ret = worker_make(fabric, member, &made);
	if (ret)
		return ret;
	for (uint32_t shard = 0; shard < member->shards && !ret; shard++) {
		memcpy(made->links[shard].address, worker->links[shard].address,
		       sizeof(made->links[shard].address));
		made->links[shard].header = worker->links[shard].header;
		ret = worker_link_connect(made, shard, CORE_JOIN_AGAIN, deadline_ns);
	}
	if (ret) {
		worker_unlink(made);
		worker_free(made);
		member_release(member);
		return ret;
	}
	*clone = made;
	return 0;
}

void worker_close(struct ramps_worker *worker)
{
	struct worker_member *member = worker->member;

	if (*worker->alive && !worker->any_broken)
		worker_land(worker);
	while (worker->children)
		worker_child_remove(worker->children);
	worker_flights_abandon(worker);
	worker_objects_abandon(worker);
	worker_unlink(worker);
	fabric_close(worker->fabric);
	worker_free(worker);
	member_release(member);
}

void worker_own_server(struct ramps_worker *worker, struct ramps_server *server,
		       void (*stop)(struct ramps_server *))
{
	worker->member->server = server;
	worker->member->stop_server = stop;
}

const char *worker_address(const struct ramps_worker *worker)
{
	return worker->links[0].address;
}

int worker_enter(struct ramps_worker *worker)
{
	int ret = 0;

	if (!worker)
		return base_fail(-ENOTCONN, "the worker is closed");
	if (!*worker->alive)
		return base_fail(-ENOTCONN, "this process was forked from the worker's: join anew here");
	if (__atomic_load_n(&worker->inside, __ATOMIC_RELAXED))
		return base_fail(-EBUSY, "another thread is in a call on this worker: "
					 "give each thread its own by ramps_worker_clone()");
	__atomic_store_n(&worker->inside, 1, __ATOMIC_RELAXED);
	if (__builtin_expect(worker->any_broken, 0))
		ret = worker_links_repair(worker);
	if (ret)
		worker_exit(worker);
	return ret;
}

void worker_exit(struct ramps_worker *worker)
{
	__atomic_store_n(&worker->inside, 0, __ATOMIC_RELAXED);
}

int worker_info(struct ramps_worker *worker, struct ramps_worker_info *info)
{
	const struct worker_member *member = worker->member;
	uint32_t live = 0;

	for (uint32_t rank = 0; rank < member->workers; rank++) {
		uint64_t state;
		int ret = worker_read(worker, 0, CORE_PUBLISHED,
				      worker->links[0].header.states_offset + 8ull * rank, &state,
				      sizeof(state));

		if (ret)
			return ret;
		live += core_state_of(state) == CORE_LIVE;
	}
	*info = (struct ramps_worker_info){
		.size = info->size,
		.rank = member->rank,
		.workers = member->workers,
		.servers = member->shards,
		.incarnation = member->incarnation,
		.live = live,
		.job = member->job,
	};
	return 0;
}

void worker_interrupt(struct ramps_worker *worker)
{
	__atomic_store_n(&worker->interrupt, 1, __ATOMIC_RELAXED);
}

/* Counts this rank's additions to shared words where people and recovery look for them. */
int worker_land(struct ramps_worker *worker)
{
	for (uint32_t shard = 0; shard < worker->member->shards; shard++) {
		struct worker_link *link = worker_link(worker, shard);
		int ret;

		if (!link->unlanded)
			continue;
		ret = worker_add(worker, shard,
				 worker_word(worker, shard, offsetof(struct core_rank_words, landed)),
				 link->unlanded);
		if (ret)
			return ret;
		link->unlanded = 0;
	}
	return 0;
}

int worker_leave(struct ramps_worker *worker, int timeout_ms)
{
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);
	struct core_request request = { .kind = CORE_LEAVE };
	struct core_reply reply;
	int ret;

	ret = worker_flush_until(worker, RAMPS_APPLIED, deadline_ns);
	/* The servers answer at once, or not at all. */
	deadline_ns = worker_deadline(worker, LEAVE_MS);
	for (uint32_t shard = 0; shard < worker->member->shards && !ret; shard++)
		ret = worker_call(worker, shard, &request, &reply, deadline_ns);
	if (!ret)
		worker->member->left = true;
	return ret;
}

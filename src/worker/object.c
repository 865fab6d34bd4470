/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Barriers and clocks as handles. A rank has one place in each, so that all its handles of one
 * name, its clones' too, share one object; two of its threads in one object at a time get -EBUSY.
 *
 * Both first wait until the rank's pushes are applied on every server: only then does "after the
 * barrier all see all updates", or a bound on staleness, hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/name.h"
#include "worker/worker_private.h"

struct ramps_worker *worker_of_barrier(const struct ramps_barrier *barrier)
{
	return barrier ? barrier->child.worker : NULL;
}

struct ramps_worker *worker_of_clock(const struct ramps_clock *clock)
{
	return clock ? clock->child.worker : NULL;
}

static const char *kind_text(uint32_t kind)
{
	return kind == CORE_BARRIER ? "barrier" : "clock";
}

/* The index of this rank in the group, and the group as bits; all ranks where group is NULL. */
static int group_take(const struct worker_member *member, const struct ramps_group *group,
		      struct core_request *request, uint32_t *index)
{
	bool found = false;

	*index = member->rank;
	request->entry.barrier.members = member->workers;
	if (!group)
		return 0;
	if (!group->count || !group->ranks || group->count > member->workers)
		return base_fail(-EINVAL, "a group of %u ranks, of %u in the job", group->count,
				 member->workers);
	request->entry.barrier.members = group->count;
	for (uint32_t i = 0; i < group->count; i++) {
		uint32_t rank = group->ranks[i];

		if (rank >= member->workers || (i && rank <= group->ranks[i - 1]))
			return base_fail(-EINVAL, "a group's ranks are ascending and below %u",
					 member->workers);
		request->group[rank / 64] |= 1ull << rank % 64;
		if (rank == member->rank) {
			*index = i;
			found = true;
		}
	}
	return found ? 0 : base_fail(-EINVAL, "this rank, %u, is not in the group", member->rank);
}

/*
 * Asks the server for the object, which it makes where it has none; -EEXIST: it has another
 * group.
 */
static int object_ask(struct ramps_worker *worker, const struct worker_object *object,
		      const struct ramps_group *group, struct core_entry *entry, uint32_t *index)
{
	struct worker_member *member = worker->member;
	struct core_request request = { .kind = CORE_CREATE, .entry.kind = object->kind };
	struct core_reply reply;
	int ret = 0;

	*index = member->rank;
	memcpy(request.entry.name, object->name, sizeof(request.entry.name));
	if (object->kind == CORE_BARRIER) {
		request.entry.barrier.fan_in = member->fan_in;
		ret = group_take(member, group, &request, index);
	} else {
		request.entry.clock.members = member->workers;
	}
	if (!ret)
		ret = worker_call(worker, object->shard, &request, &reply,
				  worker_deadline(worker, 10000));
	if (!ret)
		*entry = reply.entry;
	return ret;
}

static int object_make(struct ramps_worker *worker, const struct worker_object *like,
		       const struct ramps_group *group, struct worker_object **object)
{
	struct worker_member *member = worker->member;
	struct sync_peer *peer = &worker_link(worker, like->shard)->peer;
	uint64_t deadline_ns = worker_deadline(worker, 10000);
	struct worker_object *made = *object;
	struct core_entry entry;
	uint32_t index;
	int ret = object_ask(worker, like, group, &entry, &index);

	if (ret || made)
		return ret;
	made = malloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	*made = *like;
	if (made->kind == CORE_BARRIER)
		ret = sync_barrier_open(peer, &entry.barrier, index, group ? group->ranks : NULL,
					deadline_ns, &made->barrier);
	else
		ret = sync_clock_open(peer, &entry.clock, member->rank, deadline_ns, &made->clock);
	if (ret) {
		free(made);
		return ret;
	}
	made->next = member->objects;
	member->objects = made;
	*object = made;
	return 0;
}

static int object_open(struct ramps_worker *worker, uint32_t kind, const char *name,
		       const struct ramps_group *group, struct worker_object **object)
{
	struct worker_member *member = worker->member;
	struct worker_object like = { .kind = kind };
	struct worker_object *at;
	int ret = base_name_check(kind_text(kind), name);

	if (ret)
		return ret;
	memcpy(like.name, name, strlen(name) + 1);
	like.shard = core_first_shard(name, member->shards);
	pthread_mutex_lock(&member->lock);
	for (at = member->objects; at; at = at->next)
		if (at->kind == kind && !strcmp(at->name, name))
			break;
	ret = object_make(worker, &like, group, &at);
	pthread_mutex_unlock(&member->lock);
	*object = at;
	return ret;
}

static int object_enter(struct ramps_worker *worker, struct worker_object *object)
{
	if (__atomic_exchange_n(&object->busy, 1, __ATOMIC_ACQUIRE))
		return base_fail(-EBUSY, "another thread of this rank is in %s %s",
				 kind_text(object->kind), object->name);
	if (__builtin_expect(!object->doubter && !object->abandoned, 1) || object->doubter == worker)
		return 0;
	__atomic_store_n(&object->busy, 0, __ATOMIC_RELEASE);
	if (object->abandoned)
		return base_fail(-ESTALE,
				 "a thread of this rank closed its worker after %s %s had failed: join anew",
				 kind_text(object->kind), object->name);
	return base_fail(-EBUSY,
			 "another thread of this rank lost its connection in %s %s: let it call again",
			 kind_text(object->kind), object->name);
}

/* The worker is being closed. */
void worker_objects_abandon(struct ramps_worker *worker)
{
	struct worker_member *member = worker->member;

	pthread_mutex_lock(&member->lock);
	for (struct worker_object *object = member->objects; object; object = object->next)
		if (object->doubter == worker)
			object->abandoned = true;
	pthread_mutex_unlock(&member->lock);
}

/* Ends a call on the object; a lost server is noted. */
static int object_exit(struct ramps_worker *worker, struct worker_object *object, int ret)
{
	/* the object may be closed next, and what is under way reads into it */
	if (ret < 0 && worker_pending(&worker_link(worker, object->shard)->peer.completion))
		worker_link_break(worker, object->shard);
	object->doubter = NULL;
	if (ret < 0 && !worker_link(worker, object->shard)->ep->limits.fate_known &&
	    (ret == -ENOTCONN || worker_link(worker, object->shard)->broken))
		object->doubter = worker;
	__atomic_store_n(&object->busy, 0, __ATOMIC_RELEASE);
	if (ret == -ENOTCONN)
		return worker_lost(worker, object->shard);
	if (ret < 0)
		base_error_object(kind_text(object->kind), object->name);
	return ret;
}

int worker_barrier_open(struct ramps_worker *worker, const char *name,
			const struct ramps_group *group, struct ramps_barrier **barrier)
{
	struct ramps_barrier *made = calloc(1, sizeof(*made));
	int ret;

	if (!made)
		return -ENOMEM;
	ret = object_open(worker, CORE_BARRIER, name, group, &made->object);
	if (ret) {
		free(made);
		return ret;
	}
	worker_child_add(worker, &made->child);
	*barrier = made;
	return 0;
}

int worker_barrier_arrive(struct ramps_barrier *barrier, int timeout_ms)
{
	struct ramps_worker *worker = barrier->child.worker;
	struct worker_object *object = barrier->object;
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);
	int ret = object_enter(worker, object);

	if (ret)
		return ret;
	ret = worker_flush_until(worker, RAMPS_APPLIED, deadline_ns);
	if (!ret)
		ret = sync_barrier_arrive(&worker_link(worker, object->shard)->peer,
					  object->barrier, deadline_ns);
	return object_exit(worker, object, ret);
}

int worker_barrier_wait(struct ramps_barrier *barrier, int timeout_ms)
{
	struct ramps_worker *worker = barrier->child.worker;
	struct worker_object *object = barrier->object;
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);
	int ret = object_enter(worker, object);

	if (ret)
		return ret;
	/* What was pushed after arriving is none of this barrier's. */
	if (!sync_barrier_arrived(object->barrier))
		ret = worker_flush_until(worker, RAMPS_APPLIED, deadline_ns);
	if (!ret)
		ret = sync_barrier_wait(&worker_link(worker, object->shard)->peer, object->barrier,
					deadline_ns);
	return object_exit(worker, object, ret);
}

void worker_barrier_close(struct ramps_barrier *barrier)
{
	if (!barrier)
		return;
	worker_child_remove(&barrier->child);
	free(barrier);
}

int worker_clock_open(struct ramps_worker *worker, const char *name, struct ramps_clock **clock)
{
	struct ramps_clock *made = calloc(1, sizeof(*made));
	int ret;

	if (!made)
		return -ENOMEM;
	ret = object_open(worker, CORE_CLOCK, name, NULL, &made->object);
	if (ret) {
		free(made);
		return ret;
	}
	worker_child_add(worker, &made->child);
	*clock = made;
	return 0;
}

int worker_clock_advance(struct ramps_clock *clock, int timeout_ms)
{
	struct ramps_worker *worker = clock->child.worker;
	struct worker_object *object = clock->object;
	uint64_t deadline_ns = worker_deadline(worker, timeout_ms);
	int ret = object_enter(worker, object);

	if (ret)
		return ret;
	ret = worker_flush_until(worker, RAMPS_APPLIED, deadline_ns);
	if (!ret)
		ret = sync_clock_advance(&worker_link(worker, object->shard)->peer, object->clock,
					 deadline_ns);
	return object_exit(worker, object, ret);
}

int worker_clock_wait(struct ramps_clock *clock, uint64_t staleness, int timeout_ms)
{
	struct ramps_worker *worker = clock->child.worker;
	struct worker_object *object = clock->object;
	int ret = object_enter(worker, object);

	if (ret)
		return ret;
	ret = sync_clock_wait(&worker_link(worker, object->shard)->peer, object->clock, staleness,
			      worker_deadline(worker, timeout_ms));
	return object_exit(worker, object, ret);
}

int worker_clock_read(struct ramps_clock *clock, uint64_t *own, uint64_t *least)
{
	struct ramps_worker *worker = clock->child.worker;
	struct worker_object *object = clock->object;
	int ret = object_enter(worker, object);

	if (ret)
		return ret;
	ret = sync_clock_read(&worker_link(worker, object->shard)->peer, object->clock, own, least,
			      worker_deadline(worker, 10000));
	return object_exit(worker, object, ret);
}

void worker_clock_close(struct ramps_clock *clock)
{
	if (!clock)
		return;
	worker_child_remove(&clock->child);
	free(clock);
}

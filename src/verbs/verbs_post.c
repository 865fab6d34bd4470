/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: an admitted list is turned into work requests. See the head of verbs_data.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/copy.h"
#include "base/error.h"
#include "verbs/verbs_data_private.h"

/* Ends a flight at the work request that was built last. */
static inline void end_flight(struct verbs_data *data, struct fabric_completion *completion)
{
	data->wrs[data->chain_wrs - 1].send_flags |= IBV_SEND_SIGNALED;
	data->flights[data->flight_tail++ & data->flight_mask] = (struct verbs_flight){
		.completion = completion,
		.stage_end = data->stage_tail,
		.copy_end = data->copy_tail,
		.wrs = data->flight_wrs,
	};
	data->flight_wrs = 0;
	data->batched_bytes = 0;
}

/*
 * Ends the list under construction; by a flight of nothing where there is nothing, or nothing after
 * its last flight.
 */
static inline void end_list(struct verbs_data *data, struct fabric_completion *completion)
{
	if (likely(data->flight_wrs))
		end_flight(data, completion);
	else
		data->flights[data->flight_tail++ & data->flight_mask] = (struct verbs_flight){
			.completion = completion,
			.stage_end = data->stage_tail,
			.copy_end = data->copy_tail,
		};
}

static __attribute__((cold, noinline)) int ring_failed(struct verbs_data *data, int error, uint32_t posted)
{
	char why[VERBS_DATA_WHY_BYTES];

	data->list_chains += posted != 0;
	data->flight_tail = data->list_first;
	snprintf(why, sizeof(why), "%s to %s broke: the device took %u work requests and then none: %s",
		 data->config.local, data->config.peer, posted, strerror(error));
	verbs_data_break(data, why);
	return -ENOTCONN;
}

/* Hands the chain over. -ENOTCONN: the endpoint is broken, and none of this list's flights is left. */
static inline int ring(struct verbs_data *data)
{
	uint32_t n = data->chain_wrs;
	struct ibv_send_wr *last, *next, *bad = NULL;
	int ret;

	if (!n)
		return 0;
	last = &data->wrs[n - 1];
	next = last->next;
	last->next = NULL;
	ret = ibv_post_send(data->qp, data->wrs, &bad);
	last->next = next;
	data->counts.doorbells++;
	if (unlikely(ret)) {
		uint32_t posted = bad ? (uint32_t)(bad - data->wrs) : 0;

		data->counts.work_requests += posted;
		return ring_failed(data, ret, posted);
	}
	data->counts.work_requests += n;
	data->free_wrs -= n;
	data->chain_wrs = 0;
	data->list_chains++;
	return 0;
}

static inline struct ibv_send_wr *next_wr(struct verbs_data *data)
{
	struct ibv_send_wr *wr = &data->wrs[data->chain_wrs++];

	data->flight_wrs++;
	wr->wr_id = data->flight_tail;
	wr->num_sge = 1;
	wr->send_flags = 0;
	return wr;
}

static inline void push_copy(struct verbs_data *data, void *to, uint64_t from, uint64_t len_bytes,
			     bool is_word)
{
	data->copies[data->copy_tail++ & data->copy_mask] = (struct verbs_copy){
		.to = to,
		.from = (uint32_t)from,
		.len_bytes = (uint32_t)len_bytes,
		.is_word = is_word,
	};
}

static inline unsigned int fence_of(const struct fabric_op *op)
{
	return op->flags & FABRIC_FENCE ? IBV_SEND_FENCE : 0;
}

/* A work request for a READ or WRITE; its local memory is filled in by the caller. */
static inline struct ibv_send_wr *transfer_wr(struct verbs_data *data, uint32_t opcode,
					      uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr *wr = next_wr(data);

	wr->opcode = opcode == FABRIC_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	wr->sg_list = &data->sges[wr - data->wrs];
	wr->wr.rdma.remote_addr = remote;
	wr->wr.rdma.rkey = rkey;
	return wr;
}

static inline void stage_piece(struct verbs_data *data, const struct fabric_op *op, char *local,
			       struct ibv_sge *sge, uint64_t at)
{
	sge->addr = (uintptr_t)data->staging + at;
	sge->lkey = data->sink.lkey;
	data->counts.copied += sge->length;
	data->batched_bytes += sge->length;
	if (op->opcode == FABRIC_READ) {
		push_copy(data, local, at, sge->length, false);
	} else {
		base_copy(data->staging + at, local, sge->length);
	}
}

/*
 * Builds work requests for a READ or WRITE from *done bytes on. 0 when it is all built, -EAGAIN when
 * there is no room for more, -ENOTCONN.
 */
static inline int emit_transfer(struct verbs_data *data, const struct fabric_op *op, uint64_t *done)
{
	const struct verbs_granted *granted = &data->granted[op->region];
	uint32_t lkey = 0;
	enum verbs_way way = verbs_way_of(data, op, op->len_bytes, &lkey);
	uint64_t unit = verbs_unit_of(data, way);

	do {
		uint64_t offset = op->offset + *done, at = 0;
		uint64_t len_bytes = verbs_cut(offset, op->len_bytes - *done, unit);
		char *local = (char *)op->local + *done;
		struct ibv_send_wr *wr;
		struct ibv_sge *sge;

		if (unlikely(data->chain_wrs == data->free_wrs))
			return -EAGAIN;
		if (way == VERBS_STAGED &&
		    unlikely((at = verbs_stage_take(data, len_bytes)) == UINT64_MAX))
			return -EAGAIN;
		wr = transfer_wr(data, op->opcode, granted->address + offset, granted->rkey);
		sge = wr->sg_list;
		sge->addr = (uintptr_t)local;
		sge->length = (uint32_t)len_bytes;
		sge->lkey = lkey;
		wr->num_sge = len_bytes != 0;
		wr->send_flags = *done ? 0 : fence_of(op);
		if (way == VERBS_STAGED)
			stage_piece(data, op, local, sge, at);
		else if (way == VERBS_INLINE && len_bytes)
			wr->send_flags |= IBV_SEND_INLINE;
		data->counts.bytes += len_bytes;
		*done += len_bytes;
		if (unlikely(data->batched_bytes >= data->batch_bytes)) {
			end_flight(data, NULL);
			if (op->opcode == FABRIC_WRITE && ring(data))
				return -ENOTCONN;
		}
	} while (*done < op->len_bytes);
	return 0;
}

static inline int emit_atomic(struct verbs_data *data, const struct fabric_op *op)
{
	const struct verbs_granted *granted = &data->granted[op->region];
	bool add = op->opcode == FABRIC_FETCH_ADD;
	struct ibv_send_wr *wr;
	uint64_t at = 0;

	if (unlikely(data->chain_wrs == data->free_wrs))
		return -EAGAIN;
	if (op->local && (at = verbs_stage_take(data, sizeof(uint64_t))) == UINT64_MAX)
		return -EAGAIN;
	wr = next_wr(data);
	wr->opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
	wr->send_flags = fence_of(op);
	wr->wr.atomic.remote_addr = granted->address + op->offset;
	wr->wr.atomic.rkey = granted->rkey;
	wr->wr.atomic.compare_add = add ? op->operand : op->compare;
	wr->wr.atomic.swap = add ? 0 : op->operand;
	wr->sg_list = &data->sink;
	if (op->local) {
		wr->sg_list = &data->sges[wr - data->wrs];
		*wr->sg_list = data->sink;
		wr->sg_list->addr = (uintptr_t)data->staging + at;
		push_copy(data, op->local, at, sizeof(uint64_t), true);
	}
	return 0;
}

/* There is room for all of it. */
static void emit_adds(struct verbs_data *data, const struct fabric_op *op)
{
	const struct verbs_granted *granted = &data->granted[op->region];
	unsigned int flags = fence_of(op);

	for (uint32_t i = 0; i < op->count; i++) {
		struct ibv_send_wr *wr = next_wr(data);

		wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr->send_flags = flags;
		wr->sg_list = &data->sink;
		wr->wr.atomic.remote_addr = granted->address + op->offsets[i];
		wr->wr.atomic.rkey = granted->rkey;
		wr->wr.atomic.compare_add = op->addends[i];
		flags = 0;
	}
}

/* The elements of a list that share a run, or whose local memory is registered. There is room. */
static void emit_run(struct verbs_data *data, const struct fabric_op *op, uint32_t first, uint32_t n)
{
	const struct verbs_granted *granted = &data->granted[op->region];
	char *local = (char *)op->local + first * op->len_bytes;
	uint64_t at = verbs_stage_take(data, n * op->len_bytes);

	for (uint32_t i = 0; i < n; i++) {
		struct ibv_send_wr *wr = transfer_wr(
			data, FABRIC_READ, granted->address + op->offsets[first + i], granted->rkey);

		*wr->sg_list = (struct ibv_sge){
			.addr = (uintptr_t)data->staging + at + i * op->len_bytes,
			.length = (uint32_t)op->len_bytes,
			.lkey = data->sink.lkey,
		};
		wr->num_sge = op->len_bytes != 0;
		wr->send_flags = first + i ? 0 : fence_of(op);
	}
	push_copy(data, local, at, n * op->len_bytes, false);
	data->counts.bytes += n * op->len_bytes;
	data->counts.copied += n * op->len_bytes;
	data->batched_bytes += n * op->len_bytes;
	if (data->batched_bytes >= data->batch_bytes)
		end_flight(data, NULL);
}

static struct fabric_op element_of(const struct fabric_op *op, uint32_t i)
{
	bool add = op->opcode == FABRIC_FETCH_ADD_LIST;
	struct fabric_op one = {
		.opcode = add ? FABRIC_FETCH_ADD : FABRIC_READ,
		.flags = i ? 0 : op->flags & FABRIC_FENCE,
		.region = op->region,
		.offset = op->offsets[i],
		.len_bytes = op->len_bytes,
	};

	if (add)
		one.operand = op->addends[i];
	else
		one.local = (char *)op->local + i * op->len_bytes;
	return one;
}

static int emit_reads(struct verbs_data *data, const struct fabric_op *op)
{
	uint64_t run = verbs_run_elements(data, op->len_bytes);
	uint32_t lkey;
	int ret = 0;

	if (run && op->count && verbs_way_of(data, op, op->count * op->len_bytes, &lkey) == VERBS_STAGED) {
		for (uint32_t i = 0; i < op->count; i += (uint32_t)run)
			emit_run(data, op, i, run < op->count - i ? (uint32_t)run : op->count - i);
		return 0;
	}
	for (uint32_t i = 0; i < op->count && !ret; i++) {
		struct fabric_op one = element_of(op, i);
		uint64_t done = 0;

		ret = emit_transfer(data, &one, &done);
	}
	return ret;
}

/* Builds an operation for which there is room. 0 or -ENOTCONN. */
static inline int emit(struct verbs_data *data, const struct fabric_op *op)
{
	uint64_t done = 0;

	switch (op->opcode) {
	case FABRIC_READ:
	case FABRIC_WRITE:
		return emit_transfer(data, op, &done);
	case FABRIC_READ_LIST:
		return emit_reads(data, op);
	case FABRIC_FETCH_ADD_LIST:
		emit_adds(data, op);
		return 0;
	default:
		return emit_atomic(data, op);
	}
}

/*
 * Room is only short where the queue or the staging is in use. An empty staging is begun anew: for the
 * cache, and so that a list that fits at all fits then.
 */
static inline bool has_room(struct verbs_data *data, const struct verbs_plan *plan)
{
	uint64_t lost = plan->largest_run;

	if (unlikely(plan->wrs > data->free_wrs ||
		     data->flight_tail - data->flight_head + plan->wrs >= data->flight_mask))
		return false;
	if (data->flight_tail == data->flight_head)
		lost = data->stage_tail = data->stage_head = 0;
	return plan->stage_bytes + lost <= data->staging_bytes - (data->stage_tail - data->stage_head);
}

/* Builds and posts a list for which there is room. 0 or -ENOTCONN. */
static inline int post_list(struct verbs_data *data, const struct fabric_op *ops, uint32_t n,
			    struct fabric_completion *completion)
{
	int ret = 0;

	data->list_first = data->flight_tail;
	data->list_chains = 0;
	for (uint32_t i = 0; i < n && !ret; i++)
		ret = emit(data, &ops[i]);
	if (unlikely(ret))
		return ret;
	end_list(data, completion);
	return ring(data);
}

void verbs_rest_issue(struct verbs_data *data)
{
	int ret = 0;

	data->list_first = data->flight_tail;
	while (data->rest_at < data->rest_count) {
		const struct fabric_op *op = &data->rest[data->rest_at];

		if (op->opcode <= FABRIC_WRITE)
			ret = emit_transfer(data, op, &data->rest_done);
		else
			ret = emit_atomic(data, op);
		if (ret)
			break;
		data->rest_at++;
		data->rest_done = 0;
	}
	if (ret == -ENOTCONN)
		return;
	if (ret) {
		if (data->flight_wrs)
			end_flight(data, NULL);
		ring(data);
		return;
	}
	end_list(data, data->rest_completion);
	if (!ring(data))
		data->rest_count = 0;
}

/* Takes a list that no queue and staging of this size could hold. */
static void rest_take(struct verbs_data *data, const struct fabric_op *ops, uint32_t n,
		      struct fabric_completion *completion)
{
	unsigned char *saved = data->saved;

	for (uint32_t i = 0; i < n; i++) {
		const struct fabric_op *op = &ops[i];

		if (op->opcode >= FABRIC_READ_LIST) {
			for (uint32_t k = 0; k < op->count; k++)
				data->rest[data->rest_count++] = element_of(op, k);
			continue;
		}
		data->rest[data->rest_count] = *op;
		if (op->opcode == FABRIC_WRITE && op->flags & FABRIC_INLINE) {
			memcpy(saved, op->local, op->len_bytes);
			data->rest[data->rest_count].local = saved;
			saved += VERBS_DATA_INLINE;
		}
		data->rest_count++;
	}
	data->rest_at = 0;
	data->rest_done = 0;
	data->rest_completion = completion;
	verbs_rest_issue(data);
}

/*
 * A list that broke the endpoint. If some of it was posted it is in doubt: then it counts as posted, and
 * has completed with the error.
 */
static __attribute__((cold, noinline)) int post_broke(struct verbs_data *data,
						      struct fabric_completion *completion)
{
	if (!data->list_chains) {
		completion->pending--;
		data->lists--;
		return verbs_data_gone(data);
	}
	verbs_complete(data, completion, -ENOTCONN);
	return 0;
}

int verbs_data_post(struct verbs_data *data, const struct fabric_op *ops, uint32_t n,
		    struct fabric_completion *completion)
{
	struct verbs_plan plan;
	int ret;

	if (unlikely(data->broken))
		return verbs_data_gone(data);
	ret = verbs_plan(data, ops, n, &plan);
	if (unlikely(ret))
		return ret;
	if (unlikely(data->rest_count))
		return -EAGAIN;
	if (likely(has_room(data, &plan))) {
		completion->pending++;
		data->lists++;
		ret = post_list(data, ops, n, completion);
		return likely(!ret) ? 0 : post_broke(data, completion);
	}
	if (plan.wrs <= data->depth && plan.stage_bytes <= data->staging_bytes / 2)
		return -EAGAIN;
	completion->pending++;
	data->lists++;
	rest_take(data, ops, n, completion);
	return 0;
}

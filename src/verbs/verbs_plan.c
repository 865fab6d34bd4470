/* SPDX-License-Identifier: BSD-2-Clause */
/* Which lists are admitted, and what they will take. */
#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "verbs/verbs_data_private.h"

#define OPCODES (FABRIC_FETCH_ADD_LIST + 1)

static const uint8_t rights_of[OPCODES] = {
	[FABRIC_READ] = FABRIC_MAY_READ,        [FABRIC_WRITE] = FABRIC_MAY_WRITE,
	[FABRIC_FETCH_ADD] = FABRIC_MAY_ATOMIC, [FABRIC_COMPARE_SWAP] = FABRIC_MAY_ATOMIC,
	[FABRIC_READ_LIST] = FABRIC_MAY_READ,   [FABRIC_FETCH_ADD_LIST] = FABRIC_MAY_ATOMIC,
};

static const char *const opcode_names[OPCODES] = {
	[FABRIC_READ] = "READ",           [FABRIC_WRITE] = "WRITE",
	[FABRIC_FETCH_ADD] = "FETCH_ADD", [FABRIC_COMPARE_SWAP] = "COMPARE_SWAP",
	[FABRIC_READ_LIST] = "READ_LIST", [FABRIC_FETCH_ADD_LIST] = "FETCH_ADD_LIST",
};

/* Says why an operation was refused. */
static __attribute__((cold, noinline)) int refuse(const struct verbs_data *data,
						  const struct fabric_op *op, int code)
{
	const char *name = op->opcode && op->opcode < OPCODES ? opcode_names[op->opcode] : "operation";

	switch (code) {
	case -EACCES:
		return base_fail(code, "region %u of %s was not granted for %s", op->region,
				 data->config.peer, name);
	case -ERANGE:
		return base_fail(code, "%s at %" PRIu64 " of %" PRIu64 " bytes is beyond region %u of %s",
				 name, op->offset, op->len_bytes, op->region, data->config.peer);
	default:
		return base_fail(code,
				 "%s at %" PRIu64 " of %" PRIu64
				 " bytes: opcode %u, region %u: misaligned, too large or invalid",
				 name, op->offset, op->len_bytes, op->opcode, op->region);
	}
}

static int admit_list(const struct verbs_granted *granted, const struct fabric_op *op)
{
	bool add = op->opcode == FABRIC_FETCH_ADD_LIST;
	uint64_t len_bytes = add ? sizeof(uint64_t) : op->len_bytes, max = 0, all = 0;

	for (uint32_t i = 0; i < op->count; i++) {
		uint64_t offset = op->offsets[i];

		all |= offset;
		max = offset > max ? offset : max;
	}
	if (add && all % sizeof(uint64_t))
		return -EINVAL;
	if (op->count && (len_bytes > granted->len_bytes || max > granted->len_bytes - len_bytes))
		return -ERANGE;
	return 0;
}

/* 0, -EINVAL, -EACCES or -ERANGE. */
static inline int admit(const struct verbs_data *data, const struct fabric_op *op)
{
	const struct verbs_granted *granted;
	uint64_t len_bytes = sizeof(uint64_t);

	if (unlikely(op->opcode >= OPCODES || !rights_of[op->opcode]))
		return -EINVAL;
	if (unlikely(op->region >= FABRIC_MAX_REGIONS))
		return -EACCES;
	granted = &data->granted[op->region];
	if (unlikely(!(granted->rights & rights_of[op->opcode])))
		return -EACCES;
	if (op->opcode >= FABRIC_READ_LIST)
		return op->count > data->depth ? -EINVAL : admit_list(granted, op);
	if (op->opcode <= FABRIC_WRITE)
		len_bytes = op->len_bytes;
	else if (unlikely(op->offset % sizeof(uint64_t)))
		return -EINVAL;
	if (unlikely(len_bytes > granted->len_bytes || op->offset > granted->len_bytes - len_bytes))
		return -ERANGE;
	if (unlikely(op->opcode == FABRIC_WRITE && op->flags & FABRIC_INLINE &&
		     len_bytes > VERBS_DATA_INLINE))
		return -EINVAL;
	return 0;
}

static inline void plan_stage(struct verbs_plan *plan, uint64_t runs, uint64_t len_bytes, uint64_t run_bytes)
{
	uint64_t largest = verbs_lines(run_bytes);

	plan->stage_bytes += verbs_lines(len_bytes) + (runs - 1) * VERBS_LINE_BYTES;
	if (largest > plan->largest_run)
		plan->largest_run = largest;
}

static inline void plan_transfer(const struct verbs_data *data, const struct fabric_op *op,
				 struct verbs_plan *plan)
{
	uint32_t lkey;
	enum verbs_way way = verbs_way_of(data, op, op->len_bytes, &lkey);
	uint64_t unit = verbs_unit_of(data, way), n = verbs_pieces(op->offset, op->len_bytes, unit);

	plan->wrs += n;
	if (way == VERBS_STAGED)
		plan_stage(plan, n, op->len_bytes, n > 1 ? unit : op->len_bytes);
}

static void plan_reads(const struct verbs_data *data, const struct fabric_op *op, struct verbs_plan *plan)
{
	uint64_t run = verbs_run_elements(data, op->len_bytes), all = op->count * op->len_bytes;
	struct fabric_op one = { .opcode = FABRIC_READ, .len_bytes = op->len_bytes };
	uint32_t lkey;

	if (!op->count)
		return;
	if (run && verbs_way_of(data, op, all, &lkey) == VERBS_STAGED) {
		plan->wrs += op->count;
		plan_stage(plan, (op->count + run - 1) / run, all,
			   (run < op->count ? run : op->count) * op->len_bytes);
		return;
	}
	for (uint32_t i = 0; i < op->count; i++) {
		one.offset = op->offsets[i];
		one.local = (char *)op->local + i * op->len_bytes;
		plan_transfer(data, &one, plan);
	}
}

static inline int plan_op(const struct verbs_data *data, const struct fabric_op *op,
			  struct verbs_plan *plan)
{
	int ret = admit(data, op);

	if (unlikely(ret))
		return refuse(data, op, ret);
	plan->ops += op->opcode >= FABRIC_READ_LIST ? op->count : 1;
	switch (op->opcode) {
	case FABRIC_READ:
	case FABRIC_WRITE:
		plan_transfer(data, op, plan);
		break;
	case FABRIC_READ_LIST:
		plan_reads(data, op, plan);
		break;
	case FABRIC_FETCH_ADD_LIST:
		plan->wrs += op->count;
		break;
	default:
		plan->wrs++;
		if (op->local)
			plan_stage(plan, 1, sizeof(uint64_t), sizeof(uint64_t));
		break;
	}
	return 0;
}

int verbs_plan(const struct verbs_data *data, const struct fabric_op *ops, uint32_t n,
	       struct verbs_plan *plan)
{
	*plan = (struct verbs_plan){ 0 };
	for (uint32_t i = 0; i < n; i++) {
		int ret = plan_op(data, &ops[i], plan);

		if (unlikely(ret))
			return ret;
	}
	if (unlikely(!n || plan->ops > data->depth))
		return base_fail(-EINVAL, "%" PRIu64 " operations in one post; 1 to %u are possible",
				 plan->ops, data->depth);
	return 0;
}

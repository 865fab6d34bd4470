/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data path. An operation is done when post returns: nothing is ever outstanding, and
 * completions stay as they are. A list is checked whole before any of it is done.
 *
 * Order: atomics are sequentially consistent, so they come after WRITEs before them; READs end
 * with an acquire and WRITEs begin with a release, so neither needs more for FABRIC_FENCE.
 *
 * The memory outlives the server, so its death has to be looked for: with every
 * SHM_POSTS_PER_CLOCK-th post, and each large one, the clock is read, and when SHM_LOOK_NS have
 * passed the socket is polled.
 */
#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/word.h"
#include "shm/shm_private.h"

#define POSTS_PER_CLOCK 64
#define LARGE_BYTES     16384

typedef uint64_t any_word __attribute__((aligned(1), may_alias));

static const uint8_t rights_of[FABRIC_FETCH_ADD_LIST + 1] = {
	[FABRIC_READ] = FABRIC_MAY_READ,        [FABRIC_WRITE] = FABRIC_MAY_WRITE,
	[FABRIC_FETCH_ADD] = FABRIC_MAY_ATOMIC, [FABRIC_COMPARE_SWAP] = FABRIC_MAY_ATOMIC,
	[FABRIC_READ_LIST] = FABRIC_MAY_READ,   [FABRIC_FETCH_ADD_LIST] = FABRIC_MAY_ATOMIC,
};

static const char *const opcode_names[FABRIC_FETCH_ADD_LIST + 1] = {
	[FABRIC_READ] = "READ",           [FABRIC_WRITE] = "WRITE",
	[FABRIC_FETCH_ADD] = "FETCH_ADD", [FABRIC_COMPARE_SWAP] = "COMPARE_SWAP",
	[FABRIC_READ_LIST] = "READ_LIST", [FABRIC_FETCH_ADD_LIST] = "FETCH_ADD_LIST",
};

/* Says why an operation was refused. */
__attribute__((cold, noinline)) int shm_refuse(const struct shm_endpoint *ep,
					       const struct fabric_op *op, int code)
{
	const char *name = op->opcode && op->opcode <= FABRIC_FETCH_ADD_LIST ?
				   opcode_names[op->opcode] :
				   "operation";

	switch (code) {
	case -ENOTCONN:
		return base_fail(code, "the server %s is gone; connect again", ep->address);
	case -EACCES:
		return base_fail(code, "region %u of %s was not granted for %s", op->region,
				 ep->address, name);
	case -ERANGE:
		return base_fail(code, "%s at %" PRIu64 " of %" PRIu64 " bytes is beyond region %u of %s",
				 name, op->offset, op->len_bytes, op->region, ep->address);
	default:
		return base_fail(code, "%s at %" PRIu64 ": opcode %u, region %u: misaligned or invalid",
				 name, op->offset, op->opcode, op->region);
	}
}

/* Looks whether the peer is there, if it is time to. */
int shm_look(struct shm_endpoint *ep, uint64_t now_ns)
{
	if (now_ns - ep->looked_ns < SHM_LOOK_NS)
		return 0;
	ep->looked_ns = now_ns;
	return shm_check(&ep->base);
}

static inline int tick(struct shm_endpoint *ep, uint64_t len_bytes)
{
	if (likely(++ep->posts < POSTS_PER_CLOCK && len_bytes < LARGE_BYTES))
		return 0;
	ep->posts = 0;
	return shm_look(ep, base_now_ns());
}

int shm_tick(struct shm_endpoint *ep, uint64_t len_bytes)
{
	return tick(ep, len_bytes);
}

static int admit_list(const struct shm_region *region, const struct fabric_op *op)
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
	if (op->count && (len_bytes > region->len_bytes || max > region->len_bytes - len_bytes))
		return -ERANGE;
	return 0;
}

/* 0, -EINVAL, -EACCES or -ERANGE. */
static inline int admit(const struct shm_endpoint *ep, const struct fabric_op *op)
{
	const struct shm_region *region;
	uint64_t len_bytes = sizeof(uint64_t);

	if (unlikely(op->opcode > FABRIC_FETCH_ADD_LIST || !rights_of[op->opcode]))
		return -EINVAL;
	if (unlikely(op->region >= FABRIC_MAX_REGIONS))
		return -EACCES;
	region = &ep->regions[op->region];
	if (unlikely(!(region->rights & rights_of[op->opcode])))
		return -EACCES;
	if (op->opcode >= FABRIC_READ_LIST)
		return admit_list(region, op);
	if (op->opcode <= FABRIC_WRITE)
		len_bytes = op->len_bytes;
	else if (unlikely(op->offset % sizeof(uint64_t)))
		return -EINVAL;
	if (unlikely(len_bytes > region->len_bytes || op->offset > region->len_bytes - len_bytes))
		return -ERANGE;
	return 0;
}

int shm_admit(const struct shm_endpoint *ep, const struct fabric_op *op)
{
	return admit(ep, op);
}

static inline void read_remote(const char *from, const struct fabric_op *op)
{
	if (op->len_bytes == sizeof(uint64_t) && !((uintptr_t)from % sizeof(uint64_t))) {
		*(any_word *)op->local = word_acquire((const uint64_t *)from);
		return;
	}
	base_copy(op->local, from, op->len_bytes);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static inline void write_remote(char *to, const struct fabric_op *op)
{
	if (op->len_bytes == sizeof(uint64_t) && !((uintptr_t)to % sizeof(uint64_t))) {
		word_publish((uint64_t *)to, *(const any_word *)op->local);
		return;
	}
	__atomic_thread_fence(__ATOMIC_RELEASE);
	base_copy_out(to, op->local, op->len_bytes);
}

static void read_list(const char *base, const struct fabric_op *op)
{
	char *to = op->local;

	if (op->len_bytes == sizeof(uint64_t)) {
		for (uint32_t i = 0; i < op->count; i++, to += sizeof(uint64_t))
			base_copy(to, base + op->offsets[i], sizeof(uint64_t));
	} else {
		for (uint32_t i = 0; i < op->count; i++, to += op->len_bytes)
			base_copy(to, base + op->offsets[i], op->len_bytes);
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static void fetch_add_list(struct shm_endpoint *ep, char *base, const struct fabric_op *op)
{
	const uint64_t *offsets = op->offsets, *addends = op->addends;
	uint32_t count = op->count;

	for (uint32_t i = 0; i < count; i++)
		__atomic_fetch_add((uint64_t *)(base + offsets[i]), addends[i], __ATOMIC_SEQ_CST);
	if (unlikely(op->flags & FABRIC_WAITABLE))
		for (uint32_t i = 0; i < count; i++)
			shm_ring(shm_bell(ep->bells, op->region, offsets[i]));
}

static inline void atomic_one(struct shm_endpoint *ep, uint64_t *word, const struct fabric_op *op)
{
	uint64_t old = op->compare;

	if (op->opcode == FABRIC_FETCH_ADD)
		old = __atomic_fetch_add(word, op->operand, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(word, &old, op->operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	if (op->local)
		*(any_word *)op->local = old;
	if (op->flags & FABRIC_WAITABLE)
		shm_ring(shm_bell(ep->bells, op->region, op->offset));
}

static inline void execute(struct shm_endpoint *ep, const struct fabric_op *op)
{
	char *base = ep->regions[op->region].base;

	switch (op->opcode) {
	case FABRIC_READ:
		read_remote(base + op->offset, op);
		break;
	case FABRIC_WRITE:
		write_remote(base + op->offset, op);
		break;
	case FABRIC_READ_LIST:
		read_list(base, op);
		break;
	case FABRIC_FETCH_ADD_LIST:
		fetch_add_list(ep, base, op);
		break;
	default:
		atomic_one(ep, (uint64_t *)(base + op->offset), op);
		break;
	}
}

/* Operations of a list as the limit counts them, and the largest of its transfers. */
static int admit_all(struct shm_endpoint *ep, const struct fabric_op *ops, uint32_t n, uint64_t *largest)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		int ret = admit(ep, &ops[i]);

		if (unlikely(ret))
			return shm_refuse(ep, &ops[i], ret);
		if (ops[i].opcode >= FABRIC_READ_LIST)
			count += ops[i].count;
		else
			count++;
		if (ops[i].opcode <= FABRIC_WRITE && ops[i].len_bytes > *largest)
			*largest = ops[i].len_bytes;
	}
	if (!n || count > SHM_MAX_OPS)
		return base_fail(-EINVAL, "%" PRIu64 " operations in one post; 1 to %u are possible",
				 count, SHM_MAX_OPS);
	return 0;
}

int shm_post(struct fabric_endpoint *base, const struct fabric_op *ops, uint32_t n,
	     struct fabric_completion *completion)
{
	struct shm_endpoint *ep = shm_of(base);
	uint64_t largest = 0;
	int ret;

	(void)completion;
	if (unlikely(ep->broken))
		return shm_refuse(ep, ops, -ENOTCONN);
	if (likely(n == 1 && ops->opcode < FABRIC_READ_LIST)) {
		ret = admit(ep, ops);
		if (unlikely(ret))
			return shm_refuse(ep, ops, ret);
		ret = tick(ep, ops->opcode <= FABRIC_WRITE ? ops->len_bytes : 0);
		if (unlikely(ret))
			return ret;
		execute(ep, ops);
		return 0;
	}
	ret = admit_all(ep, ops, n, &largest);
	if (ret)
		return ret;
	ret = tick(ep, largest);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < n; i++)
		execute(ep, &ops[i]);
	return 0;
}

int shm_poll(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	(void)deadline_ns;
	return shm_of(ep)->broken ? base_fail(-ENOTCONN, "%s is gone; connect again", ep->address) : 0;
}

const void *shm_map(struct fabric_endpoint *base, uint32_t region, uint64_t offset, uint64_t len_bytes)
{
	const struct shm_endpoint *ep = shm_of(base);
	const struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = (uint16_t)region,
		.offset = offset,
		.len_bytes = len_bytes,
	};

	if (region >= FABRIC_MAX_REGIONS || admit(ep, &op))
		return NULL;
	return ep->regions[region].base + offset;
}

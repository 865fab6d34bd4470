/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a device's atomics are what everything here rests on. Some devices have none; one returned
 * results in big-endian order, which can be mended, and is. A word that is added to in another order, or
 * in halves, can't.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "verbs/verbs_data_private.h"

#define SCRATCH_BYTES 4096u
#define PATIENCE_NS   (5 * NS_PER_S)
#define PATTERN       0x01020304fffefdfcull
#define ADDEND        0x0000000102030405ull /* carries into the upper half */
#define UNTOUCHED     0xa5a5a5a5a5a5a5a5ull

/* Executes one operation on the middle one of three words. */
static int try(struct verbs_data *data, const struct fabric_op *op)
{
	struct fabric_completion completion = { 0 };
	uint64_t deadline_ns = base_now_ns() + PATIENCE_NS;
	int ret = verbs_data_post(data, op, 1, &completion);

	while (!ret && completion.pending) {
		ret = verbs_data_poll(data, deadline_ns);
		if (!ret && completion.pending && base_now_ns() >= deadline_ns) {
			verbs_data_break(data, "the device did not answer its own READ or atomic");
			ret = -ENOTCONN;
		}
	}
	return ret ? ret : completion.status;
}

static int expect(const uint64_t *words, uint64_t value, const char *what)
{
	uint64_t found = __atomic_load_n(&words[1], __ATOMIC_ACQUIRE);

	if (found != value)
		return base_fail(-EOPNOTSUPP,
				 "this RDMA device can't be used: its %s made %016" PRIx64
				 " of a word, not %016" PRIx64,
				 what, found, value);
	if (words[0] != UNTOUCHED || words[2] != UNTOUCHED)
		return base_fail(-EOPNOTSUPP,
				 "this RDMA device can't be used: its %s changed the words beside",
				 what);
	return 0;
}

static int check_add(struct verbs_data *data, uint64_t *words, bool *swapped)
{
	uint64_t old = 0;
	const struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.offset = 8,
		.operand = ADDEND,
		.local = &old,
	};
	int ret = try(data, &op);

	if (!ret)
		ret = expect(words, PATTERN + ADDEND, "fetch-add");
	if (ret)
		return ret;
	*swapped = old == __builtin_bswap64(PATTERN);
	if (old != PATTERN && !*swapped)
		return base_fail(-EOPNOTSUPP,
				 "this RDMA device can't be used: its fetch-add of %016llx returned %016" PRIx64,
				 PATTERN, old);
	data->config.swapped = *swapped;
	return 0;
}

static int check_swap(struct verbs_data *data, uint64_t *words)
{
	uint64_t value = PATTERN + ADDEND, old = 0;
	struct fabric_op op = {
		.opcode = FABRIC_COMPARE_SWAP,
		.offset = 8,
		.compare = value ^ (1ull << 63),
		.operand = PATTERN,
		.local = &old,
	};
	int ret = try(data, &op);

	if (!ret)
		ret = expect(words, value, "compare-and-swap of another value");
	if (!ret && old != value)
		ret = base_fail(-EOPNOTSUPP, "this RDMA device can't be used: its compare-and-swap does "
					     "not return the word");
	op.compare = value;
	if (!ret)
		ret = try(data, &op);
	if (!ret)
		ret = expect(words, PATTERN, "compare-and-swap");
	return ret;
}

int verbs_data_selftest(struct verbs_data *data, bool *swapped)
{
	struct verbs_granted granted = { .len_bytes = 24, .rights = FABRIC_MAY_READ | FABRIC_MAY_ATOMIC };
	uint64_t *words;
	struct ibv_mr *mr;
	int ret;

	if (data->config.atomic_cap == IBV_ATOMIC_NONE)
		return base_fail(-EOPNOTSUPP, "this RDMA device has no atomics, and ramps needs them: "
					      "use another (ibv_devinfo -v shows atomic_cap)");
	words = mmap(NULL, SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (words == MAP_FAILED)
		return base_fail(-ENOMEM, "no memory");
	mr = ibv_reg_mr(data->config.pd, words, SCRATCH_BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr) {
		ret = base_fail(-errno, "can't register a page with the RDMA device: %s",
				strerror(errno));
		goto unmap;
	}
	words[0] = words[2] = UNTOUCHED;
	words[1] = PATTERN;
	granted.address = (uintptr_t)words;
	granted.rkey = mr->rkey;
	data->granted[0] = granted;
	data->config.swapped = false;
	ret = check_add(data, words, swapped);
	if (!ret)
		ret = check_swap(data, words);
	data->granted[0] = (struct verbs_granted){ 0 };
	ibv_dereg_mr(mr);
unmap:
	munmap(words, SCRATCH_BYTES);
	return ret;
}

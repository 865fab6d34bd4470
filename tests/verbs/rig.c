/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <ramps/ramps.h>

#include "base/error.h"

static uint64_t rig_now(struct fabric *fabric)
{
	(void)fabric;
	return base_now_ns();
}

static void rig_sleep(struct fabric *fabric, uint64_t deadline_ns)
{
	uint64_t now = base_now_ns();

	(void)fabric;
	if (now < deadline_ns)
		usleep((useconds_t)((deadline_ns - now) / 1000));
}

static int rig_post(struct fabric_endpoint *ep, const struct fabric_op *ops, uint32_t n,
		    struct fabric_completion *completion)
{
	return verbs_data_post(&((struct rig *)ep)->data, ops, n, completion);
}

static int rig_poll(struct fabric_endpoint *ep, uint64_t deadline_ns)
{
	return verbs_data_poll(&((struct rig *)ep)->data, deadline_ns);
}

static struct fabric_ops rig_ops;

static void grant(struct rig *rig, uint32_t region, int access, uint32_t rights)
{
	struct verbs_granted granted = { .len_bytes = REGION_BYTES, .rights = rights };

	rig->memory[region] = aligned_alloc(4096, REGION_BYTES);
	assert_non_null(rig->memory[region]);
	memset(rig->memory[region], 0, REGION_BYTES);
	rig->mrs[region] = ibv_reg_mr(rig->pd, rig->memory[region], REGION_BYTES, access);
	assert_non_null(rig->mrs[region]);
	granted.address = (uintptr_t)rig->memory[region];
	granted.rkey = rig->mrs[region]->rkey;
	assert_ok(verbs_data_grant(&rig->data, region, &granted));
}

void rig_open(struct rig *rig, const struct verbs_data_config *config)
{
	struct verbs_data_config full = *config;
	struct ibv_qp_init_attr attr;

	memset(rig, 0, sizeof(*rig));
	rig->context = fake_open();
	rig->pd = ibv_alloc_pd(rig->context);
	verbs_buffers_open(&rig->buffers, rig->pd);
	full.context = rig->context;
	full.pd = rig->pd;
	full.buffers = &rig->buffers;
	full.max_message_bytes = fake.port.max_msg_sz;
	full.atomic_cap = fake.attr.atomic_cap;
	full.local = "fake0";
	full.peer = "verbs://far:1";
	assert_ok(verbs_data_open(&rig->data, &full));
	verbs_data_qp_attr(&rig->data, &attr);
	rig->qp = fake_connect(rig->pd, &attr);
	assert_non_null(rig->qp);
	verbs_data_start(&rig->data, rig->qp, &attr.cap);
	grant(rig, WORDS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	      FABRIC_MAY_READ | FABRIC_MAY_ATOMIC);
	grant(rig, PUBLISHED, IBV_ACCESS_REMOTE_READ, FABRIC_MAY_READ);
	grant(rig, SLOTS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, FABRIC_MAY_WRITE);
	grant(rig, ALL,
	      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		      IBV_ACCESS_REMOTE_ATOMIC,
	      FABRIC_MAY_READ | FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC);
	rig_ops = fabric_defaults;
	rig_ops.now = rig_now;
	rig_ops.sleep = rig_sleep;
	rig_ops.post = rig_post;
	rig_ops.poll = rig_poll;
	rig->fabric.ops = &rig_ops;
	rig->ep = (struct fabric_endpoint){ .ops = &rig_ops, .fabric = &rig->fabric, .address = "far" };
	verbs_data_limits(&rig->data, 16, &rig->ep.limits);
}

void rig_close(struct rig *rig)
{
	ibv_destroy_qp(rig->qp);
	verbs_data_close(&rig->data);
	verbs_buffers_close(&rig->buffers);
	for (int i = 0; i < REGIONS; i++) {
		ibv_dereg_mr(rig->mrs[i]);
		free(rig->memory[i]);
	}
	ibv_dealloc_pd(rig->pd);
	ibv_close_device(rig->context);
	assert_int_equal(fake.live, 0);
	assert_int_equal(fake.overruns, 0);
	assert_int_equal(fake.cq_overruns, 0);
}

int rig_do(struct rig *rig, const struct fabric_op *ops, uint32_t n)
{
	return fabric_execute(&rig->ep, ops, n, &rig->completion, base_now_ns() + 20 * NS_PER_S);
}

int rig_one(struct rig *rig, struct fabric_op op)
{
	return rig_do(rig, &op, 1);
}

int rig_drain(struct rig *rig)
{
	uint64_t deadline_ns = base_now_ns() + 20 * NS_PER_S;
	int ret;

	while (rig->completion.pending) {
		assert_true(base_now_ns() < deadline_ns);
		verbs_data_poll(&rig->data, deadline_ns);
	}
	ret = rig->completion.status;
	rig->completion.status = 0;
	return ret;
}

void rig_says_too(const char *part)
{
	const struct ramps_error *error = base_last_error();

	if (!strstr(error->text, part))
		fail_msg("'%s' is not in: %s", part, error->text);
}

void rig_says(int code, const char *part)
{
	base_end("rig", -code);
	assert_int_equal(base_last_error()->code, code);
	rig_says_too(part);
}

struct verbs_counts rig_counts(struct rig *rig)
{
	struct verbs_counts counts = rig->data.counts;

	rig->data.counts = (struct verbs_counts){ 0 };
	return counts;
}

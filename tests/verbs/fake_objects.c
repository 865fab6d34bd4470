/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls of libibverbs that make and destroy objects of the fake device, and tell about it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "fake_private.h"

#define KEYS 1024u

struct fake_qp *fake_qps;

static struct fake_mr *mrs[KEYS];
static uint32_t next_key, next_number = 100;
static struct ibv_device devices[FAKE_DEVICES];
static enum ibv_event_type events[16];
static uint32_t event_first, event_last;
static int event_fd = -1;

/* What the linker puts in place of libibverbs' functions. */
struct ibv_device **__wrap_ibv_get_device_list(int *n);
void __wrap_ibv_free_device_list(struct ibv_device **list);
const char *__wrap_ibv_get_device_name(struct ibv_device *device);
struct ibv_context *__wrap_ibv_open_device(struct ibv_device *device);
int __wrap_ibv_close_device(struct ibv_context *context);
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr);
ssize_t __wrap__ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t max, uint32_t flags, size_t entry_size);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void __wrap_ibv_ack_async_event(struct ibv_async_event *event);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *context);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *context);
int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int cqe, void *user,
				    struct ibv_comp_channel *channel, int vector);
int __wrap_ibv_destroy_cq(struct ibv_cq *cq);
int __wrap_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user);
void __wrap_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n);
struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp);

static void *object(size_t size)
{
	void *made;

	if (fake_is_time(&fake.fail_create)) {
		errno = ENOMEM;
		return NULL;
	}
	made = calloc(1, size);
	assert_non_null(made);
	fake.live++;
	return made;
}

static int destroy(void *made)
{
	assert_non_null(made);
	assert_true(fake.live > 0);
	fake.live--;
	free(made);
	return 0;
}

struct ibv_device **__wrap_ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(FAKE_DEVICES + 1, sizeof(struct ibv_device *));

	assert_non_null(list);
	for (uint32_t i = 0; i < fake.devices; i++) {
		snprintf(devices[i].name, sizeof(devices[i].name), "fake%u", i);
		list[i] = &devices[i];
	}
	if (n)
		*n = (int)fake.devices;
	fake.live++;
	return list;
}

void __wrap_ibv_free_device_list(struct ibv_device **list)
{
	destroy(list);
}

const char *__wrap_ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *__wrap_ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = object(sizeof(*context));

	if (!context)
		return NULL;
	event_first = event_last = 0;
	event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_true(event_fd >= 0);
	context->device = device;
	context->ops = fake_ops;
	context->async_fd = event_fd;
	context->num_comp_vectors = 1;
	return context;
}

struct ibv_context *fake_open(void)
{
	snprintf(devices[0].name, sizeof(devices[0].name), "fake0");
	return __wrap_ibv_open_device(&devices[0]);
}

int __wrap_ibv_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	return destroy(context);
}

int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = fake.attr;
	return 0;
}

int __wrap_ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	(void)context;
	if (!port || port > fake.attr.phys_port_cnt)
		return EINVAL;
	memcpy(attr, &fake.port, offsetof(struct ibv_port_attr, port_cap_flags2));
	return 0;
}

ssize_t __wrap__ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				    size_t max, uint32_t flags, size_t entry_size)
{
	(void)context, (void)flags;
	assert_int_equal(entry_size, sizeof(*entries));
	for (size_t i = 0; i < fake.gid_count && i < max; i++)
		entries[i] = fake.gids[i];
	return fake.gid_count;
}

void fake_event(enum ibv_event_type type)
{
	const uint64_t one = 1;

	events[event_last++ % 16] = type;
	assert_int_equal(write(event_fd, &one, sizeof(one)), sizeof(one));
}

int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	if (event_first == event_last) {
		assert_true(fcntl(context->async_fd, F_GETFL) & O_NONBLOCK);
		errno = EAGAIN;
		return -1;
	}
	*event = (struct ibv_async_event){ .event_type = events[event_first++ % 16] };
	fake.live++;
	return 0;
}

void __wrap_ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	fake.live--;
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = object(sizeof(*pd));

	if (pd)
		pd->context = context;
	return pd;
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *pd)
{
	for (uint32_t i = 0; i < KEYS; i++)
		assert_false(mrs[i] && mrs[i]->mr.pd == pd);
	for (struct fake_qp *qp = fake_qps; qp; qp = qp->next)
		assert_ptr_not_equal(qp->qp.pd, pd);
	return destroy(pd);
}

struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct fake_mr *mr = fake_is_time(&fake.fail_register) ? NULL : object(sizeof(*mr));

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	while (mrs[next_key % KEYS])
		next_key++;
	mr->mr = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
		.lkey = next_key * 4096 + 7,
		.rkey = next_key * 4096 + 7,
	};
	mr->access = access;
	mrs[next_key++ % KEYS] = mr;
	return &mr->mr;
}

struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	assert_true(iova == (uintptr_t)addr);
	return __wrap_ibv_reg_mr(pd, addr, length, (int)access);
}

const struct fake_mr *fake_mr_of(uint32_t key)
{
	const struct fake_mr *mr = mrs[key / 4096 % KEYS];

	return mr && mr->mr.lkey == key ? mr : NULL;
}

int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	mrs[mr->lkey / 4096 % KEYS] = NULL;
	return destroy(mr);
}

struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = object(sizeof(*channel));

	if (!channel)
		return NULL;
	channel->context = context;
	channel->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	assert_true(channel->fd >= 0);
	return channel;
}

int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	assert_int_equal(channel->refcnt, 0);
	close(channel->fd);
	return destroy(channel);
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int cqe, void *user,
				    struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq;

	(void)vector;
	if (cqe < 1 || cqe > fake.attr.max_cqe) {
		errno = EINVAL;
		return NULL;
	}
	cq = object(sizeof(*cq));
	if (!cq)
		return NULL;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = user;
	cq->cq.cqe = cqe;
	cq->wcs = calloc((size_t)cqe, sizeof(*cq->wcs));
	assert_non_null(cq->wcs);
	if (channel)
		channel->refcnt++;
	return &cq->cq;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *base)
{
	struct fake_cq *cq = (struct fake_cq *)base;

	/* The real one would wait for ever. */
	assert_int_equal(cq->unacknowledged, 0);
	for (struct fake_qp *qp = fake_qps; qp; qp = qp->next)
		assert_ptr_not_equal(qp->qp.send_cq, base);
	if (base->channel)
		base->channel->refcnt--;
	free(cq->wcs);
	return destroy(cq);
}

int __wrap_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	uint64_t expired;

	if (read(channel->fd, &expired, sizeof(expired)) != sizeof(expired))
		return -1;
	for (struct fake_qp *qp = fake_qps; qp; qp = qp->next) {
		if (qp->qp.send_cq->channel != channel)
			continue;
		*cq = qp->qp.send_cq;
		*user = (*cq)->cq_context;
		((struct fake_cq *)*cq)->unacknowledged++;
		fake.events++;
		return 0;
	}
	return -1;
}

void __wrap_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	assert_true(((struct fake_cq *)cq)->unacknowledged >= n);
	((struct fake_cq *)cq)->unacknowledged -= n;
}

struct ibv_qp *__wrap_ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp;

	if (attr->cap.max_inline_data > fake.most_inline ||
	    attr->cap.max_send_wr > (uint32_t)fake.attr.max_qp_wr) {
		errno = EINVAL;
		return NULL;
	}
	qp = object(sizeof(*qp));
	if (!qp)
		return NULL;
	qp->qp.context = pd->context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.qp_num = next_number++;
	qp->qp.qp_type = attr->qp_type;
	qp->depth = attr->cap.max_send_wr;
	qp->most_inline = attr->cap.max_inline_data;
	qp->next = fake_qps;
	fake_qps = qp;
	return &qp->qp;
}

struct ibv_qp *fake_connect(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return __wrap_ibv_create_qp(pd, attr);
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_STATE) {
		qp->state = attr->qp_state;
		((struct fake_qp *)qp)->error = attr->qp_state == IBV_QPS_ERR;
	}
	return 0;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *base)
{
	struct fake_qp **at = &fake_qps;
	struct fake_cq *cq = (struct fake_cq *)base->send_cq;

	while (&(*at)->qp != base)
		at = &(*at)->next;
	*at = (*at)->next;
	for (uint32_t i = 0; i < cq->count; i++)
		cq->wcs[(cq->first + i) % (uint32_t)cq->cq.cqe].qp = NULL;
	return destroy(base);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completions, and waiting for them. A wait polls for a moment, as an answer comes within
 * microseconds and waking takes longer; then it sleeps on the completion channel. The channel tells
 * only what comes after it was armed, so that the queue is polled once more in between.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/error.h"
#include "verbs/verbs_data_private.h"

#define BATCH           16
#define SPIN_NS         100000ull
#define POLLS_PER_CLOCK 16u

static void copy_out(const struct verbs_data *data, const struct verbs_copy *copy)
{
	const unsigned char *from = data->staging + copy->from;
	uint64_t word;

	if (!copy->is_word) {
		base_copy(copy->to, from, copy->len_bytes);
		return;
	}
	word = *(const uint64_t *)from;
	if (data->config.swapped)
		word = __builtin_bswap64(word);
	memcpy(copy->to, &word, sizeof(word));
}

/* The oldest flight is home. */
static inline void land(struct verbs_data *data)
{
	struct verbs_flight *flight = &data->flights[data->flight_head++ & data->flight_mask];

	for (; data->copy_head != flight->copy_end; data->copy_head++)
		copy_out(data, &data->copies[data->copy_head & data->copy_mask]);
	data->stage_head = flight->stage_end;
	data->free_wrs += flight->wrs;
	if (flight->completion)
		verbs_complete(data, flight->completion, 0);
}

static inline void land_empty(struct verbs_data *data)
{
	while (data->flight_head != data->flight_tail &&
	       !data->flights[data->flight_head & data->flight_mask].wrs)
		land(data);
}

static __attribute__((cold, noinline)) void fail(struct verbs_data *data, const struct ibv_wc *wc)
{
	char why[VERBS_DATA_WHY_BYTES];

	snprintf(why, sizeof(why), "%s to %s broke: %s (%s)", data->config.local, data->config.peer,
		 verbs_status_meaning(wc->status), ibv_wc_status_str(wc->status));
	verbs_data_break(data, why);
}

static inline void take(struct verbs_data *data, const struct ibv_wc *wc)
{
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		fail(data, wc);
		return;
	}
	data->counts.completions++;
	while (data->flight_head != data->flight_tail && (int64_t)(wc->wr_id - data->flight_head) >= 0)
		land(data);
	land_empty(data);
}

/* Takes what has completed. */
static void reap(struct verbs_data *data)
{
	struct ibv_wc wc[BATCH];
	char why[VERBS_DATA_WHY_BYTES];
	int n;

	land_empty(data);
	do {
		n = ibv_poll_cq(data->cq, BATCH, wc);
		for (int i = 0; i < n && !data->broken; i++)
			take(data, &wc[i]);
	} while (unlikely(n == BATCH) && !data->broken);
	if (unlikely(n < 0)) {
		snprintf(why, sizeof(why), "%s to %s broke: the completion queue can't be read",
			 data->config.local, data->config.peer);
		verbs_data_break(data, why);
	}
}

/* Takes what has completed, and posts what there is room for then. */
static void progress(struct verbs_data *data)
{
	reap(data);
	if (unlikely(data->rest_count && !data->broken))
		verbs_rest_issue(data);
}

static inline bool is_done(const struct verbs_data *data)
{
	return data->completed || data->broken || !verbs_data_busy(data);
}

/* Sleeps until the device tells of a completion, or the deadline. */
static void sleep_until(struct verbs_data *data, uint64_t now_ns, uint64_t deadline_ns)
{
	struct pollfd fd = { .fd = data->channel->fd, .events = POLLIN };
	struct timespec left;
	struct ibv_cq *cq;
	void *context;

	if (ibv_req_notify_cq(data->cq, 0)) {
		verbs_data_break(data, "the completion queue can't be armed");
		return;
	}
	progress(data);
	if (is_done(data))
		return;
	deadline_ns -= now_ns;
	left = (struct timespec){
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};
	data->counts.sleeps++;
	if (ppoll(&fd, 1, &left, NULL) > 0 && !ibv_get_cq_event(data->channel, &cq, &context))
		data->events++;
}

static void wait_for_completion(struct verbs_data *data, uint64_t deadline_ns)
{
	uint64_t spin_until = 0, now;

	for (;;) {
		for (uint32_t i = 0; i < POLLS_PER_CLOCK; i++) {
			progress(data);
			if (is_done(data))
				return;
		}
		now = base_now_ns();
		if (now >= deadline_ns)
			return;
		if (!spin_until)
			spin_until = now + SPIN_NS;
		if (now < spin_until)
			continue;
		sleep_until(data, now, deadline_ns);
		spin_until = 0;
	}
}

int verbs_data_poll(struct verbs_data *data, uint64_t deadline_ns)
{
	if (likely(!data->broken))
		progress(data);
	if (deadline_ns && !is_done(data))
		wait_for_completion(data, deadline_ns);
	data->completed = 0;
	return unlikely(data->broken) ? verbs_data_gone(data) : 0;
}

int verbs_data_wait_word(struct verbs_data *data, struct fabric_endpoint *ep,
			 const struct fabric_wait *wait, uint64_t *value)
{
	if (wait->offset % sizeof(uint64_t))
		return base_fail(-EINVAL, "a word at %llu of region %u: it is not aligned",
				 (unsigned long long)wait->offset, wait->region);
	return fabric_wait_by_reading(ep, &data->reading, wait, value);
}

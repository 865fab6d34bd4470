/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waiting on a word by READs. The gap between two READs is a part of the time waited so far: a wait
 * that ends soon is noticed within that part of its length, and a long one costs the server's
 * device next to nothing.
 *
 * That holds for few. Where thousands wait at one device their READs alone fill it, and what they
 * wait for stands in the queue behind them. So the gap has bounds that grow with the crowd: the
 * lower one leaves half of a device that serves 20 M READs/s to others, the upper one 7/8; where
 * READs take long, as in software or behind a queue, they are made the more seldom.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/fabric.h"

#define GAP_SHARE         8u
#define GAP_MAX_NS        200000ull /* of who does not know of a crowd */
#define GAP_OF_ONE_MIN_NS 100ull    /* times the crowd */
#define GAP_OF_ONE_MAX_NS 400ull
#define GAP_CROWD_NS      20000ull /* the upper bound is at least this */
#define GAP_READS         4u       /* and so many times what a READ takes */

static uint64_t later_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* After a READ that took read_ns. */
static uint64_t gap_after(const struct fabric_endpoint *ep, uint64_t waited_ns, uint64_t read_ns)
{
	uint64_t gap = waited_ns / GAP_SHARE, most = GAP_MAX_NS;

	if (ep->crowd)
		most = later_of(ep->crowd * GAP_OF_ONE_MAX_NS, GAP_CROWD_NS);
	most = later_of(most, read_ns * GAP_READS);
	return later_of(gap < most ? gap : most, ep->crowd * GAP_OF_ONE_MIN_NS);
}

static int poll_until_done(struct fabric_endpoint *ep, struct fabric_reading *reading, uint64_t deadline_ns)
{
	int ret;

	while (reading->completion.pending) {
		ret = fabric_poll(ep, deadline_ns);
		if (ret < 0 && reading->completion.pending)
			return ret;
		if (reading->completion.pending && fabric_now(ep->fabric) >= deadline_ns)
			return -ETIMEDOUT;
	}
	ret = reading->completion.status;
	reading->completion.status = 0;
	return ret;
}

static int read_once(struct fabric_endpoint *ep, struct fabric_reading *reading,
		     const struct fabric_wait *wait, uint64_t deadline_ns)
{
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = (uint16_t)wait->region,
		.offset = wait->offset,
		.local = &reading->word,
		.len_bytes = sizeof(reading->word),
	};
	int ret;

	while ((ret = fabric_post(ep, &op, 1, &reading->completion)) == -EAGAIN) {
		ret = fabric_poll(ep, deadline_ns);
		if (ret < 0)
			return ret;
		if (fabric_now(ep->fabric) >= deadline_ns)
			return -ETIMEDOUT;
	}
	return ret < 0 ? ret : poll_until_done(ep, reading, deadline_ns);
}

int fabric_wait_by_reading(struct fabric_endpoint *ep, struct fabric_reading *reading,
			   const struct fabric_wait *wait, uint64_t *value)
{
	uint64_t begin = fabric_now(ep->fabric), now, asked, gap;
	uint64_t last = later_of(wait->deadline_ns, begin + FABRIC_READING_NS);
	int ret = poll_until_done(ep, reading, last); /* of a wait before this */

	*value = wait->seen;
	if (wait->region >= FABRIC_MAX_REGIONS) /* an operation's region has fewer bits */
		return base_fail(-EACCES, "%s has not granted region %u", ep->address, wait->region);
	while (!ret) {
		asked = fabric_now(ep->fabric);
		ret = read_once(ep, reading, wait, last);
		if (ret)
			break;
		*value = reading->word;
		if (*value != wait->seen)
			return 0;
		now = fabric_now(ep->fabric);
		if (now >= wait->deadline_ns)
			return -ETIMEDOUT;
		gap = gap_after(ep, now - begin, now - asked);
		if (gap > wait->deadline_ns - now)
			gap = wait->deadline_ns - now;
		if (gap)
			fabric_sleep(ep->fabric, now + gap);
	}
	return ret;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many operations at once, for a bandwidth with a depth above 1. Each connection has up to `depth`
 * operations under way (lists count as what is in them) and is asked for those that are done cq_mod
 * at a time. A connection begins exactly what it has left.
 */
#include <errno.h>

#include "base/error.h"
#include "bench_measure.h"

#define PIECE 32

static int submit(struct bench_run *run, struct bench_qp *qp)
{
	uint64_t most = run->depth / run->list;

	if (!most)
		most = 1;
	while (qp->left && qp->under_way < most) {
		struct ramps_op ops[PIECE];
		uint64_t n = 0;
		int took;

		while (n < PIECE && qp->left && qp->under_way + n < most) {
			ops[n] = (struct ramps_op){ .table = qp->table };
			run->test->fill(run, qp, &ops[n++]);
		}
		took = ramps_worker_submit(qp->worker, ops, n);
		if (took < 0)
			return took;
		if ((uint64_t)took != n)
			return bench_fail(-EAGAIN, "%d of %d operations were taken", took, (int)n);
		qp->under_way += (uint32_t)n;
	}
	return 0;
}

/* At least `need` of those under way. */
static int64_t reap(struct bench_qp *qp, uint64_t need)
{
	struct ramps_done done[RAMPS_SUBMIT_MAX];
	int64_t sum = 0;
	uint64_t got = 0;

	while (got < need) {
		int n = ramps_worker_reap(qp->worker, done, qp->under_way, BENCH_TIMEOUT_MS);

		if (n < 0)
			return n;
		if (!n)
			return bench_fail(-EPROTO, "operations under way were lost");
		for (int i = 0; i < n; i++) {
			if (done[i].status)
				return bench_fail(done[i].status, "an operation failed");
			sum += (int64_t)done[i].tag;
		}
		got += (uint64_t)n;
		qp->under_way -= (uint32_t)n;
	}
	return sum;
}

int64_t bench_pipeline(struct bench_run *run, uint64_t n)
{
	int64_t done = 0;
	bool busy = true;

	while (done < (int64_t)n && busy) {
		busy = false;
		for (uint64_t i = 0; i < run->options->qps; i++) {
			struct bench_qp *qp = &run->qps[i];
			int64_t got = submit(run, qp);

			if (!got && qp->under_way)
				got = reap(qp, run->cq_mod < qp->under_way ? run->cq_mod : qp->under_way);
			if (got < 0)
				return got;
			done += got;
			busy = busy || qp->left || qp->under_way;
		}
	}
	return done;
}

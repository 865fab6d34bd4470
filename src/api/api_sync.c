/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "api/api.h"
#include "worker/worker.h"

int ramps_barrier_open(struct ramps_worker *worker, const char *name,
		       const struct ramps_group *group, struct ramps_barrier **barrier)
{
	int ret = api_enter("worker", worker, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = name && barrier ? worker_barrier_open(worker, name, group, barrier) :
				base_fail(-EINVAL, "no name, or no place for the barrier");
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_barrier_arrive(struct ramps_barrier *barrier, int timeout_ms)
{
	struct ramps_worker *worker = worker_of_barrier(barrier);
	int ret = api_enter("barrier", barrier, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_barrier_arrive(barrier, timeout_ms);
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_barrier_wait(struct ramps_barrier *barrier, int timeout_ms)
{
	struct ramps_worker *worker = worker_of_barrier(barrier);
	int ret = api_enter("barrier", barrier, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_barrier_wait(barrier, timeout_ms);
	worker_exit(worker);
	return base_end(__func__, ret);
}

void ramps_barrier_close(struct ramps_barrier *barrier)
{
	worker_barrier_close(barrier);
}

int ramps_clock_open(struct ramps_worker *worker, const char *name, struct ramps_clock **clock)
{
	int ret = api_enter("worker", worker, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = name && clock ? worker_clock_open(worker, name, clock) :
			      base_fail(-EINVAL, "no name, or no place for the clock");
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_clock_advance(struct ramps_clock *clock, int timeout_ms)
{
	struct ramps_worker *worker = worker_of_clock(clock);
	int ret = api_enter("clock", clock, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_clock_advance(clock, timeout_ms);
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_clock_wait(struct ramps_clock *clock, uint64_t staleness, int timeout_ms)
{
	struct ramps_worker *worker = worker_of_clock(clock);
	int ret = api_enter("clock", clock, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_clock_wait(clock, staleness, timeout_ms);
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_clock_read(struct ramps_clock *clock, uint64_t *own, uint64_t *slowest)
{
	struct ramps_worker *worker = worker_of_clock(clock);
	int ret = api_enter("clock", clock, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_clock_read(clock, own, slowest);
	worker_exit(worker);
	return base_end(__func__, ret);
}

void ramps_clock_close(struct ramps_clock *clock)
{
	worker_clock_close(clock);
}

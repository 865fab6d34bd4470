/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/log.h"
#include "worker/worker.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x)  STRINGIFY_(x)

const char *ramps_version(void)
{
	return STRINGIFY(RAMPS_VERSION_MAJOR) "." STRINGIFY(RAMPS_VERSION_MINOR) "." STRINGIFY(
		RAMPS_VERSION_PATCH);
}

const struct ramps_error *ramps_last_error(void)
{
	return base_last_error();
}

void ramps_set_log(void (*log)(void *ctx, int level, const char *line), void *ctx, int level)
{
	base_set_log(log, ctx, level);
}

/*
 * Completes rank and workers; alone: the servers are embedded, so that this may be the only
 * worker.
 */
static int rank_take(struct ramps_worker_options *options, bool alone)
{
	bool rank = options->rank != RAMPS_FROM_ENVIRONMENT;
	bool workers = options->workers != RAMPS_FROM_ENVIRONMENT;
	int ret = 1;

	if (rank != workers)
		return base_fail(-EINVAL, "the options have a rank or a number of workers, not both");
	if (!rank)
		ret = api_rank(&options->rank, &options->workers);
	if (ret < 0)
		return ret;
	if (!ret && alone) {
		options->rank = 0;
		options->workers = 1;
		ret = 1;
	}
	if (!ret)
		return base_fail(-EINVAL, "which rank is this? Set RAMPS_RANK and RAMPS_WORKERS, or start "
					  "it by mpirun or srun");
	if (!options->workers || options->workers > CORE_MAX_WORKERS)
		return base_fail(-ERANGE, "%u workers: a job has 1 to %u", options->workers,
				 CORE_MAX_WORKERS);
	if (options->rank >= options->workers)
		return base_fail(-ERANGE, "rank %u of %u workers: ranks are 0 to %u", options->rank,
				 options->workers, options->workers - 1);
	return 0;
}

static int join_servers(const struct ramps_worker_options *options, const char *servers,
			const char *job, struct ramps_worker **worker)
{
	struct worker_join_options how = {
		.job = job,
		.rank = options->rank,
		.workers = options->workers,
		.timeout_ms = options->timeout_ms,
	};
	struct api_addresses *addresses = malloc(sizeof(*addresses));
	const struct api_fabric *kind;
	struct fabric *fabric;
	int ret;

	if (!addresses)
		return -ENOMEM;
	ret = api_addresses_parse(servers, addresses);
	if (!ret)
		ret = api_fabric_of(addresses->list[0], &kind);
	if (!ret)
		ret = kind->open(&fabric);
	if (ret)
		goto out;
	how.addresses = addresses->list;
	how.servers = addresses->count;
	ret = worker_join(fabric, &how, worker);
	if (ret)
		fabric_close(fabric);
out:
	free(addresses);
	return ret;
}

static int join_embedded(const struct ramps_worker_options *options, const char *job,
			 struct ramps_worker **worker)
{
	struct ramps_server_options how = RAMPS_SERVER_OPTIONS_INIT;
	char address[API_ADDRESS_BYTES];
	struct ramps_server *server;
	int ret;

	how.job = job;
	ret = ramps_server_start(&how, &server);
	if (ret)
		return ret;
	ret = ramps_server_address(server, address, sizeof(address));
	if (ret > 0)
		ret = join_servers(options, address, job, worker);
	if (ret) {
		ramps_server_stop(server);
		return ret;
	}
	worker_own_server(*worker, server, ramps_server_stop);
	return 0;
}

static int join(const struct ramps_worker_options *from, struct ramps_worker **worker)
{
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	const char *servers, *job;
	bool embedded;
	int ret;

	ret = api_options(&options, from, sizeof(options),
			  offsetof(struct ramps_worker_options, timeout_ms));
	if (ret)
		return ret;
	if (options.timeout_ms < -1)
		return base_fail(-EINVAL, "timeout_ms is %d: give -1 to wait for ever, or 0 and more",
				 options.timeout_ms);
	servers = options.servers ? options.servers : getenv("RAMPS_SERVERS");
	if (!servers || !*servers)
		return base_fail(-EINVAL, "no servers named: set RAMPS_SERVERS, for example to "
					  "shm://default, or use \"embed:\"");
	embedded = !strcmp(servers, API_EMBED);
	ret = api_job(options.job, &job);
	if (!ret)
		ret = rank_take(&options, embedded);
	if (ret)
		return ret;
	if (embedded && options.workers != 1)
		return base_fail(-EINVAL,
				 "an embedded server is for one worker; %u workers need servers "
				 "that all can reach: set RAMPS_SERVERS",
				 options.workers);
	if (embedded)
		return join_embedded(&options, job, worker);
	return join_servers(&options, servers, job, worker);
}

int ramps_worker_join(const struct ramps_worker_options *options, struct ramps_worker **worker)
{
	if (!worker)
		return base_end(__func__, base_fail(-EINVAL, "no place for the worker"));
	return base_end(__func__, join(options, worker));
}

static int clone(struct ramps_worker *worker, struct ramps_worker **made)
{
	const struct api_fabric *kind;
	struct fabric *fabric;
	int ret;

	ret = api_fabric_of(worker_address(worker), &kind);
	if (!ret)
		ret = kind->open(&fabric);
	if (ret)
		return ret;
	ret = worker_clone(worker, fabric, made);
	if (ret)
		fabric_close(fabric);
	return ret;
}

int ramps_worker_clone(struct ramps_worker *worker, struct ramps_worker **made)
{
	int ret = api_enter("worker", worker, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = made ? clone(worker, made) : base_fail(-EINVAL, "no place for the clone");
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_worker_info(const struct ramps_worker *worker, struct ramps_worker_info *info)
{
	struct ramps_worker_info all = RAMPS_WORKER_INFO_INIT;
	struct ramps_worker *one = (struct ramps_worker *)worker;
	int ret = api_enter("worker", worker, one, 0);

	if (ret)
		return base_end(__func__, ret);
	if (!info || info->size < sizeof(info->size))
		ret = base_fail(-EINVAL, "begin with RAMPS_WORKER_INFO_INIT");
	if (!ret)
		ret = worker_info(one, &all);
	if (!ret) {
		all.size = info->size;
		memcpy(info, &all, info->size < sizeof(all) ? info->size : sizeof(all));
	}
	worker_exit(one);
	return base_end(__func__, ret);
}

void ramps_worker_interrupt(struct ramps_worker *worker)
{
	if (worker)
		worker_interrupt(worker);
}

int ramps_worker_flush(struct ramps_worker *worker, uint32_t level, int timeout_ms)
{
	int ret = api_enter("worker", worker, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_flush(worker, level, timeout_ms);
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_worker_leave(struct ramps_worker *worker, int timeout_ms)
{
	int ret = api_enter("worker", worker, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = worker_leave(worker, timeout_ms);
	worker_exit(worker);
	return base_end(__func__, ret);
}

void ramps_worker_close(struct ramps_worker *worker)
{
	if (worker)
		worker_close(worker);
}

int ramps_worker_submit(struct ramps_worker *worker, const struct ramps_op *ops, size_t n)
{
	int ret = api_enter("worker", worker, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = ops || !n ? worker_submit(worker, ops, n) : base_fail(-EINVAL, "no operations given");
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_worker_reap(struct ramps_worker *worker, struct ramps_done *done, size_t n, int timeout_ms)
{
	int ret = api_enter("worker", worker, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	ret = done || !n ? worker_reap(worker, done, n, timeout_ms) :
			   base_fail(-EINVAL, "no place for what is done");
	worker_exit(worker);
	return base_end(__func__, ret);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the environment says. Rank and number of workers come both from one source: RAMPS_RANK and
 * RAMPS_WORKERS, else the launcher's. Sources that contradict each other are an error, except
 * that Slurm's variables count only where nothing else speaks: inside a batch script they
 * describe the script, and mpirun's children inherit them.
 */
#include <errno.h>
#include <stdlib.h>

#include "api/api.h"
#include "base/name.h"

struct rank_source {
	const char *rank, *workers;
	bool outer; /* counts only where no other source speaks */
};

static const struct rank_source sources[] = {
	{ "RAMPS_RANK", "RAMPS_WORKERS", false },
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false },
	{ "PMI_RANK", "PMI_SIZE", false },
	{ "SLURM_PROCID", "SLURM_NTASKS", true },
};

static int number(const char *variable, const char *text, uint32_t *value)
{
	char *end;
	unsigned long parsed;

	errno = 0;
	parsed = strtoul(text, &end, 10);
	if (errno || end == text || *end || text[0] < '0' || text[0] > '9' || parsed >= UINT32_MAX)
		return base_fail(-EINVAL, "%s='%s' is no number", variable, text);
	*value = (uint32_t)parsed;
	return 0;
}

/* 1: both are there; 0: neither. */
static int source_read(const struct rank_source *source, uint32_t *rank, uint32_t *workers)
{
	const char *rank_text = getenv(source->rank), *workers_text = getenv(source->workers);
	int ret;

	if (!rank_text && !workers_text)
		return 0;
	if (source->outer && !(rank_text && workers_text))
		return 0;
	if (!rank_text || !workers_text)
		return base_fail(-EINVAL, "%s is set without %s: set both or neither",
				 rank_text ? source->rank : source->workers,
				 rank_text ? source->workers : source->rank);
	ret = number(source->rank, rank_text, rank);
	if (!ret)
		ret = number(source->workers, workers_text, workers);
	return ret ? ret : 1;
}

int api_rank(uint32_t *rank, uint32_t *workers)
{
	const struct rank_source *taken = NULL;

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		uint32_t its_rank, its_workers;
		int ret;

		if (taken && sources[i].outer)
			continue;
		ret = source_read(&sources[i], &its_rank, &its_workers);
		if (ret < 0)
			return ret;
		if (!ret)
			continue;
		if (taken && (its_rank != *rank || its_workers != *workers))
			return base_fail(-EINVAL,
					 "%s says rank %u of %u, but %s says %u of %u: unset one of them",
					 taken->rank, *rank, *workers, sources[i].rank, its_rank,
					 its_workers);
		taken = &sources[i];
		*rank = its_rank;
		*workers = its_workers;
	}
	return taken != NULL;
}

int api_job(const char *name, const char **job)
{
	if (!name)
		name = getenv("RAMPS_JOB");
	if (!name)
		name = "default";
	*job = name;
	return base_name_check("job", name);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Joining with a rank that cannot be, that another has, or that the environment does not agree about. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/bad_support.h"

#include <cmocka.h>

static struct bad_job job;

static int begin(void **state)
{
	int ret = bad_setup(state);

	if (!ret)
		bad_job_begin(&job);
	return ret;
}

static int end(void **state)
{
	bad_job_end(&job);
	return bad_teardown(state);
}

static void half_a_rank_is_refused(void **state)
{
	struct ramps_worker *worker;

	(void)state;
	must_fail(bad_join(job.address, 1, RAMPS_FROM_ENVIRONMENT, &worker), EINVAL, "");
	must_fail(bad_join(job.address, RAMPS_FROM_ENVIRONMENT, 4, &worker), EINVAL, "");
}

static void a_rank_out_of_range_is_refused(void **state)
{
	struct ramps_worker *worker;

	(void)state;
	must_fail(bad_join(job.address, 8, 8, &worker), ERANGE, "8");
	must_fail(bad_join(job.address, UINT32_MAX - 1, 8, &worker), ERANGE, "4294967294|8");
	must_fail(bad_join(job.address, 0, 0, &worker), ERANGE, "0");
	must_fail(bad_join(job.address, 0, 16385, &worker), ERANGE, "16385|16384");
	must_fail(bad_join(job.address, 0, UINT32_MAX - 1, &worker), ERANGE, "16384");
	bad_job_check(&job);
}

static void more_workers_than_the_server_takes_are_refused(void **state)
{
	struct ramps_server_options options = RAMPS_SERVER_OPTIONS_INIT;
	struct bad_server server;
	struct ramps_worker *worker;

	(void)state;
	options.address = bad_address();
	options.max_workers = 3;
	bad_server_start(&server, &options);
	must_fail(bad_join(options.address, 0, 4, &worker), ERANGE, "4|3");
	must_work(bad_join(options.address, 2, 3, &worker));
	ramps_worker_close(worker);
	bad_server_stop(&server);
}

static void join_rank_0(void *pid)
{
	char number[32];
	struct ramps_worker *worker;

	snprintf(number, sizeof(number), "%d|rank 0", *(int *)pid);
	must_fail(bad_join(job.address, 0, BAD_WORKERS, &worker), EADDRINUSE, number);
	must(strcmp(ramps_last_error()->peer, job.address) == 0);
}

static void a_rank_that_a_live_process_has_is_refused_and_the_process_named(void **state)
{
	int pid = getpid();

	(void)state;
	bad_child(join_rank_0, &pid);
	join_rank_0(&pid);
	bad_job_check(&job);
}

static void a_rank_that_was_closed_is_free_again(void **state)
{
	struct ramps_worker *first, *second;

	(void)state;
	must_work(bad_join(job.address, 5, BAD_WORKERS, &first));
	must_fail(bad_join(job.address, 5, BAD_WORKERS, &second), EADDRINUSE, "rank 5");
	must_work(ramps_worker_leave(first, 5000));
	must_fail(bad_join(job.address, 5, BAD_WORKERS, &second), EADDRINUSE, "rank 5");
	ramps_worker_close(first);
	must_work(bad_join(job.address, 5, BAD_WORKERS, &second));
	ramps_worker_close(second);
	must_work(bad_join(job.address, 5, BAD_WORKERS, &second));
	ramps_worker_close(second);
	bad_job_check(&job);
}

static void another_number_of_workers_is_refused(void **state)
{
	struct ramps_worker *worker;

	(void)state;
	must_fail(bad_join(job.address, 1, 7, &worker), EPROTO, "7|8");
	must_fail(bad_join(job.address, 1, 9, &worker), EPROTO, "9|8");
	must_fail(bad_join(job.address, 0, 1, &worker), EPROTO, "1|8");
	bad_job_check(&job);
}

static void an_embedded_server_takes_one_worker(void **state)
{
	struct ramps_worker *worker;

	(void)state;
	must_fail(bad_join("embed:", 0, 2, &worker), EINVAL, "2|RAMPS_SERVERS");
}

struct speech {
	const char *set[6]; /* NAME=VALUE */
	int error;          /* 0: it joins */
	const char *words;
	uint32_t rank, workers;
};

static void join_as_told(void *arg)
{
	const struct speech *speech = arg;
	struct ramps_worker_options options = RAMPS_WORKER_OPTIONS_INIT;
	struct ramps_worker_info info = RAMPS_WORKER_INFO_INIT;
	struct ramps_worker *worker;

	for (int i = 0; i < 6 && speech->set[i]; i++)
		must(putenv((char *)(uintptr_t)speech->set[i]) == 0);
	must(setenv("RAMPS_SERVERS", job.address, 0) == 0);
	if (speech->error) {
		must_fail(ramps_worker_join(&options, &worker), speech->error, speech->words);
		return;
	}
	must_work(ramps_worker_join(NULL, &worker));
	must_work(ramps_worker_info(worker, &info));
	must(info.rank == speech->rank && info.workers == speech->workers);
	must_work(ramps_worker_leave(worker, 5000));
	ramps_worker_close(worker);
}

#define OPEN_MPI(rank, size) "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size
#define PMI(rank, size)      "PMI_RANK=" rank, "PMI_SIZE=" size
#define SLURM(rank, size)    "SLURM_PROCID=" rank, "SLURM_NTASKS=" size
#define OURS(rank, size)     "RAMPS_RANK=" rank, "RAMPS_WORKERS=" size

static void say_all(struct speech *speeches, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (bad_fork(join_as_told, &speeches[i]) == 0)
			continue;
		print_error("speech %zu: %s %s\n", i, speeches[i].set[0] ? speeches[i].set[0] : "nothing",
			    speeches[i].set[2] ? speeches[i].set[2] : "");
		fail();
	}
	bad_job_check(&job);
}

static void an_environment_that_contradicts_itself_is_refused_and_both_named(void **state)
{
	struct speech speeches[] = {
		{ { OURS("1", "8"), OPEN_MPI("2", "8") }, EINVAL, "RAMPS_RANK|OMPI_COMM_WORLD_RANK|1|2", 0, 0 },
		{ { OURS("1", "8"), OPEN_MPI("1", "4") }, EINVAL, "RAMPS_RANK|OMPI_COMM_WORLD_RANK|8|4", 0, 0 },
		{ { OURS("1", "8"), PMI("3", "8") }, EINVAL, "RAMPS_RANK|PMI_RANK|1|3", 0, 0 },
		{ { OPEN_MPI("1", "8"), PMI("2", "8") }, EINVAL, "OMPI_COMM_WORLD_RANK|PMI_RANK|1|2", 0, 0 },
	};

	(void)state;
	say_all(speeches, sizeof(speeches) / sizeof(speeches[0]));
}

static void half_a_source_is_refused(void **state)
{
	struct speech speeches[] = {
		{ { NULL }, EINVAL, "RAMPS_RANK|RAMPS_WORKERS", 0, 0 },
		{ { "RAMPS_RANK=1" }, EINVAL, "RAMPS_RANK|RAMPS_WORKERS", 0, 0 },
		{ { "RAMPS_WORKERS=8" }, EINVAL, "RAMPS_RANK|RAMPS_WORKERS", 0, 0 },
		{ { "RAMPS_RANK=1", OPEN_MPI("1", "8") }, EINVAL, "RAMPS_WORKERS", 0, 0 },
		{ { "OMPI_COMM_WORLD_RANK=1" }, EINVAL, "OMPI_COMM_WORLD_SIZE", 0, 0 },
		{ { "PMI_SIZE=8" }, EINVAL, "PMI_RANK", 0, 0 },
	};

	(void)state;
	say_all(speeches, sizeof(speeches) / sizeof(speeches[0]));
}

static void what_is_no_number_is_refused(void **state)
{
	struct speech speeches[] = {
		{ { OURS("one", "8") }, EINVAL, "RAMPS_RANK|one", 0, 0 },
		{ { OURS("", "8") }, EINVAL, "RAMPS_RANK", 0, 0 },
		{ { OURS("1x", "8") }, EINVAL, "RAMPS_RANK|1x", 0, 0 },
		{ { OURS(" 1", "8") }, EINVAL, "RAMPS_RANK", 0, 0 },
		{ { OURS("-1", "8") }, EINVAL, "RAMPS_RANK|-1", 0, 0 },
		{ { OURS("+1", "8") }, EINVAL, "RAMPS_RANK|+1", 0, 0 },
		{ { OURS("1", "-8") }, EINVAL, "RAMPS_WORKERS|-8", 0, 0 },
		{ { OURS("1", "8.0") }, EINVAL, "RAMPS_WORKERS|8.0", 0, 0 },
		{ { OURS("4294967295", "8") }, EINVAL, "RAMPS_RANK", 0, 0 },
		{ { OURS("4294967297", "8") }, EINVAL, "RAMPS_RANK", 0, 0 },
		{ { OURS("99999999999999999999999", "8") }, EINVAL, "RAMPS_RANK", 0, 0 },
		{ { OPEN_MPI("x", "8") }, EINVAL, "OMPI_COMM_WORLD_RANK", 0, 0 },
		{ { OURS("1\n2", "8") }, EINVAL, "RAMPS_RANK", 0, 0 },
		{ { OURS("8", "8") }, ERANGE, "8", 0, 0 },
		{ { OURS("0", "0") }, ERANGE, "0", 0, 0 },
	};

	(void)state;
	say_all(speeches, sizeof(speeches) / sizeof(speeches[0]));
}

static void each_source_is_taken_and_agreement_is_no_error(void **state)
{
	struct speech speeches[] = {
		{ { OURS("1", "8") }, 0, NULL, 1, 8 },
		{ { OPEN_MPI("2", "8") }, 0, NULL, 2, 8 },
		{ { PMI("3", "8") }, 0, NULL, 3, 8 },
		{ { SLURM("4", "8") }, 0, NULL, 4, 8 },
		{ { OURS("5", "8"), OPEN_MPI("5", "8"), PMI("5", "8") }, 0, NULL, 5, 8 },
		/* a batch script's variables, inherited by what mpirun starts in it */
		{ { OPEN_MPI("6", "8"), SLURM("0", "1") }, 0, NULL, 6, 8 },
		{ { PMI("6", "8"), SLURM("0", "1") }, 0, NULL, 6, 8 },
		{ { OURS("6", "8"), "SLURM_PROCID=0" }, 0, NULL, 6, 8 },
		{ { OURS("6", "8"), "SLURM_PROCID=rubbish", "SLURM_NTASKS=" }, 0, NULL, 6, 8 },
	};

	(void)state;
	say_all(speeches, sizeof(speeches) / sizeof(speeches[0]));
}

static void a_wrong_job_name_in_the_environment_is_refused(void **state)
{
	struct speech speeches[] = {
		{ { OURS("1", "8"), "RAMPS_JOB=" }, EINVAL, "job", 0, 0 },
		{ { OURS("1", "8"), "RAMPS_JOB=a b" }, EINVAL, "job", 0, 0 },
		{ { OURS("1", "8"), "RAMPS_JOB=other" }, EPROTO, "job|default|other", 0, 0 },
		{ { OURS("1", "8"), "RAMPS_SERVERS=" }, EINVAL, "RAMPS_SERVERS", 0, 0 },
		{ { OURS("1", "8"), "RAMPS_SERVERS=tcp://x" }, EINVAL, "tcp://x", 0, 0 },
	};

	(void)state;
	say_all(speeches, sizeof(speeches) / sizeof(speeches[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_a_rank_is_refused),
		cmocka_unit_test(a_rank_out_of_range_is_refused),
		cmocka_unit_test(more_workers_than_the_server_takes_are_refused),
		cmocka_unit_test(a_rank_that_a_live_process_has_is_refused_and_the_process_named),
		cmocka_unit_test(a_rank_that_was_closed_is_free_again),
		cmocka_unit_test(another_number_of_workers_is_refused),
		cmocka_unit_test(an_embedded_server_takes_one_worker),
		cmocka_unit_test(an_environment_that_contradicts_itself_is_refused_and_both_named),
		cmocka_unit_test(half_a_source_is_refused),
		cmocka_unit_test(what_is_no_number_is_refused),
		cmocka_unit_test(each_source_is_taken_and_agreement_is_no_error),
		cmocka_unit_test(a_wrong_job_name_in_the_environment_is_refused),
	};

	return cmocka_run_group_tests(tests, begin, end);
}

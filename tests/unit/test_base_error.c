/* SPDX-License-Identifier: BSD-2-Clause */
/* The record of the last error, names, deadlines, log. */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <ramps/ramps.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/name.h"
#include "support/support.h"

static void there_is_a_record_before_any_failure(void **state)
{
	const struct ramps_error *error = base_last_error();

	(void)state;
	assert_int_equal(error->code, 0);
	assert_string_equal(error->call, "");
	assert_string_equal(error->peer, "");
	assert_string_equal(error->text, "");
	assert_int_equal(error->rank_count, 0);
}

static void a_failure_has_all_its_parts(void **state)
{
	const uint32_t ranks[] = { 3, 5, 8 };
	const struct ramps_error *error;

	(void)state;
	assert_int_equal(base_fail(-ETIMEDOUT, "waited %d ms", 5), -ETIMEDOUT);
	base_error_peer("shm://a");
	base_error_ranks(ranks, 3);
	base_error_unknown(12);
	assert_int_equal(base_end("ramps_barrier_wait", -ETIMEDOUT), -ETIMEDOUT);
	error = base_last_error();
	assert_int_equal(error->code, ETIMEDOUT);
	assert_string_equal(error->call, "ramps_barrier_wait");
	assert_string_equal(error->peer, "shm://a");
	assert_string_equal(error->text, "waited 5 ms");
	assert_int_equal(error->rank_count, 3);
	assert_memory_equal(error->ranks, ranks, sizeof(ranks));
	assert_int_equal(error->unknown_ops, 12);
}

static void a_record_holds_until_the_next_call_that_fails(void **state)
{
	const struct ramps_error *error;
	const char *text;

	(void)state;
	base_fail(-EIO, "the first");
	base_end("first", -EIO);
	error = base_last_error();
	text = error->text;
	base_fail(-EAGAIN, "recovered from within a call that succeeds");
	assert_int_equal(base_end("second", 0), 0);
	assert_int_equal(base_end("third", 7), 7);
	assert_ptr_equal(base_last_error(), error);
	assert_string_equal(text, "the first");
	assert_string_equal(error->call, "first");
	base_fail(-ENOSPC, "the next");
	assert_string_equal(text, "the first");
	base_end("fourth", -ENOSPC);
	assert_string_equal(base_last_error()->text, "the next");
}

static void a_failure_without_a_reason_gets_the_meaning_of_its_code(void **state)
{
	(void)state;
	base_fail(-EAGAIN, "something else on the way");
	base_error_unknown(4);
	base_end("call", -ENOMEM);
	assert_string_equal(base_last_error()->text, strerrordesc_np(ENOMEM));
	assert_int_equal(base_last_error()->code, ENOMEM);
	assert_int_equal(base_last_error()->unknown_ops, 0);
	base_fail(-EIO, "of an earlier call");
	base_end("other", 0);
	base_end("call", -EIO);
	assert_string_equal(base_last_error()->text, strerrordesc_np(EIO));
	base_end("call", -123456);
	assert_string_equal(base_last_error()->text, "unknown error");
}

static void a_new_failure_has_nothing_of_the_one_before(void **state)
{
	const uint32_t rank = 1;

	(void)state;
	base_fail(-EIO, "inner");
	base_error_peer("x");
	base_error_ranks(&rank, 1);
	base_error_unknown(1);
	base_fail(-EIO, "outer, because: %s", "inner");
	base_end("call", -EIO);
	assert_string_equal(base_last_error()->text, "outer, because: inner");
	assert_string_equal(base_last_error()->peer, "");
	assert_int_equal(base_last_error()->rank_count, 0);
	assert_int_equal(base_last_error()->unknown_ops, 0);
	base_fail(-EIO, "%s again", base_last_error()->text);
	base_end("call", -EIO);
	assert_string_equal(base_last_error()->text, "outer, because: inner again");
}

static void *fail_in_a_thread(void *arg)
{
	uint32_t ranks[16384];

	(void)arg;
	for (uint32_t i = 0; i < 16384; i++)
		ranks[i] = i;
	for (uint32_t count = 1; count <= 16384; count *= 4) {
		base_fail(-EOWNERDEAD, "%u", count);
		base_error_ranks(ranks, count);
		base_end("call", -EOWNERDEAD);
		if (base_last_error()->rank_count != count ||
		    memcmp(base_last_error()->ranks, ranks, count * sizeof(*ranks)) != 0)
			return arg;
	}
	return NULL;
}

static void every_thread_has_its_own_with_ranks_of_any_number(void **state)
{
	char mark = 1;
	pthread_t thread;
	void *failed;

	(void)state;
	base_fail(-EIO, "mine");
	base_end("call", -EIO);
	assert_int_equal(pthread_create(&thread, NULL, fail_in_a_thread, &mark), 0);
	pthread_join(thread, &failed);
	assert_null(failed);
	assert_string_equal(base_last_error()->text, "mine");
	assert_null(fail_in_a_thread(&mark));
}

static void long_texts_are_cut_and_errno_is_kept(void **state)
{
	char longer[5000];

	(void)state;
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	errno = 77;
	base_fail(-EIO, "%s", longer);
	assert_int_equal(errno, 77);
	base_error_peer(longer);
	base_end("call", -EIO);
	assert_true(strlen(base_last_error()->text) > 500);
	assert_true(strlen(base_last_error()->peer) > 200);
}

static void names_keep_to_the_rules(void **state)
{
	static const char *const good[] = { "a", "A.b-c_d/e9", "x.", "9", "a/b/c", "a-" };
	static const char *const bad[] = { "",    ".a",  "/a",       "a..b", "a b",
					   "a\n", "a+b", "\xc3\xa4", "a:b",  ".." };
	char name[80];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_ok(base_name_check("table", good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_error(base_name_check("table", bad[i]), EINVAL);
	assert_error(base_name_check("table", NULL), EINVAL);
	base_end("call", -EINVAL);
	assert_non_null(strstr(base_last_error()->text, "table"));
	memset(name, 'n', sizeof(name));
	name[63] = '\0';
	assert_ok(base_name_check("table", name));
	name[63] = 'n';
	name[64] = '\0';
	assert_error(base_name_check("table", name), EINVAL);
}

static void deadlines_are_so_many_milliseconds_away(void **state)
{
	uint64_t before = base_now_ns();

	(void)state;
	assert_int_equal(base_deadline(1000, 0), 1000);
	assert_int_equal(base_deadline(1000, 3), 1000 + 3 * NS_PER_MS);
	assert_true(base_deadline(1000, -1) == BASE_FOREVER);
	assert_int_equal(base_deadline(0, INT32_MAX), (uint64_t)INT32_MAX * NS_PER_MS);
	assert_true(base_now_ns() >= before);
}

struct lines {
	unsigned int count;
	int level;
	char last[2048];
};

static void take_line(void *ctx, int level, const char *line)
{
	struct lines *lines = ctx;

	lines->count++;
	lines->level = level;
	snprintf(lines->last, sizeof(lines->last), "%s", line);
}

static void log_lines_come_up_to_the_level_asked_for(void **state)
{
	struct lines lines = { 0 };

	(void)state;
	base_log(RAMPS_LOG_ERROR, "nobody listens");
	base_set_log(take_line, &lines, RAMPS_LOG_INFO);
	base_log(RAMPS_LOG_DEBUG, "too fine");
	assert_int_equal(lines.count, 0);
	errno = 5;
	base_log(RAMPS_LOG_INFO, "number %d\n", 3);
	assert_int_equal(errno, 5);
	assert_int_equal(lines.count, 1);
	assert_string_equal(lines.last, "number 3");
	base_log(RAMPS_LOG_ERROR, "e");
	assert_int_equal(lines.level, RAMPS_LOG_ERROR);
	base_set_log(NULL, NULL, RAMPS_LOG_DEBUG);
	base_log(RAMPS_LOG_ERROR, "nobody listens any more");
	assert_int_equal(lines.count, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_is_a_record_before_any_failure),
		cmocka_unit_test(a_failure_has_all_its_parts),
		cmocka_unit_test(a_record_holds_until_the_next_call_that_fails),
		cmocka_unit_test(a_failure_without_a_reason_gets_the_meaning_of_its_code),
		cmocka_unit_test(a_new_failure_has_nothing_of_the_one_before),
		cmocka_unit_test(every_thread_has_its_own_with_ranks_of_any_number),
		cmocka_unit_test(long_texts_are_cut_and_errno_is_kept),
		cmocka_unit_test(names_keep_to_the_rules),
		cmocka_unit_test(deadlines_are_so_many_milliseconds_away),
		cmocka_unit_test(log_lines_come_up_to_the_level_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a grant covers only what memory is ready, whoever is there gets more as the arena grows. */
#include <errno.h>
#include <string.h>

#include "support/support.h"

#include "base/clock.h"
#include "ps/fake.h"
#include "ps/job.h"

#define VALUES (1u << 21) /* more than any step ahead */

static struct job job;
static struct member first, second; /* two connections of rank 0 */

static int setup(void **state)
{
	(void)state;
	job_open(&job, RAMPS_ON_DEATH_CONTINUE);
	job.fabric->grants_ready = true;
	assert_int_equal(member_join(&first, &job, 0, 1), 0);
	second = first;
	member_prepare(&second, &job, 0, 1);
	second.request.how = CORE_JOIN_AGAIN;
	second.request.arena_id = job.server->header->arena_id;
	second.request.incarnation = 1;
	assert_int_equal(member_ask(&second, CORE_JOIN), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	member_close(&first);
	member_close(&second);
	job_close(&job);
	return 0;
}

/* Reads the table's last value. */
static int reach(struct member *m, uint32_t entry)
{
	const struct core_table *table = &job_entry(&job, entry)->table;
	struct fabric_completion completion = { 0 };
	uint64_t value;
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = CORE_PUBLISHED,
		.offset = table->data_offset + VALUES * sizeof(float) - sizeof(value),
		.len_bytes = sizeof(value),
		.local = &value,
	};

	return fabric_execute(m->ep, &op, 1, &completion, fabric_now(job.fabric) + NS_PER_S);
}

static int create(struct member *m)
{
	struct core_entry *e = &m->request.entry;

	memset(e, 0, sizeof(*e));
	e->kind = CORE_TABLE;
	strcpy(e->name, "large");
	e->table.rows = VALUES;
	e->table.dim = 1;
	e->table.type = RAMPS_FLOAT32;
	e->table.mode = RAMPS_SLOTS;
	return member_ask(m, CORE_CREATE);
}

static void table_is_reached_by_all_who_joined_before_it(void **state)
{
	(void)state;
	assert_int_equal(create(&first), 0);
	assert_int_equal(reach(&first, first.reply.entry.index), 0);
	assert_int_equal(reach(&second, first.reply.entry.index), 0);
}

static void table_whose_grant_failed_is_granted_when_it_is_created_again(void **state)
{
	(void)state;
	fake_fail_grant(job.fabric, 2, -ENOMEM); /* after the server's own */
	assert_int_equal(create(&first), -ENOMEM);
	assert_int_equal(create(&first), 0);
	assert_int_equal(reach(&first, first.reply.entry.index), 0);
	assert_int_equal(reach(&second, first.reply.entry.index), 0);
}

static void lost_connection_keeps_no_other_from_its_grant(void **state)
{
	(void)state;
	fake_fail_grant(job.fabric, 2, -ENOTCONN); /* the first of rank 0's, which is the later one */
	assert_int_equal(create(&first), 0);
	assert_int_equal(reach(&first, first.reply.entry.index), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(table_is_reached_by_all_who_joined_before_it),
		TEST(table_whose_grant_failed_is_granted_when_it_is_created_again),
		TEST(lost_connection_keeps_no_other_from_its_grant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

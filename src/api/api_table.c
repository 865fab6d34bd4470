/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "api/api.h"
#include "worker/worker.h"

static int schema_take(const struct ramps_schema *from, struct ramps_schema *schema)
{
	if (!from)
		return base_fail(-EINVAL, "no schema given");
	return api_options(schema, from, sizeof(*schema), offsetof(struct ramps_schema, initial));
}

int ramps_table_create(struct ramps_worker *worker, const struct ramps_schema *schema,
		       struct ramps_table **table)
{
	struct ramps_schema taken = RAMPS_SCHEMA_INIT;
	int ret = api_enter("worker", worker, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = table ? schema_take(schema, &taken) : base_fail(-EINVAL, "no place for the table");
	if (!ret)
		ret = worker_table_create(worker, &taken, table);
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_table_open(struct ramps_worker *worker, const char *name,
		     const struct ramps_schema *expected, int timeout_ms, struct ramps_table **table)
{
	struct ramps_schema taken = RAMPS_SCHEMA_INIT;
	int ret = api_enter("worker", worker, worker, timeout_ms);

	if (ret)
		return base_end(__func__, ret);
	if (!table || !name)
		ret = base_fail(-EINVAL, "no name, or no place for the table");
	if (!ret && expected)
		ret = schema_take(expected, &taken);
	if (!ret)
		ret = worker_table_open(worker, name, expected ? &taken : NULL, timeout_ms, table);
	worker_exit(worker);
	return base_end(__func__, ret);
}

int ramps_table_info(const struct ramps_table *table, struct ramps_table_info *info)
{
	struct ramps_table_info all = RAMPS_TABLE_INFO_INIT;

	if (!table || !info || info->size < sizeof(info->size))
		return base_end(__func__, base_fail(-EINVAL, "no table, or not begun with "
							     "RAMPS_TABLE_INFO_INIT"));
	worker_table_info(table, &all);
	all.size = info->size;
	memcpy(info, &all, info->size < sizeof(all) ? info->size : sizeof(all));
	return 0;
}

/*
 * Enters the table's worker; *op is the operation to fill in, where it will be used: no copy of
 * it is made.
 */
static int begin(struct ramps_table *table, uint32_t kind, const struct ramps_transfer *how,
		 int timeout_ms, struct ramps_op **op)
{
	struct ramps_worker *worker = worker_of_table(table);
	int ret = api_enter("table", table, worker, timeout_ms);

	if (__builtin_expect(ret, 0))
		return ret;
	if (how && how->size < sizeof(*how)) {
		worker_exit(worker);
		return base_fail(-EINVAL, "begin the transfer with RAMPS_TRANSFER_INIT");
	}
	*op = worker_table_op(table);
	(*op)->kind = kind;
	(*op)->flags = 0;
	(*op)->transfer = how ? *how : worker_transfer_defaults;
	return 0;
}

static int run(struct ramps_table *table, struct ramps_transfer *how, int timeout_ms)
{
	struct ramps_worker *worker = worker_of_table(table);
	int ret = worker_table_run(table, how, timeout_ms);

	worker_exit(worker);
	return ret;
}

int ramps_table_pull(struct ramps_table *table, uint64_t first_row, uint64_t rows, void *dst,
		     struct ramps_transfer *how, int timeout_ms)
{
	struct ramps_op *op;
	int ret = begin(table, RAMPS_PULL, how, timeout_ms, &op);

	if (ret)
		return base_end(__func__, ret);
	op->first_row = first_row;
	op->rows = rows;
	op->data = dst;
	return base_end(__func__, run(table, how, timeout_ms));
}

int ramps_table_push(struct ramps_table *table, uint64_t first_row, uint64_t rows, const void *src,
		     struct ramps_transfer *how, int timeout_ms)
{
	struct ramps_op *op;
	int ret = begin(table, RAMPS_PUSH, how, timeout_ms, &op);

	if (ret)
		return base_end(__func__, ret);
	op->first_row = first_row;
	op->rows = rows;
	op->data = (void *)src;
	return base_end(__func__, run(table, how, timeout_ms));
}

int ramps_table_pull_rows(struct ramps_table *table, const uint64_t *rows, size_t n, void *dst,
			  struct ramps_transfer *how, int timeout_ms)
{
	struct ramps_op *op;
	int ret = begin(table, RAMPS_PULL_ROWS, how, timeout_ms, &op);

	if (ret)
		return base_end(__func__, ret);
	op->rows = n;
	op->row_ids = rows;
	op->data = dst;
	return base_end(__func__, run(table, how, timeout_ms));
}

int ramps_table_push_rows(struct ramps_table *table, const uint64_t *rows, size_t n,
			  const void *src, struct ramps_transfer *how, int timeout_ms)
{
	struct ramps_op *op;
	int ret = begin(table, RAMPS_PUSH_ROWS, how, timeout_ms, &op);

	if (ret)
		return base_end(__func__, ret);
	op->rows = n;
	op->row_ids = rows;
	op->data = (void *)src;
	return base_end(__func__, run(table, how, timeout_ms));
}

int ramps_table_view(struct ramps_table *table, uint64_t first_row, uint64_t rows, const void **view)
{
	struct ramps_worker *worker = worker_of_table(table);
	int ret = api_enter("table", table, worker, 0);

	if (ret)
		return base_end(__func__, ret);
	ret = view ? worker_table_view(table, first_row, rows, view) :
		     base_fail(-EINVAL, "no place for the view");
	worker_exit(worker);
	return base_end(__func__, ret);
}

void ramps_table_close(struct ramps_table *table)
{
	worker_table_close(table);
}

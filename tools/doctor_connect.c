/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps doctor --connect: every operation against another process, checked for its result and then timed.
 * A server of a job is not disturbed: it is asked for a look at its published memory, which makes no rank,
 * and only what can be read is tried. `ramps doctor --serve` gives memory for all of them.
 */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ramps/ramps.h>

#include "api/api.h"
#include "base/clock.h"
#include "cli.h"
#include "core/message.h"

#define MAX_TIMES   1000u
#define JOB_TIMES   50u               /* READs of a job's server */
#define ENOUGH_NS   (200 * NS_PER_MS) /* for each operation */
#define MESSAGE_LEN 256u
#define OP_NS       (5 * NS_PER_S)

struct link {
	struct doctor *doctor;
	struct fabric *fabric;
	struct fabric_endpoint *ep;
	struct fabric_completion completion;
	bool scratch; /* the other side is ramps doctor --serve */
	uint64_t adds;
	char *local; /* 2 * DOCTOR_DATA_BYTES; freed after the endpoint */
	uint64_t times[MAX_TIMES];
};

struct operation {
	const char *name, *label;
	uint64_t bytes;
	int (*once)(struct link *link); /* does it, and looks at what came of it */
	bool needs_scratch;
};

static int execute(struct link *link, const struct fabric_op *op)
{
	return fabric_execute(link->ep, op, 1, &link->completion, fabric_now(link->fabric) + OP_NS);
}

static int wrong(const char *what)
{
	return base_fail(-EIO, "%s", what);
}

static int once_message(struct link *link)
{
	char sent[MESSAGE_LEN], got[FABRIC_MAX_MESSAGE_BYTES];
	int ret;

	for (uint32_t i = 0; i < sizeof(sent); i++)
		sent[i] = (char)(i + link->adds);
	ret = fabric_send(link->ep, sent, sizeof(sent));
	if (!ret)
		ret = fabric_recv(link->ep, got, sizeof(got), fabric_now(link->fabric) + OP_NS);
	if (ret == -EAGAIN)
		return base_fail(-ETIMEDOUT, "no answer");
	if (ret < 0)
		return ret;
	if (ret != (int)sizeof(sent) || memcmp(got, sent, sizeof(sent)) != 0)
		return wrong("the message came back changed");
	return 0;
}

static int once_read(struct link *link)
{
	uint64_t word = 0;
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = link->scratch ? DOCTOR_WORDS : CORE_PUBLISHED,
		.local = link->local,
		.len_bytes = sizeof(word),
	};
	int ret = execute(link, &op);

	if (ret)
		return ret;
	memcpy(&word, link->local, sizeof(word));
	return word == (link->scratch ? 0 : CORE_MAGIC) ?
		       0 :
		       wrong("the word read is not what stands there");
}

/* The first one is read back. */
static int once_write(struct link *link)
{
	struct fabric_op op = {
		.opcode = FABRIC_WRITE,
		.region = DOCTOR_DATA,
		.local = link->local,
		.len_bytes = DOCTOR_DATA_BYTES,
	};
	char *back = link->local + DOCTOR_DATA_BYTES;
	int ret;

	if (link->times[0])
		return execute(link, &op);
	for (uint32_t i = 0; i < DOCTOR_DATA_BYTES; i++)
		link->local[i] = (char)(i * 31 + i / 256);
	memset(back, 0, DOCTOR_DATA_BYTES);
	ret = execute(link, &op);
	op.opcode = FABRIC_READ;
	op.local = back;
	if (!ret)
		ret = execute(link, &op);
	if (ret)
		return ret;
	return memcmp(link->local, back, DOCTOR_DATA_BYTES) ?
		       wrong("what was written reads otherwise") :
		       0;
}

static int once_fetch_add(struct link *link)
{
	struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.region = DOCTOR_WORDS,
		.offset = 64,
		.operand = (1ull << 40) + 3,
		.local = link->local,
		.len_bytes = 8,
	};
	int ret = execute(link, &op);
	uint64_t old;

	if (ret)
		return ret;
	memcpy(&old, link->local, sizeof(old));
	return old == op.operand * link->adds++ ? 0 : wrong("the old value is not the sum so far");
}

/* Swaps 0 and ~0 on a word of its own, and must not where the word is another. */
static int once_compare_swap(struct link *link)
{
	uint64_t now = link->adds % 2 ? UINT64_MAX : 0, old;
	struct fabric_op op = {
		.opcode = FABRIC_COMPARE_SWAP,
		.region = DOCTOR_WORDS,
		.offset = 128,
		.compare = now,
		.operand = ~now,
		.local = link->local,
		.len_bytes = 8,
	};
	int ret = execute(link, &op);

	if (ret)
		return ret;
	memcpy(&old, link->local, sizeof(old));
	if (old != now)
		return wrong("the old value is not what stood there");
	link->adds++;
	if (link->times[0])
		return 0;
	op.operand = 5; /* the word is no longer `now` */
	ret = execute(link, &op);
	memcpy(&old, link->local, sizeof(old));
	if (ret)
		return ret;
	return old == ~now ? 0 : wrong("a swap took place that must not");
}

static const struct operation operations[] = {
	{ "message", "message", MESSAGE_LEN, once_message, true },
	{ "read", "READ", 8, once_read, false },
	{ "write", "WRITE", DOCTOR_DATA_BYTES, once_write, true },
	{ "fetch_add", "FETCH_ADD", 8, once_fetch_add, true },
	{ "compare_swap", "COMPARE_SWAP", 8, once_compare_swap, true },
};

#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static const char *time_text(char buf[CLI_TEXT_BYTES], double us)
{
	if (us < 1)
		snprintf(buf, CLI_TEXT_BYTES, "%.0f ns", us * 1000);
	else if (us < 1000)
		snprintf(buf, CLI_TEXT_BYTES, "%.*f us", us < 10 ? 2 : us < 100 ? 1 : 0, us);
	else
		snprintf(buf, CLI_TEXT_BYTES, "%.*f ms", us < 10000 ? 2 : 1, us / 1000);
	return buf;
}

static void mend_link(struct doctor_item *item, const char *address, int ret)
{
	doctor_found(item, "%s", base_last_error()->text);
	if (ret == -ECONNREFUSED)
		doctor_mend(item, "on that node: ramps doctor --serve %s", address);
	else if (ret == -EACCES && !strncmp(address, "verbs:", 6))
		doctor_mend(item, "give both sides the same key: RAMPS_KEY_FILE=FILE");
	else if (ret == -EINVAL)
		doctor_mend(item, "correct that, here");
	else if (ret == -ETIMEDOUT && !strncmp(address, "verbs:", 6))
		doctor_mend(item, "run ramps doctor on that node too; let UDP port 4791 (RoCE) pass firewalls");
	else
		doctor_mend(item, "run ramps doctor on that node too");
}

static void try_operation(struct link *link, const struct operation *operation, const char *address)
{
	struct doctor_item *item = doctor_add(link->doctor, operation->name, operation->label);
	char size[CLI_TEXT_BYTES], text[CLI_TEXT_BYTES];
	uint64_t until = fabric_now(link->fabric) + ENOUGH_NS;
	uint32_t n = 0, middle, most = link->scratch ? MAX_TIMES : JOB_TIMES;
	int ret = 0;

	memset(link->times, 0, sizeof(link->times));
	link->adds = 0;
	while (!ret && n < most && (n < 2 || fabric_now(link->fabric) < until)) {
		uint64_t begin = fabric_now(link->fabric);

		ret = operation->once(link);
		if (!ret)
			link->times[n++] = fabric_now(link->fabric) - begin + 1;
	}
	if (ret) {
		base_end("ramps doctor", ret);
		mend_link(item, address, ret);
		return;
	}
	link->times[0] = link->times[1]; /* the first one was checked meanwhile */
	qsort(link->times, n, sizeof(link->times[0]), by_size);
	middle = n / 2;
	item->us = (double)link->times[middle] / 1e3;
	doctor_found(item, "%s in %s, the median of %u", cli_text_size(size, operation->bytes),
		     time_text(text, item->us), n);
}

/* Asks for a look. What the other side is goes to *who. */
static int ask(struct link *link, char *who, size_t len_bytes)
{
	struct core_request request = {
		.magic = CORE_MESSAGE_MAGIC,
		.kind = CORE_LOOK,
		.version = CORE_VERSION,
		.layout_hash = core_layout_hash(),
	};
	union {
		struct core_reply reply;
		struct doctor_welcome welcome;
		char message[FABRIC_MAX_MESSAGE_BYTES];
	} got = { 0 };
	uint64_t deadline_ns = fabric_now(link->fabric) + OP_NS;
	int ret = fabric_send(link->ep, &request, sizeof(request));

	if (!ret)
		ret = fabric_recv(link->ep, &got, sizeof(got), deadline_ns);
	if (ret == -EAGAIN)
		return base_fail(-ETIMEDOUT, "the server is there but does not answer");
	if (ret < 0)
		return ret;
	if (ret >= (int)sizeof(got.welcome) && got.welcome.magic == DOCTOR_MAGIC) {
		link->scratch = true;
		got.welcome.host[sizeof(got.welcome.host) - 1] = '\0';
		snprintf(who, len_bytes, "ramps doctor on %s, pid %llu", got.welcome.host,
			 (unsigned long long)got.welcome.pid);
		return 0;
	}
	if (ret != (int)sizeof(got.reply) || got.reply.magic != CORE_MESSAGE_MAGIC)
		return base_fail(-EPROTONOSUPPORT, "what answers is no ramps server of this version");
	got.reply.text[sizeof(got.reply.text) - 1] = '\0';
	if (got.reply.status < 0)
		return base_fail(got.reply.status, "%s", got.reply.text);
	if (got.reply.layout_hash != core_layout_hash())
		return base_fail(-EPROTONOSUPPORT, "the server is of another version of ramps");
	snprintf(who, len_bytes, "a server of a job");
	return 0;
}

/* The job's name, from the memory that was granted. */
static void name_job(struct link *link, char *who, size_t len_bytes)
{
	struct core_header *header = (struct core_header *)link->local;
	struct fabric_op op = {
		.opcode = FABRIC_READ,
		.region = CORE_PUBLISHED,
		.local = header,
		.len_bytes = sizeof(*header),
	};

	if (link->scratch || execute(link, &op) || header->magic != CORE_MAGIC)
		return;
	header->job[sizeof(header->job) - 1] = '\0';
	snprintf(who, len_bytes, "a server of job %s", header->job);
}

static int link_open(struct link *link, const char *address, double timeout_s)
{
	const struct api_fabric *kind;
	int ret = api_fabric_of(address, &kind);

	if (!ret)
		ret = kind->open(&link->fabric);
	if (!ret)
		ret = fabric_connect(link->fabric, address,
				     fabric_now(link->fabric) + (uint64_t)(timeout_s * 1e9), &link->ep);
	return ret;
}

/* An operation may be under way still: the endpoint goes before the memory. */
static void link_close(struct link *link)
{
	if (link->ep)
		fabric_endpoint_close(link->ep);
	if (link->fabric)
		fabric_close(link->fabric);
	free(link->local);
	free(link);
}

void doctor_connect(struct doctor *doctor, const char *address, double timeout_s)
{
	struct doctor_item *item = doctor_add(doctor, "connect", "connect");
	struct link *link = cli_alloc(1, sizeof(*link));
	char who[128] = "", text[CLI_TEXT_BYTES];
	uint64_t begin = base_now_ns();
	int ret;

	link->doctor = doctor;
	link->local = cli_alloc(2, DOCTOR_DATA_BYTES);
	ret = link_open(link, address, timeout_s);
	item->us = (double)(base_now_ns() - begin) / 1e3;
	if (!ret)
		ret = ask(link, who, sizeof(who));
	if (ret) {
		base_end("ramps doctor", ret);
		item->us = 0;
		mend_link(item, address, ret);
	} else {
		name_job(link, who, sizeof(who));
		doctor_found(item, "%s: %s, in %s", address, who, time_text(text, item->us));
	}
	for (size_t i = 0; i < OPERATIONS; i++) {
		if (ret)
			doctor_skip(doctor, operations[i].name, operations[i].label, "not connected");
		else if (operations[i].needs_scratch && !link->scratch)
			doctor_skip(doctor, operations[i].name, operations[i].label,
				    "a job's server is only read; use ramps doctor --serve there");
		else
			try_operation(link, &operations[i], address);
	}
	link_close(link);
}

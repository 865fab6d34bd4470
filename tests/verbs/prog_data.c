/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast the data path is, for comparison with perftest: prog_data HOST WHAT BYTES DEPTH ROUNDS
 *
 *   read write    BYTES at a time, DEPTH of them outstanding
 *   add           a fetch-add with its result, DEPTH outstanding
 *   adds          lists of BYTES adds, DEPTH lists outstanding
 *
 * A '+' behind WHAT registers the local memory. Serves itself from a forked child, and prints the median
 * of the latencies, operations and megabytes in a second.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/error.h"
#include "support/support.h"
#include "verbs/verbs.h"

#include <ramps/ramps.h>

#define MEMORY_BYTES (16u << 20)
#define MAX_DEPTH    256u
#define MAX_ROUNDS   1000000u

static void die(const char *what, int ret)
{
	base_end(what, ret);
	fprintf(stderr, "%s: %s\n", what, base_last_error()->text);
	exit(1);
}

static void must(const char *what, int ret)
{
	if (ret < 0)
		die(what, ret);
}

static void serve(const char *host, int out)
{
	struct fabric_memory memory = { .len_bytes = MEMORY_BYTES, .fd = -1 };
	static struct fabric_event event;
	struct fabric_listener *listener;
	struct fabric *fabric;
	char address[300];
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	memory.base = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must("open", verbs_open_fabric(&fabric));
	snprintf(address, sizeof(address), "verbs://%s:0", host);
	must("listen", fabric_listen(fabric, address, &listener));
	must("register", fabric_register(fabric, &memory));
	must("tell", (int)write(out, listener->address, sizeof(listener->address)));
	for (;;) {
		while ((ret = fabric_next_event(listener, &event)) > 0) {
			if (event.kind != FABRIC_CONNECTED)
				continue;
			must("grant",
			     fabric_grant(event.endpoint, 0, &memory,
					  FABRIC_MAY_READ | FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC));
			must("send", fabric_send(event.endpoint, "go", 2));
		}
		must("event", ret);
		must("wait", fabric_wait(listener, BASE_FOREVER));
	}
}

struct bench {
	struct fabric_endpoint *ep;
	struct fabric_op op;
	uint32_t depth, rounds;
	struct fabric_completion completions[MAX_DEPTH];
	uint64_t begun_ns[MAX_DEPTH];
	uint64_t took_ns[MAX_ROUNDS];
};

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Keeps `depth` of the operation outstanding. What it took. */
static uint64_t run(struct bench *bench, char *local, uint64_t stride)
{
	uint64_t begin = base_now_ns();
	uint32_t posted = 0, done = 0;

	while (done < bench->rounds) {
		uint32_t at = posted % bench->depth;
		int ret = -EAGAIN;

		if (posted < bench->rounds && posted - done < bench->depth) {
			bench->op.local = local ? local + at * stride : NULL;
			bench->begun_ns[at] = base_now_ns();
			ret = fabric_post(bench->ep, &bench->op, 1, &bench->completions[at]);
			posted += !ret;
		}
		if (ret && ret != -EAGAIN)
			die("post", ret);
		if (!ret && posted - done < bench->depth && posted < bench->rounds)
			continue;
		must("poll", fabric_poll(bench->ep, base_now_ns() + 10 * NS_PER_S));
		while (done < posted && !bench->completions[done % bench->depth].pending) {
			at = done % bench->depth;
			bench->took_ns[done++] = base_now_ns() - bench->begun_ns[at];
			if (bench->completions[at].status)
				die("completion", bench->completions[at].status);
		}
	}
	return base_now_ns() - begin;
}

static void prepare(struct bench *bench, const char *what, uint32_t bytes)
{
	static uint64_t offsets[4096], addends[4096];
	uint8_t opcode = 0;

	if (!strncmp(what, "read", 4))
		opcode = FABRIC_READ;
	else if (!strncmp(what, "write", 5))
		opcode = FABRIC_WRITE;
	else if (!strncmp(what, "adds", 4))
		opcode = FABRIC_FETCH_ADD_LIST;
	else if (!strncmp(what, "add", 3))
		opcode = FABRIC_FETCH_ADD;
	bench->op = (struct fabric_op){ .opcode = opcode, .len_bytes = bytes };
	if (opcode == FABRIC_FETCH_ADD) {
		bench->op.operand = 1;
	} else if (opcode == FABRIC_FETCH_ADD_LIST) {
		bench->op.count = bytes;
		bench->op.offsets = offsets;
		bench->op.addends = addends;
	}
}

int main(int argc, char **argv)
{
	static struct bench bench;
	struct fabric *fabric;
	char address[256], go[16];
	uint32_t bytes, list;
	uint64_t took, stride;
	const uint64_t *median;
	char *local;
	int out[2];

	if (argc != 6 || pipe(out)) {
		fprintf(stderr, "usage: prog_data HOST read|write|add|adds[+] BYTES DEPTH ROUNDS\n");
		return 2;
	}
	if (!fork())
		serve(argv[1], out[1]);
	close(out[1]);
	if (read(out[0], address, sizeof(address)) != sizeof(address))
		return 1;
	bytes = (uint32_t)atoi(argv[3]);
	bench.depth = (uint32_t)atoi(argv[4]);
	bench.rounds = (uint32_t)atoi(argv[5]);
	if (!bench.depth || bench.depth > MAX_DEPTH || bench.rounds > MAX_ROUNDS)
		return 2;
	stride = (bytes + 63ull) & ~63ull;
	local = malloc(stride * bench.depth);
	memset(local, 1, stride * bench.depth);
	must("open", verbs_open_fabric(&fabric));
	if (strchr(argv[2], '+'))
		must("register", fabric_buffer_open(fabric, local, stride * bench.depth));
	must("connect", fabric_connect(fabric, address, base_now_ns() + 10 * NS_PER_S, &bench.ep));
	must("receive", fabric_recv(bench.ep, go, sizeof(go), base_now_ns() + 10 * NS_PER_S));
	prepare(&bench, argv[2], bytes);
	list = bench.op.opcode == FABRIC_FETCH_ADD_LIST ? bytes : 1;
	took = run(&bench, list > 1 ? NULL : local, stride);
	qsort(bench.took_ns, bench.rounds, sizeof(bench.took_ns[0]), by_size);
	median = &bench.took_ns[bench.rounds / 2];
	printf("%-7s %8u bytes, depth %3u: median %8.1f us, %9.0f op/s, %8.2f MB/s\n", argv[2], bytes,
	       bench.depth, (double)*median / 1e3, (double)bench.rounds * list / ((double)took / 1e9),
	       (double)bench.rounds * bytes / ((double)took / 1e3));
	fabric_endpoint_close(bench.ep);
	return 0;
}

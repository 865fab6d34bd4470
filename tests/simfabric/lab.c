/* SPDX-License-Identifier: BSD-2-Clause */
#include "lab.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SERVER_LOOK_NS 20000

void lab_trace(void *ctx, uint64_t now_ns, const char *who, const char *what)
{
	struct lab *lab = ctx;
	char line[640];
	int length = snprintf(line, sizeof(line), "%llu %s %s\n", (unsigned long long)now_ns, who, what);

	if (getenv("LAB_TRACE"))
		fputs(line, stderr);
	for (int i = 0; i < length; i++)
		lab->hash = (lab->hash ^ (unsigned char)line[i]) * 0x100000001b3ull;
}

void lab_init(struct lab *lab, uint64_t seed)
{
	*lab = (struct lab){
		.options = {
			.seed = seed,
			.costs = sim_costs_plain,
			.lease_ns = LAB_LEASE,
			.trace = lab_trace,
			.ctx = lab,
		},
	};
	lab->memory.fd = -1;
	lab->memory.len_bytes = LAB_BYTES;
	lab->memory.base = mmap(NULL, LAB_BYTES, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(lab->memory.base, MAP_FAILED);
	lab->words = lab->memory.base;
}

static void take(struct lab *lab, struct fabric *fabric, struct fabric_event *event)
{
	static const char hello[] = "hello";

	switch (event->kind) {
	case FABRIC_CONNECTED:
		child_check(fabric_grant(event->endpoint, 0, &lab->memory,
					 FABRIC_MAY_READ | FABRIC_MAY_WRITE | FABRIC_MAY_ATOMIC) == 0);
		fabric_send(event->endpoint, hello, sizeof(hello));
		return;
	case FABRIC_MESSAGE:
		fabric_send(event->endpoint, event->message, event->len_bytes);
		return;
	case FABRIC_CLOSED:
		lab->closed++;
		break;
	default:
		lab->broken++;
	}
	lab->heard_ns = fabric_now(fabric);
	while (lab->holds && !lab->stop)
		fabric_sleep(fabric, fabric_now(fabric) + SERVER_LOOK_NS);
	while (fabric_cut(event->endpoint) == -EAGAIN)
		fabric_sleep(fabric, fabric_now(fabric) + SERVER_LOOK_NS);
	memcpy(lab->at_cut, lab->words, sizeof(lab->at_cut));
	lab->has_cut = true;
	fabric_endpoint_close(event->endpoint);
}

/* Keeps count of its own endpoints as little as a careless server would: what is left when it stops leaks. */
static void serve(void *arg)
{
	struct lab *lab = arg;
	struct fabric_event event;
	struct fabric_listener *l;
	struct fabric *fabric;

	child_check(sim_open_fabric(&fabric) == 0);
	child_check(fabric_register(fabric, &lab->memory) == 0);
	child_check(fabric_listen(fabric, LAB_ADDRESS, &l) == 0);
	while (!lab->stop) {
		while (fabric_next_event(l, &event) == 1)
			take(lab, fabric, &event);
		if (lab->work)
			lab->work(lab);
		fabric_wait(l, fabric_now(fabric) + (lab->work ? 100 : SERVER_LOOK_NS));
	}
}

void lab_start_server(struct lab *lab)
{
	lab->server = sim_spawn(lab->sim, "server", 1, serve, lab);
	assert_non_null(lab->server);
}

void lab_open(struct lab *lab)
{
	lab->sim = sim_open(&lab->options);
	assert_non_null(sim_adopt(lab->sim, "test", 0));
	lab_start_server(lab);
}

void lab_close(struct lab *lab)
{
	lab->stop = true;
	sim_close(lab->sim);
	munmap(lab->memory.base, lab->memory.len_bytes);
}

int lab_connect(struct lab_client *client)
{
	char hello[16];
	int ret;

	*client = (struct lab_client){ 0 };
	ret = sim_open_fabric(&client->fabric);
	if (ret)
		return ret;
	do {
		uint64_t deadline_ns = fabric_now(client->fabric) + LAB_LONG;

		ret = fabric_connect(client->fabric, LAB_ADDRESS, deadline_ns, &client->ep);
		if (ret == -ECONNREFUSED) /* it begins to listen soon */
			fabric_sleep(client->fabric, fabric_now(client->fabric) + NS_PER_MS / 10);
	} while (ret == -ECONNREFUSED && sim_now(sim_here()) < LAB_LONG);
	if (ret)
		goto close_fabric;
	ret = fabric_recv(client->ep, hello, sizeof(hello), fabric_now(client->fabric) + LAB_LONG);
	if (ret > 0)
		return 0;
	fabric_endpoint_close(client->ep);
close_fabric:
	fabric_close(client->fabric);
	return ret;
}

void lab_disconnect(struct lab_client *client)
{
	fabric_endpoint_close(client->ep);
	fabric_close(client->fabric);
}

int lab_do(struct lab_client *client, const struct fabric_op *ops, uint32_t n)
{
	return fabric_execute(client->ep, ops, n, &client->completion,
			      fabric_now(client->fabric) + LAB_LONG);
}

int lab_finish(struct lab_client *client)
{
	while (client->completion.pending)
		fabric_poll(client->ep, fabric_now(client->fabric) + LAB_LONG);
	return client->completion.status;
}

int lab_add(struct lab_client *client, uint64_t word, uint64_t addend, uint64_t *old)
{
	const struct fabric_op op = {
		.opcode = FABRIC_FETCH_ADD,
		.offset = word * 8,
		.operand = addend,
		.local = old,
	};

	return lab_do(client, &op, 1);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated fabric, without faults, as the suite wants it described. The test itself is a process of
 * the world, and the suite's other processes are too.
 */
#include "conformance_sim.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "sim/sim.h"

#define NODE          1
#define MAX_PROCESSES 4096
#define LOOK_NS       10000

struct child {
	struct sim_process *process;
	void (*body)(void *arg);
	int status;
	max_align_t arg[]; /* a copy */
};

static struct sim *world;
static struct child *children[MAX_PROCESSES]; /* by id - 1 */
static unsigned int count;

static void run(void *arg)
{
	struct child *child = arg;

	child->body(child->arg);
}

static pid_t spawn(void (*body)(void *arg), const void *arg, size_t arg_bytes)
{
	struct child *child;
	char name[32];

	if (count == MAX_PROCESSES)
		return -EAGAIN;
	child = calloc(1, sizeof(*child) + arg_bytes);
	if (!child)
		return -ENOMEM;
	child->body = body;
	memcpy(child->arg, arg, arg_bytes);
	children[count++] = child;
	snprintf(name, sizeof(name), "process %u", count);
	child->process = sim_spawn(world, name, NODE, run, child);
	return child->process ? (pid_t)count : -ENOMEM;
}

static int join(pid_t pid, int timeout_ms)
{
	struct child *child = children[pid - 1];
	uint64_t deadline_ns = base_deadline(sim_now(world), timeout_ms);
	bool late;

	while (sim_alive(child->process) && sim_now(world) < deadline_ns)
		sim_pause(LOOK_NS);
	late = sim_alive(child->process);
	sim_kill(child->process);
	return late ? -1 : child->status;
}

static void send_signal(pid_t pid, int signal)
{
	struct child *child = children[pid - 1];

	switch (signal) {
	case SIGKILL:
		child->status = 128 + SIGKILL;
		sim_kill(child->process);
		break;
	case SIGSTOP:
		sim_stall(child->process, BASE_FOREVER);
		break;
	default:
		sim_stall(child->process, 0);
	}
}

static void sleep_for(unsigned int duration_us)
{
	sim_pause(duration_us * 1000ull);
}

static void end(int status)
{
	for (unsigned int i = 0; i < count; i++)
		if (children[i]->process == sim_self())
			children[i]->status = status;
	sim_kill(sim_self());
}

static void address(char *buf, size_t len_bytes)
{
	static unsigned int used;

	snprintf(buf, len_bytes, "sim://%d/test-%u", NODE, ++used);
}

static int allocate(struct fabric_memory *memory, uint64_t len_bytes)
{
	*memory = (struct fabric_memory){ .len_bytes = len_bytes, .fd = -1 };
	memory->base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory->base == MAP_FAILED ? -errno : 0;
}

static void release(struct fabric_memory *memory)
{
	munmap(memory->base, memory->len_bytes);
}

static const struct conformance_processes processes = {
	.spawn = spawn,
	.join = join,
	.signal = send_signal,
	.sleep = sleep_for,
	.end = end,
};

const struct conformance_fabric conformance_sim = {
	.name = "sim",
	.open = sim_open_fabric,
	.address = address,
	.allocate = allocate,
	.release = release,
	.death_ms = 1000,
	.processes = &processes,
};

void conformance_sim_begin(void)
{
	const struct sim_options options = {
		.seed = 1,
		.costs = sim_costs_plain,
		.lease_ns = NS_PER_S,
	};

	world = sim_open(&options);
	sim_adopt(world, "test", NODE);
}

void conformance_sim_end(void)
{
	sim_close(world);
	for (unsigned int i = 0; i < count; i++)
		free(children[i]);
}

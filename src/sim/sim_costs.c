/* SPDX-License-Identifier: BSD-2-Clause */
/* What things cost, and what faults are called. */
#include "sim/sim.h"

const struct sim_costs sim_costs_plain = {
	.one_way_ns = 800,
	.jitter_ns = 400,
	.post_ns = 50,
	.message_ns = 20000,
};

const char *const sim_fault_names[SIM_FAULTS] = {
	[SIM_DELAY] = "delay",
	[SIM_TEAR] = "tear",
	[SIM_READ_ORDER] = "read order",
	[SIM_BREAK] = "break",
	[SIM_LATE] = "late landing",
	[SIM_LATE_MESSAGE] = "late message",
	[SIM_LEASE] = "lease",
	[SIM_STALL] = "stall",
	[SIM_KILL_WORKER] = "worker killed",
	[SIM_KILL_SERVER] = "server killed",
	[SIM_REBIRTH] = "rebirth",
};

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes. A process gives way by sim_block() and nowhere else. Whoever has woken it, or its timer,
 * puts it into the list of those that are ready; the loop (sim_world.c) continues them one by one.
 *
 * A process that has been adopted has no stack of its own: it is the caller of sim_adopt(), and runs
 * the loop while it waits.
 *
 * Timers are lazy: one that is due earlier than needed stays, and is set anew when it fires. Most
 * waits end long before their deadlines, so that few timers are ever moved.
 */
#include <stdio.h>
#include <string.h>

#include "sim/sim_private.h"

struct sim_process *sim_caller(void)
{
	return sim_here() ? sim_here()->current : NULL;
}

uint64_t sim_time_of(const struct sim_process *process)
{
	return sim_later(process->sim->now, process->busy_until);
}

static void make_ready(struct sim_process *process)
{
	if (process->is_ready || !process->is_blocked)
		return;
	process->is_ready = true;
	TAILQ_INSERT_TAIL(&process->sim->ready, process, ready);
}

static void set_timer(struct sim_process *process, uint64_t at)
{
	if (process->timer.sequence && process->timer_at <= at)
		return;
	process->timer_at = at;
	sim_schedule(process->sim, &process->timer, at);
}

static void timer_fired(struct sim *sim, struct sim_event *event)
{
	struct sim_process *process = sim_container(event, struct sim_process, timer);

	if (!process->is_blocked)
		return;
	if (process->deadline_ns <= sim->now)
		make_ready(process);
	else if (process->deadline_ns != BASE_FOREVER)
		set_timer(process, process->deadline_ns);
}

void sim_wake(struct sim_process *process, const void *on)
{
	if (process->waits_on == on)
		make_ready(process);
}

static struct sim_process *new_process(struct sim *sim, const char *name, uint32_t node)
{
	struct sim_process *process = sim_alloc(sim, sizeof(*process));

	memset(process, 0, sizeof(*process));
	process->sim = sim;
	process->id = ++sim->next_process;
	snprintf(process->name, sizeof(process->name), "%s", name);
	process->device = sim_device_of(sim, node);
	process->timer.run = timer_fired;
	LIST_INSERT_HEAD(&sim->processes, process, all);
	return process;
}

struct sim_process *sim_spawn(struct sim *sim, const char *name, uint32_t node,
			      void (*main)(void *arg), void *arg)
{
	struct sim_process *process = new_process(sim, name, node);

	process->main = main;
	process->arg = arg;
	if (sim_stack_get(sim, process)) {
		LIST_REMOVE(process, all);
		sim_free(sim, process, sizeof(*process));
		return NULL;
	}
	process->errors = sim_alloc(sim, base_error_state_bytes());
	memset(process->errors, 0, base_error_state_bytes());
	process->is_blocked = true;
	process->deadline_ns = BASE_FOREVER;
	sim->live++;
	make_ready(process);
	sim_trace_as(sim, process->name, "begins on node %u", node);
	return process;
}

struct sim_process *sim_adopt(struct sim *sim, const char *name, uint32_t node)
{
	struct sim_process *process = new_process(sim, name, node);

	process->is_adopted = true;
	sim->adopted = process;
	sim->current = process;
	return process;
}

/* Everything of a process that has ended, but itself: others may ask about it. */
static void end(struct sim_process *process, bool killed)
{
	struct sim *sim = process->sim;

	process->has_ended = true;
	process->was_killed = killed;
	process->is_blocked = false;
	if (process->is_ready)
		TAILQ_REMOVE(&sim->ready, process, ready);
	process->is_ready = false;
	sim_cancel(sim, &process->timer);
	if (!killed && process->errors)
		base_error_state_end(process->errors);
	if (!killed)
		process->leaked = sim_owned_count(&process->owned) + sim_fabrics_count(process);
	sim_fabrics_end(process);
	sim_owned_end(&process->owned);
	if (process->errors)
		sim_free(sim, process->errors, base_error_state_bytes());
	process->errors = NULL;
	sim_stack_put(sim, process);
	if (!process->is_adopted)
		sim->live--;
	if (process->leaked)
		sim_trace_as(sim, process->name, "ended, and left %llu bytes",
			     (unsigned long long)process->leaked);
	else
		sim_trace_as(sim, process->name, killed ? "killed" : "ended");
}

_Noreturn void sim_process_main(void)
{
	struct sim_process *process;

	sim_context_begun();
	process = sim_here()->current;
	process->main(process->arg);
	process->has_ended = true;
	sim_context_switch(&process->context, &process->sim->context, true);
	__builtin_unreachable();
}

void sim_resume(struct sim *sim, struct sim_process *process)
{
	struct base_error_state *errors;

	if (sim_unlikely(process->stalled_until > sim->now)) {
		process->deadline_ns = process->stalled_until;
		if (process->stalled_until != BASE_FOREVER)
			set_timer(process, process->deadline_ns);
		return;
	}
	process->is_blocked = false;
	if (process->is_adopted)
		return;
	sim->current = process;
	sim->stats.switches++;
	errors = base_error_switch(process->errors);
	sim_context_switch(&sim->context, &process->context, false);
	base_error_switch(errors);
	sim->current = NULL;
	if (process->has_ended)
		end(process, process->was_killed);
}

void sim_stall(struct sim_process *process, uint64_t duration_ns)
{
	struct sim *sim = process->sim;

	if (process->has_ended)
		return;
	if (!duration_ns) {
		process->stalled_until = 0;
		make_ready(process);
		return;
	}
	sim_count(sim, SIM_STALL);
	process->stalled_until = duration_ns < BASE_FOREVER - sim->now ? sim->now + duration_ns :
									 BASE_FOREVER;
	sim_trace_as(sim, process->name, "stands still for %llu ns", (unsigned long long)duration_ns);
}

/* By itself, at the rate that was asked for. */
static void stall_now_and_then(struct sim_process *process)
{
	struct sim *sim = process->sim;
	uint64_t duration_ns;

	if (process->is_adopted || !sim_chance(sim, SIM_STALL))
		return;
	duration_ns = sim_random_spread(sim, 1000, sim_later(sim->options.lease_ns, 2000));
	process->stalled_until = sim->now + duration_ns;
	sim_trace_as(sim, process->name, "stands still for %llu ns", (unsigned long long)duration_ns);
}

void sim_block(struct sim_process *process, const void *on, uint64_t deadline_ns)
{
	struct sim *sim = process->sim;

	process->waits_on = on;
	process->deadline_ns = deadline_ns;
	process->is_blocked = true;
	if (sim->options.rate[SIM_STALL])
		stall_now_and_then(process);
	if (deadline_ns != BASE_FOREVER)
		set_timer(process, deadline_ns);
	if (process->is_adopted) {
		sim_loop(sim, process, BASE_FOREVER);
		process->is_blocked = false;
		sim->current = process;
	} else {
		sim_context_switch(&process->context, &sim->context, false);
	}
	process->waits_on = NULL;
}

void sim_pause(uint64_t duration_ns)
{
	struct sim_process *process = sim_caller();
	uint64_t until;

	if (!process)
		return;
	until = process->sim->now + duration_ns;
	do {
		/* at the end of those that are due now */
		sim_cancel(process->sim, &process->timer);
		sim_block(process, NULL, until);
	} while (process->sim->now < until);
}

void sim_kill(struct sim_process *process)
{
	struct sim *sim = process->sim;

	if (process->has_ended || process->is_adopted)
		return;
	sim_count(sim, process->is_server ? SIM_KILL_SERVER : SIM_KILL_WORKER);
	process->was_killed = true;
	if (process != sim->current) {
		end(process, true);
		return;
	}
	process->has_ended = true;
	sim_context_switch(&process->context, &sim->context, true);
	__builtin_unreachable();
}

bool sim_alive(const struct sim_process *process)
{
	return !process->has_ended;
}

uint64_t sim_leaked(const struct sim_process *process)
{
	return process->leaked;
}

void sim_process_free(struct sim_process *process)
{
	if (!process->has_ended)
		end(process, true);
	LIST_REMOVE(process, all);
}

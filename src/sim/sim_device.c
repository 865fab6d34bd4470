/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a device costs. It serves one operation after the other, and its link one byte after the
 * other in each direction; atomics on one word are apart by some time more. A queue pair that it does
 * not hold costs extra: with more live than it holds, and uses spread evenly, that is a matter of
 * chance. The plain costs have none of this, and then nothing here is called.
 */
#include <string.h>

#include "sim/sim_private.h"

#define WORDS_FIRST 1024 /* a power of two */

struct sim_device *sim_device_of(struct sim *sim, uint32_t node)
{
	struct sim_device_list *list = &sim->devices[node % SIM_DEVICE_LISTS];
	struct sim_device *device;

	LIST_FOREACH(device, list, link)
	if (device->node == node)
		return device;
	device = sim_alloc(sim, sizeof(*device));
	memset(device, 0, sizeof(*device));
	device->node = node;
	LIST_INSERT_HEAD(list, device, link);
	LIST_INSERT_HEAD(&sim->all_devices, device, all);
	return device;
}

void sim_device_end(struct sim *sim)
{
	sim_raw_free(sim->words);
}

static uint64_t hash_word(uint64_t word)
{
	return word * 0x9e3779b97f4a7c15ull >> 20;
}

/* When the last atomic on a word is over. Its place moves when the table grows. */
static uint64_t *word_time(struct sim *sim, uint64_t word)
{
	uint64_t at;

	if (2 * sim->word_count >= sim->word_capacity) {
		uint64_t old = sim->word_capacity, *words = sim->words;

		sim->word_capacity = old ? 4 * old : WORDS_FIRST;
		sim->words = sim_raw_alloc(sim->word_capacity * 16);
		memset(sim->words, 0, sim->word_capacity * 16);
		sim->word_count = 0;
		for (uint64_t i = 0; i < old; i++)
			if (words[2 * i])
				*word_time(sim, words[2 * i]) = words[2 * i + 1];
		sim_raw_free(words);
	}
	at = hash_word(word) % sim->word_capacity;
	while (sim->words[2 * at] && sim->words[2 * at] != word)
		at = (at + 1) % sim->word_capacity;
	if (!sim->words[2 * at]) {
		sim->words[2 * at] = word;
		sim->word_count++;
	}
	return &sim->words[2 * at + 1];
}

static uint64_t times(uint64_t each_ns, const struct sim_op *op)
{
	return op->opcode >= FABRIC_READ_LIST ? each_ns * op->count : each_ns;
}

static uint64_t wire_ns(const struct sim *sim, uint64_t len_bytes)
{
	return len_bytes * sim->options.costs.byte_ps / 1000;
}

static uint64_t occupy(uint64_t *until, uint64_t from, uint64_t duration_ns)
{
	*until = sim_later(*until, from) + duration_ns;
	return *until;
}

uint64_t sim_device_send(struct sim_connection *c, const struct sim_op *op, uint64_t ready)
{
	struct sim *sim = c->sim;
	uint64_t service = times(sim->options.costs.write_ns, op), at = ready;

	if (service) {
		at = occupy(&c->source->busy_until, at, service);
		c->source->served_ns += service;
	}
	if (op->opcode == FABRIC_WRITE) {
		at = occupy(&c->source->out_until, at, wire_ns(sim, op->len_bytes));
		c->source->out_ns += wire_ns(sim, op->len_bytes);
	}
	return at;
}

static uint64_t word_served(struct sim_connection *c, uint64_t offset, uint32_t region, uint64_t from)
{
	uint64_t word = (uint64_t)(uintptr_t)(c->regions[region].memory->base + offset);

	return occupy(word_time(c->sim, word), from, c->sim->options.costs.atomic_word_ns);
}

uint64_t sim_device_serve(struct sim_connection *c, const struct sim_op *op)
{
	struct sim *sim = c->sim;
	const struct sim_costs *costs = &sim->options.costs;
	struct sim_device *device = c->target;
	bool atomic = !sim_op_is_read(op) && !sim_op_is_write(op);
	uint64_t service = times(atomic              ? costs->atomic_ns :
				 sim_op_is_write(op) ? costs->write_ns :
						       costs->read_ns,
				 op);
	uint64_t at = sim->now;

	if (costs->queue_pairs && device->queue_pairs > costs->queue_pairs &&
	    sim_random(sim, device->queue_pairs) >= costs->queue_pairs)
		service += costs->queue_pair_ns;
	if (sim_op_is_write(op)) {
		at = occupy(&device->in_until, at, wire_ns(sim, op->len_bytes));
		device->in_ns += wire_ns(sim, op->len_bytes);
	}
	at = occupy(&device->busy_until, at, service);
	device->served_ns += service;
	if (!atomic || !costs->atomic_word_ns || !c->regions[op->region].memory)
		return at;
	if (op->opcode != FABRIC_FETCH_ADD_LIST)
		return word_served(c, op->offset, op->region, at);
	for (uint32_t i = 0; i < op->count; i++)
		at = sim_later(at, word_served(c, op->words[i], op->region, at));
	return at;
}

uint64_t sim_device_answer(struct sim_connection *c, const struct sim_op *op)
{
	struct sim *sim = c->sim;
	uint64_t len_bytes = op->opcode == FABRIC_READ_LIST ? op->count * op->len_bytes : op->len_bytes;
	uint64_t duration_ns, at;

	if (!sim_op_is_read(op))
		return sim->now;
	duration_ns = wire_ns(sim, len_bytes);
	at = occupy(&c->target->out_until, sim->now, duration_ns);
	c->target->out_ns += duration_ns;
	at = occupy(&c->source->in_until, at - duration_ns, duration_ns);
	c->source->in_ns += duration_ns;
	return at;
}

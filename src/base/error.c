/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each thread has two records: the one that ramps_last_error() shows, and the one that failures
 * write to while a call runs. base_end() swaps them when the call fails, so that a failure which
 * the call recovered from never disturbs what the program is still reading.
 */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ramps/ramps.h>

#define FEW_RANKS 64

struct record {
	struct ramps_error error;
	char peer[256];
	char text[768];
	uint32_t few[FEW_RANKS];
	uint32_t *many; /* grows with the largest list of this thread */
	uint32_t capacity;
};

struct base_error_state {
	struct record records[2];
	unsigned int shown;
	bool made; /* the other record describes a failure since the last base_end() */
};

static __thread struct base_error_state own;
static __thread struct base_error_state *switched; /* instead of it */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key;

static inline struct base_error_state *state_now(void)
{
	return __builtin_expect(switched != NULL, 0) ? switched : &own;
}

size_t base_error_state_bytes(void)
{
	return sizeof(struct base_error_state);
}

struct base_error_state *base_error_switch(struct base_error_state *state)
{
	struct base_error_state *before = switched;

	switched = state;
	return before;
}

void base_error_state_end(struct base_error_state *state)
{
	for (int i = 0; i < 2; i++) {
		struct record *record = &state->records[i];

		free(record->many);
		record->many = NULL;
		record->capacity = 0;
		record->error.rank_count = 0;
		record->error.ranks = record->few;
	}
}

static void forget_thread(void *state)
{
	base_error_state_end(state);
}

static void make_key(void)
{
	have_key = pthread_key_create(&key, forget_thread) == 0;
}

static struct record *current(void)
{
	struct base_error_state *state = state_now();

	return &state->records[!state->shown];
}

static inline bool is_made(void)
{
	return state_now()->made;
}

static void clear(struct record *record, int code)
{
	record->peer[0] = record->text[0] = '\0';
	record->error = (struct ramps_error){
		.code = code < 0 ? -code : code,
		.call = "",
		.peer = record->peer,
		.text = record->text,
		.ranks = record->few,
	};
}

/* What came from outside (an address, a variable, a peer) may hold anything. */
static void make_one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

void base_record(int code, const char *fmt, ...)
{
	struct record *record = current();
	int saved_errno = errno;
	char text[sizeof(record->text)]; /* an argument may be the text of the failure before */
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	make_one_line(text);
	clear(record, code);
	memcpy(record->text, text, sizeof(text));
	state_now()->made = true;
	errno = saved_errno;
}

void base_error_peer(const char *address)
{
	struct record *record = current();

	if (is_made())
		snprintf(record->peer, sizeof(record->peer), "%s", address ? address : "");
}

static bool grow(struct record *record, uint32_t count)
{
	uint32_t *many;

	pthread_once(&once, make_key);
	if (!have_key)
		return false;
	many = realloc(record->many, (size_t)count * sizeof(*many));
	if (!many)
		return false;
	record->many = many;
	record->capacity = count;
	if (!switched)
		pthread_setspecific(key, &own); /* so that the thread's end frees it */
	return true;
}

void base_error_ranks(const uint32_t *ranks, uint32_t count)
{
	struct record *record = current();
	uint32_t *to = record->few;

	if (!is_made())
		return;
	if (count > FEW_RANKS) {
		if (count <= record->capacity || grow(record, count))
			to = record->many;
		else
			count = FEW_RANKS; /* no memory: the first ones say enough */
	}
	if (count)
		memcpy(to, ranks, (size_t)count * sizeof(*to));
	record->error.ranks = to;
	record->error.rank_count = count;
}

void base_error_object(const char *kind, const char *name)
{
	struct record *record = current();
	size_t length = strlen(kind);
	char text[sizeof(record->text)];
	const char *from = record->text;

	if (!is_made())
		return;
	if (!strncmp(from, kind, length) && from[length] == ':')
		from += length + 1 + strspn(from + length + 1, " ");
	if (snprintf(text, sizeof(text), "%s %s: %s", kind, name, from) > 0)
		memcpy(record->text, text, sizeof(text));
}

const char *base_error_text(void)
{
	return current()->text;
}

void base_error_unknown(uint64_t unknown_ops)
{
	if (is_made())
		current()->error.unknown_ops = unknown_ops;
}

int base_end(const char *call, int ret)
{
	struct base_error_state *state = state_now();
	struct record *record = &state->records[!state->shown];

	if (ret < 0) {
		if (!state->made || record->error.code != -ret) {
			const char *meaning = strerrordesc_np(-ret);

			clear(record, ret);
			snprintf(record->text, sizeof(record->text), "%s",
				 meaning ? meaning : "unknown error");
		}
		record->error.call = call;
		state->shown = !state->shown;
	}
	state->made = false;
	return ret;
}

const struct ramps_error *base_last_error(void)
{
	struct base_error_state *state = state_now();
	struct record *record = &state->records[state->shown];

	if (!record->error.call)
		clear(record, 0);
	return &record->error;
}

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

static __thread struct record records[2];
static __thread unsigned int shown;
static __thread bool made; /* the other record describes a failure since the last base_end() */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key;

static void forget_thread(void *unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		free(records[i].many);
		records[i].many = NULL;
		records[i].capacity = 0;
		records[i].error.rank_count = 0;
		records[i].error.ranks = records[i].few;
	}
}

static void make_key(void)
{
	have_key = pthread_key_create(&key, forget_thread) == 0;
}

static struct record *current(void)
{
	return &records[!shown];
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
	made = true;
	errno = saved_errno;
}

void base_error_peer(const char *address)
{
	struct record *record = current();

	if (made)
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
	pthread_setspecific(key, records); /* so that the thread's end frees it */
	return true;
}

void base_error_ranks(const uint32_t *ranks, uint32_t count)
{
	struct record *record = current();
	uint32_t *to = record->few;

	if (!made)
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

	if (!made)
		return;
	if (!strncmp(from, kind, length) && from[length] == ':')
		from += length + 1 + strspn(from + length + 1, " ");
	snprintf(text, sizeof(text), "%s %s: %s", kind, name, from);
	memcpy(record->text, text, sizeof(text));
}

void base_error_unknown(uint64_t unknown_ops)
{
	if (made)
		current()->error.unknown_ops = unknown_ops;
}

int base_end(const char *call, int ret)
{
	struct record *record = current();

	if (ret < 0) {
		if (!made || record->error.code != -ret) {
			const char *meaning = strerrordesc_np(-ret);

			clear(record, ret);
			snprintf(record->text, sizeof(record->text), "%s",
				 meaning ? meaning : "unknown error");
		}
		record->error.call = call;
		shown = !shown;
	}
	made = false;
	return ret;
}

const struct ramps_error *base_last_error(void)
{
	struct record *record = &records[shown];

	if (!record->error.call)
		clear(record, 0);
	return &record->error;
}

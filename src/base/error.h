/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The detail of this thread's last error. The function that decides that something failed says
 * why, once, by base_fail(); everything above passes the code on. The public function closes with
 * base_end().
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stddef.h>
#include <stdint.h>

struct ramps_error;

/*
 * int base_fail(int code, const char *fmt, ...): records one line of text (what happened, what to
 * do) and returns code, a negative errno. As an expression, so that whoever checks the code sees
 * that it is the code.
 */
#define base_fail(code, ...)                          \
	({                                            \
		int base_code_ = (code);              \
		base_record(base_code_, __VA_ARGS__); \
		base_code_;                           \
	})
void base_record(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Adds to the record made last: the server's address; ranks that are waited for, which are
 * copied.
 */
void base_error_peer(const char *address);
void base_error_ranks(const uint32_t *ranks, uint32_t count);
void base_error_unknown(uint64_t unknown_ops);

/* The text of the failure recorded last, for one that follows from it. */
const char *base_error_text(void);

/* Has its text begin with "KIND NAME: ", which takes the place of a "KIND: ". */
void base_error_object(const char *kind, const char *name);

/* Ends public function `call`: completes the record if ret is negative, and returns ret. */
int base_end(const char *call, int ret);

/* What ramps_last_error() returns. Never NULL. */
const struct ramps_error *base_last_error(void);

/*
 * For whoever runs several processes in one thread: the thread uses `state` from now on, or its own
 * if that is NULL. Returns what it used. A state is so many zeroed bytes at first.
 */
struct base_error_state;
size_t base_error_state_bytes(void);
struct base_error_state *base_error_switch(struct base_error_state *state);
void base_error_state_end(struct base_error_state *state);

#endif

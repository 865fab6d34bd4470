/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What travels between the host and a guest, and between softroce-ssh and the
 * agent of its guest: frames of a 12-byte little-endian header (payload length,
 * session, type) and a payload. A session is one command that runs somewhere.
 * `wire.py` is the same on the host's side.
 *
 * Flow control is per session and direction: a sender may have SF_WINDOW bytes
 * under way, and more as far as the receiver grants it. So one command that
 * nobody reads from holds up no other.
 */
#ifndef SOFTROCE_FRAME_H
#define SOFTROCE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define SF_WINDOW       (256u * 1024)
#define SF_MAX_DATA     (32u * 1024)
#define SF_MAX_FRAME    (1024u * 1024)
#define SF_AGENT_SOCKET "/run/softroce/agent.sock"

enum sf_type {
	SF_HELLO = 1, /* agent: the guest is ready */
	SF_OPEN = 2,  /* node, cwd, kind, argc, argv.., env..: each ends in NUL */
	SF_STDIN = 3, /* empty: end of file */
	SF_STDOUT = 4,
	SF_STDERR = 5,
	SF_CREDIT = 6,   /* u32: so many bytes more may come */
	SF_SIGNAL = 7,   /* u32: signal for all processes of the command */
	SF_CLOSE = 8,    /* the client is gone: end the command */
	SF_EXIT = 9,     /* u32: exit status, the session's last frame */
	SF_FAIL = 10,    /* text: no exit status will come, the last frame too */
	SF_CONTROL = 11, /* JSON, from a client on the host */
	SF_REPLY = 12,   /* JSON, the answer */
};

struct sf_header {
	uint32_t len_bytes;
	uint32_t session;
	uint32_t type;
};

struct sf_buf {
	char *data;
	size_t start;
	size_t end;
	size_t cap;
};

static inline size_t sf_buf_len(const struct sf_buf *b)
{
	return b->end - b->start;
}

/* Running out of memory ends the process: an agent without it is of no use. */
void sf_buf_put(struct sf_buf *b, const void *data, size_t len);
void sf_buf_drop(struct sf_buf *b, size_t len);
void sf_buf_free(struct sf_buf *b);

/* One read or write: above 0 for bytes moved, 0 at end of file, -errno. */
long sf_buf_fill(struct sf_buf *b, int fd);
long sf_buf_flush(struct sf_buf *b, int fd);

void sf_put(struct sf_buf *b, enum sf_type type, uint32_t session, const void *data, size_t len);
void sf_put_u32(struct sf_buf *b, enum sf_type type, uint32_t session, uint32_t value);

/* The first whole frame's payload, or NULL; sf_buf_drop() header and payload after use. */
char *sf_peek(struct sf_buf *b, struct sf_header *h);
uint32_t sf_u32(const char *payload, const struct sf_header *h);

int softroce_ssh(int argc, char **argv);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SOFTROCE_AGENT_H
#define SOFTROCE_AGENT_H

#include "frame.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

/* A session that a softroce-ssh of this guest opened; the host numbers the others. */
#define AGENT_PROXY 0x80000000u

/* Nothing more is read from commands and clients while so much waits for the host. */
#define AGENT_TX_LIMIT (256u * 1024)

/* A command that runs here. Descriptors are -1 once closed. */
struct command {
	struct command *next;
	uint32_t session;
	pid_t pid;
	int fd[3];
	struct pollfd *poll[3];
	struct sf_buf input;
	bool input_ended;
	uint32_t ungranted_bytes;
	uint32_t may_send_bytes;
	bool exited;
	bool abandoned;
	uint32_t status;
	int64_t kill_at_ms; /* 0: no */
};

/* The sockets of a softroce-ssh of this guest. */
struct proxy {
	struct proxy *next;
	uint32_t session;
	int fd;
	struct pollfd *poll;
	struct sf_buf tx;
	struct sf_buf rx;
	bool ended; /* its last frame is in tx */
	bool gone;
};

struct agent {
	int port;
	int listener;
	int signals;
	struct sf_buf tx;
	struct sf_buf rx;
	struct command *commands;
	struct proxy *proxies;
	uint32_t next_proxy;
};

int64_t agent_now_ms(void);

/* command.c: commands that run here */
void command_open(struct agent *a, uint32_t session, const char *payload, size_t len);
void command_take(struct agent *a, const struct sf_header *h, const char *payload);
size_t command_poll(struct agent *a, struct pollfd *p, size_t n);
void command_serve(struct agent *a);
void command_reaped(struct agent *a, pid_t pid, int wait_status);
int command_timeout_ms(const struct agent *a);

/* proxy.c: softroce-ssh of this guest, whose command runs elsewhere */
void proxy_accept(struct agent *a);
void proxy_take(struct agent *a, const struct sf_header *h, const char *payload);
size_t proxy_poll(struct agent *a, struct pollfd *p, size_t n);
void proxy_serve(struct agent *a);

#endif

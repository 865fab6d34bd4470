/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ramps doctor: a list of items, each looked at by one function that reads, judges and says what mends
 * it. What can't be looked at because of something else says so: only what is broken is marked.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOCTOR_ITEMS       32u
#define DOCTOR_QUEUE_BYTES (16ull << 20) /* locked besides the arena: queues and buffers */

enum doctor_state {
	DOCTOR_OK = 0,
	DOCTOR_MEND,
	DOCTOR_SKIPPED,
};

struct doctor_item {
	const char *name, *label; /* for programs, for people */
	enum doctor_state state;
	bool as_root;    /* the command is one for root */
	double us;       /* an operation's time; 0: none was measured */
	char found[256]; /* what is there; "" where nothing was looked at */
	char text[512];  /* DOCTOR_MEND: what to do, DOCTOR_SKIPPED: why */
};

/* The device, port and GID that the items are about. */
struct doctor_port {
	char device[64];
	uint32_t number;
	char netdev[64];     /* "" where there is none */
	bool ethernet, soft; /* link layer; rxe or siw */
	bool active;
	int32_t gid_index; /* -1: none that serves */
	unsigned char gid[16];
};

/* What only libibverbs and librdmacm know. */
struct doctor_verbs {
	char open_error[256]; /* why the device could not be opened */
	char bind_error[256]; /* why the GID's address could not be bound */
	uint32_t active_mtu, max_mtu;
	char atomic_cap[8];
	uint32_t outstanding; /* READs and atomics that a queue pair takes as the target */
};

struct doctor {
	const char *root; /* "", or what stands for / in tests */
	const char *device;
	uint32_t port;
	int32_t gid_index; /* -1: choose */
	uint64_t arena_bytes;
	bool shm_only;
	struct doctor_port at;
	/* why no more can be looked at, or "" */
	char no_device[64], no_port[64], no_file[96], no_cm[96];
	uint32_t count;
	struct doctor_item items[DOCTOR_ITEMS];
};

/* doctor.c: items */
struct doctor_item *doctor_add(struct doctor *doctor, const char *name, const char *label);
void doctor_found(struct doctor_item *item, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doctor_mend(struct doctor_item *item, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doctor_mend_as_root(struct doctor_item *item, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_skip(struct doctor *doctor, const char *name, const char *label, const char *why);

/* doctor.c: files under the root. The path is relative: "proc/self/limits". */
bool doctor_exists(const struct doctor *doctor, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* First line into buf, without its end. */
bool doctor_line(const struct doctor *doctor, char *buf, size_t len_bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A decimal number; `missing` where there is none. */
int64_t doctor_number(const struct doctor *doctor, int64_t missing, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* What follows `key` on the line that begins with it. */
bool doctor_field(const struct doctor *doctor, const char *path, const char *key, char *buf,
		  size_t len_bytes);
/* The last name of where a link points. */
bool doctor_link(const struct doctor *doctor, char *buf, size_t len_bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Names in a directory, sorted, without hidden ones; free them with doctor_names_free(). */
uint32_t doctor_names(const struct doctor *doctor, char ***names, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void doctor_names_free(char **names, uint32_t count);
bool doctor_in_container(const struct doctor *doctor);

/* The items, in the order of the list. */
void doctor_check_node(struct doctor *doctor); /* doctor_node.c: kernel, clock, /dev/shm, huge pages */
void doctor_check_memlock(struct doctor *doctor); /* doctor_node.c */
void doctor_check_device(struct doctor *doctor);  /* doctor_device.c: device, modules, files */
void doctor_check_port(struct doctor *doctor); /* doctor_port.c: what the device says, port, GID, MTU, NUMA */

/* doctor_verbs.c. gid: whether doctor->at has one whose address is to be bound. False: not in this build. */
bool doctor_verbs_ask(const struct doctor *doctor, struct doctor_verbs *verbs);

/* A GID as people write it: an IP address, or eight groups. */
#define DOCTOR_GID_BYTES 48
const char *doctor_gid_text(const unsigned char gid[16], char buf[DOCTOR_GID_BYTES]);

/* doctor_connect.c: items of the operations on what is at the address. */
void doctor_connect(struct doctor *doctor, const char *address, double timeout_s);

/* doctor_serve.c: serves scratch memory until a signal. Returns an exit status. */
int doctor_serve(const char *address);

/*
 * Between doctor_connect() and doctor_serve(): the client sends a core_request CORE_LOOK, the other
 * side grants and answers with this. What the client sends after that comes back as it is.
 */
#define DOCTOR_MAGIC      0x746f6372u
#define DOCTOR_DATA_BYTES 65536u

enum doctor_region {
	DOCTOR_WORDS = 0, /* a page; READ and atomics */
	DOCTOR_DATA = 1,  /* DOCTOR_DATA_BYTES; READ and WRITE */
};

struct doctor_welcome {
	uint32_t magic, layout_hash;
	uint64_t pid;
	char host[64];
};

#endif

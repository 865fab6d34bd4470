/* SPDX-License-Identifier: BSD-2-Clause */
/* The data half of an endpoint on the fake device, and the memory of a server that has granted it regions. */
#ifndef VERBS_RIG_H
#define VERBS_RIG_H

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "fake_device.h"
#include "verbs/verbs_data.h"

enum { WORDS, PUBLISHED, SLOTS, ALL, REGIONS };

#define REGION_BYTES (4u << 20)

struct rig {
	struct fabric_endpoint ep; /* first: its post, poll and wait are those of data */
	struct fabric fabric;
	struct verbs_data data;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_mr *mrs[REGIONS];
	unsigned char *memory[REGIONS]; /* of the server */
	struct verbs_buffers buffers;
	struct fabric_completion completion;
};

/* What is zero in config is as it would be in earnest; depth 0 is 1024. */
void rig_open(struct rig *rig, const struct verbs_data_config *config);
/* Fails the test if an object is left, or a queue was overrun. */
void rig_close(struct rig *rig);

/* Executes a list within seconds. */
int rig_do(struct rig *rig, const struct fabric_op *ops, uint32_t n);
int rig_one(struct rig *rig, struct fabric_op op);
/* Polls until nothing is outstanding; what the completion says. */
int rig_drain(struct rig *rig);

/* That the last error was this, and that its text has this in it. */
void rig_says(int code, const char *part);
/* And this; of the same error. */
void rig_says_too(const char *part);

/* Counts since the last call of it. */
struct verbs_counts rig_counts(struct rig *rig);

#define RIG(name, ...)                        \
	struct rig name##_, *name = &name##_; \
	fake_reset();                         \
	rig_open(name, &(const struct verbs_data_config){ __VA_ARGS__ })

#endif

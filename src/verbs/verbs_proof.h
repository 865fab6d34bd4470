/* SPDX-License-Identifier: BSD-2-Clause */
/* What is proved, and what the messages of the handshake hold; see verbs_fabric.c. */
#ifndef VERBS_PROOF_H
#define VERBS_PROOF_H

#include "verbs/verbs_private.h"

#define VERBS_BY_SERVER "ramps 1 server"
#define VERBS_BY_CLIENT "ramps 1 client"
#define VERBS_OF_DATA   "ramps 1 data"

/* VERBS_PROOF: what the client says of itself, and the HMAC over it. */
struct verbs_proof {
	unsigned char identity[FABRIC_IDENTITY_BYTES];
	uint32_t pid, queue_pairs;
	unsigned char mac[VERBS_MAC_BYTES];
};

#define VERBS_PROOF_CLAIM(proof) \
	(&(const struct verbs_claim){ (proof), offsetof(struct verbs_proof, mac) })

/* VERBS_WELCOME */
struct verbs_welcome {
	unsigned char session[8];
	unsigned char identity[FABRIC_IDENTITY_BYTES];
	uint32_t queue_pairs, reserved;
};

/* VERBS_REFUSED */
struct verbs_refused {
	int32_t code;
	char text[252];
};

/* What the HMAC of an answer is over. */
struct verbs_answer_claim {
	uint32_t version, mtu;
};

/* What the HMAC of a data connection's request is over. */
struct verbs_data_claim {
	unsigned char session[8];
	uint32_t index, qp_num;
};

#define VERBS_CLAIM(object) (&(const struct verbs_claim){ &(object), sizeof(object) })

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CONFORMANCE_CONFORMANCE_VERBS_H
#define CONFORMANCE_CONFORMANCE_VERBS_H

#include "conformance.h"

extern const struct conformance_fabric conformance_verbs;

#endif

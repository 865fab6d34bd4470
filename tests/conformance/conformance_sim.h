/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CONFORMANCE_CONFORMANCE_SIM_H
#define CONFORMANCE_CONFORMANCE_SIM_H

#include "conformance.h"

extern const struct conformance_fabric conformance_sim;

/* The world that all tests of a program share. */
void conformance_sim_begin(void);
void conformance_sim_end(void);

#endif

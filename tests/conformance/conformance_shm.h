/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CONFORMANCE_CONFORMANCE_SHM_H
#define CONFORMANCE_CONFORMANCE_SHM_H

#include "conformance.h"

extern const struct conformance_fabric conformance_shm;

#endif

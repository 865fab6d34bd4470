/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* The fabric over shared memory passes the suite. */
#include "conformance_shm.h"

int main(void)
{
	return conformance_run(&conformance_shm);
}

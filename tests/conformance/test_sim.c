/* SPDX-License-Identifier: BSD-2-Clause */
/* timeout: 300 s */
/* The simulated fabric passes the suite. */
#include "conformance_sim.h"

int main(void)
{
	int failed;

	conformance_sim_begin();
	failed = conformance_run(&conformance_sim);
	conformance_sim_end();
	return failed;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric over verbs passes the suite, where there is an RDMA device: tests/softroce/test_verbs.sh runs it. */
#include "conformance_verbs.h"

int main(void)
{
	return conformance_run(&conformance_verbs);
}

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The calls of the data path take no more instructions than they did. A count that
# is meant to grow is accepted by `tests/perf/instructions --accept build`, and the
# change of tests/perf/instructions.txt is part of the commit.
cd "$(dirname "$0")/../.." || exit 1
exec tests/perf/instructions "${BUILD:-build}"

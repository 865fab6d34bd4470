#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600 s
#
# The fabric over verbs passes the conformance suite of all fabrics, in a machine with soft-RoCE. Each of its
# tests is one of this script's.
. "$(dirname "$0")/lib.sh"

[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" the_suite_passes_over_verbs
suite=$(cd "$BUILD" && pwd)/tests/conformance/prog_verbs
status=0
# Fewer rounds: an operation takes a thousand times as long as over shared memory.
timeout 550 "$sr" vm -n -- env QUICK=1 "$suite" >"$TMPDIR/out" 2>&1 || status=$?
sed -n 's/^\[       OK \] \(.*\)/ok \1/p; s/^\[  SKIPPED \] \([a-z].*\)/skip \1: it has to run here/p' "$TMPDIR/out" | sort -u
sed -n 's/^\[  FAILED  \] \([a-z][a-z_0-9]*\)$/\1/p' "$TMPDIR/out" | sort -u >"$TMPDIR/failed"
while read -r name; do
	echo "not ok $name: see the output"
done <"$TMPDIR/failed"
if [ "$status" -ne 0 ] || [ -s "$TMPDIR/failed" ]; then
	tail -n 80 "$TMPDIR/out"
	[ -s "$TMPDIR/failed" ] || echo "not ok the_suite_passes_over_verbs: exit status $status"
	exit 1
fi

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600 s
#
# The simulator catches each fault of tests/sim/mutants within 500 seeds; a seed that fails is found, replayed
# exactly, and made smaller.
. "$(dirname "$0")/../support/script.sh"

every_mutant_is_caught()
{
	local few=

	[ "${QUICK:-}" != 1 ] || few="MUTANTS=commit-before-write climb-by-add no-wake"
	make -s mutants BUILD="$BUILD" JOBS=2 ${few:+"$few"} >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	[ "${QUICK:-}" = 1 ] || [ "$(tail -n 1 "$work/out" | sed 's/ .*//')" -ge 15 ] || fail "$(cat "$work/out")"
}

failing_seed_is_replayed_exactly_and_made_smaller()
{
	local seed replay program

	make -s mutants BUILD="$BUILD" JOBS=1 MUTANTS="climb-by-add --keep" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	program=$BUILD/mutants/climb-by-add/prog_sim
	fails "$program" --seeds 500 --failures 1 >"$work/found"
	seed=$(sed -n 's/^seed \([0-9]*\) failed.*/\1/p' "$work/found" | head -n 1)
	[ -n "$seed" ] || fail "no seed failed: $(tail -n 20 "$work/found")"
	for i in 1 2; do
		fails "$program" --seed "$seed" >"$work/again$i" 2>&1
	done
	cmp "$work/again1" "$work/again2"
	expect "hash" "$work/again1"
	expect "the smallest that still fails" "$work/found"
	replay=$(sed -n 's/^  replay     [^ ]* *//p' "$work/found" | head -n 1)
	eval "fails '$program' ${replay% --trace}" >"$work/small" 2>&1
	expect "FAILED" "$work/small"
}

run_tests every_mutant_is_caught failing_seed_is_replayed_exactly_and_made_smaller

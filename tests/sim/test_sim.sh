#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 400 s
#
# Many jobs in the simulated cluster, each from a seed, with faults: every invariant holds in all of them.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/../support/script.sh"

sim=$BUILD/tests/sim/prog_sim
seeds=2500
[ -z "${QUICK:-}" ] || seeds=150
[ -z "${SAN:-}" ] || seeds=60

every_invariant_holds_in_every_seed()
{
	"$sim" --seeds "$seeds" --jobs 2 >"$work/out" 2>&1 || fail "$(tail -n 60 "$work/out")"
	tail -n 3 "$work/out"
}

every_fault_happens()
{
	local fault

	"$sim" --seeds "$seeds" --jobs 2 >"$work/out" 2>&1
	for fault in delay tear "read order" break "late message" lease stall "worker killed" "server killed" rebirth; do
		grep -qE "^  $fault +[0-9.]+ ?k? +[1-9]" "$work/out" || fail "no $fault in: $(cat "$work/out")"
	done
}

same_seed_is_the_same_run()
{
	local seed

	for seed in 7 19 33; do
		for i in 1 2; do
			"$sim" --seed "$seed" --trace 2>&1 | sha256sum >"$work/$seed-$i"
		done
		cmp "$work/$seed-1" "$work/$seed-2"
	done
	fails cmp -s "$work/7-1" "$work/19-1"
}

run_tests every_invariant_holds_in_every_seed every_fault_happens same_seed_is_the_same_run

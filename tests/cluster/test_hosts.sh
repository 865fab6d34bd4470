#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600 s
#
# ramps over verbs across three nodes: servers on one, workers on the others, by `ramps run --hosts`.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/../softroce/lib.sh"

tests="examples_run_unchanged_on_hosts sums_are_exact_with_workers_on_all_nodes_at_once
	barriers_hold_across_nodes training_has_the_weights_of_shared_memory_to_the_bit
	killed_run_leaves_nothing_on_nodes"

# run HOSTS WORD...: `ramps run --hosts` on node0, HOSTS being the lines of the file.
run()
{
	printf '%b' "$1" >"$work/hosts"
	shift
	on node0 "$ramps" run --hosts "$work/hosts" --rsh softroce-ssh "$@"
}

two="node0 servers=1 workers=0\nnode1 workers=2\nnode2 workers=2\n"

examples_run_unchanged_on_hosts()
{
	run "$two" -- "$binaries/examples/first" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	is 4 "$(wc -l <"$work/out")" "lines of first"
	run "$two" --no-prefix -- "$binaries/examples/counters" 20 >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	is 8000 "$(awk '{ sum += $2 } END { print sum }' "$work/out")" "sum of counters"
}

sums_are_exact_with_workers_on_all_nodes_at_once()
{
	run "node0 servers=1 workers=2\nnode1 servers=1 workers=2\nnode2 servers=1 workers=2\n" -- \
		"$binaries/tests/cluster/prog_sums" 50 >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	is 6 "$(grep -c '^\[[0-5]\] 64 words of 50 times 21$' "$work/out")" "workers that found the sums"
}

barriers_hold_across_nodes()
{
	run "$two" -- "$binaries/tests/cluster/prog_rounds" 300 >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	is 4 "$(grep -c '300 rounds in step$' "$work/out")" "workers in step"
}

training_has_the_weights_of_shared_memory_to_the_bit()
{
	head_of_data "$work/data"
	train="$ramps train --data $work/data --epochs 1 --batch 128 --model mlp:16 --quiet --save"
	# shellcheck disable=SC2086 # words
	on node0 "$ramps" run -n 4 -- $train /tmp/shm.st >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	# shellcheck disable=SC2086 # words
	run "$two" -- $train /tmp/verbs.st >>"$work/out" 2>&1 || fail "$(cat "$work/out")"
	on node0 sha256sum /tmp/shm.st >"$work/shm"
	on node1 sha256sum /tmp/verbs.st >"$work/verbs"
	is "$(cut -d' ' -f1 "$work/shm")" "$(cut -d' ' -f1 "$work/verbs")" "weights"
}

# The first images of the set, enough for a few steps.
head_of_data()
{
	local set=/usr/share/datasets/fashion-mnist

	mkdir "$1"
	"$top/tests/cluster/head_of_idx.py" "$set" "$1" 1024
}

killed_run_leaves_nothing_on_nodes()
{
	local node

	printf '%b' "$two" >"$work/hosts"
	"$sr" exec -n node0 -- sh -c "echo pid \$\$; exec $ramps run --hosts $work/hosts --rsh softroce-ssh -- \
		sh -c 'echo ready; exec sleep 1000'" >"$work/out" 2>&1 &
	within 30 sh -c "[ \$(grep -c ready $work/out) = 4 ]"
	on node0 kill -KILL "$(sed -n 's/^pid //p' "$work/out")"
	for node in node0 node1 node2; do
		within 20 on "$node" sh -c '! pgrep -x ramps && ! pgrep -x sleep && ! ls -d /dev/shm/ramps* /tmp/ramps-run* 2>/dev/null'
	done >/dev/null
}

# shellcheck disable=SC2086 # words
[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" $tests
binaries=$(cd "$BUILD" && pwd)
ramps=$binaries/ramps
keep ramps --nodes 3 || {
	echo "not ok three_nodes_boot: $(tail -n 30 "$TMPDIR/ramps.log")"
	exit 1
}
export SOFTROCE_CLUSTER=ramps
# shellcheck disable=SC2086
run_tests $tests

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300 s
#
# `ramps bench` over verbs: perftest's rows, read by what reads perftest's own in the same machine; exact counts;
# perftest's words for the connection; a server side that outlives its client.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/../softroce/lib.sh"

tests="every_test_runs_over_verbs perftest_and_bench_have_the_same_columns counts_are_exact_over_verbs
	words_of_the_connection_hold server_side_outlives_a_killed_client_over_verbs"

# bench WORD...: on the node, with the key.
bench()
{
	on node0 env RAMPS_KEY_FILE="$TMPDIR/key" "$binaries/ramps" bench "$@" >"$work/out" 2>"$work/err" ||
		fail "bench $*: $(cat "$work/out" "$work/err")"
}

self()
{
	bench "$@" --self --listen verbs://node0:0
}

perftest()
{
	python3 "$top/tests/tools/perftest.py" "$@"
}

# The node's clock under emulation is coarse for an order of percentiles, but not for the columns.
every_test_runs_over_verbs()
{
	self pull_lat -n 50
	perftest lat "$work/out" 8 50
	expect "Device         : rxe0" "$work/out"
	expect "Mtu             : 4096[B]" "$work/out"
	self push_lat -n 30
	perftest lat "$work/out" 8 30
	self add_lat -n 50
	perftest lat "$work/out" 8 50
	self barrier_lat -n 20
	perftest lat "$work/out" 0 20
	self clock_lat -n 20
	perftest lat "$work/out" 0 20
	self round_lat -n 5 -s 4096
	perftest lat "$work/out" 4096 5
	self pull_lat -D 0.5 -f 0.1
	perftest lat-D "$work/out" 8 any
}

perftest_and_bench_have_the_same_columns()
{
	on node0 "$here/pair.sh" node0 node0 node0 ib_read_lat -n 50 >"$work/theirs" 2>&1 || fail "$(cat "$work/theirs")"
	perftest lat "$work/theirs" 2 50
	on node0 "$here/pair.sh" node0 node0 node0 ib_read_bw -n 20 -s 4096 >"$work/theirs" 2>&1 ||
		fail "$(cat "$work/theirs")"
	perftest bw "$work/theirs" 4096 20
	self pull_bw -n 20 -s 4096
	perftest bw "$work/out" 4096 20
}

# It compares with the server's own count, and fails otherwise: see tests/tools/test_bench.sh.
counts_are_exact_over_verbs()
{
	self add_bw -n 33 -t 7 -q 3 -Q 5
	perftest bw "$work/out" 8 99
	self add_bw -n 101 -l 7 -t 20 -q 2 -w 2
	perftest bw "$work/out" 8 404
	self push_bw -n 11 -t 7 -q 3 -Q 5 -s 4096
	perftest bw "$work/out" 4096 33
	self pull_bw -n 33 -t 7 -q 3 -Q 5 -s 4096
	perftest bw "$work/out" 4096 99
}

words_of_the_connection_hold()
{
	self pull_lat -n 20 -m 1024 -R -c RC -d rxe0 -x 1 -F
	perftest lat "$work/out" 8 20
	expect "Mtu             : 1024[B]" "$work/out"
	expect "GID index       : 1" "$work/out"
	is 2 "$(status_of on node0 "$binaries/ramps" bench pull_lat -c UD node0)" "-c UD"
	expect "-c UD: the operations need reliable connections" "$work/out"
	is 1 "$(status_of on node0 "$binaries/ramps" bench pull_lat -d none --self --listen verbs://node0:0)" "-d none"
	expect "none" "$work/out"
}

waits_again()
{
	[ "$(on node0 grep -c '^. Waiting for client' /tmp/bench.log)" -ge 2 ]
}

server_side_outlives_a_killed_client_over_verbs()
{
	"$sr" exec -n --timeout 120 node0 -- env RAMPS_KEY_FILE="$TMPDIR/key" sh -c \
		"exec '$binaries/ramps' bench pull_bw -p 0 -d rxe0 >/tmp/bench.log 2>&1" &
	server=$!
	within 30 on node0 grep -q 'Server  .*verbs://' /tmp/bench.log
	port=$(on node0 sed -n 's/.*verbs:.*:\([0-9]*\),.*/\1/p' /tmp/bench.log | head -n 1)
	on node0 env RAMPS_KEY_FILE="$TMPDIR/key" sh -c \
		"'$binaries/ramps' bench pull_bw --run_infinitely -D 0.1 -s 4096 -p $port node0 >/tmp/client.log 2>&1 &
		client=\$!
		until grep -q '^ 4096 ' /tmp/client.log; do kill -0 \$client || { cat /tmp/client.log; exit 1; }; done
		kill -9 \$client"
	within 30 waits_again
	bench pull_bw -n 20 -s 4096 -p "$port" node0
	perftest bw "$work/out" 4096 20
	wait "$server" || fail "the server side: $?"
}

# shellcheck disable=SC2086 # words
[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" $tests
binaries=$(cd "$BUILD" && pwd)
head -c 32 /dev/urandom >"$TMPDIR/key"
chmod 600 "$TMPDIR/key"
keep bench || {
	echo "not ok one_node_boots: $(tail -n 30 "$TMPDIR/bench.log")"
	exit 1
}
export SOFTROCE_CLUSTER=bench
# shellcheck disable=SC2086
run_tests $tests

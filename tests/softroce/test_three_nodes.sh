#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600 s
#
# tools/softroce with three nodes: the network, the remote shell, the faults.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/lib.sh"

tests="all_pairs_ping_by_name_and_address rping_runs_between_every_pair
	perftest_runs_between_two_nodes remote_shell_carries_input_output_and_status
	remote_command_ends_with_its_shell loss_shows_in_hw_counters_and_perftest_ends
	link_goes_down_and_up stopped_node_is_silent_and_continues rxe_is_removed_and_added
	killed_node_is_gone_and_others_go_on stopped_cluster_leaves_nothing"

all_pairs_ping_by_name_and_address()
{
	on node0 sh -ec 'for from in $(cat "$SOFTROCE_HOSTS"); do for to in 0 1 2; do
		softroce-ssh -n "$from" "for a in node$to 10.77.0.$((to + 1)) node$to-v6; do
			busybox ping -c 1 -W 5 \$a || busybox ping -c 1 -W 5 \$a || exit 1; done" >/dev/null
		echo "$from node$to"
	done; done' >"$work/out"
	is 9 "$(sort -u "$work/out" | wc -l)" "pairs"
}

rping_runs_between_every_pair()
{
	on node0 bash -ec 'for i in 0 1 2; do
		softroce-ssh -n node$i "timeout 130 rping -s -P" &
		until softroce-ssh -n node$i "rdma res show cm_id" | grep -q "LISTEN.*comm rping"; do kill -0 $!; done
	done
	for from in 0 1 2; do for to in 0 1 2; do
		[ $from != $to ] || continue
		[ $from -lt $to ] && address=node$to || address=10.77.0.$((to + 1))
		softroce-ssh -n node$from "timeout 40 rping -c -a $address -C 2 -v"
		echo "done $from $to"
	done; done
	kill $(jobs -p)' >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	is 6 "$(grep -c '^done' "$work/out")" "pairs"
	is 12 "$(grep -c '^ping data' "$work/out")" "pings"
}

perftest_runs_between_two_nodes()
{
	on node0 "$here/pair.sh" node1 node0 node1 ib_read_bw -s 65536 -n 200 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	grep -qE '^ *65536 +200 +[0-9.]+ ' "$work/out" || fail "ib_read_bw: $(cat "$work/out")"
	on node0 "$here/pair.sh" node0 node2 10.77.0.1 ib_write_lat -s 8 -n 100 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	grep -qE '^ *8 +100 +[0-9.]+ ' "$work/out" || fail "ib_write_lat: $(cat "$work/out")"
}

remote_shell_carries_input_output_and_status()
{
	local start=$SECONDS

	on node0 bash -ec 'head -c 10485760 /dev/urandom >/dev/shm/data; sha256sum </dev/shm/data
		softroce-ssh node1 "cat; echo error >&2; exit 7" </dev/shm/data 2>/dev/shm/err | sha256sum
		echo "${PIPESTATUS[0]} $(cat /dev/shm/err)"
		softroce-ssh -x root@node2 hostname \; exit 9 </dev/null || echo $?
		softroce-ssh node9 true || echo $?' >"$work/out" 2>"$work/err"
	is 1 "$(sed 2q "$work/out" | sort -u | wc -l)" "sums"
	is "7 error node2 9 255" "$(sed 1,2d "$work/out" | tr '\n' ' ' | sed 's/ $//')" "statuses"
	expect "no node node9" "$work/err"
	# Sixty sessions at once, and quick.
	on node0 bash -ec 'for i in $(seq 60); do softroce-ssh -n node$((i % 3)) "echo $i" & done; wait' >"$work/out"
	is 60 "$(sort -nu "$work/out" | wc -l)" "sessions"
	[ $((SECONDS - start)) -lt 60 ] || fail "took $((SECONDS - start)) s"
}

remote_command_ends_with_its_shell()
{
	on node0 bash -ec 'softroce-ssh -n node1 "echo begun; timeout 500 sleep 4321; true" >/dev/shm/out & pid=$!
		until grep -q begun /dev/shm/out; do kill -0 "$pid"; done
		softroce-ssh -n node1 "pgrep -f \"^sleep 4321\"" >/dev/null
		kill -9 $pid
		while softroce-ssh -n node1 "pgrep -f \"^sleep 4321\"" >/dev/null; do sleep 0.1; done; echo ended' \
		>"$work/out" 2>&1 || fail "$(cat "$work/out")"
	expect ended "$work/out"
}

# What the devices of node0 and node1 saw of lost packets.
losses()
{
	on node0 sh -c 'cd /sys/class/infiniband/rxe0/ports/1/hw_counters
		for node in node0 node1; do softroce-ssh -n $node "cd $PWD
			cat duplicate_request out_of_seq_request rcvd_seq_err completer_retry_err"; done' |
		awk '{ n += $1 } END { print n + 0 }'
}

dropped_by_netem()
{
	on node0 tc -s qdisc show dev eth0 | sed -n 's/.*dropped \([0-9]*\),.*/\1/p' | head -n 1
}

loss_shows_in_hw_counters_and_perftest_ends()
{
	local before

	"$sr" fault node0 netem loss 1%
	"$sr" fault node1 netem loss 1%
	on node0 tc qdisc show dev eth0 >"$work/out"
	expect "loss 1%" "$work/out"
	before=$(losses)
	# A timeout of 12 is 17 ms.
	on node0 "$here/pair.sh" node1 node0 node1 ib_write_bw -u 12 -s 16384 -n 1000 \
		>"$work/out" 2>&1 || fail "$(cat "$work/out")"
	grep -qE '^ *16384 +1000 +[0-9.]+ ' "$work/out" || fail "ib_write_bw: $(cat "$work/out")"
	[ "$(dropped_by_netem)" -gt 0 ] || fail "netem dropped nothing"
	[ "$(losses)" -gt "$before" ] || fail "hw_counters show nothing: $before, then $(losses)"
	"$sr" fault node0 netem off
	"$sr" fault node1 netem off
	on node0 tc qdisc show dev eth0 >"$work/out"
	expect_no netem "$work/out"
	is 1 "$(status_of "$sr" fault node0 netem no such words)" "status of wrong words for netem"
}

node0_reaches()
{
	on node0 busybox ping -c 1 -W 1 "$1" >/dev/null
}

node0_does_not_reach()
{
	! node0_reaches "$1"
}

rxe0_is()
{
	on "$1" cat /sys/class/infiniband/rxe0/ports/1/state | grep -q "$2"
}

link_goes_down_and_up()
{
	within 20 node0_reaches node1
	"$sr" fault node1 link-down
	within 20 rxe0_is node1 DOWN
	within 20 node0_does_not_reach node1
	within 20 node0_reaches node2
	"$sr" fault node1 link-up
	within 20 rxe0_is node1 ACTIVE
	within 30 node0_reaches node1
}

stopped_node_is_silent_and_continues()
{
	"$sr" fault node2 stop
	is 124 "$(status_of timeout 30 "$sr" exec -n --timeout 1 node2 -- true)" "exec on a stopped node"
	node0_does_not_reach node2
	"$sr" fault node2 cont
	within 30 node0_reaches node2
	is 0 "$(status_of on node2 true)" "exec on a node that goes on"
}

rxe_is_removed_and_added()
{
	local pid

	"$sr" exec -n node1 -- ib_read_lat -F -d rxe0 >/dev/null 2>&1 &
	pid=$!
	within 60 on node1 sh -c 'ss -Hltnp | grep -q ib_read_lat'
	is 1 "$(status_of "$sr" fault node1 rxe-remove)" "status while a process has it open"
	expect "rxe0 is open in processes" "$work/out"
	kill -KILL "$pid"
	within 60 "$sr" fault node1 rxe-remove
	on node1 sh -c 'ls /sys/class/infiniband' >"$work/out"
	expect_no rxe0 "$work/out"
	"$sr" fault node1 rxe-add
	within 20 rxe0_is node1 ACTIVE
	on node0 "$here/pair.sh" node1 node0 node1 ib_read_lat -s 8 -n 50 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
}

killed_node_is_gone_and_others_go_on()
{
	local pid status=0

	"$sr" exec -n node2 -- sh -c 'echo begun; exec sleep 1000' >"$work/session" 2>&1 &
	pid=$!
	within 20 grep -q begun "$work/session"
	"$sr" fault node2 kill
	wait "$pid" || status=$?
	is 255 "$status" "status of a command on it"
	expect "node2 was killed" "$work/session"
	is 255 "$(status_of on node2 true)" "exec after that"
	expect "node2 is down" "$work/out"
	is 255 "$(status_of on node0 softroce-ssh -n node2 true)" "softroce-ssh after that"
	is 255 "$(status_of "$sr" fault node2 stop)" "a fault after that"
	"$sr" status >"$work/out"
	expect "cluster three: node0=up node1=up node2=down" "$work/out"
	node0_does_not_reach node2
	within 20 node0_reaches node1
}

stopped_cluster_leaves_nothing()
{
	local pid namespace

	pid=$(pgrep -f -- "supervisor.py $TMPDIR/softroce-")
	namespace=$(readlink "/proc/$pid/ns/net")
	[ "$namespace" != "$(readlink /proc/self/ns/net)" ] || fail "the cluster has no namespace of its own"
	timeout 60 "$sr" stop
	[ -z "$(pgrep -f -- "$TMPDIR/softroce-")" ] || fail "left: $(pgrep -af -- "$TMPDIR/softroce-")"
	[ -z "$(ls -d "$TMPDIR"/softroce-* 2>/dev/null)" ] || fail "left: $(ls -d "$TMPDIR"/softroce-*)"
	for pid in /proc/[0-9]*; do
		[ "$(readlink "$pid/ns/net" 2>/dev/null)" != "$namespace" ] || fail "left in the namespace: $pid"
	done
}

# shellcheck disable=SC2086 # names
[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" $tests
keep three --nodes 3 --network root || {
	echo "not ok three_nodes_boot: $(tail -n 30 "$TMPDIR/three.log")"
	exit 1
}
# shellcheck disable=SC2086
run_tests $tests

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 900 s
#
# Workers on two nodes push to a server on a third over verbs while the network, they or the server
# fail at random moments. What they were told is compared with what the server holds.
# shellcheck disable=SC2329 # functions are called by name
here=$(dirname "$0")
. "$here/../softroce/lib.sh"
here=$top/tests/cluster

tests="loss_costs_nothing_but_time delay_costs_nothing_but_time link_that_goes_and_comes_back_loses_nothing
	killed_worker_counts_what_it_was_told killed_server_goes_on_from_its_arena
	lost_device_is_an_error_in_time killed_node_is_dead_when_its_lease_ends"

LEASE_S=3
WORK_S=5
rounds=${ROUNDS:-5}

# A number of seconds from $1 to $2 tenths.
moment()
{
	local tenths=$(($1 + RANDOM % ($2 - $1 + 1)))

	echo $((tenths / 10)).$((tenths % 10))
}

variables()
{
	echo "RAMPS_KEY_FILE=$TMPDIR/key RAMPS_JOB=faults RAMPS_WORKERS=4 RAMPS_SHM_DIR=/dev/shm"
}

# serve PORT OPTION...: the server, on node0. Its address goes to $address.
serve()
{
	local port=$1

	shift
	: >"$work/server"
	# shellcheck disable=SC2046 # words
	"$sr" exec -n node0 -- env $(variables) "$binaries/ramps" serve "verbs://10.77.0.1:$port" -v --slots 1M \
		--arena 64M --on-death continue --lease "$LEASE_S" "$@" >"$work/server" 2>>"$work/server.log" &
	server=$!
	within 30 grep -q verbs:// "$work/server"
	address=$(grep -o 'verbs://[^, ]*' "$work/server" | head -n 1)
}

# worker RANK NODE: one that works for WORK_S; its notes go to $work/rank-RANK.
worker()
{
	# shellcheck disable=SC2046 # words
	"$sr" exec -n --timeout 120 "$2" -- env $(variables) RAMPS_SERVERS="$address" RAMPS_RANK="$1" \
		"$binaries/tests/cluster/prog_faults" work "$WORK_S" >"$work/rank-$1" 2>&1 &
	workers="$workers $!"
}

begin()
{
	local rank

	workers=
	serve "${1:-0}" --fresh
	worker 0 node1
	worker 1 node1
	worker 2 node2
	worker 3 node2
	for rank in 0 1 2 3; do
		within 30 grep -qs '^begun' "$work/rank-$rank"
	done
}

# check RANK...: all workers end, those named perhaps in the middle; then the sums are right.
check()
{
	local notes="" rank pid status=0

	for pid in $workers; do
		wait "$pid" || true
	done
	for rank in 0 1 2 3; do
		case " $* " in
		*" $rank "*) notes="$notes $work/rank-$rank=dies" ;;
		*) notes="$notes $work/rank-$rank" ;;
		esac
	done
	# shellcheck disable=SC2046 # words
	on node0 env $(variables) RAMPS_SERVERS="$address" RAMPS_RANK=0 \
		"$binaries/tests/cluster/prog_faults" show >"$work/shown" 2>&1 || fail "show: $(cat "$work/shown")"
	# shellcheck disable=SC2086 # words
	"$here/check_faults.py" "$work/shown" $notes || status=$?
	on node0 pkill -TERM -x ramps || true
	wait "$server" || true
	[ "$status" -eq 0 ] || fail "server: $(cat "$work/server.log")"
}

# However a test ends: the next one finds sound nodes.
heal()
{
	"$sr" fault node1 netem off
	"$sr" fault node2 netem off
	"$sr" fault node1 link-up
	on node0 pkill -KILL -x ramps || true
}

each_round()
{
	local i

	for ((i = 0; i < rounds; i++)); do
		"$@"
	done
}

loss_costs_nothing_but_time()
{
	trap heal EXIT
	"$sr" fault node1 netem loss 1%
	begin
	"$sr" fault node2 netem loss 1%
	check
	# shellcheck disable=SC2016 # for the node's shell
	retries=$(on node1 sh -c 'cd /sys/class/infiniband/rxe0/ports/1/hw_counters && cat completer_retry_err completion_timeout_count duplicate_request out_of_seq_request retry_exceeded_err 2>/dev/null | awk "{ s += \$1 } END { print s }"; grep . * | tr "\n" " " >&2')
	[ "${retries:-0}" -gt 0 ] || fail "no loss is seen in hw_counters"
}

delay_costs_nothing_but_time()
{
	trap heal EXIT
	begin
	"$sr" fault node1 netem delay 20ms
	check
}

link_round()
{
	begin
	sleep "$(moment 1 10)"
	"$sr" fault node1 link-down
	sleep "$(moment 1 12)"
	"$sr" fault node1 link-up
	check
}

link_that_goes_and_comes_back_loses_nothing()
{
	trap heal EXIT
	each_round link_round
}

pid_of()
{
	sed -n 's/^pid //p' "$work/rank-$1"
}

worker_round()
{
	begin
	sleep "$(moment 1 10)"
	on node1 kill -KILL "$(pid_of 1)"
	check 1
	expect "rank 1, incarnation 1, is dead" "$work/server.log"
}

killed_worker_counts_what_it_was_told()
{
	each_round worker_round
}

server_round()
{
	local port=$((20000 + RANDOM % 10000))

	begin "$port"
	sleep "$(moment 1 10)"
	on node0 pkill -KILL -x ramps
	wait "$server" || true
	sleep "$(moment 0 10)"
	serve "$port"
	check
}

killed_server_goes_on_from_its_arena()
{
	each_round server_round
}

device_round()
{
	local pid started took_ms

	begin
	sleep "$(moment 1 10)"
	started=${EPOCHREALTIME/./}
	on node1 rdma link delete rxe0
	took_ms=$(((${EPOCHREALTIME/./} - started) / 1000))
	for pid in $workers; do
		wait "$pid" || true
	done
	"$sr" fault node1 rxe-add
	check 0 1
	grep -q '^error' "$work/rank-0" "$work/rank-1" || fail "no error, the removal took $took_ms ms: $(tail -n 3 "$work/rank-0")"
}

lost_device_is_an_error_in_time()
{
	each_round device_round
}

killed_node_is_dead_when_its_lease_ends()
{
	local killed

	begin
	sleep "$(moment 1 10)"
	"$sr" fault node2 kill
	killed=$SECONDS
	within $((LEASE_S + 10)) grep -q "rank 3, incarnation 1, is dead" "$work/server.log"
	[ $((SECONDS - killed)) -le $((LEASE_S + 4)) ] || fail "noticed after $((SECONDS - killed)) s"
	check 2 3
}

# shellcheck disable=SC2086 # words
[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" $tests
head -c 32 /dev/urandom >"$TMPDIR/key"
chmod 600 "$TMPDIR/key"
binaries=$(cd "$BUILD" && pwd)
keep faults --nodes 3 || {
	cat "$TMPDIR/faults.log"
	exit 1
}
export SOFTROCE_CLUSTER=faults
# shellcheck disable=SC2086 # words
run_tests ${ONLY:-$tests}

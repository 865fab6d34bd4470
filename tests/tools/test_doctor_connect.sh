#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# ramps doctor --serve and --connect, and what it says of a job's server, which it must not disturb.
# shellcheck disable=SC2329 # functions are called by name
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=server.sh
. "$top/tests/tools/server.sh"

# lend ADDRESS: starts a doctor that serves, $lender its pid.
lend()
{
	rm -f "$work/line"
	mkfifo "$work/line"
	"$ramps" doctor --serve "$1" >"$work/line" 2>"$work/log" &
	lender=$!
	pids+=("$lender")
	read -r -t 20 line <"$work/line" || fail "no line of the doctor: $(cat "$work/log")"
	expect "memory for 'ramps doctor --connect $1', pid $lender" <(echo "$line")
}

# connects STATUS ADDRESS: what it says is in $work/out.
connects()
{
	local status=0

	timeout 60 "$ramps" doctor --arena 1M --connect "$2" >"$work/out" 2>&1 || status=$?
	[ "$status" -eq "$1" ] || fail "status $status, not $1: $(cat "$work/out")"
}

lines_like()
{
	grep -cE "$1" "$work/out" || true
}

every_operation_is_tried()
{
	own_shm
	lend shm://there
	connects 0 shm://there
	expect "shm://there: ramps doctor on $(uname -n), pid $lender, in" "$work/out"
	[ "$(lines_like '^(message|READ|WRITE|FETCH_ADD|COMPARE_SWAP)  .* [0-9.]+ (ns|us|ms), the median of [0-9]+ +OK$')" = 5 ] ||
		fail "$(cat "$work/out")"
	expect "64 KiB in" "$work/out"
	expect_no "not looked at" "$work/out"
	expect "fit for shm://" "$work/out"
	"$ramps" doctor --arena 1M --json --connect shm://there >"$work/json"
	python3 -c 'import json, sys
d = json.load(sys.stdin, parse_constant=lambda c: 1 / 0)
t = {i["name"]: i["us"] for i in d["items"] if i["us"] is not None}
assert d["fit"] is True and d["fabric"] == "shm" and d["device"] is None
assert set(t) == {"connect", "message", "read", "write", "fetch_add", "compare_swap"}, t
assert all(0 < us < 1e6 for us in t.values()), t' <"$work/json"
	kill -TERM "$lender"
	ends "$lender" 0
	nothing_left
}

# Each has memory of its own, and finds there what it wrote. One is killed on the way.
several_do_not_disturb_each_other()
{
	local clients=() pid i

	own_shm
	lend shm://there
	for i in 1 2 3 4 5 6 7 8; do
		"$ramps" doctor --arena 1M --connect shm://there >"$work/out.$i" 2>&1 &
		clients+=($!)
	done
	"$ramps" doctor --arena 1M --connect shm://there >/dev/null 2>&1 &
	pid=$!
	kill -9 "$pid"
	wait "$pid" 2>/dev/null || :
	for i in 1 2 3 4 5 6 7 8; do
		wait "${clients[i - 1]}" || fail "$(cat "$work/out.$i")"
	done
	connects 0 shm://there
	kill -INT "$lender"
	ends "$lender" 0
	[ ! -s "$work/log" ] || fail "$(cat "$work/log")"
	nothing_left
}

server_of_a_job_is_not_disturbed()
{
	own_shm
	serve shm://job --job its-name
	address=shm://job
	connects 0 shm://job
	expect "shm://job: a server of job its-name, in" "$work/out"
	[ "$(lines_like '^READ .* OK$')" = 1 ] || fail "$(cat "$work/out")"
	[ "$(lines_like "not looked at: a job's server is only read")" = 4 ] || fail "$(cat "$work/out")"
	"$ramps" stat --json shm://job >"$work/stat"
	expect '"workers_of_job": 0' "$work/stat"
	# In a running job: no rank is taken, none dies, and the job goes on after a doctor that is killed.
	export RAMPS_JOB=its-name
	hold 0 2 create:w:10:4:direct push:1:3
	work_of 1 2 open:w push:1:2 leave >"$work/one" 2>&1 || fail "$(cat "$work/one")"
	"$ramps" stat --json shm://job >"$work/before"
	connects 0 shm://job
	"$ramps" doctor --arena 1M --connect shm://job >/dev/null 2>&1 &
	kill -9 $!
	wait $! 2>/dev/null || :
	connects 0 shm://job
	"$ramps" stat --json shm://job >"$work/after"
	for key in workers_of_job live_workers state incarnation added dropped; do
		[ "$(grep "\"$key\"" "$work/before")" = "$(grep "\"$key\"" "$work/after")" ] ||
			fail "$key: $(cat "$work/before" "$work/after")"
	done
	kill -0 "$held"
	kill -9 "$held"
	kill -TERM "$server"
	ends "$server" 0
	unset address
	nothing_left
}

what_is_wrong_is_said_with_what_to_do()
{
	own_shm
	connects 1 shm://nobody
	expect "no server at shm://nobody" "$work/out"
	expect "MEND: on that node: ramps doctor --serve shm://nobody" "$work/out"
	[ "$(lines_like '^(message|READ|WRITE|FETCH_ADD|COMPARE_SWAP)  .*not looked at: not connected$')" = 5 ] ||
		fail "$(cat "$work/out")"
	expect "not fit, to mend: connect" "$work/out"
	# A server that does not answer: stopped.
	lend shm://there
	kill -STOP "$lender"
	local begin=$SECONDS
	timeout 30 "$ramps" doctor --arena 1M --timeout 0.2 --connect shm://there >"$work/out" && fail "fit"
	[ $((SECONDS - begin)) -lt 8 ] || fail "it took $((SECONDS - begin)) s"
	expect "MEND: run ramps doctor on that node too" "$work/out"
	kill -CONT "$lender"
	kill -TERM "$lender"
	ends "$lender" 0
	# A worker that takes the doctor for a server.
	lend shm://there
	fails "$worker" shm://there 0 1 leave >"$work/worker" 2>&1
	expect "this is 'ramps doctor --serve', not a server of a job" "$work/worker"
	one_line 1 "another server has shm://there" "$ramps" doctor --serve shm://there
	kill -TERM "$lender"
	ends "$lender" 0
	nothing_left
}

# refused TEXT ARGUMENT...: a usage error that says TEXT first.
refused()
{
	local text=$1 status=0

	shift
	timeout 10 "$ramps" doctor "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
	[ "$status" -eq 2 ] || fail "status $status of: $*: $(cat "$work/stderr")"
	[ ! -s "$work/stdout" ]
	head -n 1 "$work/stderr" >"$work/first"
	expect "$text" "$work/first"
}

wrong_usage_is_2()
{
	own_shm
	refused "'' is no name of a device" -d ""
	refused "'../x' is no name of a device" -d ../x
	refused "'0' is not a number from 1 to 255" -i 0
	refused "'256' is not" -i 256
	refused "'-1' is not a number from 0" -x -1
	refused "'x' is not" --gid-index x
	refused "'1Q' is not a size" --arena 1Q
	refused "'tcp' is neither shm nor verbs" --fabric tcp
	refused "'http://x'" --connect http://x
	refused "" --connect shm://
	refused "" --serve ../x
	refused "'0' is not a number of seconds" --timeout 0
	refused "what is 'shm://x'? An address follows" shm://x
	refused "--serve goes without" --serve shm://x --json
	refused "--bogus" --bogus
	fails "$ramps" doctor --fabric shm --arena 1M >/dev/full 2>"$work/stderr"
	expect "can't write to stdout" "$work/stderr"
	nothing_left
}

run_tests \
	every_operation_is_tried \
	several_do_not_disturb_each_other \
	server_of_a_job_is_not_disturbed \
	what_is_wrong_is_said_with_what_to_do \
	wrong_usage_is_2

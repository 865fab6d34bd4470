#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 300 s
#
# `ramps run`: what it starts, and that nothing is left whatever fails.
top=/work/main
# shellcheck source=launch.sh
. "$top/tests/launch/launch.sh"

workers_get_rank_servers_and_key()
{
	own_shm
	# shellcheck disable=SC2016 # for the worker's shell
	"$ramps" run -n 3 -s 2 --job some/job -- sh -c \
		'echo "$RAMPS_RANK of $RAMPS_WORKERS, $RAMPS_JOB, $RAMPS_SERVERS, $(stat -c "%a %s" "$RAMPS_KEY_FILE")"' \
		>"$work/out"
	sort "$work/out" >"$work/sorted"
	[ "$(wc -l <"$work/out")" -eq 3 ]
	grep -qE '^\[0\] 0 of 3, some/job, shm://[^,]+-0,shm://[^,]+-1, 600 32$' "$work/sorted" || fail "$(cat "$work/out")"
	expect "[1] 1 of 3, some/job" "$work/sorted"
	expect "[2] 2 of 3, some/job" "$work/sorted"
	nothing_left
}

keys_differ_between_runs()
{
	own_shm
	for i in 1 2; do
		# shellcheck disable=SC2016
		"$ramps" run --no-prefix -- sh -c 'od -An -tx1 "$RAMPS_KEY_FILE"' >"$work/key$i"
	done
	fails cmp -s "$work/key1" "$work/key2"
}

real_workers_meet_and_add_up()
{
	own_shm
	"$ramps" run -n 4 -s 2 --no-prefix -- "$BUILD/examples/counters" 100 >"$work/out"
	[ "$(awk '{ sum += $2 } END { print sum }' "$work/out")" -eq 40000 ] || fail "$(cat "$work/out")"
	nothing_left
}

many_runs_at_once_do_not_meet()
{
	local pids_of_runs=() pid

	own_shm
	for i in 1 2 3 4; do
		"$ramps" run -n 2 --no-prefix -- "$BUILD/examples/counters" 50 >"$work/out$i" &
		pids_of_runs+=($!)
	done
	for pid in "${pids_of_runs[@]}"; do
		wait "$pid"
	done
	for i in 1 2 3 4; do
		[ "$(awk '{ sum += $2 } END { print sum }' "$work/out$i")" -eq 10000 ] || fail "$(cat "$work/out$i")"
	done
	nothing_left
}

lines_of_ranks_stay_whole()
{
	own_shm
	# shellcheck disable=SC2016
	"$ramps" run -n 4 -- sh -c 'for i in $(seq 2000); do echo "$RAMPS_RANK-abcdefghijklmnopqrstuvwxyz-$i"; done' >"$work/out"
	[ "$(wc -l <"$work/out")" -eq 8000 ]
	fails grep -vE '^\[([0-3])\] \1-abcdefghijklmnopqrstuvwxyz-[0-9]+$' "$work/out"
}

last_line_without_newline_is_shown()
{
	own_shm
	"$ramps" run -- printf 'no newline' >"$work/out"
	[ "$(cat "$work/out")" = "[0] no newline" ]
}

output_dir_has_a_file_for_each()
{
	own_shm
	# A worker that joins: without one the server may be told to end before it has begun.
	# shellcheck disable=SC2016
	"$ramps" run -n 2 -s 1 --output-dir "$work/logs" -- \
		sh -c "echo out \$RAMPS_RANK; echo err \$RAMPS_RANK >&2; exec $BUILD/examples/counters 1" >"$work/out"
	[ ! -s "$work/out" ]
	expect "out 0" "$work/logs/rank-0.out"
	expect "err 1" "$work/logs/rank-1.err"
	expect "ramps: serving" "$work/logs/server-0.out"
}

status_of_the_first_that_fails_is_the_status()
{
	local status=0 begun=$SECONDS

	own_shm
	# shellcheck disable=SC2016
	"$ramps" run -n 3 -- sh -c '[ "$RAMPS_RANK" != 1 ] || exit 37; exec sleep 1000' 2>"$work/err" || status=$?
	[ "$status" -eq 37 ] || fail "status $status"
	[ $((SECONDS - begun)) -le 5 ] || fail "took $((SECONDS - begun)) s"
	expect "rank 1 ended with status 37" "$work/err"
	nothing_left
}

workers_that_ignore_signals_are_killed_in_time()
{
	local status=0 begun=$SECONDS

	own_shm
	# shellcheck disable=SC2016
	"$ramps" run -n 2 -- bash -c 'trap "" TERM; if [ "$RAMPS_RANK" = 1 ]; then
			until [ -e "$0" ]; do sleep 0.01; done; exit 3; fi
		touch "$0"; while :; do sleep 0.05; done' "$work/deaf" 2>"$work/err" || status=$?
	[ "$status" -eq 3 ] || fail "status $status"
	[ $((SECONDS - begun)) -le 5 ] || fail "took $((SECONDS - begun)) s"
	nothing_left
}

worker_killed_ends_all()
{
	local status=0

	own_shm
	# shellcheck disable=SC2016
	"$ramps" run -n 2 -- sh -c '[ "$RAMPS_RANK" != 1 ] || kill -9 $$; exec sleep 1000' 2>"$work/err" || status=$?
	[ "$status" -eq 137 ] || fail "status $status"
	expect "rank 1 was killed by signal 9" "$work/err"
	nothing_left
}

server_killed_ends_all()
{
	local status=0

	own_shm
	held_run -n 2 -s 2
	pkill -9 -P "$run" -f 'serve shm://.*-1 ' || fail "no server to kill"
	ends "$run" 137
	expect "server 1 was killed by signal 9" "$work/err"
	nothing_left
}

launcher_killed_leaves_nothing()
{
	own_shm
	held_run -n 3 -s 2
	kill -9 "$run"
	forget "$run"
	# The janitor cleans up; it has no parent here to wait for.
	until_gone
	nothing_left
}

signals_are_passed_on()
{
	own_shm
	# shellcheck disable=SC2016
	held_run_of 'trap "echo got-int; exit 0" INT' -n 2 -s 1
	kill -INT "$run"
	ends "$run" 0
	[ "$(grep -c 'got-int' "$work/out")" -eq 2 ] || fail "$(cat "$work/out")"
	nothing_left
}

closed_pipe_ends_all()
{
	own_shm
	# shellcheck disable=SC2016
	{ "$ramps" run -n 2 -- sh -c 'while :; do echo line; done' 2>"$work/err" || echo $? >"$work/status"; } | head -n 1 >"$work/out"
	[ "$(cat "$work/status")" -eq 1 ]
	expect "] line" "$work/out"
	[ ! -s "$work/err" ] || fail "$(cat "$work/err")"
	nothing_left
}

full_disk_ends_all_and_says_so()
{
	local status=0

	own_shm
	"$ramps" run -n 2 -- sh -c 'while :; do echo line; done' >/dev/full 2>"$work/err" || status=$?
	[ "$status" -eq 1 ] || fail "status $status"
	expect "No space left on device" "$work/err"
	nothing_left
}

what_workers_leave_behind_ends_with_them()
{
	own_shm
	# shellcheck disable=SC2016
	"$ramps" run -n 1 --no-prefix -- sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!' >"$work/out"
	runs "$(cat "$work/out")" && fail "it still runs"
	# Also what has a session of its own, and holds the output open.
	# shellcheck disable=SC2016
	"$ramps" run -n 1 -- sh -c 'setsid sh -c "echo \$\$ >$0; exec sleep 1000" & until [ -s "$0" ]; do sleep 0.01; done' "$work/pid"
	runs "$(cat "$work/pid")" && fail "it still runs in a session of its own"
	return 0
}

program_that_is_not_there_is_127()
{
	local status=0

	own_shm
	"$ramps" run -- /no/such/program 2>"$work/err" || status=$?
	[ "$status" -eq 127 ] || fail "status $status"
	expect "/no/such/program: No such file" "$work/err"
	nothing_left
}

inside_a_launcher_rank_and_workers_are_its()
{
	local first

	own_shm
	# As mpirun starts it: once for each rank, with a parent in common.
	OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$ramps" run -s 2 --no-prefix -- "$BUILD/examples/counters" 50 >"$work/out1" &
	first=$!
	OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$ramps" run -s 2 --no-prefix -- "$BUILD/examples/counters" 50 >"$work/out0"
	wait "$first"
	[ "$(awk '{ sum += $2 } END { print sum }' "$work/out0")" -eq 10000 ] || fail "$(cat "$work/out0")"
	nothing_left
}

workers_inside_a_launcher_are_not_for_the_user_to_say()
{
	own_shm
	OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 fails "$ramps" run -n 3 -- true 2>"$work/err"
	expect "leave out -n" "$work/err"
}

given_servers_are_used_and_none_started()
{
	own_shm
	serve shm://given
	RAMPS_SERVERS=shm://given "$ramps" run -n 2 --no-prefix -- "$BUILD/examples/counters" 10 >"$work/out"
	[ "$(awk '{ sum += $2 } END { print sum }' "$work/out")" -eq 2000 ] || fail "$(cat "$work/out")"
	kill "$server"
	ends "$server" 0
}

dry_run_starts_nothing()
{
	own_shm
	"$ramps" run -n 2 -s 2 --dry-run -- touch "$work/made" >"$work/out"
	[ ! -e "$work/made" ]
	[ "$(wc -l <"$work/out")" -eq 4 ]
	grep -qE "^server 1: RAMPS_RUN=[^ ]* ramps serve shm://run-[^ ]*-1 --fresh --job=default$" "$work/out" || fail "$(cat "$work/out")"
	grep -qE "^rank 1: .* RAMPS_RANK=1 RAMPS_WORKERS=2 RAMPS_KEY_FILE=[^ ]* touch $work/made$" "$work/out" || fail "$(cat "$work/out")"
	"$ramps" run --dry-run --output-dir "$work/logs" -- sh -c 'echo "it'"'"'s" $X' '' >"$work/out"
	[ ! -e "$work/logs" ]
	expect "sh -c 'echo \"it'\\''s\" \$X' ''" "$work/out"
	nothing_left
}

bad_usage_is_refused()
{
	own_shm
	fails "$ramps" run 2>"$work/err"
	expect "no program given" "$work/err"
	fails "$ramps" run -n 0 -- true 2>"$work/err"
	expect "'0' is not a number" "$work/err"
	one_line 2 "the name of the job, '../x'" "$ramps" run --job ../x -- true
	RAMPS_RANK=1 one_line 2 "RAMPS_RANK is set without RAMPS_WORKERS" "$ramps" run -- true
	RAMPS_RANK=2 RAMPS_WORKERS=2 one_line 2 "rank 2 of 2" "$ramps" run -- true
	one_line 1 "/dev/null/logs" "$ramps" run --output-dir /dev/null/logs -- true
	TMPDIR=/no/such one_line 1 "/no/such/ramps-run" "$ramps" run -- true
}


#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timeout: 300 s
#
# `ramps run`: signals, readers that stop, and what it may not remove.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=launch.sh
. "$top/tests/launch/launch.sh"

launcher_and_janitor_killed_leaves_no_process()
{
	own_shm
	export TMPDIR=$work
	held_run -n 2 -s 1
	kill -9 "$(pgrep -P "$run" -x ramps-janitor)"
	kill -9 "$run"
	forget "$run"
	until_true '[ -z "$(of_runs)" ]'
}

launcher_killed_takes_along_what_left_its_group()
{
	own_shm
	held_run_of '{ setsid sleep 1000 & }' -n 2 -s 1
	until_true '[ "$(of_runs | wc -l)" -ge 5 ]'
	kill -9 "$run"
	forget "$run"
	until_gone
}

interrupt_at_the_start_leaves_nothing()
{
	local moment status

	own_shm
	export TMPDIR=$work/tmp
	mkdir "$TMPDIR"
	for moment in 0.001 0.002 0.003 0.004 0.005 0.006 0.008 0.01 0.015 0.02; do
		status=0
		timeout --foreground -s INT --preserve-status -k 10 "$moment" "$ramps" run -n 2 -s 2 -- sleep 1000 2>"$work/err" || status=$?
		[ "$status" -eq 130 ] || fail "status $status after $moment s"
		nothing_left
		[ -z "$(ls "$TMPDIR")" ] || fail "left: $(ls "$TMPDIR")"
	done
}

launcher_killed_removes_the_key()
{
	local key

	own_shm
	# shellcheck disable=SC2016 # for the worker's shell
	held_run_of 'echo "$RAMPS_KEY_FILE"' -n 1 -s 1
	key=$(sed -n 's/^\[0\] \(.*key\)$/\1/p' "$work/out")
	[ -s "$key" ]
	kill -9 "$run"
	forget "$run"
	until_true "[ ! -e '$(dirname "$key")' ]"
	until_gone
}

hangup_is_ignored_under_nohup()
{
	own_shm
	(
		trap '' HUP
		# shellcheck disable=SC2016
		exec "$ramps" run -n 1 -- bash -c 'echo ready; until [ -e "$0" ]; do sleep 0.02; done; echo done' "$work/go" >"$work/out" 2>&1
	) &
	run=$!
	pids+=("$run")
	until_true grep -q ready "$work/out"
	kill -HUP "$run"
	touch "$work/go"
	ends "$run" 0
	expect "[0] done" "$work/out"
}

third_interrupt_ends_workers_that_want_to_stay()
{
	own_shm
	# shellcheck disable=SC2016
	held_run_of 'trap "echo no" INT' -n 2 -s 1
	kill -INT "$run"
	until_true [ '"$(grep -c "] no" '"$work/out"')"' = 2 ]
	kill -INT "$run"
	until_true [ '"$(grep -c "] no" '"$work/out"')"' = 4 ]
	kill -INT "$run"
	ends "$run" 130
	nothing_left
}

signal_that_kills_workers_needs_no_explanation()
{
	own_shm
	held_run -n 2 -s 1
	kill -TERM "$run"
	ends "$run" 143
	[ ! -s "$work/err" ] || fail "$(cat "$work/err")"
	nothing_left
}

stopping_the_run_stops_its_workers()
{
	own_shm
	held_run -n 2 -s 1
	kill -TSTP "$run"
	until_true '[ "$(of_runs | xargs -n 1 dirname | xargs -I{} cat {}/stat | grep -c "(bash) T")" = 2 ]'
	kill -CONT "$run"
	until_true '[ "$(of_runs | xargs -n 1 dirname | xargs -I{} cat {}/stat | grep -c "(bash) T")" = 0 ]'
	kill -TERM "$run"
	ends "$run" 143
	nothing_left
}

reader_that_stops_reading_does_not_hold_up_the_end()
{
	own_shm
	mkfifo "$work/fifo"
	# Opened for both, so that it is never read and never at its end.
	exec 5<>"$work/fifo"
	# shellcheck disable=SC2016
	"$ramps" run -n 2 -- sh -c 'if [ "$RAMPS_RANK" = 1 ]; then until [ -e "$0" ]; do sleep 0.02; done; exit 9; fi
		while :; do echo "line line line line line line line line"; done' "$work/go" >"$work/fifo" 2>"$work/err" &
	run=$!
	pids+=("$run")
	# The pipe holds 64 KiB; the run has queued more when its worker waits in a write.
	until_true '[ "$(cat /proc/$run/wchan)" != x ] && grep -qs pipe_write $(of_runs | xargs -n 1 dirname | sed s,$,/wchan,)'
	touch "$work/go"
	begun=$SECONDS
	ends "$run" 9
	[ $((SECONDS - begun)) -le 5 ] || fail "took $((SECONDS - begun)) s"
	expect "rank 1 ended with status 9" "$work/err"
	exec 5>&-
	nothing_left
}

slow_reader_gets_it_all()
{
	own_shm
	"$ramps" run -n 2 -- seq 50000 | { sleep 0.5; cat; } >"$work/out"
	[ "$(wc -l <"$work/out")" -eq 100000 ]
	[ "$(sed -n 's/^\[1\] //p' "$work/out" | md5sum)" = "$(seq 50000 | md5sum)" ]
}

endless_output_does_not_hide_a_failure()
{
	own_shm
	status=0
	# shellcheck disable=SC2016
	"$ramps" run -n 2 -- sh -c '[ "$RAMPS_RANK" = 0 ] || { sleep 0.3; exit 5; }; exec yes' >/dev/null 2>"$work/err" || status=$?
	[ "$status" -eq 5 ] || fail "status $status"
	nothing_left
}

long_lines_are_cut_and_nothing_lost()
{
	own_shm
	"$ramps" run -- sh -c 'head -c 200000 /dev/zero | tr "\0" x' >"$work/out"
	[ "$(sed 's/^\[0\] //' "$work/out" | tr -d '\n' | wc -c)" -eq 200000 ]
	[ "$(wc -l <"$work/out")" -eq 4 ]
}

output_of_a_worker_that_fails_comes_before_the_reason()
{
	own_shm
	status=0
	"$ramps" run -- sh -c 'for i in 1 2 3 4 5; do echo "why $i" >&2; done; exit 4' 2>"$work/err" || status=$?
	[ "$status" -eq 4 ]
	[ "$(tail -n 2 "$work/err" | head -n 1)" = "[0] why 5" ] || fail "$(cat "$work/err")"
	[ "$(tail -n 1 "$work/err")" = "ramps run: rank 0 ended with status 4" ] || fail "$(cat "$work/err")"
}

server_that_cannot_start_ends_all()
{
	own_shm
	status=0
	"$ramps" run -s 2 --arena 1 -- sleep 1000 2>"$work/err" || status=$?
	[ "$status" -ne 0 ]
	expect "[server " "$work/err"
	nothing_left
}

arena_of_a_live_server_is_not_removed()
{
	local name

	own_shm
	name=$(PMIX_NAMESPACE=some-job RAMPS_RANK=0 RAMPS_WORKERS=1 "$ramps" run --dry-run -- true | sed -n 's/^server 0:.* shm:\/\/\([^ ]*\) .*/\1/p')
	serve "shm://$name"
	PMIX_NAMESPACE=some-job RAMPS_RANK=0 RAMPS_WORKERS=1 fails "$ramps" run -- sleep 1000 2>"$work/err"
	expect "in use" "$work/err"
	"$ramps" stat "shm://$name" >"$work/out"
	kill "$server"
	ends "$server" 0
}

servers_wait_for_the_other_ranks_of_a_launcher()
{
	local first

	own_shm
	# Rank 0, which has the servers, is done at once; rank 1 joins and stays for a while.
	export PMIX_NAMESPACE=slow-ranks OMPI_COMM_WORLD_SIZE=2
	OMPI_COMM_WORLD_RANK=0 "$ramps" run --no-prefix -- "$BUILD/tests/tools/prog_worker" "$(address_of)" 0 2 leave >"$work/out0" 2>&1 &
	first=$!
	pids+=("$first")
	OMPI_COMM_WORLD_RANK=1 "$ramps" run --no-prefix -- sh -c "sleep 0.5; exec $BUILD/tests/tools/prog_worker '$(address_of)' 1 2 leave" >"$work/out1" 2>&1 ||
		fail "$(cat "$work/out1")"
	ends "$first" 0
	nothing_left
}

address_of()
{
	OMPI_COMM_WORLD_RANK=0 "$ramps" run --dry-run -- true | sed -n 's/^rank 0:.*RAMPS_SERVERS=\([^ ]*\) .*/\1/p'
}

interrupt_ends_the_wait_for_other_ranks()
{
	own_shm
	export PMIX_NAMESPACE=missing-rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0
	"$ramps" run --no-prefix -- sh -c "$BUILD/tests/tools/prog_worker '$(address_of)' 0 2 leave; touch '$work/left'" >"$work/out" 2>&1 &
	run=$!
	pids+=("$run")
	until_true [ -e "$work/left" ]
	until_true '[ "$(of_runs | wc -l)" = 1 ]'
	kill -TERM "$run"
	ends "$run" 143
	nothing_left
}

batch_script_of_slurm_is_no_rank()
{
	own_shm
	# shellcheck disable=SC2016
	SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 "$ramps" run -n 2 -- sh -c 'echo "$RAMPS_WORKERS"' >"$work/out"
	expect "[1] 2" "$work/out"
	# srun's tasks are ranks.
	# shellcheck disable=SC2016
	SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_NTASKS=8 "$ramps" run -- sh -c 'echo "$RAMPS_RANK $RAMPS_WORKERS $RAMPS_SERVERS"' >"$work/out"
	expect "[3] 3 8 shm://run-" "$work/out"
}

first_worker_gets_the_input()
{
	own_shm
	echo "a line" | "$ramps" run -n 2 -- cat >"$work/out"
	[ "$(cat "$work/out")" = "[0] a line" ] || fail "$(cat "$work/out")"
}

run_tests interrupt_at_the_start_leaves_nothing launcher_and_janitor_killed_leaves_no_process launcher_killed_takes_along_what_left_its_group \
	launcher_killed_removes_the_key hangup_is_ignored_under_nohup \
	third_interrupt_ends_workers_that_want_to_stay signal_that_kills_workers_needs_no_explanation \
	stopping_the_run_stops_its_workers reader_that_stops_reading_does_not_hold_up_the_end \
	slow_reader_gets_it_all endless_output_does_not_hide_a_failure long_lines_are_cut_and_nothing_lost \
	output_of_a_worker_that_fails_comes_before_the_reason server_that_cannot_start_ends_all \
	arena_of_a_live_server_is_not_removed servers_wait_for_the_other_ranks_of_a_launcher \
	interrupt_ends_the_wait_for_other_ranks batch_script_of_slurm_is_no_rank first_worker_gets_the_input

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# `ramps run --hosts`: workers by a remote shell, here one that stays on this machine. Servers on other
# hosts need RDMA: tests/softroce has those.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=launch.sh
. "$top/tests/launch/launch.sh"

# A remote shell that takes words apart as ssh's other end does, and notes what it was asked.
hosts()
{
	own_shm
	cat >"$work/rsh" <<-'END'
		#!/bin/bash
		host=$1
		shift
		echo "$host: $*" >>"$(dirname "$0")/asked"
		exec env -i PATH="$PATH" HOME="$HOME" sh -c "$*"
	END
	chmod +x "$work/rsh"
	printf '# a comment\nalpha workers=2 servers=0\n\nbeta # one\n' >"$work/hosts"
}

hosts_run()
{
	RAMPS_SERVERS=shm://given "$ramps" run --hosts "$work/hosts" --rsh "$work/rsh" "$@"
}

workers_run_on_hosts_in_the_order_of_the_file()
{
	hosts
	serve shm://given
	hosts_run --no-prefix -- "$BUILD/examples/counters" 10 >"$work/out"
	[ "$(awk '{ sum += $2 } END { print sum }' "$work/out")" -eq 3000 ] || fail "$(cat "$work/out")"
	[ "$(grep -c '^alpha: .*ramps agent$' "$work/asked")" -eq 2 ] || fail "$(cat "$work/asked")"
	[ "$(grep -c '^beta: .*ramps agent$' "$work/asked")" -eq 1 ] || fail "$(cat "$work/asked")"
	# shellcheck disable=SC2016 # the worker's variables
	hosts_run -- sh -c 'echo $RAMPS_RANK of $RAMPS_WORKERS at $RAMPS_SERVERS in $PWD' | sort >"$work/out"
	printf '[%d] %d of 3 at shm://given in %s\n' 0 0 "$PWD" 1 1 "$PWD" 2 2 "$PWD" | diff - "$work/out"
	kill "$server"
	ends "$server" 0
}

arguments_and_variables_pass_unchanged()
{
	local odd

	hosts
	odd=$(printf "a b'\"\$x\nc")
	# shellcheck disable=SC2016 # the worker's variables
	RAMPS_VERBS=$odd MINE='$(false) "' hosts_run -n 1 -x MINE --no-prefix -- \
		sh -c 'printf "%s|" "$RAMPS_VERBS" "$MINE" "$@"' - "a  b" '$HOME' '' "'" >"$work/out"
	# shellcheck disable=SC2016 # as it is
	printf '%s|' "$odd" '$(false) "' "a  b" '$HOME' '' "'" | cmp - "$work/out"
}

key_reaches_workers_in_a_file_of_their_own_and_on_no_command_line()
{
	hosts
	printf 'a key of more than 16 bytes' >"$work/key"
	# shellcheck disable=SC2016 # the worker's variable
	RAMPS_KEY_FILE=$work/key hosts_run -n 1 --no-prefix -- \
		sh -c 'stat -c %a "$RAMPS_KEY_FILE"; cat "$RAMPS_KEY_FILE"; echo; echo "$RAMPS_KEY_FILE"' >"$work/out"
	[ "$(sed -n 1p "$work/out")" = 600 ] || fail "$(cat "$work/out")"
	[ "$(sed -n 2p "$work/out")" = 'a key of more than 16 bytes' ] || fail "$(cat "$work/out")"
	[ "$(sed -n 3p "$work/out")" != "$work/key" ] || fail "the key file itself was used"
	[ ! -e "$(sed -n 3p "$work/out")" ] || fail "the key file is still there"
	fails grep -q 'a key' "$work/asked"
}

status_of_a_worker_on_a_host_is_the_runs()
{
	local status=0

	hosts
	# shellcheck disable=SC2016 # the worker's variable
	hosts_run -- sh -c '[ $RAMPS_RANK = 1 ] && exit 7; exec sleep 60' 2>"$work/err" || status=$?
	[ "$status" -eq 7 ] || fail "status $status"
	expect "rank 1 on alpha ended with status 7" "$work/err"
}

# hosts_held COMMANDS: workers on hosts that do COMMANDS, say "ready" and wait. $run is the run's pid.
hosts_held()
{
	RAMPS_SERVERS=shm://given "$ramps" run --hosts "$work/hosts" --rsh "$work/rsh" --no-prefix -- \
		bash -c "$1; echo ready; while :; do sleep 0.05; done" >"$work/out" 2>"$work/err" &
	run=$!
	pids+=("$run")
	until_true [ "\$(grep -c ready $work/out)" = 3 ]
}

signals_reach_workers_on_hosts()
{
	hosts
	hosts_held 'trap "echo got it; exit 0" USR1'
	kill -USR1 "$run"
	ends "$run" 0
	[ "$(grep -c 'got it' "$work/out")" -eq 3 ] || fail "$(cat "$work/out")"
}

killed_run_leaves_nothing_on_hosts()
{
	local child

	hosts
	# shellcheck disable=SC2016 # the worker's
	hosts_held 'echo pid $$'
	kill -KILL "$run"
	sed -n 's/^pid //p' "$work/out" >"$work/children"
	while read -r child; do
		until_true ! runs "$child"
	done <"$work/children"
}

agent_without_a_run_says_whom_it_is_for()
{
	own_shm
	echo hello | fails "$ramps" agent 2>"$work/err"
	expect "this is for ramps run" "$work/err"
	fails "$ramps" agent --help 2>"$work/err"
	"$ramps" agent </dev/null
}

wrong_host_files_are_refused_by_name_and_line()
{
	hosts
	printf 'alpha\nbeta workers=x\n' >"$work/bad"
	fails "$ramps" run --hosts "$work/bad" -- true 2>"$work/err"
	expect "bad, line 2" "$work/err"
	expect "'workers=x'" "$work/err"
	: >"$work/bad"
	fails "$ramps" run --hosts "$work/bad" -- true 2>"$work/err"
	expect "names no host" "$work/err"
	fails hosts_run -n 9 -- true 2>"$work/err"
	expect "has room for 3 workers" "$work/err"
	fails "$ramps" run --rsh ssh -- true 2>"$work/err"
	expect "without --hosts" "$work/err"
}

run_tests workers_run_on_hosts_in_the_order_of_the_file arguments_and_variables_pass_unchanged \
	key_reaches_workers_in_a_file_of_their_own_and_on_no_command_line \
	status_of_a_worker_on_a_host_is_the_runs signals_reach_workers_on_hosts \
	killed_run_leaves_nothing_on_hosts agent_without_a_run_says_whom_it_is_for \
	wrong_host_files_are_refused_by_name_and_line

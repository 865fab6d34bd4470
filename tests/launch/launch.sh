# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What the tests of `ramps run` and `ramps train` share.
# shellcheck source=../tools/server.sh
. "$top/tests/tools/server.sh"

# held_run_of COMMANDS OPTION...: a run whose workers are shells that do COMMANDS, say "ready" and wait;
# returns when all have. $run is its pid.
held_run_of()
{
	local commands=$1 workers=$3

	shift
	# shellcheck disable=SC2154 # ramps and work are the sourced files'
	"$ramps" run "$@" -- bash -c "$commands; echo ready; while :; do sleep 0.05; done" >"$work/out" 2>"$work/err" &
	run=$!
	pids+=("$run")
	until_true [ "\$(grep -c ready $work/out)" = "$workers" ]
}

held_run()
{
	held_run_of : "$@"
}

# Whether a process is there and not a zombie.
runs()
{
	local stat

	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	[[ ${stat##*) } != [ZX]* ]]
}

# until_true COMMAND...: waits until it succeeds; evaluated each time.
until_true()
{
	local i

	for ((i = 0; i < 1000; i++)); do
		if eval "$*" 2>/dev/null; then
			return 0
		fi
		sleep 0.02
	done
	fail "not in 20 s: $*"
}

forget()
{
	local i

	wait "$1" || :
	for i in "${!pids[@]}"; do
		[ "${pids[i]}" != "$1" ] || unset "pids[i]"
	done
}

# The processes that a run with this test's shared memory has started.
of_runs()
{
	local environ

	# shellcheck disable=SC2154 # own is server.sh's
	grep -lsz "^RAMPS_SHM_DIR=$own$" /proc/[0-9]*/environ | while read -r environ; do
		! grep -qsz '^RAMPS_RUN=' "$environ" || echo "$environ"
	done
}

# Waits until no process of a run and no arena is left.
until_gone()
{
	until_true "[ -z \"\$(ls '$own'; of_runs)\" ]"
}

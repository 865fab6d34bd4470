# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Servers and workers for script tests. Each test calls own_shm first.
# shellcheck source=../support/script.sh
. "$top/tests/support/script.sh"

ramps=$BUILD/ramps
worker=$BUILD/tests/tools/prog_worker

# A directory for arenas of this test alone; with its processes it goes at the end.
own_shm()
{
	own=$(mktemp -d /dev/shm/ramps-test.XXXXXX)
	export RAMPS_SHM_DIR=$own
	unset RAMPS_SERVERS RAMPS_JOB
	pids=()
	# shellcheck disable=SC2154 # work is script.sh's
	trap 'for pid in "${pids[@]}"; do kill -9 "$pid" || :; done 2>/dev/null; wait; umount "$work"/* 2>/dev/null || :; rm -rf "$own"' EXIT
}

# serve OPTION...: starts a server and waits for its line, in $line; $server is its pid.
serve()
{
	rm -f "$work/line"
	mkfifo "$work/line"
	# Where the tests run under nohup the server must not ignore hangups too.
	env --default-signal=HUP "$ramps" serve "$@" >"$work/line" 2>"$work/log" &
	server=$!
	pids+=("$server")
	# shellcheck disable=SC2034 # for the caller
	read -r -t 20 line <"$work/line" || fail "no line of the server: $(cat "$work/log")"
}

# ends PID STATUS: it must end with this status.
ends()
{
	local status=0 i

	timeout 20 tail -s 0.02 --pid="$1" -f /dev/null || fail "$1 still runs"
	wait "$1" || status=$?
	for i in "${!pids[@]}"; do
		[ "${pids[i]}" != "$1" ] || unset "pids[i]"
	done
	[ "$status" -eq "$2" ] || fail "status $status, not $2"
}

# hold RANK WORKERS COMMAND...: starts a worker and waits until it has done them; $held is its pid.
hold()
{
	rm -f "$work/ready"
	mkfifo "$work/ready"
	"$worker" "${address:-shm://default}" "$@" hold >"$work/ready" 2>&1 &
	held=$!
	pids+=("$held")
	read -r -t 30 answer <"$work/ready" || answer="no answer"
	[ "$answer" = ready ] || fail "$answer"
}

# work_of RANK WORKERS COMMAND...: runs a worker to its end.
work_of()
{
	"$worker" "${address:-shm://default}" "$@"
}

# one_line STATUS TEXT COMMAND...: it must end with STATUS and one line with TEXT on stderr, nothing else.
one_line()
{
	local expected=$1 text=$2 status=0

	shift 2
	timeout 20 "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
	[ "$status" -eq "$expected" ] || fail "status $status, not $expected, of: $*: $(cat "$work/stderr")"
	[ ! -s "$work/stdout" ] || fail "on stdout: $(cat "$work/stdout")"
	[ "$(wc -l <"$work/stderr")" -eq 1 ] || fail "not one line: $(cat "$work/stderr")"
	expect "$text" "$work/stderr"
}

nothing_left()
{
	# A program that is killed as it starts leaves a file of the race detector's.
	[ -z "$(ls -A -I 'tsan.rodata.*' "$RAMPS_SHM_DIR")" ] || fail "left: $(ls -AR "$RAMPS_SHM_DIR")"
}

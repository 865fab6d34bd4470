#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Help, versions and usage errors of the ramps command.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=server.sh
. "$top/tests/tools/server.sh"

help_and_version_go_to_stdout()
{
	"$ramps" --help >"$work/help"
	expect "serve" "$work/help"
	expect "stat" "$work/help"
	[ "$("$ramps" --version)" = "ramps 0.1.0" ]
	[ "$("$ramps" serve --version)" = "ramps 0.1.0" ]
	"$ramps" serve --help >"$work/help"
	expect "Usage: ramps serve [OPTION...] [ADDRESS]" "$work/help"
	expect "--max-workers" "$work/help"
	"$ramps" help stat | cmp - <("$ramps" stat --help)
}

unknown_command_gets_one_line_with_a_suggestion()
{
	one_line 2 "no command 'srve'; did you mean 'ramps serve'?" "$ramps" srve
	one_line 2 "no command 'stats'; did you mean 'ramps stat'?" "$ramps" stats shm://x
	one_line 2 "no command 'frobnicate'; 'ramps --help' lists" "$ramps" frobnicate
	one_line 2 "no command '--bogus'" "$ramps" --bogus
}

no_command_is_a_usage_error()
{
	local status=0

	"$ramps" >"$work/stdout" 2>"$work/stderr" || status=$?
	[ "$status" -eq 2 ]
	[ ! -s "$work/stdout" ]
	expect "Usage: ramps COMMAND" "$work/stderr"
}

# refused TEXT ARGUMENT...: a usage error that says TEXT first.
refused()
{
	local text=$1 status=0

	shift
	timeout 10 "$ramps" "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
	[ "$status" -eq 2 ] || fail "status $status of: ramps $*: $(cat "$work/stderr")"
	[ ! -s "$work/stdout" ]
	head -n 1 "$work/stderr" >"$work/first"
	expect "$text" "$work/first"
}

usage_errors_name_what_is_wrong()
{
	own_shm
	refused "'5Q' is not a size" serve --arena 5Q
	refused "'5KB' is not a size" serve --arena 5KB
	refused "'' is not a size" serve --arena ""
	refused "'-1' is not a size" serve --slots=-1
	refused "'1.5G' is not a size" serve --slots 1.5G
	refused "0 is out of range" serve --arena 0
	refused "18446744073709551616 is out of range" serve --arena 18446744073709551616
	refused "16777216T is out of range" serve --arena 16777216T
	refused "99999999999999999999999999 is out of range" serve --arena 99999999999999999999999999
	refused "'0' is not a number from 1 to 16384" serve --max-workers 0
	refused "'16385' is not" serve --max-workers 16385
	refused "'x' is not" serve --max-workers x
	refused "'maybe' is neither fail nor continue" serve --on-death maybe
	refused "also 'shm://b'" serve shm://a shm://b
	refused "--bogus" serve --bogus
	refused "'tcp://x' is no address" serve tcp://x
	refused "'embed:' is no address" serve embed:
	refused "" serve shm://
	refused "" serve shm://../x
	refused "" serve shm://.x
	refused "" serve "shm://a b"
	refused "" serve --job ../x
	refused "'0' is not a number of seconds" stat --watch=0
	refused "'x' is not a number of seconds" stat -wx
	refused "'0' is not a number from 1 on" stat --count 0
	refused "'default' is no address" stat default
	refused "'' is no address" stat shm://a,
	refused "between several addresses" stat shm://a shm://b
	nothing_left
}

# Names and environment that are too long or strange must not pass either.
long_names_are_refused()
{
	local long

	own_shm
	long=$(printf 'x%.0s' {1..64})
	refused "" serve "shm://$long"
	RAMPS_JOB=$long refused "" serve
	RAMPS_SHM_DIR=$RAMPS_SHM_DIR/$(printf 'y%.0s' {1..250}) fails "$ramps" serve shm://x
	nothing_left
}

a_full_or_closed_stdout_is_an_error()
{
	fails "$ramps" --help >/dev/full 2>"$work/stderr"
	expect "No space left" "$work/stderr"
	fails "$ramps" --version >&- 2>"$work/stderr"
	expect "can't write to stdout" "$work/stderr"
}

run_tests \
	help_and_version_go_to_stdout \
	unknown_command_gets_one_line_with_a_suggestion \
	no_command_is_a_usage_error \
	usage_errors_name_what_is_wrong \
	long_names_are_refused \
	a_full_or_closed_stdout_is_an_error

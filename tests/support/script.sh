# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For script tests: source it, write functions, end with `run_tests NAME...`.
# Each function runs in a subshell with set -e and a directory of its own, $work.
# It fails where a command does; `skip REASON` leaves it as skipped. The current
# directory is the top of the sources, $top; $BUILD is what the runner says.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$top" || exit 1
export BUILD=${BUILD:-build}

skip()
{
	echo "$*"
	exit 77
}

fail()
{
	echo "$*"
	exit 1
}

# expect TEXT FILE: FILE has a line with TEXT in it.
expect()
{
	grep -qF -e "$1" "$2" || fail "'$1' is not in: $(cat "$2")"
}

# expect_no TEXT FILE: no line of FILE has TEXT in it.
expect_no()
{
	if grep -F -e "$1" "$2"; then
		fail "'$1' is in: $(cat "$2")"
	fi
}

# fails COMMAND...: it must exit non-zero, but neither by a signal nor because
# there is no such command.
fails()
{
	local status=0

	"$@" || status=$?
	if [ $status -eq 0 ] || [ $status -ge 126 ]; then
		fail "exit status $status of: $*"
	fi
}

run_tests()
{
	local name status failed=0 scratch

	scratch=$(mktemp -d)
	for name; do
		work=$scratch/$name
		mkdir "$work"
		(
			set -e
			"$name"
		) >"$scratch/output" 2>&1
		status=$?
		case $status in
		0) echo "ok $name" ;;
		77) echo "skip $name: $(tail -n 1 "$scratch/output")" ;;
		*)
			echo "not ok $name: exit status $status"
			sed 's/^/    /' "$scratch/output"
			failed=1
			;;
		esac
		rm -rf "$work"
	done
	rm -rf "$scratch"
	exit $failed
}

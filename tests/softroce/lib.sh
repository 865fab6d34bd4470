# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
#
# For the tests of tools/softroce: source it, start clusters, end with run_tests.
# A folder of its own keeps the clusters' state, so that what is left behind is seen.

. "$(dirname "${BASH_SOURCE[0]}")/../support/script.sh"

sr=$top/tools/softroce
# shellcheck disable=SC2034 # for those who source this
here=$top/tests/softroce
unset XDG_RUNTIME_DIR SOFTROCE_CLUSTER
export LC_ALL=C

scratch_dir=$(mktemp -d /tmp/sr-test.XXXXXX)
chmod 755 "$scratch_dir"
export TMPDIR=$scratch_dir
clusters=

# What a test left running ends with it, and so does a cluster that it shares.
clean_up()
{
	local name

	for name in $clusters; do
		"$sr" stop "$name" >/dev/null 2>&1
	done
	rm -rf "$scratch_dir"
}
trap clean_up EXIT
trap 'exit 1' TERM INT HUP

# skip_all REASON NAME...: the file's end where its tests can not run.
skip_all()
{
	local reason=$1 name

	shift
	for name; do
		echo "skip $name: $reason"
	done
	exit 0
}

# keep NAME OPTION...: a cluster that the tests of a file share.
keep()
{
	local name=$1

	shift
	clusters="$clusters $name"
	timeout 200 "$sr" vm --keep --name "$name" "$@" >"$TMPDIR/$name.log" 2>&1 </dev/null
}

# on NODE WORD...: runs them there, in the shared cluster.
on()
{
	local node=$1

	shift
	timeout 150 "$sr" exec -n --timeout 140 "$node" -- "$@"
}

# within SECONDS WORD...: tries them until they succeed.
within()
{
	local end=$((SECONDS + $1))

	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "not within its time: $*"
		sleep 0.1
	done
}

# status_of WORD...: prints their exit status; their output goes to $work/out.
status_of()
{
	local status=0

	"$@" >"$work/out" 2>&1 </dev/null || status=$?
	echo $status
}

# is WANTED GOT WHAT
is()
{
	[ "$1" = "$2" ] && return
	[ ! -s "$work/out" ] || tail -n 20 "$work/out"
	fail "$3: expected '$1', got '$2'"
}

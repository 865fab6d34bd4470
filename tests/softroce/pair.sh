#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pair.sh SERVER CLIENT ADDRESS PROGRAM WORD...: in a cluster, runs a perftest
# program as server on one node and, when it listens, as client on another.
# Prints what the client printed; fails if either fails. They meet over TCP, for
# with -R a busy client may connect again before its server listens again.
set -eu

server=$1 client=$2 address=$3 program=$4
shift 4
log=$(mktemp)
gid=$(cd /sys/class/infiniband/rxe0/ports/1/gids && grep -l :ffff: [0-7] | head -n 1)
set -- "$program" -F -d rxe0 -x "$gid" "$@"

listens()
{
	softroce-ssh -n "$server" "ss -Hltnp" | grep -qF "\"$program\""
}

softroce-ssh -n "$server" "timeout 120 $*" >"$log" 2>&1 &
# A client that comes before its server listens crashes.
until listens; do
	if ! kill -0 $! 2>/dev/null || [ $SECONDS -gt 60 ]; then
		echo "server: does not listen after $SECONDS s"
		cat "$log"
		kill $! 2>/dev/null || true
		exit 1
	fi
done
status=0
softroce-ssh -n "$client" "timeout 60 $* $address" || status=$?
wait $! || {
	echo "server: exit status $?"
	cat "$log"
	status=1
}
exit $status

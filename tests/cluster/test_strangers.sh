#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 300 s
#
# Those who don't belong to the job and try to get at a server's memory over verbs: nothing is read,
# nothing changes, and the server goes on serving.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/../softroce/lib.sh"

tests="another_key_is_refused handshake_sent_again_is_refused token_is_good_once
	right_rkey_from_a_foreign_domain_reaches_nothing server_with_a_key_refuses_workers_without
	idle_strangers_keep_no_worker_out"

environment()
{
	echo "RAMPS_KEY_FILE=$TMPDIR/key RAMPS_JOB=strangers RAMPS_WORKERS=4"
}

# What the arena holds, but for the header, in which the server says whether it sleeps.
arena_sum()
{
	on node0 sh -ec 'cd /dev/shm/ramps.0.verbs.*; cat words private slots-* >/dev/null
		{ cat words private slots-*; tail -c +4097 published; } | sha256sum'
}

# It is still when the server has heard of the end of the last worker.
arena_is_still()
{
	before=$(arena_sum)
	[ "$before" = "$(arena_sum)" ]
}

# A worker that works in between proves that the server goes on.
still_serves()
{
	# shellcheck disable=SC2046 # words
	on node2 env $(environment) RAMPS_SERVERS="$address" RAMPS_RANK=0 "$binaries/tests/cluster/prog_faults" show \
		>"$work/shown" 2>&1 || fail "$(cat "$work/shown")"
	is "direct 0" "$(grep direct "$work/shown")" "what the table holds"
}

# tried MODE: nothing of it worked, and not a byte has changed.
tried()
{
	local last before after

	still_serves
	last=$(sed -n 's/.*rank 0 of 4 joined as incarnation \([0-9]*\) .*/\1/p' "$TMPDIR/server.log" | tail -n 1)
	within 20 grep -q "rank 0, incarnation $last, is dead" "$TMPDIR/server.log"
	within 20 arena_is_still
	# shellcheck disable=SC2046 # words
	on node1 env $(environment) "$binaries/tests/cluster/prog_stranger" "$address" "$1" >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	is refused "$(tail -n 1 "$work/out")" "$1"
	after=$(arena_sum)
	[ "${2:-}" = joins ] || is "$before" "$after" "the arena"
	still_serves
}

another_key_is_refused()
{
	tried wrong-key
	expect "it has another key than the server" "$TMPDIR/server.log"
}

handshake_sent_again_is_refused()
{
	tried replay
}

token_is_good_once()
{
	tried token
	expect "a data connection without proof" "$TMPDIR/server.log"
}

# It takes a rank to learn the rkey, which changes that rank's state: the words are looked at by value.
right_rkey_from_a_foreign_domain_reaches_nothing()
{
	tried right-rkey joins
}

server_with_a_key_refuses_workers_without()
{
	fails on node1 env RAMPS_JOB=strangers RAMPS_SERVERS="$address" RAMPS_RANK=1 RAMPS_WORKERS=4 \
		"$binaries/tests/cluster/prog_faults" show >"$work/out" 2>&1
	expect "another key" "$work/out"
}

idle_strangers_keep_no_worker_out()
{
	local start

	"$sr" exec -n --timeout 60 node1 -- "$binaries/tests/cluster/prog_stranger" "$address" idle 200 >"$work/idle" 2>&1 &
	within 40 grep -q '^idle' "$work/idle"
	start=$SECONDS
	still_serves
	[ $((SECONDS - start)) -le 10 ] || fail "a worker took $((SECONDS - start)) s to join"
	on node1 pkill -KILL prog_stranger
}

# shellcheck disable=SC2086 # words
[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" $tests
binaries=$(cd "$BUILD" && pwd)
head -c 32 /dev/urandom >"$TMPDIR/key"
chmod 600 "$TMPDIR/key"
keep strangers --nodes 3 || {
	echo "not ok three_nodes_boot: $(tail -n 30 "$TMPDIR/strangers.log")"
	exit 1
}
export SOFTROCE_CLUSTER=strangers
# shellcheck disable=SC2046 # words
"$sr" exec -n node0 -- env $(environment) "$binaries/ramps" serve verbs://10.77.0.1:0 -v --arena 64M --slots 256K \
	--on-death continue >"$TMPDIR/server" 2>"$TMPDIR/server.log" &
for _ in $(seq 300); do
	grep -q verbs:// "$TMPDIR/server" && break
	sleep 0.1
done
address=$(grep -o 'verbs://[^, ]*' "$TMPDIR/server" | head -n 1)
# shellcheck disable=SC2086
run_tests $tests

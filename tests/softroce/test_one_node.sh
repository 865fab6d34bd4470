#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 500 s
#
# tools/softroce with one node: the device, the remote command, the overlay.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/lib.sh"

full()
{
	[ "${QUICK:-}" != 1 ] || skip "QUICK=1"
}

one_node_has_an_active_rxe0()
{
	on node0 ibv_devinfo >"$work/out"
	expect "rxe0" "$work/out"
	expect "PORT_ACTIVE" "$work/out"
	expect "active_mtu:		4096" "$work/out"
}

exit_status_of_the_command_comes_back()
{
	is 37 "$(cat "$TMPDIR/first_status")" "vm -- sh -c 'exit 37'"
	is 41 "$(status_of on node0 sh -c 'exit 41')" "exec"
	is 143 "$(status_of on node0 sh -c 'kill -TERM $$')" "exec of what a signal ends"
	is 127 "$(status_of on node0 no-such-command)" "exec of no command"
}

rping_and_perftest_run_on_one_node()
{
	full
	on node0 sh -c 'rping -s -P & server=$!
		until rdma res show cm_id | grep -q "LISTEN.*comm rping"; do kill -0 $server || exit 1; done
		timeout 30 rping -c -a node0 -C 3 -v; status=$?
		kill -9 $server; exit $status' >"$work/out" 2>&1
	is 3 "$(grep -c '^ping data' "$work/out")" "pings of rping"
	on node0 "$here/pair.sh" node0 node0 node0 ib_read_lat -s 8 -n 200 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	grep -qE '^ *8 +200 +[0-9.]+ ' "$work/out" || fail "ib_read_lat: $(cat "$work/out")"
	on node0 "$here/pair.sh" node0 node0 node0 ib_atomic_bw -n 500 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	grep -qE '^ *8 +500 +[0-9.]+ ' "$work/out" || fail "ib_atomic_bw: $(cat "$work/out")"
}

# 20,000 READs of a word under a writer: the reason for the processor's flags.
aligned_words_never_tear()
{
	full
	on node0 "$TMPDIR/tear" 20000 >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	expect " 0 torn" "$work/out"
	# The writer did write between the reads, else nothing could tear.
	[ "$(sed 's/.* reads, \([0-9]*\) values.*/\1/' "$work/out")" -gt 500 ] || fail "$(cat "$work/out")"
}

output_and_input_of_10_mb_are_whole()
{
	local sum

	full
	head -c 10485760 /dev/urandom >"$work/data"
	sum=$(sha256sum <"$work/data")
	timeout 60 "$sr" exec node0 -- sha256sum <"$work/data" >"$work/sum"
	is "$sum" "$(cat "$work/sum")" "input"
	timeout 60 "$sr" exec node0 -- sh -c 'cat; echo end >&2' <"$work/data" >"$work/echo" 2>"$work/err"
	is "$sum" "$(sha256sum <"$work/echo")" "output"
	is end "$(cat "$work/err")" "standard error"
}

# The pipe to the reader takes 64 KiB, the flow control 256 KiB: the rest waits in the guest.
output_left_when_the_command_ends_is_whole()
{
	full
	timeout 60 "$sr" exec -n node0 -- sh -c 'head -c 365536 /dev/zero; touch /dev/shm/written' |
		{ within 30 on node0 test -e /dev/shm/written; wc -c; } >"$work/count"
	is 365536 "$(cat "$work/count")" "bytes"
}

environment_folder_and_arguments_are_the_callers()
{
	full
	cd "$here"
	A_WORD="two words" on node0 sh -c 'echo "$PWD|$A_WORD|$1|$2"' sh "a  b" '*' >"$work/out"
	is "$here|two words|a  b|*" "$(cat "$work/out")" "words"
	on node0 sh -c 'hostname; cat "$SOFTROCE_HOSTS"; echo "$SOFTROCE_NODE"' >"$work/out"
	is "node0 node0 node0" "$(tr '\n' ' ' <"$work/out" | sed 's/ $//')" "names"
}

files_of_the_host_do_not_change_but_in_the_share()
{
	full
	on node0 sh -c "echo guest >'$TMPDIR/share/file'; echo guest >'$TMPDIR/overlay-file'
		rm '$TMPDIR/keep-me'; test ! -e '$TMPDIR/keep-me'; cat '$TMPDIR/overlay-file'" >"$work/out"
	is guest "$(cat "$work/out")" "the overlay, in the guest"
	is guest "$(cat "$TMPDIR/share/file")" "the share"
	[ ! -e "$TMPDIR/overlay-file" ] || fail "the guest wrote to the host's files"
	[ -e "$TMPDIR/keep-me" ] || fail "the guest removed a file of the host"
}

background_process_does_not_hold_its_command()
{
	full
	is 0 "$(status_of timeout 20 "$sr" exec -n node0 -- sh -c 'sleep 1000 & echo started')" "status"
	is started "$(cat "$work/out")" "output"
	on node0 pkill -x sleep
}

command_past_its_deadline_ends_there_too()
{
	full
	is 124 "$(status_of timeout 30 "$sr" exec -n --timeout 1 node0 -- sleep 12345)" "status"
	expect "did not end within 1 s" "$work/out"
	within 20 no_process_on_node0 "sleep 12345"
}

no_process_on_node0()
{
	! on node0 pgrep -f "^$1" >/dev/null
}

interrupt_reaches_the_remote_command()
{
	local pid status=0

	full
	"$sr" exec -n node0 -- bash -c 'trap "exit 42" INT; echo started; while :; do sleep 1; done' \
		>"$work/started" 2>&1 &
	pid=$!
	within 20 grep -q started "$work/started"
	kill -INT "$pid"
	wait "$pid" || status=$?
	is 42 "$status" "status"
}

# A guest is a host whose kernel has rdma_rxe.
up_down_and_status_work_on_a_host()
{
	full
	# shellcheck disable=SC2016
	on node0 sh -ec '"$1" status; "$1" down; rdma link; echo "down: $?"; "$1" up eth0; "$1" up eth0
		rdma link; "$1" status' sh "$sr" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	expect "rxe0: ACTIVE on eth0" "$work/out"
	expect "rxe0 removed" "$work/out"
	expect "rxe0 on eth0" "$work/out"
	expect "rxe0 is on eth0 already" "$work/out"
	sed -n '/rxe0 removed/,/down: 0/p' "$work/out" >"$work/between"
	expect_no "link rxe0" "$work/between"
	within 20 on node0 sh -c 'ibv_devinfo | grep -q PORT_ACTIVE'
}

host_without_rxe_is_told_what_to_do()
{
	full
	[ ! -e /sys/module/rdma_rxe ] || return 0
	! modprobe -n rdma_rxe 2>/dev/null || return 0
	is 255 "$(status_of timeout 60 "$sr" up)" "status of up"
	expect "has no module rdma_rxe" "$work/out"
}

wrong_words_are_refused_with_the_reason()
{
	full
	is 255 "$(status_of "$sr" vm --nodes 99 -- true)" "status of 99 nodes"
	expect "--nodes 99: 1 to 16" "$work/out"
	is 255 "$(status_of "$sr" vm --memory 10M -- true)" "status of 10M"
	expect "at least 96M" "$work/out"
	is 255 "$(status_of on node7 true)" "status of node7"
	expect "no node node7" "$work/out"
	is 255 "$(status_of "$sr" exec --cluster nobody node0 -- true)" "status of cluster nobody"
	expect "no cluster nobody" "$work/out"
	is 255 "$(status_of "$sr" vm --keep --name one)" "status of a name in use"
	expect "a cluster one runs already" "$work/out"
	on node0 true || fail "the cluster of that name is hurt"
}

# The same name with a missing program: the one command that helps.
missing_program_names_the_packages()
{
	full
	mkdir "$work/bin"
	ln -s /usr/bin/python3 /bin/sh "$work/bin"
	sed 's|":/usr/sbin:/sbin"|""|' "$top/tools/softroce.d/common.py" >"$work/common.py"
	cp -r "$top/tools/softroce" "$top/tools/softroce.d" "$top/tools/softroce.packages" "$work"
	cp "$work/common.py" "$work/softroce.d/common.py"
	is 255 "$(status_of env PATH="$work/bin" "$work/softroce" vm -- true)" "status"
	expect "apt-get install --no-install-recommends apt busybox-static" "$work/out"
	expect "qemu-system-x86" "$work/out"
}

stopped_cluster_leaves_nothing()
{
	full
	timeout 60 "$sr" stop one
	clusters=
	[ -z "$(pgrep -f -- "$TMPDIR/softroce-")" ] || fail "left: $(pgrep -af -- "$TMPDIR/softroce-")"
	[ -z "$(ls -d "$TMPDIR"/softroce-* 2>/dev/null)" ] || fail "left: $(ls -d "$TMPDIR"/softroce-*)"
	is 255 "$(status_of "$sr" stop one)" "status of a second stop"
}

mkdir "$TMPDIR/share"
touch "$TMPDIR/keep-me"
"${CC:-gcc}" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$TMPDIR/tear" "$here/tear.c" -libverbs -lpthread
keep one --share "$TMPDIR/share" -- sh -c 'exit 37'
echo $? >"$TMPDIR/first_status"
cat "$TMPDIR/one.log"

run_tests \
	one_node_has_an_active_rxe0 \
	exit_status_of_the_command_comes_back \
	rping_and_perftest_run_on_one_node \
	aligned_words_never_tear \
	output_and_input_of_10_mb_are_whole \
	output_left_when_the_command_ends_is_whole \
	environment_folder_and_arguments_are_the_callers \
	files_of_the_host_do_not_change_but_in_the_share \
	background_process_does_not_hold_its_command \
	command_past_its_deadline_ends_there_too \
	interrupt_reaches_the_remote_command \
	up_down_and_status_work_on_a_host \
	host_without_rxe_is_told_what_to_do \
	wrong_words_are_refused_with_the_reason \
	missing_program_names_the_packages \
	stopped_cluster_leaves_nothing

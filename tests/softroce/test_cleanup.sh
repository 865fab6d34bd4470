#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 600 s
#
# tools/softroce vm, ended in all ways: nothing may stay behind, and a failed boot
# must say why.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/lib.sh"

tests="hanging_command_ends_at_its_deadline command_that_kills_its_machine_is_an_error
	interrupt_ends_everything terminated_and_killed_tool_leave_nothing
	killed_supervisor_leaves_nothing closed_output_ends_everything
	failed_boot_shows_console_and_reason slow_boot_ends_at_its_deadline
	kept_cluster_ends_with_its_lifetime kept_cluster_ends_with_its_folder network_without_root_reaches_all_nodes
	network_by_a_program_reaches_all_nodes user_namespace_network_reaches_all_nodes
	kvm_is_used_only_where_it_boots
	cache_is_made_again_when_a_source_changes cache_is_made_again_when_the_kernel_package_changes"

# Starts a cluster of one node in a process group of its own, whose command is
# "echo begun" and more words; returns when it runs. Sets $pid and $namespace.
begin()
{
	setsid "$sr" vm --nodes "${nodes:-1}" --network root "${options[@]}" -- \
		sh -c "echo begun; $1" >"$work/out" 2>&1 </dev/null &
	pid=$!
	within 120 begun
	supervisor=$(pgrep -f -- "supervisor.py $TMPDIR/softroce-")
	namespace=$(readlink "/proc/$supervisor/ns/net")
}

begun()
{
	kill -0 "$pid" 2>/dev/null || fail "ended before its command began: $(cat "$work/out")"
	grep -q begun "$work/out"
}

# What belongs to a cluster of this test: processes, its namespace, its folder.
leftovers()
{
	local p

	pgrep -af -- "$TMPDIR/softroce-" || true
	ls -d "$TMPDIR"/softroce-* 2>/dev/null || true
	for p in /proc/[0-9]*; do
		[ "$(readlink "$p/ns/net" 2>/dev/null)" != "${namespace:-none}" ] || echo "in the namespace: $p"
	done
}

nothing_left()
{
	[ -z "$(leftovers)" ]
}

clean()
{
	nothing_left || fail "left: $(leftovers)"
}

ended_with()
{
	local status=0

	wait "$pid" || status=$?
	is "$1" "$status" "exit status"
}

hanging_command_ends_at_its_deadline()
{
	options=(--timeout 2)
	begin 'trap "" TERM INT HUP; while :; do sleep 1000; done'
	ended_with 124
	clean
	expect "did not end within 2 s" "$work/out"
}

command_that_kills_its_machine_is_an_error()
{
	is 255 "$(status_of timeout 200 "$sr" vm -- sh -c 'echo b >/proc/sysrq-trigger; sleep 1000')" "status"
	expect "node0: its QEMU ended with status 0" "$work/out"
	expect "likely reason: something in the guest powered it off or reset it" "$work/out"
	clean
}

interrupt_ends_everything()
{
	options=()
	nodes=2
	begin 'trap "" TERM INT HUP; softroce-ssh node1 "sleep 1000"'
	kill -INT -- -"$pid"
	ended_with 130
	clean
	# While it boots, too.
	setsid "$sr" vm -- true >"$work/out" 2>&1 </dev/null &
	pid=$!
	within 20 pgrep -f -- "^qemu.*$TMPDIR/softroce-" >/dev/null
	kill -INT -- -"$pid"
	ended_with 130
	clean
}

terminated_and_killed_tool_leave_nothing()
{
	options=()
	begin 'sleep 1000'
	kill -TERM "$pid"
	ended_with 143
	clean
	begin 'sleep 1000'
	kill -KILL "$pid"
	ended_with 137
	within 15 nothing_left
}

killed_supervisor_leaves_nothing()
{
	options=()
	begin 'sleep 1000'
	kill -KILL "$supervisor"
	ended_with 255
	within 15 nothing_left
	# Both at once: a folder may stay, and the next command removes it.
	begin 'sleep 1000'
	kill -KILL "$supervisor" "$pid"
	ended_with 137
	"$sr" status >/dev/null
	within 15 nothing_left
}

closed_output_ends_everything()
{
	"$sr" vm -n -- yes 2>"$work/err" | head -n 1 >"$work/out"
	is y "$(cat "$work/out")" "output"
	expect_no Traceback "$work/err"
	within 15 nothing_left
}

failed_boot_shows_console_and_reason()
{
	is 255 "$(status_of timeout 200 "$sr" vm --netem "no such words" -- true)" "status"
	expect "the cluster did not boot" "$work/out"
	expect "| softroce: failed: netem no such words" "$work/out"
	expect "likely reason: the guest says: netem no such words" "$work/out"
	clean
}

slow_boot_ends_at_its_deadline()
{
	is 255 "$(status_of timeout 200 "$sr" vm --nodes 3 --boot-timeout 1 -- true)" "status"
	expect "not ready after 1.0 s" "$work/out"
	expect "likely reason" "$work/out"
	clean
}

kept_cluster_ends_with_its_lifetime()
{
	is 0 "$(status_of timeout 200 "$sr" vm --keep --lifetime 3 --name short)" "status"
	expect short "$work/out"
	within 20 nothing_left
}

kept_cluster_ends_with_its_folder()
{
	is 0 "$(status_of timeout 200 "$sr" vm --keep --name folder)" "status"
	rm -r "$TMPDIR/softroce-$(id -u)-folder"
	within 15 nothing_left
}

network_without_root_reaches_all_nodes()
{
	local image

	[ "$(id -u)" = 0 ] || skip "needs root, to become someone else"
	chmod 755 "$TMPDIR" "$(dirname "$work")" "$work"
	mkdir "$work/tool" "$work/state"
	cp -r "$top/tools/softroce" "$top/tools/softroce.d" "$top/tools/softroce.packages" "$work/tool"
	image=$("$sr" prepare)
	mkdir "$work/cache"
	cp -r "$image" "$(dirname "$image")/package.json" "$work/cache"
	chown -R nobody "$work/cache" "$work/state"
	cd /
	setpriv --reuid=nobody --regid=nogroup --clear-groups env TMPDIR="$work/state" HOME=/nonexistent \
		timeout 150 "$work/tool/softroce" vm --cache "$work/cache" --nodes 3 -- \
		sh -ec 'for i in 0 1 2; do softroce-ssh -n node$i "for j in 0 1 2; do
			busybox ping -c 1 -W 5 -s 8000 node\$j >/dev/null && echo $i \$j; done"; done
			cat /sys/class/infiniband/rxe0/ports/1/state' >"$work/out" 2>&1 || fail "$(cat "$work/out")"
	is 9 "$(grep -c '^[012] [012]$' "$work/out")" "pairs"
	expect ACTIVE "$work/out"
	if ! setpriv --reuid=nobody --regid=nogroup --clear-groups test -w /dev/net/tun; then
		expect "no right to a bridge" "$work/out"
	fi
	[ -z "$(ls "$work/state")" ] || fail "left: $(ls "$work/state")"
	[ -z "$(pgrep -u nobody -f softroce)" ] || fail "left: $(pgrep -u nobody -af softroce)"
}

network_by_a_program_reaches_all_nodes()
{
	timeout 150 "$sr" vm --network switch --nodes 2 -- busybox ping -c 1 -W 5 -s 8000 node1 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	clean
}

user_namespace_network_reaches_all_nodes()
{
	unshare --user --map-root-user --net true 2>/dev/null || skip "no user namespaces here"
	timeout 150 "$sr" vm --network user --nodes 2 -- busybox ping -c 1 -W 5 -s 8000 node1 >"$work/out" 2>&1 ||
		fail "$(cat "$work/out")"
	clean
}

kvm_is_used_only_where_it_boots()
{
	local image kept works

	image=$("$sr" prepare)
	if [ ! -w /dev/kvm ]; then
		return 0
	fi
	kept=$(cat "$image/kvm.json")
	works=${kept##*\"works\": }
	works=${works%\}}
	options=()
	begin 'sleep 1000'
	tr '\0' ' ' <"/proc/$(pgrep -f -- "^qemu.*$TMPDIR/softroce-")/cmdline" >"$work/argv"
	kill -INT -- -"$pid"
	ended_with 130
	if [ "$works" = true ]; then
		expect "-accel kvm" "$work/argv"
	else
		expect "-accel tcg" "$work/argv"
	fi
	expect "-erms,-fsrm" "$work/argv"
}

cache_is_made_again_when_a_source_changes()
{
	local before

	cp -r "$top/tools/softroce" "$top/tools/softroce.d" "$top/tools/softroce.packages" "$work"
	before=$("$sr" prepare)
	[ -s "$before/vmlinux" ]
	[ -s "$before/initrd" ]
	is "$before" "$("$work/softroce" prepare)" "image of the same sources"
	echo "# changed" >>"$work/softroce.d/guest/init.sh"
	is 0 "$(status_of timeout 300 "$work/softroce" prepare)" "status"
	expect "making kernel and initrd" "$work/out"
	[ "$(tail -n 1 "$work/out")" != "$before" ] || fail "the image is still $before"
	rm -r "$(tail -n 1 "$work/out")"
}

# As if apt knew another version now, and that could not be had.
cache_is_made_again_when_the_kernel_package_changes()
{
	local cache

	cache=$(dirname "$("$sr" prepare)")
	mkdir "$work/cache"
	sed 's/"version": "[^"]*"/"version": "0"/' "$cache/package.json" >"$work/cache/package.json"
	is 255 "$(status_of timeout 100 "$sr" prepare --cache "$work/cache")" "status"
	grep -q "making kernel and initrd from linux-image-[^ ]*=0 " "$work/out" || fail "$(cat "$work/out")"
	expect "'apt-get update' helps" "$work/out"
	[ -z "$(find "$work/cache" -mindepth 1 -type d)" ] || fail "left: $(ls "$work/cache")"
}

# shellcheck disable=SC2086 # names
[ "${QUICK:-}" != 1 ] || skip_all "QUICK=1" $tests
# shellcheck disable=SC2086
run_tests $tests

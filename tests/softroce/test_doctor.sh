#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# timeout: 400 s
#
# ramps doctor in a guest with a real device: each thing is broken on purpose. Only its line is marked, and
# the command that the line names mends it.
# shellcheck disable=SC2329 # functions are called by name
. "$(dirname "$0")/lib.sh"

ramps=$(realpath "$BUILD")/ramps
doctor="$ramps doctor --arena 32M"

# diagnose [WORD...]: what the doctor says on node0, run by these words, in $work/out.
diagnose()
{
	local status=0

	# shellcheck disable=SC2086 # words
	on node0 "$@" $doctor >"$work/out" 2>"$work/err" || status=$?
	[ "$status" -le 1 ] || fail "status $status: $(cat "$work/out" "$work/err")"
	is "$status" "$(grep -c MEND "$work/out" | sed 's/[^0].*/1/')" "status"
}

fit()
{
	diagnose "$@"
	expect "fit for shm:// and verbs://" "$work/out"
	expect_no "not looked at" "$work/out"
}

is_fit()
{
	(fit "$@") >/dev/null 2>&1
}

# only LINE COMMAND [WORD...]: as diagnose; one line is marked, and has this text. Leaves it in $command.
only()
{
	local line=$1 wanted=$2

	shift 2
	diagnose "$@"
	is 1 "$(grep -c MEND "$work/out")" "lines marked"
	grep MEND "$work/out" >"$work/marked"
	grep -q "^$line " "$work/marked" || fail "not '$line' is marked: $(cat "$work/out")"
	expect "not fit, to mend: $line" "$work/out"
	command=$(sed 's/.*MEND\( as root\)\?: //' "$work/marked")
	is "$wanted" "$command" "what mends it"
}

# not_looked_at LINE...: these lines and no others.
not_looked_at()
{
	local line

	is $# "$(grep -c "not looked at" "$work/out")" "lines not looked at"
	for line; do
		grep -q "^$line  *-  *not looked at: " "$work/out" || fail "'$line' is not among them: $(cat "$work/out")"
	done
}

mend()
{
	on node0 sh -c "$command" || fail "it fails: $command"
	within 20 is_fit
}

sound_node_is_fit()
{
	fit
	expect "rxe0 (rdma_rxe, in software, eth0)" "$work/out"
	expect "index 1 of 3, RoCE v2, 10.77.0.1" "$work/out"
	expect "eth0 9000, path 4096" "$work/out"
	expect "10.77.0.1 is rxe0's" "$work/out"
	fit setpriv --reuid=65534 --regid=65534 --clear-groups
}

json_is_strict()
{
	# shellcheck disable=SC2086
	on node0 $doctor --json >"$work/json"
	python3 -c 'import json, sys
def pairs(p):
	assert len({k for k, _ in p}) == len(p)
	return dict(p)
d = json.load(sys.stdin, object_pairs_hook=pairs, parse_constant=lambda c: 1 / 0)
assert d["fit"] is True and d["device"] == "rxe0" and d["port"] == 1 and d["gid_index"] == 1
assert len(d["items"]) == 17 and all(i["state"] == "ok" and i["found"] for i in d["items"])' <"$work/json"
}

link_is_down()
{
	on node0 ip link set dev eth0 down
	only port "ip link set dev eth0 up"
	not_looked_at MTU rdma_cm
	mend
}

mtu_is_too_small()
{
	on node0 ip link set dev eth0 mtu 1000
	only MTU "ip link set dev eth0 mtu 1500"
	expect "eth0 1000, path 512" "$work/out"
	mend
	expect_no "path 512" "$work/out"
	on node0 ip link set dev eth0 mtu 9000
}

address_is_gone()
{
	on node0 ip addr flush dev eth0 scope global
	only GID "ip addr add ADDRESS/24 dev eth0"
	not_looked_at rdma_cm
	command="ip addr add 10.77.0.1/24 dev eth0"
	mend
}

memory_can_not_be_locked()
{
	local less="prlimit --memlock=65536:65536 setpriv --bounding-set=-ipc_lock"

	# shellcheck disable=SC2086
	only "locked memory" "ulimit -l unlimited" $less
	expect "64 KiB, at most 64 KiB, no CAP_IPC_LOCK, needs 48 MiB" "$work/out"
	# shellcheck disable=SC2086
	fit $less sh -c "$command; exec \"\$@\"" sh
	# The capability alone is enough; and who may not raise the limit is told who can.
	fit prlimit --memlock=65536:65536
	only "locked memory" "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf, then log in again (services: LimitMEMLOCK=infinity)" \
		prlimit --memlock=65536:65536 setpriv --reuid=65534 --regid=65534 --clear-groups
	# shellcheck disable=SC2016 # for the shell there
	only "locked memory" 'ulimit -l $(ulimit -H -l)' \
		prlimit --memlock=65536:67108864 setpriv --reuid=65534 --regid=65534 --clear-groups
	fit prlimit --memlock=65536:67108864 setpriv --reuid=65534 --regid=65534 --clear-groups \
		sh -c "$command; exec \"\$@\"" sh
}

device_file_is_not_ours()
{
	on node0 chmod 600 /dev/infiniband/uverbs0
	only "device file" "chmod 666 /dev/infiniband/uverbs0" \
		setpriv --reuid=65534 --regid=65534 --clear-groups
	not_looked_at libibverbs atomics rdma_cm
	mend
	fit setpriv --reuid=65534 --regid=65534 --clear-groups
}

device_file_is_missing()
{
	local numbers

	numbers=$(on node0 sed 's/:/ /' /sys/class/misc/rdma_cm/dev)
	on node0 rm /dev/infiniband/rdma_cm
	only "rdma_cm file" "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/rdma_cm c $numbers"
	not_looked_at rdma_cm
	mend
}

shared_memory_is_full()
{
	on node0 dd if=/dev/zero of=/dev/shm/filler bs=1M count=210 status=none
	only "shared memory" "ls -lS /dev/shm, and remove what nobody uses"
	on node0 rm /dev/shm/filler
	on node0 mount -o remount,size=16M /dev/shm
	only "shared memory" "mount -o remount,size=32M /dev/shm"
	mend
	on node0 mount -o remount,size=200M /dev/shm
}

wrong_choices_are_told_right_ones()
{
	local plain=$doctor

	doctor="$plain -d mlx5_0"
	only device "choose one that is there: -d rxe0"
	doctor="$plain -i 2"
	only port "choose one that is there: -i 1"
	doctor="$plain -x 200"
	only GID "choose one that serves: -x 1"
	doctor="$plain --device rxe0 --port 1 --gid-index 1"
	fit
}

device_is_removed()
{
	on node0 rdma link delete rxe0
	only device "rdma link add rxe0 type rxe netdev eth0"
	not_looked_at "device file" "rdma_cm file" port GID libibverbs atomics MTU rdma_cm "NUMA node"
	mend
}

# lend COMMAND...: starts it on node0, and waits for the address in its line, $address.
lend()
{
	on node0 sh -c '"$@" >/tmp/lent 2>/tmp/lent.err </dev/null & echo $! >/tmp/lent.pid' sh "$@"
	within 30 on node0 grep -q verbs: /tmp/lent
	address=$(on node0 grep -o "verbs://node0:[0-9]*" /tmp/lent | head -n 1)
}

end_lent()
{
	# shellcheck disable=SC2016 # for the shell there
	on node0 sh -c 'kill $(cat /tmp/lent.pid); while kill -0 $(cat /tmp/lent.pid) 2>/dev/null; do sleep 0.1; done'
}

# connects STATUS [WORD...]
connects()
{
	local wanted=$1

	shift
	# shellcheck disable=SC2086 # words
	is "$wanted" "$(status_of on node0 "$@" $doctor --connect "$address")" "status"
}

operations_are_tried_over_verbs()
{
	lend "$ramps" doctor --serve verbs://node0:0
	connects 0
	is 5 "$(grep -cE '^(message|READ|WRITE|FETCH_ADD|COMPARE_SWAP)  .* the median of [0-9]+ +OK$' "$work/out")" "operations"
	expect "$address: ramps doctor on node0" "$work/out"
	on node0 sh -c 'head -c 32 /dev/urandom >/tmp/key; chmod 600 /tmp/key'
	connects 1 env RAMPS_KEY_FILE=/tmp/key
	expect "not fit, to mend: connect" "$work/out"
	expect "MEND: give both sides the same key: RAMPS_KEY_FILE=FILE" "$work/out"
	end_lent
	connects 1
	expect "MEND: on that node: ramps doctor --serve $address" "$work/out"
	is 5 "$(grep -c "not looked at: not connected" "$work/out")" "operations not tried"
}

server_of_a_job_is_only_read_over_verbs()
{
	lend "$ramps" serve --arena 16M --max-workers 4 verbs://node0:0
	connects 0
	expect "$address: a server of job default" "$work/out"
	is 1 "$(grep -cE '^READ .* OK$' "$work/out")" "READs"
	is 4 "$(grep -c "not looked at: a job's server is only read" "$work/out")" "operations not tried"
	connects 0
	end_lent
}

# The last one: the guest has no folder of modules to load it from again.
module_is_missing()
{
	on node0 rmmod rdma_ucm
	only rdma_ucm "modprobe rdma_ucm"
	not_looked_at "rdma_cm file" rdma_cm
}

host_without_a_device_lacks_that_alone()
{
	local status=0

	[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || skip "this host has a device"
	# shellcheck disable=SC2086
	$doctor >"$work/out" || status=$?
	is 1 "$status" "status"
	grep MEND "$work/out" | grep -v "^locked memory " >"$work/marked" || true
	is 1 "$(wc -l <"$work/marked")" "lines marked"
	grep -q "^device  *none  *MEND" "$work/marked" || fail "$(cat "$work/out")"
	is 0 "$(status_of "$ramps" doctor --arena 1M --fabric shm)" "status without RDMA"
}

keep one || { cat "$TMPDIR/one.log"; exit 1; }

run_tests \
	sound_node_is_fit \
	json_is_strict \
	link_is_down \
	mtu_is_too_small \
	address_is_gone \
	memory_can_not_be_locked \
	device_file_is_not_ours \
	device_file_is_missing \
	shared_memory_is_full \
	wrong_choices_are_told_right_ones \
	operations_are_tried_over_verbs \
	server_of_a_job_is_only_read_over_verbs \
	device_is_removed \
	module_is_missing \
	host_without_a_device_lacks_that_alone

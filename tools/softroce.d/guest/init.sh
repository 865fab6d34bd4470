#!/bin/busybox sh
# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
#
# The first program of a softroce guest, in its initrd. It makes the host's files
# the root, read-only under an overlay, brings up the network and rxe0, and
# becomes the agent. Its words go to the console, which the host shows on failure.

fail() {
	echo "softroce: failed: $*"
	poweroff -f
}

# Waits for a condition; a guest's clock is of no use for a deadline here, the host has one.
until_true() {
	until "$@"; do usleep 20000; done
}

word() { # NAME: its value on the kernel's command line
	sed -n "s/.*softroce\.$1=\([^ ]*\).*/\1/p" /proc/cmdline
}

exec </dev/null
# The shell finds the other applets through /proc.
/bin/busybox mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1

if [ -n "$(word trial)" ]; then
	echo "softroce: trial boot works"
	poweroff -f
fi

echo "softroce: modules"
while read -r module; do
	insmod "/modules/$module" || fail "module $module"
done </modules/order

echo "softroce: files"
mkdir -p /lower /rw /new
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose root /lower ||
	fail "the host's files by 9p"
mount -t tmpfs -o size=75% tmpfs /rw
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /new ||
	fail "overlay over the host's files"
node=$(word node)
state=$(word state)
# MTU, NETEM, CWD, PREFIX, PREFIX6, NSHARES, SHARE0..: quoted by the host.
# shellcheck source=/dev/null
. "/lower$state/guest" || fail "settings in $state/guest"

mkdir -p /new/proc /new/sys /new/dev /new/run
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
mount -t tmpfs -o mode=1777 shm /new/dev/shm
mount -t tmpfs -o mode=755 run /new/run
ln -sf /proc/self/fd /new/dev/fd
ln -sf /proc/self/fd/0 /new/dev/stdin
ln -sf /proc/self/fd/1 /new/dev/stdout
ln -sf /proc/self/fd/2 /new/dev/stderr
mkdir -p /new/run/softroce /new/run/lock
chmod 1777 /new/run/lock
cp /agent /new/run/softroce/agent
ln -sf /run/softroce/agent /new/usr/bin/softroce-ssh
cp "/lower$state/hosts" /new/run/softroce/hosts
rm -f /new/etc/hosts /new/etc/hostname
cp "/lower$state/etc_hosts" /new/etc/hosts
echo "node$node" >/new/etc/hostname

i=0
while [ "$i" -lt "$NSHARES" ]; do
	share=
	eval "share=\$SHARE$i"
	mkdir -p "/new$share"
	mount -t 9p -o rw,trans=virtio,version=9p2000.L,msize=262144,cache=none "share$i" "/new$share" ||
		fail "share $share by 9p"
	i=$((i + 1))
done

echo "softroce: network"
address=$PREFIX.$((node + 1))
hostname "node$node"
ip link set lo up
until_true test -e /sys/class/net/eth0
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set eth0 mtu "$MTU" up || fail "MTU $MTU on eth0"
ip addr add "$address/24" dev eth0 || fail "address $address"
ip -6 addr add "$PREFIX6::$((node + 1))/64" dev eth0

echo "softroce: rxe0"
chroot /new rdma link add rxe0 type rxe netdev eth0 || fail "rdma link add rxe0"
rxe=/sys/class/infiniband/rxe0/ports/1
until_true grep -q ACTIVE $rxe/state
until_true grep -q "^0000:0000:0000:0000:0000:ffff:" $rxe/gids/[0-7]
if [ -n "$NETEM" ]; then
	# shellcheck disable=SC2086 # words of tc
	chroot /new tc qdisc replace dev eth0 root netem $NETEM || fail "netem $NETEM"
fi

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root USER=root LOGNAME=root SHELL=/bin/sh LANG=C.UTF-8
export SOFTROCE_HOSTS=/run/softroce/hosts SOFTROCE_NODE="node$node" SOFTROCE_CWD="$CWD"
echo "softroce: agent"
exec switch_root /new /run/softroce/agent

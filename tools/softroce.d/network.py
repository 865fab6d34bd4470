# SPDX-License-Identifier: BSD-2-Clause
"""The network between the guests, private to them and without loss.

Best is a bridge with a tap device for each guest in a network namespace that has no
name and ends with its last process. Root may make one; other users where the kernel
lets them have a user namespace. Otherwise a small program carries the packets.
"""

import socket
import subprocess

PREFIX = "10.77.0"
PREFIX6 = "fd77"

WAYS = {"root": ["unshare", "--net"],
        "user": ["unshare", "--user", "--map-root-user", "--net"],
        "switch": []}

SWITCH_COSTS = ("no right to a bridge in a network namespace: packets go through one more program, "
                "which costs latency and processor time; none is lost")


def choose(nodes, wanted):
    """(way, the words that start a process in its namespace, warning or None)."""
    if wanted:
        return wanted, WAYS[wanted], None
    if nodes == 1:
        return "none", [], None
    for way in ("root", "user"):
        if works(WAYS[way]):
            return way, WAYS[way], None
    return "switch", [], SWITCH_COSTS


def works(namespace):
    """A trial of all that the bridge needs, in a namespace of its own."""
    trial = [*namespace, "ip", "-batch", "-"]
    try:
        done = subprocess.run(trial, input=batch(1, 9000), timeout=20, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def batch(nodes, mtu):
    lines = [f"link add br0 mtu {mtu} type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
             "link set br0 addrgenmode none up"]
    for i in range(nodes):
        lines += [f"tuntap add tap{i} mode tap",
                  f"link set tap{i} mtu {mtu} addrgenmode none master br0 up"]
    return "".join(line + "\n" for line in lines).encode()


class Network:
    """Made inside the namespace that choose() named."""

    def __init__(self, way, nodes, mtu, image):
        self.way = way
        self.switch = None
        self.fds = []
        if way in ("root", "user"):
            subprocess.run(["ip", "-batch", "-"], input=batch(nodes, mtu), timeout=20, check=True)
        elif way == "switch":
            self.start_switch(nodes, image)

    def start_switch(self, nodes, image):
        pairs = [socket.socketpair() for _ in range(nodes)]
        ours = [pair[0].fileno() for pair in pairs]
        self.fds = [pair[1] for pair in pairs]
        self.switch = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", str(image.switch), *map(str, ours)],
            pass_fds=ours, stdin=subprocess.DEVNULL)
        for pair in pairs:
            pair[0].close()

    def netdev(self, number):
        """QEMU's words for one guest's network, and the descriptors they name."""
        if self.way == "none":
            return "hubport,hubid=0", []
        if self.way == "switch":
            fd = self.fds[number].fileno()
            return f"socket,fd={fd}", [fd]
        return f"tap,ifname=tap{number},script=no,downscript=no,vhost=off", []

    def started(self):
        """The guests have their descriptors."""
        for fd in self.fds:
            fd.close()

    def stop(self):
        if self.switch:
            self.switch.kill()
            self.switch.wait()

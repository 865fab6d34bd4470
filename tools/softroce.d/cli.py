# SPDX-License-Identifier: BSD-2-Clause
"""The command line of softroce."""

import argparse
import os
import pathlib
import re
import shlex
import signal
import sys
import tempfile

import cluster
import host
import image
import machine
from common import LOST, TIMED_OUT, Error, cache_dir, say
from session import FORWARDED, Session

MAX_NODES = 16
MIN_MEMORY_MB = 96
# The kernel would wait, without end, for those who have the device open.
RXE_REMOVE = """
users=$(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -F/ '/^.proc/ { pid = $3 } /uverbs/ { print pid }')
if [ -n "$users" ]; then
	echo "softroce: rxe0 is open in processes" $users >&2
	exit 1
fi
exec rdma link delete rxe0
"""
GUEST_FAULTS = {"rxe-remove": RXE_REMOVE,
                "rxe-add": "rdma link add rxe0 type rxe netdev eth0"}
HOST_FAULTS = ("kill", "stop", "cont", "link-down", "link-up")
FAULT_DEADLINE_S = 60


class Interrupted(BaseException):
    """A signal asks this process to end."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class TimedOut(BaseException):
    """The deadline of the command has passed."""


def on_signal(number, _frame):
    raise TimedOut if number == signal.SIGALRM else Interrupted(number)


def parser():
    p = argparse.ArgumentParser(prog="softroce", description="RDMA without RDMA hardware: rxe on this "
                                "host, or a cluster of virtual machines that have it.")
    sub = p.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = sub.add_parser("up", help="put rxe on a network interface of this host")
    up.add_argument("netdev", nargs="?")
    sub.add_parser("down", help="remove all rxe devices of this host")
    sub.add_parser("status", help="show rxe devices and running clusters")
    add_vm(sub)
    prepare = sub.add_parser("prepare", help="make the kernel and initrd now, for the cache")
    add_image_options(prepare)
    run = sub.add_parser("exec", help="run a command on a node of a running cluster")
    run.add_argument("--cluster", metavar="NAME", default=os.environ.get("SOFTROCE_CLUSTER"))
    run.add_argument("-n", "--no-stdin", action="store_true", help="give it no standard input")
    run.add_argument("--timeout", type=float, default=600, metavar="S")
    run.add_argument("node")
    run.add_argument("command", nargs=argparse.REMAINDER)
    fault = sub.add_parser("fault", help="break a node: kill, stop, cont, link-down, link-up, "
                           "netem SPEC|off, rxe-remove, rxe-add")
    fault.add_argument("--cluster", metavar="NAME", default=os.environ.get("SOFTROCE_CLUSTER"))
    fault.add_argument("node")
    fault.add_argument("what", choices=[*HOST_FAULTS, *GUEST_FAULTS, "netem"])
    fault.add_argument("spec", nargs=argparse.REMAINDER)
    stop = sub.add_parser("stop", help="end a cluster that --keep left running")
    stop.add_argument("cluster", nargs="?", default=os.environ.get("SOFTROCE_CLUSTER"))
    return p


def add_image_options(p):
    p.add_argument("--cache", metavar="DIR", default=os.environ.get("SOFTROCE_CACHE"),
                   help="where kernel and initrd are kept (~/.cache/softroce)")
    p.add_argument("--kernel", metavar="FILE", help="a kernel other than Debian's")
    p.add_argument("--modules", metavar="DIR", help="its folder in /lib/modules")


def add_vm(sub):
    p = sub.add_parser("vm", help="boot a cluster and run a command on its first node")
    p.add_argument("--nodes", type=int, default=1, metavar="N")
    p.add_argument("--cpus", type=int, metavar="N", help="of each node (2 for one node, else 1)")
    p.add_argument("--memory", default="512M", metavar="M", help="of each node (512M)")
    p.add_argument("--mtu", type=int, default=9000, metavar="N", help="of the network (9000)")
    p.add_argument("--share", action="append", default=[], metavar="DIR",
                   help="a folder in which the nodes may write")
    p.add_argument("--netem", default="", metavar="SPEC", help="of each node: 'loss 1%%'")
    p.add_argument("--keep", action="store_true", help="leave the cluster running")
    p.add_argument("--name", help="of the cluster, for exec, fault and stop")
    p.add_argument("--script", metavar="FILE", help="a shell script to run, '-' for standard input")
    p.add_argument("--timeout", type=float, default=600, metavar="S", help="of the command (600)")
    p.add_argument("--boot-timeout", type=float, default=180, metavar="S")
    p.add_argument("--lifetime", type=float, default=3600, metavar="S", help="of a kept cluster")
    p.add_argument("--network", choices=["root", "user", "switch"],
                   help="bridge made by root or in a user namespace, or a program")
    p.add_argument("-n", "--no-stdin", action="store_true", help="give the command no standard input")
    p.add_argument("-v", "--verbose", action="store_true")
    add_image_options(p)
    p.add_argument("command", nargs=argparse.REMAINDER)


def words(command):
    return command[1:] if command[:1] == ["--"] else command


def command_of(args):
    command = words(args.command)
    if not args.script:
        return command
    if args.script == "-":
        return ["sh", "-s", "-", *command]
    path = pathlib.Path(args.script).resolve()
    if not path.is_file():
        raise Error(f"--script {args.script}: no such file")
    return [str(path), *command] if os.access(path, os.X_OK) else ["sh", str(path), *command]


def check(args, command):
    if not 1 <= args.nodes <= MAX_NODES:
        raise Error(f"--nodes {args.nodes}: 1 to {MAX_NODES}")
    memory = re.fullmatch(r"(\d+)([MG])", args.memory)
    if not memory or int(memory[1]) * (1024 if memory[2] == "G" else 1) < MIN_MEMORY_MB:
        raise Error(f"--memory {args.memory}: a number and M or G, at least {MIN_MEMORY_MB}M")
    if not 1280 <= args.mtu <= 9000:
        raise Error(f"--mtu {args.mtu}: 1280 to 9000")
    if not command and not args.keep:
        raise Error("nothing to do: give a command, --script or --keep")
    for share in args.share:
        cluster.settings_path(share)


def config_of(args, prepared, kvm):
    lifetime = args.lifetime if args.keep else args.timeout + 60
    return {"nodes": args.nodes, "cpus": args.cpus or (2 if args.nodes == 1 else 1),
            "memory": args.memory, "mtu": args.mtu, "netem": args.netem, "kvm": kvm,
            "shares": [cluster.settings_path(share) for share in args.share],
            "image": str(prepared.folder), "network": args.network,
            "boot_timeout": args.boot_timeout, "lifetime": lifetime}


def prepare(args):
    prepared = image.prepare(cache_dir(args.cache), args.kernel, args.modules)
    with tempfile.TemporaryDirectory() as folder:
        machine.kvm_works(prepared, pathlib.Path(folder))
    print(prepared.folder)


def vm(args):
    command = command_of(args)
    check(args, command)
    prepared = image.prepare(cache_dir(args.cache), args.kernel, args.modules)
    guests = cluster.Cluster(args.name or str(os.getpid()))
    keep = False
    try:
        guests.make_folder()
        config = config_of(args, prepared, machine.kvm_works(prepared, guests.folder))
        seconds = guests.start(config)
        if args.verbose:
            say(f"{args.nodes} node(s) ready after {seconds:.1f} s")
        status = 0
        if command:
            signal.setitimer(signal.ITIMER_REAL, args.timeout)
            status = Session(guests.connection, "node0", command, not args.no_stdin).run()
            signal.setitimer(signal.ITIMER_REAL, 0)
        if args.keep:
            guests.detach()
            keep = True
            if not command:
                print(guests.name)
        return status
    except TimedOut:
        say(f"the command did not end within {args.timeout:g} s")
        return TIMED_OUT
    except Error as e:
        raise Error(f"{e}\n{guests.last_words()}".strip()) from None
    finally:
        for number in (*FORWARDED, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        if not keep:
            guests.stop()


def execute(args):
    command = words(args.command)
    if not command:
        raise Error("exec: no command")
    connection, _ = cluster.connect(args.cluster)
    signal.setitimer(signal.ITIMER_REAL, args.timeout)
    session = Session(connection, args.node, command, not args.no_stdin)
    while True:
        try:
            return session.run()
        except Interrupted as e:
            session.signal(e.number)
        except TimedOut:
            say(f"the command did not end within {args.timeout:g} s")
            return TIMED_OUT


def fault(args):
    connection, _ = cluster.connect(args.cluster)
    signal.setitimer(signal.ITIMER_REAL, FAULT_DEADLINE_S)
    try:
        if args.what in HOST_FAULTS:
            connection.control(op="fault", node=args.node, what=args.what)
            return 0
        command = GUEST_FAULTS.get(args.what)
        if args.what == "netem":
            spec = " ".join(map(shlex.quote, shlex.split(" ".join(args.spec))))
            if not spec:
                raise Error("netem: a SPEC as for tc, such as 'loss 1%', or off")
            command = f"tc qdisc replace dev eth0 root netem {spec}"
            if spec == "off":
                command = "tc qdisc delete dev eth0 root 2>/dev/null; true"
        return Session(connection, args.node, ["sh", "-c", command], False).run()
    except TimedOut:
        raise Error(f"no answer within {FAULT_DEADLINE_S} s") from None


def dispatch(args):
    if args.verb == "up":
        host.up(args.netdev)
    elif args.verb == "down":
        host.down()
    elif args.verb == "status":
        host.status()
    elif args.verb == "stop":
        cluster.stop(args.cluster)
    elif args.verb == "prepare":
        prepare(args)
    else:
        return {"vm": vm, "exec": execute, "fault": fault}[args.verb](args)
    return 0


def main():
    args = parser().parse_args()
    for number in (*FORWARDED, signal.SIGALRM):
        if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:
            signal.signal(number, on_signal)
    try:
        return dispatch(args)
    except Error as e:
        say(str(e))
        return LOST
    except BrokenPipeError:
        sys.stderr.close()
        return 128 + signal.SIGPIPE
    except Interrupted as e:
        signal.signal(e.number, signal.SIG_DFL)
        os.kill(os.getpid(), e.number)
        return 128 + e.number

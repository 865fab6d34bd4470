# SPDX-License-Identifier: BSD-2-Clause
"""Soft-RoCE on this host itself: up, down, status."""

import json
import os
import pathlib
import subprocess

import cluster
from common import Error, need

DEADLINE_S = 30
DEVICES = pathlib.Path("/sys/class/infiniband")


def run(*argv):
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        raise Error(f"{' '.join(argv)}: no end after {DEADLINE_S} s") from None
    if done.returncode:
        raise Error(f"{' '.join(argv)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def links():
    """{device: link} of the rxe devices, as rdma(8) tells them."""
    found = json.loads(run("rdma", "-j", "link", "show") or "[]") if DEVICES.exists() else []
    return {link["ifname"]: link for link in found if link["ifname"].startswith("rxe")}


def default_netdev():
    """Where the default route goes, else the first interface that is up and not loopback."""
    routes = json.loads(run("ip", "-j", "route", "show", "default") or "[]")
    if routes:
        return routes[0]["dev"]
    for link in json.loads(run("ip", "-j", "link", "show", "up")):
        if "LOOPBACK" not in link["flags"]:
            return link["ifname"]
    raise Error("no network interface is up: name one, 'softroce up NETDEV'")


def load_module():
    if pathlib.Path("/sys/module/rdma_rxe").exists():
        return
    try:
        run("modprobe", "rdma_rxe")
    except (Error, OSError):
        raise Error(f"the kernel {os.uname().release} has no module rdma_rxe; "
                    "'softroce vm' brings a kernel that has") from None


def up(netdev):
    need("rdma", "ip", "modprobe")
    if os.geteuid():
        raise Error("up needs root; 'softroce vm' does not")
    load_module()
    netdev = netdev or default_netdev()
    present = links()
    for name, link in present.items():
        if link.get("netdev") == netdev:
            print(f"{name} is on {netdev} already")
            return
    name = next(f"rxe{i}" for i in range(len(present) + 1) if f"rxe{i}" not in present)
    run("rdma", "link", "add", name, "type", "rxe", "netdev", netdev)
    print(f"{name} on {netdev}")


def down():
    need("rdma")
    present = links()
    if present and os.geteuid():
        raise Error("down needs root")
    for name in present:
        run("rdma", "link", "delete", name)
        print(f"{name} removed")


def status():
    need("rdma")
    supported = pathlib.Path("/sys/module/rdma_rxe").exists()
    print(f"rdma_rxe: {'loaded' if supported else 'not loaded'}")
    for name, link in links().items():
        print(f"{name}: {link.get('state', '?')} on {link.get('netdev', '?')}")
        for gid in sorted((DEVICES / name / "ports/1/gids").glob("?")):
            if gid.read_text().strip("0:\n"):
                print(f"  GID {gid.name}: {gid.read_text().strip()}")
    for folder in cluster.running():
        name = cluster.name_of(folder)
        try:
            answer = cluster.connect(name)[0].control(op="status")
        except Error:
            print(f"cluster {name}: starting or ending")
            continue
        nodes = " ".join(f"{node}={state}" for node, state in answer["nodes"].items())
        print(f"cluster {name}: {nodes}, ends in {answer['seconds_left']} s")

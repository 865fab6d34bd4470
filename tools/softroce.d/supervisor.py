# SPDX-License-Identifier: BSD-2-Clause
"""The process that owns a cluster: its machines, its network, its folder.

It lives in the network namespace of the cluster and carries frames between three
kinds of endpoints: the agents of the guests, clients on the host that connect to
the socket 'control', and the 'leash', the connection of the process that started
it. When the leash breaks and nobody said 'detach', when a deadline passes or when
a client says so, everything ends: machines, network, folder.
"""

import json
import os
import pathlib
import selectors
import shutil
import signal
import socket
import sys
import time

import wire
from common import Error
from image import Image
from machine import Machine
from network import PREFIX, Network

HOST_FAULTS = {"stop": ("stop", {}), "cont": ("cont", {}),
               "link-down": ("set_link", {"name": "net0", "up": False}),
               "link-up": ("set_link", {"name": "net0", "up": True})}


LAST_WORDS_S = 2
LOOK_EACH_S = 1


class Endpoint:
    """Something that frames come from and go to, through a socket."""

    def __init__(self, sock, machine=None):
        sock.setblocking(False)
        self.sock = sock
        self.machine = machine
        self.splitter = wire.Splitter()
        self.out = bytearray()
        self.sessions = {}      # number here: (endpoint, number there)
        self.next_session = 1

    def put(self, frame):
        self.out += frame


class Pinger:
    """A client inside the supervisor that waits until a guest reaches all others."""

    def __init__(self):
        self.sessions = {}
        self.status = None

    def put(self, frame):
        for kind, _, payload in wire.Splitter().feed(frame):
            if kind == wire.EXIT:
                self.status = wire.u32(payload)
            elif kind == wire.FAIL:
                self.status = -1


def ping_request(machine, nodes):
    others = [f"{PREFIX}.{i + 1}" for i in range(nodes) if i != machine.number]
    script = "for a; do until busybox ping -c 1 -W 1 $a; do :; done; done >/dev/null 2>&1"
    return wire.request(machine.name, "/", ["sh", "-c", script, "sh", *others], {})


class Supervisor:
    def __init__(self, config, leash):
        self.config = config
        self.folder = pathlib.Path(config["folder"])
        self.selector = selectors.DefaultSelector()
        self.started = time.monotonic()
        self.ends = self.started + config["boot_timeout"]
        self.machines = [Machine(i, self.folder) for i in range(config["nodes"])]
        self.agents = {}
        self.endpoints = set()
        self.pingers = []
        self.network = None
        self.ready = False
        self.over = False
        self.listener = socket.socket(socket.AF_UNIX)
        self.leash = self.add(Endpoint(leash))

    def add(self, endpoint):
        self.endpoints.add(endpoint)
        self.selector.register(endpoint.sock, selectors.EVENT_READ, endpoint)
        return endpoint

    def boot(self, image):
        self.listener.bind(str(self.folder / "control"))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.network = Network(self.config["network"], len(self.machines), self.config["mtu"], image)
        for machine in self.machines:
            machine.start(image, self.config, *self.network.netdev(machine.number))
            self.agents[machine.name] = self.add(Endpoint(machine.agent, machine))
        self.network.started()

    def run(self):
        while not self.over:
            self.check_time()
            for endpoint in self.endpoints:
                write = selectors.EVENT_WRITE if endpoint.out else 0
                self.selector.modify(endpoint.sock, selectors.EVENT_READ | write, endpoint)
            for key, events in self.selector.select(min(self.seconds_left(), LOOK_EACH_S)):
                if key.data is None:
                    self.add(Endpoint(self.listener.accept()[0]))
                elif key.data in self.endpoints:
                    self.serve(key.data, events)

    def seconds_left(self):
        return max(0, self.ends - time.monotonic())

    def check_time(self):
        if not self.ready and all(m.ready for m in self.machines):
            self.check_pings()
        if not self.folder.exists():
            self.over = True  # nobody could reach this cluster to stop it
        if time.monotonic() < self.ends:
            return
        if self.ready:
            self.over = True
        else:
            late = [m for m in self.machines if not m.ready] or self.machines[:1]
            self.fail_boot(f"not ready after {self.config['boot_timeout']} s", late[0])

    def check_pings(self):
        if not self.pingers:
            for machine in self.machines:
                self.pingers.append(Pinger())
                self.open(self.pingers[-1], 1, ping_request(machine, len(self.machines)))
        if all(p.status == 0 for p in self.pingers):
            self.ready = True
            now = time.monotonic()
            self.ends = now + self.config["lifetime"]
            self.tell({"ready": True, "seconds": now - self.started})

    def tell(self, news):
        self.leash.put(wire.frame_json(wire.REPLY, 0, news))

    def fail_boot(self, what, machine):
        self.tell({"failed": f"{what}\n{machine.failure()}"})
        self.leash.sock.setblocking(True)
        self.leash.sock.settimeout(5)
        self.leash.sock.sendall(self.leash.out)
        self.over = True

    def serve(self, endpoint, events):
        try:
            if events & selectors.EVENT_WRITE and endpoint.out:
                del endpoint.out[:endpoint.sock.send(endpoint.out)]
            if events & selectors.EVENT_READ:
                data = endpoint.sock.recv(65536)
                if not data:
                    self.lost(endpoint)
                    return
                for frame in endpoint.splitter.feed(data):
                    self.take(endpoint, *frame)
        except BlockingIOError:
            pass
        except (OSError, wire.OutOfStep):
            self.lost(endpoint)

    def lost(self, endpoint):
        self.selector.unregister(endpoint.sock)
        self.endpoints.discard(endpoint)
        endpoint.sock.close()
        text = ""
        if endpoint.machine:
            text = self.lost_machine(endpoint.machine)
        for session in list(endpoint.sessions):
            other, number = endpoint.sessions[session]
            if other is not endpoint:
                other.put(wire.frame(wire.FAIL, number, text.encode()) if endpoint.machine
                          else wire.frame(wire.CLOSE, number))
            self.unlink(endpoint, session)
        if endpoint is self.leash:
            self.over = True

    def lost_machine(self, machine):
        """The words for those who had to do with a machine that ended."""
        machine.kill(LAST_WORDS_S)
        if not self.ready:
            self.fail_boot("a machine ended while it booted", machine)
            return "the cluster did not boot"
        text = machine.failure() if machine.ready else f"{machine.name} was killed"
        machine.ready = False
        return text

    def unlink(self, endpoint, session):
        other, number = endpoint.sessions.pop(session, (None, None))
        if other:
            other.sessions.pop(number, None)

    def take(self, endpoint, kind, session, payload):
        if kind == wire.HELLO and endpoint.machine:
            endpoint.machine.ready = True
        elif kind == wire.OPEN:
            self.open(endpoint, session, payload)
        elif kind == wire.CONTROL and not endpoint.machine:
            self.control(endpoint, json.loads(payload))
        elif session in endpoint.sessions:
            other, number = endpoint.sessions[session]
            other.put(wire.frame(kind, number, payload))
            if kind in (wire.EXIT, wire.FAIL, wire.CLOSE):
                self.unlink(endpoint, session)

    def open(self, endpoint, session, payload):
        name = payload.split(b"\0")[0].decode(errors="replace").split("@")[-1]
        agent = self.agents.get(name)
        if not agent or not agent.machine.ready:
            text = f"{name} is down" if agent else f"no node {name} in this cluster"
            endpoint.put(wire.frame(wire.FAIL, session, text.encode()))
            return
        number = agent.next_session
        agent.next_session = number % 0x7FFFFFFF + 1
        endpoint.sessions[session] = (agent, number)
        agent.sessions[number] = (endpoint, session)
        agent.put(wire.frame(wire.OPEN, number, payload))

    def control(self, endpoint, request):
        reply = {"ok": True}
        try:
            if request["op"] == "stop":
                self.over = True
            elif request["op"] == "detach":
                self.leash = None
            elif request["op"] == "status":
                reply["nodes"] = {m.name: "up" if m.ready else "down" for m in self.machines}
                reply["seconds_left"] = int(self.ends - time.monotonic())
            elif request["op"] == "fault":
                self.fault(request["node"], request["what"])
        except (Error, OSError) as e:
            reply = {"error": str(e)}
        endpoint.put(wire.frame_json(wire.REPLY, 0, reply))

    def fault(self, name, what):
        agent = self.agents.get(name)
        if not agent or not agent.machine.ready:
            raise Error(f"{name} is down" if agent else f"no node {name} in this cluster")
        if what == "kill":
            agent.machine.ready = False
            agent.machine.kill()
        else:
            command, arguments = HOST_FAULTS[what]
            agent.machine.ask(command, **arguments)

    def stop(self):
        for machine in self.machines:
            machine.kill()
        if self.network:
            self.network.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def leave(_signal, _frame):
    raise SystemExit(0)


def main(folder, leash_fd):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    supervisor = Supervisor(config, socket.socket(fileno=leash_fd))
    try:
        supervisor.boot(Image(pathlib.Path(config["image"])))
        supervisor.run()
    finally:
        supervisor.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

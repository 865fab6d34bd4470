# SPDX-License-Identifier: BSD-2-Clause
"""One command on a node, from the side of who asked for it."""

import os
import select
import signal
import sys

import wire
from common import LOST, Error, say

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HOST_ONLY = ("XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "SSH_CONNECTION", "DISPLAY", "HOSTNAME",
             "DBUS_SESSION_BUS_ADDRESS", "SOFTROCE_HOSTS", "SOFTROCE_NODE", "SOFTROCE_CWD")


def environment():
    """What of this process's environment makes sense in a guest."""
    env = {k: v for k, v in os.environ.items() if k not in HOST_ONLY}
    env["PATH"] = env.get("PATH", "") + ":/usr/sbin:/sbin"
    return env


class Connection:
    """Frames to and from a supervisor over a socket that blocks."""

    def __init__(self, sock):
        self.sock = sock
        self.splitter = wire.Splitter()
        self.frames = []

    def send(self, frame):
        try:
            self.sock.sendall(frame)
        except OSError:
            raise Error("the cluster ended") from None

    def receive(self):
        """The next frames; an error when the supervisor is gone."""
        while True:
            if self.frames:
                frames, self.frames = self.frames, []
                return frames
            try:
                data = self.sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                raise Error("the cluster ended")
            self.frames += self.splitter.feed(data)

    def reply(self):
        """The next answer or news of the supervisor."""
        while True:
            frames = self.receive()
            for i, (kind, _, payload) in enumerate(frames):
                if kind == wire.REPLY:
                    self.frames = frames[i + 1:]
                    return wire.json.loads(payload)

    def control(self, **request):
        self.send(wire.frame_json(wire.CONTROL, 0, request))
        answer = self.reply()
        if "error" in answer:
            raise Error(answer["error"])
        return answer


def write_all(fd, data):
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view):]
        except BlockingIOError:
            select.select([], [fd], [])


class Session:
    def __init__(self, connection, node, argv, use_stdin=True, quiet=False):
        self.connection = connection
        self.may_send = wire.WINDOW
        self.input_open = use_stdin and sys.stdin is not None
        self.quiet = quiet
        self.output = b""
        connection.send(wire.frame(wire.OPEN, 1, wire.request(node, os.getcwd(), argv, environment())))
        if not self.input_open:
            connection.send(wire.frame(wire.STDIN, 1))

    def signal(self, number):
        self.connection.send(wire.frame_u32(wire.SIGNAL, 1, number))

    def run(self):
        """The command's exit status."""
        sock = self.connection.sock
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        watched = False
        while True:
            wanted = self.input_open and self.may_send > 0
            if wanted != watched:
                if wanted:
                    poll.register(0, select.POLLIN)
                else:
                    poll.unregister(0)
                watched = wanted
            for fd, _ in poll.poll():
                if fd == 0:
                    self.read_input()
                    continue
                for kind, _, payload in self.connection.receive():
                    status = self.take(kind, payload)
                    if status is not None:
                        return status

    def read_input(self):
        try:
            data = os.read(0, min(self.may_send, wire.MAX_DATA))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.may_send -= len(data)
        self.input_open = bool(data)
        self.connection.send(wire.frame(wire.STDIN, 1, data))

    def take(self, kind, payload):
        if kind in (wire.STDOUT, wire.STDERR):
            if self.quiet:
                self.output += payload
            else:
                write_all(1 if kind == wire.STDOUT else 2, payload)
            self.connection.send(wire.frame_u32(wire.CREDIT, 1, len(payload)))
        elif kind == wire.CREDIT:
            self.may_send += wire.u32(payload)
        elif kind == wire.EXIT:
            return wire.u32(payload)
        elif kind == wire.FAIL:
            say(payload.decode(errors="replace"))
            return LOST
        return None

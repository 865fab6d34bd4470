# SPDX-License-Identifier: BSD-2-Clause
"""Frames between clients, the supervisor and the guests' agents.

guest/frame.h describes them; the numbers here are the same.
"""

import json
import struct

HELLO, OPEN, STDIN, STDOUT, STDERR, CREDIT, SIGNAL, CLOSE, EXIT, FAIL, CONTROL, REPLY = range(1, 13)

HEADER = struct.Struct("<III")
U32 = struct.Struct("<I")
WINDOW = 256 * 1024
MAX_DATA = 32 * 1024
MAX_FRAME = 1024 * 1024


class OutOfStep(Exception):
    """The other side does not speak this protocol."""


def frame(kind, session, payload=b""):
    return HEADER.pack(len(payload), session, kind) + payload


def frame_u32(kind, session, value):
    return frame(kind, session, U32.pack(value))


def frame_json(kind, session, value):
    return frame(kind, session, json.dumps(value).encode())


def u32(payload):
    return U32.unpack(payload)[0]


def request(node, cwd, argv, env):
    """The payload of an OPEN."""
    words = [node, cwd, "argv", str(len(argv)), *argv]
    words += [f"{key}={value}" for key, value in env.items()]
    return b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)


class Splitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self):
        self.data = bytearray()

    def feed(self, data):
        """Yields (type, session, payload) of each frame that is whole."""
        self.data += data
        at = 0
        while len(self.data) - at >= HEADER.size:
            length, session, kind = HEADER.unpack_from(self.data, at)
            if length > MAX_FRAME:
                raise OutOfStep(f"frame of {length} bytes")
            end = at + HEADER.size + length
            if len(self.data) < end:
                break
            yield kind, session, bytes(self.data[at + HEADER.size:end])
            at = end
        del self.data[:at]

# SPDX-License-Identifier: BSD-2-Clause
"""Starting, finding and ending clusters."""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import network
import wire
from common import HERE, Error, runtime_dir, say
from session import Connection

STOP_DEADLINE_S = 15
JUST_MADE_S = 2


def prefix():
    return f"softroce-{os.getuid()}-"


def try_lock(lock):
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def held(folder):
    """Whether a process owns the cluster of this folder, or is about to."""
    if time.time() - folder.stat().st_mtime < JUST_MADE_S:
        return True
    try:
        with open(folder / "lock", "rb") as lock:
            return not try_lock(lock)
    except FileNotFoundError:
        return False


def running():
    """Folders of the user's clusters; what killed ones left behind is removed."""
    found = []
    for folder in sorted(runtime_dir().glob(prefix() + "*")):
        with contextlib.suppress(FileNotFoundError):  # it may end meanwhile
            if folder.lstat().st_uid != os.getuid() or not folder.is_dir():
                continue
            if held(folder):
                found.append(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
    return found


def name_of(folder):
    return folder.name.removeprefix(prefix())


def connect(name):
    """A connection to the named cluster, or to the only one."""
    folders = [f for f in running() if not name or name_of(f) == name]
    if not folders:
        raise Error(f"no cluster {name or ''} runs here; 'softroce vm --keep' starts one")
    if len(folders) > 1:
        names = " ".join(name_of(f) for f in folders)
        raise Error(f"several clusters run here, choose by --cluster: {names}")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(folders[0] / "control"))
    except OSError:
        raise Error(f"cluster {name_of(folders[0])} is starting or ending") from None
    return Connection(sock), folders[0]


def stop(name):
    """Returns when the supervisor, the last process of a cluster, has ended."""
    connection, folder = connect(name)
    with open(folder / "lock", "rb") as lock:  # which ends with it
        connection.send(wire.frame_json(wire.CONTROL, 0, {"op": "stop"}))
        end = time.monotonic() + STOP_DEADLINE_S
        while not try_lock(lock):
            if time.monotonic() > end:
                raise Error(f"the cluster did not end within {STOP_DEADLINE_S} s: {folder}")
            time.sleep(0.02)


class Cluster:
    """A cluster that this process starts; it ends with this process unless detached."""

    def __init__(self, name):
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,30}", name):
            raise Error(f"cluster name {name!r}: letters, digits, '.', '_', '-', at most 30")
        self.name = name
        self.folder = runtime_dir() / (prefix() + name)
        self.process = None
        self.connection = None
        self.lock = None
        self.log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with

    def last_words(self):
        """What the supervisor said when it went wrong."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def make_folder(self):
        running()
        try:
            self.folder.mkdir(mode=0o700)
        except FileExistsError:
            raise Error(f"a cluster {self.name} runs already: 'softroce stop {self.name}'") from None
        self.lock = open(self.folder / "lock", "wb")  # pylint: disable=consider-using-with
        fcntl.flock(self.lock, fcntl.LOCK_EX)  # the supervisor inherits it

    def write_settings(self, config):
        nodes = range(config["nodes"])
        settings = {"MTU": config["mtu"], "NETEM": config["netem"], "CWD": os.getcwd(),
                    "PREFIX": network.PREFIX, "PREFIX6": network.PREFIX6,
                    "NSHARES": len(config["shares"])}
        settings |= {f"SHARE{i}": share for i, share in enumerate(config["shares"])}
        names = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        names += [f"{network.PREFIX}.{i + 1} node{i}" for i in nodes]
        names += [f"{network.PREFIX6}::{i + 1} node{i}-v6" for i in nodes]
        for name, lines in (("guest", [f"{k}={shlex.quote(str(v))}" for k, v in settings.items()]),
                            ("hosts", [f"node{i}" for i in nodes]), ("etc_hosts", names),
                            ("config.json", [json.dumps(config)])):
            (self.folder / name).write_text("".join(line + "\n" for line in lines))

    def start(self, config):
        """Returns when all nodes are ready; gives the seconds that took."""
        way, namespace, warning = network.choose(config["nodes"], config["network"])
        if warning:
            say(warning)
        config = {**config, "network": way, "folder": str(self.folder)}
        self.write_settings(config)
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*namespace, sys.executable, "-B", str(HERE / "supervisor.py"), str(self.folder),
                 str(theirs.fileno())],
                pass_fds=[theirs.fileno(), self.lock.fileno()], stdin=subprocess.DEVNULL,
                stdout=self.log, stderr=self.log, start_new_session=True)
        self.lock.close()
        self.connection = Connection(ours)
        return self.wait_ready()

    def wait_ready(self):
        news = self.connection.reply()
        if "failed" in news:
            raise Error(f"the cluster did not boot: {news['failed']}")
        return news["seconds"]

    def detach(self):
        self.connection.control(op="detach")
        self.process = None

    def stop(self):
        """Ends all of it, whatever state it is in."""
        if self.connection:
            self.connection.sock.close()
        if self.process:
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.lock:  # else the folder is another's
            self.lock.close()
            shutil.rmtree(self.folder, ignore_errors=True)


def settings_path(path):
    """A folder to share, as the guests will see it."""
    folder = pathlib.Path(path).resolve()
    if not folder.is_dir():
        raise Error(f"--share {path}: no such folder")
    return str(folder)

# SPDX-License-Identifier: BSD-2-Clause
"""What every part needs: errors, words to the user, where things are."""

import os
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE.parent / "softroce.packages"

LOST = 255        # no exit status of the command is known, as with ssh
TIMED_OUT = 124   # as with timeout(1)


class Error(Exception):
    """Something the user can read and act on."""


def say(text):
    print(f"softroce: {text}", file=sys.stderr, flush=True)


def packages():
    lines = (line.split("#")[0].strip() for line in PACKAGES.read_text().splitlines())
    return [line for line in lines if line]


def need(*programs):
    """Fails with the one command that helps if a program is missing."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    os.environ["PATH"] = path
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        raise Error(f"not found: {', '.join(missing)}. On Debian:\n"
                    f"    apt-get install --no-install-recommends {' '.join(packages())}")


def runtime_dir():
    """Where clusters keep their state: short and plain, for sockets and kernel command lines."""
    for name in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR")):
        if (name and len(name) < 60 and os.access(name, os.W_OK)
                and all(c.isascii() and (c.isalnum() or c in "/._-") for c in name)):
            return pathlib.Path(name).resolve()
    return pathlib.Path("/tmp")


def cache_dir(given):
    if given:
        return pathlib.Path(given).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "softroce"

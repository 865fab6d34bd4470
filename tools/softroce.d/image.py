# SPDX-License-Identifier: BSD-2-Clause
"""The kernel and initrd of the guests, kept in a cache.

The kernel is Debian's, downloaded and unpacked but not installed, or one that the
user names. What is made carries in its name a hash of all it was made from, so a
new kernel package or a changed guest program makes a new one.
"""

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import time
import zlib

from common import HERE, Error, need, say

META_PACKAGE = "linux-image-amd64"
APT_LISTS = pathlib.Path("/var/lib/apt/lists")
DOWNLOAD_DEADLINE_S = 600
COMPILE_DEADLINE_S = 120
UNUSED_S = 7 * 86400

# In the kernel or as modules; crc32_generic is what rxe asks the crypto layer for by name.
MODULES = ("virtio_pci 9pnet_virtio 9p overlay virtio_net virtio_console crc32c_generic "
           "crc32_generic ib_uverbs rdma_ucm rdma_rxe sch_netem dummy").split()
AGENT_SOURCES = ("agent.c", "command.c", "proxy.c", "ssh.c", "frame.c")


class Image:
    """Files of one cache entry."""

    def __init__(self, folder):
        self.folder = folder
        self.kernel = folder / "vmlinux"
        self.initrd = folder / "initrd"
        self.switch = folder / "switch"
        self.kvm = folder / "kvm.json"


def run(argv, deadline_s, **kwargs):
    try:
        return subprocess.run(argv, timeout=deadline_s, check=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs).stdout
    except subprocess.TimeoutExpired:
        raise Error(f"{argv[0]}: no end after {deadline_s} s") from None
    except subprocess.CalledProcessError as e:
        text = e.stderr.decode(errors="replace").strip()
        raise Error(f"{' '.join(map(str, argv[:3]))}: status {e.returncode}\n{text}") from None


def debian_kernel(cache):
    """(package, version) that the kernel's meta package stands for now.

    Asking apt takes most of a second, so the answer is kept until apt's lists change.
    """
    kept = cache / "package.json"
    lists = APT_LISTS.stat().st_mtime_ns if APT_LISTS.exists() else 0
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads(kept.read_text())
        if known["lists"] == lists:
            return known["package"], known["version"]
    need("apt-cache", "apt-get", "dpkg")
    try:
        text = run(["apt-cache", "show", "--no-all-versions", META_PACKAGE], 60).decode()
        package = re.search(r"^Depends: (linux-image-[^ ,]+)", text, re.M).group(1)
        version = re.search(r"^Version: (\S+)", text, re.M).group(1)
    except (Error, AttributeError):
        with contextlib.suppress(OSError, ValueError, KeyError):
            known = json.loads(kept.read_text())
            return known["package"], known["version"]
        raise Error(f"apt knows no package {META_PACKAGE}: run 'apt-get update' first, or give "
                    "--kernel and --modules") from None
    with contextlib.suppress(OSError):
        kept.write_text(json.dumps({"lists": lists, "package": package, "version": version}))
    return package, version


def source_of(cache, kernel, modules):
    """What the guests' kernel is made from, as a word for the cache's key."""
    if not kernel:
        return "{}={}".format(*debian_kernel(cache))
    for path in (kernel, modules):
        if not path or not os.path.exists(path):
            raise Error(f"--kernel and --modules go together, and {path} does not exist")
    s = os.stat(kernel)
    return f"{os.path.realpath(kernel)} {s.st_size} {s.st_mtime_ns} {os.path.realpath(modules)}"


def key_of(source):
    h = hashlib.sha256(source.encode())
    for path in [pathlib.Path(__file__), pathlib.Path(shutil.which("busybox")),
                 *sorted((HERE / "guest").iterdir())]:
        h.update(path.name.encode() + b"\0" + path.read_bytes())
    return h.hexdigest()[:16]


def prepare(cache, kernel=None, modules=None):
    """The image, made now if the cache has none that fits."""
    need("busybox", "qemu-system-x86_64", "setpriv", "unshare", "ip", "rdma")
    with contextlib.suppress(OSError):  # read-only is good enough where the image is there
        cache.mkdir(parents=True, exist_ok=True)
    source = source_of(cache, kernel, modules)
    folder = cache / f"image-{key_of(source)}"
    if folder.exists():
        with contextlib.suppress(OSError):
            os.utime(folder)
        return Image(folder)
    need("gcc", "depmod")
    if b"/ld-linux" in pathlib.Path(shutil.which("busybox")).read_bytes()[:4096]:
        raise Error("busybox is not static: install the package busybox-static")
    if not os.access(cache, os.W_OK):
        raise Error(f"no image that fits in {cache}, and no right to write there: give --cache")
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            say(f"making kernel and initrd from {source} (once)")
            build(cache, folder, source, kernel, modules)
    return Image(folder)


def build(cache, folder, source, kernel, modules):
    """Called under the cache's lock, so other folders in the making are of killed processes."""
    for old in cache.glob("making-*"):
        shutil.rmtree(old, ignore_errors=True)
    kernel_folder = cache / f"kernel-{hashlib.sha256(f'{source} {MODULES}'.encode()).hexdigest()[:16]}"
    if not kernel_folder.exists():
        with making(cache, kernel_folder) as out:
            make_kernel(out, source, kernel, modules)
    os.utime(kernel_folder)
    with making(cache, folder) as out:
        os.link(kernel_folder / "vmlinux", out / "vmlinux")
        compile_c(("switch.c",), out / "switch")
        agent = compile_c(AGENT_SOURCES, out / "agent", "-static")
        with open(out / "initrd", "wb") as f:
            write_initrd(f, kernel_folder, agent)
        agent.unlink()
    for old in (*cache.glob("image-*"), *cache.glob("kernel-*")):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def making(cache, folder):
    """A folder that gets its name when it is whole."""
    with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as name:
        out = pathlib.Path(name) / "out"
        out.mkdir()
        yield out
        out.rename(folder)


def make_kernel(out, source, kernel, modules):
    """The kernel, the modules that guests load, and their order."""
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        if not kernel:
            kernel, modules = unpack_package(pathlib.Path(work), source)
        (out / "vmlinux").write_bytes(vmlinux(pathlib.Path(kernel).read_bytes()))
        order = []
        for path in modules_in_order(pathlib.Path(modules)):
            order.append(path.name.split(".")[0] + ".ko")
            (out / order[-1]).write_bytes(decompress(path.read_bytes()))
        (out / "order").write_text("".join(name + "\n" for name in order))


def unpack_package(work, source):
    """(kernel, folder of modules) of a Debian package."""
    try:
        run(["apt-get", "download", "-o", "APT::Sandbox::User=root", source],
            DOWNLOAD_DEADLINE_S, cwd=work)
    except Error as e:
        raise Error(f"{e}\nIf apt's lists are old, 'apt-get update' helps") from None
    deb = next(work.glob("linux-image-*.deb"))
    run(["dpkg", "-x", deb, work / "root"], 120)
    deb.unlink()
    kernel = next((work / "root/boot").glob("vmlinuz-*"))
    release = kernel.name.removeprefix("vmlinuz-")
    run(["depmod", "-b", work / "root", release], 120)
    return kernel, work / "root/lib/modules" / release


def vmlinux(image):
    """The ELF kernel inside a bzImage; it boots in half the time under emulation."""
    if image[:4] == b"\x7fELF":
        return image
    if image[0x202:0x206] != b"HdrS":
        raise Error("the kernel is neither a bzImage nor an ELF file")
    setup = (image[0x1F1] or 4) + 1
    offset = int.from_bytes(image[0x248:0x24C], "little") + setup * 512
    length = int.from_bytes(image[0x24C:0x250], "little")
    return decompress(image[offset:offset + length])


def decompress(data):
    """Of a kernel's payload, whose last 4 bytes are a size, or of a module."""
    if data[:6] == b"\xfd7zXZ\0":
        return lzma.LZMADecompressor().decompress(data)
    if data[:2] == b"\x1f\x8b":
        return zlib.decompressobj(31).decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        need("zstd")
        done = subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=60, check=False)
        return done.stdout
    if data[:4] == b"\x7fELF":
        return data
    raise Error("the kernel is packed in a way not known here")


def compile_c(sources, output, *flags):
    run(["gcc", "-std=gnu11", "-O2", "-Wall", "-s", *flags, "-o", output,
         *(HERE / "guest" / name for name in sources)], COMPILE_DEADLINE_S)
    return output


def modules_in_order(folder):
    """Paths of the modules and all they depend on, in the order to load them."""
    depends, by_name = {}, {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, rest = line.split(":")
        depends[path] = rest.split()
        by_name[pathlib.Path(path).name.split(".")[0].replace("-", "_")] = path
    builtin = {pathlib.Path(line).name.split(".")[0].replace("-", "_")
               for line in (folder / "modules.builtin").read_text().splitlines()}
    order = []

    def add(path):
        for other in reversed(depends[path]):
            if other not in order:
                add(other)
        if path not in order:
            order.append(path)

    for name in MODULES:
        if name in by_name:
            add(by_name[name])
        elif name not in builtin:
            raise Error(f"the kernel has no {name}: Debian's {META_PACKAGE} has (not the cloud one)")
    return [folder / path for path in order]


def write_initrd(f, kernel_folder, agent):
    """A cpio archive, not packed: unpacking is slow under emulation."""
    ino = 0

    def add(name, mode, data=b"", rdev=(0, 0)):
        nonlocal ino
        ino += 1
        path = name.encode() + b"\0"
        fields = (ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        f.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    for name in ("bin", "dev", "proc", "sys", "modules"):
        add(name, stat.S_IFDIR | 0o755)
    add("dev/console", stat.S_IFCHR | 0o600, rdev=(5, 1))
    add("dev/null", stat.S_IFCHR | 0o666, rdev=(1, 3))
    add("bin/busybox", stat.S_IFREG | 0o755, pathlib.Path(shutil.which("busybox")).read_bytes())
    add("bin/sh", stat.S_IFLNK | 0o777, b"busybox")
    add("agent", stat.S_IFREG | 0o755, agent.read_bytes())
    add("init", stat.S_IFREG | 0o755, (HERE / "guest/init.sh").read_bytes())
    for path in (kernel_folder / "order", *kernel_folder.glob("*.ko")):
        add(f"modules/{path.name}", stat.S_IFREG | 0o644, path.read_bytes())
    add("TRAILER!!!", 0)

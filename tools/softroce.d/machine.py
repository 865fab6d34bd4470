# SPDX-License-Identifier: BSD-2-Clause
"""One guest: its QEMU, the monitor of that, and what its console says about a failure."""

import contextlib
import json
import os
import re
import socket
import subprocess

QEMU = "qemu-system-x86_64"
MONITOR_DEADLINE_S = 10
CONSOLE_LINES = 15

# With erms or fsrm the guest copies by 'rep movsb', which the emulator runs byte by
# byte: aligned words of 8 bytes would tear under RDMA.
CPU_FLAGS = "-erms,-fsrm"

COMMAND_LINE = ("console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable no_timer_check "
                "random.trust_cpu=on net.ifnames=0 audit=0 cryptomgr.notests 8250.nr_uarts=1")

REASONS = (
    (r"softroce: failed: (.*)", "the guest says: {}"),
    (r"Out of memory|System is deadlocked on memory|Initramfs unpacking failed: write error"
     r"|No space left on device|Cannot allocate memory",
     "too little memory for the guest: raise --memory"),
    (r"Kernel panic - not syncing: (.*)", "the guest's kernel gave up: {}"),
    (r"Could not access KVM kernel module|failed to initialize kvm", "KVM does not work here"),
    (r"cannot set up guest memory|Failed to allocate", "too little memory on the host"),
    (r"could not open.*tun|could not configure /dev/net/tun", "no tap device may be made here"),
    (r"(qemu-system-x86_64: (?!warning).*)", "{}"),
)


def accelerator(kvm):
    if kvm:
        return ["-accel", "kvm", "-cpu", f"host,{CPU_FLAGS}"]
    return ["-accel", "tcg,thread=multi", "-cpu", f"max,{CPU_FLAGS}"]


def base_command(image, kvm, memory, cpus, append):
    return [QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            *accelerator(kvm), "-smp", str(cpus), "-m", memory,
            "-kernel", str(image.kernel), "-initrd", str(image.initrd),
            "-append", f"{COMMAND_LINE} {append}"]


def trial_boot(image, folder, deadline_s=10):
    """Whether a guest boots under KVM: a device node alone does not tell."""
    console = folder / "trial"
    argv = [*base_command(image, True, "256M", 1, "softroce.trial=1"), "-serial", f"file:{console}"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["setpriv", "--pdeathsig", "KILL", *argv], timeout=deadline_s, check=False,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    works = console.exists() and b"softroce: trial boot works" in console.read_bytes()
    console.unlink(missing_ok=True)
    return works


def kvm_works(image, folder):
    """trial_boot(), remembered until the machine or QEMU changes."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    version = subprocess.run([QEMU, "--version"], stdout=subprocess.PIPE, timeout=30,
                             check=False).stdout.decode()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
        here = f"{f.read().strip()} {version.splitlines()[0]}"
    with contextlib.suppress(OSError, ValueError, KeyError):
        kept = json.loads(image.kvm.read_text())
        if kept["here"] == here:
            return kept["works"]
    works = trial_boot(image, folder)
    with contextlib.suppress(OSError):  # a cache may be read-only
        image.kvm.write_text(json.dumps({"here": here, "works": works}))
    return works


def likely_reason(text):
    for pattern, reason in REASONS:
        found = re.search(pattern, text)
        if found:
            return reason.format(*(group.strip() for group in found.groups()))
    if not text.strip():
        return ("its kernel never started: too little memory for it (--memory), or a host too busy "
                "for --boot-timeout")
    return "none of the known ones; if the host is busy, raise --boot-timeout"


class Machine:
    """A guest. `agent` is the host's end of its control channel."""

    def __init__(self, number, folder):
        self.number = number
        self.name = f"node{number}"
        self.folder = folder
        self.console = folder / f"{self.name}.console"
        self.errors = folder / f"{self.name}.qemu"
        self.ready = False
        self.process = None
        self.agent = None
        self.monitor = None
        self.monitor_lines = None
        self.monitor_open = False

    def start(self, image, config, netdev, netdev_fds):
        """netdev: QEMU's words for the network, which may name descriptors in netdev_fds."""
        self.agent, agent = socket.socketpair()
        self.monitor, monitor = socket.socketpair()
        self.monitor.settimeout(MONITOR_DEADLINE_S)
        self.monitor_lines = self.monitor.makefile("rb")
        append = f"softroce.node={self.number} softroce.state={self.folder}"
        argv = base_command(image, config["kvm"], config["memory"], config["cpus"], append)
        argv += ["-serial", f"file:{self.console}",
                 "-chardev", f"socket,id=monitor,fd={monitor.fileno()}",
                 "-mon", "chardev=monitor,mode=control",
                 "-device", "virtio-serial-pci",
                 "-chardev", f"socket,id=agent,fd={agent.fileno()}",
                 "-device", "virtserialport,chardev=agent,name=softroce",
                 *self.files("root", "/", "on")]
        for i, share in enumerate(config["shares"]):
            argv += self.files(f"share{i}", share, "off")
        argv += ["-netdev", f"{netdev},id=net0", "-device",
                 f"virtio-net-pci,netdev=net0,romfile=,mac=52:54:00:77:00:{self.number + 1:02x},"
                 f"host_mtu={config['mtu']}"]
        with open(self.errors, "wb") as errors:
            # The machine must not outlive its supervisor, however that ends.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *argv], stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors,
                pass_fds=[agent.fileno(), monitor.fileno(), *netdev_fds])
        agent.close()
        monitor.close()

    @staticmethod
    def files(tag, path, readonly):
        path = path.replace(",", ",,")
        return ["-fsdev", f"local,id={tag},path={path},security_model=none,readonly={readonly},"
                "multidevs=remap", "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self, grace_s=0):
        """Ends it; grace_s is for one that ends by itself, whose exit status tells why."""
        if not self.process:
            return
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, command, **arguments):
        """One command of QEMU's monitor; raises OSError, also for a refusal."""
        if not self.monitor_open:
            self.exchange({"execute": "qmp_capabilities"})
            self.monitor_open = True
        return self.exchange({"execute": command, "arguments": arguments})

    def exchange(self, request):
        self.monitor.sendall(json.dumps(request).encode() + b"\n")
        while True:
            line = self.monitor_lines.readline()
            if not line:
                raise OSError(f"{self.name}: the monitor is closed")
            answer = json.loads(line)
            if "error" in answer:
                raise OSError(f"{self.name}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def failure(self):
        """The console's last lines and what they mean, for the user."""
        console = self.text(self.console)
        errors = self.text(self.errors)
        lines = [line.rstrip() for line in console.splitlines() if line.strip()]
        panic = next((i for i, line in enumerate(lines) if "Kernel panic" in line), len(lines))
        lines = lines[:panic + 1]  # behind it stand only registers
        status = "is still running" if self.alive() else \
            f"ended with status {self.process.returncode}" if self.process else "never started"
        errors = "".join(f"{line}\n" for line in errors.splitlines() if "warning: hub" not in line)
        out = [f"{self.name}: its QEMU {status}; the console's last lines:"]
        out += ["    | " + line for line in lines[-CONSOLE_LINES:]] or ["    | (nothing)"]
        out += ["    | " + line for line in errors.splitlines()[-5:]]
        if self.ready and not self.alive() and self.process.returncode == 0:
            reason = "something in the guest powered it off or reset it"
        else:
            reason = likely_reason(console + errors)
        out.append("likely reason: " + reason)
        return "\n".join(out)

    @staticmethod
    def text(path):
        try:
            return path.read_bytes()[-65536:].decode(errors="replace").replace("\r", "")
        except OSError:
            return ""

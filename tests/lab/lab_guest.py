# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Virtual machines of a lab: a kernel, an initramfs with busybox and chosen programs, and a line for commands."""
import base64
import contextlib
import gzip
import json
import lzma
import os
import shutil
import socket
import stat
import subprocess
import time

MEMORY_MIB = 384
BOOT_S = 120
# How long after the end of its script's time a guest that does not answer counts as dead.
SILENT_S = 60
KILLED = 128 + 9
# Modules in the order in which the guest loads them; those that the kernel lacks are left out. A folder VIADUCT_LAB_MODULES may have others as NAME.ko:
# Debian's kernels have no iommufd.
MODULES = ("virt/lib/irqbypass", "drivers/iommu/iommufd/iommufd", "drivers/vfio/vfio", "drivers/vfio/vfio_iommu_type1", "drivers/vfio/pci/vfio-pci-core",
           "drivers/vfio/pci/vfio-pci", "drivers/net/tun")
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /sbin /usr/bin /usr/sbin /root /var/log
/bin/busybox --install -s
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs run /run
mkdir /dev/shm; mount -t tmpfs shm /dev/shm
for module in /modules/*; do insmod $module; done
ip link set lo up
# One command a line: number, seconds that it may take, script in base64. The answer: number, exit code, output in base64.
# A script that takes longer is killed with what it has started: the commands behind it would wait for it.
for line in /dev/vport*p*; do exec 3<>$line; done
echo ready >&3
while read -r number seconds script <&3; do
  echo "$script" | base64 -d >/tmp/script
  setsid timeout -s KILL $seconds sh /tmp/script >/tmp/out 2>&1 </dev/null &
  wait $!
  code=$?
  [ $code = 137 ] && kill -9 -$!
  echo "$number $code $(base64 -w0 /tmp/out)" >&3
done
poweroff -f
"""


class Cpio:
    """An archive of the format newc (linux, Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self.parts = []
        self.count = 0
        self.names = set()

    def add(self, name, mode, data=b""):
        self.count += 1
        head = "070701" + "".join("%08x" % field for field in (
            self.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0))
        entry = head.encode() + name.encode() + b"\0"
        self.parts += [entry, b"\0" * (-len(entry) % 4), data, b"\0" * (-len(data) % 4)]

    def add_file(self, source, name=None, mode=0o755):
        name = (name or source).lstrip("/")
        if name in self.names:
            return
        self.add_folders(name)
        self.names.add(name)
        with open(source, "rb") as file:
            self.add(name, stat.S_IFREG | mode, file.read())

    def add_folders(self, name):
        folder = os.path.dirname(name)
        if folder and folder not in self.names:
            self.add_folders(folder)
            self.names.add(folder)
            self.add(folder, stat.S_IFDIR | 0o755)

    def write(self, path):
        self.add("TRAILER!!!", 0)
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(b"".join(self.parts))


def libraries(program):
    """What a program needs, as ldd finds it here."""
    done = subprocess.run(["ldd", program], text=True, capture_output=True, check=False)
    for line in done.stdout.splitlines():
        for word in line.split():
            if word.startswith("/"):
                yield word


def build_image(packages, path, programs, more=()):
    """programs: names of programs on PATH. more: (file, name in the guest)."""
    cpio = Cpio()
    cpio.add_file(packages.busybox, "bin/busybox")
    init = path + ".init"
    with open(init, "w", encoding="utf-8") as file:
        file.write(INIT)
    cpio.add_file(init, "init")
    for i, module in enumerate(MODULES):
        plain = path + ".ko"
        source = os.path.join(packages.modules, "kernel", module + ".ko.xz")
        own = os.path.join(os.environ.get("VIADUCT_LAB_MODULES", ""), os.path.basename(module) + ".ko")
        if not os.path.exists(own) and not os.path.exists(source):
            continue
        with open(own, "rb") if os.path.exists(own) else lzma.open(source) as packed, open(plain, "wb") as file:
            shutil.copyfileobj(packed, file)
        cpio.add_file(plain, "modules/%d-%s.ko" % (i, os.path.basename(module)))
    files = [(shutil.which(name), None) for name in programs] + list(more)
    for source, name in files:
        cpio.add_file(source, name or "usr/bin/" + os.path.basename(source))
        for library in libraries(source):
            cpio.add_file(os.path.realpath(library), library)
    cpio.write(path)


def accelerator():
    """KVM where the processor runs guests, TCG elsewhere: a KVM without either module cannot run a kernel of Debian's."""
    hardware = any(os.path.exists("/sys/module/" + name) for name in ("kvm_intel", "kvm_amd"))
    return os.environ.get("VIADUCT_LAB_ACCEL") or ("kvm" if hardware and os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg")


class Guest:
    """One virtual machine. devices: more options of QEMU. It ends with the process that started it (supervise.py)."""

    def __init__(self, packages, image, folder, name, devices=(), iommu=False, accel=None, shared=False):
        """shared: its memory is a memfd, which the servers of vfio-user devices map."""
        self.name = name
        self.folder = folder
        self.count = 0
        self.line = None
        self.rest = b""
        self.path = os.path.join(folder, name + ".sock")
        self.console = os.path.join(folder, name + ".console")
        accel = accel or accelerator()
        machine = "q35,accel=%s" % accel + (",kernel-irqchip=split" if iommu and accel == "kvm" else "")
        memory = ()
        if shared:
            machine += ",memory-backend=memory"
            memory = ("-object", "memory-backend-memfd,id=memory,size=%dM,share=on,seal=on" % MEMORY_MIB)
        # On busy cores without KVM the timer check fails now and then (the kernel panics), and the TSC may be calibrated wrongly.
        append = "console=ttyS0 quiet panic=-1 no_timer_check tsc=unstable" + (" intel_iommu=on" if iommu else "")
        self.words = [*packages.qemu, "-nodefaults", "-no-user-config", "-machine", machine,
                      "-cpu", "host" if accel == "kvm" else "max", "-smp", "1", "-m", str(MEMORY_MIB), "-display", "none",
                      "-serial", "file:" + self.console, "-no-reboot", "-kernel", packages.kernel, "-initrd", image, "-append", append, *memory,
                      *(("-device", "intel-iommu,intremap=on,caching-mode=on") if iommu else ()),
                      "-device", "virtio-serial-pci,id=serial", "-chardev", "socket,id=line,path=%s,server=on,wait=off" % self.path,
                      "-device", "virtserialport,chardev=line,name=lab", "-qmp",
                      "unix:%s.qmp,server=on,wait=off" % self.path, *devices]
        self.process = None

    def boot(self):
        with open(os.path.join(self.folder, self.name + ".qemu"), "ab") as log:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def wait_booted(self, seconds=BOOT_S):
        deadline = time.monotonic() + seconds
        while True:
            self.check_alive()
            try:
                self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.line.connect(self.path)
                break
            except OSError:
                self.line.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        if self.read_line(deadline) != "ready":
            raise RuntimeError("%s: no agent" % self.name)

    def check_alive(self):
        if self.process.poll() is not None:
            raise RuntimeError("%s: QEMU ended with %d: %s" % (self.name, self.process.returncode, self.tail()))

    def tail(self):
        text = ""
        for path in (os.path.join(self.folder, self.name + ".qemu"), self.console):
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    text += file.read()[-2000:]
        return text

    def read_line(self, deadline):
        while b"\n" not in self.rest:
            self.line.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                piece = self.line.recv(65536)
            except TimeoutError:
                raise RuntimeError("%s: no answer: %s" % (self.name, self.tail())) from None
            except ConnectionResetError:
                piece = b""
            if not piece:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(5)
                raise RuntimeError("%s: QEMU has exited (%s): %s" % (self.name, self.process.returncode, self.tail()))
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def run(self, script, seconds=60, check=True):
        """Runs a script of sh in the guest, which kills it after `seconds`. Returns its output (with check) or (exit code, output)."""
        self.count += 1
        deadline = time.monotonic() + seconds + SILENT_S
        self.line.settimeout(SILENT_S)
        self.line.sendall(b"%d %d %s\n" % (self.count, seconds, base64.b64encode(script.encode())))
        while True:
            words = self.read_line(deadline).split(" ")
            if words[0] == str(self.count):
                break
        code, out = int(words[1]), base64.b64decode(words[2]).decode(errors="replace")
        if check and code != 0:
            raise RuntimeError("%s: '%s' ended with %d%s: %s" % (self.name, script, code, ", killed after %d s" % seconds if code == KILLED else "", out))
        return out if check else (code, out)

    def write(self, path, text):
        self.run("mkdir -p %s; echo %s | base64 -d >%s" % (os.path.dirname(path), base64.b64encode(text.encode()).decode(), path))

    def monitor(self, command, **arguments):
        """A command of QEMU's monitor protocol; returns the answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as monitor:
            monitor.settimeout(20)
            monitor.connect(self.path + ".qmp")
            lines = monitor.makefile("rw", encoding="utf-8")
            lines.readline()
            for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
                while "event" in answer:
                    answer = json.loads(lines.readline())
            if "error" in answer:
                raise RuntimeError("%s: %s: %s" % (self.name, command, answer["error"]["desc"]))
            return answer["return"]

    def kill(self):
        if self.line is not None:
            self.line.close()
            self.line = None
            self.rest = b""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def ivshmem(server, index, name="iv"):
    """Options for a device on the server's socket: PCI function 0000:00:INDEX.0."""
    return ("-chardev", "socket,id=%s%d,path=%s" % (name, index, server),
            "-device", "ivshmem-doorbell,id=dev%s%d,chardev=%s%d,vectors=16,addr=%#x" % (name, index, name, index, index))


def vfio_user(server, index):
    """Options for the device that a vfio-user server shows: function 0 of the bus behind root port INDEX, which is bus INDEX + 1."""
    device = {"driver": "vfio-user-pci", "id": "nt%d" % index, "bus": "rp%d" % index, "socket": {"path": server, "type": "unix"}}
    return ("-device", "pcie-root-port,id=rp%d,chassis=%d,slot=%d,addr=%#x" % (index, index + 1, index + 1, 0x10 + index),
            "-device", json.dumps(device))

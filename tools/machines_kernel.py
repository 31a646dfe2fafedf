# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""System calls that machines need and Python lacks, and checks of the kernel features that machines need."""
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

CLONE_NEWTIME = 0x00000080
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_PRIVATE = 1 << 18

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

# Each program with its Debian package.
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux"}

libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """The text names the object, the attempt and the cause."""


def check(result, attempt):
    if result != 0:
        raise Failure("%s: %s" % (attempt, os.strerror(ctypes.get_errno())))


def unshare(flags, attempt):
    check(libc.unshare(ctypes.c_int(flags)), attempt)


def mount(source, target, kind="none", flags=0, data=""):
    check(libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()),
          "mount %s at %s" % (kind if kind != "none" else source, target))


def bind(source, target):
    mount(source, target, flags=MS_BIND | MS_REC)


def die_with_parent(parent):
    """Requests SIGKILL for the end of the parent (the thread that forked). Returns its pid, because it may have ended before."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os._exit(1)


def set_name(name):
    libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def ip_batch(lines):
    """Runs ip(8) over the lines, in the network namespace of the caller."""
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True,
                          check=False, timeout=60)
    if done.returncode != 0:
        raise Failure("ip: %s" % "; ".join((done.stderr or "failed").strip().splitlines()))


def works(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                          check=False, timeout=60).returncode == 0


def _probe():
    """Tries the features that machines need. Runs in a child, whose namespaces end with it."""
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID, "make namespaces")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("probe", "/run", "tmpfs")
    for folder in ("up", "work", "all"):
        os.mkdir("/run/" + folder)
    mount("probe", "/run/all", "overlay", data="lowerdir=/etc,upperdir=/run/up,workdir=/run/work")
    ip_batch(["link add br0 type bridge", "link add p1 type veth peer name q1", "link set p1 master br0"])


def missing():
    """A sentence that says what this computer lacks for machines; None if nothing is missing."""
    if sys.platform != "linux":
        return "machines are made of Linux namespaces"
    if os.geteuid() != 0:
        return "only root can make machines (network, mount and pid namespaces)"
    for program, package in PROGRAMS.items():
        if not shutil.which(program):
            return "no program %s in $PATH (Debian: %s)" % (program, package)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            _probe()
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            text = str(failure)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(pid, 0)
    return text or None


def wait_pidfd(fd, seconds):
    """Waits for the end of a process; True if it ended within the time."""
    return bool(select.select([fd], [], [], seconds)[0])

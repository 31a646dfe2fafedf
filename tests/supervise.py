# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""All processes that a test started end with it, even if the test is killed, or its children have become daemons.

    supervise.py COMMAND...     runs a program under a supervisor
    supervise.begin()           the same for the Python program that calls it, before it starts a thread
    supervise.own_namespace_names()   names of network namespaces end with the processes, too

The caller continues in a grandchild of itself. The supervisor, the process between caller and grandchild, adopts each
process that loses its parent (prctl(2), PR_SET_CHILD_SUBREAPER), so it knows all of them; it is in a session of its
own, so a signal to the group spares it. When the test has ended, or the first process has, it ends the remaining
processes: by SIGTERM first, so that daemons clean up.
"""
import contextlib
import ctypes
import os
import resource
import signal
import sys
import time

CLONE_NEWNS = 0x20000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
NAMESPACES = "/run/netns"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Seconds in which daemons may end by themselves after one SIGTERM.
PATIENCE_S = 3
# Set in the environment of a supervised process: one supervisor is enough.
MARK = "VIADUCT_SUPERVISED"


def prctl(option, value):
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def own_namespace_names():
    """From now on names that ip-netns(8) and `viaduct up --netns` make are mounts of this process and its children only, and
    vanish with the last of them, even if that is killed. To be called before threads start."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        return  # where mount namespaces are forbidden, network namespaces are, too
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None) != 0:
        raise OSError(ctypes.get_errno(), "make mounts private")
    os.makedirs(NAMESPACES, exist_ok=True)
    if libc.mount(b"viaduct-test", NAMESPACES.encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=755") != 0:
        raise OSError(ctypes.get_errno(), "mount a tmpfs on " + NAMESPACES)


def parents():
    """{pid: its parent} of all processes, zombies left out."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    found[int(name)] = int(parent)
    return found


def descendants():
    parent_of = parents()
    mine = {os.getpid()}
    while True:
        more = {pid for pid, parent in parent_of.items() if parent in mine} - mine
        if not more:
            return mine - {os.getpid()}
        mine |= more


def send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(wanted=None):
    """Reaps all ended children. Returns the exit code of the child `wanted` if it is one of them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == wanted:
                code = os.waitstatus_to_exitcode(status)
    return code


def end_descendants():
    asked = set()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        reap()
        left = descendants()
        if not left:
            return
        late = time.monotonic() > deadline
        send(left if late else left - asked, signal.SIGKILL if late else signal.SIGTERM)
        asked |= left
        time.sleep(0.02)


def watch(test):
    """Waits until the child `test` has ended, or for SIGTERM, and ends all its descendants. Returns the exit code."""
    wanted = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    code = reap(test)
    while code is None:
        code = reap(test) if signal.sigwait(wanted) == signal.SIGCHLD else 128 + signal.SIGTERM
    end_descendants()
    return code


def exit_as(code):
    """Exits with the code of a child; if it is negative, by the signal -code that ended the child."""
    sys.stdout.flush()
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child's is enough
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code & 0xff)


def become_watcher(first):
    """Returns in the test; the supervisor never returns."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != first:
        os._exit(1)
    test = os.fork()
    if test == 0:
        return
    os.setsid()
    exit_as(watch(test))


def become_first(watcher):
    def pass_on(number, _frame):
        send([watcher], number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _, status = os.waitpid(watcher, 0)
    exit_as(os.waitstatus_to_exitcode(status))


def begin():
    """The rest of the program is a test, supervised."""
    if MARK in os.environ:
        return
    os.environ[MARK] = "1"
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # is for the test
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    first = os.getpid()
    watcher = os.fork()
    if watcher != 0:
        become_first(watcher)
    become_watcher(first)
    signal.signal(signal.SIGINT, interrupt)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: supervise.py COMMAND...")
    begin()
    os.execvp(sys.argv[1], sys.argv[1:])

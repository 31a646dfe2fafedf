# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Machines on one computer, for tests and tools.

    with machines_lab.Lab(2) as lab:
        lab[1].run(["ping", "-c1", "node2"])       a subprocess.CompletedProcess
        server = lab[2].start([...])               a subprocess.Popen; signal() reaches the program itself
        lab.partition([1], [2]); lab.heal()
        lab[2].kill(); lab[2].boot()

Each machine has its own network, mount, pid, UTS, IPC and time namespaces; its own /run, /dev/shm and /tmp, which are
empty when it boots; and its own /etc, /var, /root and /home, which begin as the computer's, keep what the machine writes,
and vanish with the lab. Machines share the folder /run/lab (outside: Lab.shared), the rest of the file system, and the
source tree and the build. A lab ends with the process that made it, in whatever way that process ends. See
tools/machines --help.
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

import machines_kernel as kernel
from machines_keeper import COUNT_MAX, HERE, SOCKET, address
from machines_kernel import Failure, missing

__all__ = ["Failure", "Lab", "Machine", "address", "labs", "missing"]

REQUEST_S = 120


def labs():
    """The names of the labs on this computer."""
    found = []
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = re.search(r" 00010000 .* @viaduct-machines/(\S+)$", line.rstrip("\n"))
            if match:
                found.append(match.group(1))
    return sorted(found)


def send_request(name, **request):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(REQUEST_S)
        try:
            peer.connect(SOCKET + name)
        except ConnectionRefusedError:
            raise Failure("lab %s: there is none; labs: %s" % (name, ", ".join(labs()) or "none")) from None
        peer.sendall(json.dumps(request).encode() + b"\n")
        with peer.makefile("r", encoding="utf-8") as answer:
            text = answer.readline()
    if not text:
        if request["do"] == "down":
            return {}
        raise Failure("lab %s: %s: no answer (only root gets one)" % (name, request["do"]))
    result = json.loads(text)
    if "error" in result:
        raise Failure("lab %s: %s: %s" % (name, request["do"], result["error"]))
    return result


def start_keeper(name, count, owner=0, same_clock=False):
    """Makes a lab, which ends with the process `owner` unless that is 0. Returns the Popen of its keeper."""
    if not 2 <= count <= COUNT_MAX:
        raise Failure("%d machines: make: 2 to %d are possible" % (count, COUNT_MAX))
    reason = missing()
    if reason:
        raise Failure("machines: make: " + reason)
    words = [sys.executable, os.path.join(HERE, "machines_keeper.py"), name, str(count), str(owner)]
    keeper = subprocess.Popen(words + ["--same-clock"] * same_clock, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, start_new_session=True)
    line = keeper.stdout.readline().strip()
    keeper.stdout.close()
    if line != "up":
        keeper.wait()
        raise Failure(line or "lab %s: make: the keeper ended" % name)
    return keeper


# nsenter's child requests a signal for the end of nsenter. If nsenter has ended before the request, no signal comes, and
# getppid(2) is 0 in either case. So the child checks nsenter's exe in /proc, which vanishes before the signal is sent.
ENTER = """exec 9</proc; exec nsenter %s -- setpriv --pdeathsig KILL sh -c '%s' $$ "$0" "$@" """
INSIDE = """[ -e /proc/self/fd/9/$0/exe ] || exit 137; exec 9<&-; cd "$1" 2>/dev/null || cd /; shift; exec "$@" """


def enter_words(pid, command, folder="/"):
    """The command line that runs a command in the machine whose first process is `pid`. The command ends with
    nsenter."""
    clock = "-T" if os.path.exists("/proc/%d/ns/time" % pid) else ""
    return ["sh", "-c", ENTER % ("-t %d -m -u -i -n -p %s" % (pid, clock), INSIDE), folder, *command]


class Machine:
    def __init__(self, lab, index):
        self.lab = lab
        self.index = index
        self.name = "node%d" % index
        self.address = address(index)
        self._pid = None

    @property
    def pid(self):
        """The pid of its first process, as seen outside. It changes with each boot."""
        if self._pid is None:
            self._pid = self.lab.list()["machines"][str(self.index)]["pid"]
        if not self._pid:
            self._pid = None
            raise Failure("%s: it is down" % self.name)
        return self._pid

    def path(self, path):
        """The path outside of the machine's file `path`."""
        return "/proc/%d/root%s" % (self.pid, path)

    def write(self, path, text, mode=0o644):
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(path), mode)

    def read(self, path):
        with open(self.path(path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def start(self, command, **more):
        folder = more.pop("cwd", "/")
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("text", True)
        return subprocess.Popen(enter_words(self.pid, command, folder), **more)

    def run(self, command, check=True, timeout=60, **more):
        """Runs a command to its end. With check, a failing command raises a Failure with its output."""
        for stream in ("stdout", "stderr"):
            more.setdefault(stream, subprocess.PIPE)
        with self.start(command, **more) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        if check and process.returncode != 0:
            raise Failure("%s: %s: exit code %d: %s" % (self.name, " ".join(command), process.returncode,
                                                       (err or out)[-800:].strip()))
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def pids(self, word):
        """{pid outside: command line} of the machine's processes whose command lines contain the word."""
        mine = os.readlink("/proc/%d/ns/pid" % self.pid)
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%s/ns/pid" % pid) != mine:
                    continue
                with open("/proc/%s/cmdline" % pid, "rb") as line:
                    words = line.read().decode(errors="replace").rstrip("\0").split("\0")
                if int(pid) != self.pid and any(word in w for w in words):
                    found[int(pid)] = " ".join(words)
        return found

    def send_request(self, verb, **more):
        return send_request(self.lab.name, do=verb, machine=self.index, **more)

    def kill(self):
        self._pid = None
        send_request(self.lab.name, do="kill", machines=[self.index])

    def boot(self):
        self._pid = None
        send_request(self.lab.name, do="boot", machines=[self.index])

    def suspend(self, seconds=None):
        """Suspends the machine for that long, or until resume()."""
        self.send_request("suspend", seconds=seconds)

    def resume(self):
        self.send_request("resume")

    def unplug(self):
        self.send_request("plug", plugged=False)

    def plug(self):
        self.send_request("plug", plugged=True)

    def wire(self, delay_ms=None, jitter_ms=None, loss=None):
        """Sets delay and loss (in percent) of both directions of its wire. Values that are not given do not change."""
        self.send_request("wire", delay_ms=delay_ms, jitter_ms=jitter_ms, loss=loss)


def signal_inside(process, number):
    """Sends a signal to the program that Machine.start() started, not to nsenter."""
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="ascii") as children:
        for pid in children.read().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)


class Lab:
    """A lab that the with statement makes and ends. attach() is for a lab that exists."""

    def __init__(self, count, name=None, same_clock=False):
        self.name = name or "lab-%d" % os.getpid()
        self.keeper = start_keeper(self.name, count, os.getpid(), same_clock)
        self._fill(count)

    def _fill(self, count):
        self.machines = {i: Machine(self, i) for i in range(1, count + 1)}

    @classmethod
    def attach(cls, name):
        lab = cls.__new__(cls)
        lab.name = name
        lab.keeper = None
        lab._fill(len(lab.list()["machines"]))
        return lab

    def __getitem__(self, index):
        try:
            return self.machines[index]
        except KeyError:
            raise Failure("machine %r: lab %s has 1 to %d" % (index, self.name, len(self.machines))) from None

    def __iter__(self):
        return iter(self.machines.values())

    def __len__(self):
        return len(self.machines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.down()

    def list(self):
        return send_request(self.name, do="list")

    @property
    def shared(self):
        """The path of the machines' common folder /run/lab outside of them."""
        return "/proc/%d/root/run/lab/shared" % self.list()["pid"]

    def partition(self, *groups):
        """Lets machines reach each other only within their group; machines in no group belong to the
        first."""
        send_request(self.name, do="partition", groups=[list(group) for group in groups])

    def heal(self):
        send_request(self.name, do="heal")

    def kill(self, indices):
        self._forget(indices)
        send_request(self.name, do="kill", machines=list(indices))

    def boot(self, indices):
        self._forget(indices)
        send_request(self.name, do="boot", machines=list(indices))

    def _forget(self, indices):
        for i in indices:
            self[i]._pid = None

    def down(self):
        """Ends the lab, and returns when all its processes have ended."""
        if self.keeper is not None:
            if self.keeper.poll() is None:
                self.keeper.send_signal(signal.SIGTERM)
                try:
                    self.keeper.wait(30)
                except subprocess.TimeoutExpired:
                    self.keeper.kill()
                    self.keeper.wait()
            return
        pid = self.list()["pid"]
        fd = os.pidfd_open(pid)
        try:
            send_request(self.name, do="down")
            kernel.wait_pidfd(fd, 30)
        finally:
            os.close(fd)

# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A fabric over the machines of a lab: a viaductd on each, host I on nodeI."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time

import machines_case
from machines_case import BIN, HANG_S

import machines_fabric

VIADUCTD = os.path.join(BIN, "viaductd")
DELIVER = os.path.join(BIN, "tests", "prog_deliver")
WHY_NOT = machines_fabric.kinds(VIADUCTD)
# The first kind of link that this build can use: those that go through the network, if possible.
KIND = next((kind for kind in machines_fabric.KINDS if WHY_NOT[kind] is None), None)


def shuffled(seed):
    """The environment of a daemon whose libfabric completes operations late and in any order."""
    return {"LD_LIBRARY_PATH": os.path.join(BIN, "tests", "shuffled"), "OFI_SHUFFLE_SEED": str(seed)}


def shuffle(seed):
    """Daemons that are started from now on have such a libfabric."""
    os.environ.update(shuffled(seed))


def check_shuffled(pids):
    for pid in pids:
        with open("/proc/%d/maps" % pid, encoding="ascii", errors="replace") as maps:
            if "/tests/shuffled/libfabric.so.1" not in maps.read():
                raise machines_case.Failure("daemon of pid %d: has the plain libfabric" % pid)


class Fabric:
    """`kind` is the driver of the links, `sections` more of the configuration: machines_fabric.py."""

    def __init__(self, lab, links, kind="emu", sections=None):
        self.lab = lab
        self.links = links
        self.kind = kind
        self.daemons = {}
        self.more_environment = {}  # of daemons
        machines_fabric.configure(lab, VIADUCTD, links, kind, sections)

    @property
    def hosts(self):
        return [m.index for m in self.lab]

    def start(self, *hosts):
        """Starts daemons; wait_up() waits for their links."""
        for host in hosts or self.hosts:
            log = open(self.log_path(host), "ab")
            with log:
                self.daemons[host] = self.lab[host].start(
                    [VIADUCTD, "--foreground", "--config", machines_fabric.CONF], stdout=log, stderr=log,
                    env={**self.environment(host), **self.more_environment})

    def environment(self, host):
        env = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}
        return {**env, "VIADUCT_RUNDIR": machines_fabric.RUNDIR, "VIADUCT_HOST": str(host)}

    def log_path(self, host):
        return os.path.join(self.lab.shared, "viaductd-%d.log" % host)

    def log(self, host):
        with open(self.log_path(host), encoding="utf-8", errors="replace") as log:
            return log.read()

    def end(self, host, number=signal.SIGTERM):
        """Ends a daemon; its exit code."""
        daemon = self.daemons.pop(host)
        for pid in self.lab[host].pids(VIADUCTD) if daemon.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return daemon.wait(HANG_S)

    def end_all(self):
        for host in list(self.daemons):
            self.end(host, signal.SIGKILL)

    def status(self, host):
        """The daemon's status; {} while it does not answer."""
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(HANG_S)
            try:
                control.connect(self.lab[host].path("%s/host-%d.ctl" % (machines_fabric.RUNDIR, host)))
                control.sendall(b'{"cmd":"status"}\n')
                while not answer.endswith(b"\n"):
                    piece = control.recv(65536)
                    if not piece:
                        return {}
                    answer += piece
            except OSError:
                return {}
        return json.loads(answer)

    def reached(self, host):
        """The other hosts that this one reaches."""
        routes = self.status(host).get("routes", [])
        return {r["host"] for r in routes if r["hops"] >= 0} - {host}

    def links_up(self, host):
        return {link["peer"] for link in self.status(host).get("links", []) if link["state"] == "up"}

    def is_whole(self, hosts=None):
        """True if all links between these hosts are up, and each host reaches all others."""
        hosts = set(hosts or self.hosts)
        for host in hosts:
            wanted = {b if host == a else a for a, b in self.links if host in (a, b)} & hosts
            if not wanted <= self.links_up(host) or not hosts - {host} <= self.reached(host):
                return False
        return True

    def wait_whole(self, hosts=None, seconds=HANG_S):
        """The seconds that it took."""
        begin = time.monotonic()
        if not machines_case.wait_for(lambda: self.is_whole(hosts), seconds):
            states = {m.index: ["%d: %s %s" % (li["peer"], li["state"], li["error"])
                                for li in self.status(m.index).get("links", []) if li["state"] != "up"] for m in self.lab}
            raise machines_case.Failure("fabric: come up: not within %g s: %.2000s" % (seconds, states))
        return time.monotonic() - begin

    # --- programs that count what arrives ----------------------------------------------------------

    def deliver(self, host, *words, **more):
        return self.lab[host].start([DELIVER, *map(str, words)], stdout=subprocess.PIPE, env=self.environment(host),
                                    **more)

    def receiver(self, host, sources=1):
        process = self.deliver(host, "receive", sources)
        line = process.stdout.readline()
        if line != "ready\n":
            raise machines_case.Failure("node%d: receive: %s" % (host, line))
        return process


def outcome(receiver, timeout=HANG_S):
    """({received, lost, doubled, reordered, wrong}, the longest silence in seconds)"""
    out, _ = receiver.communicate(timeout=timeout)
    found = re.search(r"^received (\d+) lost (\d+) doubled (\d+) reordered (\d+) wrong (\d+)$", out, re.M)
    if not found:
        raise machines_case.Failure("receiver: %s" % out.strip())
    gaps = [float(g) for g in re.findall(r"^gap ([\d.]+)$", out, re.M)]
    names = ("received", "lost", "doubled", "reordered", "wrong")
    return dict(zip(names, map(int, found.groups()))), max(gaps, default=0.0)

# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of daemons that are neighbours over libfabric, on loopback addresses."""
import json
import os
import socket
import subprocess
import sys

import cli

try:
    import ctypes
    ctypes.CDLL("libfabric.so.1")
except OSError as missing:
    print("skipped: %s" % missing)
    sys.exit(77)


class Case(cli.Case):
    """Host h of a test listens on an address that no other test of this machine has."""

    def setUp(self):
        super().setUp()
        os.mkdir(self.rundir, 0o700)
        pid = os.getpid()
        self.net = "127.%d.%d" % (128 + (pid >> 8) % 64, pid & 0xff)
        self.daemons = {}
        self.logs = {}

    def address(self, host):
        return "%s.%d" % (self.net, host)

    def link(self, host, peer, at=None, more=""):
        return "%d=ofi:tcp://%s,listen=%s%s" % (peer, at or self.address(peer), self.address(host), more)

    def daemon(self, host, peers, *more, links=None):
        words = [os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", str(host),
                 "--dead-ms", "5000", "--fabric", self.name]
        for link in links or [self.link(host, peer) for peer in peers]:
            words += ["--link", link]
        path = os.path.join(self.folder, "log-%d" % host)
        with open(path, "ab") as log:
            daemon = subprocess.Popen(words + list(more), env=self.env, stderr=log)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        self.daemons[host] = daemon
        self.logs[host] = path
        return daemon

    def log_of(self, host):
        with open(self.logs[host], encoding="utf-8", errors="replace") as log:
            return log.read()

    def open_control(self, host):
        """A connection to the host's control socket. OSError: no daemon listens."""
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            control.settimeout(cli.HANG_S)
            control.connect(os.path.join(self.rundir, "host-%d.ctl" % host))
        except OSError:
            control.close()
            raise
        return control

    @staticmethod
    def request(control, **request):
        """The answer to a request on such a connection; None if the daemon has ended."""
        answer = b""
        control.sendall(json.dumps(request).encode() + b"\n")
        while not answer.endswith(b"\n"):
            piece = control.recv(65536)
            if not piece:
                return None
            answer += piece
        return json.loads(answer)

    def send_request(self, host, **request):
        try:
            control = self.open_control(host)
        except OSError:
            return None
        with control:
            return self.request(control, **request)

    def link_of(self, host, index=0):
        status = self.send_request(host, cmd="status")
        return status["links"][index] if status else {}

    def assert_state(self, host, state, index=0):
        self.assertTrue(cli.wait_for(lambda: self.link_of(host, index).get("state") == state),
                        "%s\n%s" % (self.link_of(host, index), self.log_of(host)))

    def assert_not_up(self, host, index=0):
        self.assertTrue(cli.wait_for(lambda: self.link_of(host, index).get("state") in ("down", "waiting")),
                        "%s\n%s" % (self.link_of(host, index), self.log_of(host)))

    def assert_logged(self, host, text):
        """Waits for a text in the status of the host's first link, or in its log."""
        self.assertTrue(cli.wait_for(lambda: text in json.dumps(self.link_of(host)) or text in self.log_of(host)),
                        "%s\n%s" % (self.link_of(host), self.log_of(host)))

    def write_fabric(self, hosts, links):
        """The state file that `viaduct up` would write: the command finds the hosts by it."""
        entries = []
        for host in hosts:
            pid = self.daemons[host].pid
            with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
                start = int(stat.read().rpartition(")")[2].split()[19])
            entries.append({"host": host, "address": "127.77.0.%d" % host, "pid": pid, "start": start})
        with open(os.path.join(self.rundir, "fabric.json"), "w", encoding="ascii") as file:
            json.dump({"fabric": self.name, "like": "", "window_mib": 0, "version": "0.1.0", "channels": 0, "dma_bytes": 0,
                       "spin_us": 50, "netns": False, "direct": True, "hosts": entries,
                       "links": [{"a": a, "b": b, "n": 0} for a, b in links]}, file)

    def make_key(self, name="key"):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(32))
        return path

    def line_of_three(self, *more):
        self.daemon(2, [1, 3], *more)
        self.daemon(1, [2], *more)
        self.daemon(3, [2], *more)
        self.wait_line()

    def wait_line(self):
        self.assert_state(1, "up")
        self.assert_state(2, "up", 0)
        self.assert_state(2, "up", 1)
        self.assert_state(3, "up")

    def descriptors(self, host):
        return len(os.listdir("/proc/%d/fd" % self.daemons[host].pid))

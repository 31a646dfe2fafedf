# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of the daemon of a machine: machines of one run each, with a configuration file."""
import json
import os
import signal
import socket
import subprocess

import cli


def send_request(path, request, timeout=cli.HANG_S):
    """The answer to a request at a control socket; None: no daemon listens there."""
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.settimeout(timeout)
        try:
            control.connect(path)
            control.sendall(json.dumps(request).encode() + b"\n")
            while not answer.endswith(b"\n"):
                piece = control.recv(65536)
                if not piece:
                    return None
                answer += piece
        except OSError:
            return None
    return json.loads(answer)


class Machine:
    """A daemon with a configuration file and a run directory of its own."""

    def __init__(self, case, host):
        self.case = case
        self.host = host
        self.folder = os.path.join(case.folder, "m%d" % host)
        self.rundir = os.path.join(self.folder, "run")
        self.path = os.path.join(self.folder, "host.conf")
        self.log = os.path.join(self.folder, "err")
        self.process = None
        # Added to each configuration: on a busy machine a host may get no CPU for 80 ms. The end of a daemon
        # takes its links down at once nevertheless.
        self.tail = "[times]\ndead-ms = 5000\n"
        os.makedirs(self.folder)

    def cable(self, peer, number=0):
        """The section [link] of an emulated cable to that host."""
        a, b = sorted((self.host, peer))
        return "emu:%s/cable-%d-%d-%d.sock,side=%d" % (self.case.folder, a, b, number, int(self.host != a))

    def configure(self, peers=(), more="", host=None, learn=False):
        """peers: hosts, or (host, number of the cable)."""
        text = "[host]\nid = %d\nrundir = %s\n%s" % (self.host if host is None else host, self.rundir, more)
        for peer in peers:
            peer, number = peer if isinstance(peer, tuple) else (peer, 0)
            text += "[link to-%d-%d]\nto = %s\n" % (peer, number, self.cable(peer, number))
            if not learn:
                text += "peer = %d\n" % peer
        self.write(text + self.tail)

    def write(self, text):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)

    def start(self, *words, wait=True, **more):
        """Starts the daemon in the foreground; its messages are in self.log."""
        ready, ready_there = os.pipe()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(cli.BIN, "viaductd"), "--config", self.path, "--foreground", "--ready-fd", str(ready_there), *words],
                stdin=subprocess.DEVNULL, stderr=log, pass_fds=[ready_there], env={**self.case.env, **more.pop("env", {})}, **more)
        os.close(ready_there)
        self.case.addCleanup(self.stop)
        with os.fdopen(ready, "rb") as pipe:
            if wait:
                self.case.assertEqual(pipe.read(), b"+", self.messages())
        return self

    def stop(self, number=None):
        """Ends the daemon. Returns its exit code."""
        if self.process is None:
            return None
        # A test may have left the daemon suspended. SIGCONT is sent first: while the daemon ends, LeakSanitizer stops its
        # threads by SIGSTOP, which SIGCONT would cancel, and waits for them.
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM if number is None else number)
        try:
            return self.process.wait(cli.HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.process = None

    def messages(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def has_logged(self, text):
        """Waits for the text."""
        return cli.wait_for(lambda: text in self.messages())

    def send_request(self, cmd, **more):
        return send_request(os.path.join(self.rundir, "host-%d.ctl" % self.host), {"cmd": cmd, **more})

    def status(self):
        return self.send_request("status")

    def links(self):
        """{name: link}"""
        return {link["name"]: link for link in (self.status() or {"links": []})["links"]}

    def state(self, peer, number=0):
        return self.links().get("to-%d-%d" % (peer, number), {}).get("state")

    def reaches(self, host):
        return any(r["host"] == host and r["hops"] > 0 for r in (self.status() or {"routes": []})["routes"])

# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of the preload: runs programs with and without it and reads its statistics.

Everything started here is ended by its pid, also after a failure.
"""
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import diag  # noqa: E402
import supervise  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["VIADUCT_UP_WITH"] = str(os.getpid())  # no fabric outlives a killed test
BIN = os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or
                      os.path.join(HERE, "..", "..", "build", "dev", "bin"))
PRELOAD = os.path.join(BIN, "libviaduct-sockets.so")
CHECKS = os.path.join(BIN, "tests", "prog_socket_checks")
STREAM = os.path.join(BIN, "tests", "prog_stream")
VIADUCT = os.path.join(BIN, "viaduct")
# Debian's Python: another one in PATH may be a shell script that starts many programs. Scripts run with -S, because half of the time
# of a start goes into the .pth files of installed packages, which no script here uses.
PYTHON = "/usr/bin/python3"
# Longer than any test here takes on a machine with ten times as many busy programs as CPUs: a program that takes longer
# hangs.
HANG_S = 60


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(HANG_S)  # a killed program writes no statistics
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port(address="127.0.0.1"):
    """A free port below those that the kernel gives to clients: a client could take one of these before the server
    does."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    while True:
        port = random.randrange(max(1024, lowest // 2), lowest) if lowest > 2048 else 0
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((address, port))
            return probe.getsockname()[1]


def listens(port):
    """True if a socket listens on the port. A connection that tries it would count as a client's."""
    return diag.has_socket(port, diag.LISTEN)


def is_connected(port):
    """True if a connection to the port is established. A client that is killed before leaves its server waiting in
    accept(), as with TCP."""
    return diag.has_socket(port, diag.ESTABLISHED)


def rendezvous_names():
    """Abstract sockets of the preload that exist now."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as lines:
        return [line.split()[-1] for line in lines if "@viaduct/" in line]


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def need(*programs):
    """Skips a test whose program is not installed; tools/packages.txt lists all of them."""
    for program in programs:
        if shutil.which(program) is None:
            raise unittest.SkipTest("%s is not installed" % program)


def go_program():
    """echo.go, built once: its system calls are its own."""
    need("go")
    program = os.path.join(BIN, "tests", "prog_echo_go")
    source = os.path.join(HERE, "echo.go")
    if not os.path.exists(program) or os.path.getmtime(program) < os.path.getmtime(source):
        # Go compiles its standard library for this, with these options in two thirds of the time.
        done = subprocess.run(["go", "build", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w", "-o", program, source],
                              capture_output=True, text=True, check=False,
                              env=dict(os.environ, CGO_ENABLED="0", GO111MODULE="off", GOFLAGS="", GOPROXY="off",
                                       GOCACHE=os.path.join(os.path.dirname(BIN), "go-cache")))
        if done.returncode != 0:
            raise AssertionError("go build: " + done.stderr)
    return program


class Case(unittest.TestCase):
    """Two sides, each started under a prefix of words (viaduct run ...) or with the preload."""

    server_words = ()
    client_words = ()
    address = "127.0.0.1"

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="via-sockets-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.stats = os.path.join(self.folder, "stats")
        self.addCleanup(self.check_nothing_left, set(rendezvous_names()))

    def check_nothing_left(self, of_others):
        deadline = time.monotonic() + HANG_S
        left = set(rendezvous_names()) - of_others
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left &= set(rendezvous_names())  # sockets that are new now are another run's
        self.assertEqual(left, set())

    def environment(self, preload, **more):
        # The library's measurements of this machine stay out of the user's cache.
        env = dict(os.environ, **{"VIADUCT_SOCKETS_STATS": self.stats, "XDG_CACHE_HOME": self.folder,
                                  **more})
        if preload:
            env["LD_PRELOAD"] = PRELOAD
        return env

    def start(self, words, preload=True, port=None, env=None, cwd=None):
        """A server; returns when it listens."""
        log = tempfile.TemporaryFile("w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([*self.server_words, *words], stdout=log, stdin=subprocess.DEVNULL,
                                   stderr=subprocess.STDOUT, cwd=cwd,
                                   env=self.environment(preload, **(env or {})))
        process.log = log
        self.addCleanup(end, process)
        deadline = time.monotonic() + HANG_S
        while port is not None and not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                self.fail("%s does not listen: %s" % (words[0], log.read()[-800:]))
            time.sleep(0.01)
        return process

    def run_any(self, words, preload=True, timeout=4 * HANG_S, env=None):
        return subprocess.run([*self.client_words, *words], capture_output=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, check=False,
                              env=self.environment(preload, **(env or {})))

    def run_client(self, words, preload=True, timeout=4 * HANG_S, env=None, code=0):
        done = self.run_any(words, preload, timeout, env)
        out = done.stdout.decode(errors="replace")
        text = out + done.stderr.decode(errors="replace")
        # Of 300 checks only those that failed are of interest.
        text = "\n".join(line for line in text.splitlines() if not line.startswith("ok "))
        self.assertEqual(done.returncode, code, "%s: %s" % (words[0], text[-2000:]))
        return out

    def finish(self, process, seconds=HANG_S):
        """Waits for a server that ends by itself."""
        code = process.wait(seconds)
        process.log.seek(0)
        self.assertEqual(code, 0, process.log.read()[-800:])

    def lines(self, processes=0):
        """Statistics of the programs since the last call: one entry per process. Waits until there are entries of
        `processes`."""
        deadline = time.monotonic() + HANG_S
        while self.lines_count() < processes and time.monotonic() < deadline:
            time.sleep(0.01)
        if not os.path.exists(self.stats):
            return []
        with open(self.stats, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
        os.unlink(self.stats)
        return entries

    def lines_count(self):
        if not os.path.exists(self.stats):
            return 0
        with open(self.stats, "rb") as file:
            return file.read().count(b"\n")

    def assert_by_pipes(self, entries, share=0.2, processes=2):
        """At least `processes` processes took part, and at least `share` of what they sent went through pipes: the rest was
        sent before there were pipes, which are late on a busy machine."""
        self.assertGreaterEqual(len(entries), processes, entries)
        pipe = sum(e["bytes_pipe_tx"] for e in entries)
        kernel = sum(e["bytes_kernel_tx"] for e in entries)
        self.assertGreater(pipe, 0, entries)
        self.assertGreaterEqual(pipe / (pipe + kernel), share, entries)

    # --- programs, as both test files use them

    def echo(self, megabytes, seed, server_preload=True, client_preload=True, env=None, timeout=4 * HANG_S):
        port = free_port(self.address)
        server = self.start([STREAM, "serve", self.address, str(port), "1"], server_preload, port, env)
        out = self.run_client([STREAM, "echo", self.address, str(port), str(megabytes << 20), str(seed)],
                              client_preload, timeout, env)
        self.finish(server)
        return json.loads(out)

    def iperf3(self, *options):
        need("iperf3")
        port = free_port(self.address)
        server = self.start(["iperf3", "-s", "-1", "-p", str(port)], port=port)
        out = json.loads(self.run_client(["iperf3", "-c", self.address, "-p", str(port), "-J", *options]))
        self.finish(server)
        self.assertGreater(out["end"]["sum_received"]["bytes"], 0)
        return out

    def redis(self, *options):
        need("redis-server", "redis-benchmark")
        port = free_port(self.address)
        server = self.start(["redis-server", "--port", str(port), "--bind", self.address, "--save", "",
                             "--appendonly", "no", "--protected-mode", "no"], port=port, cwd=self.folder)
        out = self.run_client(["redis-benchmark", "-h", self.address, "-p", str(port), "-c", "20", "-n",
                               "20000", "-t", "get,set", "--csv", *options])
        end(server)
        self.assertIn('"GET"', out)
        return out

    def http(self, client_preload=True, size=64 << 20, times=1):
        """A server that closes right after its last byte."""
        need("curl")
        data = os.urandom(size)
        with open(os.path.join(self.folder, "file"), "wb") as file:
            file.write(data)
        port = free_port(self.address)
        server = self.start([PYTHON, "-Sm", "http.server", str(port), "--bind", self.address],
                            port=port, cwd=self.folder)
        got = os.path.join(self.folder, "got")
        for _ in range(times):
            self.run_client(["curl", "-sS", "-o", got,
                             "http://%s:%d/file" % (self.address, port)], client_preload)
            with open(got, "rb") as file:
                self.assertEqual(file.read(), data)
        server.send_signal(signal.SIGINT)
        server.wait(HANG_S)


def begin():
    """The first line of a script that is executed by name."""
    os.environ.pop("LD_PRELOAD", None)
    supervise.begin()


def main():
    begin()
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The preload between processes of one machine, without any daemon."""
import os
import random
import signal
import subprocess
import sys
import time
import unittest

import lab
from lab import CHECKS, Case, PYTHON, STREAM, HANG_S, cpu_seconds, end, free_port, is_connected, listens, need


class Semantics(Case):
    """The checks pass over kernel TCP, which shows that the checks are right, and over pipes."""

    def failures(self, out):
        return [line for line in out.splitlines() if not line.startswith("ok ")]

    def run_checks(self, names=(), **how):
        """Lines of the checks that failed."""
        done = self.run_any([CHECKS, *names], timeout=8 * HANG_S, **how)
        failed = self.failures(done.stdout.decode(errors="replace"))
        self.assertEqual(done.returncode != 0, failed != [], done)
        return failed

    def test_checks_on_kernel_tcp(self):
        """A failure without the library means that the check is wrong. A check that assumes a schedule may fail on a
        busy machine, so it gets a second run. Here races are of the kernel, and only have to begin."""
        env = {"VIADUCT_CHECKS_RACE_S": "0.1"}
        first = self.run_checks(preload=False, env=env)
        for line in first:
            print("on the kernel's TCP: %s" % line, file=sys.stderr)
        again = self.run_checks([line.split()[1].rstrip(":") for line in first], preload=False, env=env) if first else []
        self.assertEqual(again, [], "after %s" % first)
        self.assertEqual(self.lines(), [])

    def test_checks(self):
        self.assertEqual(self.run_checks(), [])
        self.assert_by_pipes(self.lines(), processes=20)

    def test_checks_offered_at_once(self):
        self.assertEqual(self.run_checks(env={"VIADUCT_SOCKETS_AFTER": "0"}), [])
        # Bytes that are written before the other thread accepts go through the kernel: as many as its buffers hold.
        self.assert_by_pipes(self.lines(), 0.3, 20)


class Streams(Case):
    def test_every_byte(self):
        for seed in range(3):
            self.echo(48, seed)
            self.assert_by_pipes(self.lines())

    def test_one_large_call(self):
        """A connection may consist of one send(), or one sendfile()."""
        take = ("import socket, sys\n"
                "l = socket.socket(); l.bind(('127.0.0.1', int(sys.argv[1]))); l.listen()\n"
                "s, _ = l.accept(); n = 0\n"
                "while n < 32 << 20: n += len(s.recv(1 << 16))\n")
        give = "import os, socket, sys\nc = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        with open(os.path.join(self.folder, "file"), "wb") as file:
            file.truncate(32 << 20)
        for how in ("c.sendall(bytes(32 << 20))\n",
                    "f = open('%s', 'rb'); n = 0\n"
                    "while n < 32 << 20: n += os.sendfile(c.fileno(), f.fileno(), n, 32 << 20)\n" % file.name):
            port = free_port()
            server = self.start([PYTHON, "-Sc", take, str(port)], port=port)
            self.run_client([PYTHON, "-Sc", give + how, str(port)])
            self.finish(server)
            self.assert_by_pipes(self.lines(), 0.1)

    def test_thousands_of_calls_before_the_first_of_the_other_end(self):
        """One end sends many small messages before the other gets a CPU: the library does not take that for a peer without
        the library."""
        talk = ("    for i in range(600):\n"
                "        a.sendall(b'y' * 100); assert len(b.recv(100, socket.MSG_WAITALL)) == 100\n")
        script = ("import socket\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
                  "for who_sends in 0, 1:\n"
                  "    c = socket.create_connection(l.getsockname()); s, _ = l.accept()\n"
                  "    a, b = ((c, s), (s, c))[who_sends]\n"
                  "    for i in range(6000): a.send(b'xx')\n"
                  "    assert len(b.recv(12000, socket.MSG_WAITALL)) == 12000\n" + talk)
        self.run_client([PYTHON, "-Sc", script])
        (entry,) = self.lines()
        self.assertEqual((entry["accelerated"], entry["not_accelerated"]), (4, {}))

    def test_back_to_pipes_after_a_stall(self):
        """The library can not tell a reader that pauses, while its peer has unread bytes, from two ends that both send."""
        script = ("import socket, threading, time\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
                  "c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.sendall(b'unread')\n"
                  "for i in range(300): c.sendall(b'x' * 100); assert len(s.recv(100, socket.MSG_WAITALL)) == 100\n"
                  "def send():\n"
                  "    for i in range(200000): c.send(b'y' * 500)\n"
                  "t = threading.Thread(target=send); t.start()\n"
                  "time.sleep(0.2); left = 100000000\n"
                  "while left > 0: left -= len(s.recv(100000))\n"
                  "t.join()\n")
        self.run_client([PYTHON, "-Sc", script])
        (entry,) = self.lines()
        # The bytes that the kernel's buffers hold, and those sent until these have been read.
        self.assertGreater(entry["bytes_kernel_tx"], 1000000, entry)
        self.assertLess(entry["bytes_kernel_tx"], 40000000, entry)

    def test_plain_server(self):
        self.echo(2, 1, server_preload=False)
        (entry,) = self.lines()
        self.assertEqual(entry["accelerated"], 0)
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})

    def test_plain_client(self):
        self.echo(2, 1, client_preload=False)
        (entry,) = self.lines()
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})

    def test_ipv6_and_dual_stack(self):
        script = ("import socket\n"
                  "for family, host in ((socket.AF_INET6, '::1'), (socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::'),\n"
                  "                     (socket.AF_INET, '0.0.0.0')):\n"
                  "    l = socket.socket(socket.AF_INET6); l.bind(('::', 0)); l.listen()\n"
                  "    c = socket.socket(family); c.connect((host, l.getsockname()[1]))\n"
                  "    s, _ = l.accept()\n"
                  "    for i in range(300):\n"
                  "        c.sendall(b'x' * 100); assert len(s.recv(200)) == 100\n"
                  "        s.sendall(b'y' * 100); assert len(c.recv(200)) == 100\n")
        self.run_client([PYTHON, "-Sc", script])
        self.assert_by_pipes(self.lines(), 0.9, 1)


    def test_a_poll_without_a_wait_needs_no_wake_up(self):
        talk = ("def receive(s):\n"
                "    p = select.poll(); p.register(s, select.POLLIN)\n"
                "    while not p.poll(0): pass\n"
                "    return s.recv(9)\n")
        script = ("import os, select, socket\n" + talk +
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); child = os.fork()\n"
                  "s = l.accept()[0] if child == 0 else socket.create_connection(l.getsockname())\n"
                  "for i in range(3000):\n"
                  "    if child: s.sendall(b'x')\n"
                  "    assert receive(s) == b'x'\n"
                  "    if not child: s.sendall(b'x')\n")
        self.run_client([PYTHON, "-Sc", script])
        entries = self.lines(2)
        self.assert_by_pipes(entries, 0.9)
        self.assertLess(sum(entry["rings"] for entry in entries), 600, entries)

    def test_in_sets_before_it_connects(self):
        script = ("import select, socket, sys\n"
                  "flag = getattr(select, 'EPOLL' + sys.argv[1], 0)\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
                  "c = socket.socket(); sets = [select.epoll() for i in range(int(sys.argv[2]))]\n"
                  "for e in sets: e.register(c, select.EPOLLIN | flag)\n"
                  "c.connect(l.getsockname()); s, _ = l.accept()\n"
                  "for i in range(200):\n"
                  "    c.sendall(b'x' * 100); assert len(s.recv(200)) == 100\n"
                  "    s.sendall(b'y' * 100)\n"
                  "    for e in sets:\n"
                  "        while e.poll(5)[0][1] & select.EPOLLIN == 0: pass\n"
                  "    assert len(c.recv(200)) == 100\n"
                  "    for e in sets:\n"
                  "        if flag == select.EPOLLONESHOT: e.modify(c, select.EPOLLIN | flag)\n")
        for kind in "LEVEL", "ET":
            self.run_client([PYTHON, "-Sc", script, kind, "1"])
            self.assert_by_pipes(self.lines(), 0.9, 1)
        for kind, sets in (("ONESHOT", 1), ("EXCLUSIVE", 1), ("ET", 3)):
            self.run_client([PYTHON, "-Sc", script, kind, str(sets)])
            entries = self.lines()
            self.assertEqual(sum(entry["accelerated"] for entry in entries), 0, (kind, entries))

    def test_a_peer_that_has_closed_is_no_plain_program(self):
        script = ("import socket, struct\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
                  "c = socket.create_connection(l.getsockname()); c.sendall(b'bye')\n"
                  "c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()\n"
                  "s, _ = l.accept(); s.close()\n")
        self.run_client([PYTHON, "-Sc", script], env={"VIADUCT_SOCKETS_AFTER": "0"})
        (entry,) = self.lines()
        self.assertEqual(entry["not_accelerated"], {"ended before pipes were worth it": 2})


class Children(Case):
    def test_children_that_become_other_programs(self):
        """By vfork (what subprocess does), system() and popen(); they close descriptors that are not theirs."""
        script = ("import socket, subprocess, os\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
                  "c = socket.create_connection(l.getsockname()); s, _ = l.accept()\n"
                  "def talk():\n"
                  "    for i in range(100):\n"
                  "        c.sendall(b'ping'); assert s.recv(9) == b'ping'\n"
                  "        s.sendall(b'pong'); assert c.recv(9) == b'pong'\n"
                  "for i in range(3):\n"
                  "    talk()\n"
                  "    assert subprocess.run(['sh', '-c', 'exit 3']).returncode == 3\n"
                  "    assert subprocess.run(['cat'], input=b'x', capture_output=True,\n"
                  "                          close_fds=False).stdout == b'x'\n"
                  "    assert os.system('exit 2') >> 8 == 2 and os.popen('echo y').read() == 'y\\n'\n"
                  "talk(); c.close(); assert s.recv(1) == b''\n")
        self.run_client([PYTHON, "-Sc", script])
        self.assert_by_pipes(self.lines(), processes=1)

    def test_daemon(self):
        """daemon() forks inside the C library."""
        need("iperf3")
        port = free_port()
        pidfile = os.path.join(self.folder, "pid")
        self.run_client(["iperf3", "-s", "-D", "-1", "-p", str(port), "-I", pidfile])
        deadline = time.monotonic() + HANG_S
        while not listens(port) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.run_client(["iperf3", "-c", self.address, "-p", str(port), "-t", "1"])
        self.assert_by_pipes(self.lines(2))  # the daemon ends after this client


class Policy(Case):
    def accelerated(self, env):
        self.echo(4, 1, env=env)
        return sum(entry["accelerated"] for entry in self.lines())

    def test_rules(self):
        self.assertEqual(self.accelerated({}), 2)
        self.assertEqual(self.accelerated({"VIADUCT_SOCKETS": "off"}), 0)
        self.assertEqual(self.accelerated({"VIADUCT_SOCKETS_PORTS": "1-65535"}), 2)
        self.assertEqual(self.accelerated({"VIADUCT_SOCKETS_PORTS": "1"}), 0)
        self.assertEqual(self.accelerated({"VIADUCT_SOCKETS_NETWORKS": "127.0.0.0/8"}), 2)
        self.assertEqual(self.accelerated({"VIADUCT_SOCKETS_NETWORKS": "10.0.0.0/8,::1"}), 0)

    def test_rules_that_make_no_sense_switch_it_off(self):
        for rule in ("80-", "x", "70000", "90-80", "1,,2"):
            self.assertEqual(self.accelerated({"VIADUCT_SOCKETS_PORTS": rule}), 0, rule)
        for rule in ("127.0.0.0/33", "nonsense", "1.2.3.4/x"):
            self.assertEqual(self.accelerated({"VIADUCT_SOCKETS_NETWORKS": rule}), 0, rule)


class Programs(Case):
    def test_iperf3(self):
        for options in ((), ("-R",), ("-P", "2"), ("--bidir",)):
            self.iperf3("-t", "1", *options)
            self.assert_by_pipes(self.lines())

    def test_redis(self):
        self.redis()
        entries = self.lines()
        self.assert_by_pipes(entries)
        self.assertGreater(sum(entry["accelerated"] for entry in entries), 0)

    def test_redis_pipelined_with_threads(self):
        self.redis("-P", "16", "--threads", "2", "-n", "200000")
        self.assert_by_pipes(self.lines())

    def test_http(self):
        self.http()
        self.assert_by_pipes(self.lines())

    def test_http_with_a_plain_client(self):
        self.http(client_preload=False)


class Ends(Case):
    def test_the_peer_of_a_killed_process_does_not_hang(self):
        dice = random.Random(1)
        for round_ in range(16):
            port = free_port()
            server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
            client = subprocess.Popen([STREAM, "echo", self.address, str(port), str(1 << 40), "7"],
                                      env=self.environment(True), stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE)
            try:
                while client.poll() is None and not is_connected(port):
                    time.sleep(0.01)
                time.sleep(dice.uniform(0.02, 0.3))
                victim, other = (server, client) if round_ % 2 == 0 else (client, server)
                victim.kill()
                other.wait(HANG_S)
                self.assertNotEqual(client.returncode, 2, "wrong bytes")
            finally:
                end(client)
                client.stderr.close()
                end(server)

    def test_an_idle_server_sleeps(self):
        need("redis-server")
        script = ("import socket, sys, time\n"
                  "all = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for i in range(50)]\n"
                  "for i in range(20):\n"
                  "    for s in all: s.sendall(b'PING\\r\\n'); s.recv(100)\n"
                  "print('ready', flush=True); time.sleep(60)\n")
        used = {}
        for preload in (False, True):
            port = free_port()
            server = self.start(["redis-server", "--port", str(port), "--save", ""], preload, port,
                                cwd=self.folder)
            client = subprocess.Popen([PYTHON, "-Sc", script, str(port)], text=True,
                                      env=self.environment(preload), stdout=subprocess.PIPE)
            try:
                self.assertEqual(client.stdout.readline(), "ready\n")
                time.sleep(0.3)
                before = cpu_seconds(server.pid)
                time.sleep(3)
                used[preload] = cpu_seconds(server.pid) - before
            finally:
                client.stdout.close()
                end(client)
                end(server)
        self.assertLessEqual(used[True], used[False] + 0.5, used)

    def test_a_full_table_of_descriptors(self):
        """Connections with pipes need no descriptors but the program's own."""
        script = ("import resource, socket\n"
                  "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(200)\n"
                  "pairs = []\n"
                  "for i in range(90):\n"
                  "    c = socket.create_connection(l.getsockname()); s, _ = l.accept()\n"
                  "    pairs.append((c, s))\n"
                  "    for k in range(40):\n"
                  "        for a, b in (c, s), (s, c):\n"
                  "            a.sendall(b'ping'); assert b.recv(10) == b'ping'\n")
        self.run_client([PYTHON, "-Sc", script])
        (entry,) = self.lines()
        self.assertEqual(entry["connections"], 180)
        self.assertGreaterEqual(entry["accelerated"], 160)

    def reasons_with(self, descriptors, calls=400, size=1000):
        """Why connections have no pipes, when the program lowers its limit of descriptors while it runs."""
        script = ("import resource, socket, sys\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(2)\n"
                  "for few in False, True:\n"
                  "    if few: resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))\n"
                  "    c = socket.create_connection(l.getsockname()); s, _ = l.accept()\n"
                  "    calls, size = (int(sys.argv[2]), int(sys.argv[3])) if few else (1, 1000)\n"
                  "    for k in range(calls):\n"
                  "        for a, b in (c, s), (s, c):\n"
                  "            a.sendall(bytes(size)); assert b.recv(size, socket.MSG_WAITALL) == bytes(size)\n")
        self.run_client([PYTHON, "-Sc", script, str(descriptors), str(calls), str(size)])
        (entry,) = self.lines()
        return entry["accelerated"], entry["not_accelerated"]

    def test_a_limit_of_descriptors_that_is_lowered(self):
        short = {"ended before pipes were worth it": 2}
        self.assertEqual(self.reasons_with(64), (2, short))
        self.assertEqual(self.reasons_with(8), (0, {"out of memory or descriptors": 2, **short}))
        with self.subTest("64 MiB each way, which is not a short connection"):
            self.assertEqual(self.reasons_with(8, 1024, 65536), (0, {"out of memory or descriptors": 2, **short}))


class Users(Case):
    def test_users_without_a_number_are_not_one(self):
        """In a user namespace without mappings all users have the same id."""
        script = ("import ctypes, os, socket, sys\n"
                  "if sys.argv[1] == 'unnumbered' and ctypes.CDLL(None).unshare(0x10000000) != 0: sys.exit(77)\n"
                  "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
                  "c = socket.create_connection(l.getsockname()); s, _ = l.accept()\n"
                  "for _ in range(400):\n"
                  "    for a, b in (c, s), (s, c): a.sendall(bytes(500)); b.recv(500, socket.MSG_WAITALL)\n"
                  "sys.exit(0)\n")
        for how, accelerated in (("numbered", 2), ("unnumbered", 0)):
            done = self.run_any([PYTHON, "-Sc", script, how])
            if done.returncode == 77:
                self.skipTest("this machine has no user namespaces")
            self.assertEqual(done.returncode, 0, done.stderr)
            (entry,) = self.lines()
            self.assertEqual(entry["accelerated"], accelerated, entry)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct sockets: its list agrees with the programs; programs that it runs follow its rules."""
import json
import os
import signal
import subprocess
import time
import unittest

import lab
from lab import Case, HANG_S, PYTHON, STREAM, VIADUCT, end, free_port

# A process with both ends of one connection. It prints a line, and waits.
TALK = """
import os, select, signal, socket, sys
def pair(before=lambda s: None):
    l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()
    c = socket.socket(); before(c); c.connect(l.getsockname())
    s, _ = l.accept()
    return c, s
def talk(c, s, times=100):
    for i in range(times):
        c.sendall(b'x' * 1000); assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
        s.sendall(b'y' * 10); assert len(c.recv(10, socket.MSG_WAITALL)) == 10
def ready():
    print(os.getpid(), flush=True); sys.stdin.read(1)
"""


# Such a process with a forged board: a field of one end is no valid text, one of the other no valid bool.
LIE = """
import fcntl, mmap, struct
numbers, entries = 4096, 4096 + 4 * 65536
def lie(c, s):
    board = os.memfd_create('viaduct-sockets', os.MFD_ALLOW_SEALING)
    os.ftruncate(board, entries + 65536 * 128)
    fcntl.fcntl(board, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    text = bytes([27]) + b'[31m' + bytes([255, 10]) + b'x' * 600
    os.pwrite(board, struct.pack('=IHHiIQ488s', 0x76696162, 1, 128, os.getpid(), 99, 0, text), 0)
    os.pwrite(board, struct.pack('=I', 11 << 24), numbers + 4 * c.fileno())
    os.pwrite(board, struct.pack('=I', 1), numbers + 4 * s.fileno())
    os.pwrite(board, struct.pack('=8QIBB', *[2**64 - 1] * 8, 2**32 - 1, 0x55, 0), entries)
"""


def is_other_end(row, mine):
    """One address may be that of several connections, with others on the machine."""
    return row["local"] == mine["peer"] and row["peer"] == mine["local"]


class Lister(Case):
    def talker(self, script, preload=True, env=None):
        process = subprocess.Popen([PYTHON, "-Sc", TALK + script], stdin=subprocess.PIPE, text=True,
                                   stdout=subprocess.PIPE, env=self.environment(preload, **(env or {})))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(end, process)
        self.assertEqual(process.stdout.readline(), "%d\n" % process.pid)
        return process

    def rows(self, *words):
        out = subprocess.run([VIADUCT, "sockets", "--json", *words], capture_output=True, text=True,
                             timeout=HANG_S, check=True).stdout
        return json.loads(out)["connections"]

    def rows_of(self, process):
        return self.rows("--pid", str(process.pid))


class Listing(Lister):
    def test_both_ends_of_a_connection(self):
        process = self.talker("c, s = pair(); talk(c, s); ready()")
        one, other = self.rows_of(process)
        self.assertEqual((one["local"], one["peer"]), (other["peer"], other["local"]))
        for row in (one, other):
            self.assertTrue(row["accelerated"], row)
            self.assertIsNone(row["why_not"])
            self.assertEqual(row["state"], "established")
            self.assertTrue(row["program"].startswith("python3"))
        self.assertEqual(one["bytes_pipe_tx"] + one["bytes_kernel_tx"], 100000)
        self.assertEqual(other["bytes_pipe_rx"] + other["bytes_kernel_rx"], 100000)
        self.assertEqual(one["bytes_pipe_tx"], other["bytes_pipe_rx"])
        self.assertGreater(one["bytes_pipe_tx"], 80000)
        table = subprocess.run([VIADUCT, "sockets"], capture_output=True, text=True, check=True).stdout
        lines = [line for line in table.splitlines() if line.startswith("%7d " % process.pid)]
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertTrue(line.endswith("  pipes"), line)

    def test_a_board_may_say_anything(self):
        """Another process has written this memory: the list shows only printable text of it, and hides nothing."""
        process = self.talker(LIE + "c, s = pair(); lie(c, s); ready()", preload=False)
        off, odd = sorted(self.rows_of(process), key=lambda row: row["accelerated"])
        self.assertTrue(off["why_not"].startswith("switched off: ?[31m??xxx"), off)
        self.assertTrue(odd["accelerated"], odd)
        table = subprocess.run([VIADUCT, "sockets", "--pid", str(process.pid)], capture_output=True, check=True).stdout
        self.assertTrue(all(byte in b"\n" or 32 <= byte < 127 for byte in table), table)
        self.assertEqual(len(table.splitlines()), 3)

    def test_ended_connections_are_not_listed(self):
        process = self.talker("c, s = pair(); talk(c, s); c.close(); s.close(); d, t = pair(); ready()")
        for row in self.rows_of(process):
            self.assertEqual(row["bytes_kernel_tx"], 0, row)
            self.assertEqual(row["why_not"], "not decided yet: it has moved little data")
        self.assertEqual(len(self.rows_of(process)), 2)

    def test_a_child_counts_for_itself(self):
        process = self.talker(
            "c, s = pair(); talk(c, s)\n"
            "r, w = os.pipe()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    c.sendall(b'z' * 500); os.write(w, b'x'); signal.pause()\n"
            "os.read(r, 1); assert len(s.recv(500, socket.MSG_WAITALL)) == 500\n"
            "ready(); os.kill(child, 9); os.wait()\n")
        mine = [row["bytes_pipe_tx"] for row in self.rows_of(process)]
        every = [row for row in self.rows() if row["local"] in
                 [mine["local"] for mine in self.rows_of(process)] and row["pid"] != process.pid]
        self.assertEqual(len(every), 2)
        self.assertEqual(sorted(row["bytes_pipe_tx"] for row in every), [0, 500])
        self.assertTrue(all(row["accelerated"] for row in every))
        self.assertGreater(max(mine), 80000)
        process.stdin.write("x")
        process.stdin.flush()
        self.assertEqual(process.wait(HANG_S), 0)

    def test_a_child_for_each_connection(self):
        """As PostgreSQL: the parent closes its descriptor at once. The child's line shows the child."""
        for after in ("0", "4"):
            process = self.talker(
                "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); clients = []\n"
                "for i in range(20):\n"
                "    c = socket.create_connection(l.getsockname()); clients.append(c); s, _ = l.accept()\n"
                "    if os.fork() == 0:\n"
                "        for c in clients: c.close()\n"
                "        while data := s.recv(100): s.sendall(data)\n"
                "        os._exit(0)\n"
                "    s.close()\n"
                "for i in range(20):\n"
                "    for c in clients: c.sendall(b'x' * 100); assert len(c.recv(100, socket.MSG_WAITALL)) == 100\n"
                "ready()\n", env={"VIADUCT_SOCKETS_AFTER": after})
            ends = {(row["peer"], row["local"]) for row in self.rows_of(process)}
            rows = [row for row in self.rows() if row["pid"] != process.pid and (row["local"], row["peer"]) in ends]
            self.assertEqual(len(rows), 20)
            for row in rows:
                self.assertTrue(row["accelerated"], row)
                self.assertGreater(row["bytes_pipe_rx"], 1000, row)
            process.stdin.write("x")
            process.stdin.flush()
            self.assertEqual(process.wait(HANG_S), 0)
            for line in self.lines(21):
                self.assertGreaterEqual(line["accelerated"], 1, line)

    def test_why_not(self):
        one = "c, s = pair(); talk(c, s); ready()"
        watched = ("all = [select.epoll() for i in range(5)]\n"
                   "c, s = pair(lambda c: [e.register(c, select.EPOLLIN) for e in all]); talk(c, s); ready()")
        for env, script, preload, whys in (
                ({"VIADUCT_SOCKETS_PORTS": "1"}, one, True, {"left to the kernel by the rules"}),
                ({"VIADUCT_SOCKETS_PROGRAMS": "!python*"}, one, True, {"left to the kernel by the rules"}),
                ({"VIADUCT_SOCKETS": "off"}, one, True, {"switched off"}),
                ({"VIADUCT_SOCKETS_PORTS": "80-"}, one, True,
                 {"switched off: VIADUCT_SOCKETS_PORTS: '80-': ports are numbers and ranges such as "
                  "80,6000-6010,!22"}),
                ({}, watched, True, {"epoll registration that pipes can not honour", "peer is a plain program"}),
                ({}, one, False, {"program runs without the library"})):
            process = self.talker(script, preload, env)
            rows = self.rows_of(process)
            self.assertEqual(len(rows), 2, rows)
            self.assertFalse(any(row["accelerated"] for row in rows), rows)
            self.assertEqual({row["why_not"] for row in rows}, whys)
            end(process)

    def test_pipes_that_the_other_end_does_not_take(self):
        """The connector announces that it can have pipes, and then sets an option that they can not honour."""
        process = self.talker("c, s = pair(); c.sendall(b'x'); s.recv(1)\n"
                              "c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)\n"
                              "for i in range(200):\n"
                              "    s.sendall(b'x' * 1000); c.recv(1000, socket.MSG_WAITALL)\n"
                              "ready()", env={"VIADUCT_SOCKETS_AFTER": "0"})
        untaken = "not decided yet: the other end has not taken its pipes"
        self.assertEqual({(row["accelerated"], row["why_not"]) for row in self.rows_of(process)},
                         {(False, "socket option that pipes can not honour"), (False, untaken)})
        process.stdin.close()
        self.assertEqual(process.wait(HANG_S), 0)
        with open(self.stats, encoding="utf-8") as lines:
            total = json.loads(lines.readlines()[-1])
        self.assertEqual((total["accelerated"], total["not_accelerated"]),
                         (0, {"socket option that pipes can not honour": 1, "peer returned to the kernel": 1}))

    def test_an_end_that_makes_no_calls(self):
        """It runs the library: its peer does not report it as a plain program."""
        process = self.talker("c, s = pair()\n"
                              "for i in range(100): c.sendall(b'x' * 1000)\n"
                              "ready()")
        process.stdin.close()
        self.assertEqual(process.wait(HANG_S), 0)
        with open(self.stats, encoding="utf-8") as lines:
            total = json.loads(lines.readlines()[-1])
        self.assertEqual(total["not_accelerated"],
                         {"peer has not made its part of the pipes yet": 1, "ended before pipes were worth it": 1})

    def test_a_plain_server(self):
        port = free_port()
        self.start([STREAM, "serve", self.address, str(port), "1"], preload=False, port=port)
        client = self.talker("c = socket.create_connection(('127.0.0.1', %d))\n"
                             "for i in range(20):\n"
                             "    c.sendall(b'x' * 10); c.recv(10, socket.MSG_WAITALL)\n"
                             "ready()" % port)
        (row,) = self.rows_of(client)
        self.assertEqual(row["why_not"], "peer is a plain program")
        self.assertEqual((row["bytes_kernel_tx"], row["bytes_pipe_tx"]), (200, 0))
        self.assertEqual(row["peer"], "127.0.0.1:%d" % port)

    def test_a_stopped_process_is_listed_and_a_killed_one_is_not(self):
        process = self.talker("c, s = pair(); talk(c, s); ready()")
        process.send_signal(signal.SIGSTOP)
        self.assertEqual([row["accelerated"] for row in self.rows_of(process)], [True, True])
        process.kill()
        process.wait()
        self.assertEqual([row for row in self.rows() if row["pid"] == process.pid], [])
        done = subprocess.run([VIADUCT, "sockets", "--pid", str(process.pid)], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("process %d: find: there is none of this user" % process.pid, done.stderr)


class Running(Case):
    """The command itself puts the library in front."""

    SELF = TALK + "c, s = pair(); talk(c, s)\n"

    def viaduct(self, *words, code=0, env=None):
        return self.run_client([VIADUCT, "sockets", *words], preload=False, code=code, env=env)

    def complaint(self, *words, code=1):
        done = subprocess.run([VIADUCT, "sockets", *words], capture_output=True, text=True, timeout=HANG_S,
                              env=self.environment(False), check=False)
        self.assertEqual(done.returncode, code)
        return done.stderr

    def accelerated(self):
        return sum(entry["accelerated"] for entry in self.lines())

    def test_a_program_and_its_exit_code(self):
        self.viaduct("--", PYTHON, "-Sc", self.SELF)
        self.assertEqual(self.accelerated(), 2)
        self.viaduct(PYTHON, "-Sc", self.SELF + "sys.exit(5)", code=5)
        self.assertEqual(self.accelerated(), 2)
        self.assertIn("run: No such file", self.complaint("--", "/nonexistent", code=127))
        self.assertIn("run: ", self.complaint("--", "/etc/passwd", code=126))

    def test_rules_on_the_command_line(self):
        for words, accelerated in ((["--ports", "1"], 0), (["--ports", "!1"], 2),
                                   (["--networks", "10.0.0.0/8"], 0), (["--networks", "127.0.0.1"], 2),
                                   (["--programs", "nginx"], 0), (["--programs", "python3*"], 2)):
            self.viaduct(*words, "--", PYTHON, "-Sc", self.SELF)
            self.assertEqual(self.accelerated(), accelerated, words)

    def test_a_file_of_rules(self):
        name = os.path.join(self.folder, "rules")

        def write(text):
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)

        write("[all]\nports = 1\n[program python3]\nports =\n")
        self.viaduct("--config", name, "--", PYTHON, "-Sc", self.SELF)
        self.assertEqual(self.accelerated(), 2)
        write("[all]\nnetworks = 10.0.0.0/8\n")
        self.viaduct("--", PYTHON, "-Sc", self.SELF, env={"VIADUCT_SOCKETS_CONFIG": name})
        self.assertEqual(self.accelerated(), 0)
        write("[all]\nports = 80\nnetworks = 10.0.0/8\n")
        self.assertIn("%s:3: networks: networks are addresses" % name,
                      self.complaint("--config", name, "--", "true"))
        self.assertIn("%s/none: open: No such file" % self.folder,
                      self.complaint("--config", self.folder + "/none", "--", "true"))


if __name__ == "__main__":
    lab.main()

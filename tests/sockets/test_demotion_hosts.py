#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Connections between hosts that go back to the kernel in the middle of a stream, in every way in which a program can use a descriptor without the library; each byte is checked at the other end."""
import json
import os
import random
import unittest

from hosts import Hosts, beside, keep_cutting
import lab
from lab import BIN, PYTHON, STREAM, free_port, go_program

STATIC = os.path.join(BIN, "tests", "prog_static")
LEAVER = os.path.join(BIN, "tests", "prog_leaver")
BYTES = 12 << 20
# Both ends send MUCH bytes, and then read.
MUCH = 2000000
BOTH = """
import socket, sys
host, port, much, accepts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "accept"
if accepts:
    end, _ = socket.create_server((host, port)).accept()
else:
    end = socket.create_connection((host, port))
for i in range(50):
    for turn in (accepts, not accepts):
        end.sendall(b"w") if turn else end.recv(1)
end.sendall(b"%d" % accepts * much)
with end.makefile("rb") as file:
    right = file.read(much) == b"%d" % (not accepts) * much
end.sendall(b"e")
end.recv(1)
sys.exit(None if right else "other bytes came")
"""
# Both ends send bytes; then one returns to the kernel, and a child of the other becomes a program without the library.
BACK = """
import os, socket, sys, time
host, port, much, accepts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "accept"
if accepts:
    end, _ = socket.create_server((host, port)).accept()
else:
    end = socket.create_connection((host, port))
for i in range(50):
    for turn in (accepts, not accepts):
        end.sendall(b"w") if turn else end.recv(1)
end.sendall((bytes(range(251)) * (much // 251 + 1))[:much])
time.sleep(0.5 if accepts else 1.5)
if accepts:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    time.sleep(1.5)
child = os.fork()
if child == 0:
    end.set_inheritable(True)
    os.environ.pop("LD_PRELOAD", None)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[5], str(end.fileno()), str(much)])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
BEHIND = """
import socket, sys
end, much = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
with end.makefile("rb") as file:
    right = file.read(much) == (bytes(range(251)) * (much // 251 + 1))[:much]
end.sendall(b"e")
end.recv(1)
sys.exit(None if right else "other bytes came")
"""
WAYS = ("stdio", "static", "fork", "number", "spawn", "system", "popen", "passed", "uring")


class Leaves(Hosts):
    def leave(self, how, seed, from_client=False, size=BYTES):
        """The statistics of the end that does not leave by itself."""
        after = random.Random("%s %d" % (how, seed)).randrange(size // 3, size // 2)
        port = free_port(self.address)
        where = [self.address, str(port)]
        leaver = [LEAVER, "connect" if from_client else "accept", *where, how, str(after)]
        stays = [STREAM, "accept-echo" if from_client else "echo", *where, str(size), str(seed)]
        server, client = (stays, leaver) if from_client else (leaver, stays)
        with self.subTest(how=how, seed=seed, from_client=from_client):
            process = self.start(server, port=port)
            out = self.run_client(client)
            self.finish(process)
            if not from_client:
                self.assertEqual(json.loads(out)["bytes"], size)
        entries = [e for e in self.lines() if e["program"] == "prog_stream"]
        self.assertEqual(len(entries), 1, entries)
        return entries[0]

    def goes_back(self, how, seed, from_client=False):
        """On a busy machine the end may leave before there are pipes: then once more."""
        for attempt in range(5):
            entry = self.leave(how, seed + 100 * attempt, from_client)
            if entry["bytes_pipe_tx"] + entry["bytes_pipe_rx"] > 0:
                break
        self.assertEqual((how, entry["accelerated"], entry["demoted"]), (how, 1, 1), entry)
        self.assertGreater(entry["bytes_pipe_tx"] + entry["bytes_pipe_rx"], 0, entry)
        self.assertGreater(entry["bytes_kernel_tx"], BYTES // 4, entry)

    def both_send(self):
        """Where TCP's buffers take the bytes, pipes must take them, too. On a busy machine pipes may come too late: then once more."""
        for _ in range(5):
            port = free_port(self.address)
            words = [PYTHON, "-Sc", BOTH, self.address, str(port), str(MUCH)]
            server = self.start([*words, "accept"], port=port)
            self.run_client([*words, "connect"])
            self.finish(server)
            entries = self.lines(2)
            if [entry["accelerated"] for entry in entries] == [1, 1]:
                return
        self.fail(entries)


    def both_go_back(self):
        """On a busy machine pipes may come too late: then once more."""
        for much in (100, 100000):
            for _ in range(5):
                port = free_port(self.address)
                words = [PYTHON, "-Sc", BACK, self.address, str(port), str(much)]
                server = self.start([*words, "accept", BEHIND], port=port)
                self.run_client([*words, "connect", BEHIND])
                self.finish(server)
                entries = self.lines(2)
                if [entry["accelerated"] for entry in entries] == [1, 1]:
                    break
            else:
                self.fail(entries)


class EitherWay:
    """What does not depend on the way between the hosts."""

    def test_both_go_back(self):
        self.both_go_back()

    def test_both_send_and_then_read(self):
        self.both_send()

    def test_the_acceptor_returns_to_the_kernel(self):
        for how in WAYS:
            self.goes_back(how, 1)

    def test_what_keeps_its_pipes(self):
        for how in ("splice", "child", "stay"):
            self.assertEqual(self.leave(how, 3)["demoted"], 0)


class Neighbours(EitherWay, Leaves):
    def test_the_connector_returns_to_the_kernel(self):
        for how in ("stdio", "static", "fork", "passed"):
            self.goes_back(how, 2, from_client=True)

    def test_while_the_cable_is_cut_and_mended(self):
        with beside(keep_cutting(0.03, 0.05)):
            for seed in range(6):
                for how in ("stdio", "fork"):
                    self.leave(how, 10 + seed)


class OverARelay(EitherWay, Leaves):
    server_host = 3

    def test_the_connector_returns_to_the_kernel(self):
        for how in ("stdio", "fork"):
            self.goes_back(how, 2, from_client=True)

    def test_while_the_ways_change(self):
        with beside(keep_cutting(0.05, 0.05, (("1", "2"), ("3", "4")))):
            for seed in range(4):
                for how in ("stdio", "fork"):
                    self.leave(how, 20 + seed)


class PlainPeers(Hosts):
    """Programs that no library can be loaded into, on another host."""

    def assert_plain(self, run, tries=4):
        """run() starts a program whose peer is plain. Again, if a busy daemon gave no answer in time: then the reason is that."""
        for _ in range(tries):
            run()
            (entry,) = self.lines()
            self.assertEqual((entry["accelerated"], entry["connections"]), (0, 1), entry)
            if entry["not_accelerated"] != {"daemon is down or refused": 1}:
                break
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})

    def test_a_client_of_go(self):
        def talk():
            port = free_port(self.address)
            server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
            self.run_client([go_program(), "talk", "%s:%d" % (self.address, port), str(4 << 20)])
            self.finish(server)
        self.assert_plain(talk)

    def serve(self, words, port):
        server = self.start(words, port=port)
        self.run_client([STREAM, "echo", self.address, str(port), str(40 << 20), "3"])
        self.finish(server)

    def test_a_server_of_go(self):
        def serve():
            port = free_port(self.address)
            self.serve([go_program(), "serve", "%s:%d" % (self.address, port)], port)
        self.assert_plain(serve)

    def test_a_static_server(self):
        def serve():
            port = free_port(self.address)
            self.serve([STATIC, "serve", str(port)], port)
        self.assert_plain(serve)


del Hosts, Leaves

if __name__ == "__main__":
    lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Two daemons that share only the socket of an ivshmem server, and messages under way when one of these three processes
is killed."""
import json
import mmap
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time

import cli

DELIVER = os.path.join(cli.BIN, "tests", "prog_deliver")


EDGES = [0, 1, 2, 0xffff, 1 << 31, (1 << 32) - 1, 3 << 60, (1 << 62) - 1, 1 << 62, (1 << 64) - 1]


class Stranger:
    """A third client of the server, which writes into the memory that two hosts use."""

    PAGE = 4096

    def __init__(self, path, seed):
        self.rng = random.Random(seed)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.connect(path)
            fds = []
            while not fds:  # version, id, then -1 with the memory
                _, fds, _, _ = socket.recv_fds(server, 8, 1)
            self.memory = mmap.mmap(fds[0], 0)
            os.close(fds[0])
        self.window = struct.unpack_from("<Q", self.memory, 8)[0]

    def inbox(self, side):
        return self.PAGE + side * self.window

    def lines(self):
        """Offsets of cache lines that are not zero, near the beginning of both inboxes."""
        return [off for side in (0, 1) for off in range(self.inbox(side), self.inbox(side) + 64 * 1024, 64)
                if any(self.memory[off:off + 64])]

    def spoil(self, off):
        """Overwrites a cache line at random: a word with a limit value, a value near the old one, or noise; or the
        whole line with another one."""
        rng, word = self.rng, off + 8 * self.rng.randrange(8)
        was = struct.unpack_from("<Q", self.memory, word)[0]
        kind = rng.randrange(5)
        if kind == 0:
            self.memory[off:off + 64] = rng.randbytes(64)
        elif kind == 1:
            struct.pack_into("<Q", self.memory, word, rng.choice(EDGES))
        elif kind == 2:
            struct.pack_into("<Q", self.memory, word, (was + rng.choice((-2, -1, 1, 2)) * (1 << rng.choice((0, 16, 32, 48)))) % (1 << 64))
        elif kind == 3:
            struct.pack_into("<I", self.memory, word, rng.randrange(1 << 32))
        else:
            other = rng.choice(self.used)  # an old record again, in its place or at another
            self.memory[off:off + 64] = self.memory[other:other + 64]

    def attack(self, seconds, count_min):
        """For this time, and on a busy machine until it has overwritten `count_min` places."""
        end = time.monotonic() + seconds
        count = 0
        while time.monotonic() < end or count < count_min:
            self.used = self.lines() or [self.inbox(0)]
            for _ in range(200):
                where = self.rng.randrange(4)
                self.spoil(64 * self.rng.randrange(self.PAGE // 64) if where == 0 else  # the registers
                           self.inbox(self.rng.randrange(2)) + 64 * self.rng.randrange(self.window // 64) if where == 1 else
                           self.rng.choice(self.used))
                count += 1
            time.sleep(0.002)


class Shrinking:
    """A server for two clients, whose memory is not sealed: it can take the memory away from them."""

    VECTORS = 16

    def __init__(self, path):
        self.memory = os.memfd_create("shrinks")
        os.ftruncate(self.memory, 16 << 20)
        self.vectors = [[os.eventfd(0, os.EFD_NONBLOCK) for _ in range(self.VECTORS)] for _ in range(2)]
        self.clients = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(4)
        self.listener.settimeout(cli.HANG_S)

    def greet(self):
        """The next two connections."""
        self.clients = [self.listener.accept()[0] for _ in range(2)]
        for number, client in enumerate(self.clients):
            messages = [(0, None), (number, None), (-1, self.memory)]
            messages += [(peer, fd) for peer in (1 - number, number) for fd in self.vectors[peer]]
            for value, fd in messages:
                socket.send_fds(client, [struct.pack("<q", value)], [] if fd is None else [fd])

    def take_away(self):
        os.ftruncate(self.memory, 0)

    def close(self):
        for fd in (self.memory, *self.vectors[0], *self.vectors[1]):
            os.close(fd)
        for one in (self.listener, *self.clients):
            one.close()


class Ivshmem(cli.Case):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "ivshmem.sock")
        self.daemons = {}
        self.start_server()

    def start(self, *words, **more):
        process = subprocess.Popen([os.path.join(cli.BIN, words[0]), *words[1:]], text=True, stderr=subprocess.DEVNULL,
                                   **{"env": self.env, **more})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        if process.stdout is not None:
            self.addCleanup(process.stdout.close)
        return process

    def start_server(self, memory="16MiB"):
        self.server = self.start("viaduct", "ivshmem-server", "--socket", self.path, "--memory", memory, stdout=subprocess.PIPE)
        self.assertIn("serves", self.server.stdout.readline())

    def rundir_of(self, host):
        return os.path.join(self.folder, "run-%d" % host)

    def start_daemon(self, host, *links, words=()):
        links = [word for link in links for word in ("--link", link)]
        self.daemons[host] = self.start("viaductd", "--foreground", "--rundir", self.rundir_of(host), "--host", str(host), *links, *words)

    def links_of(self, host):
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(cli.HANG_S)
            try:
                control.connect(os.path.join(self.rundir_of(host), "host-%d.ctl" % host))
                control.sendall(b'{"cmd":"status"}\n')
                while not answer.endswith(b"\n"):
                    piece = control.recv(65536)
                    if not piece:
                        return []
                    answer += piece
            except OSError:
                return []
        return json.loads(answer)["links"]

    def wait_up(self, *hosts):
        for host in hosts:
            self.assertTrue(cli.wait_for(lambda host=host: [li["state"] for li in self.links_of(host)] not in ([], ["down"]) and
                                         all(li["state"] == "up" for li in self.links_of(host))), self.links_of(host))

    def deliver(self, host, *words):
        env = {**self.env, "VIADUCT_RUNDIR": self.rundir_of(host), "VIADUCT_HOST": str(host)}
        process = self.start(DELIVER, *map(str, words), env=env, stdout=subprocess.PIPE)
        return process

    def start_two(self, *words):
        self.start_daemon(1, "2=ivshmem:%s,side=0" % self.path, words=words)
        self.start_daemon(2, "1=ivshmem:%s,side=1" % self.path, words=words)
        self.wait_up(1, 2)

    def test_what_status_says(self):
        self.start_two("--dead-ms", "5000")  # on a busy machine a link may be down for a moment
        for host in (1, 2):
            link = self.links_of(host)[0]
            self.assertEqual((link["driver"], link["path"], link["like"], link["error"]), ("ivshmem", self.path, "ivshmem", ""))
            self.assertRegex(link["found"], r"^peer \d+ of %s, 16 MiB; host %d is peer \d+$" % (re.escape(self.path), 3 - host))
            self.assertEqual(link["caps"], {"coherent": True, "writes_ordered": True, "store_bytes": 8, "read_ns": 0, "dma_depth": 0})

    def test_nothing_is_lost_when_the_server_dies_and_a_daemon_is_suspended(self):
        self.start_two()
        receiver = self.deliver(2, "receive", 1)
        self.assertEqual(receiver.stdout.readline(), "ready\n")
        sender = self.deliver(1, "send", 2, 0, 4000, 50, 1.5)
        self.server.kill()
        self.server.wait()
        self.assertTrue(cli.wait_for(lambda: "no ivshmem server" in self.links_of(1)[0]["error"]), self.links_of(1))
        self.start_server()
        self.wait_up(1, 2)
        os.kill(self.daemons[2].pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(self.daemons[2].pid, signal.SIGCONT)
        out, _ = receiver.communicate(timeout=cli.HANG_S)
        self.assertRegex(out, r"(?m)^received [1-9]\d* lost 0 doubled 0 reordered 0 wrong 0$")
        self.assertEqual(sender.wait(cli.HANG_S), 0)

    def test_a_daemon_that_is_killed_comes_back_and_a_second_one_at_its_end_is_refused(self):
        self.start_two()
        self.daemons[2].kill()
        self.daemons[2].wait()
        self.assertTrue(cli.wait_for(lambda: self.links_of(1)[0]["state"] == "down"))
        self.start_daemon(2, "1=ivshmem:%s,side=1" % self.path)
        self.wait_up(1, 2)
        self.start_daemon(3, "1=ivshmem:%s,side=1" % self.path)
        self.assertTrue(cli.wait_for(lambda: any(re.search(r"host 2 \(ivshmem peer \d+\) is side 1 already", li["error"])
                                                 for li in self.links_of(3))), self.links_of(3))
        self.wait_up(1, 2)

    def test_a_memory_that_is_too_small_and_windows_that_differ(self):
        self.start_daemon(1, "2=ivshmem:%s,side=0,cell=1,window=8MiB" % self.path)
        self.assertTrue(cli.wait_for(lambda: any("has room for 0 cells of 16781312 bytes" in li["error"] for li in self.links_of(1))),
                        self.links_of(1))
        self.start_daemon(2, "3=ivshmem:%s,side=0,window=2MiB" % self.path)
        self.start_daemon(3, "2=ivshmem:%s,side=1,window=1MiB" % self.path)
        for host, windows in ((2, (1 << 20, 2 << 20)), (3, (2 << 20, 1 << 20))):
            self.assertTrue(cli.wait_for(lambda host=host, windows=windows: any(
                "the peer has windows of %d bytes, this host of %d" % windows in li["error"] for li in self.links_of(host))),
                            self.links_of(host))

    def test_a_third_client_that_overwrites_the_memory_stops_no_daemon(self):
        self.start_two()
        for seed in (1, 2, 104):
            stranger = Stranger(self.path, seed)
            stranger.attack(0.7, 1000)
            for host in (1, 2):
                self.assertIsNone(self.daemons[host].poll(), "host %d, seed %d" % (host, seed))
            self.wait_up(1, 2)
        receiver = self.deliver(2, "receive", 1)
        self.assertEqual(receiver.stdout.readline(), "ready\n")
        self.assertEqual(self.deliver(1, "send", 2, 0, 4000, 50, 0.3).wait(cli.HANG_S), 0)
        out, _ = receiver.communicate(timeout=cli.HANG_S)
        self.assertRegex(out, r"(?m)^received [1-9]\d* lost 0 doubled 0 reordered 0 wrong 0$")

    def test_memory_that_is_truncated_under_traffic_ends_no_daemon(self):
        """Transfer threads that store there get SIGBUS."""
        self.server.kill()
        self.server.wait()
        self.path += "2"
        server = Shrinking(self.path)
        self.addCleanup(server.close)
        self.start_daemon(1, "2=ivshmem:%s,side=0" % self.path)
        self.start_daemon(2, "1=ivshmem:%s,side=1" % self.path)
        server.greet()
        self.wait_up(1, 2)
        for host in (1, 2):
            receiver = self.deliver(3 - host, "receive", 1)
            self.assertEqual(receiver.stdout.readline(), "ready\n")
            self.deliver(host, "send", 3 - host, 0, 4000, 50, cli.HANG_S)
        self.assertTrue(cli.wait_for(lambda: all(sum(li["frames_sent"] for li in self.links_of(host)) > 200 for host in (1, 2))))
        server.take_away()
        for host in (1, 2):
            self.assertTrue(cli.wait_for(lambda host=host: [li["state"] for li in self.links_of(host)] == ["down"]), self.links_of(host))
            self.assertIsNone(self.daemons[host].poll())

    def test_three_hosts_on_one_server(self):
        at = "ivshmem:%s,window=1MiB" % self.path
        self.start_daemon(1, "2=%s,side=0,cell=0" % at, "3=%s,side=0,cell=2" % at)
        self.start_daemon(2, "3=%s,side=0,cell=1" % at, "1=%s,side=1,cell=0" % at)
        self.start_daemon(3, "1=%s,side=1,cell=2" % at, "2=%s,side=1,cell=1" % at)
        self.wait_up(1, 2, 3)

    def test_a_command_line_that_is_wrong(self):
        for words, expected in ((("--memory", "3MiB"), "not a power of two"), (("--vectors", "65"), "not 1 to 64"),
                                (("--socket", "/nowhere/x"), "open /nowhere"), (("--mode", "9"), "not an octal mode")):
            done = subprocess.run([self.viaduct, "ivshmem-server", "--socket", self.path + "2", *words], env=self.env, text=True,
                                  capture_output=True, timeout=cli.HANG_S, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(expected, done.stderr)
        done = subprocess.run([self.viaduct, "ivshmem-server", "--socket", self.path], env=self.env, text=True,
                              capture_output=True, timeout=cli.HANG_S, check=False)
        self.assertIn("another process (pid %d) holds it" % self.server.pid, done.stderr)


if __name__ == "__main__":
    cli.main()

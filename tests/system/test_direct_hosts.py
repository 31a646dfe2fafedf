#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Direct connections of processes to the host of a neighbour (via_remote_connect()): two daemons with a link over libfabric, and
processes that put to, get from and update memory of the other one."""
import ctypes
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import cli
import direct_case
from direct_case import MIB, READ, WRITE, LAST_WORD, NOTIFY, Remote, Segment, error, via


class Direct(direct_case.Case):
    def test_all_accesses_and_their_order(self):
        self.start()
        _, user, segment, remote = self.pair()
        frames = self.link_of(1)["frames_sent"]
        for size in (1, 2, 4, 7, 8, 9, 64, 4095, 4096, 4097, 65536, 300001, MIB):
            off = min(size * 3, MIB - size)
            data = random.randbytes(size)
            self.assertEqual(remote.put(off, data, LAST_WORD if size % 2 else 0), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.bytes_at(off, size), data)
            self.assertEqual(remote.get(off, size), data)
        self.assertEqual(remote.put_word(0, 5), 0)
        self.assertEqual(remote.add(0, 3), 5)
        self.assertEqual(remote.add_start(0, 2), 0)
        self.assertEqual(user.quiet(), 0)
        self.assertEqual(segment.word(), 10)
        # None of these bytes went over the link, which carries only messages of the hosts.
        self.assertLess(self.link_of(1)["frames_sent"] - frames, 100)
        # A lone put arrives though no thread waits for it.
        for word in range(1, 200):
            remote.put_word(8, word)
            if word % 20 == 0:
                self.assertTrue(cli.wait_for(lambda w=word: segment.word(8) == w), segment.word(8))
        # Puts by frames arrive after those that went through the connection.
        for word in range(1, 100):
            remote.put(16, bytes(100000))
            remote.put_word(16, word)
            self.assertEqual(remote.put(24, word.to_bytes(8, "little"), NOTIFY), 0, error())
            self.assertTrue(cli.wait_for(lambda w=word: segment.word(24) == w))
            self.assertEqual(segment.word(16), word)
        # Remotes of an attachment share a connection.
        other = Remote(user, 2, segment.handle, MIB)
        self.assertEqual(other.connect(), 0)
        self.assertEqual(other.get(24, 8), (99).to_bytes(8, "little"))
        self.assert_connections(1)
        user.close()
        self.assert_connections(0)

    def test_a_handle_has_the_same_rights_as_by_frames(self):
        self.start()
        owner, user, segment, remote = self.pair()
        readable = Segment(owner, MIB, READ)
        before = self.counter(2, "direct_refused")
        only_read = Remote(user, 2, readable.handle, MIB)
        self.assertEqual(only_read.connect(), 0)
        self.assertEqual(only_read.get(0, 100), bytes(100))
        only_read.put(0, b"x" * 8)
        self.assertEqual(user.quiet(), -errno.ECONNRESET)
        self.assertIn("not allowed", error())
        self.assertEqual(readable.bytes_at(0, 8), bytes(8))
        wrong = Remote(user, 2, segment.handle ^ 1 << 40, MIB)
        self.assertEqual(wrong.connect(), 0)
        self.assertEqual(wrong.get(0, 8), -errno.ECONNRESET)
        longer = Remote(user, 2, segment.handle, 2 * MIB)
        self.assertEqual(longer.connect(), 0)
        longer.put(MIB - 4, b"y" * 8)
        self.assertEqual(user.quiet(), -errno.ECONNRESET)
        self.assertEqual(segment.bytes_at(MIB - 4, 4), bytes(4))
        self.assertGreaterEqual(self.counter(2, "direct_refused") - before, 3)
        # The connection stays open.
        self.assertEqual(remote.put_word(0, 7), 0)
        self.assertEqual(user.quiet(), 0)
        self.assertEqual(segment.word(), 7)

    def test_segments_that_are_freed_under_puts(self):
        self.start()
        owner, user, segment, remote = self.pair()
        data = random.randbytes(MIB)
        for i in range(30):
            freed = Segment(owner, MIB)
            gone = Remote(user, 2, freed.handle, MIB)
            self.assertEqual(gone.connect(), 0)
            for _ in range(3):
                gone.put(0, data)
            if i % 3 == 0:
                self.assertEqual(user.quiet(), 0)
                self.assertEqual(freed.bytes_at(0, MIB), data)
            thread = threading.Thread(target=freed.free)
            thread.start()
            for _ in range(3):
                gone.put(0, data)
            thread.join()

            def is_refused(remote=gone):
                rc = remote.put(0, data) or user.quiet()
                self.assertIn(rc, (0, -errno.ECONNRESET), error())
                return rc != 0
            self.assertTrue(cli.wait_for(is_refused))  # freeing asks the host for nothing
            gone.close()
        self.assertEqual(remote.put_word(0, 9), 0)
        self.assertEqual(user.quiet(), 0)
        self.assertEqual(segment.word(), 9)
        owner.close()
        self.assertTrue(cli.wait_for(lambda: remote.put_word(0, 10) or user.quiet() == -errno.ECONNRESET))

    def test_cuts_change_the_path_and_lose_nothing(self):
        self.start()
        _, user, segment, remote = self.pair()
        total, seen, ended = 0, [0], threading.Event()

        def watch():
            while not ended.is_set():
                word = segment.word(8)
                self.backwards = self.backwards or word < seen[0]
                seen[0] = word
                time.sleep(0.0001)  # else it uses a CPU, and holds Python's lock while the other thread could put
        self.backwards = False
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for turn in range(8):
                mend = threading.Timer(0.1, self.send_request, (2,), {"cmd": "mend", "peer": 1})
                for i in range(300):
                    if i == 100:
                        self.send_request(1, cmd="cut", peer=2)
                    if i == 150 + turn:
                        self.assertTrue(cli.wait_for(lambda: self.link_of(1).get("state") != "up"))
                        mend.start()  # by another thread: accesses may block until then
                    total += 1
                    self.assertEqual(remote.add_start(0, 1), 0, error())
                    self.assertEqual(remote.put_word(8, total), 0, error())
                self.assertEqual(user.quiet(), 0, error())
                mend.join()
                self.assertTrue(cli.wait_for(lambda: self.link_of(1).get("state") == "up"))
                self.assertEqual(user.quiet(), 0, error())
        finally:
            ended.set()
            watcher.join()
        self.assertFalse(self.backwards)
        self.assertTrue(cli.wait_for(lambda: segment.word() == total), "%d of %d" % (segment.word(), total))
        self.assertEqual(segment.word(8), total)
        self.assert_connections(1)

    def test_a_stopped_owner_delays_nothing(self):
        self.start()
        user = self.attach(1)
        env = {**self.env, "VIADUCT_HOST": "2"}
        with subprocess.Popen([os.path.join(cli.BIN, "tests", "prog_deliver"), "memory", "1", str(MIB)], env=env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as memory:
            self.assertEqual(memory.stdout.readline(), "ready\n")
            note = ctypes.create_string_buffer(16)
            name = b"deliver-memory"
            self.assertTrue(cli.wait_for(lambda: via.via_board_take(user.pointer, name, ctypes.c_size_t(len(name)), note,
                                                                    ctypes.c_size_t(16)) == 16))
            remote = Remote(user, 2, int.from_bytes(note.raw[:8], "little"), MIB)
            self.assertEqual(remote.connect(), 0, error())
            memory.send_signal(signal.SIGSTOP)
            self.assertEqual(remote.put_word(0, 77), 0)
            self.assertEqual(user.quiet(), 0)
            self.assertEqual(remote.get(0, 8), (77).to_bytes(8, "little"))
            memory.kill()
        self.assertTrue(cli.wait_for(lambda: remote.get(0, 8) == -errno.ECONNRESET))

    def test_a_host_that_dies_and_comes_back(self):
        self.start()
        _, user, _, remote = self.pair()
        self.assertEqual(remote.put_word(0, 1), 0)
        self.assertEqual(user.quiet(), 0)
        self.daemons[2].kill()
        self.daemons[2].wait()
        self.assert_not_up(1)
        remote.put_word(0, 2)  # waits, as a frame, until the host can be reached
        self.daemon(2, [1])
        self.assert_state(1, "up")
        self.assertTrue(cli.wait_for(lambda: (remote.put_word(0, 3) or user.quiet()) == -errno.ECONNRESET), error())
        owner = self.attach(2)
        segment = Segment(owner, MIB)
        again = Remote(user, 2, segment.handle, MIB)
        self.assertEqual(again.connect(), 0, error())
        self.assertTrue(cli.wait_for(lambda: user.quiet() == 0), error())  # each failure is reported once
        self.assertEqual(again.put_word(0, 4), 0, error())
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(), 4)
        self.assert_connections(1)
        # The neighbour is restarted: host 2 ends what it had, though this process keeps its end.
        self.daemons[1].kill()
        self.daemons[1].wait()
        self.daemon(1, [2])
        self.assert_connections(0)

    def test_without_direct_connections_frames_carry_all(self):
        for more, change in ((("--key", self.make_key()), {}), ((), {"VIADUCT_DIRECT": "off"})):
            if change:
                self.env.update(change)
                self.start()
            else:
                for host, peer in ((2, 1), (1, 2)):
                    self.daemon(host, [], *more, links=[self.link(host, peer, more=",encrypt")])
                self.assert_state(1, "up")
                self.assert_state(2, "up")
            owner, user = self.attach(2), self.attach(1)
            segment = Segment(owner, MIB)
            remote = Remote(user, 2, segment.handle, MIB)
            self.assertEqual(remote.connect(), -errno.EXDEV)
            self.assertIn("no direct connections to this host", error())
            self.assertEqual(remote.put_word(0, 3), 0)
            self.assertEqual(user.quiet(), 0)
            self.assertEqual(segment.word(), 3)
            own = Remote(owner, 2, segment.handle, MIB)
            self.assertEqual(own.connect(), -errno.EXDEV)
            self.assertEqual(own.get(0, 8), (3).to_bytes(8, "little"))
            self.assertEqual(self.counter(2, "direct_connections"), 0)
            for daemon in self.daemons.values():
                daemon.kill()
                daemon.wait()

    def test_more_processes_than_connections(self):
        self.start()
        owner = self.attach(2)
        segment = Segment(owner, 4096)
        for i in range(65):  # half of those of a neighbour: a user leaves the others free
            user = self.attach(1)
            remote = Remote(user, 2, segment.handle, 4096)
            self.assertEqual(remote.connect(), 0 if i < 64 else -errno.EBUSY, error())
            self.assertEqual(remote.put_word(8 * i, i + 1), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.word(8 * i), i + 1)
        self.assert_connections(64)

    def test_strangers_can_access_nothing(self):
        self.start()
        self.assertEqual(self.listeners(2), [])  # no process has asked
        _, user, segment, remote = self.pair()
        ports = self.listeners(2)
        self.assertEqual(len(ports), 1)
        hello = (0x315254534149562e).to_bytes(8, "little")
        strangers = []
        for junk in (b"", b"GET / HTTP/1.0\r\n\r\n" * 3, hello + bytes(16), hello + os.urandom(16), os.urandom(300)):
            stranger = socket.create_connection((self.address(2), ports[0]), timeout=cli.HANG_S)
            self.addCleanup(stranger.close)
            stranger.sendall(junk)
            if len(junk) >= 24:
                try:
                    self.assertEqual(stranger.recv(100), b"")
                except ConnectionResetError:
                    pass
            else:
                strangers.append(stranger)
        self.assertEqual(remote.put_word(0, 3), 0)
        self.assertEqual(user.quiet(), 0)
        self.assertEqual(segment.word(), 3)
        begin = time.monotonic()
        for stranger in strangers:  # without a token: refused later
            self.assertEqual(stranger.recv(100), b"")
        self.assertLess(time.monotonic() - begin, cli.HANG_S)
        self.assert_connections(1)


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Connections to the host of a neighbour that the library opens by itself: nothing that a program can see changes but the time
that puts take."""
import ctypes
import errno
import itertools
import os
import random
import resource
import signal
import socket
import struct
import threading
import time
import unittest

import cli
import direct_case
from direct_case import MIB, NOTIFY, LAST_WORD, Attach, Remote, Segment, error, sockets_to, via

os.environ.pop("VIADUCT_DIRECT", None)  # processes of these tests attach with the default

SO_ATTACH_FILTER, BPF_RETURN = 26, 6  # linux/filter.h

ENOUGH = 200  # puts, after which there is a connection


class Auto(direct_case.Case):
    def open_pair(self, size=MIB):
        owner, user = self.attach(2), self.attach(1)
        segment = Segment(owner, size)
        return owner, user, segment, Remote(user, 2, segment.handle, size)

    def wait_for_connection(self, remote, count=1):
        """Puts until there is one."""
        def is_there():
            for _ in range(ENOUGH):
                self.assertEqual(remote.put_word(0, 0), 0, error())
            return self.counter(2, "direct_connections") == count and self.is_used(remote)
        self.assertTrue(cli.wait_for(is_there), self.counter(2, "direct_connections"))

    def is_used(self, remote):
        """The daemon counts a connection before the library uses it."""
        before = self.frames()
        for _ in range(40):
            self.assertEqual(remote.put_word(0, 0), 0, error())
            while via.via_remote_pending(remote.pointer) != 0:
                time.sleep(0)
        return self.frames() - before < 20  # messages of the hosts; by frames the puts alone are 40 or more

    def break_connections(self):
        """Shuts down the connections as a fault of the network would: process and daemon read end of file."""
        for port in self.listeners(2):
            for one in sockets_to(port, self.address(2)):
                one.shutdown(socket.SHUT_RDWR)
                one.close()

    def test_puts_get_a_connection_and_stay_in_order(self):
        self.start()
        _, user, segment, remote = self.open_pair()
        self.assertEqual(self.counter(2, "direct_connections"), 0)
        self.wait_for_connection(remote)
        self.assertEqual(user.quiet(), 0, error())
        before = self.frames()
        for size in (1, 7, 8, 9, 100, 4095, 4096, 4097, 65536, 65537, 300001, MIB):
            off = min(size * 3, MIB - size)
            data = random.randbytes(size)
            self.assertEqual(remote.put(off, data, LAST_WORD if size % 2 else 0), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.bytes_at(off, size), data)
        for word in range(3000):
            self.assertEqual(remote.put_word(8 * (word % 1000), word), 0, error())
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual([segment.word(8 * i) for i in range(1000)], list(range(2000, 3000)))
        self.assertLess(self.frames() - before, 200)  # hosts' own messages
        # Notifying puts, gets and atomics act after all earlier puts.
        for turn in range(1, 300):
            for _ in range(turn % 70):
                self.assertEqual(remote.put_word(8, turn), 0)
            remote.put_word(8, turn)
            if turn % 4 == 0:
                self.assertEqual(remote.put(16, turn.to_bytes(8, "little"), NOTIFY), 0, error())
                self.assertTrue(cli.wait_for(lambda t=turn: segment.word(16) == t))
                self.assertEqual(segment.word(8), turn)
            elif turn % 4 == 1:
                self.assertEqual(remote.get(8, 8), turn.to_bytes(8, "little"), error())
            elif turn % 4 == 2:
                self.assertEqual(remote.add(8, 1), turn)
            else:
                self.assertEqual(remote.add_start(8, 1), 0)
                self.assertEqual(user.quiet(), 0, error())
                self.assertEqual(segment.word(8), turn + 1)
        # A put that no thread waits for arrives, and the library learns that.
        self.wait_for_connection(remote)
        self.assertEqual(remote.put_word(24, 77), 0)
        self.assertTrue(cli.wait_for(lambda: segment.word(24) == 77))
        self.assertTrue(cli.wait_for(lambda: via.via_remote_pending(remote.pointer) == 0))
        # Puts under way at the close arrive.
        for word in range(5000):
            remote.put_word(32, word)
        remote.close()
        user.close()
        self.assertTrue(cli.wait_for(lambda: segment.word(32) == 4999), segment.word(32))
        self.assert_connections(0)

    def test_short_stretches_stay_with_frames(self):
        """Each change between frames and connection costs more than the connection saves with some hundred puts."""
        self.start()
        _, user, _, remote = self.open_pair()
        self.wait_for_connection(remote)

        def stretch(puts, waits):
            for _ in range(puts):
                self.assertEqual(remote.put_word(0, 0), 0, error())
                while waits and via.via_remote_pending(remote.pointer) != 0:
                    time.sleep(0)
            self.assertEqual(remote.put(8, b"12345678", NOTIFY), 0, error())
        for _ in range(4):
            stretch(100, False)
        self.assertEqual(user.quiet(), 0, error())
        before = self.frames()
        stretch(100, True)
        self.assertGreaterEqual(self.frames() - before, 100)
        # A long one uses the connection.
        stretch(20000, False)
        self.wait_for_connection(remote)

    def test_large_puts_open_a_connection_at_once(self):
        self.start()
        _, user, segment, remote = self.open_pair()
        data = random.randbytes(MIB)
        for _ in range(2):
            self.assertEqual(remote.put(0, data), 0, error())
            self.assertEqual(user.quiet(), 0, error())

        def is_there():
            return (remote.put(0, data) or user.quiet()) == 0 and self.counter(2, "direct_connections") == 1
        self.assertTrue(cli.wait_for(is_there), error())
        self.assertEqual(segment.bytes_at(0, MIB), data)

    def stream(self, disturb, turns=12, settle=lambda: None):
        """Puts words that count up while `disturb` breaks the connection: no word arrives after a later one, and all arrive."""
        _, user, segment, remote = self.open_pair()
        ended, seen = threading.Event(), [0]
        backwards = []

        def watch():
            while not ended.is_set():
                word = segment.word(8)
                if word < seen[0]:
                    backwards.append((seen[0], word))
                seen[0] = word
        watcher = threading.Thread(target=watch)
        watcher.start()
        total, sums = 0, 0
        large = random.randbytes(600000)  # longer than the library copies
        middle = random.randbytes(300000)  # copied in pieces
        try:
            for turn in range(turns):
                for i in range(1500):
                    if i == 1000 + 7 * turn:
                        disturb(turn)
                    total += 1
                    self.assertEqual(remote.put_word(8, total), 0, error())
                    self.assertEqual(remote.put_word(64 + 8 * (total % 1000), total), 0, error())
                    if turn % 3 == 2 and i % 100 == 0:
                        self.assertEqual(remote.put(65536, large), 0, error())
                        self.assertEqual(remote.put(700000, middle), 0, error())
                    if i == 1300 and turn % 2 == 0:
                        self.assertEqual(remote.add_start(0, 1), 0, error())
                        sums += 1
                settle()
                self.assertEqual(user.quiet(), 0, error())
                self.assertEqual(segment.word(8), total)
        finally:
            ended.set()
            watcher.join()
        self.assertEqual(backwards, [])
        self.assertEqual(segment.word(), sums)
        for i in range(total - 999, total + 1):
            self.assertEqual(segment.word(64 + 8 * (i % 1000)), i)
        self.assertEqual(segment.bytes_at(65536, len(large)), large)
        self.assertEqual(segment.bytes_at(700000, len(middle)), middle)

    def test_connections_that_break_lose_nothing(self):
        self.start()
        self.stream(lambda turn: self.break_connections(), turns=20)

    def test_cuts_lose_nothing(self):
        self.start()

        def cut(turn):
            self.send_request(1, cmd="cut", peer=2)
            if turn % 2:
                self.assertTrue(cli.wait_for(lambda: self.link_of(1).get("state") != "up"))
                threading.Timer(0.05 * turn, lambda: self.send_request(2, cmd="mend", peer=1)).start()
            else:
                self.send_request(1, cmd="mend", peer=2)
        self.stream(cut, settle=lambda: self.assertTrue(cli.wait_for(lambda: self.link_of(1).get("state") == "up")))

    def test_threads_share_a_connection_that_breaks(self):
        self.start()
        _, user, segment, remote = self.open_pair()
        errors, ended = [], threading.Event()

        def work(number):
            off, total, draw = 131072 * (number + 1), 0, random.Random(number)
            own = Remote(user, 2, segment.handle, MIB)
            try:
                while not ended.is_set():
                    for _ in range(draw.randrange(200)):
                        total += 1
                        if own.put_word(off, total) != 0:
                            raise AssertionError("put: %s" % error())
                    kind = draw.randrange(8)
                    if kind == 0:
                        got = own.get(off, 8)
                    elif user.quiet() != 0:
                        raise AssertionError("quiet: %s" % error())
                    else:
                        got = segment.bytes_at(off, 8)
                    if got != total.to_bytes(8, "little"):
                        raise AssertionError("thread %d: %s instead of %d" % (number, got, total))
                    if kind == 1:
                        own.close()
                        own = Remote(user, 2, segment.handle, MIB)
                    if kind == 2 and own.put(off, bytes(100000)) != 0:
                        raise AssertionError("put: %s" % error())
                    if kind == 2:
                        total = 0
            except AssertionError as failure:
                errors.append(failure)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 6
        while time.monotonic() < end and not errors:
            time.sleep(0.3)
            self.break_connections()
        ended.set()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_puts_after_a_cut_are_sent_over_another_host(self):
        for host, peers in ((1, [2, 3]), (2, [1, 3]), (3, [1, 2])):
            self.daemon(host, peers)
        for host in (1, 2, 3):
            for index in (0, 1):
                self.assert_state(host, "up", index)
        _, user, segment, remote = self.open_pair()
        self.wait_for_connection(remote)
        for word in range(1, 4):
            # The connection exists, and the link is cut while puts are under way.
            for i in range(300):
                self.assertEqual(remote.put_word(8, 1000 * word + i), 0, error())
                if i == 100 and word == 2:
                    self.send_request(1, cmd="cut", peer=2)
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.word(8), 1000 * word + 299)
        self.assertEqual(via.via_attach_hops(user.pointer, 2), 2)

    def test_a_put_without_another_call_arrives(self):
        """The program polls its own memory; the library's thread finds that the connection has ended."""
        self.start()
        _, user, segment, remote = self.open_pair()
        for turn in range(1, 6):
            self.wait_for_connection(remote)
            self.assertEqual(user.quiet(), 0, error())
            self.break_connections()
            self.assertEqual(remote.put_word(8, turn), 0, error())
            self.assertTrue(cli.wait_for(lambda t=turn: segment.word(8) == t), segment.word(8))
            time.sleep(1.1)  # until the library tries again

    def test_puts_to_a_dead_host_fail_as_puts_by_frames_do(self):
        self.start()
        _, user, _, remote = self.open_pair()
        self.wait_for_connection(remote)
        self.daemons[2].kill()
        self.daemons[2].wait()
        begin = time.monotonic()
        for word in range(100):
            remote.put_word(0, word)  # the library keeps it: the host can not be reached
        self.assertLess(time.monotonic() - begin, cli.HANG_S)
        self.daemon(2, [1])
        self.assert_state(1, "up")
        self.assertTrue(cli.wait_for(lambda: (remote.put_word(0, 3) or user.quiet()) in (-errno.ECONNRESET, -errno.EACCES)), error())
        owner = self.attach(2)
        segment = Segment(owner, MIB)
        again = Remote(user, 2, segment.handle, MIB)
        self.assertTrue(cli.wait_for(lambda: user.quiet() == 0), error())
        self.wait_for_connection(again)
        self.assertEqual(again.put_word(0, 4), 0, error())
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(), 4)

    def test_a_segment_that_is_freed_refuses(self):
        self.start()
        owner, user, segment, remote = self.open_pair()
        self.wait_for_connection(remote)
        self.assertEqual(user.quiet(), 0, error())
        other = Segment(owner, 4096)
        gone = Remote(user, 2, other.handle, 4096)
        other.free()
        for _ in range(3):
            gone.put_word(0, 1)
        self.assertIn(user.quiet(), (-errno.EACCES, -errno.ECONNRESET), error())
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(remote.put_word(0, 5), 0)
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(), 5)

    def test_threads_that_mix_ways_keep_their_order(self):
        """Frames of one thread make another one change its way in the middle of a put, while the host serves connections
        slowly."""
        self.start()
        _, user, segment, remote = self.open_pair()
        other = Remote(user, 2, segment.handle, MIB)
        self.wait_for_connection(remote)
        tasks = "/proc/%d/task/" % self.daemons[2].pid
        for task in os.listdir(tasks):
            with open(tasks + task + "/comm", encoding="ascii") as name:
                if name.read() == "via-direct\n":
                    os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
        ended = threading.Event()

        def ring():
            while not ended.is_set():
                for _ in range(8):
                    other.put(128, b"12345678", NOTIFY)
                time.sleep(0.003)
        ringer = threading.Thread(target=ring)
        ringer.start()
        late = []
        try:
            end = time.monotonic() + 5
            for word in itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(1)):
                self.assertEqual(remote.put_word(8, word), 0, error())
                if word % 5 == 0:
                    self.assertEqual(user.quiet(), 0, error())
                    if segment.word(8) != word:
                        late.append((word, segment.word(8)))
        finally:
            ended.set()
            ringer.join()
        self.assertEqual(late, [])

    def test_puts_of_a_closed_remote_arrive_after_an_outage(self):
        self.start()
        _, user, segment, remote = self.open_pair()
        self.wait_for_connection(remote)
        self.assertEqual(user.quiet(), 0, error())
        closed = Remote(user, 2, segment.handle, MIB)
        self.stop(2)
        self.assertEqual(closed.put_word(0, 1), 0, error())
        self.assertTrue(cli.wait_for(lambda: via.via_attach_hops(user.pointer, 2) != 1))
        for i in range(1, 900):
            self.assertEqual(closed.put_word(8 * i, i + 1), 0, error())
        closed.close()
        os.kill(self.daemons[2].pid, signal.SIGCONT)

        def have_arrived():
            self.assertGreaterEqual(via.via_attach_poll(user.pointer), 0, error())
            return segment.word(8 * 899) == 900
        self.assertTrue(cli.wait_for(have_arrived))
        self.assertEqual([segment.word(8 * i) for i in range(900)], list(range(1, 901)))
        self.assertEqual(user.quiet(), 0, error())

    def test_a_firewall_that_drops_the_connection(self):
        """The link stays up, so frames carry the puts that the connection has not delivered."""
        self.start()
        _, user, segment, remote = self.open_pair()
        nothing = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 0))
        for acknowledged in (False, True):
            self.wait_for_connection(remote)
            self.assertEqual(user.quiet(), 0, error())
            if acknowledged:
                self.stop(2)  # the kernel acknowledges the bytes, the daemon does not
                self.assertEqual(remote.put_word(8, 5), 0, error())
                time.sleep(0.05)
            for port in self.listeners(2):
                for one in sockets_to(port, self.address(2)):
                    one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(nothing)))
                    one.close()
            if acknowledged:
                os.kill(self.daemons[2].pid, signal.SIGCONT)
            self.assertEqual(remote.put_word(8, 6), 0, error())
            begin = time.monotonic()
            self.assertEqual(user.quiet(), 0, error())
            self.assertLess(time.monotonic() - begin, cli.HANG_S)
            self.assertEqual(segment.word(8), 6)

    def drop_answers(self):
        """The kernel drops all segments from host 2 to the sockets of this process; host 2 receives those that this process sends."""
        self.nothing = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 0))
        for port in self.listeners(2):
            for one in sockets_to(port, self.address(2)):
                one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(self.nothing)))
                one.close()

    def test_a_refusal_whose_answer_is_lost_is_reported_once(self):
        self.start()
        owner, user, segment, remote = self.open_pair()
        other = Segment(owner, 4096)
        gone = Remote(user, 2, other.handle, 4096)
        other.free()
        for lost in (True, False):
            self.wait_for_connection(remote)
            self.assertEqual(user.quiet(), 0, error())
            if lost:
                self.drop_answers()
            refused = self.counter(2, "direct_refused")
            self.assertEqual(gone.put_word(0, 1), 0, error())
            self.assertTrue(cli.wait_for(lambda r=refused: self.counter(2, "direct_refused") > r))
            if not lost:
                self.assertIn(user.quiet(), (-errno.EACCES, -errno.ECONNRESET), error())
            self.assertEqual(remote.put_word(8, 7), 0, error())
            self.break_connections()
            self.assertEqual(user.quiet() in (-errno.EACCES, -errno.ECONNRESET), lost, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.word(8), 7)

    def test_puts_do_not_wait_for_a_host_that_hangs(self):
        """The connection ends before the hosts notice that the link is down."""
        self.start()
        _, user, segment, remote = self.open_pair()
        self.wait_for_connection(remote)
        self.assertEqual(user.quiet(), 0, error())
        self.stop(2)
        self.break_connections()
        begin = time.monotonic()
        for word in range(100):
            self.assertEqual(remote.put_word(8, word), 0, error())
        self.assertLess(time.monotonic() - begin, cli.HANG_S)
        os.kill(self.daemons[2].pid, signal.SIGCONT)
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(8), 99)

    def test_calls_that_do_not_block_do_not_wait_for_a_daemon(self):
        """The daemon does not answer when the library asks how many puts it has applied."""
        self.start()
        _, user, segment, remote = self.open_pair()
        self.wait_for_connection(remote)
        self.assertEqual(user.quiet(), 0, error())
        self.stop(2)
        for word in range(100):
            self.assertEqual(remote.put_word(8, word), 0, error())
        self.stop(1)
        self.break_connections()
        begin = time.monotonic()
        for _ in range(100):
            self.assertGreater(via.via_remote_pending(remote.pointer), 0)
            self.assertEqual(remote.try_put(8, b"12345678"), -errno.EAGAIN)
        self.assertLess(time.monotonic() - begin, 5)  # a question that is not answered takes 10 s
        for host in (1, 2):
            os.kill(self.daemons[host].pid, signal.SIGCONT)
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(8), 99)

    def test_closing_does_not_wait_for_a_connection(self):
        """The daemon of the attachment is suspended."""
        self.start()
        _, user, _, remote = self.open_pair()
        self.stop(1)
        for word in range(100):
            self.assertEqual(remote.put_word(0, word), 0, error())
        begin = time.monotonic()
        user.close()
        self.assertLess(time.monotonic() - begin, 6)
        os.kill(self.daemons[1].pid, signal.SIGCONT)

    def set_direct(self, value):
        os.environ["VIADUCT_DIRECT"] = value
        self.addCleanup(os.environ.pop, "VIADUCT_DIRECT", None)

    def test_auto_and_an_empty_value_are_the_default(self):
        self.start()
        for value in ("auto", ""):
            self.set_direct(value)
            owner, user, segment, remote = self.open_pair()
            self.wait_for_connection(remote)
            user.close()
            owner.close()
            self.assertTrue(cli.wait_for(lambda: self.counter(2, "direct_connections") == 0))

    def test_with_asked_or_off_puts_open_no_connection(self):
        self.start()
        owner = self.attach(2)
        segment = Segment(owner, MIB)
        for value in ("asked", "off"):
            self.set_direct(value)
            user = self.attach(1)
            remote = Remote(user, 2, segment.handle, MIB)
            threads = len(os.listdir("/proc/self/task"))
            for word in range(1, 2000):
                self.assertEqual(remote.put_word(0, word), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.word(), 1999)
            time.sleep(0.2)  # for a thread that opens one
            self.assertEqual(remote.put_word(0, 1), 0, error())
            # The kernel may still have listed an ended thread of the last turn.
            self.assertLessEqual(len(os.listdir("/proc/self/task")), threads)
            self.assertEqual(self.counter(2, "direct_connections"), 0)
            self.assertEqual(remote.connect(), 0 if value == "asked" else -errno.EXDEV)
            user.close()
            self.assertTrue(cli.wait_for(lambda: self.counter(2, "direct_connections") == 0))

    def test_programs_that_watch_the_bell_get_no_connection(self):
        self.start()
        _, user, segment, remote = self.open_pair()
        self.assertGreaterEqual(via.via_attach_bell_fd(user.pointer), 0)
        for word in range(1, 2000):
            self.assertEqual(remote.put_word(0, word), 0, error())
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(), 1999)
        self.assertEqual(self.counter(2, "direct_connections"), 0)

    def test_a_connection_that_the_program_asks_for_takes_over(self):
        self.start()
        _, user, segment, remote = self.open_pair()
        self.wait_for_connection(remote)
        remote.put_word(8, 6)
        other = Remote(user, 2, segment.handle, MIB)
        self.assertEqual(other.connect(), 0, error())
        self.assertEqual(other.get(8, 8), (6).to_bytes(8, "little"))
        for word in range(1000):
            self.assertEqual(remote.put_word(8, word), 0)
        self.assertEqual(user.quiet(), 0, error())
        self.assertEqual(segment.word(8), 999)


class Limits(direct_case.Case):
    """A neighbour has 128 connections; a user takes one more only while more are free than it has."""

    def test_idle_connections_are_closed_for_others(self):
        self.start()
        owner = self.attach(2)
        segment = Segment(owner, 4096)
        users = []
        for i in range(64):
            user = self.attach(1)
            remote = Remote(user, 2, segment.handle, 4096)
            users.append((user, remote))

            def is_there(want=i + 1, one=remote):
                for _ in range(ENOUGH):
                    self.assertEqual(one.put_word(8, 0), 0)
                return self.counter(2, "direct_connections") >= want
            self.assertTrue(cli.wait_for(is_there), i)
            self.assertEqual(user.quiet(), 0, error())
        time.sleep(1.2)
        more = self.attach(1)
        remote = Remote(more, 2, segment.handle, 4096)
        # The first attempt is refused, and makes the daemon close idle connections.
        self.assertTrue(cli.wait_for(lambda: remote.connect() == 0), error())
        self.assertTrue(cli.wait_for(lambda: self.counter(2, "direct_connections") < 64))
        # Puts of all others succeed.
        for i, (user, remote) in enumerate(users):
            self.assertEqual(remote.put_word(16, i), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.word(16), i)

    def test_dead_connections_are_closed_for_others(self):
        self.start()
        owner, user = self.attach(2), self.attach(1)
        segment = Segment(owner, 4096)
        for i in range(140):
            remote = Remote(user, 2, segment.handle, 4096)
            self.assertEqual(remote.connect(), 0, "%d: %s" % (i, error()))
            self.assertEqual(remote.put_word(0, i), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.word(), i)
            for port in self.listeners(2):
                for one in sockets_to(port, self.address(2)):
                    one.shutdown(socket.SHUT_RDWR)
                    one.close()
            remote.close()
        self.assert_connections(0)

    def limit_descriptors(self, pid):
        """Takes all descriptors but those that are open now from a process. Returns a function that gives them back."""
        lowest = next(fd for fd in itertools.count() if not os.path.lexists("/proc/%d/fd/%d" % (pid, fd)))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, hard))
        return lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))

    def assert_frames_carry(self, pid, connections):
        """Frames carry all puts while the process has no descriptor left, for longer than the library waits before it tries to
        connect again."""
        user, segment = self.attach(1), Segment(self.attach(2), MIB)
        remote = Remote(user, 2, segment.handle, MIB)
        before, word = self.frames(), 0
        # The daemon closes connections of earlier requests before it answers on this one. One that it closed later would leave it
        # a descriptor.
        control = self.open_control(2)
        self.assertIsNotNone(self.request(control, cmd="status"))
        lift = self.limit_descriptors(pid)
        try:
            end = time.monotonic() + 2.5
            for word in itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(1)):
                for i in range(ENOUGH):
                    self.assertEqual(remote.put_word(8 * i, word), 0, error())
                self.assertEqual(user.quiet(), 0, error())
                self.assertEqual([segment.word(8 * i) for i in range(ENOUGH)], [word] * ENOUGH)
        finally:
            lift()
            control.close()
        # Not by the count of connections: the daemon takes one that waited as soon as it can.
        self.assertGreaterEqual(self.frames() - before, ENOUGH * word)

        def is_there():
            for _ in range(ENOUGH):
                self.assertEqual(remote.put_word(8, 0), 0, error())
            return self.counter(2, "direct_connections") == connections + 1
        self.assertTrue(cli.wait_for(is_there), self.log_of(2))
        self.assertEqual(user.quiet(), 0, error())

    def test_a_process_without_descriptors(self):
        self.start()
        self.assert_frames_carry(os.getpid(), 0)

    def test_a_host_without_descriptors(self):
        self.start()
        # First it cannot listen, then not accept.
        self.assert_frames_carry(self.daemons[2].pid, 0)
        self.assert_frames_carry(self.daemons[2].pid, 1)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_a_user_leaves_some_for_others(self):
        for folder in (self.folder, self.rundir):
            os.chmod(folder, 0o711)
        self.start("--attach", "all")
        segment = Segment(self.attach(2), 4096)
        remotes = [Remote(self.attach(1), 2, segment.handle, 4096) for _ in range(65)]
        self.assertEqual([remote.connect() for remote in remotes], [0] * 64 + [-errno.EBUSY])

        def is_connected_as_another_user():
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    os.setgid(cli.NOBODY)
                    os.setuid(cli.NOBODY)
                    user = Attach(self.rundir, 1)
                    remotes = [Remote(user, 2, segment.handle, 4096) for _ in range(2)]
                    status = 0 if remotes[0].connect() == 0 and remotes[0].put_word(8, 5) == 0 and user.quiet() == 0 else 2
                finally:
                    os._exit(status)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.assertEqual(is_connected_as_another_user(), 0)
        self.assertEqual(segment.word(8), 5)


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A process ends without quiet or close while a direct connection carries its puts: the puts that had returned arrive, as
puts by frames do."""
import os
import signal
import socket
import time

import cli
import direct_case
from direct_case import MIB, Attach, Remote, Segment, error, sockets_to, via

os.environ.pop("VIADUCT_DIRECT", None)  # processes of these tests attach with the default

ENOUGH = 200  # puts, after which there is a connection
PUTS, PUT_BYTES = 400, 250  # more than the connection takes while its host does not run, less than a process keeps
SEND_BYTES = 4608  # the least that a socket has


def pattern(i):
    return bytes([1 + i % 250]) * PUT_BYTES


class Ends(direct_case.Case):
    def limit_sockets(self):
        """Makes the send buffers of all connections to host 2 small. Returns the number of connections."""
        found = [one for port in self.listeners(2) for one in sockets_to(port, self.address(2))]
        for one in found:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            one.close()
        return len(found)

    def connect(self, segment):
        """A process of host 1 whose puts a connection carries."""
        user = Attach(self.rundir, 1)
        self.assertTrue(cli.wait_for(lambda: via.via_attach_hops(user.pointer, 2) == 1), error())
        remote = Remote(user, 2, segment.handle, segment.size)
        end = time.monotonic() + cli.HANG_S
        while self.limit_sockets() == 0:
            for _ in range(ENOUGH):
                self.assertEqual(remote.put_word(MIB - 8, 0), 0, error())
            self.assertLess(time.monotonic(), end)
        self.assertEqual(user.quiet(), 0, error())
        return user, remote

    def child(self, work):
        """Forks a process that calls work() with its end of a socket pair. Returns its pid, and the other end."""
        theirs, ours = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ours.close()
                work(theirs)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        self.addCleanup(ours.close)
        return pid, ours

    def put_and_end(self, segment, end):
        def work(theirs):
            _, remote = self.connect(segment)
            theirs.sendall(b"1")
            theirs.recv(1)
            for i in range(PUTS):
                self.assertEqual(remote.put(i * PUT_BYTES, pattern(i)), 0, error())
            end()
        pid, ours = self.child(work)
        self.assertEqual(ours.recv(1), b"1")
        self.stop(2)
        ours.sendall(b"1")
        os.waitpid(pid, 0)
        os.kill(self.daemons[2].pid, signal.SIGCONT)

    def check_end(self, end):
        self.start()
        segment = Segment(self.attach(2), MIB)
        self.put_and_end(segment, end)
        self.assertTrue(cli.wait_for(lambda: segment.bytes_at((PUTS - 1) * PUT_BYTES, PUT_BYTES) == pattern(PUTS - 1)),
                        segment.bytes_at((PUTS - 1) * PUT_BYTES, 8))
        self.assertEqual([i for i in range(PUTS) if segment.bytes_at(i * PUT_BYTES, PUT_BYTES) != pattern(i)], [])
        self.assert_connections(0)
        # The daemon has freed its entry of the process.
        self.assertTrue(cli.wait_for(lambda: self.send_request(1, cmd="status")["processes"] == []))

    def test_killed(self):
        self.check_end(lambda: os.kill(os.getpid(), signal.SIGKILL))

    def test_exit(self):
        self.check_end(lambda: os._exit(0))

    def test_exec(self):
        self.check_end(lambda: os.execv("/bin/true", ["true"]))

    def test_many_that_are_killed_at_any_time(self):
        self.start()
        owner = self.attach(2)
        for turn in range(8):
            segment = Segment(owner, MIB)

            def work(theirs, segment=segment):
                user, remote = self.connect(segment)
                word = 0
                while True:
                    word += 1
                    for i in range(100):
                        remote.put_word(8 * i, word)
                    theirs.sendall(word.to_bytes(8, "little"))
                    if word % 3 == 0:
                        user.quiet()
            pid, ours = self.child(work)
            ours.recv(8)
            time.sleep(0.01 * turn)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            sent = b"".join(iter(lambda: ours.recv(65536), b""))
            last = len(sent) // 8 + 1  # of which all puts had returned

            def has_arrived(segment=segment, last=last):
                words = [segment.word(8 * i) for i in range(100)]
                return all(last <= word <= last + 1 for word in words) and sorted(words, reverse=True) == words
            self.assertTrue(cli.wait_for(has_arrived), (last, [segment.word(8 * i) for i in range(100)]))
            segment.free()

    def test_a_neighbour_that_does_not_come_back_holds_nothing_up(self):
        self.start()
        segment = Segment(self.attach(2), MIB)
        self.put_and_end(segment, lambda: os.kill(self.daemons[2].pid, signal.SIGKILL) or os._exit(0))
        self.assertTrue(cli.wait_for(lambda: self.send_request(1, cmd="status")["processes"] == []), self.log_of(1))
        self.assertIn("has ended with puts that can not be finished", self.log_of(1))


if __name__ == "__main__":
    cli.main()

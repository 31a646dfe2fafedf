#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Zero-copy between processes of one machine: forced, switched off, refused by the kernel, measured."""
import os

import lab
from lab import CHECKS, Case, HANG_S, HERE, PYTHON

# Both sides of a connection, one of them a child; run by a plain user when started by root. The first word decides
# whether the kernel allows to read the child's memory, the second how many MiB it sends.
PAIR = """
import ctypes, hashlib, os, socket, sys
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
dumpable, count = int(sys.argv[1]), int(sys.argv[2])
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()
data = os.urandom(1 << 20)
PR_SET_DUMPABLE = 4
pid = os.fork()
if pid == 0:
    assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0) == 0
    c = socket.create_connection(l.getsockname())
    for i in range(6):
        c.sendall(b'x'); assert c.recv(1) == b'y'
    for i in range(count):
        c.sendall(data)
    c.close(); sys.exit(0)
s, _ = l.accept()
for i in range(6):
    assert s.recv(1) == b'x'; s.sendall(b'y')
for i in range(count):
    assert s.recv(1 << 20, socket.MSG_WAITALL) == data
assert s.recv(1) == b''
assert os.waitpid(pid, 0)[1] == 0
"""


def names_of_checks():
    with open(os.path.join(HERE, "checks_zcopy.c"), encoding="utf-8") as source:
        return [line.split("(")[1].split(")")[0] for line in source if "CHECK_ENTRY(" in line]


class ZeroCopy(Case):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o777)  # the programs may be another user's
        self.cache = os.path.join(self.folder, "cache")

    def sent_and_fetched(self, words, choice, timeout=8 * HANG_S):
        """How many bytes were sent, and how many of them by zero-copy."""
        out = self.run_client(words, timeout=timeout,
                              env={"VIADUCT_SOCKETS_ZEROCOPY": choice, "XDG_CACHE_HOME": self.cache})
        self.assertEqual([line for line in out.splitlines() if line.startswith("FAILED")], [])
        entries = self.lines()
        return (sum(entry["bytes_pipe_tx"] for entry in entries),
                sum(entry["bytes_fetched_tx"] for entry in entries))

    def test_checks(self):
        sent, fetched = self.sent_and_fetched([CHECKS, *names_of_checks()], "on")
        self.assertGreater(fetched, sent / 10)

    def test_off(self):
        sent, fetched = self.sent_and_fetched([PYTHON, "-Sc", PAIR, "1", "40"], "off")
        self.assertGreater(sent, 30 << 20)
        self.assertEqual(fetched, 0)

    def test_allowed(self):
        _, fetched = self.sent_and_fetched([PYTHON, "-Sc", PAIR, "1", "40"], "on")
        self.assertGreater(fetched, 10 << 20)

    def test_refused_by_the_kernel(self):
        sent, fetched = self.sent_and_fetched([PYTHON, "-Sc", PAIR, "0", "40"], "on")
        self.assertGreater(sent, 30 << 20)
        self.assertEqual(fetched, 0)

    def test_measuring_leaves_no_file(self):
        os.mkdir(self.cache)
        os.chmod(self.cache, 0o777)
        self.sent_and_fetched([PYTHON, "-Sc", PAIR, "1", "200"], "auto")
        self.assertEqual(os.listdir(self.cache), [])


if __name__ == "__main__":
    lab.main()

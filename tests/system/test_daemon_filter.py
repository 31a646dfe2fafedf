#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The daemon under the system call filter of its unit: there a call that is not allowed ends it, by systemd it fails."""
import os
import random
import subprocess
import sys
import time

import cli
import direct_case
import syscall_filter
from direct_case import MIB, NOTIFY, Remote, Segment, error

UNIT = os.path.join(os.path.dirname(cli.BIN), "viaductd.service")
HERE = os.path.dirname(os.path.abspath(__file__))


class Filter(direct_case.Case):
    prefix = (sys.executable, os.path.join(HERE, "syscall_filter.py"), UNIT)

    def setUp(self):
        super().setUp()
        if syscall_filter.allowed(UNIT) is None:
            self.skipTest("libseccomp or systemd-analyze is missing")

    def assert_alive(self):
        for host, daemon in self.daemons.items():
            self.assertIsNone(daemon.poll(), "host %d: %s" % (host, self.log_of(host)))

    def test_the_filter_ends_what_it_does_not_allow(self):
        done = subprocess.run([*self.prefix, "/usr/bin/env", "-i", sys.executable, "-c", "import os; os.chroot('/')"],
                              capture_output=True, text=True, check=False, timeout=cli.HANG_S)
        self.assertEqual(done.returncode, -31, done.stderr)  # SIGSYS

    def test_all_that_a_daemon_does(self):
        self.start()
        with open("/proc/%d/status" % self.daemons[1].pid, encoding="ascii") as status:
            self.assertIn("Seccomp:\t2", status.read())
        owner, user, segment, remote = self.pair()
        data = random.randbytes(MIB)
        for flags in (0, NOTIFY):
            self.assertEqual(remote.put(0, data, flags), 0, error())
            self.assertEqual(user.quiet(), 0, error())
            self.assertEqual(segment.bytes_at(0, MIB), data)
        by_frames = Remote(self.attach(1), 2, segment.handle, MIB)
        for size in (8, 4096, MIB):
            self.assertEqual(by_frames.put(0, data[:size], NOTIFY), 0, error())
            self.assertEqual(by_frames.get(0, size), data[:size])
        self.assertGreaterEqual(by_frames.add(0, 1), 0)
        self.ask(1, cmd="cut", peer=2)
        self.assert_not_up(1)
        self.ask(1, cmd="mend", peer=2)
        self.assert_state(1, "up")
        for words in (("status",), ("doctor",), ("metrics",), ("status", "--json")):
            subprocess.run([self.viaduct, *words], env={**self.env, "VIADUCT_RUNDIR": self.rundir}, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False, timeout=cli.HANG_S)
            self.assert_alive()
        owner.close()
        user.close()
        self.daemons[2].kill()
        self.daemons[2].wait()
        self.assert_not_up(1)
        self.daemon(2, [1])
        self.assert_state(1, "up")
        time.sleep(0.3)
        self.assert_alive()
        for host in (1, 2):
            self.daemons[host].terminate()
            self.assertEqual(self.daemons[host].wait(timeout=cli.HANG_S), 0, self.log_of(host))


if __name__ == "__main__":
    cli.main()

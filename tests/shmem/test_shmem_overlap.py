#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Non-blocking gets and updates without results: many under way at a time, held back when there is no room, and complete after
one quiet."""
import time

import shmem_lab
from shmem_lab import OSHRUN, program
from test_shmem_ring import Ring


class OneHost(shmem_lab.Case):
    def test_results(self):
        self.passes("overlap", "-n", 3, "--timeout", 60)


class Hosts(Ring):
    def test_results(self):
        for words in (["-n", 6, "--spread"], ["-n", 2, "--hosts", "1,3"]):
            with self.subTest(words):
                self.assertIn("PASS", self.good(*words, "--timeout", 90, program("overlap")))

    def test_overlapped_operations_are_faster(self):
        self.assertIn("PASS", self.good("-n", 2, "--hosts", "1,3", "--timeout", 90, program("overlap"), "faster"))

    def test_links_that_come_and_go(self):
        with self.start(OSHRUN, "-n", 4, "--spread", "--timeout", 90, program("overlap")) as job:
            turns = 0
            while job.poll() is None and turns < 100:
                a = turns % 4 + 1
                self.viaduct("cut", str(a), str(a % 4 + 1))
                time.sleep(0.05)
                self.viaduct("mend", str(a), str(a % 4 + 1))
                turns += 1
            out, err = self.finish(job, 100)
        self.assertEqual((job.returncode, err), (0, ""), "%d cuts" % turns)
        self.assertIn("PASS", out)


class Frames(Ring):
    """Neighbours get and update by frames as well, all of them over one channel."""

    up = ("--no-direct", "--channels", "1")

    def test_results(self):
        self.assertIn("PASS", self.good("-n", 6, "--spread", "--timeout", 90, program("overlap")))


if __name__ == "__main__":
    shmem_lab.main()

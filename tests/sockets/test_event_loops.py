#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Event loops of every shape hang and stall no more over pipes than over kernel TCP: prog_event_loops.c."""
import os
import re
import subprocess

import lab
from lab import BIN, Case, HANG_S

LOOPS = os.path.join(BIN, "tests", "prog_event_loops")
# The make target repeats the loops. This test runs them once, with a longer limit, because other tests run at the same
# time.
ROUNDS = os.environ.get("VIADUCT_EVENT_LOOP_ROUNDS")
OPTIONS = ["-r", ROUNDS] if ROUNDS else ["-s", "1000"]
TIMEOUT_S = 16 * HANG_S * int(ROUNDS or 1)


def failed_loops(out):
    return re.findall(r"^FAILED (\S+):", out, re.MULTILINE)


class EventLoops(Case):
    def run_loops(self, names=(), preload=True):
        done = self.run_any([LOOPS, *OPTIONS, *names], preload, TIMEOUT_S, None)
        return done.stdout.decode() + done.stderr.decode()

    def test_on_kernel_tcp(self):
        """The program itself, by a few of its loops."""
        out = self.run_loops(["inout-poller-echo-16384"], preload=False)
        self.assertRegex(out, r"^4 event loops, \d failed")
        self.assertEqual([name for name in failed_loops(out) if name + ": stalls" not in out], [], out)

    def test_on_pipes(self):
        """A loop that stalls over kernel TCP at the same time, too, does so because the machine is busy."""
        out = self.run_loops()
        self.assertRegex(out, r"\d\d\d event loops, \d+ failed")
        self.assert_by_pipes(self.lines(), processes=100)
        for name in failed_loops(out):
            try:
                kernel = self.run_loops([name], preload=False)
            except subprocess.TimeoutExpired:
                continue
            self.assertIn("FAILED %s:" % name, kernel, out)


if __name__ == "__main__":
    lab.main()

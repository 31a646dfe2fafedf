#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Event loops of every shape hang and stall no more over pipes than over kernel TCP: prog_event_loops.c."""
import os

import lab
from lab import BIN, Case, HANG_S

LOOPS = os.path.join(BIN, "tests", "prog_event_loops")
# Of the make target; here once, and with patience, as other tests run beside it.
ROUNDS = os.environ.get("VIADUCT_EVENT_LOOP_ROUNDS")
OPTIONS = ["-r", ROUNDS] if ROUNDS else ["-s", "1000"]
TIMEOUT_S = 16 * HANG_S * int(ROUNDS or 1)


class EventLoops(Case):
    def test_on_kernel_tcp(self):
        out = self.run_client([LOOPS, *OPTIONS], preload=False, timeout=TIMEOUT_S)
        self.assertIn(" 0 failed", out)

    def test_on_pipes(self):
        out = self.run_client([LOOPS, *OPTIONS], timeout=TIMEOUT_S)
        self.assertIn(" 0 failed", out)
        self.assert_by_pipes(self.lines(), processes=100)


if __name__ == "__main__":
    lab.main()

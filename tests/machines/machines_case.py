# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests over several machines: a lab for each class of tests, and a check of what it leaves behind."""
import os
import sys
import unittest
from subprocess import PIPE  # noqa: F401

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import leftovers  # noqa: E402
import machines_lab  # noqa: E402
import supervise  # noqa: E402
from machines_lab import Failure  # noqa: E402,F401

BIN = os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or os.path.join(ROOT, "build", "dev", "bin"))
# Longer than anything here takes on a machine ten times as busy as it has cores.
HANG_S = 60
REASON = machines_lab.missing()


def wait_for(condition, seconds=HANG_S):
    return leftovers.wait_for(condition, seconds)


@unittest.skipIf(REASON, REASON)
class Case(unittest.TestCase):
    """All tests of a class share a lab of `count` machines; each leaves it as it was, or makes its own."""

    maxDiff = None
    count = 2

    @classmethod
    def setUpClass(cls):
        cls.lab = machines_lab.Lab(cls.count, "test-%d" % os.getpid())
        cls.addClassCleanup(cls.lab.down)


def main():
    supervise.begin()
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0 or len(result.skipped) == result.testsRun:
        print("skipped: %s" % (result.skipped[0][1] if result.skipped else REASON))
        sys.exit(77)

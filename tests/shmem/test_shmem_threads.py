#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""SHMEM_THREAD_MULTIPLE: several threads of every PE in OpenSHMEM at the same time."""
import os

import shmem_lab
from shmem_lab import program
from test_shmem_ring import Ring

TESTS = ("teams", "sets", "contexts", "waits", "locks")


class OneHost(shmem_lab.Case):
    def test_threads(self):
        for name in TESTS:
            for pes in (1, 3):
                with self.subTest(name, pes=pes):
                    self.assertIn("PASS", self.good("-n", pes, "--timeout", 60, program("threads"), name, 15))

    def test_random_programs_against_a_model(self):
        for pes, seed in ((1, 1), (4, 2)):
            with self.subTest(pes=pes, seed=seed):
                self.assertIn("PASS", self.good("-n", pes, "--timeout", 60, program("storm"), seed, 3))

    def test_checking_mode_reports_nothing(self):
        for name in ("teams", "sets"):
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 3, "--timeout", 60, program("threads"), name, 10,
                                                env={"VIADUCT_SHMEM_CHECK": "abort"}))


class Hosts(Ring):
    def test_random_programs_against_a_model(self):
        # SEED=n STORM_ROUNDS=n for others and longer ones.
        seed, rounds = os.environ.get("SEED", 3), os.environ.get("STORM_ROUNDS", 2)
        for words in (["-n", 4, "--hosts", "1-4"], ["-n", 3, "--hosts", "1,3"]):
            with self.subTest(words):
                self.assertIn("PASS", self.good(*words, "--timeout", 60, program("storm"), seed, rounds))

    def test_quiet_waits_for_puts_that_another_thread_waits_for(self):
        self.assertIn("PASS", self.good("-n", 3, "--hosts", "1,2,3", "--timeout", 60, program("threads"), "quiet"))

    def test_threads(self):
        for name in TESTS:
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 4, "--hosts", "1-4", "--timeout", 60, program("threads"), name,
                                                4))


if __name__ == "__main__":
    shmem_lab.main()

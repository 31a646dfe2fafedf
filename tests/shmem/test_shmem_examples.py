#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The examples check their answers: by 1 to 8 PEs of one host, and over a ring of four."""
import os

import shmem_lab
import test_shmem_ring
from shmem_lab import BIN, HERE, program

EXAMPLES = ("histogram", "integer_sort", "producer_consumer", "teams")
SHORT = (("transpose", 8), ("locks", 100), ("wait_any", 100), ("node_shared", 1000), ("thread_contexts", 200))


def build_cxx(case):
    """The example in C++, which users have to build as well."""
    source = os.path.join(HERE, "..", "..", "examples", "power_iteration.cpp")
    code, out, err = case.call(os.path.join(BIN, "oshc++"), "-std=c++11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic",
                               source, "-o", "power_iteration")
    case.assertEqual((code, out, err), (0, "", ""))


class OneHost(shmem_lab.Case):
    def test_cxx(self):
        build_cxx(self)
        for pes, rows in ((1, 40), (3, 100), (4, 2)):  # also more PEs than rows
            self.assertIn("PASS: %d rows on %d PEs" % (rows, pes), self.good("-n", pes, "--timeout", 90, "./power_iteration", rows,
                                                                             env={"VIADUCT_SHMEM_CHECK": "abort"}))
        self.bad("-n", 2, "./power_iteration", 0, code=1, expected="")

    def test_examples(self):
        for name in EXAMPLES:
            for pes in (1, 2, 3, 8):
                with self.subTest(name, pes=pes):
                    self.passes(name, "-n", pes, "--timeout", 90)

    def test_other_sizes(self):
        for name, words, expected in (
                ("histogram", (10, 1), "PASS: 30 numbers in 1 bins on 3 PEs, 0 bins are wrong"),
                ("integer_sort", (0,), "PASS: 0 keys sorted by 3 PEs, 0 out of place, sum 0 (before: 0)"),
                ("integer_sort", (1,), "PASS: 3 keys"),
                ("producer_consumer", (1,), "PASS: 1 pieces of 64 words by 1 producers, 0 words are wrong"),
                ("teams", (1,), "PASS: 3 x 1 PEs, 3 x 1 numbers, 0 are wrong")):
            with self.subTest(name, words=words):
                self.assertIn(expected, self.good("-n", 3, "--timeout", 90, program(name), *words))

    def test_short_ones(self):
        for name, size in SHORT:
            for pes in (1, 4):
                with self.subTest(name, pes=pes):
                    self.assertIn("PASS", self.good("-n", pes, "--timeout", 90, program(name), size,
                                                    env={"VIADUCT_SHMEM_CHECK": "abort"}))

    def test_teams_of_several_columns(self):
        self.assertIn("PASS: 3 x 2 PEs", self.passes("teams", "-n", 6))


class OverTheRing(test_shmem_ring.Ring):
    def test_cxx(self):
        build_cxx(self)
        self.assertIn("PASS", self.good("-n", 5, "--spread", "--timeout", 90, "./power_iteration", 100))

    def test_examples(self):
        for name, words in (("histogram", (300, 50)), ("integer_sort", (5000,)), ("producer_consumer", (200,)),
                            ("teams", (20,)), ("transpose", (8,)), ("locks", (20,)), ("wait_any", (20,)),
                            ("node_shared", (100,)), ("thread_contexts", (100,))):
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 4, "--spread", "--timeout", 90, program(name), *words,
                                                env={"VIADUCT_SHMEM_CHECK": "abort"}))


if __name__ == "__main__":
    shmem_lab.main()

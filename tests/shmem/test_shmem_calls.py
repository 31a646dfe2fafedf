#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Every call of OpenSHMEM, by 1 to 8 PEs of one host; and the examples."""
import json
import os

import shmem_lab


class Calls(shmem_lab.Case):
    def test_programs(self):
        for name in ("rma", "amo", "wait", "memory", "order", "collect", "query"):
            for pes in (1, 2, 3, 4):
                with self.subTest(name, pes=pes):
                    self.assertEqual(self.passes(name, "-n", pes, "--timeout", 90),
                                     "PASS %s\n" % name)

    def test_random_operations_against_a_model(self):
        for pes, seed in ((1, 1), (2, 2), (3, 3), (4, 4), (8, 5)):
            with self.subTest(pes=pes, seed=seed):
                self.assertIn("PASS", self.good("-n", pes, "--timeout", 90, shmem_lab.program("fuzz"), seed))

    def test_the_heap_grows(self):
        for pes in (1, 2, 4):
            for seed in (1, 2):
                with self.subTest(pes=pes, seed=seed):
                    self.assertIn("PASS", self.good("-n", pes, "--timeout", 90, shmem_lab.program("heap"),
                                                    seed, env=shmem_lab.SMALL_HEAP))

    def test_a_heap_without_addresses_to_grow_into(self):
        # A limit of addresses: the PEs start, and what does not fit is NULL, as beyond any limit.
        self.bad("-n", 2, "--timeout", 90, "sh", "-c", "ulimit -v 1000000; exec %s" % shmem_lab.program("heap"),
                 code=1, expected="1048576 bytes: the heap grows",
                 env={**shmem_lab.SMALL_HEAP, "VIADUCT_SHMEM_HEAP_MAX": "1g"})

    def test_more_pes_than_cores(self):
        for name in ("order", "collect"):
            with self.subTest(name):
                self.passes(name, "-n", 8, "--timeout", 90)

    def test_more_pes_than_poll_each_other_in_a_barrier(self):
        self.passes("order", "-n", 20, "--timeout", 90)

    def test_without_a_launcher_it_is_one_pe(self):
        for name in ("rma", "memory", "collect", "hello"):
            with self.subTest(name):
                code, out, err = self.call(shmem_lab.program(name))
                self.assertEqual((code, err), (0, ""), out)
                self.assertIn("PASS", out)

    def test_examples(self):
        for pes in (1, 2, 4, 8):
            with self.subTest(pes=pes):
                out = self.passes("hello", "-n", pes)
                self.assertEqual(out.count("Hello from PE"), pes)
                self.passes("ring_shift", "-n", pes)
                self.passes("heat_stencil", "-n", pes)

    def test_examples_of_other_sizes(self):
        out = self.good("-n", 3, shmem_lab.program("heat_stencil"), 7, 100, 33)
        self.assertIn("PASS: 7 x 100 points, 33 steps, 3 PEs", out)
        self.assertIn("PASS: 1 numbers", self.good("-n", 3, shmem_lab.program("ring_shift"), 1))
        self.bad("-n", 3, shmem_lab.program("heat_stencil"), 2, 2, 2, code=1,
                 expected="FAIL: each of 3 PEs needs a row")


class Statistics(shmem_lab.Case):
    def test_each_pe_counts_bytes_by_path(self):
        path = os.path.join(self.folder, "stats")
        self.passes("rma", "-n", 2, env={"VIADUCT_SHMEM_STATS": path})
        with open(path, encoding="utf-8") as lines:
            stats = sorted((json.loads(line) for line in lines), key=lambda pe: pe["pe"])
        self.assertEqual([pe["pe"] for pe in stats], [0, 1])
        for pe in stats:
            self.assertGreater(pe["direct_bytes"], 1000000)
            self.assertGreater(pe["direct_calls"], 1000)
            self.assertEqual((pe["window_bytes"], pe["frames_bytes"]), (0, 0))


if __name__ == "__main__":
    shmem_lab.main()

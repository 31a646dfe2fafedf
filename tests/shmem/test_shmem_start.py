#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The start of a job: what a PE maps of the others, and when; many PEs."""
import shmem_lab


class Start(shmem_lab.Case):
    env = shmem_lab.SMALL_HEAP

    def test_memory_of_others_is_mapped_at_its_first_use(self):
        self.assertIn("PASS", self.good("-n", 20, "--timeout", 60, shmem_lab.program("start"), "same-host"))

    def test_many(self):
        self.assertIn("PASS", self.good("-n", 64, "--timeout", 60, shmem_lab.program("start"), "same-host"))


if __name__ == "__main__":
    shmem_lab.main()

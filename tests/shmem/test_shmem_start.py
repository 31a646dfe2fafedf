#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The start of a job: which memory of other PEs a PE maps, and when; many PEs."""
import shmem_lab


class Start(shmem_lab.Case):
    env = shmem_lab.SMALL_HEAP

    def test_memory_of_others_is_mapped_at_its_first_use(self):
        self.assertIn("PASS", self.good("-n", 20, "--timeout", 60, shmem_lab.program("start"), "same-host"))

    def test_many(self):
        self.assertIn("PASS", self.good("-n", 64, "--timeout", 60, shmem_lab.program("start"), "same-host"))

    def test_descriptors_of_others_leave_the_program_its_own(self):
        """Two for each PE, which are more than the soft limit."""
        code, out, err = self.call("sh", "-c", "ulimit -Sn 130; exec \"$@\"", "sh", shmem_lab.OSHRUN, "-n", 64, "--timeout", 60,
                                   shmem_lab.program("start"), "same-host")
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("PASS", out)

    def test_more_descriptors_than_there_may_be(self):
        code, out, err = self.call("sh", "-c", "ulimit -n 100; exec \"$@\"", "sh", shmem_lab.OSHRUN, "-n", 64, "true")
        self.assertNotEqual(code, 0, out)
        self.assertRegex(err, "each PE of a machine takes two descriptors of the hard limit")


if __name__ == "__main__":
    shmem_lab.main()

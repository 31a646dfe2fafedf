#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""oshinfo: its output agrees with the library."""
import json
import os
import re

import shmem_lab
from shmem_lab import BIN, program

OSHINFO = os.path.join(BIN, "oshinfo")


class Info(shmem_lab.Case):
    env = {"VIADUCT_RUNDIR": "/nowhere"}

    def info(self, **env):
        code, out, err = self.call(OSHINFO, "--json", env=env)
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def variable(self, info, name):
        return next(one for one in info["variables"] if one["name"] == name)

    def test_json(self):
        info = self.info(SHMEM_SYMMETRIC_SIZE=".5m", VIADUCT_SHMEM_CHECK="loud")
        self.assertEqual(info["standard"], "1.6")
        self.assertEqual(info["limits"]["pes_max"], 1024)
        self.assertIn(info["memory"]["cores"], range(1, len(os.sched_getaffinity(0)) + 1))
        self.assertEqual(info["memory"]["machine_bytes"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"))
        self.assertEqual(info["fabric"]["hosts"], [])
        self.assertIn("/nowhere", info["fabric"]["none"])
        self.assertEqual(self.variable(info, "SHMEM_SYMMETRIC_SIZE")["value"], ".5m")
        self.assertNotIn("wrong", self.variable(info, "SHMEM_SYMMETRIC_SIZE"))
        self.assertIn("expected 1, warn", self.variable(info, "VIADUCT_SHMEM_CHECK")["wrong"])
        self.assertIsNone(self.variable(info, "SHMEM_DEBUG").get("value"))

    def test_sizes_of_the_heap(self):
        small, large = self.info(SHMEM_SYMMETRIC_SIZE="64m"), self.info(SHMEM_SYMMETRIC_SIZE="65m")
        self.assertEqual(large["memory"]["heap_bytes"] - small["memory"]["heap_bytes"], 1 << 20)
        self.assertEqual(self.info(SMA_SYMMETRIC_SIZE="65m")["memory"], large["memory"])
        limited = self.info(SHMEM_SYMMETRIC_SIZE="64m", VIADUCT_SHMEM_HEAP_MAX="80m")["memory"]
        self.assertEqual(limited["heap_bytes_grows_to"], 80 << 20)
        wrong = self.info(SHMEM_SYMMETRIC_SIZE="huge")
        self.assertIn("not a size", wrong["memory"]["error"])
        self.assertIn("not a size", self.variable(wrong, "SHMEM_SYMMETRIC_SIZE")["wrong"])

    def test_text(self):
        code, out, err = self.call(OSHINFO, env={"SHMEM_DEBUG": "1", "VIADUCT_SHMEM_HEAP_MAX": "much"})
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^Viaduct OpenSHMEM \d+\.\d+\.\d+, OpenSHMEM 1\.6, SHMEM_THREAD_MULTIPLE\n")
        self.assertRegex(out, r'(?m)^  SHMEM_DEBUG +  ?= "1"$')
        self.assertRegex(out, r'(?m)^  VIADUCT_SHMEM_HEAP_MAX +  ?= "much" -- WRONG: not a size')
        self.assertRegex(out, r"(?m)^  SHMEM_SYMMETRIC_SIZE +  ?not set: 1g$")

    def test_oshinfo_lists_all_variables_of_the_library(self):
        """Every variable in the output of SHMEM_INFO."""
        names = {one["name"] for one in self.info()["variables"]}
        _, _, err = self.call(program("hello"), env={"SHMEM_INFO": "1"})
        self.assertEqual(set(re.findall(r"(?m)^  (\w+) ", err)), names)

    def test_mistakes(self):
        for words, expected in ((["--loud"], "--loud: unknown option"), (["now"], "now: takes no argument")):
            code, out, err = self.call(OSHINFO, *words)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(expected, err)
        self.assertIn("usage: oshinfo", self.call(OSHINFO, "--help")[1])
        self.assertRegex(self.call(OSHINFO, "--version")[1], r"^oshinfo \(Viaduct\) \d")


if __name__ == "__main__":
    shmem_lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct perf shmem: its output and files; not the speed."""
import ast
import csv
import os

import shmem_lab
from shmem_lab import BIN

VIADUCT = os.path.join(BIN, "viaduct")


class Perf(shmem_lab.Case):
    def setUp(self):
        super().setUp()
        self.environment["XDG_RUNTIME_DIR"] = self.folder

    def test_table_file_script_and_time_left(self):
        self.environment["VIADUCT_PROGRESS"] = "1"
        code, out, err = self.call(VIADUCT, "perf", "shmem", "--hosts", "3-4", "--threads", "1,2", "--sizes", "8,4K",
                                   "--seconds", "0.002", "--csv", "figures.csv", "--plot", "draw")
        self.assertEqual(code, 0, err)
        # It brings up five rings: no machine does that within two seconds.
        self.assertRegex(err, r"\A(viaduct perf shmem: run \d+ of 31, \d+ s left\n)+\Z")
        for title in ("Put and get by size", "Put, of raw", "Time by step", "Turn-around",
                      "Latency when all hosts put at once, neighbour", "two hops", "Barrier, us"):
            self.assertIn(title, out)
        with open(os.path.join(self.folder, "figures.csv"), encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        together = {(row["hosts"], row["threads"], row["path"], row["bytes"]) for row in rows
                    if row["test"] == "all put at once"}
        # Of three hosts, all are neighbours.
        self.assertEqual(together, {(hosts, threads, path, size) for hosts in "34" for threads in "12"
                                    for path in ("neighbour", "two hops") for size in ("8", "4096")
                                    if (hosts, path) != ("3", "two hops")})
        barriers = {(row["hosts"], row["threads"], row["path"]) for row in rows if row["test"] == "barrier"}
        self.assertEqual(barriers, {(hosts, threads, way) for hosts in "34" for threads in "12"
                                    for way in ("windows", "doorbells")})
        for row in rows:
            self.assertGreater(float(row["value"]), 0, row)
        with open(os.path.join(self.folder, "draw"), encoding="utf-8") as script:
            ast.parse(script.read())

    def test_mistakes(self):
        for words, expected in ((["--hosts", "2-3"], "not a number from 3 to 16"), (["--sizes", "0"], "not 1 to 1G bytes"),
                                (["--threads", "99"], "from 1 to 14"), (["--seconds", "x"], "not a number above 0"),
                                (["--plot", "draw"], "--csv, which is not given"), (["--hosts", "5-3"], "larger")):
            with self.subTest(words):
                code, out, err = self.call(VIADUCT, "perf", "shmem", *words)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(expected, err)
        code, out, err = self.call(VIADUCT, "perf", "shmem", "--help")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("usage: viaduct perf shmem", out)


if __name__ == "__main__":
    shmem_lab.main()

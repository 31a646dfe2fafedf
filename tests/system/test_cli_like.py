#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct up --like: fabrics whose links guarantee only what real links of a class do."""
import os
import time

import cli

CLASSES = ("pex", "ivshmem", "network")


class Like(cli.Case):
    def test_each_class_carries_data_and_survives_a_cut(self):
        for like in CLASSES:
            with self.subTest(like):
                self.good("up", "--ring", "3", "--like", like)
                status = self.status()
                self.assertEqual(status["like"], like)
                self.assertIn("links like %s, windows of" % like, self.good("status"))
                self.assertRegex(self.good("perf", "put", "--from", "1", "--to", "2", "--size", "64K"), "64K +frames")
                self.good("cut", "1", "2")
                self.assertRegex(self.good("perf", "put", "--from", "1", "--to", "2", "--size", "64K"), "2 hops")
                self.good("mend", "1", "2")
                self.good("down")
        self.assert_nothing_left()

    def test_status_shows_what_ports_promise(self):
        for like, words, read_ns in (("pex", "commits +posted +8 B +1.5 us", 1500), ("network", "commits +posted +8 B +10 us", 10000)):
            with self.subTest(like):
                self.good("up", "--chain", "2", "--like", like)
                self.assertRegex(self.good("status", "--ports"), r"1 +2 +emu +[0-9.]+ MiB +[0-9.]+ MiB +" + words)
                ports = self.status()["links"][0]["ports"]
                self.assertEqual([port["host"] for port in ports], [1, 2])
                self.assertEqual({port["caps"]["read_ns"] for port in ports}, {read_ns})
                self.good("down")
        self.good("up", "--chain", "2")
        self.assertRegex(self.good("status", "--ports"), "all +coherent +8 B +as memory")
        self.good("down")

    def test_the_environment_selects_the_class(self):
        self.env["VIADUCT_UP_LIKE"] = "pex"
        self.good("up", "--chain", "2", "--window", "8")
        self.assertIn("links like pex, windows of 8 MiB", self.good("status"))
        self.good("down")
        self.good("up", "--chain", "2", "--like", "memory")
        self.assertEqual(self.status()["like"], "memory")
        self.good("down")
        self.env["VIADUCT_UP_LIKE"] = "carrier-pigeon"
        self.bad("up", "--chain", "2", code=2, expected="VIADUCT_UP_LIKE: 'carrier-pigeon': not a class of links")

    def test_wrong_options_are_refused(self):
        self.bad("up", "--chain", "2", "--like", "copper", code=2,
                 expected="--like: 'copper': not a class of links: memory, pex, ivshmem or network")
        for words in ((), ("--like", "network")):
            self.bad("up", "--chain", "2", "--window", "4", *words, code=2, expected="--window: only with --like")
        for size in ("0", "65", "1.5", "4M"):
            self.bad("up", "--chain", "2", "--like", "pex", "--window", size, code=2,
                     expected="--window: '%s': a number from 1 to 64" % size)
        self.assert_nothing_left()

    def test_a_window_of_one_mebibyte_is_enough(self):
        self.good("up", "--chain", "2", "--like", "pex", "--window", "1", "--channels", "14")
        self.assertIn("windows of 1 MiB", self.good("status"))
        self.assertRegex(self.good("perf", "put", "--from", "1", "--to", "2", "--size", "1M"), "1M +frames")
        self.good("down")

    def test_an_idle_fabric_is_idle(self):
        for like in CLASSES:
            with self.subTest(like):
                self.good("up", "--ring", "4", "--like", like)
                pids = [host["pid"] for host in self.status()["hosts"]]
                before = cpu_s(pids)
                time.sleep(5)
                # Four hosts use less than 0.01 of a CPU; this build is slower, because of its sanitizers.
                self.assertLess((cpu_s(pids) - before) / 5, 0.03)
                self.good("down")


def cpu_s(pids):
    ticks = 0
    for pid in pids:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    cli.main()

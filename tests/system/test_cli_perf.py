#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct perf: it prints its figures, over both paths, and reports what can not be measured."""
import json
import os
import signal
import socket
import time

import cli


class Words(cli.Case):
    def test_mistakes_in_the_command_line_give_2_and_the_way_to_help(self):
        for words, expected in [
                ([], "which test?"), (["ping"], "'ping': unknown test"),
                (["put", "get"], "'get': one test at a time"),
                (["put", "--sizes", "0"], "--sizes: '0'"), (["put", "--sizes", "8,4X"], "'4X'"),
                (["put", "--sizes", "2G"], "'2G'"), (["put", "--sizes", "8,"], "''"),
                (["put", "--sizes", ",".join(["8"] * 33)], "one too many"),
                (["pingpong", "--sizes", "12"], "a multiple of 8 bytes"),
                (["put", "--channels", "14"], "'14': not the number of a channel"),
                (["put", "--seconds", "0"], "'0': not a number above 0"),
                (["put", "--seconds", "nan"], "'nan'"), (["put", "--iterations", "0"], "'0'"),
                (["put", "--from", "0"], "--from: '0': not the id"),
                (["put", "--to", "256"], "--to: '256'"),
                (["put", "--hosts", "1,2"], "--hosts is for barrier"),
                (["barrier", "--hosts", "1,x"], "--hosts: 'x'"),
                (["put", "--spread", "x"], "--spread: 'x'"),
                (["barrier", "--spread", "1M"], "--spread is for put and get"),
                (["barrier", "--no-memcpy"], "--no-memcpy is for put and get"),
                (["put", "--wrong"], "unrecognized option '--wrong'")]:
            with self.subTest(words):
                err = self.bad("perf", *words, code=2, expected=expected)
                self.assertIn("--help'", err.splitlines()[-1])
        self.assert_nothing_left()

    def test_without_a_fabric_perf_reports_that(self):
        self.bad("perf", "put", expected="it is not up")
        self.assert_nothing_left()


class Dma(cli.Case):
    """Large bodies by the emulated engine, over a relay."""

    def dma_bytes(self, host):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(os.path.join(self.rundir, "host-%d.ctl" % host))
            control.sendall(b'{"cmd":"status"}\n')
            with control.makefile() as answer:
                return [link["dma_bytes"] for link in json.loads(answer.readline())["links"]]

    def test_puts_and_gets_by_dma(self):
        self.good("up", "--chain", "3", "--dma-bytes", "1024")
        for test in ("put", "get"):
            report = json.loads(self.good("perf", test, "--json", "--iterations", "20", "--sizes", "64,1M",
                                          "--from", "1", "--to", "3"))
            self.assertEqual({row["bytes"] for row in report["rows"]}, {64, 1 << 20})
        for host in (1, 2, 3):
            self.assertGreater(min(self.dma_bytes(host)), 0)
        self.good("down")
        self.assert_nothing_left()

    def test_a_dma_size_out_of_range_is_refused(self):
        self.bad("up", "--chain", "2", "--dma-bytes", "65473", code=2, expected="--dma-bytes: '65473': a number from 0")
        self.assert_nothing_left()


class Chain(cli.Case):
    """Three hosts in a row: neighbours, and a relay between."""

    def setUp(self):
        super().setUp()
        self.good("up", "--chain", "3")

    def tearDown(self):
        self.good("down")
        self.assert_nothing_left()

    def perf(self, *words):
        report = json.loads(self.good("perf", "--json", "--iterations", "200", *words))
        for row in report["rows"]:
            self.assertGreater(row["ns"], 0)
            self.assertGreaterEqual(row["ns"], row["ns_min"])
            self.assertLessEqual(row["ns"], row["ns_max"])
        return report

    def rows(self, report, keys):
        return [tuple(row[key] for key in keys) for row in report["rows"]]

    def test_each_test_directly_and_by_frames(self):
        for test in ("put", "get"):
            report = self.perf(test, "--to", "2", "--sizes", "8,100,64K", "--spread",
                               "150000")
            self.assertEqual(self.rows(report, ("bytes", "path", "hops")),
                             [(8, "direct", 1), (100, "direct", 1), (65536, "direct", 1)])
            report = self.perf(test, "--to", "3", "--sizes", "8,200000", "--channels", "0,1")
            self.assertEqual(self.rows(report, ("bytes", "path", "hops")),
                             [(8, "frames", 2), (200000, "frames", 2)])
            for row in report["rows"]:
                self.assertGreater(row["bytes_per_second"], 0)
                self.assertGreater(row["memcpy_bytes_per_second"], 0)
        for to, path in ((2, "direct"), (3, "frames")):
            report = self.perf("pingpong", "--to", str(to), "--sizes", "8,4K")
            self.assertEqual(self.rows(report, ("bytes", "path")), [(8, path), (4096, path)])
        report = self.perf("barrier")
        self.assertEqual(report["hosts"], [1, 2, 3])
        report = self.perf("barrier", "--hosts", "3,2")
        self.assertEqual((report["hosts"], report["from"]), ([2, 3], 2))

    def test_longer_runs_print_the_time_left(self):
        """Steps and the time left, on standard error; standard output is unchanged, and without a terminal nothing is
        printed."""
        words = ["perf", "put", "--sizes", "8,64,512", "--seconds", "1.2", "--json"]
        self.assertEqual(self.call(*words)[2], "")
        code, out, err = self.call(*words, env={"VIADUCT_PROGRESS": "1"})
        self.assertEqual(code, 0)
        self.assertEqual(len(json.loads(out)["rows"]), 3)
        self.assertRegex(err, r"\Aviaduct perf: size 1 of 3, \d+ s left\nviaduct perf: size 2 of 3, \d+ s left\n\Z")
        self.assertEqual(self.call("perf", "put", "--sizes", "8", "--seconds", "0.1", env={"VIADUCT_PROGRESS": "1"})[2], "")

    def test_plans_and_scaling_print_the_time_left(self):
        """The simulator's commands print the same line. A fast machine needs more work for a command that takes two
        seconds."""
        commands = ((lambda factor: ["plan", "--topology", "ring", "--hosts", "32", "--events", str(600000 * factor)],
                     r"viaduct plan: event \d+ of \d+, \d+ s left\n"),
                    (lambda factor: ["sim", "scale", "--shape", "ring", "--hosts", "64,256" + ",512" * factor],
                     r"viaduct sim scale: host \d+ of \d+, \d+ s left\n"),
                    (lambda factor: ["sim", "paper", "A" if factor == 1 else "all"], r"viaduct sim paper: step \d+ of \d+, \d+ s left\n"))
        for words, line in commands:
            with self.subTest(line=line):
                for factor in (1, 2, 4, 8, 16):
                    code, _, err = self.call(*words(factor), env={"VIADUCT_PROGRESS": "1"}, timeout=10 * cli.HANG_S)
                    self.assertEqual(code, 0, err)
                    if err:
                        break
                self.assertRegex(err, r"\A(%s)+\Z" % line)

    def test_two_processes_of_one_host(self):
        report = self.perf("pingpong", "--from", "2", "--to", "2")
        self.assertEqual(self.rows(report, ("path", "hops")), [("direct", 0)])

    def test_the_table_has_a_line_for_each_size(self):
        out = self.good("perf", "put", "--iterations", "20", "--sizes", "8,1K,64K,1M")
        self.assertEqual([line.split()[0] for line in out.splitlines()],
                         ["put,", "bytes", "8", "1K", "64K", "1M"])

    def test_unknown_hosts_are_refused(self):
        self.bad("perf", "put", "--to", "9", expected="host 9: no such host")
        self.bad("perf", "barrier", "--hosts", "1,9", expected="host 9: no such host")
        self.bad("perf", "barrier", "--hosts", "1,1", expected="host 1: is in --hosts twice")

    def test_a_host_that_is_down(self):
        self.kill(2)
        self.bad("perf", "put", "--to", "2", expected="host 2")
        self.bad("perf", "put", "--from", "2", "--to", "1", expected="host 2")

    def test_the_peer_process_ends_with_a_killed_command(self):
        process = self.start("perf", "put", "--seconds", "60")
        try:
            self.assertTrue(cli.wait_for(
                lambda: any(host["processes"] for host in self.status()["hosts"])))
            time.sleep(0.2)
        finally:
            process.kill()
            process.communicate()
        self.assertTrue(cli.wait_for(lambda: not any(
            host["processes"] for host in self.status()["hosts"])))

    def test_the_death_of_a_host_ends_the_command(self):
        process = self.start("perf", "put", "--to", "3", "--seconds", "60")
        self.addCleanup(process.kill)
        self.assertTrue(cli.wait_for(
            lambda: len([h for h in self.status()["hosts"] if h["processes"]]) == 2))
        time.sleep(0.2)
        os.kill(self.pid(1), signal.SIGKILL)
        _, err = process.communicate(timeout=cli.HANG_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("host 1", err)


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The preload between hosts of an emulated ring: neighbours, a relay, cut and mended cables."""
import json
import os
import subprocess
import threading
import time
import unittest

from lab import CHECKS, Case, STREAM, VIADUCT, free_port, need

FABRIC = "sockets-%d" % os.getpid()
SILENCE_MS_MAX = 300


def viaduct(*words):
    done = subprocess.run([VIADUCT, *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError("viaduct %s: %s" % (" ".join(words), done.stderr or done.stdout))
    return done.stdout


class Hosts(Case):
    """Between host 1 and `server_host`."""

    server_host = 2

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(VIADUCT):
            raise unittest.SkipTest("%s is not built" % VIADUCT)
        viaduct("up", "--ring", "4", "--fabric", FABRIC)
        cls.addClassCleanup(viaduct, "down", "--fabric", FABRIC)

    def setUp(self):
        super().setUp()
        run = [VIADUCT, "run", "--fabric", FABRIC, "--host"]
        self.server_words = [*run, str(self.server_host), "--"]
        self.client_words = [*run, "1", "--"]
        self.address = "127.77.0.%d" % self.server_host

    def environment(self, preload, **more):
        return super().environment(False, **more)

    def by_frames(self, entries):
        return sum(e["bytes_frames_tx"] for e in entries) / sum(e["bytes_pipe_tx"] for e in entries)

    def echo_while(self, megabytes, disturb):
        """Checked bytes there and back while disturb(stop) runs beside; what the client measured."""
        stop = threading.Event()
        beside = threading.Thread(target=disturb, args=(stop,))
        beside.start()
        try:
            return self.echo(megabytes, 5)
        finally:
            stop.set()
            beside.join()


class Neighbours(Hosts):
    def test_every_byte(self):
        for seed in range(3):
            self.echo(48, seed)
            entries = self.lines()
            self.assert_by_pipes(entries)
            self.assertLess(self.by_frames(entries), 0.2, entries)

    def test_iperf3(self):
        for options in ((), ("-R",), ("-P", "2")):
            self.iperf3("-t", "1", *options)
            self.assert_by_pipes(self.lines())

    def test_redis(self):
        self.redis()
        self.assert_by_pipes(self.lines())

    def test_http(self):
        self.http()
        self.assert_by_pipes(self.lines())

    def test_plain_client(self):
        """A program outside of the fabric talks to one on a host."""
        port = free_port(self.address)
        server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
        subprocess.run([STREAM, "echo", self.address, str(port), "1000000", "3"], check=True, timeout=30,
                       stdout=subprocess.DEVNULL)
        self.finish(server)
        (entry,) = self.lines()
        self.assertEqual(entry["accelerated"], 0)

    def test_checks_within_one_host(self):
        """The checks connect to themselves by 127.0.0.1, with a host's environment around them."""
        out = self.run_client([CHECKS], timeout=240)
        self.assertEqual([line for line in out.splitlines() if not line.startswith("ok ")], [])

    def test_a_cut_cable_costs_no_byte(self):
        def cut_once(stop):
            time.sleep(0.4)
            viaduct("cut", "--fabric", FABRIC, "1", "2")
            stop.wait(1.0)
            viaduct("mend", "--fabric", FABRIC, "1", "2")

        result = self.echo_while(400, cut_once)
        self.assertEqual(result["bytes"], 400 << 20)
        self.assertLess(result["silence_ms"], SILENCE_MS_MAX)
        self.assert_by_pipes(self.lines())

    def test_cables_cut_and_mended_all_the_time(self):
        def keep_cutting(stop):
            while not stop.is_set():
                viaduct("cut", "--fabric", FABRIC, "1", "2")
                stop.wait(0.15)
                viaduct("mend", "--fabric", FABRIC, "1", "2")
                stop.wait(0.25)

        result = self.echo_while(200, keep_cutting)
        self.assertEqual(result["bytes"], 200 << 20)
        self.assert_by_pipes(self.lines())

    def test_iperf3_over_a_cut(self):
        need("iperf3")
        port = free_port(self.address)
        server = self.start(["iperf3", "-s", "-1", "-p", str(port)], port=port)
        cut = threading.Timer(1.0, viaduct, ("cut", "--fabric", FABRIC, "1", "2"))
        cut.start()
        try:
            out = json.loads(self.run_client(["iperf3", "-c", self.address, "-p", str(port), "-J", "-t", "3",
                                              "-i", "0.1"]))
        finally:
            cut.join()
            viaduct("mend", "--fabric", FABRIC, "1", "2")
        self.finish(server)
        silent = longest = 0
        for interval in out["intervals"]:
            silent = silent + 1 if interval["sum"]["bytes"] == 0 else 0
            longest = max(longest, silent)
        self.assertLessEqual(longest * 100, SILENCE_MS_MAX)
        entries = self.lines()
        self.assert_by_pipes(entries)
        self.assertGreater(self.by_frames(entries), 0)


class OverARelay(Hosts):
    server_host = 3

    def test_every_byte(self):
        self.echo(48, 9)
        entries = self.lines()
        self.assert_by_pipes(entries)
        self.assertEqual(self.by_frames(entries), 1)

    def test_iperf3(self):
        self.iperf3("-t", "1")
        self.assert_by_pipes(self.lines())

    def test_redis(self):
        self.redis()
        self.assert_by_pipes(self.lines())

    def test_http(self):
        self.http()
        self.assert_by_pipes(self.lines())

    def test_what_was_sent_before_a_close_arrives(self):
        # Short: some bytes still go by the kernel, some by frames, and the close comes at once.
        self.http(size=6 << 20, times=30)
        self.assertGreater(self.by_frames(self.lines()), 0)

    def test_a_cut_on_the_way(self):
        def cut_each(stop):
            while not stop.is_set():
                for a, b in (("1", "2"), ("3", "4")):
                    viaduct("cut", "--fabric", FABRIC, a, b)
                    stop.wait(0.3)
                    viaduct("mend", "--fabric", FABRIC, a, b)
                    stop.wait(0.3)

        result = self.echo_while(100, cut_each)
        self.assertEqual(result["bytes"], 100 << 20)
        self.assert_by_pipes(self.lines())


del Hosts

if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    unittest.main()

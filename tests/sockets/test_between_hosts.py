#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The preload between hosts of an emulated ring: neighbours, a relay, cut and mended cables."""
import json
import os
import subprocess
import threading
import unittest

from hosts import Hosts, beside, cut, keep_cutting, mend
from lab import BIN, CHECKS, HANG_S, STREAM, end, free_port, need

BURST = os.path.join(BIN, "tests", "prog_burst")


class Carried(Hosts):
    def echo_while(self, megabytes, disturb):
        """Checked bytes there and back while disturb(stop) runs beside; what the client measured."""
        with beside(disturb):
            return self.echo(megabytes, 5)

    def burst(self, count, size, seed):
        """Short connections, whose server closes after its last byte; each byte is checked."""
        port = free_port(self.address)
        server = self.start([BURST, "serve", self.address, str(port)], port=port)
        for _ in range(5):
            self.run_client([BURST, "fetch", self.address, str(port), str(count), "8", str(size), str(seed)],
                            timeout=4 * HANG_S)
            (entry,) = self.lines()
            if entry["bytes_pipe_rx"] > 0:
                break
        end(server)
        self.assertGreater(entry["bytes_pipe_rx"], 0, entry)


class Neighbours(Carried):
    def test_every_byte(self):
        by_frames = []
        for seed in range(3):
            self.echo(48, seed)
            entries = self.lines()
            self.assert_by_pipes(entries)
            by_frames.append(self.by_frames(entries))
        self.assertLess(min(by_frames), 0.2, "neighbours use windows, whenever their link is up")

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
        subprocess.run([STREAM, "echo", self.address, str(port), "1000000", "3"], check=True, timeout=4 * HANG_S,
                       stdout=subprocess.DEVNULL)
        self.finish(server)
        (entry,) = self.lines()
        self.assertEqual(entry["accelerated"], 0)

    def test_checks_within_one_host(self):
        """The checks connect to themselves by 127.0.0.1, with a host's environment around them."""
        out = self.run_client([CHECKS], timeout=8 * HANG_S)
        self.assertEqual([line for line in out.splitlines() if not line.startswith("ok ")], [])

    def test_a_cut_cable_costs_no_byte(self):
        def cut_once(stop):
            stop.wait(0.4)
            cut("1", "2")
            stop.wait(1.0)
            mend("1", "2")

        result = self.echo_while(400, cut_once)
        self.assertEqual(result["bytes"], 400 << 20)
        self.assert_by_pipes(self.lines())

    def test_cables_cut_and_mended_all_the_time(self):
        result = self.echo_while(200, keep_cutting(0.15, 0.25))
        self.assertEqual(result["bytes"], 200 << 20)
        self.assert_by_pipes(self.lines())

    def test_servers_that_close_at_once(self):
        self.burst(1000, 1 << 20, 1)

    def test_servers_that_close_while_cables_are_cut(self):
        with beside(keep_cutting(0.1, 0.2)):
            self.burst(500, 1 << 20, 2)

    def test_iperf3_over_a_cut(self):
        need("iperf3")
        port = free_port(self.address)
        server = self.start(["iperf3", "-s", "-1", "-p", str(port)], port=port)
        cutting = threading.Timer(1.0, cut, ("1", "2"))
        cutting.start()
        try:
            out = json.loads(self.run_client(["iperf3", "-c", self.address, "-p", str(port), "-J", "-t", "3",
                                              "-i", "0.1"]))
        finally:
            cutting.join()
            mend("1", "2")
        self.finish(server)
        self.assertGreater(out["end"]["sum_received"]["bytes"], 0)
        entries = self.lines()
        self.assert_by_pipes(entries)
        self.assertGreater(self.by_frames(entries), 0, "it went on over the relays")


class OverARelay(Carried):
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

    def test_servers_that_close_at_once(self):
        self.burst(1000, 1 << 20, 1)

    def test_a_cut_on_the_way(self):
        result = self.echo_while(100, keep_cutting(0.3, 0.3, (("1", "2"), ("3", "4"))))
        self.assertEqual(result["bytes"], 100 << 20)
        self.assert_by_pipes(self.lines())


del Hosts, Carried

if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    unittest.main()

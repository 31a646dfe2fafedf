#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct perf pio: on each kind of port it measures the features of that port, and reports what is missing."""
import csv
import json
import os
import signal
import xml.etree.ElementTree

import cli

QUICK = ["--seconds", "0.0005"]
SERVER = ["--memory", "16MiB"]


class Pio(cli.Case):
    def pio(self, *words, sizes="8,64,4K"):
        report = json.loads(self.good("perf", "pio", "--json", *QUICK, "--sizes", sizes, *words))
        for row in report["rows"]:
            self.assertGreater(row["mean_ns"] + row["bytes_per_second"], 0)
            self.assertGreater(row["bytes_per_second"], 0)
            self.assertGreaterEqual(row["runs"], row["runs_kept"])
            self.assertGreaterEqual(row["runs_kept"], 1)
            if row["way"] == "store":
                self.assertEqual(row["bytes"] % row["store_bytes"], 0, row)
        return report

    def ways(self, report):
        return {row["way"] for row in report["rows"]}

    def emu(self, *options):
        path = os.path.join(self.folder, "link.sock")
        return [word for side in ("0", "1")
                for word in ("--link", ",".join(("emu:" + path, "side=" + side) + options))]

    def tearDown(self):
        self.assert_nothing_left()

    def test_an_emulated_link_is_reported_as_memory(self):
        report = self.pio()
        self.assertEqual(report["link"], "an emulated link")
        self.assertEqual(self.ways(report), {"store", "port", "dma", "memcpy"})
        widths = {(row["store_bytes"], row["nontemporal"]) for row in report["rows"] if row["way"] == "store"}
        self.assertLessEqual({(4, False), (8, False)}, widths)
        # Each size is measured with the store widths that divide it, and no others.
        self.assertEqual({row["store_bytes"] for row in report["rows"] if row["way"] == "store" and row["bytes"] == 8}, {4, 8})
        self.assertEqual({row["caching"] for row in report["rows"] if row["way"] == "store"}, {"mem"})
        limits = " ".join(report["limits"])
        self.assertIn("the window is memory of this machine", limits)
        self.assertIn("copies when the host polls for completions", limits)
        self.assertEqual([best["bytes"] for best in report["best"]["single"]], [8, 64, 4096])
        self.assertIsNotNone(report["crossover"])

    def test_the_crossover_agrees_with_the_rows(self):
        report = self.pio(*self.emu("like=pex"), sizes="8,1K,64K")
        self.assertEqual(self.ways(report), {"port", "dma", "memcpy"})
        self.assertIn("stores by width can not be measured", " ".join(report["limits"]))
        for key, better in (("single", lambda dma, cpu: dma["median_ns"] < cpu["median_ns"]),
                            ("sustained", lambda dma, cpu: dma["bytes_per_second"] > cpu["bytes_per_second"])):
            found = None
            for size in (65536, 1024, 8):
                rows = {row["way"]: row for row in report["rows"] if row["bytes"] == size}
                if not better(rows["dma"], rows["port"]):
                    break
                found = size
            self.assertEqual(report["crossover"][key + "_bytes"], found)
        # A round trip of this class takes 1.5 us: a posted message takes less; one whose arrival is confirmed does not.
        small = next(row for row in report["rows"] if row["way"] == "port" and row["bytes"] == 8)
        self.assertGreaterEqual(small["arrival_ns"], 1500)
        self.assertLess(small["median_ns"], small["arrival_ns"])

    def test_a_register_model(self):
        report = self.pio("--link", "pex:model:m,side=virtual", "--link", "pex:model:m,side=link", "--threads", "2")
        self.assertEqual(self.ways(report), {"store", "port", "dma", "memcpy"})
        self.assertIn("PEX 87xx", report["found"])
        self.assertIn("register model", " ".join(report["limits"]))
        self.assertEqual(report["threads"], 2)

    def test_messages_beyond_what_an_engine_takes_at_once(self):
        paths = [os.path.join(self.folder, name) for name in ("v", "l", "dv", "dl")]
        model = self.start("model", "pex", "--socket", paths[0], "--socket", paths[1], "--dma-socket", paths[2], "--dma-socket", paths[3])
        self.addCleanup(model.communicate)
        self.addCleanup(model.kill)
        self.assertIn("virtual side", model.stdout.readline())
        # Behind sockets a DMA takes 64 KiB.
        report = self.pio("--link", "pex:vfio-user:%s,dma=%s" % (paths[0], paths[2]), "--link", "pex:vfio-user:%s,dma=%s" % (paths[1], paths[3]),
                          sizes="64,1M")
        self.assertEqual({row["bytes"] for row in report["rows"] if row["way"] == "dma"}, {64, 1 << 20})

    def test_ivshmem_with_the_other_end_in_another_process(self):
        path = os.path.join(self.folder, "iv.sock")
        server = self.start("ivshmem-server", "--socket", path, *SERVER)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertIn("serves", server.stdout.readline())
        peer = self.start("perf", "pio", "--serve", "--link", "ivshmem:%s,side=1" % path)
        self.addCleanup(peer.communicate)
        self.addCleanup(peer.kill)
        report = self.pio("--link", "ivshmem:%s,side=0" % path)
        self.assertEqual(self.ways(report), {"store", "port", "memcpy"})
        self.assertIn("no DMA engine", " ".join(report["limits"]))
        self.assertIsNone(report["crossover"])
        peer.send_signal(signal.SIGTERM)
        self.assertEqual(peer.wait(cli.HANG_S), 0)

    def test_a_table_and_a_file_for_programs(self):
        path = os.path.join(self.folder, "rows.csv")
        out = self.good("perf", "pio", *QUICK, "--sizes", "8,1K,1M", "--csv", path)
        self.assertEqual([line.split()[0] for line in out.splitlines() if line.startswith("   ")],
                         ["bytes", "8", "1K", "1024K"] * 3)
        self.assertIn("note: the window is memory", out)
        self.assertRegex(out, r"one message: DMA is (not faster up to 1M|faster than every way of the CPU from \w+) bytes")
        with open(path, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["bytes"] for row in rows}, {"8", "1024", str(1 << 20)})
        self.assertIn("DMA", {row["way"] for row in rows})

    def test_the_picture_agrees_with_the_rows(self):
        path = os.path.join(self.folder, "rates.svg")
        report = self.pio("--plot", path, *self.emu("like=pex"), sizes="8,1K,64K")
        root = xml.etree.ElementTree.parse(path).getroot()
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual([text.split(" = ")[1] for text in texts if " = " in text], ["port", "DMA", "memcpy"])
        self.assertEqual(sum(text.endswith("MB/s by bytes") for text in texts), 2)
        marks = ["DMA above the CPU from %d B" % size for size in report["crossover"].values() if size is not None]
        self.assertEqual([text for text in texts if "above" in text], marks)
        points = list(root.iter("{http://www.w3.org/2000/svg}circle")) + list(root.iter("{http://www.w3.org/2000/svg}rect"))
        frames = 3  # the ground and two frames; each way has a mark in the legend
        # A message that takes no longer than a reading of the clock has no rate.
        drawn = sum((row["median_ns"] > 0) + (row["bytes_per_second"] > 0) for row in report["rows"])
        self.assertEqual(len(points), frames + 3 + drawn)

    def test_wrong_options_are_errors(self):
        for words, code, expected in [
                (["--sizes", "6"], 2, "--sizes: '6': not a multiple of 4"), (["--sizes", "2M"], 2, "'2M'"),
                (["--threads", "9"], 2, "--threads: '9'"), (["--seconds", "0"], 2, "--seconds: '0'"),
                (["--link", "a:b"] * 3, 2, "a link has two ends"), (["--serve"], 2, "one --link is needed"),
                (["--device", "vfio-user:x", "--link", "a:b"], 2, "either --device or --link"),
                (["more"], 2, "'more': not an option"), (["--cpu", "4096"], 2, "--cpu: '4096'"),
                (["--link", "tape:x"], 1, "there is no driver 'tape'"),
                (["--device", "vfio-user:/nonexistent"], 1, "vfio-user:/nonexistent"),
                (["--csv", "/nonexistent/x", "--sizes", "8"] + QUICK, 1, "/nonexistent/x: open"),
                (["--plot", "/nonexistent/x", "--sizes", "8"] + QUICK, 1, "/nonexistent/x: open"),
                (["--cpu", "1023", "--sizes", "8"] + QUICK, 1, "CPU 1023: pin the thread")]:
            with self.subTest(words):
                self.bad("perf", "pio", *words, code=code, expected=expected)

    def test_a_link_without_another_end(self):
        self.bad("perf", "pio", "--wait", "0.2", "--link", self.emu()[1], expected=["wait for the other end", "link.sock"])

    def test_a_link_that_goes_down_while_it_is_measured_is_an_error(self):
        """A link that goes down gives an error, and no table."""
        links = self.emu()
        peer = self.start("perf", "pio", "--serve", *links[2:])
        self.addCleanup(peer.communicate)
        self.addCleanup(peer.kill)
        near = self.start("perf", "pio", "--seconds", "0.5", *links[:2])
        self.addCleanup(near.kill)
        self.assertTrue(cli.wait_for(lambda: self.is_connected(near.pid)))
        peer.kill()
        out, err = near.communicate(timeout=cli.HANG_S)
        self.assertEqual((near.returncode, out), (1, ""))
        self.assertIn("viaduct perf pio: emu:", err)

    def is_connected(self, pid):
        try:
            with open("/proc/%d/maps" % pid, encoding="utf-8") as maps:
                return maps.read().count("viaduct-inbox") > 1  # its own, and its neighbour's
        except OSError:
            return False


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct report: a self-contained page, whose figures are those of the benchmarks."""
import html.parser
import json
import os
import re
import xml.etree.ElementTree

import cli

SOCKETS = [{"measure": "redis GET <b>&", "unit": "1/s", "against": "TCP", "base": [100, 110, 120], "viaduct": [200, 220, 240],
            "times_better": 2.0, "target": 1.6, "met": True},
           {"measure": "slow", "unit": "us", "against": "pipe", "base": [1], "viaduct": [4], "times_better": 0.25, "target": 0.9, "met": False}]
SYSTEM_A = [{"program": "iperf", "bytes": 1 << n, "tcp": [[10.0 * n + 1, 1]], "viaduct": [[20.0 * n + 1, 1]]} for n in range(0, 22, 3)]
SYSTEM_D = [{"connections": n, "bytes": 1 << 20, "ways": {"kernel TCP": [[1.5, 0.4]], "zero-copy": [[3.0 + n, 0.1]]}} for n in (1, 2, 4)]
SHMEM = {"cores": 2, "rounds": 1, "comparison": [{"measure": "put, 2 PEs", "unit": "us", "viaduct": 1, "peer": 2, "ratio": 0.5,
                                                 "goal": "at most 1", "met": True}],
         "figures": {"2 PEs": {"put": {"value": 1, "unit": "us"}}, "ring of 4": {"barrier": {"value": 7.25, "unit": "us"}}}}
FABRIC = {"iperf3, neighbour, x TCP": {"value": 1.75, "target": ">= 1.5", "met": True}, "iperf3": {"kernel TCP": [1]}}


SHMEM_SCALE = {"figures": [{"figure": "17 hosts / 16 hosts", "value": 0.9, "target": "at most 9.5", "met": True},
                           {"figure": "memory", "value": 360, "target": None, "met": None}]}


class Page(html.parser.HTMLParser):
    """Checks that tags are closed as they were opened, and collects references to anything outside the page."""

    VOID = {"meta", "br", "line", "rect", "polyline"}

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.tags, self.text = [], [], {}, ""

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if tag not in self.VOID:
            self.open.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href", "xlink:href") and not value.startswith("#")]

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.text += data


class Report(cli.Case):
    def put(self, name, data):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(data if isinstance(data, str) else json.dumps(data))

    def test_every_section_is_there_and_nothing_comes_from_outside(self):
        for name, data in (("sockets", SOCKETS), ("system_a", SYSTEM_A), ("system_d", SYSTEM_D), ("shmem", SHMEM), ("fabric", FABRIC),
                           ("shmem_scale", SHMEM_SCALE),
                           ("new_one", {"rows": [{"bytes": 8, "us": 0.5}]}), ("damaged", "{"), ("odd", [{"x": [1, 2]}, 3])):
            self.put("bench_%s.json" % name, data)
        out = self.good("report", "--bench", self.folder)
        path = os.path.join(self.folder, "report.html")
        self.assertEqual(out, "%s: 9 benchmarks\n" % path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        page = Page()
        page.feed(text)
        self.assertEqual(page.open, [])
        self.assertEqual(page.outside, [])
        self.assertNotIn("script", page.tags)
        self.assertNotRegex(text, r"@import|url\(|https?://")
        self.assertGreaterEqual(page.tags["svg"], 5)
        for svg in re.findall(r"<svg.*?</svg>", text, re.S):
            self.assertNotIn("nan", svg)
            texts = list(xml.etree.ElementTree.fromstring(svg).iter("text"))
            # A scale has two values at least, and the line about the target is below the values.
            if "a mark is the target" in svg:
                self.assertLess(max(float(t.get("y")) for t in texts[:-1]), float(texts[-1].get("y")))
            else:
                self.assertGreaterEqual(sum(t.get("text-anchor") == "end" for t in texts), 2, svg)
        for words in ("redis GET <b>&", "110", "220", "missed", "1 MiB", "zero-copy", "7.25", "1.75", "at most 9.5", "damaged.json is not understood",
                      "Without figures: bench_pipe, bench_ip, bench_ofi"):
            self.assertIn(words, page.text)
        # A figure that is twice as fast has a longer bar than one that is a quarter as fast.
        widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', text)]
        self.assertGreater(len(widths), 2)

    def test_scales_reach_the_largest_value_and_marks_cross_no_figure(self):
        rows = [{"measure": name, "unit": "s", "against": "TCP", "base": [1], "viaduct": [1], "times_better": value, "target": target,
                 "met": value >= target} for name, value, target in (("huge", 154953, 1), ("near", 1.81, 2), ("far", 1.81, 100))]
        self.put("bench_sockets.json", rows)
        self.good("report", "--bench", self.folder)
        with open(os.path.join(self.folder, "report.html"), encoding="utf-8") as file:
            svg = xml.etree.ElementTree.fromstring(re.search(r"<svg.*?</svg>", file.read(), re.S).group())
        scale = [float(t.text.replace(",", "")) for t in svg.iter("text") if t.get("text-anchor") == "middle"]
        self.assertGreaterEqual(max(scale), 154953 / 10)
        self.assertLess(len(scale), 12)
        marks = [(float(line.get("x1")), float(line.get("y1"))) for line in svg.iter("line") if line.get("stroke-width") == "2" and line.get("stroke")]
        figures = [(float(t.get("x")), float(t.get("y"))) for t in svg.iter("text") if t.text == "1.81"]
        self.assertEqual((len(marks), len(figures)), (3, 2))
        for (mark, _), (figure, _) in zip(marks[1:], figures):
            self.assertFalse(figure - 4 < mark < figure + 30, (mark, figure))

    def test_wrong_use(self):
        self.bad("report", "--bench", self.folder, expected="no bench_*.json there")
        self.bad("report", "--bench", os.path.join(self.folder, "none"), expected="No such file")
        self.put("bench_x.json", {})
        self.bad("report", "--bench", self.folder, "--output", os.path.join(self.folder, "no", "x"), expected="No such file")
        self.assertIn("usage: viaduct report", self.good("report", "--help"))


if __name__ == "__main__":
    cli.main()

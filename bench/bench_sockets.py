#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The preload within one machine against kernel TCP on loopback, in interleaved pairs.

usage: bench_sockets.py [--json FILE] [--rounds N] [--only WORD]
  --only WORD  only the measures whose name contains it
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

STREAM = os.path.join(measure.BIN, "tests", "prog_stream")


def stream(way, *words, prefix=()):
    """prog_stream's figures; prefix: words in front of both sides (taskset)."""
    port = measure.free_port(way.address)
    what, *rest = words
    command = [*prefix, STREAM, "serve", way.address, str(port), "1000000"]
    with measure.server(way, command, port):
        return json.loads(measure.client(way, [*prefix, STREAM, what, way.address, str(port),
                                               *map(str, rest)]))


def pingpong(size, *mode, prefix=()):
    return lambda way: stream(way, "pingpong", size, 20000, *mode, prefix=prefix)["median_us"]


def small_messages(way):
    """Stream of 64-byte writes in messages per second."""
    gbit = measure.iperf3(way, 1, ["-l", "64"])
    return gbit * 1e9 / 8 / 64


def cpu_bound(way):
    """Four busy pairs at once on the cores there are: Gbit/s of all."""
    return measure.iperf3(way, 2, ["-P", "4"])


# Name, unit, how it is measured, whether less is better, what the ratio to TCP must reach.
MEASURES = [
    ("pingpong 16 B, waiting", "us", pingpong(16), True, 1),
    ("pingpong 16 B, spinning client", "us", pingpong(16, "spin"), True, 1),
    ("pingpong 16 B, one core", "us", pingpong(16, prefix=("taskset", "-c", "0")), True, 1),
    ("pingpong 64 KiB", "us", pingpong(65536), True, 1),
    ("iperf3", "Gbit/s", lambda way: measure.iperf3(way, 2), False, 1.5),
    ("iperf3 -l 64K", "Gbit/s", lambda way: measure.iperf3(way, 2, ["-l", "64K"]), False, 1.5),
    ("iperf3 -l 1M", "Gbit/s", lambda way: measure.iperf3(way, 2, ["-l", "1M"]), False, 1.5),
    ("iperf3 -l 64", "1/s", small_messages, False, 1.5),
    ("iperf3 -P 4", "Gbit/s", cpu_bound, False, 1),
    ("redis -c 50 GET", "1/s", lambda way: measure.redis(way, 60000, tests="get")["GET"], False, 1.2),
    ("redis -c 50 SET", "1/s", lambda way: measure.redis(way, 60000, tests="set")["SET"], False, 1.2),
    ("redis -c 50 -P 16 GET", "1/s",
     lambda way: measure.redis(way, 400000, pipeline=16, tests="get")["GET"], False, 1),
    ("connect, a byte, close", "1/s", lambda way: stream(way, "connect", 3000)["per_second"], False, 0.9),
]


def run(rounds, only):
    ways = [measure.kernel_tcp(), measure.one_machine()]
    rows, results, missed = [], {}, []
    for name, unit, one, less, target in MEASURES:
        if only not in name:
            continue
        figures = measure.interleaved(one, ways, rounds)
        tcp, pipe = (figures[way.name] for way in ways)
        ratio = measure.median([(t / p if less else p / t) for t, p in zip(tcp, pipe)])
        results[name] = {"unit": unit, "tcp": tcp, "viaduct": pipe, "times_better": ratio,
                         "target": target}
        form = "%.0f" if min(tcp) >= 1000 else "%.2f"
        rows.append([name, unit, form % measure.median(tcp), form % measure.median(pipe),
                     "%.2f" % ratio, "%.1f" % target])
        if ratio < target:
            missed.append("%s: %.2f of at least %.1f" % (name, ratio, target))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(measure.table(["measure", "unit", "TCP", "Viaduct", "times better", "at least"], rows))
    return results, missed


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    options.add_argument("--json")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="")
    options = options.parse_args()
    try:
        measure.need("iperf3", "redis-server", "redis-benchmark", "taskset")
        results, missed = run(options.rounds, options.only)
    except (measure.Failure, subprocess.SubprocessError, OSError) as error:
        sys.exit("bench_sockets: %s" % error)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()

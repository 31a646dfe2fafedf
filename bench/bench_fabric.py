#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures a ring of four emulated hosts: put against memcpy, programs against kernel TCP, idle CPU time, a link cut.

usage: bench_fabric.py [--json FILE] [--rounds N]
"""
import argparse
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

FABRIC = "bench-%d" % os.getpid()


def viaduct(*words):
    done = subprocess.run([measure.VIADUCT, words[0], "--fabric", FABRIC, *words[1:]],
                          capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise measure.Failure(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def perf(*words):
    return json.loads(viaduct("perf", *words, "--json"))["rows"]


def cpu_seconds(pids):
    """CPU time of processes by their CPU clocks (clock_getcpuclockid(3)): ticks of 10 ms are too coarse for an idle daemon."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def idle_percent(seconds=10):
    """CPU of all daemons of an idle fabric, in per cent of one core."""
    pids = [h["pid"] for h in json.loads(viaduct("status", "--json"))["hosts"]]
    time.sleep(1)
    before, start = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pids) - before) / (time.monotonic() - start)


def silence_ms(seconds=3):
    """Longest time without a byte in an iperf3 stream over a link that is cut and mended."""
    way = measure.fabric(FABRIC, "neighbour", 2)
    port = measure.free_port(way.address)
    with measure.server(way, ["iperf3", "-s", "-1", "-B", way.address, "-p", str(port)], port):
        def scissors():
            time.sleep(1)
            viaduct("cut", "1", "2")
            time.sleep(1)
            viaduct("mend", "1", "2")
        thread = threading.Thread(target=scissors)
        thread.start()
        out = json.loads(measure.client(way, ["iperf3", "-c", way.address, "-p", str(port), "-t",
                                              str(seconds), "-i", "0.1", "-J"]))
        thread.join()
    longest = silence = 0
    for span in out["intervals"]:
        silence = silence + span["sum"]["seconds"] if span["sum"]["bytes"] == 0 else 0
        longest = max(longest, silence)
    return longest * 1e3


def ratios(measure_one, ways, rounds, invert=False):
    figures = measure.interleaved(measure_one, ways, rounds)
    base = figures[ways[0].name]
    return {way.name: measure.median([(b / v if invert else v / b) for b, v in
                                      zip(base, figures[way.name])]) for way in ways[1:]}, figures


def run(rounds):
    rows, data = [], {}

    def row(name, value, text, target, met):
        rows.append([name, text, target, "met" if met else "MISSED"])
        data[name] = {"value": value, "target": target, "met": met}

    idle = idle_percent()
    row("idle fabric, four hosts, % of a core", idle, "%.2f" % idle, "< 1", idle < 1)
    for host, least, what in ((2, 0.7, "neighbour"), (3, 0.3, "one relay")):
        for size in ("64K", "1M"):
            ratio = measure.median([perf("put", "--from", "1", "--to", str(host), "--sizes", size)
                                    [0]["ratio"] for _ in range(rounds)])
            row("put %s, %s, of memcpy" % (size, what), ratio, "%.0f %%" % (100 * ratio),
                ">= %.0f %%" % (100 * least), ratio >= least)
    ways = [measure.kernel_tcp(), measure.fabric(FABRIC, "neighbour", 2),
            measure.fabric(FABRIC, "one relay", 3)]
    streams, data["iperf3"] = ratios(lambda way: measure.iperf3(way, 1), ways, rounds)
    row("iperf3, neighbour, x TCP", streams["neighbour"], "%.2f" % streams["neighbour"], ">= 1.5",
        streams["neighbour"] >= 1.5)
    rows.append(["iperf3, one relay, x TCP", "%.2f" % streams["one relay"], "", ""])
    for test in ("GET", "SET"):
        rates, data["redis " + test] = ratios(
            lambda way, t=test: measure.redis(way, 60000, tests=t.lower())[t], ways, rounds)
        row("redis-benchmark -c 50 %s, neighbour, x TCP" % test, rates["neighbour"],
            "%.2f" % rates["neighbour"], ">= 1.2", rates["neighbour"] >= 1.2)
        rows.append(["redis-benchmark -c 50 %s, one relay, x TCP" % test,
                     "%.2f" % rates["one relay"], "", ""])
    trips, data["sockperf"] = ratios(measure.sockperf, ways, rounds, invert=True)
    for name, times in trips.items():
        rows.append(["sockperf 64 B round trip, %s, times faster" % name, "%.1f" % times, "", ""])
    quiet = max(silence_ms() for _ in range(rounds))
    row("silence of iperf3 at a cut, ms", quiet, "%.0f" % quiet, "<= 300", quiet <= 300)
    return rows, data


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    options = parser.parse_args()
    try:
        measure.need("iperf3", "redis-server", "redis-benchmark", "sockperf")
        viaduct("up", "--ring", "4")
        rows, data = run(options.rounds)
    except (measure.Failure, subprocess.TimeoutExpired) as failure:
        print("bench_fabric: %s" % failure, file=sys.stderr)
        return 1
    finally:
        subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], capture_output=True,
                       check=False)
    measure.report(options, rows, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())

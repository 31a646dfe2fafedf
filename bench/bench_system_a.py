#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Runs iperf 2 and iperf3 with writes of 1 byte to 4 MiB (iperf3: 1 MiB), over kernel TCP and over Viaduct.

usage: bench_system_a.py [--json FILE] [--csv FILE] [--plot FILE.png] [--rounds N] [--seconds S]
                         [--sizes N,...] [--programs iperf,iperf3] [--between-hosts]
  --between-hosts  Viaduct between two hosts of an emulated fabric, not within one machine

Shows MB/s (1e6) as counted by the receiver, CPU time of both sides in ns per byte, both as medians of the
rounds, and the fit of size / (t0 + size / B) to each curve.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402
import sockets_load  # noqa: E402

SIZES = [1 << n for n in range(23)]
FABRIC = "bench-a-%d" % os.getpid()


def iperf3(way, size, seconds):
    """(MB/s, CPU ns for each byte)."""
    port = measure.free_port(way.address)
    with sockets_load.Used() as used:
        with measure.server(way, ["iperf3", "-s", "-1", "-B", way.address, "-p", str(port)], port):
            out = json.loads(measure.client(way, ["iperf3", "-c", way.address, "-p", str(port), "-J",
                                                  "-t", str(max(1, round(seconds))), "-l", str(size)]))
    received = out["end"]["sum_received"]
    return received["bits_per_second"] / 8e6, used.seconds * 1e9 / max(1, received["bytes"])


def iperf(way, size, seconds):
    """The same by iperf 2, whose server reports what it received when the connection ends."""
    port = measure.free_port(way.address)
    with sockets_load.Used() as used:
        with measure.server(way, ["iperf", "-s", "-B", way.address, "-p", str(port)], port):
            out = measure.client(way, ["iperf", "-c", way.address, "-p", str(port), "-t", str(seconds),
                                       "-l", str(size), "-y", "C"])
    fields = [line.split(",") for line in out.splitlines() if re.match(r"\d{14},", line)]
    if not fields:
        raise measure.Failure("iperf: run over %s: no figure in %r" % (way.name, out[-300:]))
    sent_bytes, bits_per_second = int(fields[-1][7]), int(fields[-1][8])
    return bits_per_second / 8e6, used.seconds * 1e9 / max(1, sent_bytes)


PROGRAMS = {"iperf": iperf, "iperf3": iperf3}
# iperf3 refuses larger writes.
BYTES_MAX = {"iperf": 1 << 30, "iperf3": 1 << 20}


def fit(points):
    """(t0 in us, B in MB/s) of MB/s = size / (t0 + size / B): least squares of the relative error.

    The time of one write, size / rate = t0 + size / B, is a line in size; the weight 1 / time makes
    small sizes count as much as large ones.
    """
    sums = [0.0] * 5
    for size, rate in points:
        time_us = size / rate
        weight = 1 / time_us ** 2
        for i, term in enumerate((1, size, size * size, time_us, size * time_us)):
            sums[i] += weight * term
    s1, sx, sxx, sy, sxy = sums
    slope = (s1 * sxy - sx * sy) / (s1 * sxx - sx * sx)
    return (sy - slope * sx) / s1, 1 / slope


@contextlib.contextmanager
def ways(between_hosts):
    """Sets up both paths: kernel TCP and Viaduct."""
    if not between_hosts:
        yield [measure.kernel_tcp(), measure.one_machine()]
        return
    done = subprocess.run([measure.VIADUCT, "up", "--fabric", FABRIC, "--ring", "2"], check=False,
                          capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise measure.Failure("viaduct up: %s" % (done.stderr or done.stdout).strip())
    try:
        yield [measure.kernel_tcp(), measure.fabric(FABRIC, "neighbours", 2)]
    finally:
        subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], check=False,
                       stdout=subprocess.DEVNULL)


def run(options, both):
    """[{program, bytes, tcp: [(MB/s, ns/B)...], viaduct: [...]}]."""
    results = []
    for program in options.programs:
        for size in options.sizes:
            if size > BYTES_MAX[program]:
                continue
            figures = measure.interleaved(
                lambda way, size=size, program=program: PROGRAMS[program](way, size, options.seconds),
                both, options.rounds)
            tcp, viaduct = (figures[way.name] for way in both)
            results.append({"program": program, "bytes": size, "tcp": tcp, "viaduct": viaduct})
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def medians(figures):
    return tuple(measure.median([figure[i] for figure in figures]) for i in (0, 1))


HEAD = ["program", "bytes", "TCP MB/s", "Viaduct MB/s", "times", "TCP ns/B", "Viaduct ns/B"]


def rows_of(results):
    for one in results:
        tcp, viaduct = medians(one["tcp"]), medians(one["viaduct"])
        times = measure.median([v[0] / t[0] for t, v in zip(one["tcp"], one["viaduct"])])
        yield one["program"], one["bytes"], tcp[0], viaduct[0], times, tcp[1], viaduct[1]


def show(results):
    print(measure.table(HEAD, [[program, sockets_load.bytes_name(size),
                                *["%.3g" % rate if rate < 1000 else "%.0f" % rate for rate in (tcp, ours)],
                                "%.2f" % times, "%.3g" % tcp_cpu, "%.3g" % our_cpu]
                               for program, size, tcp, ours, times, tcp_cpu, our_cpu in rows_of(results)]))
    for program in dict.fromkeys(one["program"] for one in results):
        mine = [row for row in rows_of(results) if row[0] == program]
        if len(mine) >= 3:
            for name, column in (("TCP", 2), ("Viaduct", 3)):
                print("%s over %s: t0 = %.2f us, B = %.0f MB/s" %
                      (program, name, *fit([(row[1], row[column]) for row in mine])))


def draw(path, results):
    rates, cpu = {}, {}
    for program, size, tcp, ours, _, tcp_cpu, our_cpu in rows_of(results):
        for name, rate, used in (("TCP", tcp, tcp_cpu), ("Viaduct", ours, our_cpu)):
            rates.setdefault("%s, %s" % (program, name), []).append((size, rate))
            cpu.setdefault("%s, %s" % (program, name), []).append((size, used))
    sockets_load.plot(path, "Streams by write size", [("bytes of each write", "MB/s", rates),
                                                      ("bytes of each write", "CPU ns/byte", cpu)])


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    sockets_load.options_for_files(options)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=1)
    options.add_argument("--sizes", type=sockets_load.numbers, default=SIZES)
    options.add_argument("--programs", type=lambda text: text.split(","), default=list(PROGRAMS))
    options.add_argument("--between-hosts", action="store_true")
    options = options.parse_args()
    if not set(options.programs) <= set(PROGRAMS):
        sys.exit("bench_system_a: --programs: one or both of %s" % ",".join(PROGRAMS))
    try:
        measure.need(*options.programs)
        with ways(options.between_hosts) as both:
            results = run(options, both)
    except (measure.Failure, subprocess.SubprocessError, OSError) as error:
        sys.exit("bench_system_a: %s" % error)
    show(results)
    try:
        sockets_load.keep(options, results, HEAD, rows_of(results),
                          lambda path: draw(path, results))
    except (measure.Failure, OSError) as error:
        sys.exit("bench_system_a: %s" % error)


if __name__ == "__main__":
    main()

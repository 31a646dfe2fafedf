#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures four emulated hosts like pex, in turns: an 8-byte put through an aperture against a bare store and fence, and a
round trip of sockets against that of a bare pipe; and the CPU time of an idle fabric, for each class of links."""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

import measure

FABRIC = "bench-strict-%d" % os.getpid()
BARE = os.path.join(measure.BIN, "bench_aperture")
CLASSES = ("memory", "pex", "ivshmem", "network")


def viaduct(*words):
    done = subprocess.run([measure.VIADUCT, *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise measure.Failure("viaduct %s: %s" % (" ".join(words), done.stderr.strip()))
    return done.stdout


@contextlib.contextmanager
def fabric(like):
    viaduct("up", "--ring", "4", "--fabric", FABRIC, *(["--like", like] if like != "memory" else []))
    try:
        yield
    finally:
        subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], capture_output=True, check=False)


def bare_figures(folder):
    """Figures of ports and apertures in one process, in nanoseconds."""
    file = os.path.join(folder, "bare.json")
    done = subprocess.run([BARE, "--json", file], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise measure.Failure("bench_aperture: %s" % done.stderr.strip())
    with open(file, encoding="utf-8") as figures:
        return json.load(figures)


def socket_ns():
    """The round trip of 8 bytes on a TCP connection to the neighbour."""
    way = measure.fabric(FABRIC, "neighbour", 2)
    port = measure.free_port(way.address)
    with measure.server(way, [BARE, "serve", way.address, str(port)], port):
        return float(measure.client(way, [BARE, "ping", way.address, str(port)]))


def idle_percent(seconds):
    """CPU of all four daemons, in per cent of one core, by their CPU clocks (clock_getcpuclockid(3))."""
    pids = [host["pid"] for host in json.loads(viaduct("status", "--fabric", FABRIC, "--json"))["hosts"]]
    clocks = [(~pid << 3) | 2 for pid in pids]
    time.sleep(1)
    before, start = sum(map(time.clock_gettime, clocks)), time.monotonic()
    time.sleep(seconds)
    return 100 * (sum(map(time.clock_gettime, clocks)) - before) / (time.monotonic() - start)


def run(rounds, seconds):
    rows, data = [], {}

    def row(name, value, text, most):
        rows.append([name, text, "%s %g" % ("<" if most == 1 else "<=", most), "met" if value <= most else "MISSED"])
        data[name] = {"value": value, "target": most, "met": value <= most}

    figures = []
    with tempfile.TemporaryDirectory() as folder, fabric("pex"):
        for _ in range(rounds):
            figures.append({**bare_figures(folder), "socket_ns": socket_ns()})
    data["rounds"] = figures
    for name, got, bare in (("put of 8 bytes by an aperture, x bare store and fence", "put_ns", "bare_put_ns"),
                            ("round trip of sockets, x bare pipe", "socket_ns", "bare_pipe_ns")):
        most = 1.5 if got == "put_ns" else 2
        ratio = measure.median([figure[got] / figure[bare] for figure in figures])
        row(name, ratio, "%.2f (%.0f of %.0f ns)" % (ratio, measure.median([figure[got] for figure in figures]),
                                                     measure.median([figure[bare] for figure in figures])), most)
    for like in CLASSES:
        with fabric(like):
            idle = idle_percent(seconds)
        row("idle fabric of four hosts like %s, %% of a core" % like, idle, "%.2f" % idle, 1)
    return rows, data


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--rounds", type=int, default=9, help="in turns (default 9)")
    parser.add_argument("--seconds", type=int, default=5, help="for which a fabric is idle (default 5)")
    options = parser.parse_args()
    try:
        rows, data = run(options.rounds, options.seconds)
    except (measure.Failure, subprocess.TimeoutExpired) as failure:
        print("bench_strict: %s" % failure, file=sys.stderr)
        return 1
    measure.report(options, rows, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())

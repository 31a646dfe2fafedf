#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures parallel streams of synchronous sends: kernel TCP, pipes that copy, pipes with zero-copy.

usage: bench_system_d.py [--between-hosts] [--json FILE] [--csv FILE] [--plot FILE.png] [--rounds N]
                         [--seconds S] [--sizes BYTES,...] [--connections N,...] [--ways NAME,...]

Shows for each number of connections the received GB/s (1e9) of all of them, and CPU time of both sides in
ns per byte. "zero-copy" forces that method; "chosen" leaves the choice to the library.

--between-hosts: on an emulated ring of four: "direct", to a neighbour, where the sender stores into the
receiver's host and the receiver copies once more (ADR 6: why not less), and by frames through one host:
"relay", where the host reads the records from the sender's memory, and "relay copied",
where they are copied for the host first. Kernel TCP and both ways within one machine are measured, too. CPU
time then includes all daemons.
"""
import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402
import sockets_load  # noqa: E402

FABRIC = "bench-d-%d" % os.getpid()
FLOWS = os.path.join(measure.BIN, "tests", "prog_flows")


def all_ways():
    ways = [measure.kernel_tcp()]
    ways[0].name = "TCP"
    for name, word in (("copy", "off"), ("zero-copy", "on"), ("chosen", "auto")):
        way = measure.one_machine({"VIADUCT_SOCKETS_ZEROCOPY": word})
        way.name = name
        ways.append(way)
    return ways


def viaduct(*words):
    done = subprocess.run([measure.VIADUCT, words[0], "--fabric", FABRIC, *words[1:]], capture_output=True,
                          text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise measure.Failure(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def ways_between_hosts():
    ways = all_ways()[:3]
    ways[1].name, ways[2].name = "one machine", "zero-copy"
    return [*ways, measure.fabric(FABRIC, "direct", 2), measure.fabric(FABRIC, "relay", 3),
            measure.fabric(FABRIC, "relay copied", 3, env={"VIADUCT_SOCKETS_ZEROCOPY": "off"})]


class Daemons(sockets_load.Used):
    """CPU time of all daemons, which continue to run."""

    pids = ()

    @classmethod
    def _now(cls):
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in cls.pids)


def streams(way, connections, size, seconds):
    """(GB/s, CPU ns for each byte)."""
    port = measure.free_port(way.address)
    with Daemons() as hosts, sockets_load.Used() as used:
        with measure.server(way, [FLOWS, "sink", way.address, str(port), str(size)], port):
            out = json.loads(measure.client(way, [FLOWS, "source", way.address, str(port), str(size),
                                                  str(connections), str(seconds)]))
    cpu = used.seconds + (hosts.seconds if way.client else 0)
    return out["bytes"] / out["seconds"] / 1e9, cpu * 1e9 / out["bytes"]


HEAD = ["bytes", "connections", "way", "GB/s", "CPU ns/byte"]


def rows_of(results):
    for one in results:
        for way, figures in one["ways"].items():
            yield (one["bytes"], one["connections"], way, *(measure.median([figure[i] for figure in figures])
                                                            for i in (0, 1)))


def show(results, ways):
    head = ["bytes", "connections", *["%s GB/s" % way.name for way in ways],
            *["%s ns/B" % way.name for way in ways]]
    rows = []
    for one in results:
        mine = list(rows_of([one]))
        rows.append([sockets_load.bytes_name(one["bytes"]), one["connections"], *["%.2f" % row[3] for row in mine],
                     *["%.3f" % row[4] for row in mine]])
    print(measure.table(head, rows))


def draw(path, results, size):
    rates, cpu = {}, {}
    for _, connections, way, rate, used in rows_of([one for one in results if one["bytes"] == size]):
        rates.setdefault(way, []).append((connections, rate))
        cpu.setdefault(way, []).append((connections, used))
    sockets_load.plot(path, "Synchronous sends of %s" % sockets_load.bytes_name(size),
                      [("connections", "GB/s", rates), ("connections", "CPU ns/byte", cpu)], log=False)


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    options.add_argument("--between-hosts", action="store_true")
    sockets_load.options_for_files(options)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=1)
    options.add_argument("--sizes", type=sockets_load.numbers, default=[1 << 20])
    options.add_argument("--connections", type=sockets_load.numbers, default=list(range(1, 9)))
    options.add_argument("--ways", type=lambda text: text.split(","), help="only these")
    options = options.parse_args()
    if not all(1 <= count <= 8 for count in options.connections):
        sys.exit("bench_system_d: --connections: 1 to 8 each")
    ways = [way for way in (ways_between_hosts() if options.between_hosts else all_ways())
            if options.ways is None or way.name in options.ways]
    results = []
    try:
        if options.between_hosts:
            viaduct("up", "--ring", "4")
            Daemons.pids = [host["pid"] for host in json.loads(viaduct("status", "--json"))["hosts"]]
        for size, count in [(size, count) for size in options.sizes for count in options.connections]:
            figures = measure.interleaved(
                lambda way, size=size, count=count: streams(way, count, size, options.seconds), ways,
                options.rounds)
            results.append({"connections": count, "bytes": size, "ways": figures})
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    except (measure.Failure, subprocess.SubprocessError, OSError) as error:
        sys.exit("bench_system_d: %s" % error)
    finally:
        if options.between_hosts:
            subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], capture_output=True, check=False)
    show(results, ways)
    try:
        sockets_load.keep(options, results, HEAD, rows_of(results),
                          lambda path: draw(path, results, options.sizes[-1]))
    except (measure.Failure, OSError) as error:
        sys.exit("bench_system_d: %s" % error)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Two builds of Viaduct beside each other: what a change has cost, or gained.

usage: compare_builds.py OTHER [--json FILE] [--rounds N] [--only MEASURE]

OTHER is the folder bin of another release build. Each round measures both builds, in alternating order; a ratio is that
of one round, and what is shown are medians over the rounds. Ratios above 1 are gains of this build, whatever the unit.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = 0.97  # below that something was lost
HEAP = "1g"


class Build:
    """The programs of one build, and a ring of four hosts of it."""

    def __init__(self, name, folder, scratch):
        self.bin = os.path.abspath(folder)
        self.fabric = "bench-%s-%d" % (name, os.getpid())
        self.figures = os.path.join(scratch, "figures-" + name)
        self.scratch = scratch
        if not os.access(self.program("viaduct"), os.X_OK):
            raise measure.Failure("%s: find the program viaduct there: it is not a build's folder bin" % self.bin)

    def program(self, name):
        return os.path.join(self.bin, name)

    def run(self, name, *words):
        command = [self.program(name), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                              env={**os.environ, "SHMEM_SYMMETRIC_SIZE": HEAP})
        if done.returncode != 0:
            raise measure.Failure("%s: %s" % (" ".join(command), (done.stderr or done.stdout).strip()[-600:]))
        return done.stdout

    def up(self):
        self.run("oshcc", "-O2", "-D_GNU_SOURCE", os.path.join(HERE, "shmem", "figures.c"), "-o", self.figures)
        self.run("viaduct", "up", "--fabric", self.fabric, "--ring", "4")

    def down(self):
        subprocess.run([self.program("viaduct"), "down", "--fabric", self.fabric], capture_output=True, check=False)

    def neighbours(self):
        """How programs on two hosts with a cable between them reach each other."""
        run = [self.program("viaduct"), "run", "--fabric", self.fabric, "--host"]
        return measure.Way(self.fabric, "127.77.0.2", [*run, "2", "--"], [*run, "1", "--"])


# Each measure gives {name: (value, unit)} of one build.

def pipe(build):
    path = os.path.join(build.scratch, "pipe.json")
    build.run("bench_pipe", "--json", path)
    with open(path, encoding="utf-8") as file:
        return {"pipe ping-pong": (json.load(file)["pipe_ns"], "ns")}


def put(build):
    out = build.run("viaduct", "perf", "put", "--fabric", build.fabric, "--from", "1", "--to", "2", "--sizes",
                    "64K,1M", "--no-memcpy", "--json")
    return {"put %d KiB, neighbour" % (row["bytes"] >> 10): (row["ns"], "ns") for row in json.loads(out)["rows"]}


def iperf3(build):
    return {"iperf3, neighbour": (measure.iperf3(build.neighbours(), 1), "Gbit/s")}


def redis(build):
    rates = measure.redis(build.neighbours(), 60000)
    return {"redis-benchmark -c 50 %s, neighbour" % test: (rate, "1/s") for test, rate in rates.items()}


def shmem(build):
    fabric = ["--fabric", build.fabric, "--hosts"]
    ways = {"2 PEs": ["-n", "2"], "4 PEs": ["-n", "4"], "8 PEs": ["-n", "8"], "neighbours": ["-n", "2", *fabric, "1,2"],
            "two hops": ["-n", "2", *fabric, "1,3"], "ring of 4": ["-n", "4", *fabric, "1-4"]}
    found = {}
    for way, options in ways.items():
        for line in build.run("oshrun", *options, "--timeout", "200", build.figures).splitlines():
            name, value, unit = line.split("\t")
            if not name.startswith("memcpy"):
                found["shmem, %s: %s" % (way, name)] = (float(value), unit)
    return found


MEASURES = {"pipe": pipe, "put": put, "iperf3": iperf3, "redis": redis, "shmem": shmem}


def gain(mine, other, unit):
    return mine / other if unit.endswith("/s") else other / mine


def compare(builds, measures, rounds):
    """[{measure, unit, this, other, gain}]"""
    runs = {build: [] for build in builds}
    for turn in range(rounds):
        for build in builds if turn % 2 == 0 else reversed(builds):
            runs[build].append({name: value for one in measures for name, value in one(build).items()})
    this, other = (runs[build] for build in builds)
    rows = []
    for name, (_, unit) in this[0].items():
        if name not in other[0]:
            continue
        mine, theirs = [one[name][0] for one in this], [one[name][0] for one in other]
        ratio = measure.median([gain(a, b, unit) for a, b in zip(mine, theirs)])
        rows.append({"measure": name, "unit": unit, "this": measure.median(mine),
                     "other": measure.median(theirs), "gain": ratio, "kept": ratio >= KEPT})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", metavar="OTHER", help="folder bin of the other build")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--only", choices=list(MEASURES), action="append", help="only this measure")
    options = parser.parse_args()
    measure.need("iperf3", "redis-server", "redis-benchmark")
    with tempfile.TemporaryDirectory() as scratch:
        builds = [Build("this", measure.BIN, scratch), Build("other", options.other, scratch)]
        try:
            for build in builds:
                build.up()
            rows = compare(builds, [MEASURES[name] for name in options.only or MEASURES], options.rounds)
        finally:
            for build in builds:
                build.down()
    print(measure.table(["medians of %d rounds" % options.rounds, "this", "other", "gain", ""],
                        [["%s, %s" % (row["measure"], row["unit"]), "%.4g" % row["this"], "%.4g" % row["other"],
                          "%.3f" % row["gain"], "" if row["kept"] else "LOST"] for row in rows]))
    print("%d of %d at least %.2f" % (sum(row["kept"] for row in rows), len(rows), KEPT))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    try:
        main()
    except (measure.Failure, subprocess.TimeoutExpired) as failure:
        sys.exit("compare_builds: %s" % failure)

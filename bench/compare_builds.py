#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Compares two builds of Viaduct: the gain or loss of a change.

usage: compare_builds.py OTHER [--json FILE] [--rounds N] [--only MEASURE] [--rows TEXT] [--quick]

OTHER is the folder bin of another release build. Each round takes each measure of both builds in turn, in alternating
order; a ratio is that of one round, and the table shows medians over the rounds, and the quartiles of the ratios.
Ratios above 1 are gains of this build, for every unit. "LOST": the upper quartile is below 0.97. "unsettled": only the
median is; more rounds may decide.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = 0.97  # a ratio below this is a loss
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
        """The path between programs on two hosts with a cable between them."""
        run = [self.program("viaduct"), "run", "--fabric", self.fabric, "--host"]
        return measure.Way(self.fabric, "127.77.0.2", [*run, "2", "--"], [*run, "1", "--"])


# Each measure gives {name: (value, unit)} of one build; that of OpenSHMEM takes the program's arguments, too.

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


def shmem(way, on_fabric, *options):
    """A measure that runs the program of bench_shmem.py in one arrangement of PEs."""
    def figures(build, quick, wanted):
        fabric = ["--fabric", build.fabric] if on_fabric else []
        command = ["oshrun", *options, *fabric, "--timeout", "200", build.figures, *(["quick"] if quick else []), "only"]
        found = {}
        for line in build.run(*command, wanted).splitlines():
            name, value, unit = line.split("\t")
            if not name.startswith("memcpy"):
                found["shmem, %s: %s" % (way, name)] = (float(value), unit)
        # The fastest of several starts counts: during a start the PE waits until the others get a CPU.
        for name in measure.ONCE:
            key = "shmem, %s: %s" % (way, name)
            for _ in range(measure.STARTS if key in found else 0):
                value = float(build.run(*command, name).splitlines()[0].split("\t")[1])
                found[key] = (min(found[key][0], value), found[key][1])
        return found
    return figures


SHMEM = {"shmem-" + way.replace(" ", "-"): shmem(way, *rest) for way, *rest in (
    ("2 PEs", False, "-n", "2"), ("4 PEs", False, "-n", "4"), ("8 PEs", False, "-n", "8"),
    ("neighbours", True, "-n", "2", "--hosts", "1,2"), ("two hops", True, "-n", "2", "--hosts", "1,3"),
    ("ring of 4", True, "-n", "4", "--hosts", "1-4"))}
MEASURES = {"pipe": pipe, "put": put, "iperf3": iperf3, "redis": redis, **SHMEM}


def chosen(only):
    """The names that begin with one of those given, so that `shmem` is all of OpenSHMEM."""
    return [name for name in MEASURES if not only or name.startswith(tuple(only))]


def gain(mine, other, unit):
    return mine / other if unit.endswith("/s") else other / mine


def verdict(ratios):
    if statistics.median(ratios) >= KEPT:
        return ""
    upper = statistics.quantiles(ratios, n=4, method="inclusive")[2] if len(ratios) > 1 else ratios[0]
    return "LOST" if upper < KEPT else "unsettled"


def collect(builds, names, rounds, quick, wanted):
    """{build: [figures of each round]}"""
    runs = {build: [{} for _ in range(rounds)] for build in builds}
    for turn in range(rounds):
        for name in names:
            for build in builds if turn % 2 == 0 else reversed(builds):
                found = MEASURES[name](build, quick, wanted) if name in SHMEM else MEASURES[name](build)
                runs[build][turn].update(found)
    return runs


def compare(builds, runs, wanted):
    """[{measure, unit, this, other, gain, low, high, verdict}]"""
    this, other = (runs[build] for build in builds)
    rows = []
    for name, (_, unit) in this[0].items():
        if name not in other[0] or not wanted in name:
            continue
        mine, theirs = [one[name][0] for one in this], [one[name][0] for one in other]
        ratios = [gain(a, b, unit) for a, b in zip(mine, theirs)]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        rows.append({"measure": name, "unit": unit, "this": measure.median(mine), "other": measure.median(theirs),
                     "gain": measure.median(ratios), "low": low, "high": high, "verdict": verdict(ratios)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", metavar="OTHER", help="folder bin of the other build")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default 7)")
    parser.add_argument("--only", metavar="MEASURE", action="append",
                        help="only measures whose name begins so: " + ", ".join(MEASURES))
    parser.add_argument("--rows", metavar="TEXT", default="", help="show only rows with this in their name; of OpenSHMEM, measure only these")
    parser.add_argument("--quick", action="store_true", help="OpenSHMEM: a fifth of the time for each figure")
    options = parser.parse_args()
    names = chosen(options.only)
    if not names:
        parser.error("--only %s: there is %s" % (" ".join(options.only), ", ".join(MEASURES)))
    measure.need(*(["iperf3"] if "iperf3" in names else []),
                 *(["redis-server", "redis-benchmark"] if "redis" in names else []))
    with tempfile.TemporaryDirectory() as scratch:
        builds = [Build("this", measure.BIN, scratch), Build("other", options.other, scratch)]
        try:
            for build in builds:
                build.up()
            rows = compare(builds, collect(builds, names, options.rounds, options.quick, options.rows), options.rows)
        finally:
            for build in builds:
                build.down()
    print(measure.table(["medians of %d rounds" % options.rounds, "this", "other", "gain", "quartiles", ""],
                        [["%s, %s" % (row["measure"], row["unit"]), "%.4g" % row["this"], "%.4g" % row["other"],
                          "%.3f" % row["gain"], "%.3f-%.3f" % (row["low"], row["high"]), row["verdict"]]
                         for row in rows]))
    print("%d of %d at least %.2f" % (sum(row["gain"] >= KEPT for row in rows), len(rows), KEPT))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    try:
        main()
    except (measure.Failure, subprocess.TimeoutExpired) as failure:
        sys.exit("compare_builds: %s" % failure)

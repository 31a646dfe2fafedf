#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""OpenSHMEM calls: two PEs of one host, more PEs than cores, neighbours of a ring, and two hops.

usage: bench_shmem.py [--json FILE] [--rounds N] [--no-fabric]
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
OSHRUN = os.path.join(measure.BIN, "oshrun")
FABRIC = "bench-shmem-%d" % os.getpid()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise measure.Failure("%s: %s" % (" ".join(words), (done.stderr or done.stdout).strip()))
    return done.stdout


def figures(program, *options):
    """{name: (value, unit)} of one run."""
    found = {}
    for line in run(OSHRUN, *options, "--timeout", "200", program).splitlines():
        name, value, unit = line.split("\t")
        found[name] = (float(value), unit)
    return found


def medians(program, ways, rounds):
    """{way: {name: (value, unit)}}: each round runs every way once, in turn."""
    runs = {way: [] for way in ways}
    for _ in range(rounds):
        for way, options in ways.items():
            runs[way].append(figures(program, *options))
    return {way: {name: (measure.median([one[name][0] for one in all_runs]), unit)
                  for name, (_, unit) in all_runs[0].items()}
            for way, all_runs in runs.items()}


def cell(value):
    return "%.3g" % value if value < 100 else "%.0f" % value


def show(results):
    ways = list(results)
    names = list(dict.fromkeys(name for way in ways for name in results[way]))
    rows = []
    for name in names:
        unit = next(results[way][name][1] for way in ways if name in results[way])
        rows.append([name + ", " + unit,
                     *[cell(results[way][name][0]) if name in results[way] else "" for way in ways]])
    print(measure.table(["", *ways], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-fabric", action="store_true", help="PEs of one host only")
    args = parser.parse_args()

    ways = {"2 PEs": ["-n", "2"], "4 PEs": ["-n", "4"], "8 PEs": ["-n", "8"]}
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "figures")
        run(os.path.join(measure.BIN, "oshcc"), "-O2", "-D_GNU_SOURCE",
            os.path.join(HERE, "shmem", "figures.c"), "-o", program)
        try:
            if not args.no_fabric:
                run(measure.VIADUCT, "up", "--fabric", FABRIC, "--ring", "4")
                ring = ["--fabric", FABRIC, "--hosts"]
                ways["neighbours"] = ["-n", "2", *ring, "1,2"]
                ways["two hops"] = ["-n", "2", *ring, "1,3"]
                ways["ring of 4"] = ["-n", "4", *ring, "1-4"]
            results = medians(program, ways, args.rounds)
        finally:
            if not args.no_fabric:
                subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], check=False,
                               stdout=subprocess.DEVNULL)
    show(results)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"cores": len(os.sched_getaffinity(0)), "rounds": args.rounds,
                       "figures": {way: {name: {"value": value, "unit": unit}
                                         for name, (value, unit) in found.items()}
                                   for way, found in results.items()}}, out, indent=1)


if __name__ == "__main__":
    try:
        main()
    except measure.Failure as failure:
        sys.exit("bench_shmem: %s" % failure)

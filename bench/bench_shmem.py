#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures OpenSHMEM calls: two PEs of one host, more PEs than cores, neighbours of a ring, two hops; and Open MPI.

usage: bench_shmem.py [--json FILE] [--rounds N] [--no-fabric] [--no-peer]

The peer is Open MPI's OpenSHMEM, if its shmemcc and mpirun are installed (tools/install-packages). Each round
runs Viaduct, then the peer. Within a round, a time is that of the fastest of many short slices, and a ratio is of
the two times of that round. The tables show medians over the rounds.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
OSHRUN = os.path.join(measure.BIN, "oshrun")
FABRIC = "bench-shmem-%d" % os.getpid()
HEAP = "1g"

# The fastest transport of Open MPI 4 on one machine; osc/rdma crashes in finalize. The program pins its own PEs.
PEER = ["mpirun.openmpi", "-mca", "pml", "ob1", "-mca", "mtl", "^ofi", "-mca", "btl", "self,vader", "-mca", "osc",
        "^rdma", "--oversubscribe", "--bind-to", "none", "-x", "SHMEM_SYMMETRIC_SIZE=" + HEAP]
PEER_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

# Goals as ratios to the peer: (figure, PEs, at most or at least, ratio). A goal refers to the best of five
# implementations. If that is not Open MPI, the second factor is its figure divided by that of Open MPI 4, both
# measured on the same machine.
LEAST, MOST = "at least", "at most"
GOALS = [
    ("p 8 B + wait, there and back", 2, MOST, 1.0),
    ("the same, static variable", 2, MOST, 0.25),
    ("put 8 B + fence + flag, there and back", 2, MOST, 0.6 * 247 / 307),
    ("p 8 B", 2, LEAST, 4),
    ("p 8 B, static variable", 2, LEAST, 30),
    ("p + quiet", 2, MOST, 0.2),
    ("g 8 B", 2, MOST, 0.15),
    ("put 4K", 2, LEAST, 1.5),
    ("put 64K", 2, LEAST, 1.0),
    ("put 1M", 2, LEAST, 1.0),
    ("put 4M", 2, LEAST, 1.0),
    ("get 4K", 2, LEAST, 1.5),
    ("get 64K", 2, LEAST, 1.0),
    ("get 1M", 2, LEAST, 1.0),
    ("get 4M", 2, LEAST, 1.0),
    ("iput 256 x 8 B", 2, MOST, 0.05),
    ("fetch-add", 2, LEAST, 6),
    ("fetch-add contended, total", 2, LEAST, 1.5),
    ("barrier", 2, MOST, 0.55),
    ("barrier", 4, MOST, 0.8),
    ("barrier", 8, MOST, 0.7),
    ("sum-reduce 8 B", 2, MOST, 0.6),
    ("sum-reduce 512 KiB", 2, MOST, 0.6),
    ("lock, free", 2, MOST, 0.3 * 132 / 228),
    ("shmem_init", 2, MOST, 0.4 * 26 / 36.5),
    ("shmem_init", 8, MOST, 0.4 * 26 / 36.5),
    ("GUPs, get and put", 2, LEAST, 2),
    ("GUPs, atomic", 2, LEAST, 2),
]
# Figures that the peer lacks, or completes only when the other PE calls it: (figure, PEs, at most, of which figure).
ABSOLUTE = [
    ("put_signal 8 B, there and back", 2, 0.15 * 1654),
    ("p + quiet + fetch-add, busy PE, first", 2, 10),
]


def run(*words, env=None):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "SHMEM_SYMMETRIC_SIZE": HEAP, **(env or {})})
    if done.returncode != 0:
        raise measure.Failure("%s: %s" % (" ".join(words), (done.stderr or done.stdout).strip()))
    return done.stdout


def read_figures(text):
    """{name: (value, unit)} of one run."""
    found = {}
    for line in text.splitlines():
        name, value, unit = line.split("\t")
        found[name] = (float(value), unit)
    return found


class Way:
    """A way to run the program."""

    def __init__(self, program, *options):
        self.command = [OSHRUN, *options, "--timeout", "200", program]
        self.env = None

    def figures(self):
        found = read_figures(run(*self.command, env=self.env))
        # The fastest of several starts counts: during a start the PE waits until the others get a CPU.
        for name in measure.ONCE:
            for _ in range(measure.STARTS if name in found else 0):
                more = read_figures(run(*self.command, "only", name, env=self.env))
                found[name] = min(found[name], more[name])
        return found


class Peer(Way):
    def __init__(self, program, pes):
        super().__init__(program)
        self.command = [*PEER, "-n", str(pes), program]
        self.env = PEER_ENV


def collect(ways, rounds):
    """{way: [figures of each round]}: each round runs every way once, in turn."""
    runs = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            runs[name].append(way.figures())
    return runs


def medians(runs):
    """{way: {name: (value, unit)}}"""
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


def compare(runs):
    """One row a goal: {measure, unit, viaduct, peer, ratio, goal, met}."""
    rows = []
    for name, pes, kind, goal in GOALS:
        mine, theirs = runs["%d PEs" % pes], runs["Open MPI, %d PEs" % pes]
        if name not in mine[0] or name not in theirs[0]:
            continue
        ratio = measure.median([a[name][0] / b[name][0] for a, b in zip(mine, theirs)])
        rows.append({"measure": "%s, %d PEs" % (name, pes), "unit": mine[0][name][1],
                     "viaduct": measure.median([a[name][0] for a in mine]),
                     "peer": measure.median([b[name][0] for b in theirs]), "ratio": ratio,
                     "goal": "%s %.3g" % (kind, goal),
                     "met": ratio <= goal if kind == MOST else ratio >= goal})
    for name, pes, goal in ABSOLUTE:
        mine, theirs = runs["%d PEs" % pes], runs["Open MPI, %d PEs" % pes]
        value, unit = measure.median([a[name][0] for a in mine]), mine[0][name][1]
        peer = measure.median([b[name][0] for b in theirs]) if name in theirs[0] else None
        rows.append({"measure": "%s, %d PEs" % (name, pes), "unit": unit, "viaduct": value, "peer": peer,
                     "ratio": value / peer if peer else None, "goal": "at most %.3g %s" % (goal, unit),
                     "met": value <= goal})
    return rows


def show_comparison(rows):
    print("\nViaduct beside Open MPI, both on this machine in the same run")
    print(measure.table(["", "Viaduct", "Open MPI", "ratio", "to reach", ""],
                        [[row["measure"] + ", " + row["unit"], cell(row["viaduct"]),
                          cell(row["peer"]) if row["peer"] is not None else "-",
                          "%.3f" % row["ratio"] if row["ratio"] is not None else "-", row["goal"],
                          "met" if row["met"] else "missed"] for row in rows]))
    print("%d of %d met" % (sum(row["met"] for row in rows), len(rows)))


def make_ways(folder, args):
    source = os.path.join(HERE, "shmem", "figures.c")
    program = os.path.join(folder, "figures")
    run(os.path.join(measure.BIN, "oshcc"), "-O2", "-D_GNU_SOURCE", source, "-o", program)
    peer = not args.no_peer
    if peer and not (shutil.which("shmemcc") and shutil.which(PEER[0])):
        print("Open MPI is not installed (tools/install-packages): no comparison\n")
        peer = False
    if peer:
        run("shmemcc", "-O2", "-D_GNU_SOURCE", "-Wno-deprecated-declarations", source, "-o", program + "-peer")
    ways = {}
    for pes in (2, 4, 8):
        ways["%d PEs" % pes] = Way(program, "-n", str(pes))
        if peer:
            ways["Open MPI, %d PEs" % pes] = Peer(program + "-peer", pes)
    if not args.no_fabric:
        run(measure.VIADUCT, "up", "--fabric", FABRIC, "--ring", "4")
        ring = ["--fabric", FABRIC, "--hosts"]
        ways["neighbours"] = Way(program, "-n", "2", *ring, "1,2")
        ways["two hops"] = Way(program, "-n", "2", *ring, "1,3")
        ways["ring of 4"] = Way(program, "-n", "4", *ring, "1-4")
    return ways, peer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-fabric", action="store_true", help="PEs of one host only")
    parser.add_argument("--no-peer", action="store_true", help="no comparison with Open MPI")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        try:
            ways, peer = make_ways(folder, args)
            runs = collect(ways, args.rounds)
        finally:
            if not args.no_fabric:
                subprocess.run([measure.VIADUCT, "down", "--fabric", FABRIC], check=False,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    results = medians(runs)
    show(results)
    comparison = compare(runs) if peer else []
    if peer:
        show_comparison(comparison)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump({"cores": len(os.sched_getaffinity(0)), "rounds": args.rounds, "comparison": comparison,
                       "figures": {way: {name: {"value": value, "unit": unit}
                                         for name, (value, unit) in found.items()}
                                   for way, found in results.items()}}, out, indent=1)


if __name__ == "__main__":
    try:
        main()
    except measure.Failure as failure:
        sys.exit("bench_shmem: %s" % failure)

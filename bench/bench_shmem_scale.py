#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures OpenSHMEM with teams and many hosts, and shows for each figure its target and whether it is met.

usage: bench_shmem_scale.py [--json FILE] [--rounds N] [--only WORD]

The hosts are emulated on this machine. Each round measures every figure once, and both sides of a ratio in turn; the table
shows medians over the rounds. The programs count bytes and rounds; they do not time them.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import measure  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
OSHRUN = os.path.join(measure.BIN, "oshrun")
HELLO = os.path.join(measure.BIN, "examples", "hello")
LARGE_BYTES = 8 << 20


class Program:
    path = None  # of bench/shmem/scale.c, compiled


def run(*words, env=None):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise measure.Failure("%s: exit code %d: %s" % (" ".join(words), done.returncode, (done.stderr or done.stdout)[-600:]))
    return done.stdout


def compile_program(folder):
    Program.path = os.path.join(folder, "scale")
    run(os.path.join(measure.BIN, "oshcc"), "-O2", os.path.join(HERE, "shmem", "scale.c"), "-o", Program.path)


@contextlib.contextmanager
def nothing():
    """Used instead of fabric() if the environment names the hosts."""
    yield []


@contextlib.contextmanager
def fabric(*shape):
    """Runs a fabric of this shape; yields the options of oshrun that select it."""
    name = "scale-%d" % os.getpid()
    run(measure.VIADUCT, "up", "--fabric", name, *shape)
    try:
        yield ["--fabric", name]
    finally:
        subprocess.run([measure.VIADUCT, "down", "--fabric", name], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def figures(pes, place, *words, env=None):
    """{name: value} of a job of the program."""
    out = run(OSHRUN, "-n", pes, *place, "--timeout", 250, Program.path, *words, env=env)
    return {line.split("\t")[0]: float(line.split("\t")[1]) for line in out.splitlines()}


def counted(pes, place, *words):
    """The statistics that the PEs write about themselves."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stats")
        run(OSHRUN, "-n", pes, *place, "--timeout", 250, Program.path, *words, env={"VIADUCT_SHMEM_STATS": path})
        with open(path, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


# Each gives {figure: value} of one round.

def split_team():
    with fabric("--ring", "4") as place:
        got = figures(8, [*place, "--spread"], "reduce", 1, 100)
    return {"allreduce of 8 B, split team / world": got["split"] / got["world"]}


def one_host_more():
    took = {}
    for hosts in (16, 17):
        with fabric("--ring", str(hosts)) as place:
            took[hosts] = figures(hosts, [*place, "--spread"], "reduce", 1, 20)["world"]
    return {"allreduce of 8 B, 17 hosts / 16 hosts": took[17] / took[16]}


def bytes_of_a_host():
    hosts, few, many = 8, 1, 5
    with fabric("--ring", str(hosts)) as place:
        sent = []
        for times in (few, many):
            pes = counted(hosts, [*place, "--spread"], "call", "reduce", times, LARGE_BYTES // 8)
            sent.append(max(pe["window_bytes"] + pe["frames_bytes"] for pe in pes))
    ideal = 2 * (hosts - 1) / hosts * LARGE_BYTES
    return {"allreduce of 8 MiB, bytes per host / the ring's ideal": (sent[1] - sent[0]) / (many - few) / ideal}


def rounds_of_calls():
    """Waits of a PE for other hosts; a barrier follows each call, and its rounds are subtracted."""
    hosts, pes, few, many = 8, 64, 2, 12
    log = (hosts - 1).bit_length()
    found = {}
    with fabric("--mesh", str(hosts)) as place:
        for name in ("broadcast", "collect"):
            rounds = [max(pe["rounds"] for pe in counted(pes, [*place, "--spread"], "call", name, times, 64))
                      for times in (few, many)]
            found["%s, rounds of 64 PEs on 8 hosts / log2 of the PEs" % name] = ((rounds[1] - rounds[0]) / (many - few) - log) / 6
    return found


def two_pes():
    with fabric("--ring", "4") as place:
        far = figures(2, [*place, "--hosts", "1,3"], "far")
        near = figures(2, [*place, "--hosts", "1,2"], "strided")
    return {"1,000 gets over two hops, blocking / non-blocking": far["blocking"] / far["non-blocking"],
            "iput of 256 elements to a neighbour / one put": near["strided"] / near["in a row"]}


def starts():
    found = {}
    for pes in (256, 1024):
        began = time.monotonic()
        run(OSHRUN, "-n", pes, HELLO)
        found["start and end of %d PEs, s" % pes] = time.monotonic() - began
    return found


def parabola(points):
    """(b, c) of a + b n + c n^2 through three points."""
    (n1, y1), (n2, y2), (n3, y3) = points
    slope, next_slope = (y2 - y1) / (n2 - n1), (y3 - y2) / (n3 - n2)
    c = (next_slope - slope) / (n3 - n1)
    return slope - c * (n1 + n2), c


def memory():
    """Memory of all PEs of a host: grows with the number of PEs, and with the number of their pairs."""
    got = {pes: figures(pes, [], "memory", env={"SHMEM_SYMMETRIC_SIZE": "32m"}) for pes in (8, 32, 64)}
    found = {}
    for title, names, unit in (("memory", ("memory", "page tables"), ", KiB"), ("mappings", ("mappings",), ""),
                               ("descriptors", ("descriptors",), "")):
        of_pe, of_pair = parabola([(pes, pes * sum(one[name] for name in names)) for pes, one in got.items()])
        found["%s of a PE%s" % (title, unit)] = of_pe
        found["%s of a pair of PEs%s" % (title, unit)] = of_pair
    return found


# Figures measured together, and their targets: at most, or at least.
PARTS = (split_team, one_host_more, bytes_of_a_host, rounds_of_calls, two_pes, starts, memory)
MOST = {
    "allreduce of 8 B, split team / world": 1.5,
    "allreduce of 8 B, 17 hosts / 16 hosts": 2,
    "allreduce of 8 MiB, bytes per host / the ring's ideal": 1.2,
    "broadcast, rounds of 64 PEs on 8 hosts / log2 of the PEs": 1,
    "collect, rounds of 64 PEs on 8 hosts / log2 of the PEs": 1,
    "iput of 256 elements to a neighbour / one put": 3,
    "start and end of 256 PEs, s": 0.3,
    "start and end of 1024 PEs, s": 3,
}
LEAST = {"1,000 gets over two hops, blocking / non-blocking": 10}


def judge(name, values):
    """{figure, value, all, target, met}; target and met are None where there is no target."""
    value = measure.median(values)
    row = {"figure": name, "value": value, "all": values, "target": None, "met": None}
    if name in MOST:
        row.update(target="at most %g" % MOST[name], met=value <= MOST[name])
    elif name in LEAST:
        row.update(target="at least %g" % LEAST[name], met=value >= LEAST[name])
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="WORD", help="only figures of the part with this name: " + ", ".join(part.__name__ for part in PARTS))
    args = parser.parse_args()
    parts = [part for part in PARTS if args.only in (None, part.__name__)]
    if not parts:
        parser.error("--only %s: no such part" % args.only)

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        compile_program(folder)
        for _ in range(args.rounds):
            for part in parts:
                for name, value in part().items():
                    found.setdefault(name, []).append(value)
    rows = [judge(name, values) for name, values in found.items()]
    measure.report(args, [[row["figure"], "%.3g" % row["value"], row["target"] or "", {None: "", True: "met", False: "missed"}[row["met"]]]
                          for row in rows],
                   {"cores": len(os.sched_getaffinity(0)), "rounds": args.rounds, "figures": rows})
    judged = [row["met"] for row in rows if row["met"] is not None]
    print("%d of %d met" % (sum(judged), len(judged)))


if __name__ == "__main__":
    try:
        main()
    except (measure.Failure, subprocess.TimeoutExpired) as failure:
        sys.exit("bench_shmem_scale: %s" % failure)

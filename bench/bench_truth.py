#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Emulated hosts for real beside the simulator, its costs calibrated on this machine: ratios of both.

usage: bench_truth.py [--json FILE] [--rounds N]

Rings of 3 and 5 hosts that send everything by frames. The cases are measured one after another, in rounds; shown are
medians over the rounds, and ratios of these. The machine should have nothing else to do: the simulator's has not.
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

BOUND = 0.25
FABRICS = {name: "truth-%d-%s" % (os.getpid(), name) for name in ("3x1", "5x1", "5x4")}
# Of the simulator's cases (sim/machine/command.c): fabric, perf's words, and how many do it at once.
CASES = {
    "put neighbour": ("3x1", ["put", "--sizes", "64K"], 1, 1),
    "put relay": ("5x1", ["put", "--sizes", "64K"], 2, 1),
    "get neighbour": ("5x1", ["get", "--sizes", "8"], 1, 1),
    "get relay": ("5x1", ["get", "--sizes", "8"], 2, 1),
    "put 1 channel": ("5x1", ["put", "--sizes", "64K"], 1, 1),
    "put 4 channels": ("5x4", ["put", "--sizes", "64K", "--channels", "0,1,2,3"], 1, 1),
    "put all of 3": ("3x1", ["put", "--sizes", "64K"], 1, 3),
    "put all of 5": ("5x1", ["put", "--sizes", "64K"], 1, 5),
}
RATIOS = [
    ("put neighbour", "put relay"),
    ("get neighbour", "get relay"),
    ("put 1 channel", "put 4 channels"),
    ("put all of 3", "put all of 5"),
]


def viaduct(*words):
    done = subprocess.run([measure.VIADUCT, *words], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise measure.Failure("viaduct %s: %s" % (" ".join(words), done.stderr.strip() or done.stdout.strip()))
    return done.stdout


def real_us(case):
    """Time of an operation, in the best of perf's rounds: what else runs makes others longer. The mean of all that do
    it at once."""
    fabric, words, distance, senders = CASES[case]
    hosts = int(fabric.split("x")[0])
    jobs = []
    for sender in range(senders):
        ends = ["--from", str(sender + 1), "--to", str((sender + distance) % hosts + 1)]
        jobs.append(subprocess.Popen([measure.VIADUCT, "perf", *words, *ends, "--seconds", "0.4", "--fabric",
                                      FABRICS[fabric], "--json"], stdout=subprocess.PIPE, text=True))
    outs = [job.communicate(timeout=120)[0] for job in jobs]
    if any(job.returncode != 0 for job in jobs):
        raise measure.Failure("%s: viaduct perf failed" % case)
    return statistics.mean(json.loads(out)["rows"][0]["ns_min"] for out in outs) / 1e3


def real(rounds):
    """Medians of the times."""
    times = {case: [] for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            times[case].append(real_us(case))
    return {case: statistics.median(values) for case, values in times.items()}


def simulated():
    program = os.path.join(os.path.dirname(measure.VIADUCT), "viaduct-sim")
    with tempfile.NamedTemporaryFile(suffix=".ini") as scenario:
        subprocess.run([program, "calibrate", scenario.name], check=True, timeout=120)
        done = subprocess.run([program, "machine", scenario.name, "--json"], check=True, timeout=120,
                              capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    started = []
    try:
        for name, fabric in FABRICS.items():
            hosts, channels = name.split("x")
            viaduct("up", "--fabric", fabric, "--ring", hosts, "--channels", channels, "--no-direct")
            started.append(fabric)
        times = real(args.rounds)
    finally:
        for fabric in started:
            viaduct("down", "--fabric", fabric)
    model = simulated()
    rows = []
    print("%-34s %10s %10s %8s" % ("time of the second by the first", "real", "simulated", ""))
    for first, second in RATIOS:
        ratio = times[second] / times[first]
        predicted = model[second] / model[first]
        good = abs(predicted / ratio - 1) <= BOUND
        rows.append({"first": first, "second": second, "real": ratio, "simulated": predicted, "within": good,
                     "real_us": [times[first], times[second]], "simulated_us": [model[first], model[second]]})
        print("%-34s %10.2f %10.2f %+7.0f%%%s" % ("%s / %s" % (second, first), ratio, predicted,
                                                 100 * (predicted / ratio - 1), "" if good else "  more than 25 %"))
    for case in CASES:
        print("  %-32s %10.2f %10.2f us" % (case, times[case], model[case]))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"bench": "truth", "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

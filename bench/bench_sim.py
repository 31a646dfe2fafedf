#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Measures the simulator by the size of the fabric: events per second of one core, and peak memory.

Each fabric runs with many events and with few, and the differences in time and events are divided, so that the time to
build it cancels. The target is 3,000,000 events per second with 1,024 hosts; memory should grow no faster than the number of hosts.
"""
import argparse
import json
import math
import os
import pathlib
import resource
import statistics
import sys
import threading
import time

import measure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import sim_fabric

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
FABRICS = {
    "ring, neighbour": ["--topology", "ring", "--pattern", "neighbour"],
    "ring, all-to-all": ["--topology", "ring", "--pattern", "all-to-all"],
    "torus, all-to-all": ["--topology", "torus2", "--pattern", "all-to-all"],
    "fat tree, all-to-all": ["--topology", "fat-tree", "--cable", "copper-x4", "--pattern", "all-to-all"],
}
TARGET = 3_000_000
FEW = 2000


def high_water():
    """Peak memory of this program's simulators so far, in bytes."""
    peak = 0
    for child in pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="utf-8").split():
        try:
            status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{child}/status").read_text(encoding="utf-8").splitlines())
        except OSError:
            continue  # it has ended
        is_ready = status["Name"].strip() == "viaduct-sim" and "VmHWM" in status
        peak += int(status["VmHWM"].split()[0]) * 1024 if is_ready else 0
    return peak


def run(arguments, hosts, events):
    """Seconds of processor time of the simulators, and peak memory in bytes."""
    words = ["--bin", os.path.dirname(measure.VIADUCT), "--hosts", str(hosts), *arguments, "--load", "50", "--events", str(events)]
    before, peaks, done = resource.getrusage(resource.RUSAGE_CHILDREN), [0], threading.Event()

    def watch():
        # Not ru_maxrss: it begins with the memory of this program before exec.
        while not done.wait(0.003):
            peaks.append(high_water())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        plan = sim_fabric.Plan(sim_fabric.parse(words)[0])
        plan.make()
        plan.model.close()
    except sim_fabric.Failure as failure:
        raise measure.Failure(f"viaduct plan {' '.join(words)}: {failure}") from None
    finally:
        done.set()
        watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, max(peaks)


def figure(name, hosts, events, rounds):
    rates, memory = [], 0
    for _ in range(rounds):
        building, _ = run(FABRICS[name], hosts, FEW)
        whole, peak = run(FABRICS[name], hosts, events)
        rates.append((events - FEW) / max(whole - building, 1e-9))
        memory = max(memory, peak)
    return {"fabric": name, "hosts": hosts, "events": events, "events_per_second": statistics.median(rates), "bytes": memory}


def exponent(rows, least):
    """The exponent of memory over hosts, by least squares of the logarithms: 1 is linear."""
    points = [(math.log(row["hosts"]), math.log(row["bytes"])) for row in rows if row["hosts"] >= least]
    mean_x, mean_y = (statistics.mean(axis) for axis in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--events", type=int, default=300_000, help="per run, and 1,000 more per host (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="of each, the median counts (default %(default)s)")
    args = parser.parse_args()
    rows = []
    began = time.monotonic()
    try:
        for name in FABRICS:
            print(f"{name:22} {'hosts':>6} {'events/s':>12} {'memory':>10} {'a host':>10}")
            mine = []
            for hosts in SIZES:
                row = figure(name, hosts, args.events + 1000 * hosts, args.rounds)
                mine.append(row)
                print(f"{'':22} {hosts:>6} {row['events_per_second']:>12,.0f} {row['bytes'] / 1e6:>7.1f} MB "
                      f"{row['bytes'] / hosts / 1e3:>7.1f} kB", flush=True)
            print(f"{'':22} memory grows with the hosts to the power of {exponent(mine, 128):.2f} from 128 on\n")
            rows += mine
    except measure.Failure as failure:
        print(f"bench_sim: {failure}", file=sys.stderr)
        return 1
    slowest = min(rows, key=lambda row: row["events_per_second"])
    print(f"slowest: {slowest['fabric']} of {slowest['hosts']}, {slowest['events_per_second']:,.0f} events/s; target {TARGET:,}; "
          f"{time.monotonic() - began:.0f} s")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"bench": "sim", "target_events_per_second": TARGET, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

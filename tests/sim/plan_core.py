# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The planner against the nodes of src/core, event by event, on the same cards: throughput at full load and at lower
loads, and the median latency at lower loads, within 10 %. With "--all" (make plan-core): up to 64 hosts, more shapes
and sizes, as docs/costs.md shows them."""
import itertools
import json
import os
import subprocess
import sys

BIN = os.environ.get("VIADUCT_BUILD_DIR", "build/release/bin")
# Without sanitizers, whose runtime alone takes half of the time: two plans of three are by this model, the third is by the planner or the core in turn.
MODEL = os.path.join(BIN, "tests", "viaduct-sim-papers")
plans = itertools.count()
BOUND = 0.10
# Shares of the throughput that the hosts reach with 16 messages under way each, by the planner.
SHARES = (None, 0.3, 0.6)
# shape, pattern, message, channels, events
FEW = [
    ("--hosts 4 --topology ring", "neighbour", "32KiB", 4, 120000),
    ("--hosts 4 --topology chain", "all-to-all", "4KiB", 4, 120000),
    ("--hosts 16 --topology chain", "all-to-all", "512", 4, 900000),  # with a third of the events the median latency varies by 10 % with the seed
    ("--topology torus:3x3", "all-to-all", "4KiB", 4, 120000),
    ("--hosts 9 --topology star", "all-to-all", "4KiB", 4, 120000),
]
# One channel keeps the memory of 64 hosts' inboxes small; the planner is held to the same.
ALL = [(shape, pattern, size, channels, events)
       for shape, channels, events in [
           ("--hosts 4 --topology chain", 4, 300000), ("--hosts 16 --topology chain", 4, 600000),
           ("--hosts 8 --topology ring", 4, 400000), ("--hosts 8 --topology ring --cut 2-3", 4, 400000),
           ("--hosts 64 --topology ring", 1, 1500000),
           ("--topology torus:4x4", 4, 600000), ("--topology torus:4x4", 1, 600000),
           ("--topology torus:8x8", 1, 1500000), ("--topology torus:4x4x4", 1, 1500000),
           ("--hosts 8 --topology star", 4, 400000), ("--hosts 16 --topology star", 4, 600000)]
       for pattern, size in [("all-to-all", "4KiB"), ("all-to-all", "512"), ("neighbour", "4KiB")]]


def plan(case, load, *more):
    shape, pattern, size, channels, events = case
    line = [os.path.join(BIN, "viaduct"), "plan", *shape.split(), "--pattern", pattern, "--size", size, "--channels",
            str(channels), "--events", str(events), "--saturated", "--json", "-", *more]
    if next(plans) % 3:
        line += ["--model", MODEL]
    result = subprocess.run(line + ([] if load is None else ["--load", f"{load:.6g}"]), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"FAILED: {' '.join(line)}: exit code {result.returncode}: {result.stderr}")
    answer = json.loads(result.stdout)
    return answer["rows"][0], answer["port_bytes_per_s"]


def compare(case):
    """Rows: the quantity, by the planner, by the core."""
    most, port = plan(case, None)
    for share in SHARES:
        load = None if share is None else share * most["host_bytes_per_s"] / port * 100
        model = most if share is None else plan(case, load)[0]
        core = plan(case, load, "--core")[0]
        name = "all" if share is None else f"{share * 100:.0f} % of that"
        yield name, "MB/s a host", model["host_bytes_per_s"] / 1e6, core["host_bytes_per_s"] / 1e6
        if share is not None:
            yield name, "p50, us", model["p50_us"], core["p50_us"]


def main():
    missed = compared = 0
    print("| fabric | channels | traffic | load | | planner | core | off by | |\n|---|---|---|---|---|---|---|---|---|")
    for case in ALL if "--all" in sys.argv[1:] else FEW:
        fabric = case[0].replace("--topology ", "").replace("--hosts ", "").replace("--", "")
        for load, what, model, core in compare(case):
            off = model / core - 1 if model is not None and core is not None else float("nan")
            bad = not abs(off) <= BOUND
            missed += bad
            compared += 1
            print(f"| {fabric} | {case[3]} | {case[1]}, {case[2]} | {load} | {what} | {model or 0:.4g} | {core or 0:.4g} | "
                  f"{off * 100:+.1f} % | {'missed' if bad else ''} |", flush=True)
    print(f"\n{compared - missed} of {compared} within {BOUND * 100:.0f} %")
    return 1 if missed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

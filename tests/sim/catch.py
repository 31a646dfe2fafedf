# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Checks that a number of seeds finds every bug that can be planted, and prints how many seeds each took.

Some need a coincidence that most seeds do not have. They get the parts and the mood that make it likely, but no seed is chosen:
a new first seed is drawn at every run, and printed; --first repeats a run. With --rounds each plant is tried from as many first seeds, and
has to be caught in most of them. The budget is of seeds, not of time, so that a busy machine changes nothing but how long it takes."""
import argparse
import fnmatch
import random
import re
import statistics
import subprocess
import sys

FABRIC = "pes=0,streams=0"
STREAMS = "pes=0,ops=1,hosts=2,barrier-groups=0"
PES = "ops=1,streams=0,barrier-groups=0"
# The first pattern that fits. The parts of a seed in which it can not show only take time.
PARTS = [
    ("core-no-turn-bubble", f"{FABRIC},mood=4"),
    ("core-unborn", f"{FABRIC},crashes=4,rogues=0"),
    ("core-last-number", f"{FABRIC},rogues=2,lies=700"),
    ("core-held", f"{FABRIC},hosts=2,barrier-groups=0,crashes=0,rogues=0,cuts=0,freezes=0,"
                  "messages=100,ops=300,flows=2,cancels=64,busy=300,bell-drop=500,stall=1000"),
    ("core-endless", f"{FABRIC},give-up=700000000,wait=60000000,barrier-groups=2"),
    ("core-leave-unasked", f"{FABRIC},give-up=700000000,wait=60000000,barrier-groups=2"),
    ("core-dma-let-go", f"{FABRIC},hosts=2,crashes=0,rogues=0,cuts=40,cut-ns=300000,dma=100,dma-from=1,dma-depth=8,dma-hangs=200,dma-stubborn=500"),
    ("core-dma-flap", f"{FABRIC},hosts=2,crashes=0,rogues=0,cuts=40,cut-ns=10000,dma=100,dma-from=1,dma-depth=8,dma-ns=30000"),
    ("core-client-no-want", f"{PES},hosts=2,cuts=0,freezes=0,crashes=0,"
                            "pe-nodes=2,pe-crash=0,direct=0,pe-replies=16,pe-slots=64,pes=8,pe-elements=4096,pe-stall=100,pe-steps=200"),
    ("core-client-overtake", f"{PES},hosts=4,graph=ring,direct=100,crashes=0,pe-crash=0,cuts=30,cut-ns=1000000"),
    ("core-shmem-*", PES), ("core-client-*", PES), ("core-serve-*", PES),
    ("core-ofi-*", f"{FABRIC},like=ofi"),
    ("lost-line", f"{FABRIC},like=network"),
    ("core-conn-early-reuse", f"{STREAMS},stream-avail=1000"), ("core-conn-spilled-end", f"{STREAMS},stream-bursts=1000,stream-kills=0"),
    ("core-stall-*", f"{STREAMS},mood=5"), ("core-conn-unannounced-end", f"{STREAMS},stream-bursts=1000,stream-switch=1,stream-hosts=16"),
    ("core-conn-hidden-begin", f"{STREAMS},stream-bursts=1000,stream-switch=1"),
    *((name, f"{STREAMS},stream-hosts=16,stream-leave=300") for name in ("core-conn-early-shut", "core-conn-unsent")),
    *((name, f"{STREAMS},stream-kills=500") for name in ("core-conn-early-gone", "core-conn-unseen-death")), ("core-conn-*", STREAMS),
    ("*", "pes=0"),
]


def catch(args, plant, first):
    """Seeds until it was caught; None: it was not."""
    parts = [] if args.unaided else ["--set", next(parts for pattern, parts in PARTS if fnmatch.fnmatchcase(plant, pattern))]
    done = subprocess.run([args.simulator, "run", "--plant", plant, "--first", str(first), "--count", str(args.seeds), "--jobs", "2", "--quiet",
                           "--no-shrink", *parts], capture_output=True, text=True, check=False)
    seeds = re.match(r"(\d+) seeds ", done.stdout)
    failure = re.search(r"^FAILED: (.*)$", done.stdout, re.MULTILINE)
    if seeds is None:
        raise SystemExit(f"{plant}: {done.stdout}{done.stderr}")
    print(f"{plant}: " + (f"caught after {seeds.group(1)} seeds: {failure.group(1)}" if failure else f"NOT CAUGHT by {seeds.group(1)} seeds"),
          flush=True)
    return int(seeds.group(1)) if failure else None


def missing(counts, seeds):
    """The probability that one round misses the bug: each seed finds it with the same probability, whose estimate is seeds with a find by all seeds."""
    caught = [count for count in counts if count is not None]
    return (1 - len(caught) / (sum(caught) + seeds * (len(counts) - len(caught)))) ** seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator", help="viaduct-sim-mutants")
    parser.add_argument("seeds", type=int, help="the budget of each plant")
    parser.add_argument("plants", nargs="*", help="(default: all)")
    parser.add_argument("--first", type=int, help="first seed, of a run to repeat (default: drawn)")
    parser.add_argument("--rounds", type=int, default=1, help="from as many first seeds; caught in most of them is enough")
    parser.add_argument("--unaided", action="store_true", help="without parts and moods that make a coincidence likely")
    args = parser.parse_args()
    plants = args.plants or [line.split()[0] for line in subprocess.run([args.simulator, "plants"], capture_output=True, text=True,
                                                                        check=True).stdout.splitlines()]
    found = {plant: [] for plant in plants}
    for number in range(args.rounds):
        first = args.first if args.first is not None else random.SystemRandom().randrange(1, 10**12)
        print(f"round {number + 1}: from seed {first} on", flush=True)
        for plant in plants:
            found[plant].append(catch(args, plant, first))
    missed = 0
    print(f"\n{'planted bug':28} {'caught':>10} {'median':>8} {'most':>6}   of {args.seeds} seeds")
    for plant, counts in sorted(found.items(), key=lambda it: -max(count or args.seeds for count in it[1])):
        caught = [count for count in counts if count is not None]
        is_missed = 2 * len(caught) <= args.rounds
        missed += is_missed
        print(f"{plant:28} {len(caught):4} of {args.rounds:2} {statistics.median(caught) if caught else 0:8.0f} {max(caught, default=0):6}"
              f"{'   MISSED' if is_missed else ''}")
    if args.rounds > 1:
        print(f"one round misses some bug with a probability of {sum(missing(counts, args.seeds) for counts in found.values()):.2g}")
    if missed > 0:
        print(f"{missed} of {len(plants)} planted bugs were not caught")
    return 1 if missed > 0 or not plants else 0


if __name__ == "__main__":
    sys.exit(main())

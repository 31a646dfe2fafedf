# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Counts and bisections of a fabric's shape against those of paper and pencil, and shapes that are refused."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["VIADUCT_SOURCE_DIR"], "tools"))
import sim_fabric
import sim_model

# topology, hosts, ports of a chip: cables, switches, cables of a host, bisection
COUNTS = (
    ("ring", 2, 0, 1, 0, 1, 1),
    ("ring", 3, 0, 3, 0, 2, 2),
    ("ring", 1024, 0, 1024, 0, 2, 2),
    ("chain", 2, 0, 1, 0, 1, 1),
    ("chain", 1024, 0, 1023, 0, 2, 1),
    ("torus:4x4", None, 0, 32, 0, 4, 8),
    ("torus2", 16, 0, 32, 0, 4, 8),
    ("torus:8x2", None, 0, 24, 0, 3, 4),  # pairs have one cable
    ("torus:2x2x2", None, 0, 12, 0, 3, 4),
    ("torus3", 1024, 0, 3072, 0, 6, 128),  # cut in the longest: 2 x 64
    ("star", 12, 12, 12, 1, 1, 6),
    ("star", 22, 12, 24, 3, 1, 1),  # two leaves of 11 below a hub
    ("fat-tree", 12, 12, 12, 1, 1, 6),
    ("fat-tree", 72, 12, 144, 18, 1, 36),  # 12 leaves of 6, 6 spines
    ("fat-tree", 432, 12, 1296, 180, 1, 216),  # k^3/4 hosts, 5k^2/4 switches
)
REFUSED = (
    ("spiral", 4, "spiral: no such topology"),
    ("ring", None, "ring: how many hosts?"),
    ("torus:4", None, "torus:4: expected torus:AxB"),
    ("torus:4x", None, "torus:4x: expected"),
    ("torus:1x4", None, "torus:1x4: expected"),
    ("torus:2x2x2x2", None, "torus:2x2x2x2: expected"),
    ("torus:4x4", 17, "torus:4x4: has 16 hosts, not 17"),
    ("torus:64x64", None, "torus:64x64: 4096 hosts, but 2 to 1024"),
    ("torus2", 7, "torus2: 7 hosts are no 2-dimensional torus"),
    ("torus3", 10, "torus3: 10 hosts are no 3-dimensional torus"),
)
# topology, hosts, links that are cut
CUTS_REFUSED = (
    ("ring", 4, [(0, 2)], "ring of 4 hosts: no link joins 0 and 2"),
    ("ring", 4, [(1, 1)], "ring of 4 hosts: no link joins 1 and 1"),
    ("ring", 4, [(0, 4)], "ring of 4 hosts: no link joins 0 and 4"),
    ("ring", 2, [(0, 1)], "ring: without 0-1 not all hosts reach host 0"),
    ("ring", 5, [(0, 1), (1, 0)], "ring: 1-0 is cut twice, or does not exist"),
    ("ring", 5, [(4, 0), (2, 3)], "ring: without 2-3 not all hosts reach host 0"),
    ("chain", 4, [(3, 0)], "chain: 3-0 is cut twice, or does not exist"),
    ("chain", 4, [(1, 2)], "chain: without 1-2 not all hosts reach host 0"),
    ("torus:2x4", None, [(0, 3)], "torus:2x4 of 8 hosts: no link joins 0 and 3"),
    ("torus:4x4", None, [(0, 1), (0, 3), (0, 4), (0, 12)], "torus:4x4: without 0-12 not all hosts reach host 0"),
    ("torus:2x2x2", None, [(1, 0), (3, 1), (1, 5)], "torus:2x2x2: without 1-5 not all hosts reach host 0"),
    ("torus:8x8", None, [(2 * i, 2 * i + 1) for i in range(17)], "torus:8x8: more than 16 links are cut"),
    ("star", 4, [(0, 1)], "star: a host has one cable; nothing is left when it is cut"),
)
failures = []


def check(what, value, expected):
    if value != expected:
        failures.append(f"{what}: {value}, not {expected}")


def main():
    for text, hosts, ports, *expected in COUNTS:
        shape = sim_fabric.shape_of(text, hosts, [])
        if ports > 0:
            shape.grow(ports)
        check(f"{text} of {shape.hosts}", [shape.cables(), sum(shape.switches), shape.degree, shape.bisection()], expected)
    for text, hosts, cut, expected in [*((text, hosts, [], expected) for text, hosts, expected in REFUSED), *CUTS_REFUSED]:
        try:
            sim_fabric.shape_of(text, hosts, cut)
            failures.append(f"{text} of {hosts}: not refused")
        except sim_model.Failure as failure:
            check(f"{text} of {hosts}", str(failure)[:len("--topology ") + len(expected)], f"--topology {expected}")
    check("16 cuts", len(sim_fabric.shape_of("torus:8x8", None, [(2 * i, 2 * i + 1) for i in range(16)]).cuts), 16)
    # Both links that a cut of the ring's halves needs; a cut link between two hosts of the same half of a torus.
    check("ring of 6 without 2-3", sim_fabric.shape_of("ring", 6, [(2, 3)]).bisection(), 1)
    check("torus:4x4 without 1-2", sim_fabric.shape_of("torus:4x4", None, [(1, 2)]).bisection(), 7)
    star = sim_fabric.shape_of("star", 133, [])
    check("four levels of chips with four ports", star.grow(4), 108)  # 4 x 3 x 3 x 3
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

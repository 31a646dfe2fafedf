#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The simulator runs many PEs in one process and gives each its own of the OpenSHMEM library's variables: those that
sim/shmem/pe.c copies. A variable of the library that is missing here would be shared by all of them."""

import pathlib
import subprocess

import repo

# Of each PE (sim_pe_load), or the same for all that are on one machine.
PER_PE = {"via_teams"}
PER_MACHINE = {"has_avx", "has_avx512", "has_fast_strings", "past_caches_bytes", "failures", "pauses_limit", "via_wait_pauses_max",
               "via_wait_poll_host", "via_wait_poll_tcp", "via_wait_trace", "via_wait_trace_over"}
# Not written (pointers that are relocated); which of several words is looked at first.
CONSTANT = {"region_names", "starts", "names", "runs", "via_algorithms"}
ALLOWED = PER_PE | PER_MACHINE | CONSTANT


def check_archive(archive):
    out = subprocess.run(["nm", "-A", "-P", archive], check=True, capture_output=True, text=True).stdout
    complaints = []
    for line in out.splitlines():
        place, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        if kind in "bBdDC" and name.split(".")[0] not in ALLOWED and not name.startswith((".", "__")):
            complaints.append(f"{place}: variable {name} is not one that sim/shmem/pe.c keeps for each PE")
    return complaints


def check(tree, args):
    if not args.self_test:
        return check_archive(args.archive)
    return check_archive(repo.planted_archive(tree, args.cc))


def add_arguments(parser):
    parser.add_argument("--cc", default="cc")
    parser.add_argument("archive", type=pathlib.Path)


CLEAN = {"a.c": "int via_teams;\nint a(void);\nint a(void) { static const int b = 3; return via_teams += b; }\n"}
PLANTS = [
    ("global", {"b.c": "int rounds = 1;\n"}, "variable rounds is not one"),
    ("static", {"b.c": "int b(void);\nint b(void) { static int count; return ++count; }\n"}, "variable count"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS, add_arguments)

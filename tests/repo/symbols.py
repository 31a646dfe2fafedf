#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""core-symbols.txt lists the outside symbols that base, wire and core use. So that they read no clock, block, allocate
or print is a fact about the compiled archives. So are the layers of core: an object uses symbols of its own layer and
of those below, and no objects use each other in a circle."""

import fnmatch
import pathlib
import subprocess

import core_layers
import repo

ALLOWED = pathlib.Path(__file__).with_name("core-symbols.txt")


def allowed_patterns():
    lines = (line.split("#")[0].strip() for line in ALLOWED.read_text().splitlines())
    return [line for line in lines if line]


def nm(archive, *options):
    """(member, symbol) pairs."""
    out = subprocess.run(["nm", "-A", "-P", *options, archive], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        place, _, rest = line.partition(": ")
        yield place.partition("[")[2].rstrip("]"), rest.split()[0]


def object_name(member):
    """flow_tx for flow_tx.c.o"""
    return member.split(".")[0]


def check_layers(archive):
    defined = {symbol: object_name(member) for member, symbol in nm(archive, "--defined-only", "--extern-only")}
    own = {object_name(member) for member, _ in nm(archive)}
    place = pathlib.Path(archive).name
    complaints = [f"{place}({name}): is not in the table of tests/repo/core_layers.py"
                  for name in sorted(own - core_layers.LAYER_OF.keys())]
    edges = {}
    for member, symbol in nm(archive, "--undefined-only"):
        user, owner = object_name(member), defined.get(symbol)
        if owner is None:
            continue
        edges.setdefault(user, set()).add(owner)
        if core_layers.LAYER_OF.get(owner, 0) > core_layers.LAYER_OF.get(user, 99):
            complaints.append(f"{place}({user}): uses {symbol} of {owner}, which is in a higher layer")
    circle = core_layers.find_circle(edges)
    if circle:
        complaints.append(f"{place}: objects use each other in a circle: {' -> '.join(circle)}")
    return complaints


def check_archives(archives):
    patterns = allowed_patterns()
    own = {symbol for archive in archives for _, symbol in nm(archive, "--defined-only", "--extern-only")}
    return [f"{pathlib.Path(archive).name}({member}): uses {symbol}, which core-symbols.txt does not allow"
            for archive in archives
            for member, symbol in nm(archive, "--undefined-only")
            if symbol not in own and not any(fnmatch.fnmatchcase(symbol, pattern) for pattern in patterns)]


def check(tree, args):
    if not args.self_test:
        archives = [path for path in args.archives if pathlib.Path(path).exists()]
        if not archives:
            repo.skip("no archive is built")
        core = [archive for archive in archives if pathlib.Path(archive).name.startswith("libvia_core")]
        return check_archives(archives) + [line for archive in core for line in check_layers(archive)]
    archive = repo.planted_archive(tree, args.cc)
    return check_archives([archive]) + check_layers(archive)


def add_arguments(parser):
    parser.add_argument("--cc", default="cc")
    parser.add_argument("archives", nargs="*")


CLEAN = {
    "way.c": "#include <string.h>\nvoid b(void);\nvoid a(void *p, int n);\n"
             "void a(void *p, int n) { memset(p, 0, (unsigned long)n); b(); }\n",
    "pipe.c": "void b(void);\nvoid b(void) {}\n",
}
PLANTS = [
    ("clock", {"dma.c": "#include <time.h>\nlong c(void);\nlong c(void) { return time(0); }\n"}, "(dma.c.o): uses time"),
    ("heap", {"dma.c": "#include <stdlib.h>\nvoid *c(void);\nvoid *c(void) { return malloc(9); }\n"}, "uses malloc"),
    ("print", {"dma.c": '#include <stdio.h>\nvoid c(void);\nvoid c(void) { puts("c"); }\n'}, "uses puts"),
    ("errno", {"dma.c": "#include <errno.h>\nint c(void);\nint c(void) { return errno; }\n"}, "uses __errno_location"),
    ("someone else's", {"pipe.c": "void elsewhere(void);\nvoid b(void);\nvoid b(void) { elsewhere(); }\n"},
     "(pipe.c.o): uses elsewhere"),
    ("up a layer", {"pipe.c": "void c(void);\nvoid b(void);\nvoid b(void) { c(); }\n", "flow.c": "void c(void);\nvoid c(void) {}\n"},
     "(pipe): uses c of flow, which is in a higher layer"),
    ("data up a layer", {"pipe.c": "extern int c;\nint b(void);\nint b(void) { return c; }\n", "node.c": "int c;\n"},
     "(pipe): uses c of node, which is in a higher layer"),
    ("circle in a layer", {"dma.c": "void a(void *, int);\nvoid c(void);\nvoid c(void) { a(0, 0); }\n",
                           "way.c": "void c(void);\nvoid a(void *, int);\nvoid a(void *p, int n) { (void)p; (void)n; c(); }\n"},
     "objects use each other in a circle: dma -> way -> dma"),
    ("no layer", {"more.c": "void c(void);\nvoid c(void) {}\n"}, "(more): is not in the table of tests/repo/core_layers.py"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS, add_arguments)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""What base, wire and core ask of the outside world is in core-symbols.txt. So that they read no clock, block, allocate
or print is a fact about the compiled archives."""

import fnmatch
import pathlib
import subprocess

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
        return check_archives(archives)
    return check_archives([repo.planted_archive(tree, args.cc)])


def add_arguments(parser):
    parser.add_argument("--cc", default="cc")
    parser.add_argument("archives", nargs="*")


CLEAN = {
    "a.c": "#include <string.h>\nvoid b(void);\nvoid a(void *p, int n);\n"
           "void a(void *p, int n) { memset(p, 0, (unsigned long)n); b(); }\n",
    "b.c": "void b(void);\nvoid b(void) {}\n",
}
PLANTS = [
    ("clock", {"c.c": "#include <time.h>\nlong c(void);\nlong c(void) { return time(0); }\n"}, "(c.c.o): uses time"),
    ("heap", {"c.c": "#include <stdlib.h>\nvoid *c(void);\nvoid *c(void) { return malloc(9); }\n"}, "uses malloc"),
    ("print", {"c.c": '#include <stdio.h>\nvoid c(void);\nvoid c(void) { puts("c"); }\n'}, "uses puts"),
    ("errno", {"c.c": "#include <errno.h>\nint c(void);\nint c(void) { return errno; }\n"}, "uses __errno_location"),
    ("someone else's", {"b.c": "void elsewhere(void);\nvoid b(void);\nvoid b(void) { elsewhere(); }\n"},
     "(b.c.o): uses elsewhere"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS, add_arguments)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Packages are named in tools/packages.txt only, once each and with a reason; only tools/install-packages installs."""

import re

import repo

LIST = "tools/packages.txt"
INSTALLER = "tools/install-packages"
INSTALL = re.compile(r"\b(apt|apt-get|aptitude)\b[^|;&]*\sinstall\b(?![^|;&]*\.deb\b)")
# Into systems of its own that last as long as the test, not into this one.
ELSEWHERE = ("tests/packages/check_packages.py", "tools/compilers")
ENTRY = re.compile(r"([a-z0-9][a-z0-9+.-]+)\s+# \S")


def check(tree, _args):
    complaints = []
    seen = {}
    for number, line in tree.lines(LIST):
        if not line or line.startswith(("#", "[")):
            continue
        match = ENTRY.match(line)
        if not match:
            complaints.append(f"{LIST}:{number}: expected 'package  # reason'")
        elif match.group(1) in seen:
            complaints.append(f"{LIST}:{number}: {match.group(1)} is in line {seen[match.group(1)]} already")
        else:
            seen[match.group(1)] = number
    for name in tree.files():
        if name == INSTALLER or name in ELSEWHERE:
            continue
        complaints += [f"{name}:{number}: installs packages; that is the business of {INSTALLER}"
                       for number, line in tree.lines(name) if INSTALL.search(line)]
    return complaints


# In two pieces, so that this file does not complain of itself.
APT = "apt-get -y" + " " + "install "
CLEAN = {LIST: "# why\ncmake  # the build\n\n[fuzz]\nclang  # fuzzing\n", INSTALLER: APT + "x\n"}
PLANTS = [
    ("second place", {"docs/README.md": "Run this:\n    sudo " + APT + "cmake\n"}, "docs/README.md:2: installs"),
    ("no reason", {LIST: "cmake\n"}, "packages.txt:1: expected"),
    ("twice", {LIST: "cmake  # the build\ncmake  # again\n"}, "packages.txt:2: cmake is in line 1"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Every C source is as clang-format leaves it; "make format" makes it so. Versions differ in what they leave, so only
the one that .clang-format was written for decides."""

import pathlib
import re
import shutil
import subprocess

import repo

VERSION = "14"
CONFIG = pathlib.Path(__file__).resolve().parents[2] / ".clang-format"


def find_tool():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path:
            out = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", out):
                return path
    repo.skip(f"no clang-format {VERSION}")


def check(tree, _args):
    files = [tree.root / name for name in tree.files(".c", ".h")]
    if not files:
        return []
    run = subprocess.run([find_tool(), f"--style=file:{CONFIG}", "--dry-run", "-Werror", *files],
                         capture_output=True, text=True, check=False)
    return run.stderr.splitlines() or ([f"clang-format: exit code {run.returncode}"] if run.returncode else [])


CLEAN = {"src/core/a.c": "int via_a(int *x)\n{\n    return *x;\n}\n"}
PLANTS = [
    ("tab", {"src/core/b.c": "int via_a(int *x)\n{\n\treturn *x;\n}\n"}, "code should be clang-formatted"),
    ("pointer", {"src/core/b.h": "int via_a(int* x);\n"}, "code should be clang-formatted"),
    ("one line", {"src/core/b.c": "int via_a(void) { return 1; }\n"}, "code should be clang-formatted"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)

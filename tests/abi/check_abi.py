#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The shared libraries are compatible with what is stored in tests/abi: programs built then run now. By libabigail.

usage: check_abi.py BIN [--update]
  BIN       the folder of the libraries, a build with -g and without sanitizers (release)
  --update  store what they are now; with a release, or when something was added
An addition is no break. A break needs another major version (SONAME) and a line in CHANGELOG.md.
"""
import argparse
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parent.parent / "include"
LIBRARIES = ["libviaduct.so", "libviaduct-shmem.so"]
SUPPRESSIONS = ["--suppressions", str(HERE / "abi.suppr")]
# Bits of abidiff's exit code: it failed, was called wrongly, and the change is incompatible.
FAILED, CHANGED, INCOMPATIBLE = 1 | 2, 4, 8


def describe(library, headers, out):
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--drop-private-types", "--exported-interfaces-only",
                    "--no-elf-needed", "--no-parameter-names", "--headers-dir", str(headers), *SUPPRESSIONS, str(library), "--out-file", str(out)],
                   check=True)


def compare(before, after):
    """(is it compatible, what abidiff says). A change that is only an addition is compatible."""
    done = subprocess.run(["abidiff", *SUPPRESSIONS, str(before), str(after)], capture_output=True, text=True, check=False)
    if done.returncode & FAILED:
        sys.exit("check_abi: abidiff: %s%s" % (done.stdout, done.stderr))
    if not done.returncode:
        return True, ""
    only = subprocess.run(["abidiff", *SUPPRESSIONS, "--no-added-syms", str(before), str(after)], capture_output=True, text=True, check=False)
    return only.returncode == 0, done.stdout


def self_test(folder):
    """The check must find a break when a struct has another member, and when a function is missing."""
    texts = {"before": "struct s { int a; }; int one(struct s *s) { return s->a; } int two(void) { return 2; }",
             "added": "struct s { int a; }; int one(struct s *s) { return s->a; } int two(void) { return 2; } int three(void) { return 3; }",
             "struct": "struct s { long b; int a; }; int one(struct s *s) { return s->a; } int two(void) { return 2; }",
             "gone": "struct s { int a; }; int one(struct s *s) { return s->a; }"}
    for name, text in texts.items():
        source = folder / (name + ".c")
        source.write_text(text, encoding="utf-8")
        subprocess.run(["cc", "-g", "-shared", "-fPIC", source, "-o", folder / (name + ".so")], check=True)
        describe(folder / (name + ".so"), folder, folder / (name + ".abi"))
    found = {name: compare(folder / "before.abi", folder / (name + ".abi"))[0] for name in texts}
    wanted = {"before": True, "added": True, "struct": False, "gone": False}
    if found != wanted:
        sys.exit("check_abi: planted changes are not told apart: %s" % found)


def main():
    options = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    options.add_argument("bin", type=pathlib.Path)
    options.add_argument("--update", action="store_true")
    options = options.parse_args()
    if not shutil.which("abidiff"):
        print("skipped: no abidiff (tools/install-packages abi)")
        return 77
    broken = False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        self_test(folder)
        for name in LIBRARIES:
            stored = HERE / (name + ".abi.xz")
            after = folder / (name + ".after")
            describe(options.bin / name, HEADERS, after)
            if options.update:
                stored.write_bytes(lzma.compress(after.read_bytes(), preset=9))
                continue
            before = folder / (name + ".before")
            before.write_bytes(lzma.decompress(stored.read_bytes()))
            compatible, differences = compare(before, after)
            print("%s: %s" % (name, "the same" if not differences else "compatible, something was added: --update" if compatible else "BROKEN"))
            print(differences, end="")
            broken = broken or not compatible
    return 1 if broken else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    sys.exit(main())

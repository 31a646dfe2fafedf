#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Each installed command has a man page and answers --help on its standard output, quickly and with success."""

import pathlib
import subprocess

import repo

TIMEOUT_S = 60


def complaint_about_help(path):
    try:
        run = subprocess.run([path, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT_S} s"
    if run.returncode:
        return f"exit code {run.returncode}: {run.stderr}"
    if "usage" not in run.stdout.lower() or path.name not in run.stdout:
        return f"the output does not say 'usage' and '{path.name}'"
    return None


def check(tree, args):
    bin_dir = tree.root / "bin" if args.self_test else pathlib.Path(args.bin)
    names = ["plant"] if args.self_test else args.commands
    pages = {pathlib.Path(name).stem for name in tree.files(".1", ".7", ".8") if name.startswith("docs/man/")}
    built = [bin_dir / name for name in names if (bin_dir / name).exists()]
    if not built:
        repo.skip("no command is built")
    complaints = []
    for path in built:
        if path.name not in pages:
            complaints.append(f"{path.name}: no docs/man/{path.name}.1 or .8")
        complaint = complaint_about_help(path)
        if complaint:
            complaints.append(f"{path.name} --help: {complaint}")
    return complaints


def add_arguments(parser):
    parser.add_argument("--bin")
    parser.add_argument("commands", nargs="*")


CLEAN = {"bin/plant": "#!/bin/sh\necho usage: plant\n", "docs/man/plant.1": ".TH plant 1\n"}
PLANTS = [
    ("no page", {"docs/man/plant.1": None}, "plant: no docs/man/plant.1"),
    ("fails", {"bin/plant": "#!/bin/sh\nexit 2\n"}, "plant --help: exit code 2"),
    ("wrong stream", {"bin/plant": "#!/bin/sh\necho usage: plant >&2\n"}, "does not say 'usage'"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS, add_arguments)

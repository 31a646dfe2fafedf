# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The common part of the checks of this folder: which files belong to the project, and how a check proves that it can fail."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77
SPDX = "SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only"


class Tree:
    """The project's files below root: what git tracks, or without git everything but build/."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        if (self.root / ".git").exists():
            out = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"],
                                 check=True, capture_output=True, text=True).stdout
            names = out.split("\0")[:-1]
        else:
            names = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
            names = [name for name in names if not name.startswith("build/")]
        self.names = sorted(name for name in names if (self.root / name).is_file())

    def files(self, *suffixes):
        """Names that end so; all without an argument."""
        return [name for name in self.names if not suffixes or name.endswith(suffixes)]

    def text(self, name):
        """None for a file that is not text."""
        try:
            return (self.root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return None

    def lines(self, name):
        """Pairs of line number and line; none for a file that is not text."""
        return enumerate((self.text(name) or "").splitlines(), 1)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def self_test(check, clean, plants, args):
    """check finds nothing in the files `clean`, and complains once a violation is planted among them (None: once that
    file is missing)."""
    failures = []
    for what, files, complaint in [("clean tree", {}, None), *plants]:
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**clean, **files}.items():
                if text is None:
                    continue
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755)
            found = check(Tree(root), args)
        if complaint is None:
            failures += [f"{what}: unexpected: {line}" for line in found]
        elif not any(complaint in line for line in found):
            failures.append(f"{what}: not caught; expected '{complaint}' among {found}")
    print(f"{len(plants)} planted violations, {len(failures)} failures")
    return failures


def planted_archive(tree, cc):
    """For self tests of checks of archives: the tree's sources, compiled."""
    objects = []
    for name in tree.files(".c"):
        objects.append(tree.root / (name + ".o"))
        subprocess.run([cc, "-O1", "-c", tree.root / name, "-o", objects[-1]], check=True)
    archive = tree.root / "libplant.a"
    subprocess.run(["ar", "rcs", archive, *objects], check=True)
    return archive


def main(check, clean, plants, add_arguments=None):
    """check(tree, args) returns its complaints; plants are (what, files, expected part of a complaint)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--self-test", action="store_true", help="plant violations, see that they are caught")
    if add_arguments:
        add_arguments(parser)
    args = parser.parse_args()
    complaints = self_test(check, clean, plants, args) if args.self_test else check(Tree(args.root), args)
    for line in complaints:
        print(line)
    sys.exit(1 if complaints else 0)

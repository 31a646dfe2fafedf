#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Each installed header compiles alone, and twice, as C11 and as C++11."""

import subprocess
import tempfile

import repo

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Werror"]


def check(tree, args):
    headers = [name.removeprefix("include/") for name in tree.files(".h") if name.startswith("include/")]
    if not headers:
        repo.skip("no header in include/")
    complaints = []
    for compiler, standard, suffix in ((args.cc, "c11", ".c"), (args.cxx, "c++11", ".cpp")):
        for header in headers:
            with tempfile.NamedTemporaryFile("w", suffix=suffix) as source:
                # Twice: it is guarded. A declaration of its own: an empty unit is pedantically invalid.
                source.write(f"#include <{header}>\n#include <{header}>\nextern int via_unused;\n")
                source.flush()
                run = subprocess.run([compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only",
                                      "-I", tree.root / "include", source.name],
                                     capture_output=True, text=True, check=False)
            if run.returncode:
                complaints.append(f"include/{header}:1: not alone as {standard}:\n{run.stderr}")
    return complaints


def add_arguments(parser):
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")


GOOD = """#ifndef A_H
#define A_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int a(uint32_t x);
#ifdef __cplusplus
}
#endif
#endif
"""
CLEAN = {"include/viaduct/a.h": GOOD}
PLANTS = [
    ("missing include", {"include/viaduct/b.h": "int b(uint32_t x);\n"}, "b.h:1: not alone as c11"),
    ("no guard", {"include/viaduct/b.h": "struct b {\n    int x;\n};\n"}, "b.h:1: not alone as c11"),
    ("keyword of C++", {"include/viaduct/b.h": "int b(int new);\n"}, "b.h:1: not alone as c++11"),
    ("C17 with GNU", {"include/viaduct/b.h": "static inline int b(void) { return ({ 1; }); }\n"}, "not alone as c11"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS, add_arguments)

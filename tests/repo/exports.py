#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The shared libraries export their interface, and nothing of the static libraries in them: two of them, and a
program's own copy, may be in one process."""

import ctypes
import fnmatch
import pathlib
import re
import subprocess

import repo

API = re.compile(r"^VIADUCT(?:_SOCKETS)?_API[^;(]*?(\w+)\(", re.MULTILINE)
SHMEM = ("shmem_*", "pshmem_*", "start_pes", "pstart_pes", "_my_pe", "p_my_pe", "_num_pes", "p_num_pes", "shmalloc", "pshmalloc",
         "shmemalign", "pshmemalign", "shrealloc", "pshrealloc", "shfree", "pshfree")
# Put in front of liburing's, which need not be installed here.
URING = ("io_uring_*",)


def exported(library):
    out = subprocess.run(["nm", "-D", "-P", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = (line.split()[:2] for line in out.splitlines())
    # Versions are absolute.
    return sorted(name.partition("@")[0] for name, kind in symbols if kind != "A")


def check_library(tree, library):
    names = exported(library)
    if library.name == "libviaduct.so":
        declared = set(API.findall(tree.text("include/viaduct/viaduct.h")))
        wrong = [name for name in names if name not in declared]
        yield from (f"{library.name}: lacks {name}, which viaduct.h declares" for name in sorted(declared - set(names)))
    elif library.name in ("libviaduct-shmem.so", "libviaduct-shmem-profile.so"):
        wrong = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in SHMEM)]
    else:
        libc = ctypes.CDLL("libc.so.6")
        declared = set(API.findall(tree.text("include/viaduct/sockets.h")))
        wrong = [name for name in names if not hasattr(libc, name) and name not in declared and
                 not any(fnmatch.fnmatchcase(name, pattern) for pattern in URING)]
    if not names:
        yield f"{library.name}: exports nothing"
    yield from (f"{library.name}: exports {name}, which is not what it is for" for name in wrong)


def check(tree, args):
    if args.self_test:
        libraries = []
        for name in tree.files(".c"):
            libraries.append(tree.root / name.replace(".c", ".so"))
            subprocess.run([args.cc, "-shared", "-fPIC", tree.root / name, "-o", libraries[-1]], check=True)
    else:
        libraries = [path for path in map(pathlib.Path, args.libraries) if path.exists()]
        if not libraries:
            repo.skip("no shared library is built")
    return [complaint for library in libraries for complaint in check_library(tree, library)]


def add_arguments(parser):
    parser.add_argument("--cc", default="cc")
    parser.add_argument("libraries", nargs="*")


CLEAN = {
    "include/viaduct/sockets.h": "VIADUCT_SOCKETS_API int via_asked(int x);\n",
    "include/viaduct/viaduct.h": "VIADUCT_API int via_one(int x);\nVIADUCT_API const char *via_two(void) MUST;\n",
    "libviaduct.c": "int via_one(int x) { return x; }\nconst char *via_two(void) { return 0; }\n",
    "libviaduct-shmem.c": "void shmem_quiet(void) {}\nvoid pshmem_quiet(void) {}\nvoid start_pes(void) {}\n",
    "libviaduct-sockets.c": "int accept4(void) { return 0; }\n"
                            "__attribute__((visibility(\"hidden\"))) int via_one(void) { return 0; }\n",
}
PLANTS = [
    ("inside of libviaduct", {"libviaduct.c": CLEAN["libviaduct.c"] + "int via_pipe_send(void) { return 0; }\n"},
     "libviaduct.so: exports via_pipe_send"),
    ("not in the map", {"libviaduct.c": "int via_one(int x) { return x; }\n"}, "lacks via_two"),
    ("client in shmem", {"libviaduct-shmem.c": CLEAN["libviaduct-shmem.c"] + "int via_one(void) { return 0; }\n"},
     "libviaduct-shmem.so: exports via_one"),
    ("client in sockets", {"libviaduct-sockets.c": "int accept4(void) { return 0; }\nint via_one(void) { return 0; }\n"},
     "libviaduct-sockets.so: exports via_one"),
    ("data", {"libviaduct-sockets.c": "int accept4(void) { return 0; }\nint via_log_threshold;\n"},
     "exports via_log_threshold"),
    ("no hook", {"libviaduct-sockets.c": "static int a; int *via_a(void);\n"}, "exports nothing"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS, add_arguments)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The OpenSHMEM library itself under a sanitizer, with the programs of the tests.

usage: sanitize_shmem.py [--build FOLDER] address,undefined|thread

No preset builds it so, because it is loaded into programs that are not. Here its sources are compiled with the
sanitizer into a folder of their own and linked with the build's other libraries, and the programs, which were built
without, run with the sanitizer's runtime preloaded: on one host, and over a ring of four.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FABRIC = "sanitize-%d" % os.getpid()
os.environ["VIADUCT_UP_WITH"] = str(os.getpid())
ENV = {"SHMEM_SYMMETRIC_SIZE": "1m", "VIADUCT_SHMEM_HEAP_MAX": "64m"}
PROGRAMS = [["query"], ["heap", "1", "60"], ["fuzz", "1", "8"], ["collect"], ["memory"],
            *(["threads", name, "15"] for name in ("teams", "sets", "contexts", "waits")), ["storm", "1", "2"]]
# Between hosts a lock is an atomic that the client library does, which is not built with the sanitizer here.
ONE_HOST_ONLY = [["threads", "locks", "15"]]
# -R: ThreadSanitizer knows where things lie without randomization.
RUNTIMES = {"address,undefined": (["asan", "ubsan"], [], {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
                                                         "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}),
            "thread": (["tsan"], ["setarch", "-R"], {"TSAN_OPTIONS": "halt_on_error=1"})}


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit("sanitize_shmem: %s: exit code %d\n%s" % (" ".join(map(str, words)), done.returncode,
                                                         (done.stdout + done.stderr)[-6000:]))
    return done.stdout


def build(kind, build_folder, folder):
    """The library, as build.ninja would make it, but -O0 and with the sanitizer."""
    sources = [path for path in glob.glob(os.path.join(ROOT, "src", "shmem", "*.c"))
               if not re.match(r"(launch.*|oshrun|oshinfo|static)\.c", os.path.basename(path))]
    flags = ["-std=gnu17", "-O0", "-g", "-fPIC", "-fsanitize=" + kind, "-fno-sanitize=alignment", "-D_GNU_SOURCE=",
             '-DVIADUCT_VERSION="0"', "-I" + os.path.join(ROOT, "src"), "-I" + os.path.join(ROOT, "include"), "-w"]
    objects = [os.path.join(folder, os.path.basename(source)[:-1] + "o") for source in sources]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda pair: run("cc", *flags, "-c", pair[0], "-o", pair[1]), zip(sources, objects)))
    parts = [os.path.join(build_folder, "lib", "libvia_%s.a" % name)
             for name in ("host", "core", "base", "port_emu", "port_fault")]
    run("cc", "-shared", "-fsanitize=" + kind, "-Wl,-soname,libviaduct-shmem.so.0",
        "-Wl,--version-script=" + os.path.join(ROOT, "src", "shmem", "shmem.map"), *objects, "-Wl,--start-group",
        *parts, "-Wl,--end-group", "-ljansson", "-lpthread", "-ldl", "-o",
        os.path.join(folder, "libviaduct-shmem.so.0"))


def try_programs(kind, build_folder, folder, name, options, programs):
    names, before, env = RUNTIMES[kind]
    preload = ":".join(run("cc", "-print-file-name=lib%s.so" % runtime).strip() for runtime in names)
    set_all = ["%s=%s" % pair for pair in {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": folder, **env, **ENV}.items()]
    for program, *arguments in programs:
        out = run(os.path.join(build_folder, "bin", "oshrun"), *options, "--timeout", 240, *before, "env", *set_all,
                  os.path.join(build_folder, "bin", "tests", "prog_shmem_" + program), *arguments,
                  env={**os.environ, **ENV})
        if "PASS" not in out:
            sys.exit("sanitize_shmem: %s, %s: %s" % (name, program, out))
        print("%s: %s: %s passes" % (kind, name, " ".join([program, *arguments])), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("kind", choices=sorted(RUNTIMES))
    args = parser.parse_args()
    viaduct = os.path.join(args.build, "bin", "viaduct")
    with tempfile.TemporaryDirectory() as folder:
        build(args.kind, os.path.abspath(args.build), folder)
        try_programs(args.kind, args.build, folder, "3 PEs", ["-n", "3"], PROGRAMS + ONE_HOST_ONLY)
        run(viaduct, "up", "--fabric", FABRIC, "--ring", "4")
        try:
            try_programs(args.kind, args.build, folder, "4 PEs on 4 hosts",
                         ["-n", "4", "--fabric", FABRIC, "--hosts", "1-4"], PROGRAMS)
        finally:
            subprocess.run([viaduct, "down", "--fabric", FABRIC], check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

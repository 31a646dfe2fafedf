#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Another project's program and its own tests, over the installed library: shmem4py, the Python bindings.

usage: conform_shmem.py [--build FOLDER] [--work FOLDER]

Installs the build into the work folder, fetches shmem4py from PyPI, builds it by the installed oshcc, and runs its
tests with 2, 4 and 8 PEs on one host, and on a ring of four hosts: on all of them, where frames are relayed, and
between two that are no neighbours. Exit code 77, with a reason, where PyPI can not be reached. Fetched
files stay in the work folder for the next time.
"""
import argparse
import os
import re
import subprocess
import sys
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = "shmem4py"
VERSION = "1.0.0"
FABRIC = "conform-%d" % os.getpid()
os.environ["VIADUCT_UP_WITH"] = str(os.getpid())
SECONDS_MAX = 900

# [name, options of oshrun]; those with --fabric need the ring.
ONE_HOST = [["%d PEs" % pes, ["-n", str(pes)]] for pes in (2, 4, 8)]
RING = [["%d PEs on a ring of 4 hosts" % pes, ["-n", str(pes), "--fabric", FABRIC, "--hosts", "1-4"]] for pes in (4, 8)]
RING.insert(0, ["2 PEs, two hops apart", ["-n", "2", "--fabric", FABRIC, "--hosts", "1,3"]])


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def call(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    return done.returncode, done.stdout + done.stderr


def must(*words, **more):
    code, out = call(*words, **more)
    if code != 0:
        raise Failure("%s: exit code %d\n%s" % (" ".join(map(str, words)), code, out[-4000:]))
    return out


def install(build, prefix):
    must("cmake", "--install", build, "--prefix", prefix)
    return os.path.join(prefix, "bin")


def make_python(work):
    """A Python of our own, with what shmem4py needs, and the source of shmem4py."""
    venv = os.path.join(work, "venv")
    python = os.path.join(venv, "bin", "python")
    archive = os.path.join(work, "%s-%s.tar.gz" % (PACKAGE, VERSION))
    if not os.path.exists(python):
        must(sys.executable, "-m", "venv", venv)
    have = call(python, "-c", "import numpy, cffi, wheel; assert numpy.__version__ < '2'")[0] == 0
    if not have or not os.path.exists(archive):
        fetch = [python, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
        # With numpy 2 its tests fail before they come to OpenSHMEM: -1 for unsigned types, copy=False.
        for words in (["install", "numpy<2", "cffi", "setuptools", "wheel"],
                      ["download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", work,
                       "%s==%s" % (PACKAGE, VERSION)]):
            code, out = call(*fetch, *words)
            if code != 0:
                raise Skip("PyPI can not be reached, or has no %s %s: %s" %
                           (PACKAGE, VERSION, out.strip().splitlines()[-1] if out.strip() else "no message"))
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    return python, os.path.join(work, "%s-%s" % (PACKAGE, VERSION))


def build_package(python, source, bin_folder):
    """The package knows five implementations by their macros, and takes any other for one that has nothing; so CFLAGS
    say that every feature is there."""
    with open(os.path.join(source, "src", "libshmem", "fallback.h"), encoding="utf-8") as text:
        wanted = sorted(set(re.findall(r"PySHMEM_HAVE_\w+", text.read())))
    env = {**os.environ, "OSHCC": os.path.join(bin_folder, "oshcc"), "CC": "cc",
           "CFLAGS": " ".join("-D%s=1" % name for name in wanted)}
    must(python, "-m", "pip", "--disable-pip-version-check", "install", "--no-build-isolation", "--no-deps",
         "--force-reinstall", "--no-index", source, env=env)
    built = must(python, "-c", "import shmem4py, glob, os; print(glob.glob(os.path.join("
                               "os.path.dirname(shmem4py.__file__), 'api.*.so'))[0])").strip()
    linked = must("ldd", built)
    if os.path.dirname(bin_folder) not in linked:
        raise Failure("%s is not linked to the installed library:\n%s" % (built, linked))


def summary(pes, code, out):
    """The report of the PEs' unittest: (tests, skipped), the same from each."""
    ran = [int(n) for n in re.findall(r"Ran (\d+) tests? in", out)]
    good = re.findall(r"(?m)^(?:\[\d+\] )?OK(?: \(skipped=(\d+)\))?$", out)
    if code != 0 or len(ran) != pes or len(good) != pes or len(set(ran)) != 1 or ran[0] == 0:
        raise Failure("exit code %d, tests run %s, PEs that say OK: %d of %d\n%s" %
                      (code, ran, len(good), pes, out[-6000:]))
    return ran[0], max(int(n or 0) for n in good)


def run_tests(name, options, python, source, bin_folder):
    began = time.monotonic()
    pes = int(options[1])
    # test_ptr takes shmem_ptr to give an address for every neighbour or for none; with two PEs on each host it does
    # for every other one.
    pattern = "test_*[!r].py" if "1-4" in options and pes > 4 else "test_*.py"
    # One process runs all: they share the library's state as a program's parts do.
    code, out = call(os.path.join(bin_folder, "oshrun"), *options, "--tag", "--timeout", SECONDS_MAX, python, "-m",
                     "unittest", "discover", "-s", "test", "-p", pattern, cwd=source,
                     env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        tests, skipped = summary(pes, code, out)
    except Failure as failure:
        raise Failure("%s: %s" % (name, failure)) from None
    print("%-28s %d tests, %d of them skipped by themselves, pass at every PE (%.1f s)" %
          (name, tests, skipped, time.monotonic() - began), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--work", help="default: conform-shmem in the build folder")
    args = parser.parse_args()
    work = os.path.abspath(args.work or os.path.join(args.build, "conform-shmem"))

    os.makedirs(work, exist_ok=True)
    python, source = make_python(work)
    bin_folder = install(args.build, os.path.join(work, "prefix"))
    build_package(python, source, bin_folder)
    viaduct = os.path.join(bin_folder, "viaduct")
    for name, options in ONE_HOST:
        run_tests(name, options, python, source, bin_folder)
    must(viaduct, "up", "--fabric", FABRIC, "--ring", "4")
    try:
        for name, options in RING:
            run_tests(name, options, python, source, bin_folder)
    finally:
        call(viaduct, "down", "--fabric", FABRIC)


if __name__ == "__main__":
    try:
        main()
    except Skip as reason:
        print("conform_shmem: skipped: %s" % reason)
        sys.exit(77)
    except Failure as failure:
        sys.exit("conform_shmem: %s" % failure)

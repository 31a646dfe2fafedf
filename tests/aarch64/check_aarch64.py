#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Builds the tree for aarch64 by Debian's cross compiler, and runs programs and tests of it under qemu-user.

usage: check_aarch64.py [--build FOLDER] [--no-build]

Libraries of aarch64 come from Debian's archive into a cache ($VIADUCT_AARCH64_CACHE, or viaduct/aarch64 in the user's);
nothing is installed. 77: a tool is not installed (tools/install-packages aarch64), or the archive can not be reached.

qemu-user translates to the instructions of this machine. The check shows that the code, with the assembler of the checking
mode, can be built and gives the same results. It does not show that the weak memory order of real processors does no harm.
"""
import argparse
import fcntl
import glob
import os
import shutil
import stat
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "lab")]
import lab_packages  # noqa: E402

TOOLS = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64-static", "cmake", "ninja")
LIBC = "/usr/aarch64-linux-gnu"
LIBRARIES = ("libjansson4", "libjansson-dev", "libsodium23", "libsodium-dev", "libcmocka0", "libcmocka-dev",
             "libfabric-dev")
TARGETS = ("viaduct", "viaductd", "viaduct-shmem", "viaduct-sockets", "oshrun", "oshinfo", "unit-base", "unit-pipe", "unit-node_basic", "unit-node_relay",
           "unit-client", "unit-client_messages", "prog_shmem_rma", "prog_shmem_amo", "prog_shmem_wait", "prog_shmem_memory", "prog_shmem_order",
           "prog_shmem_collect", "prog_shmem_query", "prog_shmem_fuzz", "prog_shmem_threads", "prog_shmem_storm",
           "prog_shmem_mistake")
UNITS = ("unit-base", "unit-pipe", "unit-node_basic", "unit-node_relay", "unit-client", "unit-client_messages")
# Programs of tests/shmem by two PEs of one host, and by those of three.
PROGRAMS = (("rma",), ("amo",), ("wait",), ("memory",), ("order",), ("collect",), ("query",), ("fuzz", "2"), ("threads", "teams", "10"),
            ("threads", "waits", "10"), ("storm", "3", "10"))
BETWEEN_HOSTS = (("rma",), ("amo",), ("order",), ("collect",), ("fuzz", "3"))
RUN_S = "600"  # of one program: more than a busy machine takes
APT = lab_packages.APT + 'APT::Architecture "arm64"; APT::Architectures { "arm64"; };\n'


def skip(reason):
    print("skipped: %s" % reason)
    sys.exit(77)


def codename():
    with open("/etc/os-release", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VERSION_CODENAME="):
                return line.split("=")[1].strip()
    raise lab_packages.Missing("/etc/os-release names no release of Debian")


def fetch(at):
    apt = os.path.join(at, "apt")
    for name in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(apt, name))
    source = "deb [signed-by=%s] %s %s main\n" % (lab_packages.KEYRING, lab_packages.mirror(), codename())
    for name, text in (("status", ""), ("conf", APT.format(apt)), ("sources", source)):
        with open(os.path.join(apt, name), "w", encoding="utf-8") as file:
            file.write(text)
    env = {**os.environ, "APT_CONFIG": os.path.join(apt, "conf"), "LC_ALL": "C"}
    lab_packages.run(["apt-get", "-q", "update"], env, at)
    lab_packages.run(["apt-get", "-q", "download", *LIBRARIES], env, at)
    debs = glob.glob(os.path.join(at, "*.deb"))
    lab_packages.unpack(debs, os.path.join(at, "root"), env)
    shutil.rmtree(apt)
    for deb in debs:
        os.unlink(deb)


def libraries():
    """The folder of what was unpacked; fetched when it is not in the cache."""
    cache = os.environ.get("VIADUCT_AARCH64_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "viaduct", "aarch64")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        at = os.path.join(cache, codename())
        if not os.path.exists(at):
            part = at + ".part"
            shutil.rmtree(part, ignore_errors=True)
            os.mkdir(part)
            fetch(part)
            os.rename(part, at)
    return os.path.join(at, "root")


def build(folder, root):
    env = {**os.environ, "VIADUCT_AARCH64_ROOT": root}
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "--log-level=WARNING", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g", "-DCMAKE_TOOLCHAIN_FILE=" + os.path.join(ROOT, "cmake", "aarch64.cmake")],
                   env=env, check=True)
    subprocess.run(["cmake", "--build", folder, "--target", *TARGETS], env=env, check=True)


def is_program(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF" and ".so" not in os.path.basename(path)


def emulate(folder, root):
    """
    A second folder of all programs, in which X is a script that runs X.elf under qemu-user: so a program that starts another,
    as oshrun and `viaduct up` do, starts it under qemu-user too.
    """
    run = os.path.join(folder, "run")
    paths = "%s:%s" % (run, os.path.join(root, "usr", "lib", "aarch64-linux-gnu"))
    shutil.rmtree(run, ignore_errors=True)
    for at, folders, files in os.walk(os.path.join(folder, "bin")):
        to = os.path.normpath(os.path.join(run, os.path.relpath(at, os.path.join(folder, "bin"))))
        os.makedirs(to, exist_ok=True)
        for name in files:
            source, target = os.path.join(at, name), os.path.join(to, name)
            if not is_program(source):
                shutil.copy2(source, target, follow_symlinks=False)
                continue
            shutil.copy2(source, target + ".elf")
            with open(target, "w", encoding="utf-8") as file:
                file.write('#!/bin/sh\nexec qemu-aarch64-static -L %s -E LD_LIBRARY_PATH=%s %s.elf "$@"\n' % (LIBC, paths, target))
            os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return run


def check(run):
    """How many of the runs failed."""
    env = {**os.environ, "VIADUCT_BUILD_DIR": run, "VIADUCT_SOURCE_DIR": ROOT, "PYTHONDONTWRITEBYTECODE": "1",
           "VIADUCT_FABRIC": "aarch64-%d" % os.getpid()}
    supervised = [sys.executable, os.path.join(ROOT, "tests", "supervise.py")]
    commands = [[os.path.join(run, "tests", name)] for name in UNITS]
    oshrun, viaduct = os.path.join(run, "oshrun"), os.path.join(run, "viaduct")
    for name, *words in PROGRAMS:
        commands.append([oshrun, "-n", "2", "--timeout", RUN_S, os.path.join(run, "tests", "prog_shmem_" + name), *words])
    commands.append([sys.executable, os.path.join(ROOT, "tests", "shmem", "test_shmem_check.py"), "Messages"])
    for name, *words in BETWEEN_HOSTS:
        program = os.path.join(run, "tests", "prog_shmem_" + name)
        commands.append(["sh", "-c", 'set -e; "$0" up --ring 3; "$@"; "$0" down', viaduct, oshrun, "-n", "3", "--spread", "--timeout", RUN_S,
                         program, *words])
    failed = 0
    for command in commands:
        done = subprocess.run(supervised + command, env=env, text=True, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        print("%s %s" % ("ok    " if done.returncode == 0 else "FAILED", " ".join(os.path.basename(word) for word in command)), flush=True)
        if done.returncode != 0:
            print(done.stdout + done.stderr)
            failed += 1
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "aarch64"))
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    args = parser.parse_args()
    for tool in TOOLS:
        if shutil.which(tool) is None:
            skip("%s is not installed: tools/install-packages aarch64" % tool)
    try:
        root = libraries()
    except (lab_packages.Missing, OSError, subprocess.TimeoutExpired) as error:
        skip("libraries of aarch64: %s" % error)
    if not args.no_build:
        build(args.build, root)
    failed = check(emulate(args.build, root))
    print("%d failed" % failed)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

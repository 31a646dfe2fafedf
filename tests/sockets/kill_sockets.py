#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""kill -9 of a random side of a connection under load, at a random moment, over pipes and over kernel TCP in turn.

usage: kill_sockets.py [--count N] [--seed S]

The surviving side has to end by itself, and must not have received a wrong byte. The time from the death until one of
its calls reports it is printed for both, side by side. Exit code 1 when a side hung, bytes were wrong, something was
left behind, or the surviving side's calls reported the death later than over kernel TCP: by more than a quarter and a
millisecond, in the 90th percentile. For a side that hung, the state of its threads and of the connection in the kernel
is printed, and its stacks where gdb is installed.

The time in which either side waits for a CPU does not count, including the killed one's before it dies. Over pipes both
are runnable, over the kernel one of them sleeps; on a busy machine a process that has slept gets the CPU sooner.
"""
import argparse
import contextlib
import errno
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import time

import lab
from lab import PRELOAD, STREAM, VIADUCT, end, free_port, is_connected, listens, rendezvous_names

# Kernel TCP reports a death at once; the limit allows for a busy machine.
HANG_S = 20.0
WRONG_BYTES = 2


def client_words(dice, port):
    where = ["127.0.0.1", str(port)]
    return dice.choice((["echo", *where, str(1 << 40), str(dice.randrange(1000))],
                        ["pingpong", *where, "64", "100000000"],
                        ["pingpong", *where, "40000", "100000000", "spin"]))


def cpu_wait_s(process):
    """For how long the process has waited for a CPU so far; 0 where the kernel does not count that."""
    with contextlib.suppress(OSError), open("/proc/%d/schedstat" % process.pid, encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9
    return 0


def start(words, env):
    return subprocess.Popen([STREAM, *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def has_ended(process, seconds):
    """Waits for the process by a pidfd: Popen.wait() with a limit polls only every 50 ms."""
    pidfd = os.pidfd_open(process.pid)
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def output_of(*words):
    if shutil.which(words[0]) is None:
        return "%s is not there\n" % words[0]
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False).stdout


def print_where(process, port):
    """All that the kernel and gdb show of a process that hangs."""
    base = "/proc/%d/task" % process.pid
    for thread in os.listdir(base):
        for name in ("comm", "wchan", "syscall", "stack"):
            with contextlib.suppress(OSError), open(os.path.join(base, thread, name), encoding="ascii") as file:
                print("  %s %s: %s" % (thread, name, file.read().strip().replace("\n", "\n    ")))
    print(output_of("ss", "-tinpoem", "( sport = :%d or dport = :%d )" % (port, port)))
    print(output_of(VIADUCT, "sockets"))
    print(output_of("gdb", "-p", str(process.pid), "-batch", "-ex", "thread apply all bt full"), flush=True)


def one(dice, preload):
    """(the error or None, seconds until a call of the surviving side reported the death, its errno or 0 for the end of
    the stream)"""
    env = dict(os.environ, PROG_STREAM_REPORT="1", **({"LD_PRELOAD": PRELOAD} if preload else {}))
    port = free_port()
    server = start(["serve", "127.0.0.1", str(port), "1"], env)
    client = None
    try:
        while not listens(port):
            if server.poll() is not None:
                return "the server did not start", 0, 0
            time.sleep(0.001)
        words = client_words(dice, port)
        client = start(words, env)
        while not is_connected(port) and client.poll() is None:
            time.sleep(0.001)
        time.sleep(dice.choice((0.01, 0.03, 0.1)) * dice.random() * 2)
        victim, other = (server, client) if dice.random() < 0.5 else (client, server)
        victim.kill()
        has_ended(victim, HANG_S)
        dead, waited = time.monotonic(), cpu_wait_s(other)
        if not has_ended(other, HANG_S):
            print_where(other, port)
            return "%s: the %s hung" % (" ".join(words), "client" if other is client else "server"), 0, 0
        code = other.wait()
        answers = [line.split()[1:] for line in other.stdout if line.startswith("reported ")]
        if code < 0 or other is client and code == WRONG_BYTES or not answers:
            return "%s: exit code %d" % (" ".join(words), code), 0, 0
        reported_s, error, at_end = answers[0]
        return None, max(0, float(reported_s) - dead - max(0, int(at_end) / 1e9 - waited)), int(error)
    finally:
        for process in filter(None, (server, client)):
            end(process)
            process.stdout.close()


def most(times):
    """The 90th percentile. On a busy machine the median is 0: a wait for the CPU counts when it is over, including the
    part before the death."""
    return sorted(times)[len(times) * 9 // 10]


def report(piped, plain):
    print("reported after  pipes     kernel TCP")
    for name, of in (("median", statistics.median), ("90 %", most), ("worst", max)):
        print("%-8s %7.3f ms %9.3f ms" % (name, of(piped) * 1e3, of(plain) * 1e3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    times = {True: [], False: []}
    resets = {True: 0, False: 0}
    wrong = 0
    for number in range(args.count):
        for preload in (True, False):
            complaint, reported_s, error = one(random.Random("%d-%d" % (args.seed, number)), preload)
            if complaint is not None:
                wrong += 1
                print("round %d (seed %d, %s): %s" % (number, args.seed, "pipes" if preload else "kernel", complaint))
            else:
                times[preload].append(reported_s)
                resets[preload] += error in (errno.ECONNRESET, errno.EPIPE)
    if times[True] and times[False]:
        report(times[True], times[False])
        print("by an error, because bytes were unread: %d of %d and %d of %d" % (
            resets[True], len(times[True]), resets[False], len(times[False])))
        if most(times[True]) > 1.25 * most(times[False]) + 1e-3:
            wrong += 1
            print("that is later")
    left = rendezvous_names()
    if left:
        wrong += 1
        print("left behind: %s" % left)
    print("%d kills of each, seed %d: %d wrong" % (args.count, args.seed, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    lab.begin()
    sys.exit(main())

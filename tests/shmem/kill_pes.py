#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""kill -9 of random PEs of random jobs at random moments: never a hang, never anything left behind.

usage: kill_pes.py [--count N] [--seed S] [--bin DIR]

Each run is a job of 2 to 8 PEs that sets up, waits, computes, communicates or ends; one of its processes is killed
between its first and its last moment. Then oshrun has to end in time, name the PE that was killed (unless the job was
over before), and leave no process, no file and no shared memory."""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import leftovers  # noqa: E402

# oshrun promises a second; the rest is for a busy machine.
HANG_S = 30.0


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as children:
        return [int(child) for child in children.read().split()]


def processes_in(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/cwd" % pid).startswith(folder):
                found.append(int(pid))
        except OSError:
            continue
    return found


def programs(binaries):
    test = os.path.join(binaries, "tests", "prog_shmem_")
    example = os.path.join(binaries, "examples", "")
    return [[test + "end", "wait"], [test + "end", "stubborn"], [test + "end", "good"], [test + "end", "again"],
            [test + "order"], [test + "collect"], [test + "memory"], [example + "heat_stencil"],
            [example + "integer_sort"], [example + "producer_consumer", "1000000"]]


def run(number, args, folder):
    """None, or the error."""
    rng = random.Random("%d-%d" % (args.seed, number))
    pes = rng.randint(2, 8)
    words = rng.choice(programs(args.bin))
    moment = rng.choice((0.0, 0.005, 0.02, 0.1)) * rng.random() * 2
    job = subprocess.Popen([os.path.join(args.bin, "oshrun"), "-n", str(pes)] + words, cwd=folder, text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    what = "run %d (seed %d): %d PEs of %s, after %.0f ms: " % (number, args.seed, pes, " ".join(words), moment * 1e3)
    began = time.monotonic()
    time.sleep(moment)
    victims = []
    while not victims and job.poll() is None and time.monotonic() - began < 5:
        victims = children_of(job.pid) if os.path.exists("/proc/%d" % job.pid) else []
    victim = rng.choice(victims) if victims else None
    if victim:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            victim = None
    killed = time.monotonic()
    try:
        _, err = job.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        job.kill()
        job.communicate()
        return what + "oshrun hangs", 0.0
    took = time.monotonic() - killed
    named = victim and re.search(r"oshrun: PE \d on \S+ \(pid %d\) was killed by signal 9" % victim, err)
    if job.returncode not in (0, 137) and "can not be started" not in err:
        return what + "exit code %d: %s" % (job.returncode, err), took
    if job.returncode == 137 and not named and "can not be started" not in err:
        return what + "the PE is not named: %s" % err, took
    for _ in range(200):
        left = processes_in(folder)
        if not left:
            break
        time.sleep(0.01)
    if left:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return what + "processes are left: %s" % left, took
    return None, took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--bin", default=os.path.join(HERE, "..", "..", "build", "release", "bin"))
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    folder = os.path.realpath(tempfile.mkdtemp(prefix="viaduct-kills-"))
    shm = leftovers.shared_memory()
    print("%d runs from seed %d" % (args.count, args.seed), flush=True)
    bad, times = 0, []
    try:
        for number in range(args.count):
            wrong, took = run(number, args, folder)
            times.append(took)
            if wrong:
                bad += 1
                print(wrong, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    left = sorted(set(leftovers.shared_memory()) - set(shm))
    left = [name for name in left if "viaduct" in name]
    if left:
        bad += 1
        print("left in /dev/shm: %s" % left)
    times.sort()
    print("%d of %d runs were wrong; from kill to end: median %.0f ms, longest %.0f ms"
          % (bad, args.count, times[len(times) // 2] * 1e3, times[-1] * 1e3))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

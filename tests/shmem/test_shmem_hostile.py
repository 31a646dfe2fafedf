#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""oshrun and its agents against a hostile other end: well-formed frames in any order, with any numbers.

Each round's seed is in its name; `test_shmem_hostile.py SEED ROUNDS` makes others.
"""
import os
import random
import struct
import subprocess
import sys

import shmem_lab
from shmem_lab import HANG_S, OSHRUN

JOB, START, INPUT, OUTPUT_ACK, SIGNAL, STATES = range(1, 7)
HELLO, FAILED, STARTED, OUTPUT, INPUT_ACK, ENDED, DONE, TRACE = range(32, 40)
GATE, EXIT, PING, MOMENT, MOMENTS_END = range(64, 69)
JOB_WORDS = 7
PES = 4
FIRST, ROUNDS = 1, 15

AGENT = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, %(here)r)
import test_shmem_hostile
test_shmem_hostile.be_agent(sys.argv[1], %(seed)d)
"""


def numbers(*values):
    return struct.pack("<%dI" % len(values), *(v & 0xffffffff for v in values))


def text(value):
    data = value.encode() + b"\0"
    return numbers(len(data)) + data


def frame(kind, payload):
    return struct.pack("<2I", len(payload), kind) + payload + b"\n"


class Walk:
    """The messages of an agent, mostly as the protocol has them."""

    def __init__(self, seed, first_pe):
        self.draw = random.Random("%d %d" % (seed, first_pe))
        self.pes = range(first_pe, first_pe + PES // 2)
        self.step = 0

    def any_number(self):
        return self.draw.choice([0, 1, 2, 3, PES, 31, 0x7fff, 0x7fffffff, 0x80000000, 0xffffffff, self.draw.getrandbits(32)])

    def right(self):
        """The frame that comes next in a good job."""
        self.step += 1
        if self.step == 1:
            return HELLO, numbers(self.pes[0])
        if self.step == 2:
            return STARTED, b"".join(numbers(pe, 100 + pe) for pe in self.pes)
        if self.step == 3:
            return PING, numbers(1)
        if self.step == 4:
            return GATE, numbers(1) + b"".join(numbers(pe) + bytes(8 * JOB_WORDS) for pe in self.pes)
        pe = self.pes[self.step % 2]
        return self.draw.choice([(OUTPUT, numbers(pe, self.draw.randrange(2)) + b"words %d\n" % self.step), (ENDED, numbers(pe, 100 + pe, 0, 4)),
                                 (DONE, b""), (TRACE, b""), (INPUT_ACK, numbers(0)), (EXIT, numbers(pe, 3))])

    def wrong(self):
        kind = self.draw.choice([HELLO, FAILED, STARTED, OUTPUT, INPUT_ACK, ENDED, MOMENT, MOMENTS_END, DONE, TRACE, GATE, EXIT, PING, JOB, 0, 99])
        payload = numbers(*(self.any_number() for _ in range(self.draw.randrange(8))))
        if self.draw.random() < 0.3:
            payload += text("x" * self.draw.randrange(400)) + self.draw.randbytes(self.draw.randrange(40))
        return kind, payload

    def frames(self):
        wrongness = self.draw.choice([0, 0.05, 0.2, 0.6])
        return [self.wrong() if self.draw.random() < wrongness else self.right() for _ in range(self.draw.randrange(1, 40))]


def be_agent(name, seed):
    out = sys.stdout.buffer
    out.write(sys.stdin.buffer.readline())
    walk = Walk(seed, 0 if name == "far" else PES // 2)
    try:
        for kind, payload in walk.frames():
            out.write(frame(kind, payload))
            out.flush()
    except BrokenPipeError:
        os._exit(0)


class LauncherWalk:
    """The messages of a launcher to an agent."""

    def __init__(self, seed, folder):
        self.draw = random.Random(seed)
        self.folder = folder
        self.step = 0

    def job(self):
        words = self.draw.choice([["sleep", "0.05"], ["cat"], ["sh", "-c", "echo $$; sleep 30"], ["no-such-program"]])
        rest = numbers(len(words)) + b"".join(map(text, words)) + numbers(1) + text("A=b")
        return numbers(0, 1, 2, self.draw.choice([1, 10, 0])) + struct.pack("<Q", self.draw.choice([1 << 20, 1 << 22, 0])) + \
            text("") + text("") + text(self.draw.choice([self.folder, "/nowhere"])) + rest + numbers(0, 0)

    def frames(self):
        wrongness = self.draw.choice([0, 0.1, 0.5])
        found = []
        for _ in range(self.draw.randrange(1, 25)):
            self.step += 1
            right = {1: (JOB, self.job()), 2: (START, struct.pack("<Q", 7) + numbers(0))}.get(
                self.step, self.draw.choice([(INPUT, b"line\n"), (INPUT, b""), (OUTPUT_ACK, numbers(1)), (SIGNAL, numbers(15, 1)), (STATES, b""),
                                             (PING, b""), (GATE, numbers(1) + bytes(2 * (4 + 8 * JOB_WORDS))), (EXIT, numbers(0, 3))]))
            wrong = (self.draw.choice([JOB, START, INPUT, OUTPUT_ACK, SIGNAL, STATES, HELLO, GATE, EXIT, PING, MOMENT, MOMENTS_END, 77]),
                     numbers(*(self.draw.choice([0, 1, 9, 64, 0xffffffff, self.draw.getrandbits(32)]) for _ in range(self.draw.randrange(8)))))
            found.append(wrong if self.draw.random() < wrongness else right)
        return found


class Hostile(shmem_lab.Case):
    def no_fault(self, code, err, seed):
        self.assertNotRegex(err, "Sanitizer|runtime error|assert", "seed %d" % seed)
        self.assertIn(code, range(128), "seed %d: %s" % (seed, err))

    def test_agents(self):
        for seed in range(FIRST, FIRST + ROUNDS):
            path = os.path.join(self.folder, "agent.py")
            with open(path, "w", encoding="ascii") as file:
                file.write(AGENT % {"here": shmem_lab.HERE, "seed": seed})
            os.chmod(path, 0o755)
            done = subprocess.run([OSHRUN, "-n", str(PES), "--hosts", "far,near", "--agent", path, "true"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, errors="replace", timeout=HANG_S, check=False, cwd=self.folder)
            self.no_fault(done.returncode, done.stderr, seed)
            if done.returncode != 0:
                self.assertIn("oshrun: ", done.stderr, "seed %d" % seed)
        self.assert_nothing_left()

    def test_launchers(self):
        for seed in range(FIRST, FIRST + ROUNDS):
            agent = subprocess.Popen([OSHRUN, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)
            version = agent.stdout.readline()
            data = b"".join(frame(*f) for f in LauncherWalk(seed, self.folder).frames())
            _, err = agent.communicate(version + data, timeout=HANG_S)
            self.no_fault(agent.returncode, err.decode(errors="replace"), seed)
        self.assert_nothing_left()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdigit():
        FIRST, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
        del sys.argv[1:]
    shmem_lab.main()

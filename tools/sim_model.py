# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The cost model of viaduct-sim, asked by scripts: "viaduct-sim model" (sim/paper/command.h)."""
import ctypes
import math
import os
import signal
import subprocess
import sys


def scenarios(folder):
    """Those that are installed with the program in that folder."""
    return os.path.join(folder, "..", "share", "viaduct", "scenarios")


def die_with_parent():
    """For preexec_fn: a signal that ends the script ends the simulation, too."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Failure(Exception):
    """Names what it is about and the cause."""


class Value:
    """A value of a scenario: number in base units (seconds in ps), or a word."""

    def __init__(self, line):
        part, self.section, self.key, number, factor, self.unit, self.mark, at, self.source = line.split("\t", 8)
        self.part, self.line, self.number, self.factor = int(part), int(at), float(number), float(factor)
        self.is_word = self.factor == 0

    def text(self, digits):
        return self.unit if self.is_word else f"%.{digits}g %s" % (self.number / self.factor, self.unit)


class Model:
    def __init__(self, program, env=None):
        self.process = subprocess.Popen([program, "model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def line(self):
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise Failure(f"viaduct-sim model: ended with exit code {self.process.wait()}")
        if line.startswith("! "):
            raise Failure(line[2:-1])
        return line[:-1]

    def send(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, *words):
        """The numbers of the answer."""
        self.send(*words)
        return [float(word) for word in self.line().split()] if words[0] != "values" else self.values()

    def run(self, step, *words):
        """The numbers and the names of the answer; step: called with the number of events so far."""
        self.send("run", *words)
        while (line := self.line()).startswith("% "):
            step(int(line[2:]))
        numbers, *names = line.split("\t")
        return [float(word) for word in numbers.split()], names

    def values(self):
        found = []
        while line := self.line():
            found.append(Value(line))
        return found

    def load(self, kind, path, parts, sets=()):
        self.ask("load", kind, path, parts)
        for text in sets:
            self.ask("set", text)
        self.known = {(value.section, value.key): value for value in self.ask("values")}

    def number(self, section, key):
        return self.known[section, key].number

    def whole(self, section, key):
        """A count, bytes, or a time in ps."""
        return math.floor(self.number(section, key) + 0.5)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve(command, main):
    """Runs a script's main(), and ends with its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    try:
        code = main()
        sys.stdout.flush()
        sys.exit(code)
    except Failure as failure:
        print(f"viaduct-sim: {command}{failure}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            print(f"viaduct-sim: {command}standard output: write: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered output is not written at the end
        sys.exit(2)

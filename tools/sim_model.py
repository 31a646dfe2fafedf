# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Queries the cost model of viaduct-sim for scripts: "viaduct-sim model" (sim/paper/command.h)."""
import ctypes
import math
import os
import signal
import subprocess
import sys

import sim_scenario
from sim_scenario import Failure


def scenarios(folder):
    """Those that are installed with the program in that folder."""
    return os.path.join(folder, "..", "share", "viaduct", "scenarios")


def die_with_parent():
    """For preexec_fn: a signal that ends the script ends the simulation, too."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


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

    def send_request(self, *words):
        """The numbers of the answer."""
        self.send(*words)
        return [float(word) for word in self.line().split()]

    def between(self, start="", end=""):
        """Chooses the nodes of the requests below; "": the first that there are."""
        self.ends = self.scenario.ends(start, end)
        self.send_request("between", *self.ends)

    def dma(self, engine, size):
        self.scenario.check_dma(engine, *self.ends)
        return self.send_request("dma", engine, size)

    def engine(self, name, *numbers):
        self.scenario.check_engine(name)
        return self.send_request("engine", name, *numbers)

    def run(self, step, *words):
        """The numbers and the names of the answer; step: called with the number of events so far."""
        self.send("run", *words)
        while (line := self.line()).startswith("% "):
            step(int(line[2:]))
        numbers, *names = line.split("\t")
        return [float(word) for word in numbers.split()], names

    def load(self, kind, path, parts, sets=()):
        scenario = sim_scenario.load(kind, path, parts)
        for text in sets:
            scenario.set(text)
        self.use(kind, scenario)

    def use(self, kind, scenario):
        scenario.check(kind)
        self.kind, self.scenario = kind, scenario
        self.known = {(value.section, value.key): value for value in scenario.values}
        requests = list(sim_scenario.requests(kind, scenario))
        for words in requests:
            self.send(*words)
        for _ in requests:
            self.line()

    def change(self, text):
        """As --set, of the scenario that is loaded."""
        value = self.scenario.set(text)
        self.scenario.check(self.kind)
        self.send_request(*value.request())

    def number(self, section, key):
        return self.known[section, key].number

    def whole(self, section, key):
        """A count, bytes, or a time in ps."""
        return math.floor(self.number(section, key) + 0.5)

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise Failure(f"viaduct-sim model: exit code {self.process.returncode}")


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

# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of OpenSHMEM jobs over machines: a fabric, and a command that reaches the machines."""
import os
import shlex
import subprocess
import time

import fabric
import machines_case
import machines_fabric
import machines_lab
from machines_case import BIN, HANG_S, wait_for

OSHRUN = os.path.join(BIN, "oshrun")
HEAPS = {"SHMEM_SYMMETRIC_SIZE": "1m", "VIADUCT_SHMEM_HEAP_MAX": "64m"}
# From the event that ends a job to its end: less than a second on an idle machine. A launcher that notices the loss of a machine only
# by its silence (--lost-after, 10 s) takes longer.
END_S = 9


def program(name):
    path = os.path.join(BIN, "tests", "prog_shmem_" + name)
    return path if os.path.exists(path) else os.path.join(BIN, "examples", name)


class Jobs(machines_case.Case):
    kind = "emu"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.fabric = fabric.Fabric(cls.lab, machines_fabric.ring(cls.count), cls.kind)
        cls.addClassCleanup(cls.fabric.end_all)
        cls.fabric.start()
        cls.fabric.wait_whole()
        cls.names = [m.name for m in cls.lab]
        cls.agent = os.path.join(cls.lab.shared, "agent")
        cls.write_agent()

    @classmethod
    def write_agent(cls):
        """A stand-in for ssh: given a machine's name and a command, it runs the command there."""
        lines = ["#!/bin/sh", "name=$1; shift", "case $name in"]
        for m in cls.lab:
            lines.append('%s) exec %s "$@" ;;' % (m.name, shlex.join(machines_lab.enter_words(m.pid, []))))
        lines += ["*) echo \"$name: no such machine\" >&2; exit 255 ;;", "esac"]
        with open(cls.agent, "w", encoding="ascii") as script:
            script.write("\n".join(lines) + "\n")
        os.chmod(cls.agent, 0o755)

    def setUp(self):
        self.addCleanup(self.assert_nothing_left)

    def left(self):
        return [line for m in self.lab for line in m.pids("prog_shmem_").values()] + \
            [line for m in self.lab for line in m.pids("--serve").values() if "measure-sockets" not in line]  # the daemon's

    def assert_nothing_left(self):
        self.assertTrue(wait_for(lambda: not self.left()), self.left())

    def start(self, *words, hosts=None, env=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}
        return subprocess.Popen(
            [OSHRUN, "--hosts", hosts or ",".join(self.names), "--rundir", machines_fabric.RUNDIR, "--agent", self.agent,
             *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=BIN,
            env={**environment, **HEAPS, **(env or {})}, **more)

    def oshrun(self, *words, text=None, **more):
        """(exit code, standard output, standard error)"""
        if text is not None:
            more["stdin"] = subprocess.PIPE
        job = self.start(*words, **more)
        try:
            out, err = job.communicate(text, timeout=3 * HANG_S)
        finally:
            job.kill()
        return job.returncode, out, err

    def good(self, *words, **more):
        code, out, err = self.oshrun(*words, **more)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def bad(self, *words, code, expected, **more):
        """One message, which names the cause."""
        got, out, err = self.oshrun(*words, **more)
        self.assertEqual(got, code, out + err)
        self.one_message(err, expected)

    def one_message(self, err, expected):
        messages = [line for line in err.splitlines() if line.startswith("oshrun: ")]
        self.assertEqual(len(messages), 1, err)
        self.assertRegex(messages[0], expected)

    def started(self, *words, pes=4, **more):
        """A job whose PEs run."""
        job = self.start(*words, **more)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        self.assertTrue(wait_for(lambda: len(self.pids_of_pes()) == pes))
        return job

    def pids_of_pes(self):
        """{pid here} of the processes of prog_shmem_end, without launchers that have the name in their arguments."""
        return {pid for m in self.lab for pid, line in m.pids("prog_shmem_end").items() if line.split()[0].endswith("prog_shmem_end")}

    def assert_ends(self, job, code, expected, seconds=END_S):
        begin = time.monotonic()
        _, err = job.communicate(timeout=HANG_S)
        self.assertEqual(job.returncode, code, err)
        self.one_message(err, expected)
        self.assertLess(time.monotonic() - begin, seconds)

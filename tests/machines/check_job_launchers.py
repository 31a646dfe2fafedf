#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""OpenSHMEM programs over machines under launchers of others: PMIx (mpirun of Open MPI) and PMI-1 (mpiexec.hydra)."""
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import machines_case
from jobs_case import HEAPS, Jobs, program
from machines_case import BIN, HANG_S


class Launcher(Jobs):
    """The launcher uses the network of node1, but sees all processes, so that the agent can enter machines; the PEs are on
    the other two."""
    count = 3
    hosts = "node2:2,node3:2"
    variables = {**HEAPS, "SEVERAL_MACHINES": "1"}

    @classmethod
    def write_agent(cls):
        super().write_agent()
        # Agents of Open MPI look for it too, so it is where all machines see it.
        folder = tempfile.mkdtemp(prefix="rsh-", dir=BIN)
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.rsh = os.path.join(folder, "rsh")
        with open(cls.rsh, "w", encoding="ascii") as script:
            script.write('#!/bin/sh\nname=$1; shift; exec %s "$name" sh -c "$*"\n' % cls.agent)
        os.chmod(cls.rsh, 0o755)

    def launch(self, name, *words):
        command = ["nsenter", "-t", str(self.lab[1].pid), "-n", "-u", *self.command(), program(name), *words]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={**environment, **self.variables}, start_new_session=True)
        try:
            out, _ = job.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            self.fail("%s hangs: %s" % (words, job.communicate()[0]))
        return job.returncode, out

    def test_programs(self):
        for words in (["memory"], ["heap"], ["collect"], ["end", "again"]):
            with self.subTest(words):
                code, out = self.launch(*words)
                self.assertEqual(code, 0, out)
                self.assertIn("" if words[0] == "end" else "PASS", out)

    def test_ends(self):
        code, out = self.launch("end", "global-exit")
        self.assertNotEqual(code, 0)
        self.assertIn("unflushed 0", out)
        code, out = self.launch("end", "leave")
        self.assertNotEqual(code, 0)
        self.assertIn("PE 0 exits with code 0 but without shmem_finalize", out)


@unittest.skipUnless(shutil.which("mpirun") and shutil.which("orted"), "no mpirun of Open MPI")
class OpenMpi(Launcher):
    def command(self):
        words = [word for name in self.variables for word in ("-x", name)]
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", self.rsh, "--mca",
                "plm_rsh_no_tree_spawn", "1", "--mca", "routed", "direct", "--host", self.hosts, "-np", "4", *words]

    def test_ranks_that_do_not_follow_each_other(self):
        """Told, rather than taken for two machines."""
        command = self.command
        self.command = lambda: [*command(), "--map-by", "node"]
        code, out = self.launch("hello")
        self.assertNotEqual(code, 0)
        self.assertIn("the ranks of a machine have to follow each other", out)


@unittest.skipUnless(shutil.which("mpiexec.hydra"), "no mpiexec.hydra of MPICH")
class Hydra(Launcher):
    def command(self):
        return ["mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", self.rsh, "-hosts", self.hosts, "-n", "4"]


del Launcher, Jobs

if __name__ == "__main__":
    machines_case.main()

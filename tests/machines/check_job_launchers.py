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
        for words in (["amo"], ["heap"], ["collect"], ["end", "again"]):
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


CONFIGURATION = """
ClusterName=viaduct
SlurmctldHost=node1
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=/tmp
SlurmdSpoolDir=/tmp/spool
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName=node[2-3] CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=node[2-3] Default=YES OverSubscribe=FORCE:4 State=UP
"""
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


@unittest.skipUnless(all(shutil.which(name, path=PATH) for name in ("slurmctld", "slurmd", "srun")), "no Slurm")
class Slurm(Launcher):
    """The controller and who submits are on node1, two nodes on the others."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = {**{k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}, **cls.variables,
                           "SLURM_CONF": "/tmp/slurm.conf", "PATH": PATH}
        for m in cls.lab:
            m.run(["mkdir", "-p", "/tmp/spool", "/var/spool"])
            m.write("/tmp/slurm.conf", CONFIGURATION)
            m.write("/tmp/cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        cls.daemon(1, "slurmctld")
        for i in (2, 3):
            cls.daemon(i, "slurmd", "-N", "node%d" % i)
        idle = lambda: cls.submit("sinfo", "-h", "-o", "%T %D")[1].strip() == "idle 2"
        if not machines_case.wait_for(idle):
            raise machines_case.Failure("slurm: no nodes: " + cls.submit("sinfo")[1])

    @classmethod
    def daemon(cls, index, name, *words):
        found = shutil.which(name, path=PATH)
        process = cls.lab[index].start([found, "-D", "-f", "/tmp/slurm.conf", *words], env=cls.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)

    @classmethod
    def submit(cls, *words, **more):
        """(exit code, what it printed, on both streams)"""
        process = cls.lab[1].start(list(words), env=cls.environment, cwd=BIN, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        out, _ = process.communicate(timeout=HANG_S)
        return process.returncode, out

    def launch(self, name, *words):
        return self.submit("srun", "--mpi=pmix", "-N2", "-n4", "--distribution=block", "--kill-on-bad-exit=1", "--quiet",
                           program(name), *words)

    def oshrun_there(self, *words):
        return self.submit("salloc", "-Q", "-N2", "-n4", os.path.join(BIN, "oshrun"), *words)

    def test_oshrun_in_an_allocation(self):
        code, out = self.oshrun_there("--tag", "hostname")
        self.assertEqual((code, sorted(out.splitlines())),
                         (0, ["[0] node2", "[1] node2", "[2] node3", "[3] node3"]))
        code, out = self.oshrun_there(program("memory"))
        self.assertEqual((code, out), (0, "PASS memory\n"))
        code, out = self.oshrun_there(program("end"), "exit-3")
        self.assertEqual(code, 3)
        self.assertRegex(out, r"^oshrun: PE 3 on node3 \(pid \d+ there\) exited with code 3; the job is ended\n$")
        code, out = self.oshrun_there("./nowhere")
        self.assertEqual(code, 127)
        self.assertRegex(out, r'^oshrun: node[23]: "./nowhere" can not be started: No such file or directory\n$')


del Launcher, Jobs

if __name__ == "__main__":
    machines_case.main()

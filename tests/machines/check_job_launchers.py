#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""OpenSHMEM programs over machines by oshrun through a real ssh, and under launchers of others: PMIx (mpirun of Open MPI,
srun) and PMI-1 (mpiexec.hydra)."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import machines_case
import machines_fabric
import slurm
from jobs_case import HEAPS, OSHRUN, Jobs, program
from machines_case import BIN, HANG_S, wait_for
from machines_lab import signal_inside

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


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

    def begin(self, name, *words, more=None):
        command = ["nsenter", "-t", str(self.lab[1].pid), "-n", "-u", *self.command(), program(name), *words]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**environment, **self.variables, **(more or {})}, start_new_session=True)

    def launch(self, name, *words, text="", more=None):
        """(exit code, what it printed, on both streams)"""
        return self.end(self.begin(name, *words, more=more), text)

    def end(self, job, text=""):
        try:
            out, _ = job.communicate(text, timeout=HANG_S)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            self.fail("a hang: %s" % job.communicate()[0])
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

    def test_a_pe_is_killed(self):
        job = self.begin("end", "stubborn")
        self.addCleanup(job.kill)
        self.assertTrue(wait_for(lambda: len(self.pids_of_pes()) == 4))
        os.kill(max(self.pids_of_pes()), signal.SIGKILL)
        self.assertNotEqual(self.end(job)[0], 0)

    def test_the_launcher_gets_a_signal(self):
        job = self.begin("end", "wait")
        self.addCleanup(job.kill)
        self.assertTrue(wait_for(lambda: len(self.pids_of_pes()) == 4))
        self.interrupt(job)
        self.assertNotEqual(self.end(job)[0], 0)

    def test_what_pes_wait_for(self):
        job = self.begin("end", "wait")
        self.addCleanup(job.kill)
        self.assertTrue(wait_for(lambda: len(self.pids_of_pes()) == 4))

        traces = []

        def both_wait():
            traces.append(self.lab[2].run([OSHRUN, "--trace"], check=False).stdout)
            return traces[-1].count(" waits for ") == 2
        self.assertTrue(wait_for(both_wait), traces[-1])
        self.assertRegex(traces[-1], r"PE 0 on host 2 .* waits for .* in shmem_long_wait_until")
        self.assertRegex(traces[-1], r"PE 2 on host 3 is on another machine")
        self.interrupt(job)
        self.assertNotEqual(self.end(job)[0], 0)

    def interrupt(self, job):
        job.send_signal(signal.SIGTERM)

    def test_mistakes_are_reported(self):
        """The checking mode compares with PEs of the other machine."""
        _, out = self.launch("mistake", "count", more={"VIADUCT_SHMEM_CHECK": "1"})
        self.assertRegex(out, r"PE \d on host \d: check: shmem_long_sum_reduce in .*nelems [23]\) here, and .*nelems [23]\) at PE")


@unittest.skipUnless(shutil.which("mpirun") and shutil.which("orted"), "no mpirun of Open MPI")
class OpenMpi(Launcher):
    def command(self):
        words = [word for name in [*self.variables, "VIADUCT_SHMEM_CHECK"] for word in ("-x", name)]
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", self.rsh, "--mca",
                "plm_rsh_no_tree_spawn", "1", "--mca", "routed", "direct", "--host", self.hosts, "-np", "4", *words]

    def test_input(self):
        """Of PE 0; srun gives it to all PEs, and mpiexec.hydra does not end that of the others."""
        code, out = self.launch("end", "input", text="in\n")
        self.assertEqual((code, "PE 0 read in\n" in out, len(re.findall(r"PE [123] read end\n", out))), (0, True, 3), out)

    def test_ranks_that_do_not_follow_each_other(self):
        """An error, and not two machines."""
        command = self.command
        self.command = lambda: [*command(), "--map-by", "node"]
        code, out = self.launch("hello")
        self.assertNotEqual(code, 0)
        self.assertIn("the ranks of a machine have to follow each other", out)


@unittest.skipUnless(shutil.which("mpiexec.hydra"), "no mpiexec.hydra of MPICH")
class Hydra(Launcher):
    def command(self):
        return ["mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", self.rsh, "-hosts", self.hosts, "-n", "4"]


CONFIGURATION = slurm.CONFIGURATION + """SlurmctldHost=node1
StateSaveLocation=/tmp
SlurmdSpoolDir=/tmp/spool
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
NodeName=node[2-3] CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=node[2-3] Default=YES OverSubscribe=FORCE:4 State=UP
"""
@unittest.skipUnless(all(shutil.which(name, path=PATH) for name in ("slurmctld", "slurmd", "srun")), "no Slurm")
class Slurm(Launcher):
    """The controller and the submitting user are on node1, a compute node on each of the others."""

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
    def submit(cls, *words):
        """(exit code, what it printed, on both streams)"""
        process = cls.lab[1].start(list(words), env=cls.environment, cwd=BIN, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        out, _ = process.communicate(timeout=HANG_S)
        return process.returncode, out

    def begin(self, name, *words, more=None):
        return self.lab[1].start(["srun", "--mpi=pmix", "-N2", "-n4", "--distribution=block", "--kill-on-bad-exit=1", "--quiet", program(name), *words],
                                 env={**self.environment, **(more or {})}, cwd=BIN, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT)

    def interrupt(self, job):
        signal_inside(job, signal.SIGTERM)

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


SSHD = shutil.which("sshd", path=PATH)
SSHD_CONFIG = """
HostKey /tmp/host-key
PidFile none
AuthorizedKeysFile /run/lab/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 100
"""
SSH_CONFIG = """
IdentityFile /run/lab/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


@unittest.skipUnless(SSHD, "no sshd")
class Ssh(Jobs):
    """oshrun on node1 by its default, ssh, to node2 and node3; but for what a home would hold: keys and known hosts."""
    count = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lab[1].run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/run/lab/key"])
        cls.lab[1].write("/tmp/ssh-config", SSH_CONFIG)
        for m in list(cls.lab)[1:]:
            m.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/host-key"])
            m.run(["mkdir", "-p", "/run/sshd"])
            m.write("/tmp/sshd-config", SSHD_CONFIG)
            daemon = m.start([SSHD, "-D", "-e", "-f", "/tmp/sshd-config"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            cls.addClassCleanup(daemon.wait)
            cls.addClassCleanup(daemon.kill)
        for m in list(cls.lab)[1:]:
            if not wait_for(lambda m=m: cls.lab[1].run(["ssh", "-F", "/tmp/ssh-config", m.name, "true"], check=False).returncode == 0):
                raise machines_case.Failure("ssh: %s does not answer" % m.name)

    def start(self, *words, env=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        agent = "ssh -x -o BatchMode=yes -F /tmp/ssh-config"
        return self.lab[1].start([OSHRUN, "--hosts", "node2,node3", "--rundir", machines_fabric.RUNDIR, "--agent", agent, *map(str, words)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=BIN, env={**os.environ, **HEAPS, **(env or {})}, **more)

    def test_programs(self):
        for name in ("memory", "heap"):
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 4, program(name)))

    def test_streams(self):
        text = "".join("line %d\n" % i for i in range(200000))
        _, out, _ = self.oshrun("-n", 2, "sh", "-c", "if [ -t 0 ]; then exit 1; fi; cat", text=text)
        self.assertEqual(out, text)

    def test_ends(self):
        self.bad("-n", 4, program("end"), "exit-3", code=3, expected=r"PE 3 on node3 \(pid \d+ there\) exited with code 3")
        self.bad("-n", 4, "--timeout", 2, program("end"), "stubborn", code=124, expected="has run for 2 s")
        self.bad("-n", 4, "./nowhere", code=127, expected='node[23]: "./nowhere" can not be started: No such file')

    def test_a_signal(self):
        job = self.started("-n", 4, program("end"), "wait")
        signal_inside(job, signal.SIGINT)
        self.assert_ends(job, 130, "the job is ended", 5)

    def test_a_connection_that_is_cut(self):
        job = self.started("-n", 4, program("end"), "stubborn")
        for pid, line in self.lab[1].pids("node3").items():
            if line.startswith("ssh "):
                os.kill(pid, signal.SIGKILL)
        self.assert_ends(job, 1, "PEs 2-3 on node3: the machine is lost: the command that starts oshrun there was killed by signal 9; the job", 5)

    def test_a_machine_loses_power(self):
        """Its kernel says nothing any more: silence ends the job."""
        job = self.started("-n", 4, "--lost-after", 2, program("end"), "wait")
        self.lab[3].unplug()
        try:
            self.assert_ends(job, 1, "PEs 2-3 on node3: the machine is lost: it has been silent for 2 s", 10)
            self.assertTrue(wait_for(lambda: not self.left()), self.left())
        finally:
            self.lab[3].plug()
        self.fabric.wait_whole()


del Launcher, Jobs

if __name__ == "__main__":
    machines_case.main()

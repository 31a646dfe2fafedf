#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The same binaries under Slurm's srun (PMIx): a cluster of one node in a network namespace of its own, where no other
program can reach its daemons."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import shmem_lab
import slurm
import test_shmem_launchers as launchers
from shmem_lab import program

NODE = "viaduct-node"
FOLDERS = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
DAEMONS = ("slurmctld", "slurmd")
WANTED = (*DAEMONS, "srun", "sinfo", "scancel", "unshare", "ip")
CONFIGURATION = slurm.CONFIGURATION + """SlurmctldHost={node}(127.0.0.1)
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={node} NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES OverSubscribe=FORCE:4 State=UP
"""


def find(name):
    return shutil.which(name, path=FOLDERS)


class Cluster:
    """The working directory of the daemons is the cluster's folder, so they are not counted as processes of a test."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="viaduct-slurm-")
        self.configuration = os.path.join(self.folder, "slurm.conf")
        for name in ("state", "spool"):
            os.mkdir(os.path.join(self.folder, name))
        with open(self.configuration, "w", encoding="utf-8") as out:
            out.write(CONFIGURATION.format(node=NODE, folder=self.folder))
        self.environment = {**os.environ, "SLURM_CONF": self.configuration, "PATH": FOLDERS}
        self.daemons = []

    def start(self):
        for name in DAEMONS:
            self.daemons.append(subprocess.Popen([find(name), "-D", "-f", self.configuration], cwd=self.folder,
                                                 env=self.environment, stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        if not shmem_lab.wait_for(self.is_idle):
            raise RuntimeError("no node\n" + self.logs())

    def is_idle(self):
        return subprocess.run([find("sinfo"), "-h", "-o", "%T"], env=self.environment, capture_output=True, text=True,
                              check=False).stdout.strip() == "idle"

    def logs(self):
        text = ""
        for name in DAEMONS:
            with open(os.path.join(self.folder, name + ".log"), encoding="utf-8", errors="replace") as lines:
                text += name + ":\n" + "".join(lines.readlines()[-20:])
        return text

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(shmem_lab.HANG_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # Its children are in a session of their own.
        for pid in shmem_lab.pids_in_folder(self.folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, True)


NOT_LAUNCHED = "launch failed: Unspecified error"
ATTEMPTS = 5


class Slurm(launchers.Launcher, shmem_lab.Case):
    command = ("srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--quiet")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()

    def setUp(self):
        super().setUp()
        self.environment.update(SLURM_CONF=self.cluster.configuration, PATH=FOLDERS)

    def launch(self, *words, **more):
        """Sometimes slurmd 22.05 launches no task of a job that begins right after another; srun then exits with 0."""
        for _ in range(ATTEMPTS):
            code, out, err = super().launch(*words, **more)
            if NOT_LAUNCHED not in err:
                break
        return code, out, err

    def wait_for_pes(self, job, count):
        """False when srun ended instead."""
        pes = lambda: sum(line.startswith(launchers.END) for line in shmem_lab.pids_in_folder(self.folder).values())
        shmem_lab.wait_for(lambda: pes() == count or job.poll() is not None)
        return job.poll() is None and pes() == count

    def test_the_launcher_is_killed(self):
        """When srun is killed the job continues until Slurm cancels it and ends its PEs."""
        for _ in range(ATTEMPTS):
            with self.job(3, launchers.END, "wait") as job:
                if not self.wait_for_pes(job, 3):
                    continue
                job.kill()
                self.assertEqual(self.call(find("scancel"), "--user", "root"), (0, "", ""))
                self.assert_nothing_left()
                return
        self.fail("srun started no PEs, %d times" % ATTEMPTS)

    def test_without_pmix_it_is_refused(self):
        code, out, err = self.call("srun", "--mpi=none", "--quiet", "-n", 2, program("hello"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("SLURM_STEP_NUM_TASKS=2: one of several processes", err)
        self.assertIn("try srun --mpi=pmix", err)

    def tearDown(self):
        self.assertTrue(shmem_lab.wait_for(self.cluster.is_idle), self.cluster.logs())


def main():
    missing = [name for name in WANTED if not find(name)]
    if missing:
        print("SKIP: not installed: %s (tools/install-packages slurm)" % ", ".join(missing))
        return 77
    if os.geteuid() != 0:
        print("SKIP: slurmd and a network namespace need root")
        return 77
    if "--inside" not in sys.argv:
        # getaddrinfo() wants an address that is not 127.0.0.1 before it gives any.
        script = "ip link set lo up && ip addr add 10.77.255.1/32 dev lo && hostname %s && exec \"$@\"" % NODE
        words = ["unshare", "--net", "--uts", "sh", "-c", script, "sh", sys.executable, *sys.argv, "--inside"]
        if subprocess.run(["unshare", "--net", "--uts", "true"], check=False, capture_output=True).returncode != 0:
            print("SKIP: no namespaces here")
            return 77
        os.execvp(words[0], words)
    sys.argv.remove("--inside")
    shmem_lab.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())

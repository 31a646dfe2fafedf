#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The same binaries under the launchers of others: Hydra of MPICH (PMI-1), mpirun of Open MPI and prterun (PMIx)."""
import contextlib
import os
import re
import shutil
import signal
import sys
import time

import shmem_lab
import leftovers  # in a folder that shmem_lab knows
from shmem_lab import BIN, HERE, program

END = program("end")
PROGRAMS = ("rma", "amo", "memory", "collect", "producer_consumer")


class Launcher:
    """The tests of every launcher, with more PEs than cores."""

    command = ()

    def setUp(self):
        super().setUp()
        if not shutil.which(self.command[0]):
            self.skipTest("%s is not installed" % self.command[0])
        # Libraries of others leak at their end.
        self.environment["ASAN_OPTIONS"] = self.environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

    def launch(self, pes, *words, **more):
        return self.call(*self.command, "-n", pes, *words, **more)

    @contextlib.contextmanager
    def job(self, pes, *words):
        """It ends with the block, whatever happens there."""
        job = self.start(*self.command, "-n", pes, *words)
        try:
            yield job
        finally:
            self.end_leftovers()
            job.communicate()

    def launch_good(self, pes, *words, **more):
        code, out, err = self.launch(pes, *words, **more)
        self.assertEqual(code, 0, out + err)
        self.assert_nothing_left()
        return out

    def assert_nothing_left(self):
        """The launcher's own daemons take a moment longer."""
        self.assertTrue(shmem_lab.wait_for(lambda: not shmem_lab.pids_in_folder(self.folder)),
                        shmem_lab.pids_in_folder(self.folder))
        now = [name for name in leftovers.shared_memory() if "viaduct" in name]
        self.assertEqual(now, [])

    def test_programs(self):
        for name in PROGRAMS:
            with self.subTest(name):
                self.assertIn("PASS", self.launch_good(3, program(name)))

    def test_more_pes_than_cores(self):
        self.assertIn("PASS", self.launch_good(8, program("order")))

    def test_one_job_and_not_several(self):
        out = self.launch_good(4, program("hello"))
        self.assertEqual(sorted(re.findall(r"Hello from PE (\d) of 4", out)), ["0", "1", "2", "3"])

    def test_initialized_again(self):
        self.launch_good(3, END, "again")
        self.launch_good(2, END, "start_pes")

    def test_global_exit(self):
        """The other PEs compute and make no call, and one of them ends late; their output is not lost."""
        code, out, err = self.launch(3, END, "global-exit-late")
        self.assertEqual(code, 7, out + err)
        self.assertEqual(sorted(re.findall(r"unflushed \d", out)), ["unflushed %d" % i for i in range(3)])
        self.assert_nothing_left()

    def test_a_pe_that_ends_badly_ends_the_job(self):
        for how in ("exit-3", "kill", "segv", "leave"):
            with self.subTest(how):
                code, out, err = self.launch(3, END, how)
                self.assertNotEqual(code, 0, out + err)
                self.assert_nothing_left()
        # Hydra may end before it has passed on what its processes have printed.
        self.assertTrue(any("without shmem_finalize" in self.launch(3, END, "leave")[2] for _ in range(20)))

    def test_kill_minus_nine_of_any_pe(self):
        for turn in range(3):
            with self.job(3, END, "wait") as job:
                pes = lambda: [pid for pid, line in shmem_lab.pids_in_folder(self.folder).items()
                               if line.startswith(END)]
                self.assertTrue(shmem_lab.wait_for(lambda: len(pes()) == 3))
                time.sleep(0.3)
                os.kill(sorted(pes())[turn], signal.SIGKILL)
                self.finish(job)
            self.assertNotEqual(job.returncode, 0)
            self.assert_nothing_left()

    def test_the_launcher_is_killed(self):
        with self.job(3, END, "wait") as job:
            pids = lambda: shmem_lab.pids_in_folder(self.folder)
            self.assertTrue(shmem_lab.wait_for(lambda: sum(line.startswith(END) for line in pids().values()) == 3))
            time.sleep(0.3)
            for pid, line in pids().items():
                if not line.startswith(END):
                    with contextlib.suppress(ProcessLookupError):  # a proxy ends with its launcher
                        os.kill(pid, signal.SIGKILL)
            self.finish(job)
            self.assert_nothing_left()

    def test_who_waits_for_whom(self):
        with self.job(3, program("trace"), "barrier") as job:
            shown = lambda: re.search("PE 0 .* in shmem_barrier_all, .*: for PE 2\n",
                                      self.call(shmem_lab.OSHRUN, "--trace")[1])
            self.assertTrue(shmem_lab.wait_for(shown), self.call(shmem_lab.OSHRUN, "--trace"))
            job.terminate()
            self.finish(job)
        self.assert_nothing_left()

    def test_an_invalid_heap_size(self):
        code, out, err = self.launch(2, program("hello"), env={"SHMEM_SYMMETRIC_SIZE": "huge"})
        self.assertNotEqual(code, 0)
        self.assertIn('SHMEM_SYMMETRIC_SIZE="huge"', out + err)
        self.assert_nothing_left()


class Hybrids:
    """Programs of MPI and OpenSHMEM: both libraries of a process speak with one launcher."""

    compiler = ""
    orders = ("mpi", "shmem", "inside", "never")

    def test_mpi_and_openshmem(self):
        if not shutil.which(self.compiler):
            self.skipTest("%s is not installed" % self.compiler)
        built = os.path.join(self.folder, "hybrid")
        code, out, err = self.call(self.compiler, "-std=c17", "-O1", "-I", os.path.join(HERE, "..", "..", "include"),
                                   os.path.join(HERE, "prog_hybrid.c"), "-o", built, "-L", BIN, "-lviaduct-shmem", "-Wl,-rpath," + BIN)
        self.assertEqual(code, 0, out + err)
        for order in self.orders:
            with self.subTest(order):
                self.assertIn("PASS hybrid " + order, self.launch_good(3, built, order))


class Hydra(Launcher, Hybrids, shmem_lab.Case):
    command = ("mpiexec.hydra",)
    compiler = "mpicc.mpich"
    orders = (*Hybrids.orders, "after")  # PMIx does not begin again in a process that has ended it


class OpenMpi(Launcher, Hybrids, shmem_lab.Case):
    compiler = "mpicc.openmpi"
    command = ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe")


class Prrte(Launcher, shmem_lab.Case):
    """Not a package of Debian: only if it is installed."""

    command = ("prterun", "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE")


class Others(shmem_lab.Case):
    def test_a_launcher_without_a_protocol_is_refused(self):
        """Rather than several jobs of one PE."""
        for name, who in (("OMPI_COMM_WORLD_SIZE", "Open MPI"), ("SLURM_STEP_NUM_TASKS", "srun --mpi=pmix"),
                          ("PMI_SIZE", "PMI_FD")):
            with self.subTest(name):
                code, out, err = self.call(program("hello"), env={name: "4"})
                self.assertEqual((code, out), (1, ""))
                self.assertIn("%s=4: one of several processes" % name, err)
                self.assertIn(who, err)
                self.assertEqual(self.call(program("hello"), env={name: "1"})[0], 0)

    def test_a_launcher_that_has_ended(self):
        code, out, err = self.call(program("hello"), env={"PMI_FD": "77", "PMI_RANK": "0", "PMI_SIZE": "2"})
        self.assertEqual((code, out), (1, ""))
        self.assertIn('joining the job of a PMI-1 launcher: PMI_FD="77": not an open descriptor', err)


if __name__ == "__main__":
    if not any(map(shutil.which, ("mpiexec.hydra", "mpirun.openmpi", "prterun"))):
        print("SKIP: neither mpiexec.hydra nor mpirun.openmpi nor prterun is installed")
        sys.exit(77)
    shmem_lab.main()

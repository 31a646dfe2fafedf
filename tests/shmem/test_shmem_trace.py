#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""`viaduct shmem trace`, oshrun --trace and SIGQUIT: which PE waits for which."""
import os
import re
import signal
import time

import shmem_lab
from shmem_lab import BIN, OSHRUN, program

VIADUCT = os.path.join(BIN, "viaduct")
# Not while it sets up, where PEs wait for each other as well.
BOTH = (r"PE 0 .* waits .* in shmem_barrier_all", r"PE 1 .* waits .* in shmem_barrier_all")


class Trace(shmem_lab.Case):
    def hang(self, *words):
        """Starts a job that waits forever."""
        job = self.start(OSHRUN, "-n", 3, "--timeout", 60, *words)
        self.addCleanup(job.stderr.close)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)
        return job

    def wait_trace(self, job, *patterns):
        """Returns the command's output once it matches all these patterns."""
        def is_shown():
            code, out, err = self.call(VIADUCT, "shmem", "trace", "--job", job.pid)
            self.text = out + err
            return code == 0 and all(re.search(pattern, out, re.MULTILINE) for pattern in patterns)
        self.assertTrue(shmem_lab.wait_for(is_shown), self.text)
        return self.text

    def test_a_barrier_that_one_pe_does_not_enter(self):
        job = self.hang(program("trace"), "barrier")
        text = self.wait_trace(job, r"^job \w{16} of pid %d: 3 PEs, 2 wait$" % job.pid,
                         r"^  PE 0 \(pid \d+\) waits for \d+\.\d s in shmem_barrier_all, called in hang_in_barrier\S+: "
                         r"for PE 2$",
                         r"^  PE 1 .* for PE 2$",
                         r"^  PE 2 \(pid \d+\) (is in no OpenSHMEM call that waits|computes)$")
        since = float(re.search(r"PE 0 .* waits for (\d+\.\d) s", text).group(1))
        time.sleep(1)
        later = float(re.search(r"PE 0 .* waits for (\d+\.\d) s", self.wait_trace(job, "PE 0")).group(1))
        self.assertGreater(later, since)

    def test_a_word_that_no_pe_sets(self):
        job = self.hang(program("trace"), "word")
        self.wait_trace(job, r'^  PE 0 .* in shmem_long_wait_until, called in hang_in_wait\S+: never\+8 is 3, wanted >= 5$',
                  r"^  PE 1 .* in shmem_signal_wait_until, called in .*: signals is 0, wanted == 1$",
                  r"^  PE 2 .* in shmem_finalize, .*for PE 0-1$")

    def test_a_lock(self):
        job = self.hang(program("trace"), "lock")
        text = self.wait_trace(job, r"^  PE [012] .* waits for .* in shmem_set_lock, called in hang_in_lock\S+: lock lock, held by PE \d",
                         r"^job .* 3 PEs, 2 wait$")
        holder = re.search(r"^  PE (\d) \(pid \d+\) (is in no|computes)", text, re.MULTILINE).group(1)
        self.assertEqual(re.findall(r"held by PE (\d)", text), [holder] * 2)

    def test_a_lock_that_was_given_back(self):
        job = self.hang(program("trace"), "lock-left")
        self.wait_trace(job, r"^  PE [12] .* in shmem_set_lock, .*: lock other, held by PE 0$", r"^job .* 3 PEs, 2 wait$")

    def test_a_static_program(self):
        code, out, err = self.call(os.path.join(BIN, "oshcc"), "-O2", "-static",
                                   os.path.join(shmem_lab.HERE, "prog_shmem_trace.c"), "-o", "static")
        self.assertEqual((code, out, err), (0, "", ""))
        job = self.hang("./static", "barrier")
        self.wait_trace(job, r"^  PE 0 \(pid \d+\) waits for \d+\.\d s in shmem_barrier_all, called in hang_in_barrier\S+: for PE 2$")

    def test_a_lock_in_the_place_of_another(self):
        job = self.hang(program("trace"), "lock-new")
        self.wait_trace(job, r"^  PE 0 .* in shmem_set_lock, .*: lock lock, held by PE 2$", r"^job .* 3 PEs, 2 wait$")

    def test_a_pe_that_is_stopped(self):
        job = self.hang(program("trace"), "barrier")
        text = self.wait_trace(job, *BOTH)
        pid = int(re.search(r"PE 2 \(pid (\d+)\)", text).group(1))
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        self.wait_trace(job, r"^  PE 2 .* is stopped$")
        pid = int(re.search(r"PE 1 \(pid (\d+)\)", text).group(1))
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        self.wait_trace(job, r"^  PE 1 .* waits .*; it is stopped: for PE 2$")

    def test_sigquit(self):
        job = self.hang(program("trace"), "barrier")
        self.wait_trace(job, *BOTH)
        job.send_signal(signal.SIGQUIT)
        lines = [job.stderr.readline() for _ in range(4)]
        self.assertRegex("".join(lines), r"(?s)^job \w+ of pid.*PE 0 .* waits .* in shmem_barrier_all.*PE 1.*PE 2")
        self.assertIsNone(job.poll(), "the job goes on")
        # Soon after another; on a busy machine two may be too far apart.
        self.assertTrue(shmem_lab.wait_for(lambda: self.is_ended_by_another(job)))
        self.assertEqual(job.returncode, 128 + signal.SIGQUIT, "twice: the PEs get it")

    @staticmethod
    def is_ended_by_another(job):
        time.sleep(0.1)
        job.send_signal(signal.SIGQUIT)
        return job.poll() is not None

    def test_all_jobs(self):
        job = self.hang(program("trace"), "barrier")
        self.wait_trace(job, *BOTH)
        # A launcher of another test may be stopped, so that it does not answer for some time.
        self.assertTrue(shmem_lab.wait_for(lambda: self.call(OSHRUN, "--trace")[::2] == (0, "")))
        out = self.call(OSHRUN, "--trace")[1]
        self.assertIn("of pid %d:" % job.pid, out)
        identity = re.search(r"job (\w+) of pid %d:" % job.pid, out).group(1)
        self.assertIn(identity, self.call(OSHRUN, "--trace", "--job", identity[:8])[1])

    def test_mistakes(self):
        for words, code, expected in (
                ((VIADUCT, "shmem", "trace", "--job", "nothing"), 1, '"nothing": no such job'),
                ((VIADUCT, "shmem"), 2, "a sub-command is missing"),
                ((VIADUCT, "shmem", "dance"), 2, "'dance': unknown"),
                ((VIADUCT, "shmem", "trace", "--job"), 2, "'--job': unknown option, or its argument is missing"),
                ((OSHRUN, "--trace", "true"), 2, "--trace starts no program"),
                ((OSHRUN, "--job", "1", "-n", "2", "true"), 2, "--job needs --trace")):
            with self.subTest(words):
                got, out, err = self.call(*words)
                self.assertEqual((got, out), (code, ""), err)
                self.assertIn(expected, err)
        self.assertIn("usage: viaduct shmem trace", self.call(VIADUCT, "shmem", "--help")[1])


if __name__ == "__main__":
    shmem_lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""OpenSHMEM over a ring of four emulated hosts: windows to neighbours, frames by relays, links cut and mended,
PEs and hosts killed."""
import json
import os
import signal
import time

import shmem_lab
from shmem_lab import BIN, OSHRUN, program

# True if processes map the memory of neighbours. They do not in fabrics whose links are like a class of real ones.
MAPS_MEMORY = os.environ.get("VIADUCT_UP_LIKE", "memory") == "memory"
# Over a network no process stores into memory of another host by itself.
HAS_WINDOWS = os.environ.get("VIADUCT_UP_LIKE", "memory") != "network"


class Ring(shmem_lab.Case):
    """In each test a ring of four hosts is up, in a run directory of the test's own."""

    up = ()

    def setUp(self):
        super().setUp()
        self.environment["VIADUCT_RUNDIR"] = os.path.join(self.folder, "run")
        self.environment["VIADUCT_FABRIC"] = "s%d" % os.getpid()
        self.environment["VIADUCT_UP_WITH"] = str(os.getpid())
        self.viaduct("up", "--ring", "4", *self.up)
        self.addCleanup(self.call, os.path.join(BIN, "viaduct"), "down")

    def viaduct(self, *words):
        code, out, err = self.call(os.path.join(BIN, "viaduct"), *words)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def kill_host(self, host):
        status = json.loads(self.viaduct("status", "--json"))
        pid = next(h["pid"] for h in status["hosts"] if h["host"] == host)
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(shmem_lab.wait_for(lambda: pid not in shmem_lab.pids_in_folder(self.folder)))

    def wait_attached(self, hosts=(1, 2, 3, 4)):
        """Until processes of these hosts have registered memory: their PEs are about to leave shmem_init()."""
        def are_attached():
            status = json.loads(self.viaduct("status", "--json"))
            return all(any(p["segments"] > 0 for p in h["processes"]) for h in status["hosts"] if h["host"] in hosts)
        self.assertTrue(shmem_lab.wait_for(are_attached))

    def pes(self):
        """The launchers and PEs that run; hosts are counted elsewhere or recognised by name."""
        return {pid: line for pid, line in shmem_lab.pids_in_folder(self.folder).items()
                if "viaductd" not in line}

    def assert_nothing_left(self):
        self.assertTrue(shmem_lab.wait_for(lambda: not self.pes()), self.pes())

    def stats(self, *words):
        path = os.path.join(self.folder, "stats")
        if os.path.exists(path):
            os.unlink(path)
        out = self.good("--timeout", 90, *words, env={"VIADUCT_SHMEM_STATS": path})
        with open(path, encoding="utf-8") as lines:
            return out, sorted((json.loads(line) for line in lines), key=lambda pe: pe["pe"])


class Paths(Ring):
    def test_programs_on_all_hosts(self):
        for name in ("rma", "amo", "wait", "memory", "order", "collect", "query"):
            for pes in (4, 6):
                with self.subTest(name, pes=pes):
                    self.assertIn("PASS", self.good("-n", pes, "--spread", "--timeout", 200,
                                                    program(name), timeout=220))

    def test_programs_between_hosts_that_are_not_neighbours(self):
        for name in ("rma", "amo", "wait", "memory", "order", "collect"):
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 2, "--hosts", "1,3", "--timeout", 200,
                                                program(name), timeout=220))

    def test_random_operations_against_a_model(self):
        for pes, seed in ((4, 6), (8, 7)):
            with self.subTest(pes=pes, seed=seed):
                self.assertIn("PASS", self.good("-n", pes, "--spread", "--timeout", 90, program("fuzz"), seed))

    def test_the_heap_grows(self):
        for words in (["-n", 4, "--spread"], ["-n", 2, "--hosts", "1,3"], ["-n", 5, "--hosts", "1,2"]):
            with self.subTest(words):
                self.assertIn("PASS", self.good(*words, "--timeout", 90, program("heap"), 3, 100,
                                                env=shmem_lab.SMALL_HEAP))

    def test_examples(self):
        for pes in (4, 8):
            for name in ("hello", "ring_shift", "heat_stencil"):
                with self.subTest(name, pes=pes):
                    self.assertIn("PASS", self.good("-n", pes, "--spread", "--timeout", 90,
                                                    program(name)))

    def test_bytes_take_the_path_of_the_hosts(self):
        # Neighbours: by the window, and nothing else. In a fabric of --like, puts of more than 4096 bytes go in frames (ADR 16).
        way, other = ("window", "frames") if MAPS_MEMORY else ("frames", "window")
        for _ in range(5):  # on a busy machine the link may be down for a moment, and frames take the other path
            _, stats = self.stats("-n", 2, "--hosts", "1,2", program("ring_shift"))
            if max(pe[other + "_bytes"] for pe in stats) < 1600:
                break
        self.assertEqual([pe["host"] for pe in stats], [1, 2])
        for pe in stats:
            self.assertGreaterEqual(pe[way + "_bytes"], 1600000)
            self.assertLess(pe[other + "_bytes"], 1600)
            self.assertEqual(pe["direct_bytes"], 0)
        # Two hops: by frames.
        _, stats = self.stats("-n", 2, "--hosts", "2,4", program("ring_shift"))
        for pe in stats:
            self.assertGreater(pe["frames_bytes"], 1600000)
            self.assertEqual((pe["direct_bytes"], pe["window_bytes"]), (0, 0))
        # Two PEs of one host: by its memory.
        _, stats = self.stats("-n", 2, "--hosts", "3", program("ring_shift"))
        self.assertEqual([pe["host"] for pe in stats], [3, 3])
        for pe in stats:
            self.assertGreater(pe["direct_bytes"], 1600000)
            self.assertEqual((pe["frames_bytes"], pe["window_bytes"]), (0, 0))

    def test_blocks_of_pes(self):
        _, stats = self.stats("-n", 7, "--hosts", "4,1,2", program("hello"))
        self.assertEqual([pe["host"] for pe in stats], [4, 4, 4, 1, 1, 2, 2])

    def test_two_jobs_at_once(self):
        jobs = [self.start(OSHRUN, "-n", 4, "--spread", "--timeout", 90, program("order"))
                for _ in range(2)]
        for job in jobs:
            out, err = self.finish(job, 100)
            self.assertEqual((job.returncode, err), (0, ""))
            self.assertIn("PASS", out)


class Doorbells(Ring):
    """Barriers of the daemons instead of those by windows."""

    env = {"VIADUCT_SHMEM_BARRIER": "doorbells"}

    def operations(self):
        return sum(host["counters"]["ops_completed"] for host in json.loads(self.viaduct("status", "--json"))["hosts"])

    def test_programs(self):
        for words in (["-n", 4, "--spread"], ["-n", 6, "--hosts", "3,1,2"], ["-n", 2, "--hosts", "1,3"]):
            for name in ("order", "query"):
                with self.subTest(name, words=words):
                    self.assertIn("PASS", self.good(*words, "--timeout", 90, program(name)))

    def test_doorbell_barriers_are_operations_of_daemons(self):
        for way, least, most in (("doorbells", 600, 100000), ("windows", 0, 500))[:2 if HAS_WINDOWS else 1]:
            with self.subTest(way):
                for _ in range(5):  # on a busy machine the link may be down for a moment, and then the daemons do everything
                    before = self.operations()
                    # Of neighbours only, so that nothing else goes through the daemons.
                    self.good("-n", 2, "--hosts", "1,2", "--timeout", 90, program("order"),
                              env={"VIADUCT_SHMEM_BARRIER": way})
                    count = self.operations() - before
                    if count in range(least, most):
                        break
                self.assertIn(count, range(least, most))

    def test_two_jobs_at_once(self):
        jobs = [self.start(OSHRUN, "-n", 4, "--spread", "--timeout", 90, program("order")) for _ in range(2)]
        for job in jobs:
            out, err = self.finish(job, 100)
            self.assertEqual((job.returncode, err), (0, ""))
            self.assertIn("PASS", out)

    def test_barriers_survive_cuts_of_a_link(self):
        with self.start(OSHRUN, "-n", 4, "--spread", "--timeout", 90, program("fuzz"), 9, 60) as job:
            turns = 0
            while job.poll() is None and turns < 100:
                self.viaduct("cut", "2", "3")
                time.sleep(0.1)
                self.viaduct("mend", "2", "3")
                time.sleep(0.1)
                turns += 1
            out, err = self.finish(job, 100)
        self.assertEqual((job.returncode, err), (0, ""), "%d cuts" % turns)
        self.assertIn("PASS", out)
        self.assertGreater(turns, 0)

    def test_one_host_and_more_pes_than_poll_each_other(self):
        self.assertIn("PASS", self.good("-n", 18, "--hosts", "2", "--timeout", 90, program("query")))

    def test_another_word_is_refused(self):
        self.bad("-n", 2, program("hello"), code=1, expected='VIADUCT_SHMEM_BARRIER="bells": expected windows or doorbells',
                 env={"VIADUCT_SHMEM_BARRIER": "bells"})


class Limits(Ring):
    """A host that stays away ends the job, and says so; a PE that computes for long does not."""

    up = ("--give-up-ms", "1000", "--wait-ms", "700")

    def cut_off(self, job):
        self.viaduct("cut", "1", "2")
        self.viaduct("cut", "1", "4")
        _, err = self.finish(job, 30)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(err, r"(?m)^viaduct-shmem: PE \d on host \d: .*No route to host")
        self.assertRegex(err, r"(?m)^oshrun: PE \d on host \d \(pid \d+\) exited with code 1")
        self.assert_nothing_left()

    def test_in_barriers(self):
        for barrier in ("windows", "doorbells"):
            with self.subTest(barrier), self.start(
                    OSHRUN, "-n", 4, "--spread", "--timeout", 90, program("heat_stencil"), 64, 64, 10000000,
                    env={"VIADUCT_SHMEM_BARRIER": barrier}) as job:
                self.wait_attached()
                time.sleep(0.5)
                self.cut_off(job)
                self.viaduct("mend", "1", "2")
                self.viaduct("mend", "1", "4")

    def test_in_a_wait_for_an_answer(self):
        with self.start(OSHRUN, "-n", 2, "--hosts", "1,3", "--timeout", 90, program("end"), "ask") as job:
            self.assertEqual(job.stdout.readline(), "ready\n")
            self.cut_off(job)

    def test_the_others_wait_for_a_pe_that_computes(self):
        out = self.good("-n", 4, "--spread", "--timeout", 90, program("end"), "late",
                        env={"VIADUCT_SHMEM_BARRIER": "doorbells"})
        self.assertEqual(sorted(out.splitlines()), ["PE %d was waited for" % pe for pe in range(4)])


class Faults(Ring):
    def test_a_link_is_cut_and_mended_while_a_job_runs(self):
        for name, *arguments in (["order"], ["collect"], ["fuzz", 8, 100]):
            with self.subTest(name):
                with self.start(OSHRUN, "-n", 4, "--spread", "--timeout", 200, program(name),
                                *arguments) as job:
                    turns = 0
                    while job.poll() is None and turns < 100:
                        a = turns % 4 + 1
                        self.viaduct("cut", str(a), str(a % 4 + 1))
                        time.sleep(0.15)
                        self.viaduct("mend", str(a), str(a % 4 + 1))
                        time.sleep(0.15)
                        turns += 1
                    out, err = self.finish(job, 210)
                self.assertEqual((job.returncode, err), (0, ""), "%d cuts" % turns)
                self.assertIn("PASS", out)
                self.assertGreater(turns, 0)

    def run_cut_off(self, steps):
        """Whether the job was at work when its host was cut off, and waited: one that was about to end may end."""
        with self.start(OSHRUN, "-n", 4, "--spread", "--timeout", 200, program("heat_stencil"),
                        64, 64, steps) as job:
            time.sleep(0.3)
            self.viaduct("cut", "1", "2")
            self.viaduct("cut", "1", "4")
            time.sleep(1)
            waited = job.poll() is None
            self.viaduct("mend", "1", "2")
            self.viaduct("mend", "1", "4")
            out, err = self.finish(job, 210)
        self.assertEqual((job.returncode, err), (0, ""))
        self.assertIn("PASS", out)
        return waited

    def test_a_job_waits_for_a_host_that_is_cut_off(self):
        # On a busy machine even a few steps take longer than the cut.
        self.assertTrue(any(self.run_cut_off(steps) for steps in (2000, 20000, 200000, 2000000)))

    def test_kill_minus_nine_of_a_pe(self):
        for turn in range(4):
            with self.start(OSHRUN, "-n", 4, "--spread", program("end"), "wait") as job:
                self.assertTrue(shmem_lab.wait_for(lambda: len(self.pes()) == 5))
                time.sleep(0.1)
                victim = sorted(pid for pid in self.pes() if pid != job.pid)[turn]
                os.kill(victim, signal.SIGKILL)
                _, err = self.finish(job)
            self.assertEqual(job.returncode, 137, err)
            self.assertRegex(err, r"^oshrun: PE \d on host %d \(pid %d\) was killed by signal 9 "
                                  r"\(Killed\); the job is ended\n$" % (turn + 1, victim))
            self.assert_nothing_left()
        # And the fabric is as good as before.
        self.assertIn("PASS", self.good("-n", 4, "--spread", program("ring_shift")))

    def test_kill_minus_nine_of_a_host(self):
        with self.start(OSHRUN, "-n", 4, "--spread", program("heat_stencil"), 64, 64, 10000000) as job:
            self.wait_attached()
            time.sleep(0.3)
            self.kill_host(3)
            _, err = self.finish(job)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(err, r"(?m)^viaduct-shmem: PE \d on host \d: ")
        self.assertRegex(err, r"(?m)^oshrun: PE \d on host \d \(pid \d+\) exited with code 1")
        self.assert_nothing_left()

    def test_a_host_that_is_down_is_named(self):
        self.kill_host(2)
        self.bad("-n", 4, "--hosts", "1-4", program("hello"), code=1, expected="host 2 of ")
        _, stats = self.stats("-n", 3, "--spread", program("hello"))
        self.assertEqual([pe["host"] for pe in stats], [1, 3, 4])


if __name__ == "__main__":
    shmem_lab.main()

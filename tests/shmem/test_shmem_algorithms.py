#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Collectives by every algorithm of the table. In `make test` a sample; --all: a sweep over teams of 1 to 33 PEs on 1 to 17 hosts."""
import json
import os
import random
import re
import sys
import time

import shmem_lab
from shmem_lab import BIN, program
from test_shmem_ring import Ring

# Each algorithm of the table is in at least one of them; test_every_algorithm_is_tested checks that.
SETS = (
    "",
    "hosts=ring,broadcast=exchange,fcollect=exchange,collect=leaders,reduce=exchange,scan=exchange,alltoall=direct",
    "hosts=dissemination,broadcast=tree,fcollect=leaders,collect=leaders,reduce=leaders,scan=leaders",
    "hosts=ring,broadcast=chain,fcollect=leaders,collect=leaders,reduce=ring,scan=leaders",
    "hosts=dissemination,broadcast=direct,fcollect=direct,collect=direct,reduce=shares,scan=direct",
    "hosts=ring,broadcast=tree,fcollect=direct,collect=direct,reduce=halving,scan=direct,alltoall=exchange",
)
TORUS = "hosts=torus,broadcast=torus,fcollect=leaders,collect=leaders,reduce=torus,scan=leaders"
# Of active sets, which prog_shmem_collect has.
ACTIVE_SETS = {("collect", "chain")}
SEED = 20
OSHINFO = os.path.join(BIN, "oshinfo")


class Sample(Ring):
    def run_sets(self, pes, seed, sets):
        for words in sets:
            with self.subTest(words, pes=pes, seed=seed):
                out = self.good("-n", pes, "--spread", "--timeout", 200, program("algorithms"), seed, 1, timeout=220,
                                env={"VIADUCT_SHMEM_ALGORITHMS": words})
                self.assertIn("PASS", out)

    def test_a_sample(self):
        self.run_sets(6, SEED, SETS[1:])


class Halves(Ring):
    def test_halves_of_hosts_that_are_no_power_of_two(self):
        for hosts in (2, 3):  # all four are in the sample
            with self.subTest(hosts=hosts):
                self.assertIn("PASS", self.good("-n", 2 * hosts + 1, "--hosts", "1-%d" % hosts, "--timeout", 200, program("algorithms"),
                                                SEED + 1, 2, env={"VIADUCT_SHMEM_ALGORITHMS": "reduce=halving,alltoall=exchange"}))


class Shaped(Ring):
    """Another fabric than a ring of four; the waits of a PE for other hosts are counted."""

    SHAPE = ()

    def setUp(self):
        shmem_lab.Case.setUp(self)
        self.environment["VIADUCT_RUNDIR"] = os.path.join(self.folder, "run")
        self.environment["VIADUCT_FABRIC"] = "r%d" % os.getpid()
        self.environment["VIADUCT_UP_WITH"] = str(os.getpid())
        if self.SHAPE:
            self.viaduct("up", *self.SHAPE)
        self.addCleanup(self.call, os.path.join(BIN, "viaduct"), "down")

    def rounds(self, name, count, pes, algorithms=""):
        path = os.path.join(self.folder, "stats")
        if os.path.exists(path):
            os.unlink(path)
        out = self.good("-n", pes, "--spread", "--timeout", 90, program("rounds"), name, count,
                        env={"VIADUCT_SHMEM_STATS": path, "VIADUCT_SHMEM_ALGORITHMS": algorithms})
        self.assertIn("PASS", out)
        with open(path, encoding="utf-8") as lines:
            return max(json.loads(line)["rounds"] for line in lines)

    def rounds_each(self, name, times, pes, wanted, algorithms=""):
        """Of one call and the barrier behind it. A link whose host does not run for 80 ms is down, and a team that begins then sees
        another shape: on a busy machine a run may choose other algorithms a few times, but not always."""
        for _ in range(5):
            few, many = (self.rounds(name, count, pes, algorithms) for count in (2, 2 + times))
            if (many - few) / times in wanted:
                break
        return (many - few) / times


class Torus(Shaped):
    """Rows of three hosts, columns of two."""

    SHAPE = ("--torus", "3x2")

    def test_every_type_and_operation(self):
        for words in (TORUS, "hosts=ring,broadcast=chain,reduce=ring"):
            with self.subTest(words):
                self.assertIn("PASS", self.good("-n", 9, "--hosts", "1:3,2-5:1,6:2", "--timeout", 200, program("algorithms"), SEED, 3,
                                                timeout=220, env={"VIADUCT_SHMEM_ALGORITHMS": words}))

    def test_a_torus_is_recognized_and_used(self):
        # Both neighbours in the row, one in the column; in a ring of six, both neighbours three times. And a barrier behind each.
        self.assertEqual(self.rounds_each("barrier", 10, 6, [6]), 6)
        self.assertEqual(self.rounds_each("barrier", 10, 6, [12], "hosts=ring"), 12)


class Rounds(Shaped):
    """On a mesh of 8 hosts with 32 PEs: some times log2(8) waits, not 8, and not 32."""

    HOSTS, PES, TIMES = 8, 32, 10
    SHAPE = ("--mesh", str(HOSTS))

    def test_waits_grow_with_the_logarithm(self):
        log = (self.HOSTS - 1).bit_length()
        for name, most in (("barrier", log), ("broadcast", 2 * log), ("collect", 2 * log), ("fcollect", log), ("reduce", 2 * log),
                           ("alltoall", log), ("set-barrier", log), ("set-broadcast", 2 * log), ("set-fcollect", log), ("set-reduce", 2 * log)):
            # Calls of two sizes in turn, so halves; and a barrier behind each.
            wanted = [log + halves / 2 for halves in range(1, 2 * most + 1)]
            each = self.rounds_each(name, self.TIMES, self.PES, wanted) - log
            self.assertGreater(each, 0, name)
            self.assertLessEqual(each, most, name)


class Table(shmem_lab.Case):
    def test_one_host(self):
        for pes in (1, 5):
            self.assertIn("PASS", self.good("-n", pes, "--timeout", 60, program("algorithms"), SEED, 2))

    def test_every_algorithm_is_tested(self):
        code, out, err = self.call(OSHINFO, "--algorithms")
        self.assertEqual((code, err), (0, ""))
        lines = out.split("costs:")[0].splitlines()[1:]
        listed = {tuple(line.split()[:2]) for line in lines}
        forced = {tuple(one.split("=")) for words in (*SETS, TORUS) for one in words.split(",") if one}
        self.assertEqual(listed, forced | ACTIVE_SETS)

    def test_the_choice(self):
        def choices(*words):
            out = self.call(OSHINFO, "--algorithms", *words)[1].split("a team of")[1]
            return {line.split()[0]: re.sub(r" \([^)]*\)", "", line.split(None, 1)[1]) for line in out.splitlines()[1:]}
        self.assertRegex(choices("--pes", 8, "--hosts", 8)["reduce"], r"^(exchange|leaders); .*ring$")
        self.assertEqual(choices("--pes", 64, "--hosts", 64, "--shape", "mesh")["hosts"], "dissemination")
        self.assertRegex(choices("--pes", 16, "--hosts", 16, "--shape", "mesh")["reduce"], r"; .*halving$")
        self.assertRegex(choices("--pes", 16, "--hosts", 16, "--shape", "torus")["reduce"], r"; from \d+ B torus; from \d+ B ring$")
        self.assertNotIn("halving", choices("--pes", 16, "--hosts", 16, "--shape", "other")["reduce"])
        self.assertRegex(choices("--pes", 16, "--hosts", 16)["alltoall"], r"^exchange; .*direct$")
        self.assertEqual(choices("--pes", 4, "--hosts", 1)["reduce"], "exchange; from 128 B shares")
        self.environment["VIADUCT_SHMEM_ALGORITHMS"] = "reduce=shares"
        self.assertEqual(choices()["reduce"], "shares")

    def test_costs(self):
        out = self.call(OSHINFO, "--algorithms", env={"VIADUCT_SHMEM_COSTS": "far_ns=123456"})[1]
        self.assertRegex(out, r"\n  far_ns +123456 +a word by frames, over two hops\n")
        # Frames that cost nothing: no message goes round the ring.
        cheap = self.call(OSHINFO, "--algorithms", "--pes", 64, "--hosts", 64,
                          env={"VIADUCT_SHMEM_COSTS": "far_ns=1,hop_ns=0,near_ns=1000000000"})[1]
        self.assertRegex(cheap, r"\n  hosts +dissemination ")
        self.assertIn("PASS", self.good("-n", 3, program("algorithms"), SEED, 1, env={"VIADUCT_SHMEM_COSTS": "local_ns=7,combine_ps=0"}))
        for words in ("far_ns", "far_ns=", "far_ns=-1", "far=1", "far_ns=1000000001", "far_ns=99999999999", "far_ns=1,,"):
            with self.subTest(words):
                self.bad("-n", 1, program("hello"), code=1, expected="VIADUCT_SHMEM_COSTS: ", env={"VIADUCT_SHMEM_COSTS": words})

    def test_wrong_words(self):
        for words in ("reduce", "reduce=tree", "x=ring", "reduce=ring,,"):
            with self.subTest(words):
                self.bad("-n", 1, program("hello"), code=1, expected="VIADUCT_SHMEM_ALGORITHMS: ",
                         env={"VIADUCT_SHMEM_ALGORITHMS": words})
        for words in (("--shape", "star"), ("--pes", 7, "--hosts", 7, "--shape", "torus"), ("--pes", "0"), ("--hosts", "x"), ("--pes", 2, "--hosts", 3)):
            with self.subTest(words):
                self.assertEqual(self.call(OSHINFO, "--algorithms", *words)[0], 2)


class Sweep(Shaped):
    """Rounds of jobs, until the time is over. In each round every number of hosts from 1 to 17 has every set of algorithms once, with
    fabric, number of PEs, and how many of them are on each host drawn from the seed; teams are drawn by the program."""

    def test_jobs(self):
        seed, seconds = int(os.environ.get("SWEEP_SEED", SEED)), float(os.environ.get("SWEEP_SECONDS", 3600))
        dice, end, jobs, rounds = random.Random(seed), time.monotonic() + seconds, 0, 0
        seen = {"hosts": set(), "PEs": set(), "shapes": set(), "sets": set()}
        while time.monotonic() < end:
            for hosts in dice.sample(range(1, 18), 17):
                if time.monotonic() >= end:
                    break
                shape, pes = self.draw_fabric(dice, hosts), dice.randint(hosts, 33)
                for words in (*SETS, TORUS):
                    self.run_one(dice, shape, hosts, pes, words)
                    jobs += 1
                    for name, value in zip(seen, (hosts, pes, shape[0], words)):
                        seen[name].add(value)
                print("seed %d, job %d: %d PEs, %d hosts, %s" % (seed, jobs, pes, hosts, " ".join(shape)), flush=True)
                if hosts > 1:
                    self.viaduct("down")
            else:
                rounds += 1
        print("seed %d: %d jobs, %d whole rounds; %s" % (seed, jobs, rounds, ", ".join(
            "%d %s" % (len(values), name) for name, values in seen.items())), flush=True)

    def draw_fabric(self, dice, hosts):
        """Up, except for one host."""
        if hosts == 1:
            return ("one host",)
        shapes = [("--chain", str(hosts))]
        if hosts > 2:
            shapes += [("--ring", str(hosts)), ("--mesh", str(hosts))]
        shapes += [("--torus", "%dx%d" % (columns, hosts // columns)) for columns in range(2, hosts // 2 + 1) if hosts % columns == 0]
        shape = dice.choice(shapes)
        self.viaduct("up", *shape)
        return shape

    def run_one(self, dice, shape, hosts, pes, words):
        cuts = sorted(dice.sample(range(1, pes), hosts - 1))
        slots = [end - begin for begin, end in zip([0, *cuts], [*cuts, pes])]
        place = ["--hosts", ",".join("%d:%d" % (1 + i, count) for i, count in enumerate(slots))] if hosts > 1 else []
        seed = dice.randint(1, 1 << 30)
        with self.subTest(words, shape=shape, slots=slots, seed=seed):
            self.assertIn("PASS", self.good("-n", pes, *place, "--timeout", 200, program("algorithms"), seed, 1, timeout=220,
                                            env={"VIADUCT_SHMEM_ALGORITHMS": words}))


if __name__ == "__main__":
    if "--all" in sys.argv:
        sys.argv[sys.argv.index("--all")] = "Sweep"
    elif len(sys.argv) == 1:
        sys.argv += ["Table", "Sample", "Halves", "Torus", "Rounds"]
    shmem_lab.main()

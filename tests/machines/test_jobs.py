#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""OpenSHMEM jobs over machines that share nothing but the fabric: programs, streams, and how jobs end."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import fabric
import machines_case
import machines_fabric
from jobs_case import HEAPS, OSHRUN, Jobs, program
from machines_case import BIN, HANG_S, ROOT, wait_for

sys.path.insert(0, os.path.join(ROOT, "tests", "shmem"))
import test_shmem_check  # noqa: E402


class Programs(Jobs):
    def test_examples(self):
        for name in ("hello", "ring_shift", "producer_consumer"):
            self.assertIn("PASS", self.good("-n", 4, program(name)))

    def test_symmetric_objects_and_collectives(self):
        """The heap, variables at other addresses on each machine, a heap that grows, collectives, atomics, locks."""
        for name in ("memory", "heap", "amo", "collect", "wait"):
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 4, program(name)))

    def test_init_again(self):
        self.good("-n", 4, program("end"), "again")

    def test_blocks_and_slots(self):
        out = self.good("-n", 5, "--tag", "hostname")
        self.assertEqual(sorted(out.split("\n")[:-1]), ["[0] node1", "[1] node1", "[2] node1", "[3] node2", "[4] node2"])
        out = self.good("-n", 4, "--tag", "hostname", hosts="node1:1,node2:3")
        self.assertEqual(sorted(out.split("\n")[:-1]), ["[0] node1", "[1] node2", "[2] node2", "[3] node2"])
        self.bad("-n", 5, "hostname", hosts="node1:1,node2:3", code=1, expected="5 PEs, but the machines have 4 slots")


class Streams(Jobs):
    def test_input_is_that_of_pe_0(self):
        _, out, _ = self.oshrun("-n", 3, program("end"), "input", text="in\n")
        self.assertEqual(sorted(out.splitlines()), ["PE 0 read in", "PE 1 read end", "PE 2 read end"])

    def test_large_input(self):
        text = "".join("line %d\n" % i for i in range(200000))
        self.assertEqual(self.good("-n", 1, "cat", text=text, hosts="node1"), text)

    def test_much_output_of_all(self):
        out = self.good("-n", 4, "sh", "-c", "seq 20000", hosts=None)
        self.assertEqual(out.count("\n"), 80000)
        out = self.good("-n", 4, "--tag", "seq", "5000")
        self.assertEqual(sorted(out.splitlines()),
                         sorted("[%d] %d" % (pe, i) for pe in range(4) for i in range(1, 5001)))

    def test_lines_of_64_pes_at_once(self):
        lines = ["PE %d line %d of those that all write at the same time" % (pe, i) for pe in range(64) for i in range(160)]
        script = 'i=0; while [ $i -lt 160 ]; do echo "line $i of those that all write at the same time"; i=$((i+1)); done'
        out = self.good("-n", 64, "--tag", "sh", "-c", script)
        self.assertEqual(sorted(re.sub(r"^\[(\d+)\]", r"PE \1", line) for line in out.splitlines()), sorted(lines))

    def test_streams_that_are_closed(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            words = [OSHRUN, "-n", "2", "--hosts", ",".join(self.names), "--rundir", machines_fabric.RUNDIR, "--agent", self.agent,
                     program("memory")]
            done = subprocess.run(["sh", "-c", 'exec "$@" ' + closed, "sh", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  cwd=BIN, timeout=HANG_S, check=False, env={**os.environ, **HEAPS})
            self.assertEqual((done.returncode, done.stderr), (0, ""), closed)
            self.assertEqual(done.stdout, "" if " >&-" in " " + closed else "PASS memory\n", closed)

    def test_what_a_pe_leaves_behind_with_its_streams(self):
        """The job ends although a process still has the PE's output open. Special characters in arguments arrive unchanged."""
        for hosts in ("node1", None):
            self.assertEqual(self.good("-n", 2, "sh", "-c", "setsid sleep 600 & echo here", hosts=hosts), "here\n" * 2)
        left = [pid for m in self.lab for pid in m.pids("sleep")]
        self.assertEqual(len(left), 4)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        words = ["a b", "c\nd", "'\"$(x)`", "", "\\", "*"]
        self.assertEqual(self.good("-n", 2, "printf", "<%s>", *words), "".join("<%s>" % word for word in words) * 2)

    def test_environment_and_folder(self):
        out = self.good("-n", 2, "sh", "-c", 'echo "$PWD $COLOUR $SHMEM_SYMMETRIC_SIZE"', env={"COLOUR": "blue green"})
        self.assertEqual(out.splitlines(), [os.path.realpath(BIN) + " blue green 1m"] * 2)


class Ends(Jobs):
    def test_a_pe_that_fails(self):
        end = program("end")
        self.bad("-n", 4, end, "exit-3", code=3, expected=r"PE 3 on node2 \(pid \d+ there\) exited with code 3")
        self.bad("-n", 4, end, "kill", code=137, expected=r"PE 0 on node1 \(pid \d+ there\) was killed by signal 9")
        self.bad("-n", 4, end, "leave", code=1, expected="PE 0 on node1 .* without shmem_finalize")
        self.bad("-n", 4, end, "global-exit", code=7, expected=r"PE 0 has ended the job by shmem_global_exit\(7\)")

    def test_signals(self):
        for number, code, mode in ((signal.SIGTERM, 143, "wait"), (signal.SIGINT, 130, "stubborn")):
            job = self.started("-n", 4, program("end"), mode)
            job.send_signal(number)
            self.assert_ends(job, code, "the job is ended")

    def states(self):
        found = set()
        for pid in [pid for m in self.lab for pid in m.pids("prog_shmem_end")]:
            with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
                found.add(stat.read().rpartition(")")[2].split()[0])
        return found

    def test_stop_and_go_on(self):
        job = self.started("-n", 2, program("end"), "wait", pes=2)
        job.send_signal(signal.SIGTSTP)
        self.assertTrue(wait_for(lambda: self.states() == {"T"}))
        job.send_signal(signal.SIGCONT)
        self.assertTrue(wait_for(lambda: "T" not in self.states()))
        job.send_signal(signal.SIGTERM)
        self.assert_ends(job, 143, "the job is ended")

    def test_timeout(self):
        self.bad("-n", 4, "--timeout", 1, program("end"), "stubborn", code=124, expected="has run for 1 s")

    def test_missing_programs_machines_and_folders(self):
        self.bad("-n", 2, "./nowhere", code=127, expected='node[12]: "./nowhere" can not be started: No such file')
        self.bad("-n", 2, "hostname", hosts="node1,node9", code=1, expected="node9: .* exited with code 255: node9: no such")
        self.bad("-n", 2, "--rundir", "/nowhere", "hostname", code=127, expected="node[12]: /nowhere: No such file")
        for name in ("-x", "-oProxyCommand=touch /tmp/x", "a b", "a'b", 'a"b', "a;b", "$(a)", "a\nb", "\x1b[2J", "", "[a", "n" * 300):
            self.bad("-n", 2, "hostname", hosts="node1," + name, code=2, expected='"[^"]*.*": not the name of a machine')

    def test_the_launcher_is_killed(self):
        job = self.started("-n", 4, program("end"), "stubborn")
        job.kill()
        job.wait(HANG_S)
        self.assert_nothing_left()

    def test_an_agent_is_killed(self):
        job = self.started("-n", 4, program("end"), "stubborn")
        for pid in self.lab[2].pids("--serve"):
            os.kill(pid, signal.SIGKILL)
        self.assert_ends(job, 1, "PEs 2-3 on node2: the machine is lost: .* the job is ended")

    def test_silence(self):
        job = self.started("-n", 4, "--lost-after", 1, program("end"), "stubborn")
        for pid in self.lab[2].pids("--serve"):
            os.kill(pid, signal.SIGSTOP)
        self.assert_ends(job, 1, "PEs 2-3 on node2: the machine is lost: it has been silent for 1 s")
        job = self.started("-n", 4, "--lost-after", 1, program("end"), "stubborn")
        job.send_signal(signal.SIGSTOP)
        try:
            self.assert_nothing_left()
        finally:
            job.send_signal(signal.SIGCONT)
        self.assert_ends(job, 1, "the machine is lost")

    def test_who_waits_for_whom(self):
        job = self.started("-n", 4, program("end"), "stubborn")
        time.sleep(0.3)
        job.send_signal(signal.SIGQUIT)
        lines = [job.stderr.readline() for _ in range(5)]
        self.assertRegex(lines[0], r"^job [0-9a-f]{16} of pid %d: 4 PEs, " % job.pid)
        for pe in range(4):
            self.assertRegex(lines[1 + pe], r"^  PE %d on node%d \(pid \d+\) " % (pe, 1 + pe // 2))
        job.kill()


class Trace(Jobs):
    """oshrun --trace shows a job from each of its machines, and from that of oshrun."""

    def hang(self, how, *patterns):
        """A job, and the trace of it that has all of these lines."""
        self.job = self.start("-n", 4, program("trace"), how)
        self.addCleanup(self.job.communicate)
        self.addCleanup(self.job.kill)
        return self.job, self.trace(None, *patterns)

    def trace(self, machine, *patterns):
        """Of the only job on a machine, or from here, where jobs of other tests are seen, too."""
        text = []

        def is_shown():
            done = self.lab[machine].run([OSHRUN, "--trace"], check=False) if machine else \
                subprocess.run([OSHRUN, "--trace", "--job", str(self.job.pid)], capture_output=True, text=True, timeout=HANG_S, check=False)
            text[:] = [done.stdout + done.stderr]
            return all(re.search("(?m)^" + pattern, text[0]) for pattern in patterns)
        self.assertTrue(wait_for(is_shown), text)
        return text[0]

    def test_a_barrier(self):
        waits = [r"  PE %d on node%d \(pid \d+\) waits for \d+\.\d s in shmem_barrier_all, called in hang_in_barrier\S+: for PE 3$" % (pe, 1 + pe // 2)
                 for pe in range(3)]
        job, text = self.hang("barrier", r"job \w{16} of pid \d+: 4 PEs, 3 wait$", *waits, r"  PE 3 on node2 \(pid \d+\) is in no OpenSHMEM call")
        self.assertIn("of pid %d:" % job.pid, text)
        self.assertEqual(len(text.splitlines()), 5, text)
        for machine in (1, 2):
            text = self.trace(machine, *waits)
            self.assertEqual(len(text.splitlines()), 5, text)

    def test_a_lock_on_another_machine(self):
        _, text = self.hang("lock", r"job .* 4 PEs, 3 wait$", *[r"  PE %d on node%d .*" % (pe, 1 + pe // 2) for pe in range(4)])
        holder = re.search(r"(?m)^  PE (\d) on node\d \(pid \d+\) (is in no|computes)", text).group(1)
        for machine in (None, 1, 2):
            text = self.trace(machine, "job .* 3 wait$")
            self.assertEqual(re.findall(r"in shmem_set_lock, .*: lock lock, held by PE (\d)$", text, re.MULTILINE), [holder] * 3, text)

    def test_a_machine_that_does_not_answer(self):
        job, _ = self.hang("barrier", r"job .* 3 wait$")
        agents = list(self.lab[2].pids("--serve"))
        for pid in agents:
            os.kill(pid, signal.SIGSTOP)
        try:
            self.trace(1, r"  PE 1 on node1 .* waits", "  PE 2 on node2 is on a machine that does not answer$", "  PE 3 on node2 is on a machine")
        finally:
            for pid in agents:
                os.kill(pid, signal.SIGCONT)
        self.trace(1, r"  PE 2 on node2 .* waits", r"  PE 3 on node2 \(pid")
        job.send_signal(signal.SIGSTOP)
        try:
            self.trace(2, r"oshrun: the launcher of pid \d+ does not answer", r"  PE 0 on host 1 is on another machine", "  PE 2 on host 2 .* waits")
        finally:
            job.send_signal(signal.SIGCONT)
        self.trace(2, r"  PE 0 on node1 .* waits")


class Timeline(Jobs):
    def test_one_file_on_one_clock(self):
        inside = "/var/timeline"  # each machine has its own
        path = self.lab[1].path(inside)
        for _ in range(2):  # the second removes the first one's
            self.good("-n", 4, "--timeout", HANG_S - 10, program("ring_shift"), env={"VIADUCT_SHMEM_TIMELINE": inside})
            with open(path, encoding="utf-8") as file:
                spans = [event for event in json.load(file) if event["ph"] == "X"]
            self.assertFalse(os.path.exists(self.lab[2].path(inside)))
            self.assertEqual({span["pid"] for span in spans}, {0, 1, 2, 3})
            barriers = [sorted((s for s in spans if s["pid"] == pe and s["name"] == "shmem_barrier_all"), key=lambda s: s["ts"]) for pe in range(4)]
            self.assertGreater(len(barriers[0]), 0)
            # Clocks of these machines are 1000 s apart. No PE leaves the last barrier before all have entered it.
            last = [of_pe[-1] for of_pe in barriers]
            entered = max(span["ts"] for span in last)
            for span in last:
                self.assertGreater(span["ts"] + span["dur"], entered - 5000)
                self.assertLess(span["ts"], HANG_S * 1e6)


STRANGER = """
import errno, os, socket, sys
for junk in (b"", b"GET / HTTP/1.0\\r\\n\\r\\n", os.urandom(24), os.urandom(100000)):
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as stranger:
        try:
            stranger.sendall(junk)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        except OSError as error:
            if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                raise
"""


@unittest.skipIf(fabric.WHY_NOT["ofi"], fabric.WHY_NOT["ofi"])
class OverTcp(Jobs):
    """Links are TCP: PEs of neighbours have connections of their own (docs/adr/0059-direct-connections.md)."""

    kind = "ofi"

    def connections(self, state):
        """(machine, local port, remote port) of the sockets in a state of the kernel's (01 connected, 0A listening), but for the daemons'."""
        found = set()
        for m in self.lab:
            for line in m.run(["cat", "/proc/net/tcp"]).stdout.splitlines()[1:]:
                words = line.split()
                ports = tuple(int(words[i].split(":")[1], 16) for i in (1, 2))
                if words[3] == state and 7471 not in ports:
                    found.add((m.index, *ports))
        return found

    def wait_for_connections(self):
        self.assertTrue(wait_for(lambda: self.connections("01")))

    def test_programs(self):
        for name in ("order", "memory", "heap", "amo", "wait", "fuzz", "storm"):
            with self.subTest(name):
                self.assertIn("PASS", self.good("-n", 4, program(name)))

    def test_pes_open_connections_unless_they_are_switched_off(self):
        for direct in ("auto", "off"):
            job = self.started("-n", 4, program("end"), "wait", env={"VIADUCT_DIRECT": direct})
            self.assertEqual(wait_for(lambda: len(self.connections("0A")) == 4, HANG_S if direct == "auto" else 2), direct == "auto")
            job.send_signal(signal.SIGTERM)
            job.communicate()
        self.assertIn("PASS", self.good("-n", 4, program("collect"), env={"VIADUCT_DIRECT": "off"}))

    def test_a_link_that_is_cut_and_mended(self):
        """After the cut, operations under way on connections end first, then frames wait for the link; after the mend, connections follow frames."""
        job = self.start("-n", 4, program("storm"), 1, 16)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        self.wait_for_connections()
        for how in ("cut", "mend") * 5:
            self.lab[1].run([os.path.join(BIN, "viaduct"), how, "1", "2"])
            time.sleep(0.1)
        out, err = job.communicate(timeout=3 * HANG_S)
        self.assertEqual((job.returncode, err), (0, ""), out)
        self.assertIn("PASS", out)

    def storm(self):
        """Starts a job of some seconds, or more on a busy machine. Returns a function that waits for its end, and checks the results."""
        job = self.start("-n", 4, program("storm"), 1, 8)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)

        def finish():
            out, err = job.communicate(timeout=3 * HANG_S)
            self.assertEqual((job.returncode, err), (0, ""), out)
            self.assertIn("PASS", out)
        return finish

    def test_a_partition(self):
        """Connections stay open, and continue when the kernel retransmits."""
        finish = self.storm()
        self.wait_for_connections()
        self.lab.partition([1], [2])
        self.addCleanup(self.lab.heal)
        self.assertTrue(wait_for(lambda: not self.fabric.links_up(1) and not self.fabric.links_up(2)))
        self.lab.heal()
        finish()

    def test_a_pe_that_is_stopped(self):
        finish = self.storm()
        self.wait_for_connections()
        for _ in range(3):
            pids = list(self.lab[2].pids("prog_shmem_storm"))
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.2)
        finish()

    def test_a_firewall_that_drops(self):
        """Connects get no answer: PEs give up after a second, and use frames."""
        if not shutil.which("nft"):
            self.skipTest("nft is not installed")
        for m in self.lab:
            m.run(["sh", "-c", "nft add table inet no && nft add chain inet no in '{ type filter hook input priority 0; }' && "
                   "nft add rule inet no in iif eth0 'tcp flags & (syn | ack) == syn' tcp dport != 7471 drop"])
            self.addCleanup(m.run, ["nft", "delete", "table", "inet", "no"])
        job = self.start("-n", 4, program("storm"), 1, 4)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        seen = set()
        self.assertTrue(wait_for(lambda: seen.update(self.connections("01")) or job.poll() is not None, 3 * HANG_S))
        out, err = job.communicate()
        self.assertEqual((job.returncode, err, seen), (0, "", set()), out)

    def test_strangers(self):
        job = self.started("-n", 4, program("end"), "wait")
        self.assertTrue(wait_for(lambda: len(self.connections("0A")) == 4))
        for index, port, _ in self.connections("0A"):
            m = self.lab[index]
            m.run(["python3", "-c", STRANGER, m.address, str(port)], timeout=HANG_S)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        self.assert_ends(job, 143, "the job is ended")


class Mistakes(Jobs):
    """The checking mode reports the same mistakes over machines as on one."""

    def test_each_mistake(self):
        for name, pe, pattern in test_shmem_check.MESSAGES:
            with self.subTest(name):
                mode = "1" if pe is not None else "abort"
                _, out, err = self.oshrun("-n", 2, "--timeout", HANG_S - 10, program("mistake"), name, env={"VIADUCT_SHMEM_CHECK": mode})
                self.assertNotIn("has run for", err, out)
                lines = re.findall(r"(?m)^viaduct-shmem: PE (\d) on host \d: check: (.*)$", err)
                self.assertTrue([text for who, text in lines if (pe is None or int(who) == pe) and re.match(pattern, text)], err)

    def test_good_programs(self):
        for name in ("hello", "ring_shift", "heap", "order"):
            with self.subTest(name):
                _, _, err = self.oshrun("-n", 4, program(name), env={"VIADUCT_SHMEM_CHECK": "1"})
                self.assertNotIn("check:", err)


class Power(Jobs):
    def test_a_machine_loses_power(self):
        job = self.started("-n", 4, program("end"), "wait")
        self.lab[2].kill()
        self.assert_ends(job, 1, "PEs 2-3 on node2: the machine is lost")
        self.assertEqual(re.findall("prog_shmem", " ".join(self.lab[1].pids("prog_shmem").values())), [])

    def left(self):
        return list(self.lab[1].pids("prog_shmem_").values()) + list(self.lab[1].pids("--serve").values())


if __name__ == "__main__":
    machines_case.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Daemons on machines of their own: links come up in any order, heal, and messages under way arrive exactly once."""
import signal
import time
import unittest

import fabric
import machines_case
from machines_case import HANG_S, wait_for

import machines_fabric


class Links:
    kind = "emu"

    def setUp(self):
        # Emulated links must not go down when CPUs are busy. The end of a daemon takes its links down at once nevertheless.
        times = {"times": {"dead-ms": 5000}} if self.kind == "emu" else {}
        self.fabric = fabric.Fabric(self.lab, machines_fabric.ring(self.count), self.kind, times)
        self.addCleanup(self.tidy)

    def tidy(self):
        self.fabric.end_all()
        self.lab.heal()
        for m in self.lab:
            m.run(["sh", "-c", "rm -rf /run/viaduct"])

    def flow(self, source, target, *words):
        """Starts a flow; the returned function waits for its end and checks that each message arrived exactly once."""
        receiver = self.fabric.receiver(target)
        sender = self.fabric.deliver(source, "send", target, *words)

        def finish():
            output = sender.communicate(timeout=HANG_S)[0]
            tally, silence = fabric.outcome(receiver)
            self.assertRegex(output, r"^sent \d+\n", tally)
            self.assertEqual(tally, {"received": int(output.split()[1]), "lost": 0, "doubled": 0, "reordered": 0,
                                     "wrong": 0})
            return tally["received"], silence
        for process in (sender, receiver):
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        return finish

    def test_in_either_order(self):
        for first, second in ((1, 2), (2, 1)):
            self.fabric.start(first)
            self.assertTrue(wait_for(lambda first=first: self.fabric.status(first)))
            self.fabric.start(second)
            self.fabric.wait_whole([1, 2])
            self.flow(1, 2, 2000, 256, 0)()
            self.flow(2, 1, 20, 32768, 0)()
            self.assertEqual(self.fabric.end(first), 0)
            self.assertEqual(self.fabric.end(second), 0)

    def test_a_killed_daemon_comes_back(self):
        self.fabric.start(1, 2)
        self.fabric.wait_whole([1, 2])
        for _ in range(2):
            self.fabric.end(2, signal.SIGKILL)
            self.assertTrue(wait_for(lambda: not self.fabric.links_up(1)))
            self.fabric.start(2)
            self.fabric.wait_whole([1, 2])
        self.flow(1, 2, 1000, 256, 0)()

    def test_a_machine_loses_power_and_boots(self):
        self.fabric.start(1, 2)
        self.fabric.wait_whole([1, 2])
        self.lab[2].kill()
        self.fabric.daemons.pop(2).wait(HANG_S)
        self.assertTrue(wait_for(lambda: not self.fabric.links_up(1)))
        self.lab[2].boot()
        self.fabric.start(2)
        self.fabric.wait_whole([1, 2])
        self.flow(1, 2, 1000, 256, 0)()

    def test_a_suspended_machine_continues(self):
        self.fabric.start(1, 2)
        self.fabric.wait_whole([1, 2])
        finish = self.flow(1, 2, 0, 256, 200, 1.5)
        time.sleep(0.3)
        self.lab[2].suspend(0.5)
        self.fabric.wait_whole([1, 2])
        finish()

    def test_memory_is_put_to(self):
        self.fabric.start(1, 2)
        self.fabric.wait_whole([1, 2])
        memory = self.fabric.deliver(2, "memory", 1, 1 << 20, stdin=machines_case.PIPE)
        self.assertEqual(memory.stdout.readline(), "ready\n")
        put = self.fabric.deliver(1, "put", 2, 1 << 20, 0.2)
        self.assertRegex(put.communicate(timeout=HANG_S)[0], r"^bandwidth [\d.e+]+ Gbit/s\nput [\d.]+ us\n$")
        memory.communicate(timeout=HANG_S)
        self.assertEqual(memory.returncode, 0)


@unittest.skipIf(fabric.WHY_NOT["ofi"], fabric.WHY_NOT["ofi"])
class OverLibfabric(Links, machines_case.Case):
    count = 2
    kind = "ofi"

    def test_losses_and_delays(self):
        self.fabric.start(1, 2)
        self.fabric.wait_whole([1, 2])
        self.lab[2].wire(loss=2, delay_ms=1)
        try:
            self.flow(1, 2, 500, 1024, 0)()
        finally:
            self.lab[2].wire(loss=0, delay_ms=0)

    def test_a_machine_suspended_until_its_links_are_down_continues(self):
        self.fabric.start(1, 2)
        self.fabric.wait_whole([1, 2])
        finish = self.flow(1, 2, 0, 256, 200, 5)
        self.lab[2].suspend()
        self.assertTrue(wait_for(lambda: not self.fabric.links_up(1)))
        self.lab[2].resume()
        self.fabric.wait_whole([1, 2])
        finish()
        self.assertRegex(self.fabric.log(1), "host 1: link 0 .*host 2: (waiting|handshake: no sign of life)")

    def test_both_sides_report_a_wrong_key(self):
        self.lab[2].write(machines_fabric.KEY, "another key than that of the others", 0o600)
        self.fabric.start(1, 2)
        for host in (1, 2):
            self.assertTrue(wait_for(lambda host=host: "key" in self.error_of(host)), self.fabric.status(host))
        self.assertFalse(self.fabric.links_up(1) | self.fabric.links_up(2))

    def error_of(self, host):
        links = self.fabric.status(host).get("links", [])
        return (links[0]["error"] + links[0]["found"]) if links else ""


class Emulated(Links, machines_case.Case):
    """The cable is in a folder of both machines: as with an NTB cable between them, but for the hardware."""
    count = 2
    test_a_killed_daemon_comes_back = test_a_suspended_machine_continues = None
    test_memory_is_put_to = None


class Relays(Links, machines_case.Case):
    """Four in a ring: messages under way when a host on their route dies, or the network is partitioned."""
    count = 4
    kind = fabric.KIND

    test_in_either_order = test_a_killed_daemon_comes_back = test_a_machine_loses_power_and_boots = None
    test_a_suspended_machine_continues = test_memory_is_put_to = None

    def test_relays_die_under_a_flow(self):
        self.fabric.start()
        self.fabric.wait_whole()
        finish = self.flow(1, 3, 0, 1024, 100, 1.2)
        for relay in (2, 4):
            self.fabric.end(relay, signal.SIGKILL)
            self.fabric.start(relay)
            self.fabric.wait_whole()
        finish()

    def test_completions_late_and_in_any_order(self):
        if self.kind != "ofi":
            self.skipTest(fabric.WHY_NOT["ofi"])
        self.fabric.more_environment = fabric.shuffled(7)
        self.fabric.start()
        self.fabric.wait_whole()
        for host in self.fabric.hosts:
            fabric.check_shuffled(self.lab[host].pids(fabric.VIADUCTD))
        finish = [self.flow(3, 1, 0, 32768, 20000, 2.5), self.flow(1, 3, 0, 1024, 100, 1.5)]
        self.fabric.end(2, signal.SIGKILL)
        self.fabric.start(2)
        self.fabric.wait_whole()
        fabric.check_shuffled(self.lab[2].pids(fabric.VIADUCTD))
        for wait in finish:
            wait()

    def test_a_partition_heals(self):
        if self.kind == "emu":
            self.skipTest("the cables of emulated links do not go through the network")
        self.fabric.start()
        self.fabric.wait_whole()
        finish = [self.flow(1, 3, 0, 1024, 100, 1.2), self.flow(4, 2, 0, 1024, 100, 1.2)]
        self.lab.partition([1, 2], [3, 4])
        self.assertTrue(wait_for(lambda: self.fabric.reached(1) == {2} and self.fabric.reached(4) == {3}))
        self.lab.heal()
        self.fabric.wait_whole()
        for wait in finish:
            wait()


if __name__ == "__main__":
    machines_case.main()

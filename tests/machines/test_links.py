#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Daemons on machines of their own: links come up in any order, heal, and what is under way arrives exactly once."""
import signal
import time

import fabric
import machines_case
from machines_case import HANG_S, wait_for

import machines_fabric


class Links:
    kind = "emu"

    def setUp(self):
        self.fabric = fabric.Fabric(self.lab, machines_fabric.ring(self.count), self.kind)
        self.addCleanup(self.tidy)

    def tidy(self):
        self.fabric.end_all()
        self.lab.heal()
        for m in self.lab:
            m.run(["sh", "-c", "rm -rf /run/viaduct"])

    def flow(self, source, target, *words):
        """Starts a flow; what returns waits for its end and wants all of it exactly once."""
        receiver = self.fabric.receiver(target)
        sender = self.fabric.deliver(source, "send", target, *words)

        def finish():
            said = sender.communicate(timeout=HANG_S)[0]
            tally, silence = fabric.outcome(receiver)
            self.assertRegex(said, r"^sent \d+\n", tally)
            self.assertEqual(tally, {"received": int(said.split()[1]), "lost": 0, "doubled": 0, "reordered": 0,
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
        for _ in range(3):
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

    def test_a_suspended_machine_goes_on(self):
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


class Emulated(Links, machines_case.Case):
    count = 2


class Relays(Links, machines_case.Case):
    """Four in a ring: what is under way when a host on its way dies."""
    count = 4

    def test_in_either_order(self):
        self.fabric.start(4, 2, 3, 1)
        self.fabric.wait_whole()

    test_a_killed_daemon_comes_back = test_a_machine_loses_power_and_boots = None
    test_a_suspended_machine_goes_on = test_memory_is_put_to = None

    def test_relays_die_under_a_flow(self):
        self.fabric.start()
        self.fabric.wait_whole()
        finish = self.flow(1, 3, 0, 1024, 100, 2)
        for relay in (2, 4):
            self.fabric.end(relay, signal.SIGKILL)
            time.sleep(0.3)
            self.fabric.start(relay)
            self.fabric.wait_whole()
        finish()


if __name__ == "__main__":
    machines_case.main()

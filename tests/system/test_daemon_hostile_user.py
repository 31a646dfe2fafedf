#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A local user who may attach, but not administer, and attacks a daemon's control socket: links are unaffected."""
import contextlib
import json
import os
import shutil
import subprocess
import time

import cli
from daemon_config import Machine

# The program that another user runs is in a readable folder.
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
ATTACK = os.path.join(cli.HERE, "control_attacks.py")


class HostileUser(cli.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can change the user")
        os.chmod(self.folder, 0o755)
        self.one, self.two = Machine(self, 1), Machine(self, 2)
        rights = "[rights]\nattach = user:%d\n" % cli.NOBODY
        self.one.configure([2], more=rights)
        self.two.configure([1])
        for machine in (self.one, self.two):
            os.chmod(machine.folder, 0o755)
            machine.start()
        self.assertTrue(cli.wait_for(lambda: self.one.state(2) == "up" and self.one.reaches(2)))
        self.descriptors = self.count_descriptors()
        self.downs = 0

    def count_descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.one.process.pid))

    def attack(self, name, wait=True):
        with open(ATTACK, "rb") as program:
            process = subprocess.Popen([PYTHON, "-", os.path.join(self.one.rundir, "host-1.ctl"), name], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, user=cli.NOBODY, group=cli.NOBODY, extra_groups=[], cwd="/")
            process.stdin.write(program.read())
            process.stdin.close()
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        if not wait:
            self.assertEqual(process.stdout.readline(), b"begins\n")
            return process
        output = process.stdout.read().decode()
        self.assertEqual(process.wait(cli.HANG_S), 0, output)
        self.assert_unharmed()
        return output

    def assert_unharmed(self):
        """The daemon answers its owner, the link has not been down, and the daemon has closed the attack's descriptors."""
        self.assertEqual(self.one.links()["to-2-0"]["downs"], self.downs)
        self.assertTrue(self.one.reaches(2))
        self.assertTrue(cli.wait_for(lambda: self.count_descriptors() <= self.descriptors), self.count_descriptors())
        self.assertNotIn("Sanitizer", self.one.messages())

    def test_malformed_requests_get_an_error(self):
        for line in self.attack("malformed").splitlines():
            answer = json.loads(line)
            self.assertFalse(answer["ok"], line)
            self.assertTrue(answer["error"], line)

    def test_rights(self):
        output = self.attack("rights").splitlines()
        self.assertGreater(len(output), 7)
        for line in output:
            self.assertRegex(json.loads(line)["error"], "^permission denied: user %d has no right to administer host 1, which" % cli.NOBODY)
        self.assertFalse(self.one.links()["to-2-0"]["cut"])
        # Host 2 refuses other users, whichever host forwards the request.
        self.assertIn("permission denied: user %d of host 1 has no right to attach to host 2" % cli.NOBODY, self.attack("elsewhere"))

    def test_descriptors_that_come_with_requests(self):
        self.assertEqual(self.attack("descriptors"), "answered\n")

    def test_clients_that_leave(self):
        self.assertEqual(self.attack("leave"), "left\n")

    def test_slow_clients_and_many(self):
        self.assertEqual(self.attack("drips"), "answered\n")
        # Clients that never read, that send half a line, and more of them than one user may have: the daemon answers
        # its owner.
        holder = self.attack("hold", wait=False)
        for _ in range(20):
            begin = time.monotonic()
            self.assertTrue(self.one.send_request("status")["ok"])
            self.assertLess(time.monotonic() - begin, 20)
        # The last request's own connection may be open for a moment.
        self.assertTrue(cli.wait_for(lambda: self.count_descriptors() <= self.descriptors + 8), self.count_descriptors())
        holder.kill()
        holder.wait()
        self.assert_unharmed()

    def hold_attachments(self, count):
        """Attachments of the user: each makes a status longer."""
        for name in ("libviaduct.so", "cli_attached.py"):
            shutil.copy(os.path.join(cli.BIN if name.endswith(".so") else cli.HERE, name), self.folder)
        holder = subprocess.Popen([PYTHON, os.path.join(self.folder, "cli_attached.py"), os.path.join(self.folder, "libviaduct.so"),
                                   "many", str(count)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, user=cli.NOBODY,
                                  group=cli.NOBODY, extra_groups=[], cwd="/",
                                  env={**self.env, "VIADUCT_RUNDIR": self.one.rundir, "VIADUCT_HOST": "1"})
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        self.assertEqual(holder.stdout.readline(), "%d\n" % count)
        self.descriptors = self.count_descriptors()

    def test_many_requests_at_once(self):
        # The daemon sends heartbeats between the requests: the neighbour waits for one for a part of the time only.
        self.hold_attachments(120)
        shares = []
        for _ in range(5):
            answers, took_us = map(int, self.attack("pipeline").split())
            self.assertEqual(answers, 240)
            shares.append((self.two.links()["to-1-0"]["silence_max_us"], took_us))
            # Heartbeats and the polls for them are 25 ms apart. If no heartbeat went out in between, the silence would be nearly took_us.
            if shares[-1][0] < max(80000, took_us / 2):
                return
            # The machine may have been busy: once more, with a link whose counters start again.
            self.assertTrue(self.one.send_request("cut", peer=2)["ok"])
            self.assertTrue(self.one.send_request("mend", peer=2)["ok"])
            self.downs += 1
            self.assertTrue(cli.wait_for(lambda: self.one.state(2) == "up" and self.one.reaches(2)))
        self.fail("silence and duration in microseconds: %s" % shares)

    def test_clients_that_always_have_requests(self):
        # Their answers take more than one turn of the control thread, which serves other sources in between.
        self.hold_attachments(120)
        hogs = self.attack("hogs", wait=False)
        for _ in range(5):
            begin = time.monotonic()
            self.assertTrue(self.one.send_request("status")["ok"])
            self.assertLess(time.monotonic() - begin, 10)
        hogs.kill()
        hogs.wait()
        self.assert_unharmed()

    def test_requests_to_another_host(self):
        # A part of the requests that host 2 answers for host 1 is reserved for the owner.
        flood = self.attack("others", wait=False)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            answer = self.one.send_request("status", host=2)
            self.assertTrue(answer["ok"], answer)
            time.sleep(0.1)
        flood.kill()
        flood.wait()
        self.assert_unharmed()

    def test_a_flood(self):
        flood = [self.attack("flood", wait=False) for _ in range(2)]
        begin = time.monotonic()
        answered = 0
        while time.monotonic() - begin < 3:
            answered += self.one.send_request("status")["ok"]
        self.assertGreater(answered, 0)
        for process in flood:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self.assert_unharmed()


if __name__ == "__main__":
    cli.main()

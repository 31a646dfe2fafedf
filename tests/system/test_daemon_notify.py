#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Notifications to a service manager, for which a socket of this test stands in; and the unit file."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import cli
from daemon_config import Machine

UNIT = os.path.join(os.path.dirname(cli.BIN), "viaductd.service")


class Notify(cli.Case):
    def setUp(self):
        super().setUp()
        self.machine = Machine(self, 1)
        self.machine.configure()
        self.path = os.path.join(self.folder, "notify")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.settimeout(cli.HANG_S)

    def start(self, address=None, **env):
        self.manager.bind(self.path if address is None else "\0" + address[1:])
        return self.machine.start(env={"NOTIFY_SOCKET": address or self.path, **env})

    def receive(self):
        """The next message as {variable: value}."""
        return dict(line.split("=", 1) for line in self.manager.recv(4096).decode().splitlines())

    def test_the_manager_is_notified_of_start_reload_and_end(self):
        self.start()
        self.assertEqual(self.receive(), {"READY": "1", "STATUS": "host 1 is up"})
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.machine.process.send_signal(signal.SIGHUP)
        reloading = self.receive()
        self.assertEqual(reloading["RELOADING"], "1")
        self.assertLessEqual(before, int(reloading["MONOTONIC_USEC"]) / 1e6 + 1e-3)
        self.assertLessEqual(int(reloading["MONOTONIC_USEC"]) / 1e6, time.clock_gettime(time.CLOCK_MONOTONIC))
        self.assertEqual(self.receive(), {"READY": "1", "STATUS": "reloaded"})
        self.machine.write("nonsense\n")
        self.machine.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.receive()["RELOADING"], "1")
        self.assertEqual(self.receive(), {"READY": "1", "STATUS": "the last reload failed, see the log"})
        self.assertEqual(self.machine.stop(), 0)
        self.assertEqual(self.receive()["STOPPING"], "1")

    def test_signals_that_are_repeated_while_it_ends(self):
        for attempt in range(5):
            process = self.machine.start().process
            while process.poll() is None:
                process.send_signal((signal.SIGTERM, signal.SIGINT)[attempt % 2])
            self.assertEqual(process.returncode, 0, self.machine.messages())
            self.machine.process = None

    def test_the_watchdog_gets_messages_unless_the_daemon_hangs(self):
        begin = time.monotonic()
        self.start(WATCHDOG_USEC="200000")
        self.assertEqual(self.receive()["READY"], "1")
        for _ in range(20):
            self.assertEqual(self.receive(), {"WATCHDOG": "1"})
        # One every 100 ms. From the start on, because on a busy machine this process may receive several late, at once.
        self.assertGreater(time.monotonic() - begin, 1.5)
        self.machine.process.send_signal(signal.SIGSTOP)
        self.manager.settimeout(0.05)
        time.sleep(0.15)
        try:
            while True:
                self.receive()  # messages under way
        except TimeoutError:
            pass
        self.manager.settimeout(0.4)
        self.assertRaises(TimeoutError, self.receive)
        self.machine.process.send_signal(signal.SIGCONT)
        self.manager.settimeout(cli.HANG_S)
        self.assertEqual(self.receive(), {"WATCHDOG": "1"})

    def test_a_watchdog_of_another_process_is_not_fed(self):
        self.start("@viaduct-test-%d" % os.getpid(), WATCHDOG_USEC="20000", WATCHDOG_PID="1")
        self.assertEqual(self.receive()["READY"], "1")
        self.manager.settimeout(0.2)
        self.assertRaises(TimeoutError, self.receive)

    def test_a_manager_that_does_not_read_or_has_ended_blocks_nothing(self):
        self.start(WATCHDOG_USEC="2000")
        time.sleep(0.3)
        self.assertEqual(self.machine.status()["host"], 1)
        self.manager.close()
        self.assertTrue(self.machine.send_request("reload")["ok"])
        self.assertEqual(self.machine.stop(), 0)

    def test_invalid_variables_are_errors(self):
        for variable, value in (("NOTIFY_SOCKET", "run/x"), ("NOTIFY_SOCKET", "/" + 200 * "x"), ("WATCHDOG_USEC", "soon")):
            env = {"NOTIFY_SOCKET": self.path, variable: value}
            done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--config", self.machine.path, "--foreground"],
                                  env={**self.env, **env}, capture_output=True, text=True, check=False,
                                  timeout=cli.HANG_S)
            self.assertEqual(done.returncode, 1)
            self.assertIn("viaductd: %s '" % variable, done.stderr)


class Unit(cli.Case):
    def test_systemd_accepts_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("there is no systemd-analyze")
        with open(UNIT, encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("@", re.sub(r"#.*", "", text))
        # systemd-analyze need not find the installed program.
        unit = os.path.join(self.folder, "viaductd.service")
        with open(unit, "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^(Exec\w+=)\S+/viaductd", r"\1" + os.path.join(cli.BIN, "viaductd"), text))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False,
                              timeout=cli.HANG_S, env={**self.env, "SYSTEMD_LOG_LEVEL": "warning"})
        complaints = [line for line in done.stderr.splitlines() if "viaductd" in line]
        self.assertEqual(complaints, [])
        if done.returncode != 0 and done.stderr:
            self.skipTest("systemd-analyze: %s" % done.stderr.splitlines()[0])


if __name__ == "__main__":
    cli.main()

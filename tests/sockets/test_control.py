#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A program's requests to the preload library, and its counters for Prometheus."""

import os
import re
import subprocess

import lab

PROGRAM = os.path.join(lab.BIN, "tests", "prog_control")


class Control(lab.Case):
    def call(self, *words, preload=True, **env):
        done = subprocess.run([PROGRAM, *words], env=self.environment(preload, **env), capture_output=True, text=True,
                              timeout=lab.HANG_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_answers_to_a_program(self):
        self.call()
        self.call("plain", preload=False)

    def test_rules_and_environment_switch_spinning(self):
        self.call(VIADUCT_SOCKETS_SPIN="off")
        rules = os.path.join(self.folder, "rules")
        with open(rules, "w", encoding="ascii") as file:
            file.write("[program prog_control]\nspin = maybe\n")
        done = subprocess.run([lab.VIADUCT, "sockets", "--config", rules, PROGRAM], capture_output=True, text=True,
                              timeout=lab.HANG_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rules:2: spin: neither on nor off", done.stderr)

    def test_metrics(self):
        process = subprocess.Popen([PROGRAM], env=self.environment(True, WAIT="1"), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(lab.end, process)
        self.assertEqual(process.stdout.readline(), "%d\n" % process.pid)
        out = subprocess.run([lab.VIADUCT, "sockets", "--prometheus", "--pid", str(process.pid)], capture_output=True,
                             text=True, timeout=lab.HANG_S, check=True).stdout
        values = {}
        for line in out.splitlines():
            if line.startswith("#"):
                self.assertRegex(line, r"^# (HELP viaduct_\w+ .+|TYPE viaduct_\w+ gauge)$")
                continue
            found = re.fullmatch(r'(viaduct_\w+)\{pid="%d",program="prog_control",(.*)\} (\d+)' % process.pid, line)
            self.assertTrue(found, line)
            self.assertNotIn((found[1], found[2]), values)
            values[found[1], found[2]] = int(found[3])
        self.assertEqual(values["viaduct_sockets_connections", 'carrier="pipes",why=""'], 2)
        kernel = [value for (name, labels), value in values.items()
                  if name == "viaduct_sockets_connections" and 'carrier="kernel"' in labels]
        self.assertEqual(sum(kernel), 2)
        # 100 messages of 1,000 bytes there and back, then 50 on the other connection.
        for direction in ("tx", "rx"):
            sums = [values["viaduct_sockets_bytes", 'carrier="%s",direction="%s"' % (carrier, direction)]
                    for carrier in ("pipes", "kernel")]
            self.assertEqual(sum(sums), 300000)
            self.assertGreater(sums[0], 100000)


if __name__ == "__main__":
    lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""up --netns: a network namespace for each host. None of them is left, even after errors and kills."""
import os
import shutil
import subprocess
import sys
import unittest

import cli

# A test like those here, which is killed while its fabric is up.
KILLED = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
import test_cli_netns
subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
print(len(test_cli_netns.cli.namespaces(test_cli_netns.os.environ["VIADUCT_FABRIC"])), flush=True)
time.sleep(1000)
"""


def reason_to_skip():
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    if not shutil.which("ip"):
        return "no program ip (iproute2)"
    name = "via-probe-%d" % os.getpid()
    try:
        for words in (["ip", "netns", "add", name],
                      ["ip", "-n", name, "link", "add", "va0", "type", "veth", "peer", "name",
                       "va1"],
                      ["ip", "-n", name, "link", "add", "vc0", "type", "bridge"]):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                return "%s: %s" % (" ".join(words), done.stderr.strip())
    finally:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    return None


cli.supervise.own_namespace_names()
REASON = reason_to_skip()


@unittest.skipIf(REASON, REASON)
class Namespaces(cli.Case):
    fake = True

    def setUp(self):
        super().setUp()
        self.addCleanup(self.remove_namespaces)

    def remove_namespaces(self):
        for name in self.mine():
            subprocess.run(["ip", "netns", "del", name], check=False)

    def mine(self):
        return cli.namespaces(self.name)

    def inside(self, host, *words):
        return self.good("run", "--host", str(host), "--no-sockets", "--", *words)

    def test_each_host_has_its_own_and_they_reach_each_other(self):
        out = self.good("up", "--ring", "3", "--netns")
        self.assertIn("host 2    10.77.0.2", out)
        self.assertEqual(self.mine(), ["via-%s-%s" % (self.name, n) for n in ("1", "2", "3", "sw")])
        for host in (1, 2, 3):
            self.assertIn("inet 10.77.0.%d/24" % host, self.inside(host, "ip", "-4", "addr"))
            self.assertIn("state UNKNOWN", self.inside(host, "ip", "link", "show", "lo"))
        server = self.start("run", "--host", "2", "--no-sockets", "--", "python3", "-uc",
                            "import socket; s = socket.create_server(('10.77.0.2', 7000));"
                            "print('listening'); s.accept()[0].sendall(b'hello')")
        try:
            self.assertEqual(server.stdout.readline(), "listening\n")
            out = self.inside(3, "python3", "-c", "import socket; s = socket.create_connection(("
                              "'10.77.0.2', 7000), 5); print(s.recv(9), s.getsockname()[0])")
            self.assertEqual(out, "b'hello' 10.77.0.3\n")
        finally:
            server.kill()
            server.communicate()
        status = self.status()
        self.assertTrue(status["netns"])
        self.assertEqual(status["hosts"][0]["address"], "10.77.0.1")
        self.assertIn("4 namespaces removed", self.down())

    def test_interfaces_outside_are_unchanged(self):
        before = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
        self.good("up", "--ring", "2", "--netns")
        after = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(before, after)
        self.down()

    def test_a_failed_up_removes_its_namespaces(self):
        self.bad("up", "--ring", "3", "--netns", expected="exit code 3",
                 env={"VIADUCT_FAKE": "2 exit"})
        self.assert_nothing_left()

    def test_namespaces_are_removed_after_a_crash(self):
        for clean_by_up in (False, True):
            self.good("up", "--ring", "2", "--netns")
            self.kill(1)
            self.kill(2)
            self.assertEqual(len(self.mine()), 3)
            if clean_by_up:
                code, _, err = self.call("up", "--ring", "2")
                self.assertEqual(code, 0)
                self.assertIn("3 namespaces", err)
                self.assertEqual(self.mine(), [])
            self.down()

    def test_a_killed_test_leaves_no_namespaces(self):
        test = subprocess.Popen([sys.executable, cli.supervise.__file__, sys.executable, "-c", KILLED, cli.HERE,
                                 self.viaduct, "up", "--ring", "2", "--netns"], env=self.env,
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(test.stdout.close)
        self.addCleanup(test.kill)
        self.assertEqual(test.stdout.readline(), "3\n")
        test.kill()
        test.wait(cli.HANG_S)
        self.assertTrue(cli.wait_for(lambda: not cli.processes_with(self.rundir)), cli.processes_with(self.rundir))
        self.assertEqual(self.mine(), [])

    def test_namespaces_of_another_fabric_of_this_name_stay(self):
        self.good("up", "--ring", "2", "--netns")
        elsewhere = {"VIADUCT_RUNDIR": self.rundir + "2"}
        self.bad("up", "--ring", "2", "--netns", env=elsewhere,
                 expected="network namespaces: make: 3 of the name via-%s-* are there" % self.name)
        self.good("up", "--ring", "2", env=elsewhere)
        self.good("down", env=elsewhere)
        self.assertEqual(len(self.mine()), 3)
        self.inside(2, "true")
        self.down()

    def test_namespaces_of_a_fabric_of_a_longer_name_stay(self):
        """They come while this one is up, like those of other fabrics on this machine."""
        self.good("up", "--ring", "2", "--netns")
        others = ["via-%sx-1" % self.name, "via-%s-x-1" % self.name]
        for name in others:
            self.addCleanup(subprocess.run, ["ip", "netns", "del", name], check=True)
            subprocess.run(["ip", "netns", "add", name], check=True)
        self.assertIn("3 namespaces removed", self.down())

    def test_a_deleted_namespace_is_reported(self):
        self.good("up", "--ring", "2", "--netns")
        subprocess.run(["ip", "netns", "del", "via-%s-2" % self.name], check=True)
        self.bad("run", "--host", "2", "--no-sockets", "true",
                 expected="namespace via-%s-2: open: No such file or directory" % self.name)
        self.down()


class WithoutRoot(cli.Case):
    fake = True

    def test_without_root_it_is_refused_and_leaves_nothing(self):
        home, user = self.as_user()
        self.rundir = os.path.join(home, "run")
        self.env["VIADUCT_RUNDIR"] = self.rundir
        self.bad("up", "--ring", "2", "--netns", expected="network namespaces: make: only root may",
                 **user)
        self.assert_nothing_left()


if __name__ == "__main__":
    cli.main()

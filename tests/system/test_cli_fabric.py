#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The commands on real fabrics: up, status, cut and mend, run, crashes, down."""
import json
import os
import re
import socket
import subprocess
import sys

import cli


class Base(cli.Case):
    def hops(self, source, destination):
        host = next(h for h in self.status()["hosts"] if h["host"] == source)
        return next(r["hops"] for r in host["routes"] if r["host"] == destination)

    def link(self, a, b, number=0):
        return next(k for k in self.status()["links"]
                    if (k["a"], k["b"], k["n"]) == (a, b, number))

    def assert_link_up(self, *link):
        """Waits for the state: on a busy machine a link may be down for a moment."""
        self.assertTrue(cli.wait_for(lambda: self.link(*link)["state"] == "up"), self.link(*link))

    def assert_hops(self, source, destination, hops):
        self.assertTrue(cli.wait_for(lambda: self.hops(source, destination) == hops),
                        "host %d to %d: %s hops, not %s" %
                        (source, destination, self.hops(source, destination), hops))


class Fabric(Base):
    @staticmethod
    def has_whole_ring(status):
        hops = [[r["hops"] for r in h["routes"]] for h in status["hosts"]]
        return hops == [[1, 2, 1], [1, 1, 2], [2, 1, 1], [1, 2, 1]] and all(k["state"] == "up" for k in status["links"])

    def test_a_ring_comes_up_and_goes_down(self):
        out = self.good("up", "--ring", "4")
        self.assertEqual(out, "fabric '%s' is up: 4 hosts, 4 links\n"
                              "  host 1    127.77.0.1    linked with 2, 4\n"
                              "  host 2    127.77.0.2    linked with 1, 3\n"
                              "  host 3    127.77.0.3    linked with 2, 4\n"
                              "  host 4    127.77.0.4    linked with 1, 3\n" % self.name)
        status = self.status()
        self.assertEqual((status["fabric"], status["rundir"]), (self.name, self.rundir))
        self.assertEqual([k["errors"] for k in status["links"]], [0] * 4)
        self.assertEqual([(k["a"], k["b"]) for k in status["links"]],
                         [(1, 2), (2, 3), (3, 4), (1, 4)])
        # When up returns, every host has a path to every other.
        if not self.has_whole_ring(status):
            downs = [link["downs"] for host in (1, 2, 3, 4) for link in self.request_status(host)["links"]]
            self.assertGreater(sum(downs), 0, status)  # on a busy machine a link may have been down for a moment
            self.assertTrue(cli.wait_for(lambda: self.has_whole_ring(self.status())))
        self.assertEqual([h["state"] for h in status["hosts"]], ["up"] * 4)
        sessions = {h["session"] for h in status["hosts"]}
        self.assertEqual((len(sessions), 0 in sessions), (4, False))
        for host in status["hosts"]:
            self.assertTrue(cli.is_alive(host["pid"]))
            self.assertEqual(host["pid"], self.pid(host["host"]))
        self.assertEqual(self.down(), "fabric '%s' is down: 4 daemons ended\n" % self.name)

    def test_a_log_that_left_out_messages_about_a_link_says_its_state_afterwards(self):
        """If messages were lost, the last line about a link could be "down" while it is up."""
        self.good("up", "--chain", "2")
        for _ in range(8):
            self.good("cut", "1", "2")
            self.good("mend", "1", "2")
            self.assert_link_up(1, 2)

        def log():
            with open(os.path.join(self.rundir, "host-1.log"), encoding="utf-8") as file:
                return file.read()

        self.assertTrue(cli.wait_for(lambda: "host 1: link 0 to host 2: now up\n" in log()), log())
        self.down()

    def test_one_host_alone(self):
        self.good("up", "--ring", "1")
        status = self.status()
        self.assertEqual((len(status["hosts"]), status["links"]), (1, []))
        self.good("status")
        self.down()

    def test_shapes(self):
        for shape, count, far in (("--chain", 4, 3), ("--star", 4, 2), ("--mesh", 4, 1),
                                  ("--ring", 2, 1)):
            with self.subTest(shape):
                self.good("up", shape, str(count), "--channels", "1")
                self.assert_hops(2 if shape == "--star" else 1, count, far)
                self.assertEqual(self.status()["hosts"][0]["channels"], 1)
                self.down()

    def request_status(self, host):
        """The daemon's answer, which says more about links than `viaduct status` prints."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(os.path.join(self.rundir, "host-%d.ctl" % host))
            control.sendall(b'{"cmd":"status"}\n')
            with control.makefile() as answer:
                return json.loads(answer.readline())

    def dimensions(self, host):
        return {link["peer"]: link["dimension"] for link in self.request_status(host)["links"]}

    def test_a_torus(self):
        self.assertIn("is up: 12 hosts, 24 links\n", self.good("up", "--torus", "3x2x2", "--channels", "1"))
        # Host 1 is at (0, 0, 0), host 8 at (1, 0, 1).
        self.assertEqual(self.dimensions(1), {2: 0, 3: 0, 4: 1, 7: 2})
        self.assertEqual(self.dimensions(8), {7: 0, 9: 0, 11: 1, 2: 2})
        self.assert_hops(1, 11, 3)
        self.good("run", "--host", "1", "--no-sockets", "true")
        self.down()

    def test_frames_go_round_a_cut_link_until_it_is_mended(self):
        self.good("up", "--ring", "4")
        self.good("cut", "2", "1")
        self.assert_hops(1, 2, 3)
        self.assert_hops(2, 1, 3)
        link = self.link(1, 2)
        self.assertTrue(link["cut"])
        self.assertNotEqual(link["state"], "up")
        self.assertRegex(self.good("status"), r"(?m)^1-2 +cut ")
        self.good("mend", "1", "2")
        self.assert_hops(1, 2, 1)
        self.assert_link_up(1, 2)
        self.assertFalse(self.link(1, 2)["cut"])
        self.down()

    def test_a_host_that_is_cut_off_can_not_be_reached(self):
        self.good("up", "--chain", "3")
        self.good("cut", "1", "2")
        self.assert_hops(3, 1, None)
        # On a busy machine the other link may be down for a moment, too.
        self.assertTrue(cli.wait_for(lambda: re.search(r"(?m)^ +3 +- +1 +\.$", self.good("status"))), self.good("status"))
        self.good("mend", "1", "2")
        self.assert_hops(3, 1, 2)
        self.down()

    def test_a_long_chain(self):
        """More hops than the 64 that hops_left once allowed; programs that a cut or a dead host makes unreachable end
        with an error."""
        last = 70
        self.good("up", "--chain", str(last), "--channels", "1", "--give-up-ms", "1500")
        self.assert_hops(1, last, last - 1)
        put = ["perf", "put", "--from", "1", "--to", str(last), "--sizes", "8", "--iterations", "10", "--no-memcpy"]
        self.assertRegex(self.good(*put), r"8 +frames")
        self.good("perf", "barrier", "--hosts", "1,35,%d" % last, "--iterations", "3")
        self.good("cut", "35", "36")
        self.assert_hops(1, last, None)
        self.bad(*put, expected=["host 1 to host %d, 8 bytes: put: " % last, "No route to host"])
        with self.start("perf", "barrier", "--hosts", "1,%d" % last, "--seconds", "60") as barrier:
            _, err = barrier.communicate(timeout=cli.HANG_S)
        self.assertRegex(err, "barrier.*No route to host")
        self.good("mend", "35", "36")
        self.assert_hops(1, last, last - 1)
        self.down()

    def test_cuts_of_unknown_links_are_refused(self):
        self.good("up", "--ring", "4")
        for verb in ("cut", "mend"):
            self.bad(verb, "1", "3", expected="link 1-3: find: fabric '%s' has no such link" % self.name)
            self.bad(verb, "1", "9", expected="host 9: find: fabric '%s' has no such host" % self.name)
            self.bad(verb, "1", "1", expected="link 1-1: find: fabric '%s' has no such link" % self.name)
            self.bad(verb, "1", "2", "--cable", "1", expected="link 1-2: find cable 1: there is only 1")
        self.down()

    def test_a_file_with_two_cables(self):
        path = os.path.join(self.folder, "lab")
        with open(path, "w", encoding="utf-8") as out:
            out.write("channels 3\nhost 7\nhost 254\nlink 254 7 2\n")
        self.good("up", path)
        status = self.status()
        self.assertEqual([h["channels"] for h in status["hosts"]], [3, 3])
        self.assertEqual(status["hosts"][1]["address"], "127.77.0.254")
        self.assertEqual([(k["a"], k["b"], k["n"]) for k in status["links"]], [(7, 254, 0), (7, 254, 1)])
        self.assert_link_up(7, 254, 0)
        self.assert_link_up(7, 254, 1)
        self.good("cut", "7", "254", "--cable", "1")
        self.assertTrue(cli.wait_for(lambda: self.link(7, 254, 1)["state"] != "up"))
        self.assert_link_up(7, 254, 0)
        self.assert_hops(7, 254, 1)
        self.good("cut", "7", "254")
        self.assert_hops(7, 254, None)
        self.good("mend", "7", "254", "--cable", "0")
        self.assert_hops(7, 254, 1)
        self.assertTrue(self.link(7, 254, 1)["cut"])
        self.down()

    def test_two_fabrics_at_once(self):
        self.good("up", "--ring", "3")
        other = {"VIADUCT_RUNDIR": self.rundir + "2", "VIADUCT_FABRIC": self.name + "2"}
        self.good("up", "--ring", "2", env=other)
        self.good("down", env=other)
        self.assertEqual([h["state"] for h in self.status()["hosts"]], ["up"] * 3)
        self.down()

    def test_a_second_up_is_refused(self):
        self.good("up", "--ring", "3")
        before = self.status()["hosts"]
        self.bad("up", "--ring", "3", expected=["fabric '%s': it is up already in %s (3 of 3 hosts run)" %
                                                (self.name, self.rundir), "'viaduct down' first"])
        self.assertEqual([h["session"] for h in self.status()["hosts"]],
                         [h["session"] for h in before])
        self.down()


class Crash(Base):
    def test_a_dead_host_is_down_and_the_others_go_on(self):
        self.good("up", "--ring", "4")
        pid = self.kill(3)
        self.assert_hops(2, 4, 2)
        self.assert_hops(2, 3, None)
        status = self.status()
        self.assertEqual([h["state"] for h in status["hosts"]], ["up", "up", "down", "up"])
        self.assertEqual(status["hosts"][2]["routes"], [])
        self.assertNotEqual(self.link(2, 3)["state"], "up")
        self.assert_link_up(1, 2)
        self.assertRegex(self.good("status"), r"(?m)^ +3  down    - ")
        self.bad("run", "--host", "3", "--no-sockets", "true",
                 expected="host 3: attach: it is down: its daemon (pid %d) has died" % pid)
        # One end is enough to cut.
        self.good("cut", "2", "3")
        self.assertTrue(self.link(2, 3)["cut"])
        self.assertIn("3 daemons ended, 1 had died before", self.down())

    def test_both_ends_of_a_link_dead(self):
        self.good("up", "--ring", "3")
        self.kill(1)
        self.kill(2)
        self.bad("cut", "1", "2", expected="link 1-2: cut: host 1: ")
        self.down()

    def test_up_after_a_crash(self):
        self.good("up", "--ring", "3")
        for host in (1, 2, 3):
            self.kill(host)
        self.assertTrue(os.path.exists(os.path.join(self.rundir, "host-1.ctl")))
        self.assertEqual([h["state"] for h in self.status()["hosts"]], ["down"] * 3)
        code, out, err = self.call("up", "--ring", "4")
        self.assertEqual(code, 0, err)
        self.assertIn("cleaned up after a crash: 3 dead hosts", err)
        self.assertIn("4 hosts, 4 links", out)
        self.down()

    def test_a_fabric_ends_with_a_process(self):
        with subprocess.Popen(["sleep", "1000"]) as companion:
            self.good("up", "--ring", "3", "--with", str(companion.pid))
            pids = [h["pid"] for h in self.status()["hosts"]]
            self.assertTrue(all(cli.is_alive(pid) for pid in pids))
            companion.kill()
        self.assertTrue(cli.wait_for(lambda: not any(cli.is_alive(pid) for pid in pids)), pids)
        self.bad("up", "--ring", "3", "--with", str(companion.pid),
                 expected="--with: process %d: No such process" % companion.pid)
        self.down()

    def test_down_after_a_crash(self):
        self.good("up", "--ring", "3")
        for host in (1, 2, 3):
            self.kill(host)
        self.assertIn("0 daemons ended, 3 had died before", self.down())

    def test_a_daemon_started_by_hand_is_found(self):
        daemon = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir",
                                   self.rundir, "--host", "5"], env=self.env,
                                  stderr=subprocess.DEVNULL)
        try:
            control = os.path.join(self.rundir, "host-5.ctl")
            self.assertTrue(cli.wait_for(lambda: os.path.exists(control)))
            self.bad("up", "--ring", "2", expected="it is up already in %s (1 of 1" % self.rundir)
            self.assertIn("1 daemon ended (1 unknown to its state)", self.good("down"))
            self.assertEqual(daemon.wait(cli.HANG_S), 0)
        finally:
            daemon.kill()
            daemon.wait()
        self.assert_nothing_left()


class Run(Base):
    def setUp(self):
        super().setUp()
        self.good("up", "--ring", "2")
        self.addCleanup(self.down)

    def run_at(self, *words, host=1):
        return self.call("run", "--host", str(host), "--no-sockets", "--", *words)

    def test_the_program_knows_where_it_is(self):
        code, out, _ = self.run_at(sys.executable, "-c",
                                   "import json,os; print(json.dumps(dict(os.environ)))", host=2)
        env = json.loads(out)
        self.assertEqual(code, 0)
        self.assertEqual((env["VIADUCT_RUNDIR"], env["VIADUCT_FABRIC"], env["VIADUCT_HOST"]),
                         (self.rundir, self.name, "2"))
        self.assertNotIn("LD_PRELOAD", env)

    def test_arguments_and_exit_code_are_those_of_the_program(self):
        self.assertEqual(self.run_at("sh", "-c", "echo $0 $*; exit 42", "-x", "--host", "9"),
                         (42, "-x --host 9\n", ""))
        self.assertEqual(self.run_at("sh", "-c", "kill -9 $$")[0], -9)

    def test_the_program_may_follow_without_dashes(self):
        self.assertEqual(self.call("run", "--host", "1", "--no-sockets", sys.executable, "-c",
                                   "import sys; print(sys.argv)", "--help"),
                         (0, "['-c', '--help']\n", ""))

    def test_programs_that_can_not_be_run(self):
        self.bad("run", "--host", "1", "--no-sockets", "no-such-program", code=127,
                 expected="viaduct run: no-such-program: run: No such file or directory")
        self.bad("run", "--host", "1", "--no-sockets", self.folder, code=126,
                 expected="viaduct run: %s: run: Permission denied" % self.folder)

    def test_an_unknown_host_is_refused(self):
        self.bad("run", "--host", "3", "true",
                 expected="host 3: find: fabric '%s' has no such host" % self.name)

    def test_commands_on_a_host_use_its_fabric(self):
        code, out, err = self.run_at(self.viaduct, "status", "--json")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(json.loads(out)["fabric"], self.name)


if __name__ == "__main__":
    cli.main()

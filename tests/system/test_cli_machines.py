#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Daemons with run directories of their own, as on several machines: any of them answers for all."""
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import cli


class Machines(cli.Case):
    """Hosts 1 to `count` in a chain. Each has a run directory; the cables lie in a folder of their own."""

    count = 3

    def setUp(self):
        super().setUp()
        self.cables = os.path.join(self.folder, "cables")
        os.mkdir(self.cables)
        del self.env["VIADUCT_FABRIC"]
        self.daemons = {}

    def rundir_of(self, host):
        return os.path.join(self.folder, "r%d" % host)

    def links_of(self, host):
        """[(peer, side)]"""
        return [(peer, side) for peer, side in ((host - 1, 1), (host + 1, 0)) if 1 <= peer <= self.count]

    def start_host(self, host, *words, wait=True):
        links = []
        for peer, side in self.links_of(host):
            cable = os.path.join(self.cables, "%d-%d" % (min(host, peer), max(host, peer)))
            links += ["--link", "%d=emu:%s,side=%d" % (peer, cable, side)]
        ready, ready_there = os.pipe()
        with open(os.path.join(self.folder, "log%d" % host), "ab") as log:
            self.daemons[host] = subprocess.Popen(
                [os.path.join(cli.BIN, "viaductd"), "--foreground", "--host", str(host), "--hosts-max", "32",
                 "--dead-ms", "5000",  # CPUs may be busy; the end of a daemon ends its cables at once nevertheless
                 "--rundir", self.rundir_of(host), "--with", str(os.getpid()), "--ready-fd", str(ready_there),
                 *links, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[ready_there])
        os.close(ready_there)
        self.addCleanup(self.end_host, host)
        if wait:
            self.assertNotEqual(os.read(ready, 1), b"", self.log(host))
        os.close(ready)

    def log(self, host):
        with open(os.path.join(self.folder, "log%d" % host), encoding="utf-8", errors="replace") as log:
            return log.read()

    def end_host(self, host, number=signal.SIGKILL):
        daemon = self.daemons.pop(host, None)
        if daemon is not None:
            daemon.send_signal(number)
            daemon.wait(cli.HANG_S)

    def start_all(self, *words):
        for host in range(1, self.count + 1):
            self.start_host(host, *words, wait=False)
        for host in (1, self.count):
            self.wait_for_all(host)

    def at(self, host):
        return {"env": {"VIADUCT_RUNDIR": self.rundir_of(host)}}

    def start(self, *words, **more):
        # Case.start() merges env.
        return super().start(*words, **more)

    def status_at(self, host):
        return json.loads(self.good("status", "--json", **self.at(host)))

    def states(self, host):
        return {h["host"]: h["state"] for h in self.status_at(host)["hosts"]}

    def wait_for_all(self, host, state="up"):
        all_hosts = {h: state for h in range(1, self.count + 1)}
        # Not until its daemon listens.
        self.assertTrue(cli.wait_for(lambda: self.call("status", **self.at(host))[0] == 0))
        self.assertTrue(cli.wait_for(lambda: self.states(host) == all_hosts))


class Status(Machines):
    def test_every_daemon_shows_all_hosts_and_links(self):
        self.start_all()
        for host in (1, 2, 3):
            # On a busy machine a link may be down for a moment.
            links = [(1, 2, "up"), (2, 3, "up")]
            self.assertTrue(cli.wait_for(
                lambda: [(l["a"], l["b"], l["state"]) for l in self.status_at(host)["links"]] == links))
            self.wait_for_all(host)
            status = self.status_at(host)
            self.assertEqual({h["host"]: h["pid"] for h in status["hosts"]},
                             {h: d.pid for h, d in self.daemons.items()})
            self.assertEqual(status["hosts"][0]["routes"],
                             [{"host": 2, "hops": 1, "via": 2, "pipes": True, "measured": None},
                              {"host": 3, "hops": 2, "via": 2, "pipes": True, "measured": None}])
        shown = self.good("status", "--rundir", self.rundir_of(3))
        self.assertIn("as host 3 sees it", shown)
        self.assertRegex(shown, r"(?m)^ +1  %s +up +%d " % (os.uname().nodename[:16], self.daemons[1].pid))

    def test_a_host_that_is_killed_and_started_again(self):
        self.start_all()
        session = self.status_at(1)["hosts"][2]["session"]
        self.end_host(3)
        self.assertTrue(cli.wait_for(lambda: self.states(1)[3] == "unreachable"))
        gone = self.status_at(1)["hosts"][2]
        self.assertRegex(gone["error"], r"^host 3: request of host 1: unreachable for \d+ s$")
        # The directory still has the host's entry.
        self.assertEqual(gone["name"], os.uname().nodename)
        self.assertEqual(self.status_at(1)["links"][1]["state"], "down")
        self.start_host(3)
        self.wait_for_all(1)
        self.assertNotEqual(self.status_at(1)["hosts"][2]["session"], session)
        self.wait_for_all(3)

    def host_at(self, host, address):
        """The owner of an address for programs of a host: src/host/hosts_page.h. None: no owner."""
        with open(os.path.join(self.rundir_of(host), "host-%d.hosts" % host), "rb") as file:
            page = file.read()
        wanted = bytes(10) + b"\xff\xff" + socket.inet_aton(address)
        entries = [struct.unpack_from("<16sHH", page, 64 + 24 * i) for i in range(struct.unpack_from("<I", page, 12)[0])]
        return next((owner for ip, owner, _ in entries if ip == wanted), None)

    def test_an_address_that_moves_from_a_host_that_is_gone(self):
        self.start_host(1, "--address", "10.9.9.9")
        self.start_host(2, "--give-up-ms", "2000")
        self.assertTrue(cli.wait_for(lambda: self.host_at(2, "10.9.9.9") == 1))
        self.start_host(3, "--address", "10.9.9.9")
        self.assertTrue(cli.wait_for(lambda: self.host_at(2, "10.9.9.9") is None))
        begin = time.monotonic()
        self.end_host(1)
        self.assertTrue(cli.wait_for(lambda: self.host_at(2, "10.9.9.9") == 3))
        self.assertGreater(time.monotonic() - begin, 1)
        # The host still runs, so one of the two daemons has a wrong id.
        self.start_host(1, "--address", "10.9.9.9")
        self.assertTrue(cli.wait_for(lambda: self.host_at(2, "10.9.9.9") is None))

    def test_a_dead_daemon_of_this_machine_is_reported(self):
        self.start_all()
        self.end_host(2)
        self.bad("status", expected="r2/host-2.ctl: the daemon has died", **self.at(2))

    def test_a_daemon_that_does_not_answer_is_silent(self):
        """A stopped daemon is silent until its links are down, then unreachable."""
        self.start_all()
        os.kill(self.daemons[3].pid, signal.SIGSTOP)
        self.assertTrue(cli.wait_for(lambda: self.states(1)[3] in ("unreachable", "silent")))
        os.kill(self.daemons[3].pid, signal.SIGCONT)
        self.wait_for_all(1)


class Stop(Machines):
    def test_a_daemon_is_stopped_from_another_machine(self):
        self.start_all()
        self.assertEqual(self.good("down", "--host", "3", **self.at(1)), "host 3: its daemon ends\n")
        self.assertEqual(self.daemons[3].wait(cli.HANG_S), 0)
        self.assertIn("host 3: stop requested by user %d of host 1" % os.geteuid(), self.log(3))
        self.assertTrue(cli.wait_for(lambda: self.states(1)[3] == "unreachable"))
        self.bad("down", "--host", "3", expected="host 3: request of host 1: unreachable for ", **self.at(1))
        self.bad("down", "--host", "x", code=2, expected="not the id of a host", **self.at(1))
        with self.subTest("its own"):
            self.good("down", "--host", "2", **self.at(2))
            self.assertEqual(self.daemons[2].wait(cli.HANG_S), 0)


class Pages(Machines):
    """Pages of the directory: an answer has 4 MiB at most, a fabric may have 1,023 hosts of 1,024 links."""

    @staticmethod
    def send_request(path, line):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(cli.HANG_S)
            sock.connect(path)
            sock.sendall(line + b"\n")
            with sock.makefile("rb") as answers:
                return answers.readline()

    def directory(self, host, **more):
        path = os.path.join(self.rundir_of(host), "host-%d.ctl" % host)
        return json.loads(self.send_request(path, json.dumps({"cmd": "directory", **more}).encode()))

    def test_a_page_says_where_the_next_one_begins(self):
        self.start_all()
        found = []
        first = 0
        for _ in range(self.count):
            page = self.directory(2, first=first, count=1)
            found += [host["host"] for host in page["hosts"]]
            first = page["next"]
        self.assertEqual(found, [1, 2, 3])
        self.assertEqual(self.directory(2, first=first), {**page, "hosts": [], "next": None})
        for whole in (self.directory(2), self.directory(2, first=0)):
            self.assertEqual([host["host"] for host in whole["hosts"]], [1, 2, 3])
            self.assertIsNone(whole["next"])
        for wrong in ({"first": -1}, {"first": 32}, {"first": "1"}, {"count": 0}, {"count": 33}, {"count": None}):
            with self.subTest(wrong):
                answer = self.directory(2, **wrong)
                self.assertFalse(answer["ok"])
                self.assertIn('"%s" is not' % next(iter(wrong)), answer["error"])

    def serve(self, listener, real):
        """Answers as host 2, with pages of one host."""
        while True:
            try:
                conn = listener.accept()[0]
            except OSError:
                return
            with conn, conn.makefile("rb") as lines:
                request = json.loads(lines.readline())
                if request["cmd"] == "directory":
                    self.pages.append(request.get("first"))
                    request["count"] = 1
                conn.sendall(self.send_request(real, json.dumps(request).encode()))

    def stand_between(self, serve):
        """The run directory of a proxy in front of host 2's daemon."""
        rundir = os.path.join(self.folder, "between")
        os.mkdir(rundir, 0o700)
        os.symlink(os.readlink(os.path.join(self.rundir_of(2), "host-local")), os.path.join(rundir, "host-local"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(rundir, "host-2.ctl"))
        listener.listen()
        server = threading.Thread(target=serve, args=(listener, os.path.join(self.rundir_of(2), "host-2.ctl")))
        server.start()
        self.addCleanup(server.join)
        self.addCleanup(listener.close)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        return rundir

    def serve_a_hostile_error(self, listener, real):
        """Answers as host 2, which forwards the answers of host 3."""
        while True:
            try:
                conn = listener.accept()[0]
            except OSError:
                return
            with conn, conn.makefile("rb") as lines:
                request = lines.readline()
                hostile = {"ok": False, "error": "\x1b]0;title\x07 it is \u009b31m \u202e wrong"}
                conn.sendall(json.dumps(hostile).encode() + b"\n" if json.loads(request).get("host") == 3 else self.send_request(real, request.strip()))

    def test_an_error_of_another_host_does_nothing_to_the_terminal(self):
        self.start_all()
        rundir = self.stand_between(self.serve_a_hostile_error)
        output = self.bad("down", "--host", "3", env={"VIADUCT_RUNDIR": rundir}, expected="it is")
        output += self.good("status", "--rundir", rundir) + self.good("top", "--once", "--rundir", rundir)
        self.assertEqual(output.count("?]0;title? it is ?31m ? wrong"), 3, output)
        self.assertTrue(all(letter.isprintable() for letter in output.replace("\n", "")), output)

    def test_commands_read_all_pages(self):
        self.start_all()
        self.pages = []
        rundir = self.stand_between(self.serve)
        status = json.loads(self.good("status", "--json", "--rundir", rundir))
        self.assertEqual([host["host"] for host in status["hosts"]], [1, 2, 3])
        self.assertEqual(self.pages[:3], [0, 2, 3])


class Links(Machines):
    def link(self, host, number):
        return self.status_at(host)["links"][number]

    def test_cut_and_mended_from_any_machine(self):
        self.start_all()
        self.good("cut", "2", "3", **self.at(1))
        self.assertTrue(cli.wait_for(lambda: self.states(1)[3] == "unreachable"))
        self.assertTrue(self.link(1, 1)["cut"])
        self.good("mend", "3", "2", **self.at(1))
        self.wait_for_all(1)
        self.assertFalse(self.link(1, 1)["cut"])
        # The command runs on the machine at the end, which loses its path to all others by the cut.
        self.good("cut", "2", "3", **self.at(3))
        self.assertTrue(cli.wait_for(lambda: self.states(3)[1] == "unreachable"))
        self.good("mend", "2", "3", **self.at(3))
        self.wait_for_all(3)

    def test_what_cannot_be_done_says_why(self):
        self.start_all()
        self.bad("cut", "1", "3", expected="link 1-3: find: fabric '' has no such link", **self.at(1))
        self.bad("cut", "1", "9", expected="host 9: find: fabric '' has no such host", **self.at(1))
        name = os.uname().nodename
        self.bad("cut", "1", name, expected="host %s: find: hosts 1 and 2 both have this name" % name, **self.at(1))
        self.end_host(1)
        self.assertTrue(cli.wait_for(lambda: self.states(3)[1] == "unreachable"))
        self.bad("mend", "1", "2", expected="host 2 has mended its end, but not the other end: host 1: request of "
                                        "host 3: unreachable for ", **self.at(3))


class Doctor(Machines):
    count = 2

    def test_doctor_reports_what_hosts_disagree_about(self):
        self.start_host(1, "--address", "10.1.0.1")
        self.start_host(2, "--address", "10.1.0.1", "--name", "other")
        self.wait_for_all(1)
        out = self.call("doctor", **self.at(1))[1]
        self.assertIn("ok    hosts of the fabric: 2, all answer\n", out)
        self.assertIn("warn  agreement of hosts: address 10.1.0.1 of host 2 is claimed by another host, too", out)
        self.end_host(2)
        self.start_host(2)
        self.wait_for_all(1)
        self.assertTrue(cli.wait_for(lambda: self.status_at(1)["hosts"][1]["name"] == os.uname().nodename))
        self.assertIn("warn  agreement of hosts: hosts 1 and 2 both are called", self.call("doctor", **self.at(1))[1])
        self.end_host(2)
        self.assertTrue(cli.wait_for(lambda: self.states(1)[2] == "unreachable"))
        self.assertIn("warn  hosts of the fabric: host 2: request of host 1: unreachable for ",
                      self.call("doctor", **self.at(1))[1])


class Users(Machines):
    count = 2

    def setUp(self):
        super().setUp()
        self.admit_nobody()

    def test_the_asked_host_checks_the_rights_of_the_user(self):
        self.start_host(1, "--attach", "all")
        self.start_host(2)
        self.wait_for_all(1)
        status = json.loads(self.good("status", "--json", **self.at(1), **self.nobody))
        self.assertEqual([h["state"] for h in status["hosts"]], ["up", "refused"])
        self.assertEqual(status["hosts"][1]["error"], "host 2: permission denied: user %d of host 1 has no right to "
                         "attach to host 2, which 'control' needs" % cli.NOBODY)
        self.end_host(2)
        os.chmod(self.rundir_of(2), 0o711)
        self.start_host(2, "--attach", "group:%d" % cli.NOBODY)
        self.wait_for_all(1)
        status = json.loads(self.good("status", "--json", **self.at(1), **self.nobody))
        self.assertEqual([h["state"] for h in status["hosts"]], ["up", "up"])
        self.bad("cut", "2", "1", expected="permission denied: user %d has no right to administer host 1" % cli.NOBODY,
                 **self.at(1), **self.nobody)

    def test_the_rights_of_a_remote_host_do_not_hold_here(self):
        self.start_host(1, "--attach", "all")
        self.start_host(2, "--admin", "user:%d" % cli.NOBODY)
        self.wait_for_all(1)
        # viaduct asks the nearer end to cut the link, host 1.
        self.bad("cut", "1", "2", expected="no right to administer host 1", **self.at(1), **self.nobody)


class Run(Machines):
    count = 2

    AGENT = """#!/bin/sh
# Stands in for ssh: the "machine" is a run directory.
echo "$1" >> "%(folder)s/agent.log"
export VIADUCT_RUNDIR="%(folder)s/r$NUMBER" PATH="%(bin)s:$PATH"
shift
exec sh -c "$*"
"""

    def setUp(self):
        super().setUp()
        self.agent = os.path.join(self.folder, "agent")
        with open(self.agent, "w", encoding="utf-8") as script:
            script.write(self.AGENT % {"folder": self.folder, "bin": cli.BIN})
        os.chmod(self.agent, 0o755)
        self.env["VIADUCT_AGENT"] = self.agent
        self.env["NUMBER"] = "2"
        self.start_all()

    def test_run_on_this_host_and_on_another(self):
        show = ["sh", "-c", "echo $VIADUCT_HOST $VIADUCT_RUNDIR"]
        self.assertEqual(self.good("run", "1", "--", *show, **self.at(1)), "1 %s\n" % self.rundir_of(1))
        self.assertEqual(self.good("run", "--host", "2", *show, **self.at(1)), "2 %s\n" % self.rundir_of(2))
        with open(os.path.join(self.folder, "agent.log"), encoding="utf-8") as log:
            self.assertEqual(log.read(), os.uname().nodename + "\n")

    def test_words_exit_codes_and_input(self):
        odd = "a 'b' \"c\" $HOME `x` \\ \n\t*"
        self.assertEqual(self.good("run", "2", "--", "printf", "%s", odd, **self.at(1)), odd)
        self.assertEqual(self.call("run", "2", "--", "sh", "-c", "exit 37", **self.at(1))[0], 37)
        self.assertEqual(self.call("run", "2", "--", "sh", "-c", "kill -9 $$", **self.at(1))[0], 137)
        self.assertEqual(self.call("run", "2", "--", "/no/such/program", **self.at(1))[0], 127)
        done = subprocess.run([self.viaduct, "run", "2", "--", "cat"], input="through\n", text=True,
                              stdout=subprocess.PIPE, env={**self.env, **self.at(1)["env"]}, timeout=cli.HANG_S,
                              check=True)
        self.assertEqual(done.stdout, "through\n")

    def test_an_agent_that_leads_elsewhere(self):
        self.env["NUMBER"] = "1"
        self.bad("run", "2", "--", "true",
                 expected="host 2: run: the agent has led to another machine: its daemon is host 1", **self.at(1))

    def test_the_program_ends_when_its_output_is_closed(self):
        mark = os.path.join(self.folder, "pid")
        running = self.start("run", "2", "--", "sh", "-c", "echo $$ > %s; echo on; exec sleep 1000" % mark, **self.at(1))
        with running:
            self.assertEqual(running.stdout.readline(), "on\n")
            with open(mark, encoding="utf-8") as text:
                pid = int(text.read())
            running.stdout.close()
            self.assertTrue(cli.wait_for(lambda: not cli.is_alive(pid)))
            self.assertEqual(running.wait(cli.HANG_S), 129)


class Many(Machines):
    count = 16

    def links_of(self, host):
        """A ring."""
        before, after = (host - 2) % self.count + 1, host % self.count + 1
        return [(before, 1 if before < host else 0), (after, 0 if host < after else 1)]

    def test_sixteen_hosts_know_each_other_soon(self):
        """It takes 3 s without sanitizers on an idle machine. On a busy one the limit grows with the time that the
        status of one host takes."""
        for host in range(1, self.count + 1):
            self.start_host(host, wait=host == self.count)
        begin = time.monotonic()
        self.wait_for_all(7)
        took = time.monotonic() - begin
        begin = time.monotonic()
        self.assertEqual(len(self.status_at(7)["links"]), 16)
        self.assertLess(took, 15 + 20 * (time.monotonic() - begin))


if __name__ == "__main__":
    cli.main()

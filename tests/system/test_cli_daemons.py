#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""up, status and down with misbehaving daemons: cli_fake_daemon.py takes their place."""
import json
import os
import re
import signal
import subprocess
import time

import cli


class Up(cli.Case):
    fake = True

    def refused(self, how, expected, **more):
        self.env["VIADUCT_FAKE"] = "2 " + how
        err = self.bad("up", "--ring", "3", expected=expected, **more)
        self.assert_nothing_left()
        return err

    def test_a_daemon_that_gives_up_is_quoted(self):
        err = self.refused("exit", "host 2: start: the daemon ended with exit code 3\n")
        self.assertIn("\n  host-2.log: no memory for 64 pipes\n", err)

    def test_a_daemon_that_dies_of_a_signal(self):
        self.refused("kill", "host 2: start: the daemon died of signal 9 (Killed)\n")

    def test_up_does_not_wait_for_links_that_can_not_come_up(self):
        started = time.monotonic()
        self.refused("links-bad", "host 2: link to host 1: it does not come up, it is 'bad-version'")
        self.assertLess(time.monotonic() - started, 25)

    def test_up_waits_for_a_limited_time(self):
        # Both commands wait until the time-out, so they run at the same time.
        mute = self.start("up", "--ring", "3", env={"VIADUCT_FAKE": "2 mute"})
        other = dict(self.env, VIADUCT_FAKE="2 links-wait", VIADUCT_RUNDIR=self.rundir + "2")
        waiting = subprocess.Popen([self.viaduct, "up", "--ring", "3"], env=other, text=True,
                                   stderr=subprocess.PIPE)
        try:
            _, err = mute.communicate(timeout=cli.HANG_S)
            self.assertEqual(mute.returncode, 1)
            self.assertRegex(err, r"^viaduct up: host 2: start: the daemon \(pid \d+\) does not "
                                   r"become ready\n$")
            _, err = waiting.communicate(timeout=cli.HANG_S)
            self.assertEqual(waiting.returncode, 1)
            self.assertEqual(err, "viaduct up: host 2: link to host 1: it does not come up, it is "
                                   "'waiting'\n")
        finally:
            mute.kill()
            waiting.kill()
        self.assertFalse(os.path.exists(self.rundir + "2"))
        self.assert_nothing_left()

    def test_an_interrupted_up_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.start("up", "--ring", "3", env={"VIADUCT_FAKE": "2 mute"}) as up:
                self.assertTrue(cli.wait_for(lambda: len(cli.processes_with(self.rundir)) >= 3))
                up.send_signal(number)
                _, err = up.communicate(timeout=cli.HANG_S)
            self.assertEqual((up.returncode, err), (1, "viaduct up: interrupted\n"))
            self.assert_nothing_left()

    def test_down_ends_the_daemons_of_a_killed_up(self):
        with self.start("up", "--ring", "3", env={"VIADUCT_FAKE": "2 mute"}) as up:
            held = [os.path.join(self.rundir, "host-%d.lock" % i) for i in (1, 2, 3)]
            controls = [os.path.join(self.rundir, "host-%d.ctl" % i) for i in (1, 3)]
            self.assertTrue(cli.wait_for(lambda: all(os.path.exists(h) and os.path.getsize(h) for h in held) and
                                         all(os.path.exists(c) for c in controls)))
            up.kill()
            up.communicate()
        self.bad("up", "--ring", "3", expected="it is up already in %s (3 of 3 hosts" % self.rundir)
        out = self.down()
        self.assertIn("3 daemons ended (1 by a signal) (3 unknown to its state)", out)

    def test_no_daemon_to_start(self):
        os.unlink(os.path.join(self.folder, "bin", "viaductd"))
        self.env["PATH"] = self.folder
        self.bad("up", "--ring", "2", expected="viaductd: find: neither in %s/bin nor in $PATH" %
                 self.folder)
        self.assert_nothing_left()

    def test_a_daemon_that_can_not_be_executed(self):
        with open(os.path.join(self.folder, "bin", "viaductd"), "w", encoding="utf-8") as daemon:
            daemon.write("#!/nowhere/interpreter\n")
        err = self.bad("up", "--ring", "2", expected="host 1: start: the daemon ended with exit code 127")
        self.assertIn("No such file or directory", err)
        self.assert_nothing_left()

    def test_a_second_up_is_refused_and_harms_nothing(self):
        self.good("up", "--ring", "3")
        err = self.bad("up", "--ring", "2", expected="it is up already in %s (3 of 3 hosts run)" %
                       self.rundir)
        self.assertIn("'viaduct down' first", err)
        self.kill(1)
        self.bad("up", "--ring", "2", expected="(2 of 3 hosts run)")
        self.assertEqual([h["state"] for h in self.status()["hosts"]], ["down", "up", "up"])
        self.down()

    def test_two_at_once_give_one_fabric(self):
        ups = [self.start("up", "--ring", "4") for _ in range(6)]
        codes = []
        for up in ups:
            _, err = up.communicate(timeout=cli.HANG_S)
            codes.append(up.returncode)
            if up.returncode:
                self.assertRegex(err, "it is up already|another 'viaduct up' or 'down' is at work")
        self.assertEqual(sorted(codes), [0, 1, 1, 1, 1, 1])
        self.assertEqual([h["state"] for h in self.status()["hosts"]], ["up"] * 4)
        self.down()

    def test_up_cleans_up_after_a_crash_and_reports_it(self):
        self.good("up", "--ring", "3")
        for host in (1, 2, 3):
            self.kill(host)
        code, out, err = self.call("up", "--ring", "2")
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"^viaduct up: fabric '%s': cleaned up after a crash: 3 dead hosts, "
                              r"\d+ files, 0 namespaces\n$" % self.name)
        self.assertIn("is up: 2 hosts, 1 link\n", out)
        self.assertFalse(os.path.exists(os.path.join(self.rundir, "host-3.log")))
        self.down()

    def test_a_stale_control_socket_alone(self):
        os.mkdir(self.rundir, 0o700)
        subprocess.run(["python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX)"
                        ".bind(sys.argv[1])", os.path.join(self.rundir, "host-1.ctl")], check=True)
        self.bad("status", expected="it is not up")
        code, _, err = self.call("up", "--ring", "2")
        self.assertEqual(code, 0, err)
        self.assertIn("cleaned up after a crash: 0 dead hosts, 1 file", err)
        self.down()

    def test_a_damaged_state_file(self):
        os.mkdir(self.rundir, 0o700)
        for text, expected in (("{", "read: line"), ('{"fabric": 1}', "not a fabric's state"),
                               ('{"fabric":"%s","channels":0,"netns":false,"direct":true,"hosts":[{"host":'
                                '999,"pid":1,"start":1}],"links":[]}' % self.name,
                                "not a fabric's state")):
            with open(os.path.join(self.rundir, "fabric.json"), "w", encoding="utf-8") as state:
                state.write(text)
            self.bad("status", expected=["%s/fabric.json: " % self.rundir, expected])
        self.assertIn("is down", self.down())

    def test_the_run_directory_of_another_fabric(self):
        self.good("up", "--ring", "2")
        for words in (["up", "--ring", "2"], ["down"], ["status"], ["cut", "1", "2"]):
            self.bad(*words, "--fabric", "other",
                     expected="this run directory is of fabric '%s', not 'other'" % self.name)
        self.down()


class Down(cli.Case):
    fake = True

    def test_a_daemon_that_ignores_sigterm_is_killed(self):
        self.good("up", "--ring", "3", env={"VIADUCT_FAKE": "2 stubborn"})
        self.assertIn("3 daemons ended (1 by a signal)", self.down())

    def test_a_daemon_that_is_stopped(self):
        self.good("up", "--ring", "3")
        self.kill(2, signal.SIGSTOP)
        self.assertIn("3 daemons ended (1 by a signal)", self.down())

    def test_daemons_that_have_died(self):
        self.good("up", "--ring", "3")
        self.kill(1)
        self.kill(3)
        self.assertIn("1 daemon ended, 2 had died before", self.down())

    def test_a_reused_pid_is_not_signalled(self):
        self.good("up", "--ring", "2")
        pid = self.kill(1)
        with subprocess.Popen(["sleep", "60"]) as bystander:
            path = os.path.join(self.rundir, "fabric.json")
            with open(path, encoding="utf-8") as state:
                text = state.read()
            with open(path, "w", encoding="utf-8") as state:
                state.write(text.replace('"pid": %d' % pid, '"pid": %d' % bystander.pid))
            self.assertIn("1 daemon ended, 1 had died before", self.down())
            self.assertIsNone(bystander.poll())
            bystander.kill()

    def test_files_of_others_stay(self):
        self.good("up", "--ring", "2")
        note = os.path.join(self.rundir, "my-notes")
        with open(note, "w", encoding="utf-8"):
            pass
        code, out, err = self.call("down")
        self.assertEqual(code, 1)
        self.assertIn("2 daemons ended", out)
        self.assertEqual(err, "viaduct down: run directory %s stays: a file in it is not of the "
                              "fabric: my-notes\n" % self.rundir)
        self.assertEqual(os.listdir(self.rundir), ["my-notes"])
        os.unlink(note)
        os.rmdir(self.rundir)
        self.assert_nothing_left()

    def test_up_and_down_can_be_repeated(self):
        self.good("up", "--chain", "2")
        self.down()
        for _ in range(2):
            self.assertEqual(self.good("down"), "fabric '%s' is not up: nothing to do\n" % self.name)
        self.good("up", "--chain", "2")
        self.down()


class Status(cli.Case):
    fake = True

    def test_the_throughput_is_measured(self):
        self.good("up", "--ring", "3")
        link = self.status()["links"][0]
        # The fake daemon reports 1 MB/s.
        self.assertAlmostEqual(link["bytes_per_second_ab"], 1e6, delta=1e5)
        self.assertEqual((link["a"], link["b"], link["n"], link["errors"]), (1, 2, 0, 2))
        text = self.good("status")
        self.assertRegex(text, r"(?m)^1-2  +up +(1\.\d+ MB|9\d\d kB)/s")
        self.assertIn("init(1)", text)
        self.down()

    def test_a_host_that_does_not_answer(self):
        self.good("up", "--ring", "1")
        self.kill(1, signal.SIGSTOP)
        host = self.status()["hosts"][0]
        self.assertEqual((host["state"], host["routes"]), ("silent", []))
        self.assertRegex(self.good("status"), r"(?m)^ +1  silent +%d " % self.pid(1))
        self.down()

    def test_large_fabrics_are_not_drawn_as_a_matrix(self):
        self.good("up", "--chain", "24")
        self.assertIn("host 24 reaches 23 of 23 hosts", self.good("status"))
        self.assertEqual(len(self.status()["hosts"]), 24)
        self.down()

    def test_a_failed_write_of_the_output_is_an_error(self):
        self.good("up", "--ring", "2")
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([self.viaduct, "status"], env=self.env, stdout=full, text=True,
                                  stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (
            1, "viaduct status: standard output: write: No space left on device\n"))
        self.down()

    def test_the_state_file_has_the_options_of_up(self):
        self.good("up", "--star", "3", "--channels", "3", "--no-direct", "--dma-bytes", "4096", "--spin-us", "0")
        state = self.state()
        self.assertEqual((state["channels"], state["direct"], state["netns"]), (3, False, False))
        self.assertEqual((state["dma_bytes"], state["spin_us"]), (4096, 0))
        self.assertEqual([(k["a"], k["b"], k["n"]) for k in state["links"]], [(1, 2, 0), (1, 3, 0)])
        lines = [line for line in cli.processes_with(self.rundir).values() if "--host 1 " in line]
        self.assertEqual(len(lines), 1)
        self.assertTrue(re.search(r"--foreground .*--rundir %s --host 1 --hosts-max 4 --ready-fd 3 "
                                  r"--address 127\.77\.0\.1 --channels 3 --dma-bytes 4096 --spin-us 0 --with %d --link 2:0:0:nodirect --link 3:0:0:nodirect" %
                                  (re.escape(self.rundir), os.getpid()), lines[0]), lines[0])
        self.down()


class Preload(cli.Case):
    fake = True

    def run_env(self, **env):
        out = self.good("run", "--host", "2", "--", "python3", "-c",
                        "import json,os; print(json.dumps(dict(os.environ)))", env=env)
        return json.loads(out)

    def put_library(self, *folders):
        folder = os.path.join(self.folder, *folders)
        os.makedirs(folder, exist_ok=True)
        source = os.path.join(folder, "empty.c")
        with open(source, "w", encoding="ascii"):
            pass
        path = os.path.join(folder, "libviaduct-sockets.so")
        subprocess.run(["cc", "-shared", "-o", path, source], check=True)
        return path

    def test_the_library_is_found_beside_or_in_lib(self):
        self.good("up", "--ring", "2")
        self.bad("run", "--host", "2", "true", expected="sockets: libviaduct-sockets.so: find: neither "
                 "in %s/bin nor in its ../lib" % self.folder)
        in_lib = self.put_library("lib")
        self.assertEqual(self.run_env()["LD_PRELOAD"], in_lib)
        beside = self.put_library("bin")
        env = self.run_env()
        self.assertEqual(env["LD_PRELOAD"], beside)
        self.assertEqual((env["VIADUCT_RUNDIR"], env["VIADUCT_FABRIC"], env["VIADUCT_HOST"]),
                         (self.rundir, self.name, "2"))
        self.down()

    def test_an_earlier_preload_is_kept(self):
        path = self.put_library("bin")
        other = self.put_library("other")
        self.good("up", "--ring", "2")
        out = self.good("run", "--host", "2", "--", "viaduct-inner", env={
            # A sanitizer in viaduct itself would complain that it is not loaded first.
            "ASAN_OPTIONS": "verify_asan_link_order=0",
            "LD_PRELOAD": other, "PATH": self.inner() + ":" + os.environ["PATH"]})
        self.assertEqual(out, "%s:%s\n" % (path, other))
        self.down()

    def inner(self):
        folder = os.path.join(self.folder, "inner")
        os.makedirs(folder)
        with open(os.path.join(folder, "viaduct-inner"), "w", encoding="ascii") as script:
            script.write("#!/bin/sh\necho \"$LD_PRELOAD\"\n")
        os.chmod(os.path.join(folder, "viaduct-inner"), 0o755)
        return folder

    def test_a_path_that_can_not_be_preloaded(self):
        self.good("up", "--ring", "2")
        spaced = os.path.join(self.folder, "with space")
        os.rename(os.path.join(self.folder, "bin"), spaced)
        self.viaduct = os.path.join(spaced, "viaduct")
        self.put_library("with space")
        self.bad("run", "--host", "1", "true", expected="a path with a space or colon can not be "
                 "preloaded; --no-sockets runs the program without it")
        self.good("run", "--host", "1", "--no-sockets", "true")
        self.down()


if __name__ == "__main__":
    cli.main()

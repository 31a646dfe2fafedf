#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaductd --config: a daemon of a machine starts from its file, and reports errors in it."""
import os
import signal
import subprocess

import cli
from daemon_config import Machine


class Config(cli.Case):
    def machines(self, *hosts):
        return [Machine(self, host) for host in hosts]

    def daemon(self, *words, **more):
        """(exit code, standard output, standard error)"""
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), *words], capture_output=True, text=True, env=self.env,
                              timeout=cli.HANG_S, check=False, **more)
        return done.returncode, done.stdout, done.stderr

    def test_as_many_links_as_the_manual_says(self):
        with open(os.path.join(cli.HERE, "..", "..", "docs", "man", "viaductd.8"), encoding="utf-8") as file:
            manual = file.read()
        most = 1024  # VIA_PORTS_MAX
        self.assertIn("The option may be given up to {:,} times.\n.TP\n.BI \\-\\-link \" peer".format(most), manual)
        links = ["--link=%d:0:%d" % (peer, cable) for cable in (0, 1) for peer in range(1, 1001)][:most + 1]
        code, _, err = self.daemon("--host", "0", *links)
        self.assertEqual(code, 2, err)
        self.assertIn("%s: a host has at most %d links" % (links[most].replace("=", " "), most), err)
        # With one link less the daemon reports a later error.
        code, _, err = self.daemon("--host", "0", *links[:most], "--hosts-max", "none")
        self.assertEqual(code, 2, err)
        self.assertNotIn("at most", err)

    def test_machines_come_up_in_any_order_and_heal(self):
        one, two, three = self.machines(1, 2, 3)
        one.configure([2], "name = first\naddresses = 10.0.0.1\n[fabric]\nname = lab\n")
        two.configure([1, 3])
        three.configure([2], learn=True)
        three.start()
        self.assertEqual(three.links()["to-2-0"]["peer"], -1)
        one.start()
        two.start()
        self.assertTrue(cli.wait_for(lambda: one.reaches(3) and three.reaches(1)))
        status = one.status()
        self.assertEqual((status["name"], status["fabric"], status["addresses"]), ("first", "lab", ["10.0.0.1"]))
        self.assertEqual(three.links()["to-2-0"]["peer"], 2)
        self.assertTrue(three.has_logged("host 3: link 0 (to-2-0) to host 2: up, host 2"))
        # A crash leaves sockets, locks and a dead cable behind; a new start with the same configuration works.
        two.stop(signal.SIGKILL)
        self.assertTrue(cli.wait_for(lambda: not one.reaches(3)))
        self.assertIn("host-2.ctl", os.listdir(two.rundir))
        two.start()
        self.assertTrue(cli.wait_for(lambda: one.reaches(3) and three.reaches(1)))
        for machine in (one, two, three):
            self.assertEqual(machine.stop(), 0)
            self.assertEqual([name for name in os.listdir(machine.rundir) if name.startswith("host-")], [])

    def test_an_unexpected_peer_is_a_warning(self):
        one, two = self.machines(1, 2)
        one.write("[host]\nid = 1\nrundir = %s\n[link there]\nto = %s\npeer = 5\n" % (one.rundir, one.cable(2)))
        two.configure([1])
        one.start()
        two.start()
        self.assertTrue(one.has_logged("host 1: link 0 (there) to host 5: host 2 is at the other end, not host 5"))
        self.assertTrue(cli.wait_for(lambda: one.reaches(2)))

    def test_a_wrong_file_starts_nothing(self):
        (one,) = self.machines(1)
        one.write("[host]\nid = 1\nrundir = %s\nwidth = 3\n[link a]\nto = pex\n" % one.rundir)
        for words in ((), ("--check",), ("--foreground",)):
            code, out, err = self.daemon("--config", one.path, *words)
            self.assertEqual((code, out), (2, ""))
            self.assertEqual(err.splitlines(), [
                "viaductd: %s:4: [host] width: there is no such key; there are id, name, addresses, listen, metrics, rundir, state"
                % one.path,
                "viaductd: %s:6: [link a] to = pex: description 'pex': not DRIVER:TARGET[,KEY=VALUE...]" % one.path])
        self.assertFalse(os.path.exists(one.rundir))
        key = os.path.join(self.folder, "key")
        one.configure(more="[fabric]\nkey = %s\n" % key)
        code, _, err = self.daemon("--config", one.path)
        self.assertEqual((code, err), (2, "viaductd: %s: [fabric] key: fabric key %s: No such file or directory\n" %
                                       (one.path, key)))
        code, _, err = self.daemon("--config", os.path.join(self.folder, "none"))
        self.assertEqual((code, err), (2, "viaductd: %s/none: open: No such file or directory\n" % self.folder))

    def test_options_that_the_file_sets_are_refused(self):
        (one,) = self.machines(1)
        one.configure()
        for words in (("--host", "1"), ("--rundir", "/x"), ("--log-level", "info"), ("--key", "/x"), ("--quota", "notes=1")):
            code, _, err = self.daemon("--config", one.path, *words)
            self.assertEqual(code, 2)
            self.assertIn("viaductd: %s: not together with --config: the file sets it" % words[0], err)
        code, _, err = self.daemon("--check", "--host", "1")
        self.assertEqual(code, 2)
        self.assertIn("viaductd: --check: needs --config FILE", err)
        code, _, err = self.daemon("--config", "host.conf", cwd=one.folder)
        self.assertEqual(code, 2)
        self.assertIn("an absolute path is needed", err)
        code, out, _ = self.daemon("--config", "host.conf", "--check", cwd=one.folder)
        self.assertEqual(code, 0)
        self.assertIn("[host]\nid = 1\n", out)

    def test_a_second_daemon_reports_the_first(self):
        (one,) = self.machines(1)
        one.configure()
        one.start()
        code, _, err = self.daemon("--config", one.path, "--foreground")
        self.assertEqual(code, 1)
        self.assertIn("host 1: is up already: process %d holds %s/host-1.lock" % (one.process.pid, one.rundir), err)

    def test_the_log_is_in_the_configured_file(self):
        (one,) = self.machines(1)
        log = os.path.join(self.folder, "one.log")
        one.configure(more="[log]\nfile = %s\nlevel = debug\n" % log)
        one.start()
        one.stop()
        with open(log, encoding="utf-8") as file:
            self.assertIn("host 1: ends", file.read())
        self.assertEqual(one.messages(), "")
        one.configure(more="[log]\nfile = %s/none/one.log\n" % self.folder)
        code, _, err = self.daemon("--config", one.path, "--foreground")
        self.assertEqual((code, err), (1, "viaductd: log %s/none/one.log: open: No such file or directory\n" % self.folder))
        self.assertEqual([name for name in os.listdir(one.rundir) if name.startswith("host-")], [])

    def test_files_in_place_of_the_log_are_refused(self):
        """Also files that another user has created, by which that user could read the messages, or block the daemon."""
        (one,) = self.machines(1)
        log = os.path.join(self.folder, "one.log")
        one.configure(more="[log]\nfile = %s\n" % log)
        plants = [("open: No such device or address", os.mkfifo), ("open: Is a directory", os.mkdir),
                  ("open: Too many levels of symbolic links", lambda path: os.symlink("/dev/null", path))]
        if os.geteuid() == 0:
            def plant(path):
                with open(path, "wb"):
                    os.chown(path, cli.NOBODY, cli.NOBODY)
            plants.append(("belongs to user %d, not to user 0 or root" % cli.NOBODY, plant))
        for expected, plant in plants:
            plant(log)
            code, _, err = self.daemon("--config", one.path, "--foreground")
            self.assertEqual((code, err), (1, "viaductd: log %s: %s\n" % (log, expected)))
            self.assertEqual([name for name in os.listdir(one.rundir) if name.startswith("host-")], [])
            os.rename(log, log + ".old%d" % len(os.listdir(self.folder)))

    def test_an_ordinary_user_needs_no_more_than_another_run_directory(self):
        home, user = self.as_user()
        (one,) = self.machines(1)
        one.rundir = os.path.join(home, "run")
        one.configure()
        os.chmod(one.folder, 0o755)
        words = ("--config", one.path, "--with", str(os.getpid()))
        code, out, err = self.daemon(*words, **user)
        self.assertEqual((code, out, err), (0, "", ""))
        status = one.status()
        self.assertEqual(status["host"], 1)
        self.assertIn("host-1.log", os.listdir(one.rundir))
        self.assertTrue(one.send_request("stop")["ok"])
        self.assertTrue(cli.wait_for(lambda: not cli.is_alive(status["pid"])))
        if user:
            one.write("[host]\nid = 1\nrundir = /run/viaduct-of-root\n")
            code, _, err = self.daemon(*words, **user)
            self.assertEqual(code, 1)
            self.assertIn("host 1: run directory /run/viaduct-of-root: mkdir /run/viaduct-of-root: Permission denied", err)


if __name__ == "__main__":
    cli.main()

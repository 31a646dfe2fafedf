#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Both machines of a link report its errors, and other links are unaffected."""
import os
import re
import resource
import signal
import subprocess
import time

import cli
from daemon_config import Machine


class BadInput(cli.Case):
    def machines(self, *hosts):
        return [Machine(self, host) for host in hosts]

    def link(self, machine, name):
        return machine.links().get(name, {})

    def wait_link(self, machine, name, state):
        """The link when it has this state, which may change again when the hosts retry."""
        link = {}

        def has_state():
            link.update(self.link(machine, name))
            return link.get("state") == state
        self.assertTrue(cli.wait_for(has_state), machine.links())
        return link

    def test_two_hosts_with_one_id(self):
        one, other, two = self.machines(1, 5, 2)
        one.configure([5, 2])
        two.configure([1])
        cable = other.cable(1)
        other.write("[host]\nid = 1\nname = other\nrundir = %s\n[link back]\nto = %s\n" % (other.rundir, cable))
        other.host = 1  # of its control socket
        one.start()
        two.start()
        self.wait_link(one, "to-2-0", "up")
        other.start()
        for machine, name in ((one, "to-5-0"), (other, "back")):
            link = self.wait_link(machine, name, "bad-host")
            self.assertEqual(link["error"], "the peer has this host's id, or an id outside of the fabric")
            self.assertTrue(machine.has_logged("bring-up: the peer has this host's id, or an id outside of the fabric"))
        self.assertEqual(self.link(one, "to-2-0")["downs"], 0)
        self.assertTrue(cli.wait_for(lambda: two.reaches(1)))
        # The configuration is corrected.
        other.stop()
        other.host = 5
        other.configure([1])
        other.start()
        self.assertTrue(cli.wait_for(lambda: two.reaches(5)))

    def test_two_hosts_with_one_id_far_from_each_other(self):
        one, two, three, other = self.machines(1, 2, 3, 5)
        one.configure([2])
        two.configure([1, 3])
        three.configure([2, 5])
        other.configure([3], host=1)
        other.host = 1  # of its control socket
        for machine in (one, two, three):
            machine.start()
        for _ in range(2):  # a host that restarts is no second one
            self.assertTrue(cli.wait_for(lambda: three.reaches(1) and one.reaches(3)))
            one.stop(signal.SIGKILL)
            one.start()
        self.assertTrue(cli.wait_for(lambda: three.reaches(1) and one.reaches(3)))
        self.assertEqual([m.status()["ids_shared"] for m in (one, two, three)], [[], [], []])
        other.start()
        for machine in (one, two, three, other):
            self.assertTrue(cli.wait_for(lambda machine=machine: machine.status()["ids_shared"] == [1]), machine.messages())
        self.assertTrue(one.has_logged("host 1: another host of the fabric announces this host's id"))
        self.assertTrue(other.has_logged("host 1: another host of the fabric announces this host's id"))
        self.assertTrue(two.has_logged("host 2: two hosts of the fabric announce the id 1"))
        self.assertIn("host 1: two hosts of the fabric have this id", self.good("status", "--rundir", three.rundir))
        self.assertTrue(two.reaches(3))
        self.assertEqual(two.links()["to-3-0"]["downs"], 0)
        # The configuration is corrected.
        other.stop()
        other.host = 5
        other.configure([3])
        other.start()
        for machine in (one, two, three):
            self.assertTrue(cli.wait_for(lambda machine=machine: machine.status()["ids_shared"] == []), machine.messages())
        self.assertTrue(two.has_logged("host 2: one host of the fabric has the id 1 now"))
        self.assertTrue(cli.wait_for(lambda: one.reaches(5) and other.reaches(1)))

    def test_keys_that_differ(self):
        one, two, three = self.machines(1, 2, 3)
        for machine, name in ((one, "a"), (two, "b"), (three, "a")):
            key = os.path.join(self.folder, name)
            if not os.path.exists(key):
                with open(key, "wb") as file:
                    file.write(os.urandom(32))
                os.chmod(key, 0o600)
            machine.configure({1: [2, 3], 2: [1], 3: [1]}[machine.host], more="[fabric]\nkey = %s\n" % key)
            machine.start()
        for machine, name in ((one, "to-2-0"), (two, "to-1-0")):
            self.assertEqual(self.wait_link(machine, name, "bad-key")["error"],
                             "the peer's fabric key is not this host's")
        self.wait_link(three, "to-1-0", "up")
        # A reload reads the right key: the file has the same name and new contents.
        with open(os.path.join(self.folder, "a"), "rb") as right, open(os.path.join(self.folder, "b"), "wb") as wrong:
            wrong.write(right.read())
        self.assertTrue(two.send_request("reload")["ok"])
        two.configure([], more="[fabric]\nkey = %s\n" % os.path.join(self.folder, "b"))
        self.assertTrue(two.send_request("reload")["ok"])
        two.configure([1], more="[fabric]\nkey = %s\n" % os.path.join(self.folder, "b"))
        self.assertTrue(two.send_request("reload")["ok"])
        self.wait_link(two, "to-1-0", "up")
        self.assertEqual(self.link(three, "to-1-0")["downs"], 0)

    def test_another_version(self):
        one, two = self.machines(1, 2)
        one.configure([2, 3])
        two.configure([1])
        one.start()
        two.start()
        rundir = os.path.join(self.folder, "old")
        old = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), "--foreground", "--host", "3", "--rundir", rundir,
                                "--protocol-version", "1", "--link",
                                "1=emu:%s/cable-1-3-0.sock,side=1" % self.folder], env=self.env, stderr=subprocess.DEVNULL)
        self.addCleanup(old.wait)
        self.addCleanup(old.kill)
        link = self.wait_link(one, "to-3-0", "bad-version")
        self.assertEqual(link["error"], "the peer speaks protocol version 1, this host version %d"
                         % cli.PROTOCOL_VERSION)
        self.wait_link(one, "to-2-0", "up")
        self.assertEqual(self.link(one, "to-2-0")["downs"], 0)

    def test_a_machine_that_is_suspended(self):
        one, two, three = self.machines(1, 2, 3)
        one.configure([2, 3])
        two.configure([1])
        three.configure([1])
        for machine in (one, two, three):
            machine.start()
        self.wait_link(one, "to-2-0", "up")
        self.wait_link(one, "to-3-0", "up")
        two.process.send_signal(signal.SIGSTOP)
        self.assertTrue(cli.wait_for(lambda: self.link(one, "to-2-0").get("state") != "up"))
        # The link may be in its next state already when the daemon polls it.
        self.assertTrue(cli.wait_for(lambda: re.search(r"host 1: link 0 \(to-2-0\) to host 2: (waiting|handshake): no sign of life of the peer for [0-9]+ ms$", one.messages(),
                                                       re.MULTILINE)))
        time.sleep(0.5)
        two.process.send_signal(signal.SIGCONT)
        self.assertTrue(cli.wait_for(lambda: three.reaches(2) and two.reaches(3)))
        self.assertEqual(self.link(one, "to-3-0")["downs"], 0)

    def test_a_log_that_can_not_be_written(self):
        (one,) = self.machines(1)
        log = os.path.join(self.folder, "one.log")
        one.configure(more="[log]\nfile = %s\n" % log)
        one.start()
        self.assertTrue(cli.wait_for(lambda: os.path.getsize(log) > 0))
        hard = resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE)[1]

        def is_reported():
            # Once more if the thread that writes the log did not run while the limit was in force.
            resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (os.path.getsize(log), hard))
            for _ in range(5):
                self.assertTrue(one.send_request("reload")["ok"])
            time.sleep(0.1)
            resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            self.assertTrue(one.send_request("reload")["ok"])
            time.sleep(0.1)
            with open(log, encoding="utf-8") as file:
                return "messages lost: File too large" in file.read()
        self.assertTrue(cli.wait_for(is_reported))

    def test_files_in_place_of_the_run_directory_are_refused(self):
        (one,) = self.machines(1)
        one.configure()
        with open(one.rundir, "w", encoding="utf-8"):
            pass
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--config", one.path, "--foreground"], env=self.env,
                              capture_output=True, text=True, check=False, timeout=cli.HANG_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("viaductd: host 1: run directory %s: is not a directory" % one.rundir, done.stderr)
        os.unlink(one.rundir)
        os.mkdir(one.rundir, 0o777)
        os.chmod(one.rundir, 0o777)
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--config", one.path, "--foreground"], env=self.env,
                              capture_output=True, text=True, check=False, timeout=cli.HANG_S)
        self.assertIn("mode 777 is open to others", done.stderr)

    def test_an_unknown_value_in_the_environment_is_an_error(self):
        (one,) = self.machines(1)
        one.configure()
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--config", one.path, "--foreground"], env={**self.env, "VIADUCT_DIRECT": "no"},
                              capture_output=True, text=True, check=False, timeout=cli.HANG_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("VIADUCT_DIRECT='no' is none of auto, asked and off", done.stderr)


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A mistake at one machine is reported at both ends of a link, and harms no other link."""
import os
import signal
import time

import fabric
import machines_case
from machines_case import BIN, HANG_S, wait_for

import machines_fabric

FAKE_CLOCK = os.path.join(BIN, "tests", "fake_clock.so")
HOUR_S = 3600


@machines_case.unittest.skipIf(fabric.WHY_NOT["ofi"], fabric.WHY_NOT["ofi"])
class BadInput(machines_case.Case):
    """A ring of three. Each mistake concerns node2 or a link of it; the other links stay up."""
    count = 3

    def setUp(self):
        # On a busy machine a link would be down now and then, which these tests count.
        self.fabric = fabric.Fabric(self.lab, machines_fabric.ring(3), "ofi", {"times": {"dead-ms": 5000}})
        self.addCleanup(self.tidy)

    def tidy(self):
        self.fabric.end_all()
        for m in self.lab:
            m.run(["sh", "-c", "umount /run/viaduct /var/log/viaduct 2>/dev/null; rm -rf /run/viaduct /run/lab/viaductd-*.log /run/lab/clock"])

    def edit(self, machine, old, new):
        text = self.lab[machine].read(machines_fabric.CONF)
        self.assertIn(old, text)
        self.lab[machine].write(machines_fabric.CONF, text.replace(old, new))

    def assert_logs(self, host, *texts):
        for text in texts:
            self.assertTrue(wait_for(lambda text=text: text in self.fabric.log(host)), "no %r in:\n%s" % (text, self.fabric.log(host)))

    def link(self, host, peer):
        return next(li for li in self.fabric.status(host)["links"] if li["peer"] == peer)

    def viaduct(self, machine, *words):
        return self.lab[machine].run(["env", "VIADUCT_RUNDIR=" + machines_fabric.RUNDIR, os.path.join(BIN, "viaduct"), *words], check=False)

    def flow(self, source, target, seconds):
        receiver = self.fabric.receiver(target)
        sender = self.fabric.deliver(source, "send", target, 0, 256, 500, seconds)

        def finish():
            output = sender.communicate(timeout=HANG_S)[0]
            tally, _ = fabric.outcome(receiver)
            self.assertEqual(tally, {"received": int(output.split()[1]), "lost": 0, "doubled": 0, "reordered": 0, "wrong": 0})
        for process in (sender, receiver):
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        return finish

    def test_a_wrong_key(self):
        self.lab[2].write(machines_fabric.KEY, "another key than that of the others", 0o600)
        self.fabric.start()
        self.fabric.wait_whole([1, 3])
        self.assert_logs(1, "link 0 (node2) to host 2: driver ofi: host 2 at 10.76.0.2 port 7471 has another fabric key")
        self.assert_logs(2, "link 0 (node1) to host 1: driver ofi: host 1 at 10.76.0.1 has another fabric key",
                  "link 1 (node3) to host 3: driver ofi: host 3 at 10.76.0.3 port 7471 has another fabric key")
        self.assert_logs(3, "host 2 at 10.76.0.2 has another fabric key")
        # The connector tries again and again; the log has one line for all tries.
        refused = self.link(3, 2)["peers_refused"]
        self.assertTrue(wait_for(lambda: self.link(3, 2)["peers_refused"] > refused + 3))
        self.assertEqual(self.fabric.log(3).count("another fabric key"), 1, self.fabric.log(3))

    def test_two_hosts_with_one_id(self):
        self.edit(3, "id = 3", "id = 2")
        self.edit(3, "[link node2]\nto = ofi:tcp://node2\npeer = 2\n", "")
        self.fabric.start()
        self.fabric.wait_whole([1, 2])
        self.assert_logs(1, "link 1 (node3) to host 3: driver ofi: the daemon at 10.76.0.3 port 7471 says that it is host 2, not host 3")
        self.assert_logs(3, "host 2: refused a connection from 10.76.0.1", "as host 1 to host 3: it takes this host for another")
        self.flow(1, 2, 0.2)()
        self.assertEqual(self.link(1, 2)["downs"], 0)

    def test_unreachable_addresses(self):
        self.edit(1, "ofi:tcp://node2", "ofi:tcp://10.76.0.99")
        self.edit(2, "ofi:tcp://node3", "ofi:tcp://nowhere.invalid")
        self.fabric.start()
        self.fabric.wait_whole([1, 3])
        self.assert_logs(1, "link 0 (node2) to host 2: driver ofi: host 2 at 10.76.0.99 port 7471 does not answer")
        self.assert_logs(2, "link 1 (node3) to host 3: driver ofi: address of nowhere.invalid: ")
        self.assertEqual(self.link(2, 1)["found"], "waits for host 1 to connect")
        self.assertEqual(self.link(3, 2)["found"], "waits for host 2 to connect")

    def test_a_missing_provider(self):
        self.edit(1, "ofi:tcp://node2", "ofi:nosuch://node2")
        self.edit(2, "ofi:tcp://node3", "ofi:nosuch://node3")
        self.fabric.start(1, 3)
        self.fabric.wait_whole([1, 3])
        self.assert_logs(1, "host 1: continues without a link: link 0 (node2) to host 2: driver ofi: open: libfabric has no provider 'nosuch'")
        self.assertEqual(self.link(3, 2)["found"], "waits for host 2 to connect")
        self.assertRegex(self.viaduct(3, "status").stdout, r"(?m)^host 1: not opened: link 0 \(node2\) .*no provider 'nosuch'")
        self.assertIn("no provider 'nosuch'", self.viaduct(1, "doctor").stdout)
        self.fabric.start(2)
        self.assert_logs(2, "continues without a link: link 1 (node3) to host 3: driver ofi: open: libfabric has no provider 'nosuch'")
        self.edit(1, "ofi:nosuch://node2", "ofi:tcp://node2")
        self.assertEqual(self.viaduct(1, "reload").returncode, 0)
        self.fabric.wait_whole([1, 2])
        self.assertEqual(self.fabric.status(1)["links_failed"], [])
        self.assertNotEqual(self.viaduct(2, "reload").returncode, 0)
        self.edit(2, "ofi:nosuch://node3", "ofi:tcp://node3")
        self.assertEqual(self.viaduct(2, "reload").returncode, 0)
        self.fabric.wait_whole()
        self.assertEqual(self.fabric.status(2)["links_failed"], [])
        # A daemon all of whose links fail ends.
        self.assertEqual(self.fabric.end(2), 0)
        for peer in ("node1", "node3"):
            self.edit(2, "ofi:tcp://" + peer, "ofi:nosuch://" + peer)
        self.fabric.start(2)
        self.assertEqual(self.fabric.daemons.pop(2).wait(HANG_S), 1)

    def test_another_version(self):
        self.fabric.start(1, 3)
        log = open(self.fabric.log_path(2), "ab")
        with log:
            self.fabric.daemons[2] = self.lab[2].start(
                [fabric.VIADUCTD, "--foreground", "--rundir", machines_fabric.RUNDIR, "--host", "2", "--key", machines_fabric.KEY,
                 "--protocol-version", "77", "--link", "1=ofi:tcp://node1", "--link", "3=ofi:tcp://node3"], stdout=log, stderr=log)
        self.fabric.wait_whole([1, 3])
        for host in (1, 3):
            self.assert_logs(host, "to host 2: bring-up: the peer speaks protocol version 77, this host version ")
        self.assert_logs(2, "link 0 to host 1: bring-up: the peer speaks protocol version")
        self.assertEqual(self.link(1, 2)["state"], "bad-version")

    def test_a_wall_clock_that_jumps(self):
        self.fabric.more_environment = {"LD_PRELOAD": FAKE_CLOCK, "FAKE_CLOCK": "/run/lab/clock", "ASAN_OPTIONS": "verify_asan_link_order=0"}
        self.fabric.start(2)
        self.fabric.more_environment = {}
        self.fabric.start(1, 3)
        self.fabric.wait_whole()
        finish = [self.flow(1, 2, 3), self.flow(2, 3, 3)]
        for hours in (1, -2, 24 * 365 * 80, 0, -24 * 365 * 80, 3):
            self.lab[1].write("/run/lab/clock.new", str(hours * HOUR_S))
            os.rename(os.path.join(self.lab.shared, "clock.new"), os.path.join(self.lab.shared, "clock"))
            begin = self.fabric.status(2)["uptime_ns"]
            self.assertTrue(wait_for(lambda begin=begin: self.fabric.status(2)["uptime_ns"] > begin + 300_000_000))
        for wait in finish:
            wait()
        apart = (self.fabric.status(2)["time_ns"] - self.fabric.status(1)["time_ns"]) / 1e9
        self.assertAlmostEqual(apart, 3 * HOUR_S, delta=HANG_S)
        self.assertEqual([li["downs"] for host in (1, 2, 3) for li in self.fabric.status(host)["links"]], [0] * 6)
        self.assertIn("clock", self.viaduct(1, "doctor").stdout)

    def test_full_disks(self):
        fill = "mkdir -p %s; mount -t tmpfs -o size=64k full %s; dd if=/dev/zero of=%s/all bs=4k 2>/dev/null; true"
        self.lab[2].run(["sh", "-c", fill % (("/var/log/viaduct",) * 3)])
        self.edit(2, "[fabric]\n", "[log]\nfile = /var/log/viaduct/host.log\nlevel = debug\n[fabric]\n")
        self.fabric.start()
        self.fabric.wait_whole()
        self.flow(1, 2, 0.3)()
        self.assertEqual(self.fabric.end(2), 0)
        self.lab[2].run(["sh", "-c", "rm -rf /run/viaduct;" + fill.replace("size=64k", "size=64k,mode=700") % (("/run/viaduct",) * 3)])
        self.fabric.start(2)
        self.assertTrue(wait_for(lambda: self.fabric.status(2) or self.fabric.daemons[2].poll() is not None))
        code = self.fabric.daemons[2].poll()
        if code is None:
            self.fabric.wait_whole()  # the daemon could make its files nevertheless
        else:
            self.assertEqual(code, 1)
            self.assert_logs(2, "No space left on device")
        self.assertEqual(self.link(1, 3)["downs"], 0)

    def test_files_that_others_can_write(self):
        self.fabric.start()
        self.fabric.wait_whole()
        for change in ("chmod 666", "chmod 620", "chown 1234", "rm -f", "ln -sf /dev/zero", "rm -f; mkfifo", "rm -f; ln -s " + machines_fabric.CONF):
            good = self.lab[2].read(machines_fabric.CONF)
            self.lab[2].run(["sh", "-c", "%s %s" % (change.replace(";", " %s;" % machines_fabric.CONF), machines_fabric.CONF)], check=False)
            done = self.viaduct(2, "reload")
            self.assertEqual(done.returncode, 1, change)
            self.assertRegex(done.stderr, "only root or the user of this process|No such file|no regular file|levels of symbolic links")
            self.lab[2].run(["rm", "-f", machines_fabric.CONF])
            self.lab[2].write(machines_fabric.CONF, good)
        self.assertEqual(self.viaduct(2, "reload").returncode, 0)
        self.assertEqual([li["downs"] for host in (1, 2, 3) for li in self.fabric.status(host)["links"]], [0] * 6)

    def test_a_storm_of_reloads(self):
        self.fabric.start()
        self.fabric.wait_whole()
        finish = [self.flow(1, 2, 2), self.flow(1, 3, 2)]
        good = self.lab[2].read(machines_fabric.CONF)
        path = self.lab[2].path(machines_fabric.CONF)
        (pid,) = self.lab[2].pids(fabric.VIADUCTD)
        for turn in range(400):
            os.kill(pid, signal.SIGHUP)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(good if turn % 2 else good.replace("peer = 3", "peer = x"))
            os.rename(path + ".new", path)
            time.sleep(0.003)
        for wait in finish:
            wait()
        self.assertEqual(self.viaduct(2, "reload").returncode, 0)
        self.assertEqual([li["downs"] for host in (1, 2, 3) for li in self.fabric.status(host)["links"]], [0] * 6)

    def test_a_reload_with_an_error(self):
        self.fabric.start()
        self.fabric.wait_whole()
        good = self.lab[2].read(machines_fabric.CONF)
        for number, bad in enumerate((good.replace("peer = 3", "peer = x"), good + "[link node9]\nto = ofi:tcp://\npeer = 9\n", "", "\0" * 5000,
                                      good.replace(machines_fabric.KEY, "/etc/viaduct/none.key"), good.replace("[fabric]", "[fabrik]"))):
            self.lab[2].write(machines_fabric.CONF, bad)
            for pid in self.lab[2].pids(fabric.VIADUCTD):
                os.kill(pid, signal.SIGHUP)
            self.assertTrue(wait_for(lambda number=number: self.fabric.log(2).count("nothing was changed") == 2 * number + 1), self.fabric.log(2))
            self.assertEqual(self.viaduct(2, "reload").returncode, 1)
            self.assertTrue(wait_for(lambda number=number: self.fabric.log(2).count("nothing was changed") == 2 * number + 2))
            self.lab[2].write(machines_fabric.CONF, good)
        self.assertEqual(self.viaduct(2, "reload").returncode, 0)
        self.fabric.wait_whole()
        self.assertEqual([li["downs"] for host in (1, 2, 3) for li in self.fabric.status(host)["links"]], [0] * 6)


if __name__ == "__main__":
    machines_case.main()

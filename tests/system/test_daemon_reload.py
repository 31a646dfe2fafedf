#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A daemon that reads its configuration file again: links are added and removed, and nothing else is disturbed."""
import ctypes
import os
import signal
import socket
import subprocess
import time

import cli
from daemon_config import Machine


class Reload(cli.Case):
    def machines(self, *hosts):
        return [Machine(self, host) for host in hosts]

    def assert_up(self, machine, *peers):
        self.assertTrue(cli.wait_for(lambda: all(machine.state(peer) == "up" for peer in peers)), machine.links())

    def test_links_come_and_go_and_others_stay(self):
        one, two, three = self.machines(1, 2, 3)
        one.configure([2])
        two.configure([1, 3])
        three.configure([2])
        for machine in (one, two, three):
            machine.start()
        self.assertTrue(cli.wait_for(lambda: one.reaches(3)))
        # A new link closes the ring.
        one.configure([2, 3])
        three.configure([1, 2])
        self.assertEqual(one.send_request("reload"), {"ok": True, "report": ["link to-3-0: opened"]})
        self.assertEqual(three.send_request("reload"), {"ok": True, "report": ["link to-1-0: opened"]})
        self.assert_up(one, 2, 3)
        before = one.links()["to-2-0"]
        # Another link is removed; its traffic takes the other path around the ring.
        two.configure([1])
        three.configure([1])
        self.assertEqual(two.send_request("reload"), {"ok": True, "report": ["link 1 (to-3-0) to host 3: closed"]})
        self.assertEqual(three.send_request("reload")["report"], ["link 0 (to-2-0) to host 2: closed"])
        self.assertEqual(sorted(two.links()), ["to-1-0"])
        self.assertTrue(cli.wait_for(lambda: two.reaches(3) and three.reaches(2)))
        after = one.links()["to-2-0"]
        for key in ("ups", "downs", "peer_session", "port"):
            self.assertEqual(after[key], before[key], key)
        self.assertEqual((after["ups"], after["downs"]), (1, 0))
        # The number is free again, for a link to another host.
        three.configure([1, (2, 7)])
        two.configure([1, (3, 7)])
        self.assertTrue(two.send_request("reload")["ok"])
        self.assertTrue(three.send_request("reload")["ok"])
        self.assertTrue(cli.wait_for(lambda: two.state(3, 7) == "up"))
        self.assertEqual(two.links()["to-3-7"]["port"], 1)
        self.assertEqual(one.links()["to-2-0"]["ups"], 1)
        self.assertEqual(three.links()["to-2-7"]["downs"], 0)

    def start_pair(self):
        """Two hosts with a link that is up."""
        one, two = self.machines(1, 2)
        one.configure([2])
        two.configure([1])
        one.start()
        two.start()
        self.assert_up(one, 2)
        return one, two

    def test_an_error_changes_nothing_and_is_reported(self):
        one, two = self.start_pair()
        one.write("[host]\nid = 1\nrundir = %s\n[log]\nlevel = debug\n[link new]\nto = vme:3\n" % one.rundir)
        expected = ("%s:7: [link new] to = vme:3: description 'vme:3': there is no driver 'vme'; there are: " % one.path)
        answer = one.send_request("reload")
        self.assertFalse(answer["ok"])
        self.assertTrue(answer["error"].startswith(expected), answer)
        self.assertEqual(len(answer["report"]), 1)
        self.assertTrue(one.has_logged("error: reload: " + expected))
        os.unlink(one.path)
        self.assertEqual(one.send_request("reload")["error"], "%s: open: No such file or directory" % one.path)
        link = one.links()["to-2-0"]
        self.assertEqual((link["state"], link["ups"], link["downs"]), ("up", 1, 0))
        self.assertTrue(one.has_logged("reload of %s: nothing was changed" % one.path))

    def test_the_command_prints_the_result(self):
        (one,) = self.machines(1)
        one.configure()
        one.start()
        one.configure([2])
        self.assertEqual(self.good("reload", "--rundir", one.rundir), "link to-2-0: opened\n")
        one.write("x\ny\n")
        self.bad("reload", "--rundir", one.rundir, expected="%s:1: neither [SECTION] nor KEY = VALUE (and 2 lines more, see "
                 "the log)" % one.path)
        self.assertTrue(one.has_logged("%s:2: neither" % one.path))
        self.bad("reload", "now", code=2, expected="'now': one argument too many")
        one.stop()
        self.bad("reload", "--rundir", one.rundir, expected=one.rundir)

    def test_a_link_over_libfabric_to_another_host_is_another_link(self):
        try:
            ctypes.CDLL("libfabric.so.1")
        except OSError as missing:
            self.skipTest(str(missing))
        (one,) = self.machines(1)
        pid = os.getpid()
        to = "[link far]\nto = ofi:tcp://127.%d.%d.9,listen=127.%d.%d.1\npeer = %%d\n" % ((128 + (pid >> 8) % 64, pid & 0xff) * 2)
        one.configure(more=to % 2)
        one.start()
        one.configure(more=to % 3)
        self.assertEqual(one.send_request("reload"), {"ok": True, "report": ["link 0 (far) to host 2: closed", "link far: opened"]})
        self.assertEqual(one.links()["far"]["peer"], 3)
        one.configure(more=to % 3)
        self.assertEqual(one.send_request("reload")["report"], [])

    def test_racks_joined_by_libfabric_reload_under_a_flow(self):
        """Hosts 1, 2 and 3, 4 by cables, 2 and 3 by libfabric: messages from 1 to 4, while all daemons reload again and
        again."""
        deliver = os.path.join(cli.BIN, "tests", "prog_deliver")
        try:
            ctypes.CDLL("libfabric.so.1")
        except OSError as missing:
            self.skipTest(str(missing))
        if not os.path.exists(deliver):
            self.skipTest(deliver + " is not built")
        hosts = self.machines(1, 2, 3, 4)
        peers = {1: [2], 2: [1], 3: [4], 4: [3]}
        net = "127.%d.%d" % (128 + (os.getpid() >> 8) % 64, os.getpid() & 0xff)
        far = {a: "[link far]\nto = ofi:tcp://%s.%d,listen=%s.%d\npeer = %d\n" % (net, b, net, a, b) for a, b in ((2, 3), (3, 2))}

        def configure(machine, *more):
            machine.configure([*peers[machine.host], *more], more=far.get(machine.host, ""))

        for machine in hosts:
            configure(machine)
            machine.start()
        self.assertTrue(cli.wait_for(lambda: hosts[0].reaches(4) and hosts[3].reaches(1)), [m.links() for m in hosts])

        def run(machine, *words):
            return subprocess.Popen([deliver, *words], stdout=subprocess.PIPE, text=True,
                                    env={**self.env, "VIADUCT_RUNDIR": machine.rundir, "VIADUCT_HOST": str(machine.host)})

        with run(hosts[3], "receive", "1") as receiver:
            self.addCleanup(receiver.kill)
            self.assertEqual(receiver.stdout.readline(), "ready\n")
            with run(hosts[0], "send", "4", "0", "1024", "200", "3") as sender:
                self.addCleanup(sender.kill)
                for i in range(12):
                    for machine in hosts:
                        configure(machine, *([(9, i)] if i % 2 == 0 else []))
                        machine.process.send_signal(signal.SIGHUP)
                    time.sleep(0.1)
                sent = sender.communicate(timeout=cli.HANG_S)[0]
            output = receiver.communicate(timeout=cli.HANG_S)[0]
        self.assertRegex(sent, r"^sent [1-9]\d*\n$")
        self.assertRegex(output, r"(?m)^received %d lost 0 doubled 0 reordered 0 wrong 0$" % int(sent.split()[1]))
        for machine in hosts:
            configure(machine)
            self.assertTrue(machine.send_request("reload")["ok"])
            names = {"to-%d-0" % peer for peer in peers[machine.host]} | ({"far"} if machine.host in far else set())
            self.assertEqual(set(machine.links()), names)
            for name, link in machine.links().items():
                self.assertEqual((name, link["state"], link["ups"], link["downs"]), (name, "up", 1, 0))
            self.assertIn("opened", machine.messages())

    def test_what_can_not_change_stays_and_is_reported(self):
        (one,) = self.machines(1)
        one.tail = ""
        one.configure()
        one.start()
        one.write("[host]\nid = 5\nname = new\naddresses = 10.1.1.1\nrundir = %s-x\n[transport]\nslots = 64\n"
                  "[fabric]\nname = lab\n" % one.rundir)
        later = ": it changes when the daemon restarts"
        self.assertEqual(one.send_request("reload"), {"ok": True, "report": [
            "[host] id: stays 1, not 5" + later, "[host] rundir: stays %s, not %s-x%s" % (one.rundir, one.rundir, later),
            "[transport] slots: stays 32, not 64" + later]})
        status = one.status()
        own = [host for host in one.send_request("directory")["hosts"] if host["host"] == 1][0]
        self.assertEqual((own["name"], [a["address"] for a in own["addresses"]]), ("new", ["10.1.1.1"]))
        self.assertEqual((status["host"], status["slots"]), (1, 32))
        self.assertEqual((status["name"], status["fabric"], status["addresses"]), ("new", "lab", ["10.1.1.1"]))

    def test_a_hangup_reloads_rights_quotas_and_log(self):
        (one,) = self.machines(1)
        one.configure()
        one.start()
        self.assertEqual(os.stat(one.rundir).st_mode & 0o777, 0o700)
        one.configure(more="[rights]\nattach = all\n[quota]\nnotes = 7\n[log]\nlevel = debug\n")
        one.process.send_signal(signal.SIGHUP)
        self.assertTrue(one.has_logged("reload of %s: done" % one.path))
        self.assertEqual(os.stat(one.rundir).st_mode & 0o777, 0o711)
        if os.geteuid() == 0:
            os.chmod(self.folder, 0o711)
            os.chmod(one.folder, 0o711)
            self.assertEqual(self.request_as_nobody(one, "status")["host"], 1)
            self.assertIn("permission denied", self.request_as_nobody(one, "reload")["error"])
            one.configure()
            self.assertTrue(one.send_request("reload")["ok"])
            self.assertIn("permission denied", self.request_as_nobody(one, "status")["error"])

    def request_as_nobody(self, machine, cmd):
        os.seteuid(cli.NOBODY)
        try:
            return machine.send_request(cmd)
        finally:
            os.seteuid(0)

    def test_reloads_without_end_disturb_nothing(self):
        one, two = self.start_pair()
        # Several requests on one connection are all answered, in order.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(cli.HANG_S)
            control.connect(os.path.join(one.rundir, "host-1.ctl"))
            control.sendall(b'{"cmd":"reload"}\n{"cmd":"status"}\n{"cmd":"reload"}\n')
            lines = b""
            while lines.count(b"\n") < 3:
                lines += control.recv(1 << 20)
            self.assertEqual([b'"session"' in line for line in lines.splitlines()], [False, True, False])
        # A client that asks and disconnects.
        for _ in range(20):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
                control.connect(os.path.join(one.rundir, "host-1.ctl"))
                control.sendall(b'{"cmd":"reload"}\n')
        for i in range(20):
            one.configure([2, (3, i)] if i % 2 else [2])
            one.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        one.configure([2])
        self.assertTrue(one.send_request("reload")["ok"])
        self.assertEqual(list(one.links()), ["to-2-0"])
        link = one.links()["to-2-0"]
        self.assertEqual((link["state"], link["ups"], link["downs"]), ("up", 1, 0))
        self.assertEqual(one.stop(), 0)

    def test_a_link_that_does_not_open_is_reported_and_the_others_open(self):
        one, two = self.start_pair()
        with open(one.path, "a", encoding="utf-8") as file:
            file.write("[link lost]\nto = emu:%s/none/x.sock,side=0\n[link also]\nto = emu:%s/y.sock,side=0\n" %
                       (self.folder, self.folder))
        answer = one.send_request("reload")
        self.assertFalse(answer["ok"])
        self.assertTrue(any("(lost): driver emu: open: " in line for line in answer["report"]), answer)
        self.assertIn("link also: opened", answer["report"])
        self.assertEqual(sorted(one.links()), ["also", "to-2-0"])
        os.mkdir(os.path.join(self.folder, "none"))
        self.assertEqual(one.send_request("reload"), {"ok": True, "report": ["link lost: opened"]})

    def test_a_host_without_a_file_has_nothing_to_reload(self):
        self.good("up", "--ring", "2")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(os.path.join(self.rundir, "host-1.ctl"))
            control.sendall(b'{"cmd":"reload"}\n')
            self.assertIn(b"host 1 has no configuration file", control.recv(4096))
        self.kill(1, signal.SIGHUP)
        self.assertEqual(len(self.status()["hosts"]), 2)
        self.down()


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Links that are described to their driver, and their state as hosts report it."""
import json
import os
import re
import socket
import subprocess
import time

import cli


class Links(cli.Case):
    def daemon(self, host, description):
        with open(self.log_of(host), "w", encoding="utf-8") as log:
            daemon = subprocess.Popen(
                [os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", str(host), "--link",
                 description, "--dead-ms", "5000"], env=self.env, stderr=log)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)

    def log_of(self, host):
        return os.path.join(self.folder, "log-%d" % host)

    def read_log(self, host):
        with open(self.log_of(host), encoding="utf-8") as log:
            return log.read()

    def link_of(self, host):
        """The host's status of its only link."""
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(cli.HANG_S)
            try:
                control.connect(os.path.join(self.rundir, "host-%d.ctl" % host))
            except OSError:
                return {}
            control.sendall(b'{"cmd":"status"}\n')
            while not answer.endswith(b"\n"):
                piece = control.recv(65536)
                if not piece:
                    return {}
                answer += piece
        return json.loads(answer)["links"][0]

    def test_two_hosts_with_a_cable_somewhere(self):
        path = os.path.join(self.folder, "a, b.sock")
        for host, peer, side in ((1, 2, 0), (2, 1, 1)):
            self.daemon(host, "%d=emu:%s,side=%d,like=pex,window=2MiB" % (peer, path.replace(",", ",,"), side))
        for host in (1, 2):
            self.assertTrue(cli.wait_for(lambda host=host: self.link_of(host).get("state") == "up"), self.link_of(host))
            link = self.link_of(host)
            self.assertEqual((link["driver"], link["path"], link["like"]), ("emu", path, "pex"))
            self.assertEqual(link["window"], 2 << 20)
            self.assertEqual(link["inbox"] + link["slices"] * link["slice_bytes"], link["window"])
            self.assertEqual(link["caps"], {"coherent": False, "writes_ordered": False, "store_bytes": 8, "read_ns": 1500, "dma_depth": 0})
            self.assertIn("host %d, inbox of %d bytes" % (3 - host, link["inbox"]), link["found"])

    def test_each_link_has_an_inbox_of_its_own_size(self):
        path = os.path.join(self.folder, "cable.sock")
        self.daemon(1, "2=emu:%s,side=0,inbox=256KiB" % path)
        self.daemon(2, "1=emu:%s,side=1" % path)
        for host in (1, 2):
            self.assertTrue(cli.wait_for(lambda host=host: self.link_of(host).get("state") == "up"), self.link_of(host))
        self.assertEqual(self.link_of(1)["inbox"], 256 << 10)
        self.assertGreater(self.link_of(2)["inbox"], 1 << 20)

    def test_ends_of_different_classes(self):
        """The port finds the error before the hosts can exchange hellos; both report it, once, in the status and in the
        log."""
        path = os.path.join(self.folder, "cable.sock")
        self.daemon(1, "2=emu:%s,side=0,like=pex" % path)
        self.daemon(2, "1=emu:%s,side=1" % path)
        for host, mine, theirs in ((1, "pex", "memory"), (2, "memory", "pex")):
            expected = r"cable: process \d+ emulates a link like '%s', this one like '%s'" % (theirs, mine)
            self.assertTrue(cli.wait_for(lambda host=host, expected=expected: re.fullmatch(expected, self.link_of(host).get("error", ""))),
                            self.link_of(host))
            line = r"warn: host %d: link 0 to host %d: driver emu: %s\n" % (host, 3 - host, expected)
            self.assertTrue(cli.wait_for(lambda host=host, line=line: re.search(line, self.read_log(host))), self.read_log(host))
            time.sleep(0.5)  # both ends retry meanwhile
            self.assertEqual(len(re.findall(line, self.read_log(host))), 1, self.read_log(host))

    def test_an_unknown_driver_is_an_error(self):
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", "1", "--link",
                               "2=pigeon:x"], env=self.env, capture_output=True, text=True, timeout=cli.HANG_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "viaductd: host 1: link 0 to host 2: description 'pigeon:x': there is no driver 'pigeon'; "
                                      "there are: emu, .*")

    def test_an_inbox_that_is_too_small(self):
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", "1", "--link",
                               "2=emu:%s/x.sock,side=0,inbox=4096" % self.folder], env=self.env, capture_output=True,
                              text=True, timeout=cli.HANG_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "link 0 to host 2: inbox of 4096 bytes: 2 channels with frames of 32768 bytes need [0-9]+")


if __name__ == "__main__":
    cli.main()

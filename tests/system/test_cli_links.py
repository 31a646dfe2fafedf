#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Links that are described to their driver, and what hosts then say of them."""
import json
import os
import socket
import subprocess

import cli


class Links(cli.Case):
    def daemon(self, host, description):
        daemon = subprocess.Popen(
            [os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", str(host), "--link",
             description], env=self.env, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)

    def link_of(self, host):
        """What the host says of its only link."""
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

    def test_an_inbox_that_is_too_small(self):
        done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", "1", "--link",
                               "2=emu:%s/x.sock,side=0,inbox=4096" % self.folder], env=self.env, capture_output=True,
                              text=True, timeout=cli.HANG_S, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "link 0 to host 2: inbox of 4096 bytes: 2 channels with frames of 32768 bytes need [0-9]+")


if __name__ == "__main__":
    cli.main()

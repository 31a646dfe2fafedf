#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Two register models of a PEX 87xx back to back, between two virtual machines with the virtual side of one each, by vfio-pci. Window and the peer's
registers share a BAR. make lab. Quick: half a minute."""
import os

import lab_hosts
import test_quick

FUNCTION = test_quick.FUNCTION


class Lab(test_quick.Lab):
    def links_of(self, host):
        return ("%d=pex:%s,window=1MiB,slices,b2b=%d" % (3 - host, FUNCTION, host - 1),)

    def start(self):
        self.build_image()
        sockets = [os.path.join(self.folder, name) for name in ("one.sock", "two.sock")]
        self.model = self.serve_model("--b2b", "--socket", sockets[0], "--socket", sockets[1])
        for host, path in enumerate(sockets, 1):
            self.add_guest(host, (path,), (FUNCTION,))
        self.start_guests()


class BackToBack(test_quick.Pair):
    kind = Lab

    def test_a_link_comes_up_carries_messages_and_comes_back(self):
        self.both_wait("up")
        self.assertIn("write-combined", self.guests[1].run("viaduct port show %s; cat /tmp/viaductd.log" % FUNCTION))
        self.send_both_ways()
        self.lab.command("cut")
        self.wait_not_up(1, 2)
        self.lab.command("mend")
        self.both_wait("up")
        self.send_both_ways()
        for host in self.guests:
            self.assertNotRegex(self.guests[host].run("cat /tmp/viaductd.log"), "does not answer")

    def test_b_processes_store_through_slices_of_the_bar(self):
        self.both_wait("up")
        self.put_by_slices()


if __name__ == "__main__":
    lab_hosts.main(Lab)

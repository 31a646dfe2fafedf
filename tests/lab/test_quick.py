#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Two virtual machines on one register model of a PEX 87xx: the beginning of make lab."""
import os

import lab_hosts

FUNCTION = "0000:01:00.0"
COUNT = 200


class Lab(lab_hosts.Lab):
    """A model, and a guest at each side of it."""

    programs = ()

    def links_of(self, host):
        return ("%d=pex:%s,window=1MiB" % (3 - host, FUNCTION),)

    def start(self):
        self.build_image()
        sockets = [os.path.join(self.folder, name) for name in ("v.sock", "l.sock")]
        self.model = self.serve_model("--socket", sockets[0], "--socket", sockets[1])
        for host, path in enumerate(sockets, 1):
            self.add_guest(host, (path,), (FUNCTION,))
        self.start_guests()

    def command(self, line):
        self.model.stdin.write(line + "\n")
        self.model.stdin.flush()
        while self.model.stdout.readline() != "ok\n":
            pass


class Quick(lab_hosts.Case):
    kind = Lab

    def both_wait(self, state):
        for host in self.guests:
            self.wait_state(host, 3 - host, state)

    def send_both_ways(self):
        for host, guest in self.guests.items():
            self.start_receiver(3 - host)
            guest.run(lab_hosts.deliver(host) + "send %d %d 500 50" % (3 - host, COUNT), lab_hosts.HANG_S)
            self.wait_received(3 - host, COUNT)

    def test_a_link_by_vfio_pci_comes_up_carries_messages_and_comes_back(self):
        self.both_wait("up")
        self.send_both_ways()
        self.assertRegex(self.guests[1].run("viaduct port list"), r"(?m)^0000:01:00\.0 +PEX 87xx NT0, virtual side .* vfio-pci +\d+ \(viaductd\)$")
        self.lab.command("cut")
        self.wait_not_up(1, 2)
        self.wait_not_up(2, 1)
        self.lab.command("mend")
        self.both_wait("up")
        self.guests[2].run("kill -9 $(cat /tmp/viaductd.pid)")
        self.wait_not_up(1, 2)
        self.lab.start_daemon(2)
        self.both_wait("up")
        self.send_both_ways()


if __name__ == "__main__":
    lab_hosts.main(Lab)

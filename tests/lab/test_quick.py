#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Two virtual machines on one register model of a PEX 87xx: the beginning of make lab."""
import os

import lab_guest
import lab_hosts

FUNCTION = "0000:01:00.0"
COUNT = 200


class Lab(lab_hosts.Lab):
    """A model, and a guest at each side of it."""

    programs = ()

    def links_of(self, host):
        return ("%d=pex:%s,window=1MiB,slices" % (3 - host, FUNCTION),)

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


class Pair(lab_hosts.Case):
    """Of two guests."""

    def both_wait(self, state):
        for host in self.guests:
            self.wait_state(host, 3 - host, state)

    def send_both_ways(self):
        for host, guest in self.guests.items():
            self.start_receiver(3 - host)
            guest.run(lab_hosts.deliver(host) + "send %d %d 500 50" % (3 - host, COUNT), lab_hosts.HANG_S)
            self.wait_received(3 - host, COUNT)

    def put_by_slices(self):
        self.guests[2].run("sleep 1000 | %smemory 1 65536 >/tmp/memory 2>&1 &" % lab_hosts.deliver(2))
        self.guests[1].run(lab_hosts.deliver(1) + "put 2 1024 0.2", lab_hosts.HANG_S)
        self.assertRegex(self.guests[1].run("viaduct metrics"), r'(?m)^viaduct_slice_puts_total{host="1"} [1-9]')
        self.assertEqual(self.lab.state(1, 2), "up")


class Quick(Pair):
    kind = Lab

    def test_0_a_command_that_hangs_ends_after_its_time(self):
        code, out = self.guests[1].run("echo begun; sleep 777 & sleep 888", 2, check=False)
        self.assertEqual((code, out), (lab_guest.KILLED, "begun\n"))
        self.assertNotRegex(self.guests[1].run("ps"), "sleep (777|888)")

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

    def test_b_processes_store_through_slices_of_the_bar(self):
        self.both_wait("up")
        self.put_by_slices()

    def test_c_a_bar_is_measured_write_combined_and_uncached(self):
        """This test runs last: it ends the daemon, and its stores overwrite the memory behind the BAR."""
        self.guests[1].run("kill $(cat /tmp/viaductd.pid); while pidof viaductd; do sleep 0.1; done")
        out = self.guests[1].run("viaduct perf pio --device %s --sizes 64 --seconds 0.002" % FUNCTION, lab_hosts.HANG_S)
        for column in ("wc 8", "uc 8"):
            self.assertRegex(out, r"(?m)^ +bytes .* %s " % column)


if __name__ == "__main__":
    lab_hosts.main(Lab)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Virtual machines that share an ivshmem memory: guest 1 by VFIO, guest 2 without an IOMMU, and host 3, which is this computer.

make lab. check_lab.py try: boots the same and gives a shell, where `g1 COMMAND` and `g2 COMMAND` run in the guests.
"""
import os
import re
import subprocess

import lab_guest
import lab_hosts
from lab_hosts import BIN, DEAD, HANG_S, NOTHING_LOST, deliver, wait_for

WINDOW = "window=4MiB"
# Function 0000:00:10.0 is the way to the other guest (cell 0), 0000:00:11.0 of guest 1 that to this computer (cell 1).
LINKS = {1: ("2=ivshmem:0000:00:10.0,side=0,cell=0," + WINDOW, "3=ivshmem:0000:00:11.0,side=0,cell=1," + WINDOW),
         2: ("1=ivshmem:0000:00:10.0,side=1,cell=0,access=sysfs," + WINDOW,)}
TO_VFIO = "".join("echo vfio-pci >/sys/bus/pci/devices/{0}/driver_override; echo {0} >/sys/bus/pci/drivers_probe\n".format(function)
                  for function in ("0000:00:10.0", "0000:00:11.0"))


class Lab(lab_hosts.Lab):
    """The server, two guests and the daemon of this computer."""

    def __init__(self, packages):
        super().__init__(packages)
        self.path = os.path.join(self.folder, "ivshmem.sock")
        self.rundir = os.path.join(self.folder, "run")
        self.note = " and this computer (VIADUCT_RUNDIR=%s)" % self.rundir
        self.server = None

    def links_of(self, host):
        return LINKS[host]

    def start(self):
        self.build_image()
        self.start_server()
        one = lab_guest.ivshmem(self.path, 16) + lab_guest.ivshmem(self.path, 17)
        self.guests[1] = lab_guest.Guest(self.packages, self.image, self.folder, "g1", one, iommu=True)
        self.guests[2] = lab_guest.Guest(self.packages, self.image, self.folder, "g2", lab_guest.ivshmem(self.path, 16))
        for guest in self.guests.values():
            guest.boot()
        self.start_daemon_here()
        for guest in self.guests.values():
            guest.wait_booted()
        self.guests[1].run(TO_VFIO)
        for host in self.guests:
            self.start_daemon(host)

    def start_server(self):
        self.server = self.start_process([os.path.join(BIN, "viaduct"), "ivshmem-server", "--socket", self.path, "--memory", "64MiB",
                                          "--vectors", "16"], expected="serves")

    def start_daemon_here(self):
        os.makedirs(self.rundir, mode=0o700, exist_ok=True)
        with open(os.path.join(self.folder, "viaductd.log"), "ab") as log:
            self.processes.append(subprocess.Popen(
                [os.path.join(BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", "3", *DEAD, "--link",
                 "1=ivshmem:%s,side=1,cell=1,%s" % (self.path, WINDOW)], stdout=log, stderr=log))


class Guests(lab_hosts.Case):
    kind = Lab

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one, cls.two = cls.lab.guests[1], cls.lab.guests[2]

    def test_1_links_come_up_by_interrupts_and_without(self):
        for host, peer in ((1, 2), (1, 3), (2, 1)):
            self.wait_state(host, peer, "up")
        # Each function has its vector, and the daemon of guest 2 does without.
        lines = re.findall(r"(?m)^ *\d+: +(\d+) .*vfio-msix\[0\]\((\S+)\)$", self.one.run("cat /proc/interrupts"))
        self.assertEqual(sorted(function for _, function in lines), ["0000:00:10.0", "0000:00:11.0"])
        self.assertTrue(all(int(count) > 0 for count, _ in lines), lines)
        self.assertNotIn("vfio-msix", self.two.run("cat /proc/interrupts"))
        # Bus mastering is off where no IOMMU stands between.
        command = self.two.run("dd if=/sys/bus/pci/devices/0000:00:10.0/config bs=1 skip=4 count=1 2>/dev/null | od -An -tu1")
        self.assertEqual(int(command) & 4, 0)

    def test_3_messages_over_a_relay_to_this_computer_and_back(self):
        env = {**os.environ, "VIADUCT_RUNDIR": self.lab.rundir, "VIADUCT_HOST": "3"}
        program = os.path.join(BIN, "tests", "prog_deliver")
        with subprocess.Popen([program, "receive", "1"], env=env, stdout=subprocess.PIPE, text=True) as receiver:
            self.addCleanup(receiver.kill)
            self.assertEqual(receiver.stdout.readline(), "ready\n")
            self.two.run(deliver(2) + "send 3 1000 4000 50")
            self.assertIn(NOTHING_LOST % 1000, receiver.communicate(timeout=HANG_S)[0].splitlines())
        self.start_receiver(2)
        subprocess.run([program, "send", "2", "1000", "4000", "50"], env=env, check=True, timeout=HANG_S, stdout=subprocess.DEVNULL)
        self.wait_received(2, 1000)

    def test_4_unmodified_programs(self):
        self.lab.start_ip()
        self.run_programs(1, 2)

    def test_5_a_cut_and_a_daemon_that_is_killed(self):
        self.one.run("viaduct cut 1 2")
        self.wait_state(1, 2, "cut")
        self.one.run("viaduct mend 1 2")
        self.wait_state(1, 2, "up")
        for host in (2, 1):
            self.lab.guests[host].run("kill -9 $(cat /tmp/viaductd.pid)")
            self.wait_not_up(3 - host, host)
            self.lab.start_daemon(host)
            self.wait_state(3 - host, host, "up")
        self.wait_state(1, 3, "up")

    def test_6_a_guest_that_is_killed_boots_again(self):
        self.two.kill()
        self.wait_not_up(1, 2)
        self.two.boot()
        self.two.wait_booted()
        self.lab.start_daemon(2)
        self.wait_state(1, 2, "up")
        self.wait_state(2, 1, "up")

    def test_7_guests_do_without_the_server_and_processes_come_back(self):
        self.lab.end_process(self.lab.server)
        self.wait_not_up(1, 3)
        self.assertEqual(self.lab.state(1, 2), "up")
        self.start_receiver(2)
        self.one.run(deliver(1) + "send 2 500 1000 50")
        self.wait_received(2, 500)
        self.lab.start_server()


class Killed(lab_hosts.KilledCase):
    script = __file__


if __name__ == "__main__":
    lab_hosts.main(Lab)

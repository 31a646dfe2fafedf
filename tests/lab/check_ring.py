#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A ring of three virtual machines: each link is a register model of a PEX 87xx, whose two functions are PCI devices of two guests.

The host of each virtual side has the chip's DMA function, too. A guest has them by QEMU's vfio-user-pci behind an emulated IOMMU, and its daemon has them by the kernel's vfio-pci: MSI, DMA by IO virtual
addresses, config space, resets. make lab. check_ring.py try: boots the same and gives a shell, where `g1 COMMAND` runs in guest 1. check_ring.py resets N: resets a guest N times
under traffic between the two others, and prints the state of all guests when a message does not arrive. check_ring.py
cuts N: pulls the cable of a link N times, one link after the other,
under traffic between all pairs of guests. check_ring.py kills N: kills the daemon of guest 2 N times, through which all messages of guest 1 to guest 3 go.
"""
import json
import os
import re
import subprocess
import sys
import time

import lab_guest
import lab_hosts
from lab_hosts import BIN, HANG_S, deliver, supervise, wait_for

HOSTS = (1, 2, 3)
# Every store into a window is a round trip to the model, so small windows lose nothing.
WINDOW = "window=1MiB"
# Bus 1 has the virtual side of the link to the next guest, bus 3 the link side of that from the guest before, bus 2 the DMA function: requests of the
# model's carry that number.
FUNCTIONS = ("0000:01:00.0", "0000:03:00.0")
ENGINE = "0000:02:00.0"
DMA_BYTES = 1024
# Each number of the histogram is a message, and takes 3 ms here on busy cores: as many as it counts elsewhere would take minutes.
EXAMPLES = ("hello", "ring_shift", "histogram 2000 200")
LIBRARY = "libviaduct-shmem.so.0"
# The link is in a handshake again when the peer reports first.
DOWN = "down|waiting"
# oshrun reaches a guest as it would by ssh: a line with the command, then its input.
AGENT = "#!/bin/sh\nname=$1; shift\n{ echo \"$*\"; exec cat; } | nc $name 7000\n"
# Unread bytes at the close would reset the connection, and lose the last answer.
SERVER = "#!/bin/sh\nread -r line; sh -c \"$line\"; exec cat >/dev/null\n"


def next_of(host):
    return host % len(HOSTS) + 1


def previous_of(host):
    return (host + len(HOSTS) - 2) % len(HOSTS) + 1


class Lab(lab_hosts.Lab):
    """Three models and three guests."""

    note = ""

    def __init__(self, packages):
        super().__init__(packages)
        self.models = {}  # by the host of the virtual side

    def links_of(self, host):
        return ("%d=pex:%s,%s,dma=%s --dma-bytes %d" % (next_of(host), FUNCTIONS[0], WINDOW, ENGINE, DMA_BYTES),
                "%d=pex:%s,%s" % (previous_of(host), FUNCTIONS[1], WINDOW))

    def socket(self, side, host):
        return os.path.join(self.folder, "%s%d.sock" % (side, host))

    def start(self):
        more = [(os.path.join(BIN, "examples", name), "usr/bin/" + name) for name in (line.split()[0] for line in EXAMPLES)]
        more += [(os.path.join(BIN, "oshrun"), None), (os.path.join(BIN, LIBRARY), "usr/lib/" + LIBRARY)]
        self.build_image(more)
        for host in HOSTS:
            self.start_model(host)
        for host in HOSTS:
            self.add_guest(host, [self.socket(name, host) for name in "vdl"], (*FUNCTIONS, ENGINE))
        self.start_guests()

    def start_model(self, host):
        self.models[host] = self.serve_model("--socket", self.socket("v", host), "--socket", self.socket("l", next_of(host)), "--dma-socket", self.socket("d", host))

    def command(self, host, line):
        """What a model says to a command."""
        model = self.models[host]
        model.stdin.write(line + "\n")
        model.stdin.flush()
        answer = ""
        while not answer.endswith(("ok\n", "no such command\n")):
            answer += model.stdout.readline()
        return answer


class Ring(lab_hosts.Case):
    kind = Lab

    def wait_ring(self):
        for host in HOSTS:
            self.wait_state(host, next_of(host), "up")
            self.wait_state(host, previous_of(host), "up")

    def test_1_links_come_up_by_vfio_pci_with_msi_and_an_iommu(self):
        self.wait_ring()
        for host, guest in self.guests.items():
            status = guest.run("viaduct status")
            self.assertEqual(len(re.findall(r"(?m)^ +[123]  \S+ +up ", status)), 3, status)
            lines = re.findall(r"(?m)^ *\d+: +(\d+) .*vfio-msi\[0\]\((\S+)\)$", guest.run("cat /proc/interrupts"))
            self.assertEqual(sorted(function for _, function in lines), sorted((*FUNCTIONS, ENGINE)), host)
            self.assertTrue(all(int(count) > 0 for count, function in lines if function != ENGINE), lines)
            groups = guest.run("for f in %s; do ls /sys/bus/pci/devices/$f/iommu_group/devices; done" % " ".join(FUNCTIONS))
            self.assertEqual(groups.split(), list(FUNCTIONS))  # each a group of its own
            out = guest.run("viaduct port list")
            for function, side in zip(FUNCTIONS, ("virtual", "link")):
                self.assertRegex(out, r"(?m)^%s +PEX 87xx NT0, %s side +\d+ +4 MiB +\S.* +vfio-pci +\d+ \(viaductd\)$" % (re.escape(function), side))
            self.assertEqual(guest.run("viaduct port unbind %s" % FUNCTIONS[0], check=False)[0], 1)
            doctor = guest.run("viaduct doctor", check=False)[1]
            for function in FUNCTIONS:
                self.assertRegex(doctor, r"(?m)^(ok|warn) +%s: " % re.escape(function))

    def send(self, host, peer, count):
        code, out = self.guests[host].run(deliver(host).replace("prog_deliver", "timeout %d prog_deliver" % HANG_S) + "send %d %d 500 50" % (peer, count), 2 * HANG_S, check=False)
        self.assertEqual(code, 0, (out, self.guests[host].run("viaduct status; cat /tmp/viaductd.log"), self.guests[peer].run("viaduct status; cat /tmp/received")))

    def wait_reported(self, host, peer, state):
        """The daemon's status tells this state; its log leaves out messages of a link that goes up and down often. The wait runs in the guest: on its
        slow CPU each command from outside takes longer than the event."""
        line = "viaduct status | grep -q -E '^%d-%d +(%s) '" % (min(host, peer), max(host, peer), state)
        code, _ = self.guests[host].run("for i in $(seq %d); do %s && exit 0; sleep 0.1; done; exit 1" % (10 * HANG_S, line), 3 * HANG_S, check=False)
        self.assertEqual(code, 0, "" if code == 0 else "no word that link %d-%d is %s: %s" % (host, peer, state, self.all_logs()))

    def bells_missed(self):
        """By guest: work that no doorbell announced, as each daemon counts it."""
        counts = []
        for host, guest in self.guests.items():
            hosts = json.loads(guest.run("viaduct status --json"))["hosts"]
            counts += [str(one["counters"]["bells_missed"]) for one in hosts if one["host"] == host]
        return ", ".join(counts)

    def all_logs(self):
        """Status and log of each guest that answers; for messages of failed tests."""
        states = []
        for host, guest in self.guests.items():
            try:
                states.append("guest %d: %s" % (host, guest.run("viaduct status 2>&1; ps | grep -e viaduct -e prog_; cat /tmp/sent /tmp/received; "
                                                                "tail -n 40 /tmp/viaductd.log; dmesg | tail -n 5; viaduct status --json; for p in $(pidof prog_deliver viaductd); do for t in "
                                                                "/proc/$p/task/*; do cat $t/comm $t/wchan $t/syscall; grep -e State -e ctxt $t/status; done; done",
                                                                check=False)[1]))
            except (RuntimeError, OSError) as error:
                states.append("guest %d does not answer: %s" % (host, error))
        return "\n".join(states)

    def wait_sent(self, host):
        self.assertTrue(wait_for(lambda: "sent" in self.guests[host].run("cat /tmp/sent")), self.all_logs())

    def faults(self):
        return [re.search(r"IOMMU faults (\d+),", self.lab.command(host, "status")).group(1) for host in HOSTS]

    def test_2_messages_over_each_link(self):
        before = self.faults()
        for host in HOSTS:
            for peer in (next_of(host), previous_of(host)):
                self.start_receiver(peer)
                self.send(host, peer, 1000)
                self.wait_received(peer, 1000)
        # All that goes through the windows meets memory that the guests' IOMMUs map.
        self.assertEqual(self.faults(), before)

    def test_3_bodies_by_the_dma_function(self):
        """It is a device of its own behind the IOMMU: its rings and sources have IO virtual addresses, and the window its address on the bus."""
        before = self.faults()
        for host in HOSTS:
            peer = next_of(host)
            self.start_receiver(peer)
            self.guests[host].run(deliver(host) + "send %d 100 4000 0" % peer, HANG_S)
            self.wait_received(peer, 100)
            interrupts = re.search(r"(?m)^ *\d+: +(\d+) .*vfio-msi\[0\]\(%s\)$" % re.escape(ENGINE), self.guests[host].run("cat /proc/interrupts"))
            print("DMA function of guest %d: %s interrupts" % (host, interrupts.group(1)), flush=True)
            self.assertGreater(int(interrupts.group(1)), 10)
        self.assertEqual(self.faults(), before)

    def test_3_puts(self):
        self.guests[2].run("sleep 1000 | %smemory 1 65536 >/tmp/memory 2>&1 &" % deliver(2))
        out = self.guests[1].run(deliver(1) + "put 2 4096 3", HANG_S)
        self.assertRegex(out, r"(?m)^put [0-9.]+ us$")
        print("puts: %s" % " ".join(out.split("\n")), flush=True)

    def test_4_an_openshmem_job_over_all_guests(self):
        self.lab.start_ip()
        for guest in self.guests.values():
            guest.write("/usr/bin/agent", AGENT)
            guest.write("/usr/bin/serve-line", SERVER)
            guest.run("chmod +x /usr/bin/agent /usr/bin/serve-line; nc -ll -p 7000 -e /usr/bin/serve-line >/dev/null 2>&1 &")
        hosts = ",".join("10.78.0.%d" % host for host in HOSTS)
        for line in EXAMPLES:
            out = self.guests[1].run("SHMEM_SYMMETRIC_SIZE=1m VIADUCT_SHMEM_HEAP_MAX=16m oshrun --hosts %s --lost-after 60 --rundir %s --agent "
                                     "/usr/bin/agent -n 3 /usr/bin/%s" % (hosts, lab_hosts.RUNDIR, line), HANG_S)
            self.assertIn("PASS", out)

    def test_5_unmodified_programs(self):
        self.run_programs(1, 2)

    def test_6_a_link_is_cut_and_mended(self):
        self.wait_ring()  # a daemon that starts while its function's cable is out ends with an error
        self.lab.command(1, "cut")
        self.wait_not_up(1, 2)
        self.wait_not_up(2, 1)
        # The ring goes the other way round.
        self.start_receiver(2)
        self.send(1, 2, 200)
        self.wait_received(2, 200)
        self.lab.command(1, "mend")
        self.wait_ring()
        self.guests[1].run("viaduct cut 1 2")
        self.wait_state(1, 2, "cut")
        self.guests[1].run("viaduct mend 1 2")
        self.wait_ring()

    def test_7_a_daemon_is_killed_under_traffic(self):
        self.start_receiver(3)
        self.guests[1].run(deliver(1) + "send 3 0 500 50 12 >/tmp/sent 2>&1 &")
        self.guests[2].run("kill -9 $(cat /tmp/viaductd.pid)")
        self.wait_not_up(1, 2)
        self.lab.start_daemon(2)
        self.wait_ring()
        self.wait_sent(1)
        self.wait_received(3, int(self.guests[1].run("cat /tmp/sent").split()[-1]))

    def test_7_a_daemon_on_the_way_is_killed_under_traffic(self):
        self.guests[1].run("viaduct cut 1 3")
        self.wait_state(1, 3, "cut")
        self.kill_on_the_way(8)
        self.guests[1].run("viaduct mend 1 3")
        self.wait_ring()

    def kill_on_the_way(self, seconds):
        """The link of guests 1 and 3 is cut: guest 2 forwards their messages. The messages wait for guest 2's new daemon."""
        self.start_receiver(3)
        self.guests[1].run(deliver(1) + "send 3 0 500 50 %d >/tmp/sent 2>&1 &" % seconds)
        self.guests[2].run("kill -9 $(cat /tmp/viaductd.pid)")
        self.wait_reported(1, 2, DOWN)
        self.lab.start_daemon(2)
        for host, peer in ((1, 2), (2, 3), (3, 2)):
            self.wait_state(host, peer, "up")
        self.wait_sent(1)
        self.wait_received(3, int(self.guests[1].run("cat /tmp/sent").split()[-1]))

    def test_8_a_guest_is_reset_under_traffic(self):
        self.start_receiver(3)
        self.guests[1].run(deliver(1) + "send 3 0 500 50 20 >/tmp/sent 2>&1 &")
        self.guests[2].kill()
        self.wait_not_up(1, 2)
        self.wait_not_up(3, 2)
        self.guests[2].boot()
        self.lab.start_guest(2)
        self.wait_ring()
        self.wait_sent(1)
        self.wait_received(3, int(self.guests[1].run("cat /tmp/sent").split()[-1]))

    def test_9_a_model_dies(self):
        """Its functions read as all-ones; the daemons go on by the rest of the ring. QEMU 11.1 may abort then, which ends that guest only."""
        self.lab.end_process(self.lab.models[1])
        lives = {}
        for host, peer in ((1, 2), (2, 1)):
            try:
                self.wait_not_up(host, peer)
                lives[host] = True
            except (RuntimeError, OSError):
                self.assertIsNotNone(self.guests[host].process.wait(HANG_S))
                lives[host] = False
        print("QEMU of guests lives on: %s" % lives, flush=True)
        for host, alive in lives.items():
            if alive:
                self.wait_state(3, host, "up")
        if all(lives.values()):
            self.start_receiver(2)
            self.send(1, 2, 200)
            self.wait_received(2, 200)
        self.guests[3].run("viaduct status")


class Killed(lab_hosts.KilledCase):
    script = __file__


def reset_guests(case, count):
    """Guest 2 goes and comes, while guest 1 sends to guest 3."""
    lab = case.lab
    case.wait_ring()
    for number in range(count):
        case.start_receiver(3)
        lab.guests[1].run(deliver(1) + "send 3 0 500 50 8 >/tmp/sent 2>&1 &")
        lab.guests[2].kill()
        lab.guests[2].boot()
        lab.start_guest(2)
        try:
            case.wait_ring()
            case.wait_sent(1)
            case.wait_received(3, int(lab.guests[1].run("cat /tmp/sent").split()[-1]))
        except AssertionError as error:
            sys.exit("reset %d of %d: %s" % (number + 1, count, error))
        print("reset %d of %d: nothing lost" % (number + 1, count), flush=True)


FLOWS = [(host, peer) for host in HOSTS for peer in HOSTS if host != peer]


def start_flows(case, seconds):
    """Messages from each guest to each of the two others, with time between them: the guests have one slow CPU each."""
    for host in HOSTS:
        case.start_receiver(host, 2)
    for host, peer in FLOWS:
        case.guests[host].run(deliver(host) + "send %d 0 500 50000 %d >/tmp/sent%d 2>&1 &" % (peer, seconds, peer))


def end_flows(case):
    """How many messages were sent. All have arrived, once and in order."""
    count = 0
    for host in HOSTS:
        sent = 0
        for peer in HOSTS:
            if peer != host:
                case.assertTrue(wait_for(lambda peer=peer, host=host: "sent" in case.guests[peer].run("cat /tmp/sent%d" % host)), case.all_logs())
                sent += int(case.guests[peer].run("cat /tmp/sent%d" % host).split()[-1])
        case.wait_received(host, sent)
        count += sent
    return count


def cut_link(case, host):
    """The cable between a guest and the next one is pulled and plugged in. Both daemons log it."""
    ends = ((host, next_of(host)), (next_of(host), host))
    for command, state in (("cut", DOWN), ("mend", "up")):
        case.lab.command(host, command)
        for link_end in ends:
            case.wait_reported(*link_end, state)


def cut_links(case, count, seconds=60):
    """Cables are pulled and plugged in, one after the other, while messages between all guests are under way: all of them arrive."""
    case.wait_ring()
    done = 0
    while done < count:
        start_flows(case, seconds)
        first, end = done, time.monotonic() + seconds - 10
        while done < count and (done == first or time.monotonic() < end):
            cut_link(case, HOSTS[done % len(HOSTS)])
            done += 1
        sent = end_flows(case)
        print("cuts %d to %d of %d: each logged by both daemons; %d messages sent, none lost" % (first + 1, done, count, sent), flush=True)


def kill_daemons(case, count):
    case.wait_ring()
    case.guests[1].run("viaduct cut 1 3")
    case.wait_state(1, 3, "cut")
    for number in range(count):
        case.kill_on_the_way(8)
        print("kill %d of %d: nothing lost; doorbells missed since the daemons' starts: %s" % (number + 1, count, case.bells_missed()), flush=True)


MANY = {"resets": reset_guests, "cuts": cut_links, "kills": kill_daemons}


def repeat(lab, what, count):
    case = Ring()
    case.lab, case.guests = lab, lab.guests
    what(case, count)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in MANY:
        supervise.begin()
        lab_hosts.hold(Lab, lambda lab: repeat(lab, MANY[sys.argv[1]], int(sys.argv[2])))
        sys.exit(0)
    lab_hosts.main(Lab)

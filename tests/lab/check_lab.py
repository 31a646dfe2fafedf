#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Virtual machines that share an ivshmem memory: guest 1 by VFIO, guest 2 without an IOMMU, and host 3, which is this computer.

make lab. check_lab.py try: boots the same and gives a shell, where `g1 COMMAND` and `g2 COMMAND` run in the guests.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
import lab_guest  # noqa: E402
import lab_packages  # noqa: E402
import leftovers  # noqa: E402
import supervise  # noqa: E402

BIN = os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or os.path.join(ROOT, "build", "release", "bin"))
HANG_S = 40
OURS = ("viaductd", "viaduct", "viaduct-ip", "tests/prog_deliver")
PROGRAMS = ("iperf3", "redis-server", "redis-cli")
SOCKETS = "/usr/lib/libviaduct-sockets.so"
RUNDIR = "/run/viaduct"
WINDOW = "window=4MiB"
# Guests without KVM on busy cores are silent for longer than hosts of hardware.
DEAD = ("--dead-ms", "1500")
# Function 0000:00:10.0 is the way to the other guest (cell 0), 0000:00:11.0 of guest 1 that to this computer (cell 1).
LINKS = {1: ("2=ivshmem:0000:00:10.0,side=0,cell=0," + WINDOW, "3=ivshmem:0000:00:11.0,side=0,cell=1," + WINDOW),
         2: ("1=ivshmem:0000:00:10.0,side=1,cell=0,access=sysfs," + WINDOW,)}
TO_VFIO = "".join("echo vfio-pci >/sys/bus/pci/devices/{0}/driver_override; echo {0} >/sys/bus/pci/drivers_probe\n".format(function)
                  for function in ("0000:00:10.0", "0000:00:11.0"))


def wait_for(condition, seconds=HANG_S):
    return leftovers.wait_for(condition, seconds)


class Lab:
    """The server, two guests and the daemon of this computer. Its files and processes go with it, and with this process."""

    def __init__(self, packages):
        self.packages = packages
        self.folder = tempfile.mkdtemp(prefix="viaduct-lab-")
        # Ends when this process does, however it ends.
        self.keeper = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; cat; rm -rf \"$0\"", self.folder], stdin=subprocess.PIPE)
        self.image = os.path.join(self.folder, "image")
        self.path = os.path.join(self.folder, "ivshmem.sock")
        self.rundir = os.path.join(self.folder, "run")
        self.guests = {}
        self.server = self.daemon = None

    def start(self):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise lab_packages.Missing("not installed: %s" % ", ".join(missing))
        more = [(os.path.join(BIN, name), "usr/bin/" + os.path.basename(name)) for name in OURS]
        more += [(os.path.join(BIN, "libviaduct-sockets.so"), SOCKETS)]
        lab_guest.build_image(self.packages, self.image, PROGRAMS, more)
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
        self.server = subprocess.Popen([os.path.join(BIN, "viaduct"), "ivshmem-server", "--socket", self.path, "--memory", "64MiB",
                                        "--vectors", "16"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert "serves" in self.server.stdout.readline()

    def start_daemon_here(self):
        os.makedirs(self.rundir, mode=0o700, exist_ok=True)
        with open(os.path.join(self.folder, "viaductd.log"), "ab") as log:
            self.daemon = subprocess.Popen([os.path.join(BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", "3", *DEAD, "--link",
                                            "1=ivshmem:%s,side=1,cell=1,%s" % (self.path, WINDOW)], stdout=log, stderr=log)

    def start_daemon(self, host):
        links = " ".join("--link " + link for link in LINKS[host])
        self.guests[host].run("mkdir -p -m 700 %s; viaductd --foreground --rundir %s --host %d --address 10.78.0.%d %s %s >>/tmp/viaductd.log "
                              "2>&1 & echo $! >/tmp/viaductd.pid" % (RUNDIR, RUNDIR, host, host, " ".join(DEAD), links))

    def start_ip(self):
        for guest in self.guests.values():
            guest.run("viaduct-ip --rundir %s >>/tmp/ip.log 2>&1 &" % RUNDIR)
        for host, guest in self.guests.items():
            if not wait_for(lambda host=host, guest=guest: guest.run("ping -c 1 -W 5 10.78.0.%d" % (3 - host), check=False)[0] == 0):
                raise RuntimeError("guest %d: no ping: %s" % (host, guest.run("cat /tmp/ip.log")))

    def links_of(self, host):
        """{peer: state of the link} as the host's daemon has it."""
        code, out = self.guests[host].run("viaduct status --json", check=False)
        if code != 0:
            return {}
        return {b if a == host else a: "cut" if link["cut"] else link["state"] for link in json.loads(out)["links"]
                for a, b in ((link["a"], link["b"]),) if host in (a, b)}

    def state(self, host, peer):
        return self.links_of(host).get(peer)

    def end(self):
        for guest in self.guests.values():
            guest.kill()
        for process in (self.daemon, self.server):
            if process is not None:
                process.kill()
                process.wait()
        if self.server is not None:
            self.server.stdout.close()
        self.keeper.stdin.close()
        self.keeper.wait()


class Guests(unittest.TestCase):
    """In the order of their names, on one lab; the last two harm it."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        try:
            packages = lab_packages.get()
            cls.lab = Lab(packages)
            cls.addClassCleanup(cls.lab.end)
            cls.lab.start()
        except lab_packages.Missing as missing:
            raise unittest.SkipTest(str(missing)) from missing
        cls.one, cls.two = cls.lab.guests[1], cls.lab.guests[2]

    def wait_not_up(self, host, peer):
        """Down, waiting or in a handshake that nobody answers."""
        self.assertTrue(wait_for(lambda: self.lab.state(host, peer) not in (None, "up")), self.lab.links_of(host))

    def wait_state(self, host, peer, state):
        self.assertTrue(wait_for(lambda: self.lab.state(host, peer) == state),
                        (self.lab.guests[host].run("viaduct status; cat /tmp/viaductd.log", check=False), self.lab.guests[host].tail()))


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
        deliver = os.path.join(BIN, "tests", "prog_deliver")
        within = "VIADUCT_RUNDIR=%s VIADUCT_HOST=2 prog_deliver " % RUNDIR
        with subprocess.Popen([deliver, "receive", "1"], env=env, stdout=subprocess.PIPE, text=True) as receiver:
            self.addCleanup(receiver.kill)
            self.assertEqual(receiver.stdout.readline(), "ready\n")
            self.two.run(within + "send 3 1000 4000 50")
            self.assertRegex(receiver.communicate(timeout=HANG_S)[0], r"(?m)^received 1000 lost 0 doubled 0 reordered 0 wrong 0$")
        self.two.run(within + "receive 1 >/tmp/received 2>&1 &")
        self.assertTrue(wait_for(lambda: "ready" in self.two.run("cat /tmp/received")))
        subprocess.run([deliver, "send", "2", "1000", "4000", "50"], env=env, check=True, timeout=HANG_S, stdout=subprocess.DEVNULL)
        self.assertTrue(wait_for(lambda: "received 1000 lost 0 doubled 0 reordered 0 wrong 0" in self.two.run("cat /tmp/received")),
                        self.two.run("cat /tmp/received"))

    def test_4_unmodified_programs(self):
        self.lab.start_ip()
        for preload in ("", "LD_PRELOAD=%s " % SOCKETS):
            port = 5300 + len(preload)
            self.two.run("%siperf3 -s -D -p %d" % (preload, port))
            out = self.one.run("VIADUCT_SOCKETS_STATS=/tmp/stats %siperf3 -J -c 10.78.0.2 -p %d -t 3" % (preload, port), HANG_S)
            rate = json.loads(out[out.index("{"):])["end"]["sum_received"]["bits_per_second"]
            print("iperf3 %s: %.0f Mbit/s" % ("over pipes" if preload else "over via0", rate / 1e6), flush=True)
            self.assertGreater(rate, 1e6)
        stats = json.loads(self.one.run("cat /tmp/stats"))
        self.assertEqual((stats["accelerated"], stats["connections"], stats["demoted"]), (2, 2, 0), stats)
        self.assertGreater(stats["bytes_pipe_tx"], 1 << 20, stats)
        self.two.run("%s=%s redis-server --port 6379 --protected-mode no --save '' >/tmp/redis.log 2>&1 &" % ("LD_PRELOAD", SOCKETS))
        ask = "LD_PRELOAD=%s redis-cli -h 10.78.0.2 " % SOCKETS
        self.assertTrue(wait_for(lambda: "PONG" in self.one.run(ask + "ping", check=False)[1]), self.two.run("cat /tmp/redis.log"))
        self.one.run("for i in $(seq 200); do echo SET key$i value$i; done | %s >/dev/null" % ask, HANG_S)
        self.assertEqual(self.one.run(ask + "dbsize").strip(), "200")
        self.assertEqual(self.one.run(ask + "get key137").strip(), "value137")

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
        self.lab.server.kill()
        self.lab.server.wait()
        self.lab.server.stdout.close()
        self.wait_not_up(1, 3)
        self.assertEqual(self.lab.state(1, 2), "up")
        within = "VIADUCT_RUNDIR=%s VIADUCT_HOST=%d prog_deliver "
        self.two.run((within + "receive 1 >/tmp/received 2>&1 &") % (RUNDIR, 2))
        self.assertTrue(wait_for(lambda: "ready" in self.two.run("cat /tmp/received")))
        self.one.run((within + "send 2 500 1000 50") % (RUNDIR, 1))
        self.assertTrue(wait_for(lambda: "received 500 lost 0 doubled 0 reordered 0 wrong 0" in self.two.run("cat /tmp/received")),
                        self.two.run("cat /tmp/received"))
        self.lab.start_server()


def processes_with(text):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if text.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


class Killed(unittest.TestCase):
    def test_a_lab_that_is_killed_leaves_nothing(self):
        env = {name: value for name, value in os.environ.items() if name != supervise.MARK}
        with subprocess.Popen([sys.executable, os.path.abspath(__file__), "hold"], env=env, stdout=subprocess.PIPE, text=True) as lab:
            word, folder = (lab.stdout.readline().strip().split(" ", 1) + [""])[:2]
            if word == "missing":
                self.skipTest(folder)
            self.assertTrue(processes_with(folder))
            lab.send_signal(signal.SIGKILL)
            lab.wait()
            self.assertTrue(wait_for(lambda: not os.path.exists(folder) and not processes_with(folder)), processes_with(folder))


def hold(then):
    try:
        lab = Lab(lab_packages.get())
        try:
            lab.start()
            then(lab)
        finally:
            lab.end()
    except lab_packages.Missing as missing:
        print("missing %s" % missing, flush=True)
        sys.exit(77)


def say_and_wait(lab):
    print("ready %s" % lab.folder, flush=True)
    signal.pause()


def try_things(lab):
    lab.start_ip()
    print("Two guests and this computer (VIADUCT_RUNDIR=%s). g1 COMMAND, g2 COMMAND; end of input ends it." % lab.rundir)
    for line in sys.stdin:
        name, _, script = line.strip().partition(" ")
        if name in ("g1", "g2") and script:
            print(lab.guests[int(name[1])].run(script, 600, check=False)[1], flush=True)
        elif line.strip():
            print("g1 COMMAND or g2 COMMAND", flush=True)


def main():
    supervise.begin()
    if sys.argv[1:2] in (["hold"], ["try"]):
        hold(say_and_wait if sys.argv[1] == "hold" else try_things)
        return
    result = unittest.main(exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0 or result.skipped:
        print("skipped: %s" % (result.skipped[0][1] if result.skipped else "nothing ran"))
        sys.exit(77)


if __name__ == "__main__":
    main()

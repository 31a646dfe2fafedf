#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The lab itself: what machines share, faults of the network and of machines, and that a lab leaves nothing behind."""
import os
import signal
import subprocess
import sys
import time
import unittest

import machines_case
import machines_lab
from machines_case import REASON, ROOT, wait_for

ECHO = """
import socket, threading
def serve(c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while d := c.recv(1 << 16):
        c.sendall(d)
l = socket.create_server(("", 5555))
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""
# Prints the shortest of ten round trips, in ms, or what failed.
ASK = """
import socket, sys, time
try:
    c = socket.create_connection((sys.argv[1], 5555), float(sys.argv[2]))
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    for _ in range(10):
        t = time.monotonic(); c.sendall(b"x"); c.recv(1); took.append(time.monotonic() - t)
    print(min(took) * 1e3)
except OSError as e:
    print(type(e).__name__)
"""
# Sends datagrams and prints how many come back.
COUNT = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5556)); s.settimeout(0.3)
back = 0
for i in range(400):
    s.sendto(b"x", (sys.argv[1], 5557))
    try:
        s.recv(9); back += 1
    except TimeoutError:
        break
    except OSError:
        pass
print(back)
"""


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Machines(machines_case.Case):
    count = 3

    def send_request(self, machine, target, seconds=20.0):
        return self.lab[machine].run([sys.executable, "-c", ASK, target, str(seconds)]).stdout.strip()

    def serve(self, machine):
        server = self.lab[machine].start([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertEqual(server.stdout.readline(), "listening\n")
        return server

    def test_each_has_what_it_needs_for_itself(self):
        for m in self.lab:
            m.run(["sh", "-ec", "for d in /run /tmp /dev/shm /etc /etc/viaduct /var /root; do echo $0 > $d/mine-$$; "
                                "ls $d/mine-* | wc -l | grep -qx 1; done", m.name])
            self.assertEqual(m.run(["hostname"]).stdout, m.name + "\n")
            self.assertEqual(m.read("/etc/hostname"), m.name + "\n")
            self.assertLess(int(m.run(["sh", "-c", "ls /proc | grep -c '^[0-9]'"]).stdout), 10)
            outside = ["/etc", "/var", "/tmp", "/dev/shm"]
            self.assertEqual([d for d in outside for n in os.listdir(d) if n.startswith("mine-")], [])
        boots = {m.read("/proc/sys/kernel/random/boot_id") for m in self.lab}
        self.assertEqual(len(boots), self.count)
        for kind in ("net", "mnt", "pid", "uts", "ipc"):
            spaces = {os.readlink("/proc/%d/ns/%s" % (m.pid, kind)) for m in self.lab}
            spaces.add(os.readlink("/proc/self/ns/" + kind))
            self.assertEqual(len(spaces), self.count + 1, kind)

    def test_the_folder_run_lab_and_the_sources_are_shared(self):
        self.lab[1].write("/run/lab/note", "hello")
        self.assertEqual(self.lab[2].run(["cat", "/run/lab/note"]).stdout, "hello")
        with open(os.path.join(self.lab.shared, "note"), encoding="utf-8") as note:
            self.assertEqual(note.read(), "hello")
        self.lab[1].run(["test", "-x", os.path.join(ROOT, "tools", "machines")])

    def test_clocks_differ(self):
        clock = [sys.executable, "-c", "import time; print(time.monotonic())"]
        first, second = (float(self.lab[i].run(clock).stdout) for i in (1, 2))
        if not os.path.exists("/proc/self/ns/time"):
            self.skipTest("the kernel has no time namespaces")
        self.assertGreater(second - first, 900)

    def test_groups_reach_each_other_only_within(self):
        self.serve(2)
        self.assertLess(float(self.send_request(1, "node2")), 1000)
        self.lab.partition([1], [2, 3])
        self.assertIn(self.send_request(1, "node2", 0.3), ("TimeoutError", "OSError"))
        self.assertLess(float(self.send_request(3, "node2")), 1000)
        self.lab.heal()
        self.assertLess(float(self.send_request(1, "node2")), 1000)
        self.lab[2].unplug()
        self.assertIn(self.send_request(1, "node2", 0.3), ("TimeoutError", "OSError"))
        self.assertIn("NO-CARRIER", self.lab[2].run(["ip", "link", "show", "eth0"]).stdout)
        self.lab[2].plug()
        self.assertLess(float(self.send_request(1, "node2")), 1000)

    def test_delays_and_losses(self):
        self.serve(2)
        self.lab[2].wire(delay_ms=20)
        self.assertGreaterEqual(float(self.send_request(1, "node2")), 40)
        self.lab[2].wire(delay_ms=0)
        self.assertLess(min(float(self.send_request(1, "node2")) for _ in range(5)), 40)
        echo = self.lab[2].start([sys.executable, "-uc", "import socket; s = socket.socket(2, 2); s.bind(('', 5557))\n"
                                  "print('up')\nwhile True: s.sendto(*s.recvfrom(9))"], stdout=subprocess.PIPE)
        self.addCleanup(echo.communicate)
        self.addCleanup(echo.kill)
        echo.stdout.readline()

        def answers():
            return int(self.lab[1].run([sys.executable, "-c", COUNT, "node2"]).stdout)

        self.assertTrue(any(answers() == 400 for _ in range(5)))  # other programs may have had the CPU
        for delay_ms in (0, 1):  # by each of the ways that there are
            self.lab[2].wire(delay_ms=delay_ms, loss=20)
            self.assertLess(answers(), 300)  # it ends with the first that is lost
        self.lab[2].wire(delay_ms=0, loss=0)
        self.assertTrue(any(answers() == 400 for _ in range(5)))  # other programs may have had the CPU

    def test_a_suspended_machine_does_nothing_and_continues(self):
        self.serve(2)
        begin = time.monotonic()
        self.lab[2].suspend(0.7)
        self.assertLess(float(self.send_request(1, "node2")), 1000)
        self.assertGreaterEqual(time.monotonic() - begin, 0.7)
        self.lab[2].run(["true"])

    def test_a_killed_machine_keeps_its_disk_only(self):
        machine = self.lab[3]
        machine.run(["sh", "-c", "echo 1 > /etc/kept; echo 2 > /var/kept; echo 3 > /run/gone; echo 4 > /dev/shm/gone"])
        machine.write("/etc/rc.local", "#!/bin/sh\necho up > /run/booted\n", 0o755)
        boot = machine.read("/proc/sys/kernel/random/boot_id")
        sleeper = machine.start(["sleep", "1000"])
        self.assertTrue(wait_for(lambda: machine.pids("1000")))
        machine.kill()
        self.assertEqual(sleeper.wait(machines_case.HANG_S), -signal.SIGKILL)
        with self.assertRaisesRegex(machines_lab.Failure, "node3: it is down"):
            machine.run(["true"])
        machine.boot()
        self.assertEqual(machine.read("/etc/kept") + machine.read("/var/kept"), "1\n2\n")
        self.assertTrue(wait_for(lambda: os.path.exists(machine.path("/run/booted"))))
        for path in ("/run/gone", "/dev/shm/gone"):
            self.assertFalse(os.path.exists(machine.path(path)), path)
        self.assertNotEqual(machine.read("/proc/sys/kernel/random/boot_id"), boot)
        self.serve(3)
        self.assertLess(float(self.send_request(1, "node3")), 1000)

    def test_signals_reach_the_program(self):
        process = self.lab[1].start(["sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"],
                                    stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "up\n")
        machines_lab.signal_inside(process, signal.SIGTERM)
        process.communicate(timeout=machines_case.HANG_S)
        self.assertEqual(process.returncode, 5)

    def test_a_program_ends_with_the_process_that_ran_it(self):
        for pause_s in [0.001 * i for i in range(20)]:  # also in the middle of its start
            process = self.lab[1].start(["sleep", "12345"])
            time.sleep(pause_s)
            process.kill()
            process.wait()
        self.assertTrue(wait_for(lambda: not self.lab[1].pids("12345")))


@unittest.skipIf(REASON, REASON)
class Command(unittest.TestCase):
    """tools/machines, and the end of a lab whose processes are killed."""

    name = "cmd-%d" % os.getpid()

    def call(self, *words, code=0):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "machines"), *words], capture_output=True,
                              text=True, timeout=120, check=False, env={**os.environ, "VIADUCT_LAB": self.name})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def up(self, *words):
        self.call("up", "2", "--lab", self.name, *words)
        found = machines_lab.Lab.attach(self.name).list()
        return found["pid"], [found["pid"], *[m["pid"] for m in found["machines"].values()]]

    def assert_gone(self, pids):
        self.assertTrue(wait_for(lambda: not any(map(alive, pids))), pids)
        self.assertNotIn(self.name, machines_lab.labs())

    def test_all_commands_on_a_lab(self):
        _, pids = self.up()
        try:
            self.assertIn("there is one", self.call("up", "2", "--lab", self.name, code=1))
            self.assertEqual(self.call("run", "node2", "hostname"), "node2\n")
            self.call("run", "1", "sh", "-c", "exit 7", code=7)
            self.call("loss", "1", "0.5")
            self.call("partition", "1", "2")
            self.assertRegex(self.call("list"), r"node1 .* up .* group 1, loses 0.5 %\n.* group 2")
            self.call("heal")
            self.call("kill", "2")
            self.assertRegex(self.call("list"), r"node2 .* down")
            self.call("boot", "2")
            self.assertIn("machine 3: lab %s has 1 to 2" % self.name, self.call("run", "3", "true", code=1))
            self.assertIn("'x' is not a number", self.call("loss", "1", "x", code=2))
        finally:
            self.call("down")
        self.assert_gone(pids)
        self.assertIn("there is none", self.call("list", code=1))

    def test_nothing_is_left_when_it_is_killed(self):
        folders = ("/sys/class/net", "/run")
        before = {folder: set(os.listdir(folder)) for folder in folders}
        keeper, pids = self.up()
        os.kill(keeper, signal.SIGKILL)
        self.assert_gone(pids)
        # Other tests may make some for a while. The kernel removes interfaces after their last process.
        self.assertTrue(wait_for(lambda: all(set(os.listdir(folder)) - {"netns", "viaduct"} <= before[folder] for folder in folders)),
                        [os.listdir(folder) for folder in folders])

    def test_a_lab_ends_with_its_owner(self):
        with subprocess.Popen(["sleep", "1000"]) as owner:
            _, pids = self.up("--with", str(owner.pid))
            owner.kill()
        self.assert_gone(pids)


class WithoutRoot(unittest.TestCase):
    def test_the_reason_is_reported(self):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            if os.geteuid() == 0:
                os.setuid(65534)
            os.write(writer, (machines_lab.missing() or "nothing").encode())
            os._exit(0)
        os.waitpid(pid, 0)
        self.assertIn("only root can make machines", os.read(reader, 1000).decode())


if __name__ == "__main__":
    machines_case.main()

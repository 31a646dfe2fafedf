#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""viaduct-ip on machines of a lab: kernels exchange packets of neighbours, and inboxes carry packets while there is no direct path."""
import ctypes
import json
import os
import platform
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest

import fabric
import machines_case
from machines_case import BIN, HANG_S, wait_for

import machines_fabric
import machines_lab

VIADUCT_IP = os.path.join(BIN, "viaduct-ip")
KERNEL = tuple(int(n) for n in platform.release().split("-")[0].split(".")[:2])
REASON = "no link over libfabric: %s" % fabric.WHY_NOT["ofi"] if fabric.WHY_NOT["ofi"] else \
    "viaduct-ip is not built" if not os.path.exists(VIADUCT_IP) else \
    "no iproute2" if not shutil.which("ip") else \
    "direct paths need Linux 6.6" if KERNEL < (6, 6) else \
    "no /dev/net/tun" if not os.path.exists("/dev/net/tun") else None

# bpf(2), and its commands by which an object of this id is opened.
SYS_BPF = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
BPF_OBJECTS = {"prog_id": 13, "map_id": 14, "link_id": 30}

# Sends the given number of bytes in pieces of several sizes, and gets its SHA-256 back from the other end.
CLIENT = """
import hashlib, socket, sys, time
sock = socket.create_connection((sys.argv[1], 7000), timeout=%d)
digest = hashlib.sha256()
end = time.monotonic() + float(sys.argv[2])
number = 0
while time.monotonic() < end or number < 50:
    piece = number.to_bytes(4, "big") * (250 if number %% 3 else 16000)
    sock.sendall(piece)
    digest.update(piece)
    number += 1
sock.shutdown(socket.SHUT_WR)
answer = b""
while True:
    more = sock.recv(100)
    if not more:
        break
    answer += more
assert answer == digest.digest(), "the bytes differ"
print("same", number)
""" % HANG_S
SERVER = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], 7000), family=family)
print("ready", flush=True)
sock = listener.accept()[0]
digest = hashlib.sha256()
while True:
    piece = sock.recv(1 << 20)
    if not piece:
        break
    digest.update(piece)
sock.sendall(digest.digest())
"""
# Datagrams of all sizes go there and back.
ECHO = """
import socket, sys
sock = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[1], 7001))
print("ready", flush=True)
while True:
    data, source = sock.recvfrom(65536)
    sock.sendto(data, source)
"""
SIZES = """
import os, socket, sys
sock = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(2)
for size in [0, 1, 1300, *range(1400, 1480), 1500, 8000, 60000]:
    data = os.urandom(size)
    for attempt in range(20):  # datagrams may be lost
        sock.sendto(data, (sys.argv[1], 7001))
        try:
            while sock.recv(65536) != data:
                pass
            break
        except TimeoutError:
            pass
    else:
        sys.exit("no answer of %d bytes" % size)
print("all")
"""
# What a stranger sends to a port of a direct path: its head, and packets of all kinds behind it.
STRANGER = """
import os, random, socket, struct, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
rng = random.Random(7)
for port in map(int, sys.argv[2:]):
    for number in range(300):
        inner = bytes([0x45, 0]) + struct.pack("!HIHH4s4s", 28, 0, 0x4001, 0, bytes([10, 78, 0, 2]), bytes([10, 78, 0, 1]))
        head = struct.pack("<HBB", rng.choice([0, 2, 3, 1023, 1024, 65535]), rng.choice([1, 1, 1, 2, 3, 0, 255]), rng.choice([1, 1, 0, 255]))
        sock.sendto((head + rng.choice([bytes(16), os.urandom(16)]) + inner)[:rng.choice([0, 3, 20, 32, 48, 99])], (sys.argv[1], port))
"""

# Prints what follows the UDP header of a packet of a direct path that comes in, in hexadecimal.
KEEPER = """
import socket
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind(("eth0", 3))  # before programs see it
print("ready", flush=True)
while True:
    frame = sock.recv(65536)
    if len(frame) > 82 and frame[23] == 17 and frame[42 + 2] == 1 and frame[42 + 3] == 1:
        print(frame[42:].hex())
        break
"""
REPLAY = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(100):
    sock.sendto(bytes.fromhex(sys.argv[3]), (sys.argv[1], int(sys.argv[2])))
"""


@unittest.skipIf(REASON, REASON)
class Case(machines_case.Case):
    count = 3
    sections = None
    environment = {}
    prefix = []  # of the command

    def setUp(self):
        self.fabric = fabric.Fabric(self.lab, machines_fabric.ring(self.count), "ofi", self.sections)
        self.devices = {}
        self.addCleanup(self.tidy)
        self.fabric.start()
        self.fabric.wait_whole()
        for m in self.lab:
            with open(self.log(m.index), "w", encoding="utf-8"):
                pass  # nothing of an earlier test
            self.start(m.index)

    def tidy(self):
        for host in list(self.devices):
            self.end(host, signal.SIGKILL)
        self.fabric.end_all()
        self.lab.heal()
        for m in self.lab:
            m.run(["sh", "-c", "rm -rf /run/viaduct"])

    def log(self, host):
        return os.path.join(self.lab.shared, "ip-%d.log" % host)

    def start(self, host):
        with open(self.log(host), "a", encoding="utf-8") as log:
            self.devices[host] = self.lab[host].start([*self.prefix, VIADUCT_IP, "--host", str(host)], stderr=log, stdout=log,
                                                      env={**self.fabric.environment(host), **self.environment})

    def signal_ip(self, host, number):
        for pid in self.lab[host].pids(VIADUCT_IP):
            os.kill(pid, number)
        if number == signal.SIGCONT and host in self.devices:
            os.kill(self.devices[host].pid, number)  # nsenter(1) stops with its child

    def end(self, host, number=signal.SIGTERM):
        device = self.devices.pop(host)
        # nsenter(1) or the prefix may not have started viaduct-ip yet.
        wait_for(lambda: self.lab[host].pids(VIADUCT_IP) or device.poll() is not None)
        self.signal_ip(host, number)
        return device.wait(HANG_S)

    def assert_logs(self, host, text):
        def is_logged():
            with open(self.log(host), encoding="utf-8") as log:
                return text in log.read()
        self.assertTrue(wait_for(is_logged), text)

    def peer(self, host, peer):
        """The entry of a peer in the status of a host's viaduct-ip; {} while there is none."""
        with socket.socket(socket.AF_UNIX) as status:
            status.settimeout(HANG_S)
            try:
                status.connect(self.lab[host].path("%s/host-%d.ip" % (machines_fabric.RUNDIR, host)))
                text = b"".join(iter(lambda: status.recv(65536), b""))
            except OSError:
                return {}
        return next((p for p in json.loads(text or "{}").get("peers", []) if p["host"] == peer), {})

    def is_direct(self, host, peer):
        return self.peer(host, peer).get("direct", False)

    def wait_direct(self, *pairs, there=True):
        for host, peer in pairs:
            if not wait_for(lambda host=host, peer=peer: self.peer(host, peer).get("direct") is there):
                with open(self.log(host), encoding="utf-8") as log:
                    self.fail("node%d to %d: direct: not %s: %s\n%s" % (host, peer, there, self.peer(host, peer), log.read()))

    def is_answered(self, host, address):
        """True if the kernel at the address refuses a connection to a closed port."""
        done = self.lab[host].run(["python3", "-c", "import socket, sys\ntry: socket.create_connection((sys.argv[1], 9), timeout=3)\n"
                                   "except ConnectionRefusedError: print('refused')\nexcept OSError: pass", address], check=False)
        return done.stdout == "refused\n"

    def python(self, host, text, *words):
        process = self.lab[host].start(["python3", "-c", text, *map(str, words)], stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def stream(self, source, target, address, seconds=0.0):
        """Starts a stream of bytes. Returns a function that waits for the end, and checks that all bytes arrived."""
        server = self.python(target, SERVER, address)
        self.assertEqual(server.stdout.readline(), "ready\n")
        client = self.python(source, CLIENT, address, seconds)

        def finish():
            self.assertRegex(client.communicate(timeout=3 * HANG_S)[0], "^same")
            self.assertEqual(server.wait(HANG_S), 0)
        return finish

    def ports(self, host):
        """UDP ports of direct paths, and the address."""
        out = self.lab[host].run(["cat", "/proc/net/udp"]).stdout
        address = "%08X" % int.from_bytes(socket.inet_aton(self.lab[host].address), sys.byteorder)
        return [int(line.split()[1].split(":")[1], 16) for line in out.splitlines()[1:] if line.split()[1].startswith(address)]


class Direct(Case):
    def test_kernels_carry_packets(self):
        self.wait_direct((1, 2), (2, 1))
        before = self.peer(1, 2)
        self.stream(1, 2, "10.78.0.2")()
        self.stream(2, 1, "fd76:6961::1")()
        for address in ("10.78.0.2", "fd76:6961::2"):  # those that are longer than the MTU go in fragments
            echo = self.python(2, ECHO, address)
            self.assertEqual(echo.stdout.readline(), "ready\n")
            self.assertEqual(self.lab[1].run(["python3", "-c", SIZES, address], timeout=4 * HANG_S).stdout, "all\n")
        after = self.peer(1, 2)
        self.assertGreater(after["bytes_sent"], before["bytes_sent"] + 200000)
        self.assertGreater(after["bytes_received"], before["bytes_received"] + 200000)
        self.assertEqual(after["drops_received"], {})
        self.assertIn("mtu 1452", self.lab[1].run(["ip", "route"]).stdout)

    def test_inboxes_carry_packets_while_a_link_is_cut(self):
        self.wait_direct((1, 2), (2, 1))
        finish = self.stream(1, 2, "10.78.0.2", 3)
        for _ in range(2):
            self.lab[1].run([os.path.join(BIN, "viaduct"), "cut", "1", "2"], env=self.fabric.environment(1))
            self.wait_direct((1, 2), (2, 1), there=False)  # by host 3
            self.assertTrue(wait_for(lambda: self.is_answered(1, "10.78.0.2")))
            self.lab[1].run([os.path.join(BIN, "viaduct"), "mend", "1", "2"], env=self.fabric.environment(1))
            self.wait_direct((1, 2), (2, 1))
        finish()

    def test_a_firewall_that_drops(self):
        if not shutil.which("nft"):
            self.skipTest("nft is not installed")
        self.wait_direct((1, 2), (2, 1))
        self.lab[2].run(["sh", "-c", "nft add table inet no && nft add chain inet no in '{ type filter hook input priority 0; }' && "
                         "nft add rule inet no in meta l4proto udp drop"])
        self.addCleanup(self.lab[2].run, ["nft", "delete", "table", "inet", "no"], check=False)
        self.wait_direct((1, 2), (2, 1), there=False)
        self.assertTrue(wait_for(lambda: self.is_answered(1, "10.78.0.2")))
        self.stream(1, 2, "10.78.0.2")()
        self.assertNotIn("mtu 1452", self.lab[2].run(["ip", "route", "show", "10.78.0.1"]).stdout)
        self.lab[2].run(["nft", "delete", "table", "inet", "no"])
        self.wait_direct((1, 2), (2, 1))

    def test_processes_that_stop_or_die(self):
        self.wait_direct((1, 2), (2, 1), (1, 3))
        self.signal_ip(2, signal.SIGSTOP)
        self.wait_direct((1, 2), there=False)
        self.assertTrue(self.is_direct(1, 3))
        self.signal_ip(2, signal.SIGCONT)
        self.wait_direct((1, 2), (2, 1))
        self.end(2, signal.SIGKILL)
        self.start(2)
        self.wait_direct((1, 2), (2, 1))
        self.assertTrue(wait_for(lambda: self.is_answered(1, "10.78.0.2")))
        self.fabric.end(1, signal.SIGKILL)
        self.wait_direct((2, 1), there=False)
        self.fabric.start(1)
        self.wait_direct((1, 2), (2, 1))
        self.assertEqual(self.end(1), 0)
        self.assertEqual(self.ports(1), [])

    def bpf_objects(self, host):
        """{(kind, id)} of what viaduct-ip holds in the kernel."""
        found = set()
        for pid in self.lab[host].pids(VIADUCT_IP):
            for fd in os.listdir("/proc/%d/fdinfo" % pid):
                with open("/proc/%d/fdinfo/%s" % (pid, fd), encoding="ascii") as info:
                    found |= {(kind, int(number)) for kind, number in (line.split()[:2] for line in info.read().replace(":", " ").splitlines() if line)
                              if kind in BPF_OBJECTS}
        return found

    @staticmethod
    def is_in_kernel(kind, number):
        attributes = struct.pack("<IIII", number, 0, 0, 0)
        fd = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, BPF_OBJECTS[kind], attributes, len(attributes))
        if fd >= 0:
            os.close(fd)
        return fd >= 0

    @unittest.skipUnless(SYS_BPF, "the number of bpf(2) here is not known")
    def test_nothing_stays_in_the_kernel(self):
        self.wait_direct((1, 2), (2, 1))
        for number in (signal.SIGKILL, signal.SIGTERM):
            objects = self.bpf_objects(1)
            self.assertEqual({kind for kind, _ in objects}, set(BPF_OBJECTS))
            self.assertTrue(all(self.is_in_kernel(*item) for item in objects), objects)
            self.end(1, number)
            self.assertTrue(wait_for(lambda objects=objects: not any(self.is_in_kernel(*item) for item in objects)), objects)
            self.assertNotIn("via0", self.lab[1].run(["ip", "link"]).stdout)
            self.assertNotIn("10.78", self.lab[1].run(["ip", "route"]).stdout)
            self.start(1)
            self.wait_direct((1, 2), (2, 1))

    def test_packets_of_an_earlier_session(self):
        """A host that reads the wire keeps a packet with its token. The receiver drops the packet after a new start."""
        self.wait_direct((1, 2), (2, 1))
        keeper = self.python(1, KEEPER)
        self.assertEqual(keeper.stdout.readline(), "ready\n")
        self.assertTrue(wait_for(lambda: self.is_answered(2, "10.78.0.1") and keeper.poll() is not None))
        packet = keeper.stdout.read().strip()

        def replay():
            """How many packets host 1 has accepted meanwhile. After each start the kernel chooses another port."""
            before = self.peer(1, 2)["packets_received"]
            self.lab[2].run(["python3", "-c", REPLAY, self.lab[1].address, str(self.ports(1)[0]), packet])
            return self.peer(1, 2)["packets_received"] - before
        self.assertGreaterEqual(replay(), 100)  # docs/security.md
        self.end(1)
        self.start(1)
        self.wait_direct((1, 2), (2, 1))
        self.assertLess(replay(), 100)

    def test_packets_of_strangers_are_dropped(self):
        self.wait_direct((1, 2), (1, 3))
        ports = self.ports(1)
        self.assertEqual(len(ports), 1)
        before = self.peer(1, 2)["packets_received"]
        for stranger in (2, 3):
            self.lab[stranger].run(["python3", "-c", STRANGER, self.lab[1].address, *map(str, ports)])
        self.assertEqual(self.peer(1, 2)["packets_received"], before)
        self.assertTrue(self.is_direct(1, 2))

    def test_a_partition(self):
        self.wait_direct((1, 2), (2, 1))
        finish = self.stream(1, 2, "10.78.0.2", 4)
        self.lab.partition([1, 3], [2])
        self.wait_direct((1, 2), (2, 1), there=False)
        self.lab.heal()
        self.wait_direct((1, 2), (2, 1))
        finish()

    def test_the_address_moves_to_another_interface(self):
        """As when a machine's card becomes part of a bridge; and its MTU changes while the path is open."""
        self.wait_direct((1, 2), (2, 1))
        move = "ip link add br0 address $(cat /sys/class/net/eth0/address) type bridge && ip address flush dev eth0 && ip link set eth0 master br0 && " \
            "ip address add %s/24 dev br0 && ip link set br0 up" % self.lab[1].address
        back = "ip link del br0; ip address flush dev eth0; ip address add %s/24 dev eth0; ip link set eth0 mtu 1500" % self.lab[1].address
        self.addCleanup(self.lab[1].run, ["sh", "-c", back], check=False)
        finish = self.stream(1, 2, "10.78.0.2", 6)
        sent = self.peer(1, 2)["packets_sent"]
        self.lab[1].run(["sh", "-c", move])
        self.assert_logs(1, "no direct path: the interface of the link has changed")
        self.wait_direct((1, 2), (2, 1))
        self.lab[1].run(["ip", "link", "set", "br0", "mtu", "1400"])
        self.assertTrue(wait_for(lambda: "mtu 1352" in self.lab[1].run(["ip", "route"]).stdout))
        self.wait_direct((1, 2), (2, 1))
        finish()
        self.assertGreater(self.peer(1, 2)["packets_sent"], sent)

    def test_a_wire_of_short_frames(self):
        for m in self.lab:
            m.run(["ip", "link", "set", "eth0", "mtu", "1340"])
            self.addCleanup(m.run, ["ip", "link", "set", "eth0", "mtu", "1500"])
        for host in (1, 2):
            self.end(host)
            self.start(host)
        self.wait_direct((1, 2), (2, 1))
        self.assertIn("mtu 1292", self.lab[1].run(["ip", "route"]).stdout)
        self.stream(1, 2, "10.78.0.2")()
        for host in (1, 2):
            self.end(host)
            self.lab[host].run(["ip", "link", "set", "eth0", "mtu", "1320"])  # too short for IPv6
            self.start(host)
        self.assertTrue(wait_for(lambda: self.is_answered(1, "10.78.0.2")))
        self.assertFalse(self.is_direct(1, 2))


class Off(Case):
    environment = {"VIADUCT_DIRECT": "off"}
    count = 2

    def test_inboxes_carry_all(self):
        self.assertTrue(wait_for(lambda: self.is_answered(1, "10.78.0.2")))
        self.stream(1, 2, "10.78.0.2", 3)()
        self.assertFalse(self.is_direct(1, 2))


@unittest.skipUnless(shutil.which("setpriv"), "no setpriv(1)")
class WithoutRights(Off):
    """The kernel takes no program of a process without CAP_BPF: the log says so, and the device works."""
    environment = {}
    prefix = ["setpriv", "--bounding-set", "-bpf,-sys_admin"]

    def test_the_log_has_the_cause(self):
        self.assert_logs(1, "no direct paths: Operation not permitted")


class Encrypted(Off):
    """Packets of an encrypted link do not leave it."""
    environment = {}
    sections = {"fabric": {"encrypt": "yes"}}


if __name__ == "__main__":
    if machines_lab.missing():
        print("skipped: %s" % machines_lab.missing())
        sys.exit(77)
    machines_case.main()

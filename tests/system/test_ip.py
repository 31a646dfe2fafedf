#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""IP over the fabric between hosts that have no other network."""
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest

import cli

ADDRESS = "10.78.0.%d"
ADDRESS6 = "fd76:6961::%d"
STATIC = os.path.join(cli.HERE, "ip_static.c")

# Programs for the hosts: each prints "ready" when it listens, and what it has seen at the end.
TCP_SERVER = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], 7000), family=family)
print("ready", flush=True)
stream = listener.accept()[0]
stream.settimeout(40)
total = hashlib.sha256()
for data in iter(lambda: stream.recv(1 << 20), b""):
    total.update(data)
stream.sendall(total.digest())
"""
TCP_CLIENT = """
import hashlib, random, socket, sys
data = random.Random(7).randbytes(1 << 20) * int(sys.argv[2])
stream = socket.create_connection((sys.argv[1], 7000), 20)
stream.settimeout(40)
stream.sendall(data)
stream.shutdown(socket.SHUT_WR)
digest = b"".join(iter(lambda: stream.recv(100), b""))
print("same" if digest == hashlib.sha256(data).digest() else "differs")
"""
UDP_SERVER = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[1], 7001))
print("ready", flush=True)
while True:
    data, peer = sock.recvfrom(65536)
    sock.sendto(data[::-1], peer)
"""
UDP_CLIENT = """
import random, socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.settimeout(20)
sock.connect((sys.argv[1], 7001))
for size in map(int, sys.argv[2:]):
    data = random.Random(size).randbytes(size)
    sock.send(data)
    print(size, "same" if sock.recv(65536) == data[::-1] else "differs")
"""
PING = """
import os, socket, struct, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sock.settimeout(5)
body = struct.pack("!HH", os.getpid() & 0xffff, int(sys.argv[2])) + b"viaduct!"
def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total & 0xffff) + (total >> 16)
    return 0xffff - (total & 0xffff) - (total >> 16)
packet = struct.pack("!BBH", 8, 0, checksum(b"\\x08\\x00\\x00\\x00" + body)) + body
sock.sendto(packet, (sys.argv[1], 0))
while True:
    data, peer = sock.recvfrom(2000)
    if data[20] == 0 and data[24:] == body:
        print("answer of", peer[0])
        break
"""


def reason_to_skip():
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    if not shutil.which("ip"):
        return "no program ip (iproute2)"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return "/dev/net/tun: %s" % error
    name = "via-probe-%d" % os.getpid()
    try:
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        if done.returncode:
            return "ip netns add: %s" % done.stderr.strip()
    finally:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    return None


REASON = reason_to_skip()


class Fabric(cli.Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.remove_namespaces)

    def remove_namespaces(self):
        for name in cli.namespaces(self.name):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def up(self, *words):
        return self.good("up", *words, "--netns", "--ip")

    def inside(self, host, *words):
        return self.good("run", "--host", str(host), "--no-sockets", "--", *words)

    def python(self, host, program, *words):
        return self.inside(host, "python3", "-c", program, *map(str, words))

    def serve(self, host, program, *words):
        server = self.start("run", "--host", str(host), "--no-sockets", "--", "python3", "-uc", program,
                            *map(str, words))
        self.addCleanup(self.end, server)
        self.assertEqual(server.stdout.readline(), "ready\n", "server on host %d" % host)
        return server

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def ip_status(self):
        return {host["host"]: host for host in json.loads(self.good("ip", "status", "--json"))}

    def peer(self, host, peer):
        return next(p for p in self.ip_status()[host]["peers"] if p["host"] == peer)

    def transfer(self, source, target, mebibytes, address=ADDRESS):
        self.serve(target, TCP_SERVER, address % target)
        self.assertEqual(self.python(source, TCP_CLIENT, address % target, mebibytes), "same\n")


@unittest.skipIf(REASON, REASON)
class Programs(Fabric):
    def test_programs_reach_each_other_without_ethernet(self):
        out = self.up("--chain", "3", "--no-ethernet")
        self.assertIn("host 2    10.78.0.2", out)
        devices = self.inside(3, "ip", "-o", "link")
        self.assertIn("via0", devices)
        self.assertNotIn("eth0", devices)
        with self.subTest("ping, to a neighbour and over a relay"):
            for source, target in ((1, 2), (3, 1)):
                self.assertEqual(self.python(source, PING, ADDRESS % target, source),
                                 "answer of 10.78.0.%d\n" % target)
        with self.subTest("TCP"):
            self.transfer(1, 2, 40)
            self.transfer(3, 1, 20)
            self.transfer(2, 3, 10, ADDRESS6)
        with self.subTest("UDP, up to the MTU, and in fragments"):
            sizes = (0, 1, 1472, 8000, 64971, 64972, 64973, 65507)
            for source, target in ((1, 2), (1, 3)):
                self.serve(target, UDP_SERVER, ADDRESS % target)
                self.assertEqual(self.python(source, UDP_CLIENT, ADDRESS % target, *sizes),
                                 "".join("%d same\n" % size for size in sizes))
        with self.subTest("the status counts"):
            peer = self.peer(1, 2)
            self.assertTrue(peer["up"])
            self.assertGreater(peer["bytes_sent"], 40 << 20)
            self.assertEqual(peer["drops_received"], {})
            self.assertIn("host 1: via0 10.78.0.1", self.good("ip"))
        self.down()


if __name__ == "__main__":
    cli.main()

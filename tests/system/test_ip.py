#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""IP over the fabric between hosts that have no other network."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

import cli

ADDRESS = "10.78.0.%d"
ADDRESS6 = "fd76:6961::%d"
STATIC = os.path.join(cli.HERE, "ip_static", "echo.c")

# Programs for the hosts: each prints "ready" when it listens, and its result at the end.
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
CONNECT = """
import errno, socket, sys
for address in sys.argv[1:]:
    try:
        socket.create_connection((address, 7009), 30)
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
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


cli.supervise.own_namespace_names()
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

    def serve(self, host, program, *words, sockets=False):
        server = self.start("run", "--host", str(host), *([] if sockets else ["--no-sockets"]), "--", "python3",
                            "-uc", program, *map(str, words))
        self.addCleanup(self.end, server)
        self.assertEqual(server.stdout.readline(), "ready\n", "server on host %d" % host)
        return server

    def static_program(self):
        program = os.path.join(self.folder, "static")
        done = subprocess.run(["cc", "-static", "-O1", "-o", program, STATIC], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            self.skipTest("cc -static: %s" % done.stderr)
        return program

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
        with self.subTest("the sockets library: a kernel connection here, and pipes"):
            stats = os.path.join(self.folder, "stats")
            self.env["VIADUCT_SOCKETS_STATS"] = stats
            server = self.serve(1, TCP_SERVER, ADDRESS % 1, sockets=True)
            self.assertEqual(self.good("run", "--host", "2", "--", "python3", "-c", TCP_CLIENT, ADDRESS % 1, "8"),
                             "same\n")
            server.wait(cli.HANG_S)
            del self.env["VIADUCT_SOCKETS_STATS"]
            with open(stats, encoding="utf-8") as lines:
                ends = [json.loads(line) for line in lines]
            self.assertEqual([end["accelerated"] for end in ends], [1, 1], ends)
            self.assertGreater(sum(end["bytes_pipe_rx"] for end in ends), 1 << 20)
        with self.subTest("a program without libraries"):
            program = self.static_program()
            server = self.start("run", "--host", "3", "--no-sockets", "--", program, "serve", ADDRESS % 3)
            self.addCleanup(self.end, server)
            self.assertEqual(server.stdout.readline(), "ready\n")
            self.assertEqual(self.inside(1, program, "send", ADDRESS % 3), "8388608 bytes came back\n")
        with self.subTest("the status counts"):
            peer = self.peer(1, 2)
            self.assertTrue(peer["up"])
            self.assertGreater(peer["bytes_sent"], 40 << 20)
            self.assertEqual(peer["drops_received"], {})
            self.assertIn("host 1: via0 10.78.0.1", self.good("ip"))
        self.down()


@unittest.skipIf(REASON, REASON)
class Faults(Fabric):
    def ping(self, source, target):
        self.assertEqual(self.python(source, PING, ADDRESS % target, source),
                         "answer of 10.78.0.%d\n" % target)

    def await_peer(self, host, peer):
        self.assertTrue(cli.wait_for(lambda: host in self.ip_status() and any(
            p["host"] == peer and p["up"] for p in self.ip_status()[host]["peers"])), "%s\n%s" % (self.ip_status(), self.daemon_log()))

    def pid_of(self, host):
        return self.ip_status()[host]["pid"]

    def kill_daemon(self, host):
        """The command that starts it again."""
        pid = self.pid(host)
        with open("/proc/%d/cmdline" % pid, "rb") as line:
            words = line.read().decode().split("\0")[:-1]
        os.kill(pid, signal.SIGKILL)
        self.assertTrue(cli.wait_for(lambda: not cli.is_alive(pid)))
        at = words.index("--ready-fd")
        del words[at:at + 2]
        return words

    def restart_daemon(self, host):
        """Starts the daemon again with the same command line; it ends with this process."""
        return self.start_daemon(self.kill_daemon(host))

    def start_daemon(self, words):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            daemon = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), *words[1:]], env=self.env, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log)
        self.addCleanup(self.end, daemon)
        return daemon

    def daemon_log(self):
        """Of the daemons that the test started again."""
        path = os.path.join(self.folder, "log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as log:
            return log.read()[-5000:]

    def test_daemons_and_devices_come_and_go(self):
        self.up("--chain", "3", "--no-ethernet")
        self.ping(1, 3)
        with self.subTest("a daemon in the middle"):
            self.restart_daemon(2)
            self.await_peer(1, 2)
            self.await_peer(2, 1)
            self.await_peer(2, 3)
            self.ping(1, 2)
            self.ping(3, 1)
            self.ping(2, 3)
            self.assertEqual(self.ip_status()[2]["reattached"], 1)
            self.assertEqual(self.ip_status()[1]["reattached"], 0)
        with self.subTest("viaduct-ip"):
            pid = self.pid_of(3)
            os.kill(pid, signal.SIGKILL)
            self.assertTrue(cli.wait_for(lambda: "via0" not in self.inside(3, "ip", "-o", "link")))
            self.good("ip", "up")
            self.await_peer(1, 3)
            self.ping(1, 3)
            self.ping(3, 2)
            self.transfer(1, 3, 4)
        with self.subTest("asked to end"):
            self.assertIn("is down: 3 hosts", self.good("ip", "down"))
            self.assertNotIn("via0", self.inside(1, "ip", "-o", "link"))
            self.bad("ip", expected="no viaduct-ip runs on this machine")
        self.down()

    def test_connects_to_a_dead_host_fail_until_it_is_back(self):
        self.up("--chain", "2", "--no-ethernet")
        self.await_peer(1, 2)
        both = (ADDRESS % 2, ADDRESS6 % 2)
        with self.subTest("a host without a server answers itself; one that never was does not"):
            self.assertEqual(self.python(1, CONNECT, *both, ADDRESS % 9, ADDRESS6 % 9),
                             "ECONNREFUSED\n" * 2 + "EHOSTUNREACH\n" * 2)
        words = self.kill_daemon(2)
        for _ in range(2):  # the first time after a delay, then at once
            self.assertEqual(self.python(1, CONNECT, *both), "EHOSTUNREACH\n" * 2)
        self.assertGreaterEqual(self.peer(1, 2)["drops_sent"]["unreachable"], 4)
        self.start_daemon(words)
        self.await_peer(1, 2)
        self.ping(1, 2)
        self.assertEqual(self.python(1, CONNECT, *both), "ECONNREFUSED\n" * 2)
        self.down()

    def test_a_host_that_does_not_keep_up_delays_no_other(self):
        self.up("--mesh", "3", "--no-ethernet")
        stopped = self.pid_of(2)
        os.kill(stopped, signal.SIGSTOP)
        self.addCleanup(lambda: cli.is_alive(stopped) and os.kill(stopped, signal.SIGCONT))
        flood = self.start("run", "--host", "1", "--no-sockets", "--", "python3", "-c",
                           "import socket, time\n"
                           "sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                           "data = bytes(60000)\n"
                           "while True:\n"
                           "    for _ in range(50): sock.sendto(data, ('10.78.0.2', 7))\n"
                           "    time.sleep(0.005)")
        self.addCleanup(self.end, flood)
        self.assertTrue(cli.wait_for(lambda: self.peer(1, 2)["drops_sent"].get("full", 0) > 100))
        self.transfer(1, 3, 10)
        self.transfer(3, 1, 10)
        self.end(flood)
        os.kill(stopped, signal.SIGCONT)
        self.ping(1, 2)
        self.assertNotIn("full", self.peer(1, 3)["drops_sent"])
        self.down()

    def test_a_connection_survives_a_cut(self):
        self.up("--ring", "3", "--no-ethernet")
        self.serve(2, TCP_SERVER, ADDRESS % 2)
        client = self.start("run", "--host", "1", "--no-sockets", "--", "python3", "-c", TCP_CLIENT,
                            ADDRESS % 2, "150")
        before = self.peer(1, 2)["bytes_sent"]
        self.assertTrue(cli.wait_for(lambda: self.peer(1, 2)["bytes_sent"] > before + (1 << 20)))
        self.good("cut", "1", "2")
        time.sleep(0.1)
        self.good("mend", "1", "2")
        self.assertEqual(client.communicate(timeout=cli.HANG_S)[0], "same\n")
        self.assertEqual(self.peer(1, 2)["sessions"], 1)
        self.down()

    def test_on_a_machine_it_may_start_before_the_daemon(self):
        """As services: the run directory belongs to one host, so no option names it."""
        space = "via-%s-1" % self.name
        subprocess.run(["ip", "netns", "add", space], check=True)
        os.mkdir(self.rundir, 0o700)
        words = ["ip", "netns", "exec", space, os.path.join(cli.BIN, "viaduct-ip"), "--rundir", self.rundir, "--network",
                 "10.79.0.0/16", "--network6", "none", "--queues", "2"]
        program = subprocess.Popen(words, env=self.env, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, program)
        self.assertIn("waiting for a daemon", program.stderr.readline())
        daemon = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), "--host", "300", "--hosts-max", "400",
                                   "--rundir", self.rundir, "--foreground"], env=self.env,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(self.end, daemon)
        self.assertTrue(cli.wait_for(lambda: "is up" in program.stderr.readline()))
        out = subprocess.run(["ip", "-n", space, "-o", "addr"], capture_output=True, text=True, check=True).stdout
        self.assertIn("inet 10.79.1.44/16", out)
        # Its device is deleted: viaduct-ip ends, and the service manager would start it again.
        subprocess.run(["ip", "-n", space, "link", "del", "via0"], check=True)
        err = program.communicate(timeout=cli.HANG_S)[1]
        self.assertEqual(program.returncode, 1, err)
        self.assertIn("viaduct-ip: host 300: device via0: was deleted", err)
        program = subprocess.Popen(words, env=self.env, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, program)
        # Both messages, in either order: a queue that was never attached does not notice the daemon's end.
        wanted = {"is up", "attached to host"}
        while wanted:
            line = program.stderr.readline()
            self.assertTrue(line, wanted)
            wanted -= {words for words in wanted if words in line}
        daemon.terminate()
        daemon.wait(cli.HANG_S)
        self.assertTrue(cli.wait_for(lambda: "has ended" in program.stderr.readline()))
        program.terminate()
        program.communicate(timeout=cli.HANG_S)
        self.assertEqual(program.returncode, 0)

    def test_a_hostile_host_harms_only_itself(self):
        self.up("--mesh", "3", "--no-ethernet")
        self.serve(1, UDP_SERVER, ADDRESS % 1)
        pid = self.pid_of(3)
        os.kill(pid, signal.SIGTERM)
        self.assertTrue(cli.wait_for(lambda: not cli.is_alive(pid)))
        out = self.inside(3, "python3", os.path.join(cli.HERE, "ip_hostile.py"),
                          os.path.join(cli.BIN, "libviaduct.so"), "3", "1", "2")
        self.assertEqual(out, "answered\n" * 7 + "end\n")
        self.assertEqual(self.peer(1, 3)["drops_received"],
                         {"spoofed": 2, "foreign": 1, "malformed": 4, "offload": 3})
        self.assertEqual(self.peer(1, 2)["sessions"], 1)
        self.ping(1, 2)
        self.transfer(2, 1, 4)
        self.down()


if __name__ == "__main__":
    cli.main()

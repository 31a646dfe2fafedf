#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The preload between two hosts that have their own network namespace, addresses and run directory, as machines have:
TCP uses a veth pair, pipes use an emulated link. Only the run directory tells a program which host it is on."""
import json
import os
import signal
import subprocess
import sys
import unittest

import lab
from lab import BIN, HANG_S, PYTHON, STREAM, end, free_port, need

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import leftovers  # noqa: E402

NAMES = ["via-m%d-%d" % (os.getpid(), host) for host in (1, 2)]
V4 = "10.66.0.%d"
V6 = "fd66::%d"

ECHO = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
conn = listener.accept()[0]
while data := conn.recv(1 << 16):
    conn.sendall(data)
"""
TALK = """
import socket, sys
conn = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
if len(sys.argv) > 3:
    conn.bind((sys.argv[3], int(sys.argv[4])))
conn.connect((sys.argv[1], int(sys.argv[2])))
for _ in range(500):
    conn.sendall(bytes(1000))
    assert len(conn.recv(1000, socket.MSG_WAITALL)) == 1000
print(conn.getsockname()[0])
"""


# The servers' addresses are not in this namespace.
lab.free_port = lambda address=None: free_port()


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=HANG_S)


def remove(name):
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=HANG_S)


lab.supervise.own_namespace_names()


class Base(lab.Case):
    link_words = ("", "")

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("network namespaces need root")
        need("ip")
        for name in NAMES:
            cls.addClassCleanup(remove, name)
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                raise unittest.SkipTest("no network namespaces here: %s" % error.stderr.decode()) from error
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", NAMES[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", NAMES[1])
        for host, name in enumerate(NAMES, 1):
            ip("-n", name, "addr", "add", V4 % host + "/24", "dev", "eth0")
            ip("-n", name, "addr", "add", V6 % host + "/64", "dev", "eth0", "nodad")
            ip("-n", name, "link", "set", "eth0", "up")

    def setUp(self):
        super().setUp()
        self.daemons = {}
        self.address = V4 % 2
        for host in (1, 2):
            self.start_daemon(host)
        self.wait_both_up()
        self.server_words = self.on(2)
        self.client_words = self.on(1)

    def rundir(self, host):
        return os.path.join(self.folder, "r%d" % host)

    def daemon_words(self, host):
        return ["ip", "netns", "exec", NAMES[host - 1]]

    def start_daemon(self, host, *words):
        link = "%d=emu:%s,side=%d,nodirect" % (3 - host, os.path.join(self.folder, "cable"), host - 1)
        with open(os.path.join(self.folder, "log%d" % host), "ab") as log:
            self.daemons[host] = subprocess.Popen(
                [*self.daemon_words(host), os.path.join(BIN, "viaductd"), "--foreground",
                 "--host", str(host), "--rundir", self.rundir(host), "--with", str(os.getpid()), "--name",
                 "node%d" % host, "--address", V4 % host, "--address", V6 % host, "--link", link,
                 "--dead-ms", "5000",  # CPUs may be busy; the end of a daemon ends its link at once nevertheless
                 *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(end, self.daemons[host])

    def end_daemon(self, host):
        self.daemons[host].send_signal(signal.SIGKILL)
        self.daemons[host].wait(HANG_S)

    def hosts_up(self, host):
        """The names of the hosts that answer, from this one."""
        done = subprocess.run([lab.VIADUCT, "status", "--json", "--rundir", self.rundir(host)], capture_output=True,
                              timeout=HANG_S, check=False)
        return [h["name"] for h in json.loads(done.stdout)["hosts"] if h["state"] == "up"] if done.returncode == 0 else []

    def wait_both_up(self):
        for host in (1, 2):
            self.assertTrue(leftovers.wait_for(lambda h=host: self.hosts_up(h) == ["node1", "node2"], HANG_S))

    def on(self, host):
        return ["ip", "netns", "exec", NAMES[host - 1], "env", "VIADUCT_RUNDIR=" + self.rundir(host),
                "LD_PRELOAD=" + lab.PRELOAD]

    def environment(self, preload, **more):
        return super().environment(False, **more)

    def start(self, words, preload=True, port=None, env=None, cwd=None):
        """A server in its own namespace, whose sockets the kernel's table of this one does not have."""
        process = super().start(words, preload, None, env, cwd)
        if port is not None:
            self.assertTrue(leftovers.wait_for(lambda: self.is_listening(port), HANG_S))
        return process

    def is_listening(self, port):
        done = subprocess.run(["ip", "netns", "exec", NAMES[1], "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                              capture_output=True, text=True, timeout=HANG_S, check=True)
        return any(fields[1].endswith(":%04X" % port) and fields[3] == "0A"
                   for fields in map(str.split, done.stdout.splitlines()) if len(fields) > 3)

    def talk(self, *bound, address=None, env=None, processes=2):
        address = address or self.address
        port = free_port()
        server = self.start([PYTHON, "-Sc", ECHO, address, str(port)], port=port)
        output = self.run_client([PYTHON, "-Sc", TALK, address, str(port), *bound], env=env)
        self.finish(server)
        return output.strip(), self.lines(processes)

    def assert_talk_by_pipes(self, bound=None, any_port=True, address=None):
        """Returns the client's address. On a busy machine pipes may come too late: then once more, from another port."""
        for _ in range(5):
            words = (bound, "0" if any_port else str(free_port())) if bound else ()
            output, entries = self.talk(*words, address=address)
            if sum(e["bytes_pipe_tx"] for e in entries) > sum(e["bytes_kernel_tx"] for e in entries):
                break
        self.assert_by_pipes(entries)
        return output

    def assert_by_kernel(self):
        """No bytes go through pipes. A process whose connection never had pipes may write no statistics."""
        entries = self.talk(processes=0)[1]
        self.assertEqual(sum(e["bytes_pipe_tx"] for e in entries), 0, entries)


class Machines(Base):
    def test_programs_that_connect_by_ethernet_addresses(self):
        self.assertEqual(self.assert_talk_by_pipes(), V4 % 1)

    def test_ipv6_and_addresses_of_their_own(self):
        self.assertEqual(self.assert_talk_by_pipes(address=V6 % 2), V6 % 1)
        for any_port in (True, False):
            with self.subTest(any_port=any_port):
                self.assert_talk_by_pipes(V4 % 1, any_port)
        self.assert_talk_by_pipes("0.0.0.0", any_port=False)

    def test_iperf3_and_redis(self):
        self.iperf3("-t", "1")
        self.assert_by_pipes(self.lines(2))
        self.redis("-n", "4000")
        self.assert_by_pipes(self.lines(2))

    def test_without_a_daemon_it_is_plain_tcp(self):
        self.end_daemon(1)
        self.end_daemon(2)
        self.assert_by_kernel()
        os.unlink(os.path.join(self.rundir(1), "host-1.hosts"))
        self.assert_by_kernel()

    def test_a_daemon_that_comes_back(self):
        self.end_daemon(2)
        self.start_daemon(2)
        self.wait_both_up()
        self.assert_talk_by_pipes()

    def test_an_address_that_another_host_claims(self):
        # Host 1 claims host 2's address: a third host then sees no owner; each of the two sees itself as the owner.
        self.end_daemon(1)
        self.start_daemon(1, "--address", V4 % 2)
        self.wait_both_up()
        self.assert_by_kernel()


if __name__ == "__main__":
    lab.main()

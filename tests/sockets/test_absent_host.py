#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Operations under way to an unreachable host do not delay operations to other hosts."""
import select
import socket
import subprocess
import unittest

from hosts import Hosts, cut, mend
import lab
from lab import HANG_S, PYTHON, end, free_port

# Fills the path to the absent host with small and large records of some connections; then exchanges bytes with another host.
FILLS = """
import os, socket, sys, time
def meet(address, port):
    conn = socket.create_connection((address, int(port)))
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(300):
        conn.sendall(bytes(100))
        conn.recv(100, socket.MSG_WAITALL)
        time.sleep(0.0005)  # the directory has to reach all hosts
    return conn
conn = meet(sys.argv[1], sys.argv[2])
conns = [meet(sys.argv[3], sys.argv[4]) for _ in range(int(sys.argv[5]))]
os.write(1, b"ready\\n")
os.read(0, 1)
sent = [0] * len(conns)
full = 0
while full < len(conns):
    full = 0
    for at, absent in enumerate(conns):
        absent.setblocking(False)
        try:
            size = 4000 if at % 2 else 60
            sent[at] += absent.send((bytes(range(256)) * 20)[sent[at] % 256:][:size])
        except BlockingIOError:
            full += 1
for _ in range(600):
    conn.sendall(bytes(3000))
    conn.recv(3000, socket.MSG_WAITALL)
print(*sent, flush=True)
os.read(0, 1)
"""
READS = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
conns = []
for _ in range(int(sys.argv[3])):
    conn = listener.accept()[0]
    for _ in range(300):
        conn.sendall(conn.recv(100, socket.MSG_WAITALL))
    conns.append(conn)
listener.accept()  # nothing is read before this: otherwise the kernel's buffers would never be full
for conn in conns:
    at = 0
    while data := conn.recv(1 << 16):
        assert data == (bytes(range(256)) * (len(data) // 256 + 2))[at % 256:][:len(data)], "other bytes"
        at += len(data)
    print(at, flush=True)
"""
ANSWERS = """
import socket, sys
conn = socket.create_server((sys.argv[1], int(sys.argv[2]))).accept()[0]
while data := conn.recv(1 << 16):
    conn.sendall(data)
"""
CONNECTIONS = 6


class AbsentHost(Hosts):
    """Hosts 3 and 5 of six are reached over others, and by the same channel of host 1."""

    ring = 6
    server_host = 3
    absent = "127.77.0.5"

    def exchange(self):
        """False if there were no pipes, which happens on a busy machine."""
        port, absent_port = free_port(self.address), free_port(self.absent)
        answers = self.start([PYTHON, "-Sc", ANSWERS, self.address, str(port)], port=port)
        at_other, self.server_words = self.server_words, [*self.server_words[:-2], "5", "--"]
        reads = self.start([PYTHON, "-Sc", READS, self.absent, str(absent_port), str(CONNECTIONS)], port=absent_port)
        self.server_words = at_other
        client = subprocess.Popen([*self.client_words, PYTHON, "-Sc", FILLS, self.address, str(port), self.absent,
                                   str(absent_port), str(CONNECTIONS)], env=self.environment(True), text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(end, client)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.stdin.close)
        self.assertEqual(client.stdout.readline(), "ready\n")
        cut("4", "5")
        cut("5", "6")
        try:
            client.stdin.write("x")
            client.stdin.flush()
            ready = select.select([client.stdout], [], [], HANG_S / 2)[0]
            self.assertTrue(ready, "bytes for another host are delayed")
            sent = client.stdout.readline().split()
        finally:
            mend("4", "5")
            mend("5", "6")
        socket.create_connection((self.absent, absent_port)).close()
        client.stdin.write("x")
        client.stdin.flush()
        self.assertEqual(client.wait(HANG_S), 0)
        self.finish(answers)
        self.finish(reads)
        reads.log.seek(0)
        self.assertEqual(reads.log.read().split(), sent)
        return sum(entry["accelerated"] for entry in self.lines(3)) == 2 * (CONNECTIONS + 1)

    def test_other_hosts_are_not_delayed(self):
        self.assertTrue(any(self.exchange() for _ in range(6)))


del Hosts

if __name__ == "__main__":
    lab.main()

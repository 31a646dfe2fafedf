#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""epoll sets that hold connections to another host."""
import subprocess

from hosts import Hosts, cut, mend
import lab
from lab import HANG_S, PYTHON, STREAM, end, free_port

BEGIN = """
import errno, os, select, socket, sys, threading, time
IN, OUT, ET, RDHUP, HUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLRDHUP, select.EPOLLHUP
conn = socket.create_connection((sys.argv[1], int(sys.argv[2])))
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(300):
    conn.sendall(bytes(100))
    assert conn.recv(100, socket.MSG_WAITALL) == bytes(100)
fd = conn.fileno()
epoll = select.epoll()
def fails(call, *words):
    try:
        call(*words)
    except OSError as error:
        return error.errno
def is_kernels(fd):
    with open("/proc/self/fdinfo/%d" % epoll.fileno()) as lines:
        return any(line.startswith("tfd:") and int(line.split()[1]) == fd for line in lines)
"""

# A connection is closed while its host can not be reached, and the next one takes its place in the set.
CLOSER = BEGIN + """
epoll.register(fd, IN)
assert epoll.poll(0) == []
os.write(1, b"ready\\n")
os.read(0, 1)
conn.sendall(bytes(100000))
conn.close()
assert not is_kernels(fd)
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far = listener.accept()[0]
for _ in range(300):
    near.sendall(bytes(100))
    far.sendall(far.recv(100, socket.MSG_WAITALL))
    near.recv(100, socket.MSG_WAITALL)
epoll.register(near, IN | RDHUP)
assert epoll.poll(0) == []
os.write(1, b"closed\\n")
os.read(0, 1)
assert epoll.poll(0.5) == []
far.sendall(b"x")
assert epoll.poll(5) == [(near.fileno(), IN)] and near.recv(1) == b"x"
os._exit(0)
"""


class Sets(Hosts):
    def test_what_is_closed_while_its_host_is_cut_off_is_in_no_set(self):
        port = free_port(self.address)
        server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
        client = subprocess.Popen([*self.client_words, PYTHON, "-c", CLOSER, self.address, str(port)],
                                  env=self.environment(True), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(end, client)
        try:
            self.assertEqual(client.stdout.readline(), b"ready\n")
            cut("1", "2")
            cut("1", "4")
            client.stdin.write(b"x")
            client.stdin.flush()
            self.assertEqual(client.stdout.readline(), b"closed\n")
            end(server)  # of which the kernel tells
            client.stdin.write(b"x")
            client.stdin.flush()
            self.assertEqual(client.wait(HANG_S), 0)
            client.stdin.close()
            client.stdout.close()
        finally:
            mend("1", "2")
            mend("1", "4")


del Hosts

if __name__ == "__main__":
    lab.main()

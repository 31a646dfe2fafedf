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

# Registers for writing, then for reading, for each of six messages; prints for how many of them the kernel's set did not change.
TAKER = BEGIN + """
epoll.register(fd, IN)
assert epoll.poll(0) == []
kept = 0
for turn in range(6):
    epoll.unregister(fd)
    kept += is_kernels(fd)
    assert fails(epoll.unregister, fd) == errno.ENOENT and fails(epoll.modify, fd, IN) == errno.ENOENT
    conn.sendall(b"x")
    assert epoll.poll(0.02) == []
    epoll.register(fd, OUT)
    assert fails(epoll.register, fd, OUT) == errno.EEXIST
    assert epoll.poll(5) == [(fd, OUT)]
    epoll.unregister(fd)
    epoll.register(fd, IN | (ET if turn % 2 else 0))
    assert epoll.poll(5) == [(fd, IN)]
    assert epoll.poll(0) == ([] if turn % 2 else [(fd, IN)])
    assert conn.recv(1) == b"x"
os.write(1, b"%d\\n" % kept)

# A thread that sleeps in the set gets the events of a connection that is added again.
for turn in range(20):
    epoll.unregister(fd)
    found = []
    sleeper = threading.Thread(target=lambda: found.extend(epoll.poll(5)))
    sleeper.start()
    if turn % 2:
        time.sleep(0.005)
    conn.sendall(b"x")
    epoll.register(fd, IN)
    sleeper.join()
    assert found == [(fd, IN)], found
    assert conn.recv(1) == b"x"

# Copies of the set, and children, get no events of a removed connection.
epoll.unregister(fd)
copy = os.dup(fd)
assert not is_kernels(fd)
epoll.register(copy, IN)
epoll.unregister(copy)
os.close(copy)
epoll.register(fd, IN)
epoll.unregister(fd)
if sys.argv[3] == "forks":
    child = os.fork()
    if child == 0:
        os._exit(is_kernels(fd))
    assert os.waitpid(child, 0)[1] == 0 and not is_kernels(fd)
conn.shutdown(socket.SHUT_WR)
assert epoll.poll(0.05) == []  # the set reports no end of file either
epoll.register(fd, IN | RDHUP)
deadline = time.monotonic() + 20
while epoll.poll(0.1) != [(fd, IN | RDHUP | HUP)]:
    assert time.monotonic() < deadline, epoll.poll(0)
assert conn.recv(1) == b""
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
    def kernel_set_kept(self, then):
        """For how many messages of six the library left the kernel's set as it was; None when there were no pipes."""
        port = free_port(self.address)
        server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
        output = self.run_client([PYTHON, "-Sc", TAKER, self.address, str(port), then]).strip()
        self.finish(server)
        return int(output) if sum(entry["bytes_pipe_tx"] > 0 for entry in self.lines()) >= 2 else None

    def test_a_connection_that_is_removed_from_a_set_and_added_again(self):
        for then in ("goes on", "forks"):
            with self.subTest(then):
                # On a busy machine a connection may get its pipes after some of these messages.
                kept = next((kept for kept in (self.kernel_set_kept(then) for _ in range(6)) if kept in range(4, 7)), None)
                self.assertIsNotNone(kept, "a program that does so for each message makes a system call each time")

    def test_a_connection_closed_while_its_host_is_cut_off_is_in_no_set(self):
        port = free_port(self.address)
        server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
        client = subprocess.Popen([*self.client_words, PYTHON, "-Sc", CLOSER, self.address, str(port)],
                                  env=self.environment(True), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(end, client)
        try:
            self.assertEqual(client.stdout.readline(), b"ready\n")
            cut("1", "2")
            cut("1", "4")
            client.stdin.write(b"x")
            client.stdin.flush()
            self.assertEqual(client.stdout.readline(), b"closed\n")
            end(server)  # the kernel reports its end
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

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Connections to a host that is cut off for longer than its host waits (--give-up-ms): as when TCP gives up its
retransmissions, the end whose bytes did not arrive gets ETIMEDOUT, the other end gets an error, and no thread sleeps forever.
The reader gets the beginning of the sent bytes, and then an error, not end of file."""
import json
import os
import subprocess
import sys
import time

from hosts import Hosts, cut, mend, viaduct
import lab
from lab import HANG_S, PYTHON, end, free_port

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import leftovers  # noqa: E402

GIVE_UP_S = 3
CUT_S = 5

# Both ends: they have pipes, then both continue on a signal.
MEET = """
import errno, json, os, select, signal, socket, sys, time
def meet(client):
    address = (sys.argv[1], int(sys.argv[2]))
    conn = socket.create_connection(address) if client else socket.create_server(address).accept()[0]
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(300):
        if client:
            conn.sendall(bytes(100))
        conn.sendall(conn.recv(100, socket.MSG_WAITALL)) if not client else conn.recv(100, socket.MSG_WAITALL)
        time.sleep(0.0005)  # the directory has to reach all hosts
    os.write(1, b"ready\\n")
    os.read(0, 1)
    return conn
data = bytes(range(256)) * 1000
sent = 0
got = 0
results = []
def record(call, *words):
    # The result of the call: an errno, or its return value.
    try:
        result = call(*words)
        results.append(len(result) if isinstance(result, bytes) else result)
    except OSError as error:
        results.append(errno.errorcode[error.errno])
    return results[-1]
def send(bytes_count):
    global sent
    sent += conn.send(data[sent % 256:][:bytes_count])
    return sent
def recv():
    global got
    more = conn.recv(1 << 16)
    assert more == (bytes(range(256)) * (len(more) // 256 + 2))[got % 256:][:len(more)], "other bytes"
    got += len(more)
    return more
def fill():
    while True:
        send(4000)
def drain():
    while recv():
        pass
    return "end"
def poll(events):
    poll = select.poll()
    poll.register(conn, events)
    ((_, bits),) = poll.poll()
    return bits & (select.POLLERR | select.POLLHUP)
def epoll(events):
    epoll = select.epoll()
    epoll.register(conn, events | select.EPOLLET)
    while True:
        ((_, bits),) = epoll.poll()
        if bits & ~(select.EPOLLOUT | select.EPOLLWRNORM):
            return bits & (select.POLLERR | select.POLLHUP) or bits
def again(call):
    while True:
        try:
            return call()
        except BlockingIOError:
            time.sleep(0.001)
def errno_of():
    return errno.errorcode.get(conn.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
conn = meet(sys.argv[3] == "client")
begin = time.monotonic()
exec(sys.argv[4])
print(json.dumps({"sent": sent, "got": got, "results": results, "took": time.monotonic() - begin}), flush=True)
"""
BOTH = 0x18  # POLLERR | POLLHUP
# The client's calls and their results; the calls of the server, which has nothing under way, meanwhile.
WAYS = {
    "sends, then reads": ("send(1000); record(recv); record(recv); record(send, 10)", ["ETIMEDOUT", 0, "EPIPE"],
                          "record(drain)"),
    "sends much, then reads": ("[send(20000) for _ in range(3)]; record(recv)", ["ETIMEDOUT"], "record(drain)"),
    "sends on": ("record(fill); record(send, 10)", ["ETIMEDOUT", "EPIPE"], "record(drain)"),
    "polls": ("send(1000); record(poll, select.POLLIN); record(errno_of); record(errno_of); record(recv); record(send, 10)",
              [BOTH, "ETIMEDOUT", 0, 0, "EPIPE"], "record(poll, select.POLLIN); record(drain)"),
    "polls for nothing": ("send(1000); record(poll, 0); record(recv)", [BOTH, "ETIMEDOUT"], "record(poll, 0); record(drain)"),
    "waits for an edge": ("conn.setblocking(False); send(1000); record(epoll, select.EPOLLIN | select.EPOLLOUT);"
                          "record(send, 10)", [BOTH, "ETIMEDOUT"],
                          "conn.setblocking(False); record(epoll, select.EPOLLIN | select.EPOLLRDHUP); record(drain)"),
    "never sleeps": ("conn.setblocking(False); send(1000); record(again, recv); record(recv)", ["ETIMEDOUT", 0],
                     "conn.setblocking(False); record(again, drain)"),
    "ends its direction": ("send(1000); conn.shutdown(socket.SHUT_WR); record(recv)", ["ETIMEDOUT"], "record(drain)"),
    "closes": ("send(1000); conn.close()", [], "record(drain)"),
    "closes, and lives on": ("send(1000); conn.close(); time.sleep(%d)" % (CUT_S + 1), [], "record(drain)"),
    "forks, and its child reads": ("send(1000); child = os.fork(); child and os._exit(os.waitpid(child, 0)[1]); record(recv)",
                                   ["ETIMEDOUT"], "record(drain)"),
}


class CutOffForGood(Hosts):
    server_host = 2
    up_words = ("--chain", "3", "--give-up-ms", str(GIVE_UP_S * 1000))

    def pair(self, server_action, action):
        """Both ends have exchanged some bytes, and wait for the signal to continue."""
        port = free_port(self.address)
        pair = []
        for words, role, act in ((self.server_words, "server", server_action), (self.client_words, "client", action)):
            process = subprocess.Popen([*words, PYTHON, "-Sc", MEET, self.address, str(port), role, act],
                                       env=self.environment(True), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT)
            self.addCleanup(end, process)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.stdin.close)
            pair.append(process)
            deadline = time.monotonic() + HANG_S
            while role == "server" and not lab.listens(port) and time.monotonic() < deadline:
                time.sleep(0.01)
        for process in pair:
            self.assertEqual(process.stdout.readline(), b"ready\n")
        return pair

    def has_pipes(self, process):
        """On a busy machine there are none sometimes."""
        rows = json.loads(viaduct("sockets", "--json", "--pid", str(process.pid)))["connections"]
        return any(row["bytes_pipe_tx"] > 0 and row["bytes_pipe_rx"] > 0 for row in rows)

    def begin(self, server_action, action):
        for _ in range(12):
            pair = self.pair(server_action, action)
            if all(self.has_pipes(process) for process in pair):
                return pair
            for process in pair:
                end(process)
        self.fail("no pipes")

    def go(self, process):
        process.stdin.write(b"x")
        process.stdin.flush()

    def report_of(self, process):
        try:
            out, _ = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            return "sleeps forever"
        return json.loads(out) if process.returncode == 0 else out.decode()

    @staticmethod
    def stay_cut(processes):
        """Returns when the processes have ended: on a busy machine one may make its first call late."""
        time.sleep(CUT_S)
        leftovers.wait_for(lambda: all(process.poll() is not None for process in processes), HANG_S)

    def test_no_call_sleeps_forever(self):
        pairs = {way: self.begin(its_action, action) for way, (action, _, its_action) in WAYS.items()}
        for server, _ in pairs.values():
            self.go(server)
        time.sleep(1)  # the requests for wake-ups of sleeping servers have arrived
        cut("1", "2")
        try:
            for _, client in pairs.values():
                self.go(client)
            self.stay_cut([client for _, client in pairs.values()])
        finally:
            mend("1", "2")
        for way, (server, client) in pairs.items():
            with self.subTest(way):
                report, of_server = self.report_of(client), self.report_of(server)
                self.assertIsInstance(report, dict, report)
                self.assertIsInstance(of_server, dict, of_server)
                self.assertEqual(report["results"], WAYS[way][1], of_server)
                self.assertIn(of_server["results"][-1], ("ETIMEDOUT", "ECONNRESET"), (report, of_server))
                self.assertLessEqual(of_server["got"], report["sent"])

    def test_both_have_sent(self):
        """Each end gets the error from its own host, or by a reset of the other end."""
        pairs = [self.begin("send(1000); record(drain)", "send(1000); record(drain)") for _ in range(3)]
        cut("1", "2")
        try:
            for process in sum(pairs, []):
                self.go(process)
            self.stay_cut(sum(pairs, []))
        finally:
            mend("1", "2")
        for process in sum(pairs, []):
            report = self.report_of(process)
            self.assertIsInstance(report, dict, report)
            self.assertIn(report["results"][0], ("ETIMEDOUT", "ECONNRESET"))
            self.assertEqual(report["got"], 0)

    def test_a_connection_without_bytes_under_way_continues(self):
        """Both ends sleep, and poll now and then; bytes sent after the cut arrive."""
        polls = ("conn.settimeout(0.5)\n"
                 "def poll_until_bytes():\n"
                 "    for _ in range(%d):\n"
                 "        try:\n"
                 "            return recv()\n"
                 "        except TimeoutError:\n"
                 "            pass\n" % (4 * HANG_S))
        ways = (("record(recv); send(1000)", "send(1000); record(recv)"),
                (polls + "record(poll_until_bytes); send(1000)", polls + "time.sleep(%d); send(1000); record(poll_until_bytes)" % (CUT_S + 3)))
        pairs = [self.begin(*way) for way in ways]
        for process in (*pairs[0][:1], *pairs[1]):
            self.go(process)
        time.sleep(1)
        cut("1", "2")
        time.sleep(CUT_S)
        mend("1", "2")
        self.go(pairs[0][1])
        for process in sum(pairs, []):
            report = self.report_of(process)
            self.assertIsInstance(report, dict, report)
            self.assertEqual((report["got"], report["sent"]), (1000, 1000), report)

    def test_other_connections_continue(self):
        """Connections made after that, or with nothing under way, work."""
        self.echo(1, 7)


class OverARelay(CutOffForGood):
    server_host = 3


if __name__ == "__main__":
    lab.main()

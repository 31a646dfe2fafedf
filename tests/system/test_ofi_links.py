#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Daemons that are neighbours over libfabric, on loopback addresses: traffic, deaths, cuts, and peers that are
refused."""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

import cli
import ofi_case


class Wire:
    """A network between a connector and the listener at `target`, that records all bytes, and damages some on
    request."""

    def __init__(self, address, target):
        self.target = target
        self.seen = bytearray()
        self.damage = False
        self.server = socket.create_server((address, 7471))
        self.sockets = [self.server]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.server.accept()[0]
            except OSError:
                return
            self.sockets.append(near)
            try:
                far = socket.create_connection((self.target, 7471))
            except OSError:  # it does not listen yet
                near.close()
                continue
            self.sockets.append(far)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink, source is near), daemon=True).start()

    def carry(self, source, sink, forth):
        try:
            while True:
                data = bytearray(source.recv(65536))
                if not data:
                    break
                self.seen += data
                # The middle of a large piece: not a header of the provider's.
                if forth and self.damage and len(data) > 4096:
                    data[len(data) // 2] ^= 1
                    self.damage = False
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        for end in self.sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class Ofi(ofi_case.Case):
    def test_a_line_of_three_carries_deaths_and_cuts(self):
        key = self.make_key()
        self.line_of_three("--key", key)
        found = self.link_of(1)
        self.assertEqual(found["driver"], "ofi")
        self.assertRegex(found["found"], r"^tcp 127\.0\.0\.1:\d+ to %s:7471, host 2, inbox of \d+ bytes$" % self.address(2))
        self.write_fabric((1, 2, 3), ((1, 2), (2, 3)))
        for words in (["put", "--from", "1", "--to", "2", "--sizes", "8,64K,1M"], ["get", "--from", "3", "--to", "1"],
                      ["pingpong", "--from", "1", "--to", "3"], ["barrier"]):
            self.good("perf", *words, "--iterations", "20", "--no-memcpy" if words[0] in ("put", "get") else "--json")
        # The host in the middle is killed, and started again.
        self.daemons[2].send_signal(signal.SIGKILL)
        self.daemons[2].wait()
        self.assert_not_up(1)
        self.assert_not_up(3)
        self.daemon(2, [1, 3], "--key", key)
        self.wait_line()
        # The link is cut at one end, and mended at the other.
        self.assertTrue(self.send_request(1, cmd="cut", peer=2))
        self.assert_not_up(1)
        self.assert_not_up(2, 0)
        self.assert_state(2, "up", 1)
        self.assertTrue(cli.wait_for(lambda: self.link_of(2).get("cut")))
        self.send_request(2, cmd="mend", peer=1)
        self.wait_line()
        self.write_fabric((1, 2, 3), ((1, 2), (2, 3)))
        self.good("perf", "put", "--from", "1", "--to", "3", "--sizes", "64K", "--iterations", "20", "--no-memcpy")

    def test_reconnects_leave_no_descriptors(self):
        self.daemon(2, [1])
        self.daemon(1, [2])
        self.assert_state(1, "up")
        self.assert_state(2, "up")
        before = [self.descriptors(host) for host in (1, 2)]
        for _ in range(25):
            self.send_request(1, cmd="cut", peer=2)
            self.send_request(1, cmd="mend", peer=2)
        self.assert_state(1, "up")
        self.assert_state(2, "up")
        for host, count in zip((1, 2), before):
            self.assertTrue(cli.wait_for(lambda h=host, c=count: self.descriptors(h) <= c), "%d descriptors, then %d" %
                            (count, self.descriptors(host)))

    def test_both_sides_report_a_refusal(self):
        keys = [self.make_key(name) for name in ("one", "two")]
        self.daemon(2, [1], "--key", keys[0])
        other = self.daemon(1, [2], "--key", keys[1])
        self.assert_logged(1, "host 2 at %s port 7471 has another fabric key" % self.address(2))
        self.assert_logged(2, "has another fabric key")
        for words, one, two in (((), "has a fabric key, and this host has none", "has no fabric key, and this host has one"),
                                (("--key", keys[0]), None, None)):
            other.kill()
            other.wait()
            other = self.daemon(1, [2], *words)
            if one:
                self.assert_logged(1, one)
                self.assert_logged(2, two)
        self.assert_state(1, "up")
        self.assert_state(2, "up")
        # A peer with the key, but the wrong id or the wrong place.
        self.daemon(3, [2], "--key", keys[0], links=["9=ofi:tcp://%s,listen=%s" % (self.address(2), self.address(3))])
        self.assert_logged(3, "the daemon at %s port 7471 says that it is host 2, not host 9" % self.address(2))
        self.assert_logged(2, "takes this host for another")

    def over_a_wire(self, more):
        """Hosts 1 and 2, and a Wire between them; `more` of both links."""
        key = self.make_key()
        wire = Wire(self.address(9), self.address(2))
        self.addCleanup(wire.close)
        self.daemon(2, [], "--key", key, links=[self.link(2, 1, more=more)])
        self.daemon(1, [], "--key", key, links=[self.link(1, 2, at=self.address(9), more=more)])
        self.assert_state(1, "up")
        self.assert_state(2, "up")
        self.write_fabric((1, 2), ((1, 2),))
        return wire

    def test_an_encrypted_link_hides_bodies_and_refuses_forged_messages(self):
        words = ["perf", "put", "--from", "1", "--to", "2", "--sizes", "64K,1M", "--iterations", "20", "--no-memcpy"]
        plain = self.over_a_wire("")
        self.good(*words)
        # Names of hosts are sent in the first seconds; runs of zeros in bodies of puts.
        self.assertTrue(bytes(64) in plain.seen)
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        plain.close()
        wire = self.over_a_wire(",encrypt")
        self.assertIn(", encrypted", self.link_of(1)["found"])
        self.good(*words)
        self.assertGreater(len(wire.seen), 20 << 20)
        self.assertFalse(bytes(64) in wire.seen)
        # One bit of a message is flipped: the message is refused, the link comes up again, and nothing is lost. The bit
        # may belong to a header of libfabric's that ends the connection, or to one's padding, which no side reads.
        expected = "host 1 sent a message that is forged, or damaged on its way"
        for _ in range(5):
            wire.damage = True
            self.good(*words)
            self.assertFalse(wire.damage)
            if expected in self.log_of(2):
                break
        self.assert_logged(2, expected)
        self.assert_state(1, "up")
        self.assert_state(2, "up")

    def test_one_end_that_encrypts_is_refused_on_both_sides(self):
        key = self.make_key()
        self.daemon(2, [], "--key", key, links=[self.link(2, 1, more=",encrypt")])
        plain = self.daemon(1, [2], "--key", key)
        self.assert_logged(1, "encrypts this link, and this host does not")
        self.assert_logged(2, "does not encrypt this link, and this host does")
        for daemon in (plain, self.daemons[2]):
            daemon.kill()
            daemon.wait()
        self.daemon(2, [1], "--key", key)
        self.daemon(1, [], "--key", key, links=[self.link(1, 2, more=",encrypt")])
        self.assert_logged(1, "does not encrypt this link, and this host does")
        self.assert_logged(2, "encrypts this link, and this host does not")

    def test_two_hosts_with_one_id(self):
        """The second host with the same id is refused, and both ends report it; the link of the first one stays up."""
        self.daemon(2, [1])
        first = self.daemon(1, [2])
        self.assert_state(1, "up")
        self.assert_state(2, "up")
        run = os.path.join(self.folder, "second")
        os.mkdir(run, 0o700)
        log = os.path.join(self.folder, "log-second")
        with open(log, "wb") as file:
            second = subprocess.Popen([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", run, "--host", "1", "--link",
                                       self.link(9, 2)], env=self.env, stderr=file)
        self.addCleanup(second.wait)
        self.addCleanup(second.kill)

        def is_refused():
            with open(log, encoding="utf-8") as file:
                return "is connected to another host with this host's id" in file.read()
        self.assertTrue(cli.wait_for(is_refused))
        self.assert_logged(2, "has the id of a host that is connected")
        self.assertEqual((self.link_of(1)["state"], self.link_of(1)["downs"]), ("up", 0))
        # When the first host has ended, the second one may have the id.
        first.kill()
        first.wait()
        self.assert_state(2, "up")

    def test_other_connections_do_no_harm(self):
        self.daemon(2, [1])
        self.assert_not_up(2)
        request = struct.pack("<IHHHHI16s16s", 0x4f414956, 2, 0, 1, 2, 0, bytes(16), bytes(16))
        header = struct.pack(">BBHI", 4, 1, len(request), 0)
        for junk in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(300), header + request, header + request[:20],
                     header + request.replace(b"VIAO", b"VIAX")):
            with socket.create_connection((self.address(2), 7471), timeout=cli.HANG_S) as stranger:
                stranger.sendall(junk)
        held = [socket.create_connection((self.address(2), 7471), timeout=cli.HANG_S) for _ in range(20)]
        self.daemon(1, [2])
        self.assert_state(1, "up")
        self.assert_state(2, "up")
        for stranger in held:
            stranger.close()
        self.assertIsNone(self.daemons[2].poll())

    def test_a_second_request_is_sent_to_a_peer_that_does_not_answer(self):
        """As after a partition: the daemon does not wait for answers to requests that it sent before."""
        with socket.create_server((self.address(2), 7471)) as mute:
            mute.settimeout(cli.HANG_S)
            self.daemon(1, [2])
            first = mute.accept()[0]
            second = mute.accept()[0]
            first.settimeout(0)
            with self.assertRaises(BlockingIOError):  # the connection has not ended
                while first.recv(4096):
                    pass
            first.close()
            second.close()
        self.daemon(2, [1])
        self.assert_state(1, "up")
        self.assert_state(2, "up")

    def test_links_that_cannot_be_opened(self):
        for link, expected in (("2=ofi:nosuch://%s" % self.address(2), "libfabric has no provider 'nosuch'"),
                               ("2=ofi:shm://%s" % self.address(2), "provider 'shm' has no connections"),
                               ("2=ofi:udp;ofi_rxd://%s" % self.address(2), "provider 'udp;ofi_rxd' has no connections"),
                               ("2=ofi:tcp://%s,encrypt" % self.address(2), "a link that is encrypted needs a fabric key"),
                               ("0=ofi:tcp://%s,listen=192.0.2.77" % self.address(2), "192.0.2.77 port 7471: ")):
            done = subprocess.run([os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", "1",
                                   "--link", link], env=self.env, capture_output=True, text=True, timeout=cli.HANG_S, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    cli.main()

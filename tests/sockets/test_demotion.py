#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Connections that return to the kernel: whether they do (checks_demotion.c tests that nothing breaks), and
the reason; and peers that never leave the kernel."""
import os
import unittest

import lab
from lab import BIN, CHECKS, Case, STREAM, free_port, go_program
from test_listing import Lister

STATIC = os.path.join(BIN, "tests", "prog_static")


class Counts(Case):
    """Runs each check alone: pipes carry some bytes, and then some of its ends return to the kernel."""

    def demoted(self, check):
        self.run_client([CHECKS, check])
        entries = self.lines()
        self.assertGreater(sum(entry["accelerated"] for entry in entries), 0, entries)
        self.assertGreater(sum(entry["bytes_pipe_tx"] for entry in entries), 0, entries)
        return sum(entry["demoted"] for entry in entries)

    def test_both_ends_return_to_the_kernel(self):
        for check in ("stdio_reads_and_writes", "the_other_end_is_in_a_set_here", "reported_by_signal",
                      "layered", "a_mark_among_the_bytes"):
            with self.subTest(check):
                self.assertGreaterEqual(self.demoted(check), 2)

    def test_a_set_in_a_set_has_the_kernels(self):
        for check in ("nested_after_it_was_filled", "nested_before_it_is_filled", "nested_from_outside",
                      "nested_by_edge", "nested_for_one_event", "nested_as_deep_as_can_be",
                      "nested_sets_wake_sleepers", "copied_when_it_was_nested"):
            with self.subTest(check):
                self.assertGreaterEqual(self.demoted(check), 1)

    def test_the_other_end_returns_with_it(self):
        for check in ("the_peer_reads", "the_peer_polls", "the_peer_waits_in_a_set",
                      "the_peer_waits_for_an_edge", "the_peer_is_busy", "the_peer_writes",
                      "becomes_a_static_program", "becomes_another_program", "inherited_by_number",
                      "spawned", "after_vfork", "given_to_system", "given_to_popen",
                      "sent_to_another_process"):
            with self.subTest(check):
                self.assertGreaterEqual(self.demoted(check), 1)

    def test_both_ends_sent_and_neither_read(self):
        for check in ("both_send_megabytes_and_then_read", "both_send_megabytes_in_two_processes",
                      "both_send_megabytes_of_small_messages", "both_send_megabytes_and_poll",
                      "both_send_megabytes_by_sets"):
            with self.subTest(check):
                self.run_client([CHECKS, check])
                entries = self.lines()
                self.assertGreater(sum(e["bytes_kernel_tx"] for e in entries), 500000, entries)
                self.assertGreater(sum(e["bytes_pipe_tx"] for e in entries), 30000, entries)
                self.assertEqual(sum(e["demoted"] for e in entries), 0, entries)

    def test_what_keeps_its_pipes(self):
        for check in ("close_on_exec_stays", "calls_with_known_buffers", "two_sets_hold_it", "exclusive",
                      "a_reader_takes_its_time", "bytes_left_in_control_data", "splice_to_a_full_pipe"):
            with self.subTest(check):
                self.assertEqual(self.demoted(check), 0)

    def test_what_the_kernel_keeps(self):
        """Options that were set before the connection had pipes, and that pipes do not honour."""
        self.run_client([CHECKS, "bytes_left_as_asked_before_connecting"])
        self.assertEqual(sum(entry["accelerated"] for entry in self.lines()), 0)

    def test_notifications_that_no_send_requests(self):
        """gRPC sets SO_ZEROCOPY on each listener, and sends without MSG_ZEROCOPY."""
        self.run_client([CHECKS, "unrequested_notifications"])
        entries = self.lines()
        self.assertEqual(sum(entry["accelerated"] for entry in entries), 2, entries)
        self.assertEqual(sum(entry["demoted"] for entry in entries), 0, entries)

    def test_notifications_that_a_send_requests(self):
        for check in ("notifications_asked_for_before_connecting", "notifications_asked_for_later"):
            with self.subTest(check):
                self.assertGreaterEqual(self.demoted(check), 1)

    def test_a_ring_takes_what_is_named_in_it(self):
        for check, ends in (("a_ring_reads_one_connection", 2), ("a_ring_that_knows_a_connection", 2),
                            ("a_ring_for_sockets", 4), ("a_ring_for_files", 2)):
            with self.subTest(check):
                self.assertIn(self.demoted(check), (ends, 0))  # where there are no rings


class Reasons(Lister):
    def whys(self, script):
        return sorted(row["why_not"] for row in self.rows_of(self.talker("c, s = pair(); talk(c, s)\n" + script)))

    def test_the_list_has_each_reason(self):
        for script, why in (
                ("d = os.dup(2); os.dup2(s.fileno(), 2); os.dup2(d, 2)", "used through stdio"),
                ("a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [s.fileno()])",
                 "sent to another process"),
                ("s.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)",
                 "socket option that pipes can not honour"),
                ("os.set_inheritable(s.fileno(), True)\n"
                 "if os.fork() == 0: os.execv('/bin/true', ['true'])\n"
                 "os.wait()", "passed to another program by exec"),
                ("e = select.epoll(); outer = [select.epoll() for _ in range(5)]\n"
                 "for one in outer: one.register(e, 1)\n"  # more than the library records of a set without members
                 "e.register(s, 1)", "in an epoll set that is in another")):
            with self.subTest(why):
                again = "talk(c, s); talk(s, c)\n"
                whys = self.whys("%s\n%sready()" % (script, again))
                self.assertEqual(whys, sorted([why, "peer returned to the kernel"]))


class PlainPeers(Case):
    def test_a_static_server(self):
        port = free_port()
        server = self.start([STATIC, "serve", str(port)], port=port)
        self.run_client([STREAM, "echo", self.address, str(port), str(4 << 20), "3"])
        self.finish(server)
        (entry,) = self.lines()
        self.assertEqual(entry["accelerated"], 0)
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})

    def test_a_go_server(self):
        port = free_port()
        server = self.start([go_program(), "serve", "%s:%d" % (self.address, port)], port=port)
        self.run_client([STREAM, "echo", self.address, str(port), str(4 << 20), "3"])
        self.finish(server)
        (entry,) = self.lines()
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})

    def test_a_go_client(self):
        port = free_port()
        server = self.start([STREAM, "serve", self.address, str(port), "1"], port=port)
        self.run_client([go_program(), "talk", "%s:%d" % (self.address, port), str(4 << 20)])
        self.finish(server)
        (entry,) = self.lines()
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})

    def test_a_setuid_program_is_a_plain_one(self):
        """ld.so(8) ignores a preload that is not itself setuid where privileges change."""
        if os.geteuid() != 0:
            self.skipTest("only root can make such a file")
        copy = os.path.join(self.folder, "stream")
        with open(STREAM, "rb") as source, open(copy, "wb") as target:
            target.write(source.read())
        os.chown(copy, 65534, 65534)
        os.chmod(copy, 0o6755)
        os.chmod(self.folder, 0o755)
        port = free_port()
        server = self.start([copy, "serve", self.address, str(port), "1"], port=port)
        self.run_client([STREAM, "echo", self.address, str(port), str(1 << 20), "3"])
        self.finish(server)
        (entry,) = self.lines()
        self.assertEqual(entry["not_accelerated"], {"peer is a plain program": 1})


if __name__ == "__main__":
    lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Calls drawn at random are answered over pipes as over kernel TCP."""
import unittest

import lab
from random_calls import answers, differences

FIRST = 1
ROUNDS = 60
# Handlers of signals, cancellation, clone(), splice().
KINDS = (3000000, 4000000, 5000000, 6000000)
# Those that found something: an error taken by a call that had bytes to return; an edge by the close of a connection
# that had been reset; FIONREAD of bytes in the kernel on both sides of those in the pipe; a wait for more than one
# byte, and edges of a set in a set, after the change to the kernel; an end by a child as an edge; SO_RCVLOWAT of a
# connection that was reset; the kernel's bytes when it gets a connection back during a wait on its set; bytes
# that it had before pipes came as an edge after them; both ends going back, one after the other; a child that exits
# last; an end right after a poll; an error that a call has taken, and an edge of a set in a set, when the connection
# goes back; a signal that only ppoll() lets in; FIONREAD when what an end took back goes on by the kernel; bytes read
# without a look, as an edge for room; shutdown() after going back; when the kernel acknowledges a FIN; the
# reset of what is shut both ways; numbers that are closed before others; splice() to no pipe; an event that is
# reported twice, or never, when the connection goes back; SO_RCVLOWAT after both have ended, one by the kernel; TCP_INQ after FIN and after RST, with
# and without unread bytes; a registration that only the kernel knows; a one-shot one that was reported, by another
# number; edges by shutdown() and SO_RCVLOWAT before a number changes; connect() of what has ended, by pipes or by the
# kernel; few places, and bells in them; a time limit below zero, and FIN before pipes; SO_RCVLOWAT
# after a reset that a call has reported; bytes of the kernel's that came and were read without a look before it went back;
# a number that is a copy's again, for a while, after going back; the kernel's events of a young connection beside others; the
# close of a peer after a reset; an end that goes back and has never written; a reset, and an end that no call has
# polled, in a set in a set; an edge that is reported twice when a connection has gone back; what MSG_MORE holds back when
# pipes come; a copy onto a number that is the connection's already, which closes none; poll() on a set with
# a connection that can not go back; an edge when the number by which a connection is in a set is closed, and a copy is
# open; a one-shot event, reported, of a connection that can not go back, in a set that is polled; shutdown() by a child
# that clone() made, as an edge of the end itself; bytes by the kernel that were read before the set was asked, as an
# edge for room.
FOUND = (537, 1974, 7002, 7501, 1000076, 1000132, 1000063, 1000166, 1000196, 1000007, 1000172, 1000122, 1000218,
         1000247, 1000161, 1000294, 1001061, 1003084, 1003431, 1006462, 1006740, 1008508, 1028, 1000106,
         1012161, 4438, 2000013, 2000016, 2000020, 2000025, 2000037, 2000040, 2000131, 2000215,
         2000254, 6048, 2000033, 2000182, 2000407, 2000490, 2010237, 2010824, 2010243, 2000666, 2000994, 2001319,
         2010918, 2000774, 2001028, 2010219, 387392, 2000829, 2001785, 3812, 1060083,
         2110054, 397268, 397722, 2110590, 399589, 2130130, 2712568, 1712945, 1713435, 2131351, 1720185, 11005693,
         17000649, 18000384, 542, 2001324, 90180, 5090033, 120003)

# ... and in a process that has made others before: whether a set that is no more was full; a place that is taken by
# one bell after the other.
FOUND_AFTER_OTHERS = ((2100097, 2), (2100210, 2))


class Calls(unittest.TestCase):
    def test_they_are_answered_alike(self):
        self.assertEqual(differences(FIRST, ROUNDS), [])

    def test_calls_of_each_kind_are_answered_alike(self):
        for first in KINDS:
            with self.subTest(first):
                self.assertEqual(differences(first, 15), [])

    def test_what_was_answered_otherwise_once(self):
        for seed in FOUND:
            with self.subTest(seed):
                self.assertEqual(differences(seed, 1), [])

    def test_what_was_answered_otherwise_after_others(self):
        for seed, rounds in FOUND_AFTER_OTHERS:
            with self.subTest(seed):
                self.assertEqual(differences(seed, rounds), [])

    def test_it_is_many_calls(self):
        """Of each kind, and to the end: the ends of connections are answers, too."""
        lines = [line for of_one in answers(FIRST, ROUNDS).values() for line in of_one]
        self.assertGreater(len(lines), 30 * ROUNDS)
        for part in ("EPIPE", "ECONNRESET", "EAGAIN", "ESPIPE", "ENOTCONN", "epoll_wait(set 2) 0x11", "shutdown", "close"):
            self.assertTrue(any(part in line for line in lines), part)
        self.assertFalse(any("not all" in line for line in lines))


if __name__ == "__main__":
    lab.main()

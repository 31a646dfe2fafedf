#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Random calls on connections over kernel TCP and over pipes: every result must be the same, to the last bit.

usage: random_calls.py [--rounds N] [--seed S] [--jobs N]

Prints for each connection whose calls were answered differently the first such call, and how to repeat it. Exit code 1
when there is one. A difference that does not repeat, most often one of the machine's timing, is printed with "once" and
counted apart.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import time

import lab
from lab import BIN, HANG_S, PRELOAD

PROGRAM = os.path.join(BIN, "tests", "prog_random_calls")
BATCH = 50
# Calls wait nearly all of the time, for limits of milliseconds.
JOBS = 8 * (os.cpu_count() or 1)
# When connections get pipes: after 4 calls, or with the first byte.
WAYS = ("4", "0")
# Maximum of edges for each set of a connection that the kernel does not report, before a direction ends.
EDGES_TOO_MANY = 2


def answers(seed, rounds, after=None):
    """seed -> lines"""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if after is not None:
        env.update(LD_PRELOAD=PRELOAD, VIADUCT_SOCKETS_AFTER=after)
    try:
        out = subprocess.run([PROGRAM, str(seed), str(rounds)], env=env, stdout=subprocess.PIPE, text=True,
                             timeout=4 * HANG_S, check=False).stdout
    except subprocess.TimeoutExpired as hung:
        out = (hung.stdout or b"").decode()
    found, lines = {}, []
    for line in out.splitlines():
        if line.startswith("seed "):
            lines = found.setdefault(int(line.split()[1]), [])
        else:
            lines.append(line)
    return found


def last_poll(call, before):
    """The line of the last call of this kind."""
    return next((one for one in reversed(before) if call in one), "")


def is_extra_edge(line, other, before):
    """poll() on a set of edges, when pipes come: the kernel keeps the edge that the library's epoll_wait() reported
    itself just before, and drops it only in an epoll_wait() of its own, which would take the events of other
    descriptors, too. The same of a set in a set, of which bytes that still come by the kernel are reported by the
    kernel and by the library, at the next poll."""
    call = line.partition(": ")[2].partition(" 0 = 0")[0]
    return ("poll(set 1) 0 = 0" in line and "poll(set 1) 0x1 = 1" in other) or \
        (call.endswith("epoll_wait(set 6)") and "(set 6) 0x1 = 1" in other and "0x1 = 1" in last_poll(call, before))


GOES_BACK = ("passed to itself", "another program's", "rare option", "back to the kernel", "poll(set ", ", permanently")
PEEK, DONTWAIT, WAITALL = 0x2, 0x40, 0x100


def returns_to_kernel(one):
    """True if this call returns its connection to the kernel. So does a call that waits for all bytes and leaves them
    there (ADR 60), poll() on a set, and closing the number by which it is in a set while a copy is open (ADR 70)."""
    flags = re.search(r"recv by \d+ \(\d+ in \d+, (0x[0-9a-f]+)\)", one)
    return any(call in one for call in GOES_BACK) or \
        (flags is not None and int(flags[1], 16) & (PEEK | DONTWAIT | WAITALL) == PEEK | WAITALL)


def may_report_edge(events, call, before):
    """True if a connection has returned to the kernel since the last check; or before, and bytes have arrived: unread
    bytes are sent again, maybe later. The edge of the change may also be reported twice: by the library's epoll_wait(),
    which answers without the kernel if it can, and by the kernel, which keeps the edge until it is asked. epoll(7):
    "receiving an event from epoll_wait(2) should suggest to you that such file descriptor is ready for the requested
    I/O operation. You must consider it ready until the next (nonblocking) read/write yields EAGAIN." So an edge too
    many is allowed where the descriptor is ready, and makes programs find nothing new; a missing edge is not
    allowed."""
    twice = False
    for one in reversed(before):
        if returns_to_kernel(one):
            return True
        if call in one and (events & 1) == 0:
            reported = int(one.partition(call)[2].split()[0], 16)
            if twice or reported & events != events:
                return False
            twice = True
    return False


def is_edge_of_change(line, other, before):
    """An additional edge is allowed, a missing one is not. When a connection returns to the kernel its registration
    changes, which the kernel reports as an edge, also through a set in a set. And unread bytes are sent again: they
    arrive twice."""
    call = line.partition(": ")[2].partition(" 0 = 0")[0]
    return call.endswith(("epoll_wait(set 1)", "epoll_wait(set 4)", "epoll_wait(set 6)")) and other.endswith(" = 1 ") and \
        may_report_edge(int(other.partition(") ")[2].split()[0], 16), call, before)


def events_of_both(line):
    """The events of each end, in a call on the set that has both ends."""
    words = line.split(") ")[1].split() if "epoll_wait(both " in line else []
    return [int(word, 16) for word in words[:2]]


def is_edge_of_change_of_both(line, other, before):
    """The same for the set that has both ends, whichever call polls: an additional edge of either end is allowed."""
    expected, got = events_of_both(line), events_of_both(other)
    return "(both 1)" in line and len(got) == 2 and all(
        one == two or (one == 0 and may_report_edge(two, "epoll_wait(both 1)", before)) for one, two in zip(expected, got))


def is_fewer_of_both(line, other, before):
    """The kernel reports a copy that the library does not know, and a connection that has returned, with the program's
    data, which several registrations may share. When the library's descriptors have taken entries of the result, the
    kernel can not be asked twice: it would report level-triggered events again. So one of several events may be left
    for the next call."""
    expected, got = events_of_both(line), events_of_both(other)
    return "(both 0)" in line and len(got) == 2 and line.endswith(" = 2 ") and other.endswith(" = 1 ") and \
        all(two in (0, one) for one, two in zip(expected, got)) and any(returns_to_kernel(one) for one in before)


def is_end_of_copy(line, other, before):
    """The socket's number has become that of a copy which the library does not know. From then on the registration is
    the kernel's, which can not be given the fact that its one-shot event has been reported: so the kernel reports the
    end nevertheless."""
    ends = (("epoll_wait(set %d) 0 = 0", "0x10"), ("epoll_wait(set %d) 0 = 0", "0x18"), ("poll(set %d) 0 = 0", "0x1"))
    spent = any(call % number in line and other.endswith(" %s = 1 " % end) for number in (2, 4) for call, end in ends)
    return spent and any("passed to itself" in one for one in before)


def too_many(line, other):
    """How many edges the library has reported that the kernel has not, and in which set. It does so when a connection
    gets pipes, or while bytes still go through the kernel: it does not count which of these bytes it has reported (ADR 79).
    epoll(7) allows it; a missing edge is not allowed. And poll() on a set with a one-shot registration that was
    reported: the kernel reports ends whatever a registration asks for, until epoll_wait() finds nothing."""
    got = re.fullmatch(r"\d+: (.*epoll_wait\(set [146]\)) (0x[0-9a-f]+)(| \2) = [12] ", other)
    if got is not None:
        first, edges = "%s: %s " % (line.partition(":")[0], got[1]), 2 if got[3] else 1
        if line == first + "0 = 0 ":
            return got[1], edges
        if line == first + got[2] + " = 1 ":
            return got[1], edges - 1
    polled = re.fullmatch(r"\d+: (.*poll\(set [24]\)) 0x1 = 1 ", other)
    if polled is not None and line.endswith(polled[1] + " 0 = 0 "):
        return polled[1], 1
    one, two = events_of_both(line), events_of_both(other)
    if "(both 1)" in line and len(two) == 2 and all(a in (0, b) for a, b in zip(one, two)):
        return "both 1", 1
    return None, 0


def is_same(expected, number, got):
    line, other = expected[number], got[number]
    accepted = (is_extra_edge, is_edge_of_change, is_edge_of_change_of_both, is_fewer_of_both, is_end_of_copy)
    return line == other or any(is_one(line, other, expected[:number]) for is_one in accepted)


def edges_allowed(before):
    """What the kernel reports by one edge, the library may report by two: one for the pipe, one for the kernel's connection.
    That happens when this end gets pipes, when the peer's bytes come by the kernel and then by the pipe, and when a
    direction ends, by a record and by the kernel's FIN."""
    ends = sum(end in one and one.endswith(" = 0 ") for one in before for end in (" close", " half close(", " shutdown("))
    return EDGES_TOO_MANY + min(ends, 2)


def is_polled_once_more(line, before):
    """poll() on a set that the call before has polled, too: only epoll_wait() takes an event out of the set."""
    call = re.match(r"\d+: ((\S) poll\((set \d)\)) 0 = 0", line)
    earlier = [one for one in before if call is not None and ": %s " % call[2] in one and "(%s)" % call[3] in one]
    return bool(earlier) and call[1] in earlier[-1]


def first_difference(expected, got):
    edges = collections.Counter()
    for number, line in enumerate(expected):
        if number >= len(got):
            return line, "(nothing)"
        if is_same(expected, number, got):
            continue
        where, count = too_many(line, got[number])
        if where is not None and is_polled_once_more(line, expected[:number]):
            continue
        edges[where] += count
        if where is None or edges[where] > edges_allowed(expected[:number]):
            return line, got[number]
    return None if len(got) == len(expected) else ("(nothing)", got[len(expected)])


def differs(seed, rounds, one, after):
    """The answers (TCP, pipes) of one seed when as many rounds are run once more from the first one."""
    return first_difference(answers(seed, rounds).get(one, []), answers(seed, rounds, after).get(one, []))


def compare(seed, rounds):
    """Seeds that are answered differently: (seed, after, (TCP, pipes), first round that repeats it, or None). Each is
    run again alone; if it does not repeat, after the same rounds as before, because the process's earlier calls may
    matter."""
    found = []
    expected = answers(seed, rounds)
    for after in WAYS:
        got = answers(seed, rounds, after)
        for one in range(seed, seed + rounds):
            seen = first_difference(expected.get(one, []), got.get(one, []))
            if seen is None:
                continue
            for first in dict.fromkeys((one, seed)):
                again = differs(first, one - first + 1, one, after)
                if again is not None:
                    break
            found.append((one, after, again or seen, first if again else None))
    return found


def differences(seed, rounds):
    """The seeds that are answered differently again."""
    return [one for one in compare(seed, rounds) if one[3] is not None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1000000,
                        help="from 1000000 on: more kinds of calls; from 2000000 on: still more; beside those from "
                             "1000000 on, 3000000: in handlers of signals, 4000000: cancelled, 5000000: in children "
                             "by clone(), 6000000: splice() and sendfile()")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at a time (default: %(default)s)")
    args = parser.parse_args()
    end = args.seed + args.rounds
    wrong = once = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        seeds = range(args.seed, end, BATCH)
        for found in pool.map(compare, seeds, (min(BATCH, end - seed) for seed in seeds)):
            for one, after, (expected, got), first in found:
                wrong += first is not None
                once += first is None
                print("seed %d, VIADUCT_SOCKETS_AFTER=%s%s: %s %d %d\n    kernel %s\n    pipes  %s" % (
                    one, after, "" if first is not None else ", once", PROGRAM, first or one, one - (first or one) + 1,
                    expected, got), flush=True)
    print("%d connections from seed %d: %d answered differently, %d once" % (args.rounds, args.seed, wrong, once))
    return 1 if wrong else 0


if __name__ == "__main__":
    lab.begin()
    sys.exit(main())

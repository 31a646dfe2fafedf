# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""TCP sockets of this network namespace, as sock_diag(7) reports them.

A read of /proc/net/tcp takes 6 ms of CPU time on a machine with many gigabytes of memory, because the kernel visits every bucket of its table of
connections. Here the kernel visits listening sockets only, if only these are requested.
"""
import contextlib
import socket
import struct

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST, NLM_F_DUMP = 1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
ESTABLISHED, LISTEN = 1, 10
HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBBI48x")  # struct inet_diag_req_v2
ANSWER = struct.Struct("!4xHH")  # struct inet_diag_msg, up to the ports


def ports_of(family, state):
    """The local ports of the TCP sockets of a family that are in this state. OSError if the kernel does not report them."""
    found = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as netlink:
        request = REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << state)
        netlink.send(HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + request)
        while True:
            data = netlink.recv(1 << 16)
            at = 0
            while at < len(data):
                length, kind = HEADER.unpack_from(data, at)[:2]
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    raise OSError(-struct.unpack_from("=i", data, at + HEADER.size)[0], "sock_diag")
                found.add(ANSWER.unpack_from(data, at + HEADER.size)[0])
                at += (length + 3) & ~3


def ports_in_table(family, state):
    """The same from the tables of proc(5)."""
    found = set()
    path = "/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp"
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as lines:  # a kernel without IPv6
        for fields in map(str.split, lines):
            if len(fields) > 3 and fields[3] == "%02X" % state:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def has_socket(port, state):
    """True if a TCP socket of this local port is in this state."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            ports = ports_of(family, state)
        except OSError:  # a kernel without sock_diag
            ports = ports_in_table(family, state)
        if port in ports:
            return True
    return False

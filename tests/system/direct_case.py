# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of processes that have direct connections to the host of a neighbour: two daemons with a link over libfabric, and the
library in this process."""
import ctypes
import os
import re
import signal
import socket
import sys

import cli
import ofi_case

MIB = 1 << 20
READ, WRITE = 1, 2
NOTIFY, LAST_WORD = 1, 2
ADD = 1

# A thread that polls would keep the interpreter from the others for 5 ms at a time, and a test of 1 s would take 20.
sys.setswitchinterval(1e-5)

via = ctypes.CDLL(os.path.join(cli.BIN, "libviaduct.so"))
via.via_error_text.restype = ctypes.c_char_p
via.via_segment_handle.restype = ctypes.c_uint64
via.via_segment_base.restype = ctypes.c_void_p


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rundir", ctypes.c_char_p), ("host", ctypes.c_int), ("channel", ctypes.c_int)]


def error():
    return via.via_error_text().decode()


class Attach:
    """Of this process to a host."""

    def __init__(self, rundir, host):
        self.pointer = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), rundir.encode(), host, -1)
        if via.via_attach_open(ctypes.byref(options), ctypes.byref(self.pointer)) != 0:
            raise OSError(error())

    def quiet(self):
        return via.via_attach_quiet(self.pointer)

    def close(self):
        if self.pointer:
            via.via_attach_close(self.pointer)
            self.pointer = None


class Segment:
    def __init__(self, attach, size, access=READ | WRITE):
        self.pointer = ctypes.c_void_p()
        if via.via_segment_new(attach.pointer, ctypes.c_size_t(size), access, ctypes.byref(self.pointer)) != 0:
            raise OSError(error())
        self.size = size
        self.handle = via.via_segment_handle(self.pointer)
        self.memory = (ctypes.c_char * size).from_address(via.via_segment_base(self.pointer))

    def bytes_at(self, off, size):
        return self.memory[off:off + size]

    def word(self, off=0):
        return int.from_bytes(self.bytes_at(off, 8), "little")

    def free(self):
        via.via_segment_free(self.pointer)


class Remote:
    def __init__(self, attach, host, handle, size):
        self.pointer = ctypes.c_void_p()
        self.size = size
        if via.via_remote_open(attach.pointer, host, ctypes.c_uint64(handle), ctypes.c_size_t(size), ctypes.byref(self.pointer)) != 0:
            raise OSError(error())

    def connect(self):
        return via.via_remote_connect(self.pointer)

    def put(self, off, data, flags=0):
        return via.via_remote_put(self.pointer, ctypes.c_uint64(off), data, ctypes.c_size_t(len(data)), flags)

    def try_put(self, off, data, flags=0):
        return via.via_remote_try_put(self.pointer, ctypes.c_uint64(off), data, ctypes.c_size_t(len(data)), flags)

    def put_word(self, off, word):
        return self.put(off, word.to_bytes(8, "little"))

    def get(self, off, size):
        data = ctypes.create_string_buffer(size)
        rc = via.via_remote_get(self.pointer, ctypes.c_uint64(off), data, ctypes.c_size_t(size))
        return data.raw if rc == 0 else rc

    def add_start(self, off, value):
        return via.via_remote_atomic_start(self.pointer, ctypes.c_uint64(off), 8, ADD, ctypes.c_uint64(value), ctypes.c_uint64(0), None)

    def add(self, off, value):
        old = ctypes.c_uint64()
        rc = via.via_remote_atomic(self.pointer, ctypes.c_uint64(off), 8, ADD, ctypes.c_uint64(value), ctypes.c_uint64(0), ctypes.byref(old))
        return old.value if rc == 0 else rc

    def close(self):
        via.via_remote_close(self.pointer)


def sockets_to(port, address):
    """The sockets of this process that are connected there."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                continue
            one = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            if one.family == socket.AF_INET and one.getpeername() == (address, port):
                found.append(one)
                continue
        except OSError:
            pass
        one.close()
    return found


class Case(ofi_case.Case):
    def setUp(self):
        super().setUp()
        self.attached = {}

    def start(self, *more):
        self.daemon(2, [1], *more)
        self.daemon(1, [2], *more)
        self.assert_state(1, "up")
        self.assert_state(2, "up")

    def stop(self, host):
        """Suspends the host's daemon. Its threads may run for a while after kill(), and apply a put meanwhile."""
        pid = self.daemons[host].pid
        os.kill(pid, signal.SIGSTOP)

        def are_stopped():
            states = []
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/stat" % (pid, task), encoding="ascii") as stat:
                    states.append(stat.read().rpartition(")")[2].split()[0])
            return set(states) == {"T"}
        self.assertTrue(cli.wait_for(are_stopped))

    def attach(self, host):
        """A new attachment, once its host reaches the other one."""
        attach = Attach(self.rundir, host)
        self.addCleanup(attach.close)
        self.assertTrue(cli.wait_for(lambda: via.via_attach_hops(attach.pointer, 3 - host) == 1), error())
        return attach

    def pair(self, size=MIB, access=READ | WRITE):
        """Attachments to both hosts, memory of host 2, and a remote of host 1 with a direct connection."""
        owner, user = self.attach(2), self.attach(1)
        segment = Segment(owner, size, access)
        remote = Remote(user, 2, segment.handle, size)
        self.assertEqual(remote.connect(), 0, error())
        return owner, user, segment, remote

    def counter(self, host, name):
        return self.send_request(host, cmd="status")["counters"][name]

    def frames(self):
        return self.link_of(1)["frames_sent"]

    def assert_connections(self, count):
        self.assertTrue(cli.wait_for(lambda: self.counter(2, "direct_connections") == count), self.counter(2, "direct_connections"))

    def listeners(self, host):
        """Ports of the daemon of a host but the link's."""
        with open("/proc/%d/net/tcp" % self.daemons[host].pid, encoding="ascii") as table:
            address = "%08X" % int.from_bytes(socket.inet_aton(self.address(host)), "little")
            return [int(port, 16) for port in re.findall(r": %s:([0-9A-F]{4}) 00000000:0000 0A" % address, table.read())
                    if int(port, 16) != 7471]

# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A viaduct-ip that breaks the protocol, through the client library. Run by test_ip.py on a host whose own
viaduct-ip has ended: ip_hostile.py LIBRARY HOST VICTIM BYSTANDER. Prints the received frames."""
import ctypes
import os
import struct
import sys
import time

ENDPOINT = 0xfffffe00
OFFER, ACCEPT, ASK = 1, 2, 3
DATA = 4096
RING = 1 << 18
HELLO = struct.Struct("<IHHQQQIHH")
SKIP = 0xffffffff


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rundir", ctypes.c_char_p), ("host", ctypes.c_int),
                ("channel", ctypes.c_int)]


class Info(ctypes.Structure):
    _fields_ = [("source_host", ctypes.c_uint16), ("source_endpoint", ctypes.c_uint32),
                ("endpoint", ctypes.c_uint32), ("bytes", ctypes.c_uint32)]


class Peer:
    def __init__(self, library, host, victim):
        self.lib = ctypes.CDLL(library)
        for name in ("via_segment_base", "via_error_text"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.via_segment_handle.restype = ctypes.c_uint64
        self.victim = victim
        self.attach = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), os.environb[b"VIADUCT_RUNDIR"], host, -1)
        self.good(self.lib.via_attach_open(ctypes.byref(options), ctypes.byref(self.attach)))
        self.good(self.lib.via_endpoint_open(self.attach, ctypes.c_uint32(ENDPOINT)))

    def good(self, code):
        if code < 0:
            sys.exit("%d: %s" % (code, ctypes.string_at(self.lib.via_error_text()).decode()))
        return code

    def send_hello(self, kind, session, handle=0, ring=0, raw=None):
        data = raw if raw is not None else HELLO.pack(0x50494156, 1, kind, session, handle, ring, 3, 1, 0)
        self.good(self.lib.via_message_send(self.attach, self.victim, ctypes.c_uint32(ENDPOINT),
                                            ctypes.c_uint32(ENDPOINT), data, ctypes.c_size_t(len(data))))

    def offer(self):
        """The victim's next offer: session, handle, bytes of its ring."""
        buffer = ctypes.create_string_buffer(4096)
        info = Info()
        for _ in range(100):
            self.good(self.lib.via_message_receive(self.attach, buffer, ctypes.c_size_t(4096), 20000,
                                                   ctypes.byref(info)))
            hello = HELLO.unpack(buffer.raw[:HELLO.size])
            if hello[2] == OFFER and info.source_host == self.victim:
                return hello[3:6]
        sys.exit("no offer")

    def meet(self):
        self.segment = ctypes.c_void_p()
        self.good(self.lib.via_segment_new(self.attach, ctypes.c_size_t(DATA + RING), 3,
                                           ctypes.byref(self.segment)))
        self.base = self.lib.via_segment_base(self.segment)
        session, handle, self.ring = self.offer()
        self.remote = ctypes.c_void_p()
        self.good(self.lib.via_remote_open(self.attach, self.victim, ctypes.c_uint64(handle),
                                           ctypes.c_size_t(DATA + self.ring), ctypes.byref(self.remote)))
        self.send_hello(ACCEPT, session, self.lib.via_segment_handle(self.segment), RING)
        self.tail = 0

    def put(self, off, data):
        self.good(self.lib.via_remote_put(self.remote, ctypes.c_uint64(off), data,
                                          ctypes.c_size_t(len(data)), 1))

    def publish(self, tail):
        self.put(0, struct.pack("<Q", tail))

    def send(self, frame, length=None):
        record = struct.pack("<IH", len(frame) if length is None else length, 0) + frame
        self.put(DATA + self.tail, record)
        self.tail += (len(record) + 63) // 64 * 64
        self.publish(self.tail)

    def received(self):
        """Bytes that the victim has published for this program."""
        return ctypes.c_uint64.from_address(self.base).value

    def wait_received(self, more):
        deadline = time.monotonic() + 20
        while self.received() < more:
            if time.monotonic() > deadline:
                sys.exit("the victim has published nothing")
            time.sleep(0.01)


def udp(source, target, port=7001, payload=b"hello"):
    header = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0)
    addresses = bytes([10, 78, 0, source, 10, 78, 0, target])
    words = struct.unpack("!10H", header + addresses)
    total = sum(words)
    total = (total & 0xffff) + (total >> 16)
    checksum = 0xffff - (total & 0xffff) - (total >> 16)
    ip = header[:10] + struct.pack("!H", checksum) + addresses
    return bytes(10) + ip + struct.pack("!HHHH", 7002, port, 8 + len(payload), 0) + payload


def main():
    library, host, victim, bystander = sys.argv[1], *map(int, sys.argv[2:5])
    peer = Peer(library, host, victim)
    for raw in (b"", b"x", bytes(40), b"\xff" * 40, b"\xff" * 4000,
                HELLO.pack(0x50494156, 2, ASK, 0, 0, 0, 0, 1, 0),
                HELLO.pack(0x50494156, 1, OFFER, 7, 7, RING, 0, 1, 0),  # only the victim may choose the session
                HELLO.pack(0x50494156, 1, ACCEPT, 7, 7, RING, 0, 1, 0)):
        peer.send_hello(0, 0, raw=raw)
    peer.send_hello(ASK, 0)
    peer.meet()
    good = udp(host, victim)
    peer.send(good)
    peer.wait_received(64)
    print("answered")
    peer.send(udp(bystander, victim))  # spoofed
    peer.send(udp(192, victim))
    peer.send(udp(host, bystander))  # foreign
    peer.send(good[:-1])  # malformed
    peer.send(good[:20])
    peer.send(b"\0")
    peer.send(bytes(10) + b"\x60" + bytes(100))
    peer.send(bytes([1, 0, 0, 0, 0, 0, 255, 255, 6, 0]) + good[10:])  # offload
    peer.send(bytes([0, 1, 0, 0, 8, 0, 20, 0, 6, 0]) + good[10:])
    peer.send(bytes([0xff] * 10) + good[10:])
    before = peer.received()
    peer.send(good)
    peer.wait_received(before + 64)
    print("answered")
    for breaks in (lambda: peer.publish(peer.tail + 1),
                   lambda: peer.publish((1 << 64) - 64),
                   lambda: peer.send(good, length=0),
                   lambda: peer.send(good, length=SKIP - 1),
                   lambda: peer.send(good, length=70000)):
        breaks()
        peer.meet()  # a new session is offered
        peer.send(good)
        peer.wait_received(64)
        print("answered")
    # The credit is for frames that were never sent.
    peer.put(64, struct.pack("<Q", 1 << 40))
    print("end")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A wire with a delay and losses between two network interfaces, for kernels without netem.

usage: machines_relay.py INTERFACE INTERFACE --delay-ms MS --loss PERCENT [--jitter-ms MS] [--seed N]

Frames that arrive at one interface leave at the other. A frame may have up to 64 KiB (the virtio_net_hdr of packet(7)
says which segmentation and checksums remain to be done), so a loss drops all that the sender's kernel gave to the
interface at once. Both directions are delayed. The relay ends with its parent.
"""
import argparse
import heapq
import os
import random
import select
import socket
import sys
import time

import machines_kernel as kernel

SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_OUTGOING = 4
ETH_P_ALL = 3
VNET_HDR_BYTES = 10
FRAME_BYTES_MAX = VNET_HDR_BYTES + (1 << 16) + 64
# Bytes that may wait; further frames are lost, as in any full queue.
QUEUE_BYTES_MAX = 64 << 20
QUEUE_FRAMES_MAX = 100000
BATCH = 64


def attach(interface):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 20)
    end.bind((interface, ETH_P_ALL))
    end.setblocking(False)
    return end


class Wire:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.queue = []
        self.queue_bytes = 0
        self.count = 0
        self.last = {}

    def take(self, source, target):
        """Reads a bounded number of frames from an interface, and gives each the time at which it is sent on."""
        for _ in range(BATCH):
            try:
                frame, address = source.recvfrom(FRAME_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the interface is down
                return
            if address[2] == PACKET_OUTGOING or self.random.random() * 100 < self.options.loss:
                continue
            if self.queue_bytes + len(frame) > QUEUE_BYTES_MAX or len(self.queue) >= QUEUE_FRAMES_MAX:
                continue
            jitter = self.random.random() * self.options.jitter_ms
            due = time.monotonic() + (self.options.delay_ms + jitter) / 1e3
            due = self.last[target] = max(due, self.last.get(target, 0))  # a wire does not reorder
            self.count += 1
            self.queue_bytes += len(frame)
            heapq.heappush(self.queue, (due, self.count, target, frame))

    def give(self):
        """Sends the frames that are due; returns the seconds until the next, None if none waits."""
        now = time.monotonic()
        while self.queue and self.queue[0][0] <= now:
            _, _, target, frame = heapq.heappop(self.queue)
            self.queue_bytes -= len(frame)
            try:
                target.send(frame)
            except OSError:  # full, or down: lost
                pass
        return self.queue[0][0] - now if self.queue else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("interface", nargs=2)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--jitter-ms", type=float, default=0)
    parser.add_argument("--loss", type=float, default=0, help="percent")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ends = [attach(name) for name in options.interface]
    wire = Wire(options)
    poll = select.epoll()
    other = {ends[0].fileno(): (ends[0], ends[1]), ends[1].fileno(): (ends[1], ends[0])}
    for fd in other:
        poll.register(fd, select.EPOLLIN)
    kernel.set_name("relay")
    os.write(sys.stdout.fileno(), b"up\n")
    while True:
        wait = wire.give()
        for fd, _ in poll.poll(-1 if wait is None else max(wait, 0)):
            wire.take(*other[fd])


if __name__ == "__main__":
    main()

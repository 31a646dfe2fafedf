#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""A process on a host, by libviaduct: cli_attached.py LIBRARY hold BYTES | put HOST HANDLE BYTES | many COUNT.

hold registers BYTES of shared memory, prints the handle, and waits for a signal. put opens another process's segment,
prints "open", and puts its first bytes again and again until a put fails. many attaches COUNT times, prints COUNT, and
waits for a signal. After a failed call the program prints "code: text" and ends with exit code 1.
"""
import ctypes
import os
import signal
import sys
import time

READ_WRITE = 3


class Failure(Exception):
    """A call of the library failed."""


class Library:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.via_error_text.restype = ctypes.c_char_p
        self.calls.via_segment_handle.restype = ctypes.c_uint64

    def check(self, code):
        if code < 0:
            raise Failure("%s: %s" % (code, self.calls.via_error_text().decode()))

    def attach(self):
        attach = ctypes.c_void_p()
        self.check(self.calls.via_attach_open(None, ctypes.byref(attach)))
        return attach

    def segment(self, attach, size):
        segment = ctypes.c_void_p()
        self.check(self.calls.via_segment_new(attach, ctypes.c_size_t(size), READ_WRITE,
                                              ctypes.byref(segment)))
        return self.calls.via_segment_handle(segment)

    def remote(self, attach, host, handle, size):
        remote = ctypes.c_void_p()
        self.check(self.calls.via_remote_open(attach, host, ctypes.c_uint64(handle),
                                              ctypes.c_size_t(size), ctypes.byref(remote)))
        return remote

    def put(self, remote, data):
        self.check(self.calls.via_remote_put(remote, ctypes.c_uint64(0), data,
                                             ctypes.c_size_t(len(data)), 0))


def main():
    library = Library(sys.argv[1])
    attach = library.attach()
    if sys.argv[2] == "hold":
        print(library.segment(attach, int(sys.argv[3])), flush=True)
        signal.pause()
    if sys.argv[2] == "many":
        attachments = [attach] + [library.attach() for _ in range(int(sys.argv[3]) - 1)]
        print(len(attachments), flush=True)
        signal.pause()
    host, handle, size = (int(word) for word in sys.argv[3:6])
    remote = library.remote(attach, host, handle, size)
    print("open", flush=True)
    while True:
        library.put(remote, os.urandom(4096))
        library.check(library.calls.via_attach_quiet(attach))
        time.sleep(0.005)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(failure, flush=True)
        sys.exit(1)

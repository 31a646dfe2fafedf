# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of the preload between hosts of an emulated ring, of four hosts unless a test says otherwise."""
import contextlib
import os
import subprocess
import threading
import unittest

from lab import Case, HANG_S, VIADUCT

FABRIC = "sockets-%d" % os.getpid()
# True if processes map the memory of neighbours. They do not in fabrics whose links are like a class of real ones.
MAPS_MEMORY = os.environ.get("VIADUCT_UP_LIKE", "memory") == "memory"


def viaduct(*words):
    done = subprocess.run([VIADUCT, *words], capture_output=True, text=True, timeout=2 * HANG_S, check=False)
    if done.returncode != 0:
        raise AssertionError("viaduct %s: %s" % (" ".join(words), done.stderr or done.stdout))
    return done.stdout


def cut(a, b):
    viaduct("cut", "--fabric", FABRIC, a, b)


def mend(a, b):
    viaduct("mend", "--fabric", FABRIC, a, b)


@contextlib.contextmanager
def beside(disturb):
    """Calls disturb(stop) in another thread. At the end sets the event `stop`, and waits for the thread."""
    stop = threading.Event()
    thread = threading.Thread(target=disturb, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def keep_cutting(cut_s, mended_s, links=(("1", "2"),)):
    """A function for beside(): cuts one link after the other for `cut_s`, and mends it for `mended_s` before the next cut."""
    def disturb(stop):
        while not stop.is_set():
            for a, b in links:
                cut(a, b)
                stop.wait(cut_s)
                mend(a, b)
                stop.wait(mended_s)
    return disturb


class Hosts(Case):
    """The server on `server_host`, the client on host 1."""

    server_host = 2
    ring = 4
    up_words = ()

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(VIADUCT):
            raise unittest.SkipTest("%s is not built" % VIADUCT)
        viaduct("up", *(cls.up_words or ("--ring", str(cls.ring))), "--fabric", FABRIC)
        cls.addClassCleanup(viaduct, "down", "--fabric", FABRIC)

    def setUp(self):
        super().setUp()
        run = [VIADUCT, "run", "--fabric", FABRIC, "--host"]
        self.server_words = [*run, str(self.server_host), "--"]
        self.client_words = [*run, "1", "--"]
        self.address = "127.77.0.%d" % self.server_host

    def environment(self, preload, **more):
        return super().environment(False, **more)

    def by_frames(self, entries):
        return sum(e["bytes_frames_tx"] for e in entries) / sum(e["bytes_pipe_tx"] for e in entries)

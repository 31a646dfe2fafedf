#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Sockets and OpenSHMEM store through slices of the window wherever a port offers them: the hosts count such puts."""
import os
import subprocess
import sys

import cli

# Seconds for which each program runs: slices exist when both hosts have answered, which is slow on a busy machine.
SECONDS = 2
PUTS_MIN = 50

ECHO = """
import socket
listener = socket.create_server(("127.77.0.2", 7000))
print("ready", flush=True)
peer = listener.accept()[0]
while data := peer.recv(64):
    peer.sendall(data)
"""

ASK = """
import socket, time
peer = socket.create_connection(("127.77.0.2", 7000))
end = time.monotonic() + %d
turn = 0
while time.monotonic() < end:
    turn += 1
    peer.sendall(b"%%08d" %% turn)
    data = b""
    while len(data) < 8:
        data += peer.recv(64)
    assert data == b"%%08d" %% turn, (turn, data)
""" % SECONDS

PUT = """
#include <shmem.h>
#include <time.h>
int main(void)
{
    static long words[64];
    shmem_init();
    time_t end = time(NULL) + %d;
    for (long i = 1; shmem_my_pe() == 0 && time(NULL) <= end; i++) {
        shmem_long_p(&words[i %% 64], i, 1);
        shmem_fence();
    }
    shmem_barrier_all();
    int good = shmem_my_pe() == 0;
    for (int i = 1; shmem_my_pe() == 1 && i < 64; i++) {
        good |= words[i] %% 64 == i;
    }
    shmem_finalize();
    return !good;
}
""" % SECONDS


class Slices(cli.Case):
    def slice_puts(self):
        """Of host 1 and of host 2."""
        return [host["counters"]["slice_puts"] for host in self.status()["hosts"]]

    def run_sockets(self):
        run = [self.viaduct, "run", "--host"]
        server = subprocess.Popen([*run, "2", "--", sys.executable, "-c", ECHO], env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(server.stdout.readline(), "ready\n")
            done = subprocess.run([*run, "1", "--", sys.executable, "-c", ASK], env=self.env, capture_output=True, text=True,
                                  timeout=cli.HANG_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(server.wait(cli.HANG_S), 0)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def run_shmem(self):
        program = os.path.join(self.folder, "put")
        subprocess.run([os.path.join(cli.BIN, "oshcc"), "-x", "c", "-o", program, "-"], input=PUT, text=True, check=True,
                       timeout=cli.HANG_S)
        done = subprocess.run([os.path.join(cli.BIN, "oshrun"), "-n", "2", "--hosts", "1,2", program], env=self.env,
                              capture_output=True, text=True, timeout=cli.HANG_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def assert_slices_used(self, run, hosts):
        """The first `hosts` hosts count puts through slices. On a busy machine a run may end before its slices exist: then once more."""
        before = self.slice_puts()
        for _ in range(5):
            run()
            more = [now - then for now, then in zip(self.slice_puts(), before)][:hosts]
            if min(more) > PUTS_MIN:
                return
        self.fail(more)

    def test_puts_use_slices_where_a_port_offers_them(self):
        for like in ("pex", "ivshmem"):
            self.good("up", "--chain", "2", "--like", like)
            for what, run, hosts in (("sockets", self.run_sockets, 2), ("OpenSHMEM", self.run_shmem, 1)):
                with self.subTest(like, what=what):
                    self.assert_slices_used(run, hosts)
            self.good("down")

    def test_no_put_uses_slices_where_no_port_offers_them(self):
        self.good("up", "--chain", "2", "--like", "network")
        self.run_sockets()
        self.assertEqual(self.slice_puts(), [0, 0])
        self.good("down")


if __name__ == "__main__":
    cli.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Containers of one machine, each with namespaces of its own for network, mounts and processes. Each has a daemon outside, and
sees the run directory of its own daemon only. docs/install.md, "Sockets between containers"."""
import os
import subprocess

import lab
import test_between_machines as machines
from lab import HANG_S, PYTHON

PRELOAD = os.path.join(lab.BIN, "libviaduct-preload.so")
# The machine's /run is hidden, and with it every other run directory there.
ENTER = 'mount -t tmpfs tmpfs /run && mkdir /run/viaduct && { [ -z "$1" ] || mount --bind "$1" /run/viaduct; } && shift && exec "$@"'


class Containers(machines.Base):
    shows = {1: 1, 2: 2}  # {container: the host whose run directory it has}
    user = ()

    def daemon_words(self, host):
        return []  # on the machine itself

    def on(self, host):
        rundir = self.rundir(self.shows[host]) if host in self.shows else ""
        # A client in a pid namespace of its own, as in a container; a server is ended by its pid.
        pids = ["unshare", "--pid", "--fork", "--kill-child"] if host == 1 else []
        return ["ip", "netns", "exec", machines.NAMES[host - 1], *pids, "unshare", "--mount", "sh", "-c", ENTER, "sh", rundir,
                *(self.user if host == 1 else ()), "env", "LD_PRELOAD=" + PRELOAD]

    def set_words(self):
        self.server_words, self.client_words = self.on(2), self.on(1)

    def test_which_containers_get_pipes(self):
        self.assertEqual(self.assert_talk_by_pipes(), machines.V4 % 1)
        with self.subTest("a container without a run directory"):
            self.shows = {2: 2}
            self.set_words()
            self.assert_by_kernel()
        with self.subTest("another user"):
            os.chmod(self.folder, 0o777)
            self.shows = {1: 1, 2: 2}
            self.user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
            self.set_words()
            self.assert_by_kernel()

    def test_a_container_that_takes_an_address_of_another(self):
        # The container gives itself another one's address, and has its own daemon's run directory: a program there that
        # connects to that address reaches itself, and no pipe leads to another host.
        subprocess.run(["ip", "-n", machines.NAMES[0], "addr", "add", machines.V4 % 2 + "/32", "dev", "lo"], check=True,
                       timeout=HANG_S)
        self.addCleanup(subprocess.run, ["ip", "-n", machines.NAMES[0], "addr", "del", machines.V4 % 2 + "/32", "dev", "lo"],
                        check=False, timeout=HANG_S)
        script = ("import os, socket, sys\n"
                  "listener = socket.create_server(('%s', 0))\n"
                  "conn = socket.create_connection(listener.getsockname())\n"
                  "other = listener.accept()[0]\n"
                  "for _ in range(500):\n"
                  "    conn.sendall(bytes(1000)); assert other.recv(1000, socket.MSG_WAITALL) == bytes(1000)\n"
                  "    other.sendall(bytes(1000)); assert conn.recv(1000, socket.MSG_WAITALL) == bytes(1000)\n"
                  % (machines.V4 % 2))
        self.run_client([PYTHON, "-Sc", script])
        self.assertEqual(sum(e["bytes_frames_tx"] for e in self.lines()), 0)
        # The container that owns the address works as before.
        done = subprocess.run([*self.on(2), PYTHON, "-Sc", script], env=self.environment(False), capture_output=True, text=True,
                              timeout=HANG_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    lab.main()

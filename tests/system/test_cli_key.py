#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The fabric key: links between hosts with the same key come up; others are refused, with the reason."""
import json
import os
import socket
import subprocess

import cli


class Key(cli.Case):
    def key_file(self, name, data, mode=0o600):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        return path

    def daemon(self, host, peer, *more):
        side = "0" if host < peer else "1"
        daemon = subprocess.Popen(
            [os.path.join(cli.BIN, "viaductd"), "--foreground", "--rundir", self.rundir, "--host", str(host),
             "--link", "%d:%s:0" % (peer, side), *more], env=self.env, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        return daemon

    def link_of(self, host):
        """The host's status of its only link."""
        path = os.path.join(self.rundir, "host-%d.ctl" % host)
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(cli.HANG_S)
            try:
                control.connect(path)
            except OSError:
                return None
            control.sendall(b'{"cmd":"status"}\n')
            while not answer.endswith(b"\n"):
                piece = control.recv(65536)
                if not piece:
                    return None
                answer += piece
        return json.loads(answer)["links"][0]

    def assert_link(self, host, state, error):
        """Waits for both: after a peer was replaced by one with another mistake, the state is as before for a moment."""
        self.assertTrue(cli.wait_for(lambda: (link := self.link_of(host) or {}) and (link["state"], link["error"]) == (state, error)),
                        self.link_of(host))

    def test_a_fabric_with_a_key_works(self):
        key = self.key_file("key", os.urandom(32))
        self.good("up", "--ring", "3", "--key", key)
        for host in (1, 2, 3):
            self.assert_link(host, "up", "")
        self.down()

    def test_invalid_key_files_are_refused(self):
        for name, data, mode, expected in (
                ("open", os.urandom(32), 0o640, "other users may use it (mode 0640): chmod 600"),
                ("short", b"secret\n", 0o600, "has 7 bytes, a key has 32 to 4096"),
                ("long", bytes(4097), 0o600, "has 4097 bytes, a key has 32 to 4096")):
            path = self.key_file(name, data, mode)
            self.bad("up", "--ring", "2", "--key", path, expected=["host 1", "fabric key %s: %s" % (path, expected)])
            self.assert_nothing_left()
        gone = os.path.join(self.folder, "gone")
        self.bad("up", "--ring", "2", "--key", gone, expected="fabric key %s: No such file or directory" % gone)
        self.bad("up", "--ring", "2", "--key", self.folder, expected="fabric key %s: is no regular file" % self.folder)

    def test_hosts_without_the_key_are_refused(self):
        one = self.key_file("one", os.urandom(32))
        two = self.key_file("two", os.urandom(32))
        self.daemon(1, 2, "--key", one)
        other = self.daemon(2, 1, "--key", two)
        self.assert_link(1, "bad-key", "the peer's fabric key is not this host's")
        other.terminate()
        other.wait()
        other = self.daemon(2, 1)
        self.assert_link(1, "bad-key", "this host has a fabric key, the peer has none")
        self.assert_link(2, "bad-key", "the peer has a fabric key, this host has none")
        other.terminate()
        other.wait()
        self.daemon(2, 1, "--key", one)
        self.assert_link(1, "up", "")

    def test_both_ends_report_options_that_differ(self):
        self.daemon(1, 2)
        other = self.daemon(2, 1, "--hosts-max", "65")
        self.assert_link(1, "bad-fabric", "number of host ids (--hosts-max): 64 here, 65 at the peer")
        self.assert_link(2, "bad-fabric", "number of host ids (--hosts-max): 65 here, 64 at the peer")
        other.terminate()
        other.wait()
        other = self.daemon(2, 1, "--frame-bytes", "1024")
        self.assert_link(2, "bad-geometry", "largest frame in bytes (--frame-bytes): 1024 here, 32768 at the peer")
        other.terminate()
        other.wait()
        self.daemon(2, 1, "--slots", "4")
        self.assert_link(1, "up", "")
        self.assertEqual(self.link_of(1)["slots"], 4)


if __name__ == "__main__":
    cli.main()

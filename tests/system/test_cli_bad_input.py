#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Peers of another version, full memory, users without rights, processes killed while they hold shared memory: each
gives a clear error, and nothing is lost or left behind."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import cli

ATTACHED = os.path.join(cli.HERE, "cli_attached.py")
LIBRARY = os.path.join(cli.BIN, "libviaduct.so")
MEGABYTE = 1 << 20


class Versions(cli.Case):
    def setUp(self):
        super().setUp()
        wrapper = os.path.join(self.folder, "wrapper")
        with open(wrapper, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\n"
                         "case \" $* \" in *\" --host 2 \"*) set -- \"$@\" --protocol-version 99;; esac\n"
                         "exec '%s/viaductd' \"$@\"\n" % os.path.abspath(cli.BIN))
        self.put_beside(wrapper)

    def test_a_peer_with_another_protocol_version(self):
        started = time.monotonic()
        err = self.bad("up", "--ring", "3", expected=["link to host ", "it does not come up, it is 'bad"])
        self.assertLess(time.monotonic() - started, 25)
        self.assertIn("version", err)
        self.assertIn("99", err)
        self.assert_nothing_left()

    def log(self, host):
        return os.path.join(self.folder, "log-%d" % host)

    def read_log(self, host):
        with open(self.log(host), encoding="utf-8") as log:
            return log.read()

    def test_both_ends_report_the_version(self):
        self.env["VIADUCT_RUNDIR"] = self.rundir
        daemon = os.path.join(cli.BIN, "viaductd")
        ends = []
        try:
            for host, more in ((1, []), (2, ["--protocol-version", "99"])):
                peer = 3 - host
                with open(self.log(host), "w", encoding="utf-8") as log:
                    ends.append(subprocess.Popen(
                        [daemon, "--foreground", "--rundir", self.rundir, "--host", str(host), "--link",
                         "%d:%d:0" % (peer, host - 1), *more], stderr=log, stdin=subprocess.DEVNULL))
            for host, pattern in ((1, r"(?i)(?s)host 2.*version 99"),
                                  (2, r"(?i)(?s)host 1.*version %d\b" % cli.PROTOCOL_VERSION)):
                self.assertTrue(cli.wait_for(lambda: re.search(pattern, self.read_log(host))), self.read_log(host))
        finally:
            for end in ends:
                end.terminate()
                end.wait(cli.HANG_S)
        self.good("down")
        self.assert_nothing_left()


class FullMemory(cli.Case):
    """The limit of file sizes applies to memfds, too: a call fails with EFBIG that would fail with ENOSPC or ENOMEM on a
    machine whose memory is full. SIGXFSZ, which the kernel also sends, is ignored: it would end the process before the
    process could report the error."""

    def limited(self, size):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return {"preexec_fn": limit}

    def test_no_memory_for_a_host(self):
        err = self.bad("up", "--ring", "3", expected=["start: the daemon ended with exit code 1"],
                       **self.limited(64 << 10))
        self.assertRegex(err, r"host-\d\.log: .*(File too large|memory)")
        self.assert_nothing_left()

    def test_no_memory_for_a_process(self):
        self.good("up", "--ring", "2")
        more = self.limited(MEGABYTE)
        with self.start("run", "--host", "1", "--no-sockets", sys.executable,
                        ATTACHED, LIBRARY, "hold",
                        str(64 * MEGABYTE), **more) as process:
            out, _ = process.communicate(timeout=cli.HANG_S)
        self.assertEqual(process.returncode, 1, out)
        self.assertRegex(out, r"^-\d+: .*segment.*(File too large|memory)")
        self.assertEqual([h["state"] for h in self.status()["hosts"]], ["up", "up"])
        self.assertTrue(cli.wait_for(lambda: self.status()["hosts"][0]["processes"] == []))
        self.down()


class FullShm(cli.Case):
    """/dev/shm is full: hosts and attached processes keep nothing there, so they work; doctor reports it."""

    FULL = ("mount -t tmpfs -o size=64k tmpfs /dev/shm && "
            "! head -c 1M /dev/zero > /dev/shm/filling 2>/dev/null && exec \"$@\"")

    def setUp(self):
        super().setUp()
        probe = subprocess.run(["unshare", "-m", "sh", "-c", self.FULL, "sh", "true"], text=True,
                               stderr=subprocess.PIPE, check=False)
        if probe.returncode:
            self.skipTest("a mount namespace: %s" % probe.stderr.strip())

    def start(self, *words, **more):
        env = {**self.env, **more.pop("env", {})}
        return subprocess.Popen(["unshare", "-m", "sh", "-c", self.FULL, "sh", self.viaduct, *words],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                stdin=subprocess.DEVNULL, env=env, **more)

    def test_a_full_dev_shm(self):
        self.good("up", "--ring", "3")
        self.assertEqual([h["state"] for h in self.status()["hosts"]], ["up"] * 3)
        holder = self.start("run", "--host", "1", "--no-sockets", sys.executable, ATTACHED, LIBRARY,
                            "hold", str(16 * MEGABYTE))
        try:
            handle = holder.stdout.readline().strip()
            self.assertRegex(handle, r"^\d+$")
        finally:
            holder.kill()
            holder.communicate()
        self.assertRegex(self.call("doctor")[1], r"(?m)^warn  /dev/shm: 0 MB free$")
        self.down()


class Permission(cli.Case):
    def setUp(self):
        super().setUp()
        self.admit_nobody()
        for path in (LIBRARY, ATTACHED):
            shutil.copy(path, self.folder)
        self.good("up", "--ring", "2")
        self.addCleanup(self.down)

    def test_commands_of_another_user_are_refused(self):
        before = self.status()
        for words in (["status"], ["run", "--host", "1", "true"], ["cut", "1", "2"]):
            self.bad(*words, expected=["open %s/fabric.json: permission denied: the fabric belongs to uid "
                                       "0, this is uid %d" % (self.rundir, cli.NOBODY)], **self.nobody)
        for words in (["down"], ["up", "--ring", "2"]):
            self.bad(*words, expected="run directory %s: belongs to uid 0" % self.rundir, **self.nobody)
        self.assertEqual([h["session"] for h in self.status()["hosts"]],
                         [h["session"] for h in before["hosts"]])

    def attach(self):
        done = subprocess.run([self.python, os.path.join(self.folder, "cli_attached.py"),
                               os.path.join(self.folder, "libviaduct.so"), "hold", "4096"], env={**self.env, "VIADUCT_HOST": "1"}, text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False,
                              **self.nobody)
        return done.returncode, done.stdout

    def test_a_client_of_another_user_is_refused(self):
        code, out = self.attach()
        self.assertEqual(code, 1)
        self.assertRegex(out, r"^-13: host 1: attach.*: .*(?i:permission|may not)")

    def test_another_user_is_refused_even_where_the_files_are_open(self):
        os.chmod(self.rundir, 0o755)
        for name in os.listdir(self.rundir):
            os.chmod(os.path.join(self.rundir, name), 0o666)
        self.addCleanup(os.chmod, self.rundir, 0o700)
        code, out = self.attach()
        self.assertEqual(code, 1)
        self.assertRegex(out, r"^-13: host 1: attach.*: ")
        for words in (["status"], ["cut", "1", "2"]):
            self.call(*words, **self.nobody)
        self.assertFalse(self.status()["links"][0]["cut"])
        self.bad("cut", "1", "2", expected="host 1: ", **self.nobody)
        self.assertEqual(self.status()["hosts"][0]["processes"], [])


class Killed(cli.Case):
    def attached(self, host, *words):
        return self.start("run", "--host", str(host), "--no-sockets", "--", sys.executable,
                          ATTACHED, LIBRARY, *words)

    def processes(self, host):
        return next(h["processes"] for h in self.status()["hosts"] if h["host"] == host)

    def held(self, host):
        """The daemon's open files and mappings of memfds."""
        pid = self.pid(host)
        with open("/proc/%d/maps" % pid, encoding="utf-8") as maps:
            mapped = sum("memfd:" in line for line in maps)
        return len(os.listdir("/proc/%d/fd" % pid)), mapped

    def assert_no_more_held(self, host, before):
        """Fewer may be open: at the beginning the daemon may not have closed the connection of `viaduct up` yet."""
        self.assertTrue(cli.wait_for(lambda: all(now <= then for now, then in zip(self.held(host), before, strict=True))),
                        "held before %s, now %s" % (before, self.held(host)))

    def test_a_process_killed_while_it_holds_shared_memory(self):
        self.kill_holder("--no-direct", expected=r"^-\d+: ")

    def test_a_process_killed_while_others_have_its_memory_mapped(self):
        self.kill_holder(expected=r"^-104: host 1, segment: its owner has ended")

    def kill_holder(self, *options, expected):
        self.good("up", "--ring", "3", "--channels", "1", *options)
        before = self.held(1), self.held(2)
        holder = self.attached(1, "hold", str(64 * MEGABYTE))
        putter = None
        try:
            handle = holder.stdout.readline().strip()
            self.assertRegex(handle, r"^\d+$")
            shown = self.processes(1)
            self.assertEqual([(p["pid"], p["segments"], p["bytes"]) for p in shown],
                             [(holder.pid, 1, 64 * MEGABYTE)])
            self.assertIn("(%d)" % holder.pid, self.good("status"))
            putter = self.attached(2, "put", "1", handle, str(64 * MEGABYTE))
            self.assertEqual(putter.stdout.readline(), "open\n")
            holder.kill()
            holder.communicate(timeout=cli.HANG_S)
            # Processes that used the memory get an error.
            out, _ = putter.communicate(timeout=cli.HANG_S)
            self.assertEqual(putter.returncode, 1, out)
            self.assertRegex(out, expected)
        finally:
            for process in filter(None, (holder, putter)):
                process.kill()
                process.communicate()
        self.assertTrue(cli.wait_for(lambda: not self.processes(1) and not self.processes(2)))
        for host, then in zip((1, 2), before):
            self.assert_no_more_held(host, then)
        self.assertTrue(cli.wait_for(lambda: [k["state"] for k in self.status()["links"]] == ["up"] * 3))
        self.down()

    def test_operations_give_up_a_host_that_is_cut_off(self):
        self.good("up", "--chain", "2", "--no-direct", "--give-up-ms", "300")
        holder = self.attached(2, "hold", str(MEGABYTE))
        putter = None
        try:
            handle = holder.stdout.readline().strip()
            putter = self.attached(1, "put", "2", handle, str(MEGABYTE))
            self.assertEqual(putter.stdout.readline(), "open\n")
            self.good("cut", "1", "2")
            out, _ = putter.communicate(timeout=cli.HANG_S)
            self.assertEqual(putter.returncode, 1, out)
            self.assertRegex(out, r"^-113: ")
        finally:
            for process in filter(None, (holder, putter)):
                process.kill()
                process.communicate()
        self.down()

    def test_many_killed_processes_leave_nothing(self):
        self.good("up", "--ring", "2", "--channels", "1")
        before = self.held(1)
        for _ in range(3):
            holders = [self.attached(1, "hold", str(MEGABYTE)) for _ in range(6)]
            try:
                for holder in holders:
                    self.assertRegex(holder.stdout.readline(), r"^\d+\n$")
                self.assertEqual(len(self.processes(1)), len(holders))
            finally:
                for holder in holders:
                    holder.kill()
                    holder.communicate()
            self.assertTrue(cli.wait_for(lambda: not self.processes(1)))
        self.assert_no_more_held(1, before)
        self.down()

    def test_a_daemon_killed_while_processes_are_attached(self):
        self.good("up", "--ring", "2", "--channels", "1")
        holder = self.attached(1, "hold", str(MEGABYTE))
        try:
            handle = holder.stdout.readline().strip()
            putter = self.attached(2, "put", "1", handle, str(MEGABYTE))
            try:
                self.assertEqual(putter.stdout.readline(), "open\n")
                self.kill(2)
                out, _ = putter.communicate(timeout=cli.HANG_S)
                self.assertEqual(putter.returncode, 1)
                self.assertRegex(out, r"^-\d+: .*host 2.*daemon has ended")
            finally:
                putter.kill()
                putter.communicate()
        finally:
            holder.kill()
            holder.communicate()
        self.assertEqual(json.loads(self.good("status", "--json"))["hosts"][0]["state"], "up")
        self.down()


if __name__ == "__main__":
    cli.main()

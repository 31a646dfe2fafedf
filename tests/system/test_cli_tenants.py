#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Fabrics that other users may attach to, or administer: their rights, their errors, and the status."""
import os
import shutil
import stat
import subprocess

import cli

ATTACHED = os.path.join(cli.HERE, "cli_attached.py")
LIBRARY = os.path.join(cli.BIN, "libviaduct.so")
USER = "user:%d" % cli.NOBODY


class Words(cli.Case):
    def test_wrong_words_are_explained_before_anything_is_made(self):
        for option, value, expected in (
                ("--attach", "bob", "--attach: 'bob': all, owner, user:NAME and group:NAME are known"),
                ("--attach", "user:no-such-user", "--attach: 'user:no-such-user': there is no such user"),
                ("--admin", "group:no-such-group", "--admin: 'group:no-such-group': there is no such group"),
                ("--quota", "memory=2X", "--quota: 'memory=2X': a number from 1 on is expected")):
            self.bad("up", "--ring", "2", option, value, code=2, expected=expected)
            self.assert_nothing_left()


class Users(cli.Case):
    def setUp(self):
        super().setUp()
        self.admit_nobody()
        for path in (LIBRARY, ATTACHED):
            shutil.copy(path, self.folder)

    def hold(self, size):
        """A process of user nobody with a segment, and its first line of output."""
        holder = subprocess.Popen(
            [self.python, os.path.join(self.folder, "cli_attached.py"), os.path.join(self.folder, "libviaduct.so"),
             "hold", str(size)], env={**self.env, "VIADUCT_HOST": "1"}, text=True, stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL, **self.nobody)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        return holder, holder.stdout.readline()

    def users(self):
        return {user["uid"]: user for user in self.status()["hosts"][0]["users"]}

    def test_a_user_who_may_attach(self):
        self.good("up", "--ring", "2", "--attach", USER, "--quota", "segments=7,memory=3M,pipes=4")
        self.assertEqual(stat.S_IMODE(os.stat(self.rundir).st_mode), 0o711)
        holder, line = self.hold(1 << 20)
        self.assertRegex(line, r"^\d+$")
        self.assertEqual(self.users()[cli.NOBODY], {
            "uid": cli.NOBODY, "processes": 1, "segments": 1, "segments_max": 7, "memory": 1 << 20,
            "memory_max": 3 << 20, "pipes": 2, "pipes_max": 4, "notes": 0, "notes_max": 4096})
        self.assertRegex(self.good("status", **self.nobody), r"(?m)^ +1 +\S+ +1 +1/7 +1\.05 MB/3\.15 MB +2/4 +0/4096$")
        self.assertEqual(self.hold(3 << 20)[1],
                         "-122: host 1: segment of 3145728 bytes: refused: user %d is at its quota of bytes of memory on "
                         "host 1: 3145728\n" % cli.NOBODY)
        holder.kill()
        self.assertTrue(cli.wait_for(lambda: cli.NOBODY not in self.users()))
        for words in (["cut", "1", "2"], ["mend", "1", "2"]):
            self.bad(*words, expected="permission denied: user %d has no right to administer host 1, which '%s' needs" %
                     (cli.NOBODY, words[0]), **self.nobody)
        self.assertFalse(self.status()["links"][0]["cut"])
        self.bad("down", expected="run directory %s: belongs to uid 0" % self.rundir, **self.nobody)
        self.down()

    def test_a_user_without_rights(self):
        self.good("up", "--ring", "2")
        os.chmod(self.rundir, 0o711)
        status = self.good("status", **self.nobody)
        self.assertRegex(status, r"(?m)^ +1 +refused ")
        self.assertIn("permission denied: user %d has no right to attach to host 1" % cli.NOBODY, status)
        os.chmod(self.rundir, 0o700)
        self.down()

    def test_a_user_who_may_administer(self):
        self.good("up", "--ring", "2", "--admin", USER)
        self.good("cut", "1", "2", **self.nobody)
        self.assertTrue(self.status()["links"][0]["cut"])
        self.good("mend", "1", "2", **self.nobody)
        # Attaching is another right than administering.
        self.assertEqual(self.hold(4096)[1], "-13: host 1: attach: refused: user %d may not attach to host 1 (viaductd "
                         "--attach)\n" % cli.NOBODY)
        self.down()

    def test_a_run_directory_that_excludes_permitted_users_is_refused(self):
        os.mkdir(self.rundir, 0o700)
        self.bad("up", "--ring", "2", "--attach", "all",
                 expected="run directory %s: mode 700 keeps out users that may attach, must be 711" % self.rundir)
        os.rmdir(self.rundir)


if __name__ == "__main__":
    cli.main()

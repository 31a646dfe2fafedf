#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Completions: made from the built programs, and requested in bash, zsh and fish as by a user."""
import os
import shutil
import subprocess
import tempfile
import unittest

import cli

TOOL = os.path.join(os.path.dirname(os.path.dirname(cli.HERE)), "tools", "completion")


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="viaduct-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run(["python3", TOOL, cli.BIN, cls.folder], check=True)

    def bash(self, *words):
        script = "source %s/bash/%s; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _%s; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            self.folder, words[0], words[0].replace("-", "_"))
        out = subprocess.run(["bash", "--norc", "-c", script, "bash", *words], capture_output=True, text=True, check=True, cwd=self.folder)
        self.assertEqual(out.stderr, "")
        return out.stdout.splitlines()

    def fish(self, line):
        script = "source %s/fish/%s.fish; complete -C %s" % (self.folder, line.split()[0], "'%s'" % line)
        out = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True, cwd=self.folder,
                             env={**os.environ, "HOME": self.folder})
        return [row.split("\t")[0] for row in out.stdout.splitlines()]

    def test_bash(self):
        self.assertEqual(self.bash("viaduct", "sta"), ["status"])
        self.assertIn("--ring", self.bash("viaduct", "up", "--"))
        self.assertNotIn("--ring", self.bash("viaduct", "down", "--"))
        self.assertEqual(self.bash("viaduct", "perf", "p"), ["pingpong", "put", "pio"])
        self.assertIn("--link", self.bash("viaduct", "perf", "pio", "--l"))
        self.assertIn("--metrics", self.bash("viaductd", "--m"))
        self.assertEqual(self.bash("viaduct", "up", "--key", "opt"), ["options.tsv"])
        # A name of a file is one word, whatever is in it.
        for name in ("key of mine", "key*", "key$(id)"):
            with open(os.path.join(self.folder, name), "w", encoding="ascii"):
                pass
        self.assertEqual(sorted(self.bash("viaduct", "up", "--key", "key")), ["key of mine", "key$(id)", "key*"])
        self.assertEqual(sorted(self.bash("viaduct", "model", "key")), ["key of mine", "key$(id)", "key*"])
        self.assertIn("ls", self.bash("viaduct", "run", "--host", "1", "--", "ls"))
        self.assertEqual(self.bash("oshrun", "--hostf"), ["--hostfile"])

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish")
        self.assertIn("status", self.fish("viaduct sta"))
        self.assertIn("--ring", self.fish("viaduct up --r"))
        self.assertNotIn("--ring", self.fish("viaduct down --r"))
        self.assertIn("--metrics", self.fish("viaductd --m"))

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        for name in os.listdir(os.path.join(self.folder, "zsh")):
            subprocess.run(["zsh", "-n", os.path.join(self.folder, "zsh", name)], check=True)
        # The function with a _describe that prints its arguments, in place of the shell's.
        script = "_describe() { print -rl -- ${(P)3} }; _files() { print files }; words=(viaduct up --r); CURRENT=3; source %s/zsh/_viaduct" % self.folder
        out = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True).stdout
        self.assertIn("--ring:hosts 1 to N", out)
        self.assertNotIn("status:", out)


if __name__ == "__main__":
    cli.main()

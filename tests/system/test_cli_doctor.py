#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""doctor: each check fails when the test breaks its object, and doctor leaves nothing behind."""
import os
import re
import resource
import shutil
import subprocess

import cli


class Doctor(cli.Case):
    fake = True  # a folder of the test's, in which it breaks things

    def setUp(self):
        super().setUp()
        library = os.path.join(self.folder, "bin", "libviaduct-sockets.so")
        source = os.path.join(self.folder, "empty.c")
        with open(source, "w", encoding="ascii"):
            pass
        subprocess.run(["cc", "-shared", "-o", library, source], check=True)

    def examine(self, code=0, **more):
        got, out, err = self.call("doctor", **more)
        self.assertEqual((got, err), (code, ""), out)
        return out

    def finding(self, out, level, thing, expected):
        found = re.search(r"(?m)^%-4s  %s: (.*)\n((?:      mend: .*\n)?)" % (level, thing), out)
        self.assertTrue(found, "no '%s %s' in:\n%s" % (level, thing, out))
        self.assertIn(expected, found.group(1))
        self.assertEqual(bool(found.group(2)), level != "ok", out)

    def limited(self, limit, value):
        return {"preexec_fn": lambda: resource.setrlimit(limit, (value, value))}

    def test_nothing_keeps_viaduct_from_running_here(self):
        out = self.examine()
        self.assertNotIn("fail ", out)
        for thing, expected in (("viaductd", self.folder + "/bin/viaductd"),
                                ("sockets library", self.folder + "/bin/libviaduct-sockets.so"),
                                ("run directory", self.rundir), ("fabrics", "none that crashed"),
                                ("sealed memory", "sealed"), ("waking", "work")):
            self.finding(out, "ok", thing, expected)
        self.assert_nothing_left()

    def test_parts_that_are_missing(self):
        os.unlink(os.path.join(self.folder, "bin", "viaductd"))
        os.unlink(os.path.join(self.folder, "bin", "libviaduct-sockets.so"))
        self.env["PATH"] = self.folder
        out = self.examine(1)
        self.finding(out, "fail", "viaductd", "neither in %s/bin nor" % self.folder)
        self.finding(out, "fail", "sockets library", "neither in %s/bin nor" % self.folder)

    def test_a_library_that_can_not_be_loaded(self):
        with open(os.path.join(self.folder, "bin", "libviaduct-sockets.so"), "wb") as library:
            library.write(b"not ELF at all" * 100)
        self.finding(self.examine(1), "fail", "sockets library", "invalid ELF header")

    def test_a_run_directory_that_is_open_to_others(self):
        os.mkdir(self.rundir)
        os.chmod(self.rundir, 0o777)
        self.finding(self.examine(1), "fail", "run directory", "mode 777 is open to others")
        self.assertTrue(os.path.isdir(self.rundir))

    def test_limits(self):
        out = self.examine(1, **self.limited(resource.RLIMIT_NOFILE, 100))
        self.finding(out, "fail", "open files", "100 open files")
        out = self.examine(0, **self.limited(resource.RLIMIT_NOFILE, 512))
        self.finding(out, "warn", "open files", "512 open files")
        out = self.examine(0, **self.limited(resource.RLIMIT_FSIZE, 1 << 20))
        self.finding(out, "warn", "file size", "limited to 1048576 bytes")

    def test_one_core(self):
        core = min(os.sched_getaffinity(0))
        out = self.examine(0, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.finding(out, "warn", "cores", "1 usable")

    def test_a_fabric_that_crashed(self):
        self.good("up", "--ring", "3")
        self.finding(self.examine(), "ok", "fabrics", "none")
        self.kill(2)
        out = self.examine()
        self.finding(out, "warn", "fabrics", "fabric '%s' in %s: 1 of 3 hosts are dead" %
                     (self.name, self.rundir))
        self.assertIn("mend: viaduct down --fabric %s\n" % self.name, out)
        self.down()

    def test_fabrics_beside_the_default_one(self):
        home, user = self.as_user()
        del self.env["VIADUCT_RUNDIR"]
        self.env["XDG_RUNTIME_DIR"] = home
        self.rundir = os.path.join(home, "viaduct", self.name)
        self.good("up", "--ring", "2", **user)
        self.kill(1)
        self.env["VIADUCT_FABRIC"] = "another"
        self.finding(self.examine(**user), "warn", "fabrics", "fabric '%s'" % self.name)
        self.env["VIADUCT_FABRIC"] = self.name
        self.good("down", **user)
        self.assert_nothing_left()
        self.assertEqual(os.listdir(home), [])

    def test_as_nobody(self):
        if os.geteuid() != 0:
            self.skipTest("only root can change the user")
        os.chmod(self.folder, 0o755)
        shutil.rmtree(self.rundir, True)
        out = self.examine(1, user=cli.NOBODY, group=cli.NOBODY, extra_groups=[])
        self.finding(out, "fail", "run directory", "Permission denied")


if __name__ == "__main__":
    cli.main()

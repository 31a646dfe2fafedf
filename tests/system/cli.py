# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of the command viaduct: private fabrics, and a check that they leave nothing behind."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import leftovers  # noqa: E402
import supervise  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.abspath(os.environ.get("VIADUCT_BUILD_DIR") or
                      os.path.join(HERE, "..", "..", "build", "dev", "bin"))
NOBODY = 65534
with open(os.path.join(HERE, "..", "..", "src", "core", "node.h"), encoding="utf-8") as header:
    PROTOCOL_VERSION = int(re.search(r"#define VIA_PROTOCOL_VERSION (\d+)u", header.read())[1])
# Longer than any test here takes on a machine with ten times as many busy programs as CPUs: a program that takes longer
# hangs.
HANG_S = 60


def processes_with(word):
    """{pid: command line} of all processes with this word in their command line, but this one."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as line:
                words = line.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if int(pid) != os.getpid() and any(word in w for w in words):
            found[int(pid)] = " ".join(words)
    return found


def is_alive(pid):
    """False once all threads have ended: until then a killed process, whose first thread is a zombie, may hold its locks."""
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                    open("/proc/%d/task/%s/stat" % (pid, task), encoding="utf-8", errors="replace") as stat:
                if stat.read().rpartition(")")[2].split()[0] not in "ZX":
                    return True
    except OSError:
        pass
    return False


def wait_for(condition, seconds=HANG_S):
    return leftovers.wait_for(condition, seconds)


def namespaces(fabric):
    """Network namespaces of the fabrics of this name, which contains a test's pid: other tests may make theirs at the
    same time."""
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    return sorted(name for name in names if re.fullmatch(r"via-%s-(\d+|sw)" % re.escape(fabric), name))


class Case(unittest.TestCase):
    """A fabric of its own for each test, in a run directory of its own. At the end of a test nothing of the fabric may
    be left: remaining processes are ended by their pids and reported."""

    maxDiff = None
    fake = False  # with tests/system/cli_fake_daemon.py for viaductd

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="viaduct-test-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.rundir = os.path.join(self.folder, "run")
        self.name = "t%d" % os.getpid()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("VIADUCT_")}
        self.env["VIADUCT_RUNDIR"] = self.rundir
        self.env["VIADUCT_FABRIC"] = self.name
        self.env["VIADUCT_UP_WITH"] = str(os.getpid())  # also when the test is killed
        self.viaduct = os.path.join(BIN, "viaduct")
        self.shm_before = leftovers.shared_memory()
        if self.fake:
            self.put_beside(os.path.join(HERE, "cli_fake_daemon.py"))
        self.addCleanup(self.end_leftovers)

    def put_beside(self, daemon):
        """A copy of viaduct with another viaductd beside it."""
        folder = os.path.join(self.folder, "bin")
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(BIN, "viaduct"), folder)
        shutil.copy(daemon, os.path.join(folder, "viaductd"))
        os.chmod(os.path.join(folder, "viaductd"), 0o755)
        self.viaduct = os.path.join(folder, "viaduct")

    def admit_nobody(self):
        """Makes self.nobody another user, for subprocess, that may run a copy of viaduct and read this test's
        folder."""
        if os.geteuid() != 0:
            self.skipTest("only root can change the user")
        self.put_beside(os.path.join(BIN, "viaductd"))
        os.chmod(self.folder, 0o755)
        self.nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self.python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")  # of a folder that any user may read

    def end_leftovers(self):
        for pid in processes_with(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def as_user(self):
        """Arguments of call() that make it a user's, and a folder that is this user's."""
        home = os.path.join(self.folder, "home")
        os.mkdir(home, 0o700)
        if os.geteuid() != 0:
            return home, {}
        os.chmod(self.folder, 0o755)
        os.chown(home, NOBODY, NOBODY)
        return home, {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    # --- running it ---------------------------------------------------------------------------

    def start(self, *words, **more):
        return subprocess.Popen([self.viaduct, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                env={**self.env, **more.pop("env", {})}, **more)

    def call(self, *words, **more):
        """(exit code, standard output, standard error)"""
        timeout = more.pop("timeout", 2 * HANG_S)
        with self.start(*words, **more) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return process.returncode, out, err

    def good(self, *words, **more):
        """The command must succeed and print nothing on standard error. Returns its standard output."""
        code, out, err = self.call(*words, **more)
        self.assertEqual((code, err), (0, ""), "viaduct %s: %s%s" % (" ".join(words), out, err))
        return out

    def bad(self, *words, code=1, expected, **more):
        """The command must fail with this exit code, and with this text in its error, which begins with the command's
        name. Returns its standard error."""
        got, out, err = self.call(*words, **more)
        self.assertEqual(got, code, "viaduct %s: %s%s" % (" ".join(words), out, err))
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("viaduct"), err)
        for text in [expected] if isinstance(expected, str) else expected:
            self.assertIn(text, err)
        return err

    def status(self):
        return json.loads(self.good("status", "--json"))

    def state(self):
        with open(os.path.join(self.rundir, "fabric.json"), encoding="utf-8") as state:
            return json.load(state)

    def pid(self, host):
        return next(h["pid"] for h in self.state()["hosts"] if h["host"] == host)

    def kill(self, host, number=signal.SIGKILL):
        pid = self.pid(host)
        os.kill(pid, number)
        if number == signal.SIGKILL:
            self.assertTrue(wait_for(lambda: not is_alive(pid)))
        return pid

    # --- afterwards ---------------------------------------------------------------------------

    def assert_nothing_left(self):
        self.assertTrue(wait_for(lambda: not processes_with(self.rundir)), processes_with(self.rundir))
        self.assertFalse(os.path.exists(self.rundir),
                         os.path.isdir(self.rundir) and os.listdir(self.rundir))
        self.assertEqual(leftovers.shared_memory(), self.shm_before)
        self.assertEqual(namespaces(self.name), [])

    def down(self):
        out = self.good("down")
        self.assert_nothing_left()
        return out


def main():
    supervise.begin()
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun and len(result.skipped) == result.testsRun:
        print("skipped: %s" % result.skipped[0][1])
        sys.exit(77)

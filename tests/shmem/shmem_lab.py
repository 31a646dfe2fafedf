# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""For tests of OpenSHMEM: runs oshrun, and checks that a job leaves nothing behind."""
import os
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
BIN = os.environ.get("VIADUCT_BUILD_DIR") or os.path.join(HERE, "..", "..", "build", "dev", "bin")
OSHRUN = os.path.join(BIN, "oshrun")
# Longer than any test here takes on a machine with ten times as many busy programs as CPUs: a program that takes longer hangs.
HANG_S = 60
SMALL_HEAP = {"SHMEM_SYMMETRIC_SIZE": "1m", "VIADUCT_SHMEM_HEAP_MAX": "64m"}


def program(name):
    """tests/shmem/prog_shmem_NAME.c or examples/NAME.c"""
    path = os.path.join(BIN, "tests", "prog_shmem_" + name)
    return path if os.path.exists(path) else os.path.join(BIN, "examples", name)


def pids_in_folder(folder):
    """{pid: command line} of the processes of a test: the test's folder is their working directory."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/cwd" % pid).startswith(folder):
                with open("/proc/%s/cmdline" % pid, "rb") as line:
                    found[int(pid)] = line.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def wait_for(condition, seconds=HANG_S):
    return leftovers.wait_for(condition, seconds)


class Case(unittest.TestCase):
    """Each test has a folder of its own, which is the working directory of its processes. A process that is left after the
    test is killed by its pid."""

    maxDiff = None
    env = {}

    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="viaduct-shmem-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.addCleanup(self.end_leftovers)
        self.shm_before = leftovers.shared_memory()
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("VIADUCT_SHMEM", "SHMEM_", "SMA_"))}
        self.environment.update(self.env)

    def end_leftovers(self):
        for pid in pids_in_folder(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def assert_nothing_left(self):
        self.assertTrue(wait_for(lambda: not pids_in_folder(self.folder)), pids_in_folder(self.folder))
        self.assertEqual(leftovers.shared_memory(), self.shm_before)

    def start(self, *words, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                env={**self.environment, **more.pop("env", {})}, **more)

    @staticmethod
    def finish(job, timeout=HANG_S):
        """communicate(), but a process that does not end in time is killed."""
        try:
            return job.communicate(timeout=timeout)
        except BaseException:
            job.kill()
            raise

    def call(self, *words, timeout=100, text=None, **more):
        """(exit code, standard output, standard error)"""
        if text is not None:
            more["stdin"] = subprocess.PIPE
        with self.start(*words, **more) as process:
            try:
                out, err = process.communicate(text, timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return process.returncode, out, err

    def oshrun(self, *words, **more):
        return self.call(OSHRUN, *words, **more)

    def good(self, *words, **more):
        """Must succeed, and print nothing on standard error. Returns its standard output."""
        code, out, err = self.oshrun(*words, **more)
        self.assertEqual((code, err), (0, ""), "oshrun %s: %s%s" % (words, out, err))
        self.assert_nothing_left()
        return out

    def passes(self, name, *words, **more):
        """Runs a program that prints PASS and its name."""
        out = self.good(*words, program(name), **more)
        self.assertIn("PASS", out)
        return out

    def bad(self, *words, code, expected, **more):
        """Must fail with this code, and with an error that has all these parts. Returns its standard error."""
        got, out, err = self.oshrun(*words, **more)
        self.assertEqual(got, code, "oshrun %s: %s%s" % (words, out, err))
        for part in [expected] if isinstance(expected, str) else expected:
            self.assertIn(part, err)
        self.assert_nothing_left()
        return err


def main():
    supervise.begin()
    result = unittest.main(exit=False, verbosity=2).result
    sys.exit(0 if result.wasSuccessful() else 1)

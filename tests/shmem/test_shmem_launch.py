#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""oshrun: how jobs end, with success and with errors; jobs leave nothing behind."""
import os
import pty
import re
import signal
import subprocess
import time

import shmem_lab
from shmem_lab import OSHRUN, program

END = program("end")
WHERE = r"PE %d on \S+ \(pid \d+\)"


class Ends(shmem_lab.Case):
    def one_message(self, err, pattern):
        lines = [line for line in err.splitlines() if line.startswith("oshrun: ")]
        self.assertEqual(len(lines), 1, err)
        self.assertRegex(lines[0], "^oshrun: " + pattern + "$")

    def test_good(self):
        self.assertEqual(self.good("-n", 4, END), "")

    def test_a_pe_that_exits_ends_the_job(self):
        err = self.bad("-n", 4, END, "exit-3", code=3, expected="")
        self.one_message(err, WHERE % 3 + " exited with code 3; the job is ended")

    def test_a_pe_that_is_killed_ends_the_job(self):
        err = self.bad("-n", 4, END, "kill", code=137, expected="")
        self.one_message(err, WHERE % 0 + r" was killed by signal 9 \(Killed\); the job is ended")
        err = self.bad("-n", 2, END, "segv", code=139, expected="")
        self.one_message(err, WHERE % 0 + r" was killed by signal 11 \(.*\); the job is ended")

    def test_a_pe_that_leaves_without_finalize_ends_the_job(self):
        err = self.bad("-n", 3, END, "leave", code=1, expected="")
        self.one_message(err, WHERE % 0 + " exited with code 0 but without shmem_finalize, while "
                                          "others still run; the job is ended")
        self.bad("-n", 3, END, "never-init", code=1, expected="PE 0")

    def test_streams_that_are_closed(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            code, out, err = self.call("sh", "-c", 'exec "$@" ' + closed, "sh", OSHRUN, "-n", 3, program("memory"))
            self.assertEqual((code, err), (0, ""), closed)
            self.assertEqual(out, "" if " >&-" in " " + closed else "PASS memory\n", closed)
        self.assert_nothing_left()

    def test_kill_minus_nine_of_any_pe_from_outside(self):
        for turn in range(12):
            with self.start(OSHRUN, "-n", 4, END, "wait" if turn % 2 else "stubborn") as job:
                self.assertTrue(shmem_lab.wait_for(
                    lambda: len(shmem_lab.pids_in_folder(self.folder)) == 5))
                pids = sorted(pid for pid in shmem_lab.pids_in_folder(self.folder) if pid != job.pid)
                os.kill(pids[turn % 4], signal.SIGKILL)
                _, err = self.finish(job)
            self.assertEqual(job.returncode, 137, err)
            self.assertIn("(pid %d) was killed by signal 9" % pids[turn % 4], err)
            self.assert_nothing_left()

    def test_the_launcher_is_killed(self):
        for how in ("wait", "stubborn"):
            with self.start(OSHRUN, "-n", 3, END, how) as job:
                self.assertTrue(shmem_lab.wait_for(
                    lambda: len(shmem_lab.pids_in_folder(self.folder)) == 4))
                job.kill()
                self.finish(job)
            self.assert_nothing_left()

    def test_a_pe_behind_a_shell_ends_with_the_launcher(self):
        with self.start(OSHRUN, "-n", 2, "sh", "-c", '"$0" wait; exit 9', END) as job:
            self.assertTrue(shmem_lab.wait_for(
                lambda: len(shmem_lab.pids_in_folder(self.folder)) == 5))
            time.sleep(0.2)
            job.kill()
            self.finish(job)
        self.assert_nothing_left()

    def test_signals_are_passed_on(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            with self.start(OSHRUN, "-n", 3, END, "wait") as job:
                self.assertTrue(shmem_lab.wait_for(
                    lambda: len(shmem_lab.pids_in_folder(self.folder)) == 4))
                time.sleep(0.1)
                job.send_signal(number)
                _, err = self.finish(job)
            self.assertEqual(job.returncode, code)
            self.assertIn("the job is ended", err)
            self.assert_nothing_left()

    def test_timeout(self):
        self.bad("-n", 2, "--timeout", 1, END, "wait", code=124, expected="has run for 1 s (--timeout)")
        self.bad("-n", 2, "--timeout", 1, END, "stubborn", code=124, expected="has run for 1 s (--timeout)")

    def test_global_exit(self):
        """The other PEs compute and make no call; their output is not lost."""
        code, out, err = self.oshrun("-n", 3, END, "global-exit")
        self.assertEqual(code, 7)
        self.assertEqual(sorted(re.findall(r"unflushed \d", out)), ["unflushed %d" % i for i in range(3)])
        self.one_message(err, r"PE 0 has ended the job by shmem_global_exit\(7\)")
        self.assert_nothing_left()

    def test_children_of_a_pe_end_with_a_failed_job(self):
        self.bad("-n", 2, END, "child", code=5, expected="PE 0")

    def test_a_forked_child_has_variables_of_its_own(self):
        self.good("-n", 2, END, "fork")

    def test_a_forked_child_is_no_pe(self):
        self.good("-n", 2, END, "fork-calls")

    def test_calls_after_the_last_finalize(self):
        for call in range(1, 9):
            with self.subTest(call=call):
                self.bad("-n", 1, END, "uninitialized-%d" % call, code=1, expected="the library is not initialized: call shmem_init first")

    def test_an_uninitialized_sync_array_is_an_error(self):
        self.bad("-n", 4, "--timeout", 60, END, "sync", code=1, expected="shmem_barrier: pSync[")

    def test_initialized_again(self):
        self.good("-n", 3, END, "again")
        self.good("-n", 2, END, "thread-level")

    def test_start_pes_finalizes_at_exit(self):
        self.assertEqual(sorted(self.good("-n", 3, END, "start_pes").split()),
                         ["0", "1", "2", "PE", "PE", "PE"])


class Mistakes(shmem_lab.Case):
    def test_addresses_and_pes(self):
        self.bad("-n", 2, END, "bad-address", code=1,
                 expected=["PE 0: shmem_int_p to PE 0: 4 bytes at 0x", "neither in the symmetric heap"])
        self.bad("-n", 2, END, "bad-pe", code=1,
                 expected="PE 0: shmem_int_p: PE 2: there are PEs 0 to 1")
        for how, expected in (("bad-stride", "shmem_long_iput: 4 blocks, 2305843009213693952 elements of 8 bytes apart"),
                              ("bad-stride-back", "shmem_long_iget: 3 blocks, -1152921504606846976 elements of 8 bytes apart"),
                              ("bad-blocks", "shmem_long_ibput: 2 blocks of 2305843009213693952 elements of 8 bytes")):
            self.bad("-n", 2, END, how, code=1, expected=["PE 0: " + expected, "no memory is as large"])
        self.bad("-n", 2, END, "bad-free", code=1, expected=["shmem_free: 0x", "is not the address"])
        self.bad("-n", 1, END, "no-init", code=1, expected="shmem_malloc: the library is not initialized")

    def test_options(self):
        for words, expected in (
                ([END], "how many PEs?"),
                (["-n", "0", END], '-n "0": not a number from 1 to 1024'),
                (["-n", "2x", END], '-n "2x"'),
                (["-n", "5000", END], '-n "5000"'),
                (["-n", "-1", END], '-n "-1"'),
                (["-n"], "argument is missing"),
                (["-n", "2"], "which program?"),
                (["--loud", "-n", "2", END], "--loud: unknown option"),
                (["-n", "2", "--timeout", "soon", END], '--timeout "soon"'),
                (["-n", "2", "--hosts", "1,,2", END], '--hosts "1,,2": not a list'),
                (["-n", "2", "--hosts", "3-1", END], '--hosts "3-1": not a list'),
                (["-n", "2", "--hosts", "1,2,1", END], "--hosts host 1 is named twice"),
                (["-n", "2", "--hosts", "1:0", END], '--hosts "1:0": not a list of host ids'),
                (["-n", "2", "--hosts", "1:,2", END], '--hosts "1:,2": not a list of host ids'),
                (["-n", "2", "--hosts", "1-4", "--spread", END], "exclude each other"),
                (["-n", "2", "--fabric", "lab", END], "--fabric needs")):
            with self.subTest(words):
                self.bad(*words, code=2, expected=["oshrun: ", expected])

    def test_files_of_machines_that_are_none(self):
        path = os.path.join(self.folder, "hosts")
        for data, expected in ((b"node1\0, and more\n", "line 1: a line of more than 510 bytes, or a zero byte"), (b"a\n" + b"x" * 600, "line 2: a line of more than 510"),
                               (b"a\n-oProxyCommand=touch\n", "line 2: \"-oProxyCommand=touch\": not the name of a machine"), (b"no de\n", "line 1: \"no de\""),
                               (b"# none\n", "no machines")):
            with open(path, "wb") as file:
                file.write(data)
            self.bad("-n", 2, "--hostfile", path, "true", code=2, expected=expected)
        self.bad("-n", 2, "--hostfile", self.folder, "true", code=2, expected="Is a directory")

    def test_a_program_that_is_not_there(self):
        self.bad("-n", 3, "./nowhere", code=127,
                 expected='"./nowhere" can not be started: No such file or directory')
        self.bad("-n", 3, "/", code=1, expected='"/" can not be started: Permission denied')

    def test_a_fabric_that_is_not_up(self):
        env = {"VIADUCT_RUNDIR": os.path.join(self.folder, "no-fabric")}
        self.bad("-n", 2, "--hosts", "1,2", END, code=127, expected="host 1", env=env)
        self.bad("-n", 2, "--spread", END, code=127, expected="is the fabric up?", env=env)

    def test_sizes_of_the_heap(self):
        for size in ("", "x", "12q", "-1", ".", "k", "99999999999999999999999"):
            with self.subTest(size):
                self.bad("-n", 2, END, code=1, expected='SHMEM_SYMMETRIC_SIZE="%s"' % size,
                         env={"SHMEM_SYMMETRIC_SIZE": size})
                code, _, err = self.call(END, env={"SHMEM_SYMMETRIC_SIZE": size})
                self.assertEqual(code, 1)
                self.assertIn("SHMEM_SYMMETRIC_SIZE", err)
        for size in ("3.1M", ".5m", "2048kk", "64M", "1e".replace("e", "g"), "0"):
            with self.subTest(size):
                self.good("-n", 2, END, env={"SHMEM_SYMMETRIC_SIZE": size})
        self.good("-n", 2, END, env={"SMA_SYMMETRIC_SIZE": "junk", "SHMEM_SYMMETRIC_SIZE": "1M"})


class Streams(shmem_lab.Case):
    def test_tags(self):
        out = self.good("-n", 3, "--tag", "sh", "-c", "echo one; printf two")
        self.assertEqual(sorted(out.splitlines()),
                         ["[%d] %s" % (pe, word) for pe in range(3) for word in ("one", "two")])

    def test_tags_of_errors_and_long_lines(self):
        script = "echo wrong >&2; head -c 100000 /dev/zero | tr '\\0' x; echo"
        code, out, err = self.oshrun("-n", 2, "--tag", "sh", "-c", script)
        self.assertEqual((code, sorted(err.splitlines())), (0, ["[0] wrong", "[1] wrong"]))
        self.assertEqual(out.count("x"), 200000)
        for line in out.splitlines():
            self.assertRegex(line, r"^\[[01]\] x*$")

    def test_input_is_that_of_pe_0(self):
        out = self.oshrun("-n", 3, END, "input", text="in\n")[1]
        self.assertEqual(sorted(out.splitlines()),
                         ["PE 0 read in", "PE 1 read end", "PE 2 read end"])

    def test_input_from_a_terminal(self):
        """PE 0 is in a group of its own, and is not stopped when it reads."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(OSHRUN, [OSHRUN, "-n", "2", "--timeout", "60", END, "input"], self.environment)
        os.write(terminal, b"typed\n")
        out = b""
        try:
            while True:
                out += os.read(terminal, 1000)
        except OSError:
            pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, out)
        self.assertIn(b"PE 0 read typed", out)
        self.assertIn(b"PE 1 read end", out)
        self.assert_nothing_left()

    def test_exit_codes_of_programs_without_openshmem(self):
        self.good("-n", 3, "true")
        self.bad("-n", 3, "sh", "-c", "exit 42", code=42, expected="exited with code 42")

    def test_a_reader_that_closes(self):
        with self.start(OSHRUN, "-n", 2, "--tag", "yes") as job:
            job.stdout.readline()
            job.stdout.close()
            time.sleep(0.2)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(shmem_lab.HANG_S), 143)
            job.stderr.close()
        self.assert_nothing_left()

    def test_help(self):
        self.assertIn("usage: oshrun", self.good("--help"))
        self.assertRegex(self.good("--version"), r"^oshrun \(Viaduct\) \d")

    def test_variables_that_print_information(self):
        code, out, err = self.oshrun("-n", 2, END, env={"SHMEM_VERSION": "1", "SHMEM_INFO": ""})
        self.assertEqual((code, out), (0, ""))
        self.assertEqual(err.count("Viaduct OpenSHMEM"), 2, "by PE 0 only: " + err)
        self.assertIn("OpenSHMEM 1.6", err)
        self.assertIn("SHMEM_SYMMETRIC_SIZE", err)
        code, _, err = self.oshrun("-n", 1, program("memory"), env={"SHMEM_DEBUG": "1"})
        self.assertEqual(code, 0)
        self.assertIn("symmetric heap: ", err)

AGENT = """#!/usr/bin/env python3
import struct, sys
out = sys.stdout.buffer
out.write(sys.stdin.buffer.readline())  # the same version
for type, *numbers in %r:
    payload = struct.pack("<%%dI" %% len(numbers), *numbers)
    out.write(struct.pack("<2I", len(payload), type) + payload + b"\\n")
out.flush()
sys.stdin.buffer.read()
"""
HELLO, STARTED, ENDED = 32, 34, 37


class Agents(shmem_lab.Case):
    """Agents of another machine that send messages which no agent may send."""

    def check_refused(self, *frames):
        path = os.path.join(self.folder, "agent.py")
        with open(path, "w", encoding="ascii") as file:
            file.write(AGENT % (frames,))
        os.chmod(path, 0o755)
        done = subprocess.run([OSHRUN, "-n", "2", "--hosts", "far", "--agent", path, END],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertIn("on far: the machine is lost: oshrun there sent an invalid message (%d)" % ENDED,
                      done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(done.returncode, range(1, 128), done.stderr)

    def test_a_pe_that_never_started_can_not_end(self):
        self.check_refused((HELLO, 0), (ENDED, 0, 0, 0, 0))

    def test_a_pe_ends_once(self):
        self.check_refused((HELLO, 0), (STARTED, 0, 4711, 1, 4712), (ENDED, 0, 4711, 0, 0),
                  (ENDED, 0, 0, 0, 0))


if __name__ == "__main__":
    shmem_lab.main()

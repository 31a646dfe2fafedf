#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""The profiling tool: a program's calls, their number and duration, as a table and as a timeline."""
import json
import os
import re
import subprocess

import shmem_entries
import shmem_lab
from shmem_lab import BIN, program
from test_shmem_ring import Ring

PROFILE, TIMELINE = "VIADUCT_SHMEM_PROFILE", "VIADUCT_SHMEM_TIMELINE"
SOURCE = r"""
#include <shmem.h>
#include <pthread.h>
#include <unistd.h>
static long word, words[100];
static void *put(void *nothing)
{
    for (int i = 0; i < 7; i++)
        shmem_long_put(words, words, 100, (shmem_my_pe() + 1) % shmem_n_pes());
    return nothing;
}
int main(int argc, char **argv)
{
    int provided;
    pthread_t thread;
    (void)argv;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    pthread_create(&thread, 0, put, 0);
    pthread_join(thread, 0);
    shmem_pcontrol(0);
    for (int i = 0; i < 5; i++)
        shmem_long_atomic_inc(&word, 0);
    shmem_pcontrol(1);
    shmem_barrier_all();
    if (shmem_my_pe() == 1)
        usleep(30000);
    shmem_long_atomic_add(&word, 2, 0);
    shmem_barrier_all();
    if (argc > 1)
        shmem_global_exit(3);
    shmem_finalize();
    return 0;
}
"""

# PE 1 is ended while it adds events to its timeline, which has 1000 already. "exit": by PE 0's global exit, while another process
# has locked the file for two seconds. "kill": by SIGKILL, when it has written a part.
ENDED = r"""
#include <fcntl.h>
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
static long words[80000], begins; /* so many that a put takes longer than a microsecond on a fast machine, too: the timeline has no shorter calls */
static char part[4096];
static void put(int count)
{
    for (int i = 0; i < count; i++)
        shmem_long_put(words, words, 80000, 0);
}
static void lock_file(void)
{
    int ready[2], fd;
    if (pipe(ready) == 0 && fork() == 0) {
        fd = open(part, O_RDWR | O_CREAT, 0666);
        flock(fd, LOCK_EX);
        close(ready[0]);
        close(ready[1]);
        usleep(2000000);
        _exit(0);
    }
    close(ready[1]);
    (void)!read(ready[0], part, 1);
}
static void kill_during_write(void)
{
    struct stat info = {0};
    if (fork() != 0)
        return;
    for (int i = 0; i < 10000000 && info.st_size < 300000; i++)
        stat(part, &info);
    kill(getppid(), SIGKILL);
    _exit(0);
}
int main(int argc, char **argv)
{
    snprintf(part, sizeof(part), "%s.part", getenv("VIADUCT_SHMEM_TIMELINE"));
    shmem_init();
    if (shmem_my_pe() == 0) {
        pshmem_long_wait_until(&begins, SHMEM_CMP_EQ, 1);
        usleep(100000);
        pshmem_global_exit(3); /* PE 0 adds nothing */
    }
    put(1000);
    shmem_pcontrol(2);
    if (*argv[argc - 1] == 'e') {
        put(500);
        lock_file();
        pshmem_long_p(&begins, 1, 0);
    } else {
        put(20000);
        kill_during_write();
    }
    shmem_global_exit(4);
    return 0;
}
"""


class Tool(shmem_lab.Case):
    def setUp(self):
        super().setUp()
        self.profile, self.timeline = (os.path.join(self.folder, name) for name in ("profile", "timeline"))
        with open(os.path.join(self.folder, "measured.c"), "w", encoding="utf-8") as out:
            out.write(SOURCE)
        self.assertEqual(self.call(os.path.join(BIN, "oshcc"), "measured.c", "-o", "measured", "-pthread"), (0, "", ""))

    def table(self):
        """{call: (kind, calls, total ms, mean us, longest us, MB)}"""
        with open(self.profile, encoding="utf-8") as lines:
            rows = [line.split() for line in lines][1:]
        return {row[0]: (row[1], int(row[2]), *map(float, row[3:])) for row in rows}

    def spans(self):
        with open(self.timeline, encoding="utf-8") as file:
            return [event for event in json.load(file) if event["ph"] == "X"]

    def test_a_table_of_all_pes(self):
        self.good("-n", 3, "--timeout", 60, "./measured", env={PROFILE: self.profile})
        table = self.table()
        self.assertEqual(table["shmem_long_put"][:2], ("put", 21))
        self.assertEqual(table["shmem_long_put"][5], round(21 * 800 / 1e6, 3))
        self.assertEqual(table["shmem_long_atomic_add"][:2], ("atomic", 3))
        self.assertNotIn("shmem_long_atomic_inc", table)  # between shmem_pcontrol(0) and (1)
        kind, calls, total_ms, _, longest_us, _ = table["shmem_barrier_all"]
        self.assertEqual((kind, calls), ("collective", 6))
        self.assertGreater(longest_us, 20000)
        self.assertGreater(total_ms, 40)  # two PEs wait for the third

    def test_a_timeline(self):
        for _ in range(2):  # the second removes the first one's
            self.good("-n", 3, "--timeout", 60, "./measured", env={TIMELINE: self.timeline})
            spans = self.spans()
            self.assertEqual({span["pid"] for span in spans}, {0, 1, 2})
            # On one clock: no PE leaves the last barrier before every PE has entered it. This order of events holds under
            # any load; a bound on their duration does not. PE 1 sleeps before the barrier, so that the others wait.
            barriers = [[s for s in spans if s["pid"] == pe and s["name"] == "shmem_barrier_all"] for pe in range(3)]
            last = [max(of_pe, key=lambda span: span["ts"]) for of_pe in barriers]
            entered = max(span["ts"] for span in last)
            for span in last:
                self.assertGreater(span["ts"] + span["dur"], entered - 1000)

    def test_both_to_standard_error_and_after_a_global_exit(self):
        code, out, err = self.oshrun("-n", 2, "--timeout", 60, "./measured", env={PROFILE: "-"})
        self.assertEqual((code, out), (0, ""))
        self.assertRegex(err, r"call of OpenSHMEM, by all PEs(.*\n)+shmem_long_put +put +14 ")
        code, _, _ = self.oshrun("-n", 2, "--timeout", 60, "./measured", "x", env={TIMELINE: self.timeline})
        self.assertEqual(code, 3)
        self.assertIn("shmem_barrier_all", {span["name"] for span in self.spans()})

    def puts(self):
        """How many puts the timeline has. On a busy machine it has other calls, too, which are else too short for it: shmem_my_pe()."""
        return sum(span["name"] == "shmem_long_put" for span in self.spans())

    def compile_ended(self):
        with open(os.path.join(self.folder, "ended.c"), "w", encoding="utf-8") as out:
            out.write(ENDED)
        self.assertEqual(self.call(os.path.join(BIN, "oshcc"), "ended.c", "-o", "ended"), (0, "", ""))

    def test_a_pe_that_writes_is_not_ended_by_a_global_exit(self):
        self.compile_ended()
        code, _, err = self.oshrun("-n", 2, "--timeout", 60, "./ended", "exit", env={TIMELINE: self.timeline})
        self.assertEqual(code, 3, err)
        self.assertEqual(self.puts(), 1500)

    def test_a_pe_that_is_killed_leaves_a_whole_file(self):
        self.compile_ended()
        for _ in range(8):  # on a busy machine the PE may end before the process that kills it gets a CPU: then once more
            code, _, err = self.oshrun("-n", 2, "--timeout", 60, "./ended", "kill", env={TIMELINE: self.timeline})
            if code == 128 + 9:
                break
        self.assertEqual(code, 128 + 9, err)
        self.assertEqual(self.puts(), 1000)

    def test_a_pe_of_start_pes_that_fails_ends_the_job(self):
        with open(os.path.join(self.folder, "old.c"), "w", encoding="utf-8") as out:
            out.write("#include <shmem.h>\n#include <unistd.h>\n"
                      "int main(void) { start_pes(0); if (shmem_my_pe() == 1) return 7; pause(); return 0; }\n")
        self.assertEqual(self.call(os.path.join(BIN, "oshcc"), "old.c", "-o", "old", "-Wno-deprecated-declarations"), (0, "", ""))
        code, _, err = self.oshrun("-n", 2, "--timeout", 20, "./old", env={TIMELINE: self.timeline})
        self.assertEqual(code, 7, err)

    def test_files_that_can_not_be_written(self):
        for variable in (PROFILE, TIMELINE):
            code, _, err = self.oshrun("-n", 1, "--timeout", 60, program("hello"), env={variable: "/nowhere/file"})
            self.assertEqual(code, 0)
            self.assertIn("viaduct-shmem-profile: PE 0: %s: /nowhere/file: No such file or directory" % variable, err)

    def test_the_tool_has_all_calls(self):
        out = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BIN, "libviaduct-shmem-profile.so")], check=True,
                             capture_output=True, text=True, timeout=60).stdout
        names = {line.split()[2] for line in out.splitlines()}
        self.assertEqual(set(shmem_entries.standard()) - names, set())
        self.assertEqual({name for name in names if name.startswith("p")}, set())

    def test_programs_give_the_same_results_under_the_tool(self):
        for name in ("rma", "amo", "wait", "memory", "collect"):
            with self.subTest(name):
                out = self.good("-n", 3, "--timeout", 90, program(name), env={PROFILE: self.profile, TIMELINE: self.timeline})
                self.assertIn("PASS", out)
                self.assertGreater(len(self.table()), 5)
                self.assertGreater(len(self.spans()), 5)

    def test_with_checks(self):
        code, _, err = self.oshrun("-n", 2, "--timeout", 60, program("mistake"), "static",
                                   env={PROFILE: self.profile, "VIADUCT_SHMEM_CHECK": "1"})
        self.assertEqual(code, 0)
        self.assertRegex(err, r"check: shmem_long_put in .* past the end of the object")
        self.assertIn("shmem_long_put", self.table())


class Moment(shmem_lab.Case):
    def test_who_waits_as_json(self):
        job = self.start(shmem_lab.OSHRUN, "-n", 3, "--timeout", 60, program("trace"), "barrier")
        self.addCleanup(job.stderr.close)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.terminate)

        def shown():
            code, out, _ = self.call(os.path.join(BIN, "viaduct"), "shmem", "trace", "--job", job.pid, "--json")
            self.events = json.loads(out) if code == 0 else []
            return [event["name"] for event in self.events if event["ph"] == "X"] == ["shmem_barrier_all"] * 2
        self.assertTrue(shmem_lab.wait_for(shown), self.events)
        names = [event["args"]["name"] for event in self.events if event["ph"] == "M"]
        self.assertEqual(names[:2], ["PE 0", "PE 1"])
        self.assertRegex(names[2], r"^PE 2 (is in no OpenSHMEM call that waits|computes)$")
        self.assertTrue(all(re.match("hang_in_barrier", event["args"]["caller"]) for event in self.events if event["ph"] == "X"))


class Hosts(Ring):
    def test_over_frames(self):
        path = os.path.join(self.folder, "timeline")
        self.assertIn("PASS", self.good("-n", 4, "--spread", "--timeout", 90, program("overlap"), env={TIMELINE: path}))
        with open(path, encoding="utf-8") as file:
            far = [event for event in json.load(file) if event["ph"] == "X" and "pe" in event["args"] and
                   (event["args"]["pe"] - event["pid"]) % 4 == 2]
        self.assertGreater(len(far), 0)


if __name__ == "__main__":
    shmem_lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""VIADUCT_SHMEM_CHECK: one message for each kind of mistake, and no message about correct programs."""
import os
import re
import subprocess

import shmem_lab
from shmem_lab import program

MISTAKE = program("mistake")
ALL = ("rma", "amo", "wait", "memory", "order", "collect",
       "hello", "ring_shift", "heat_stencil", "histogram", "integer_sort", "producer_consumer", "teams")

# The mistake, the PE that reports it (None: any), and the report: call, argument, object, and the section of the standard.
MESSAGES = (
    ("stack", 0, r"shmem_int_p in \S+: dest = 0x\w+ is not the address of a symmetric object: "
                 r"it is .*\(OpenSHMEM 1.6, section 3\)"),
    ("malloc", 0, r"shmem_putmem in \S+: dest = 0x\w+ is not the address of a symmetric object: "
                  r"it is private memory .*section 3\)"),
    ("static", 0, r'shmem_long_put in \S+: dest = 0x\w+, "table"\+32: 40 bytes of PE 1, 8 past the '
                  r"end of the object's 64 \(OpenSHMEM 1.6, section 9.6.1\)"),
    ("read", 0, r'shmem_long_get in \S+: source = 0x\w+, "table"\+48: 24 bytes of PE 1, 8 past .*section 9.6.1'),
    ("source", 0, r'shmem_long_put in \S+: source = 0x\w+, "other"\+56: 16 bytes, 8 past .*section 9.6.1'),
    ("stride", 0, r'shmem_long_iput in \S+: dest = 0x\w+, "table": 80 bytes of PE 1, 16 past .*section 9.6.1'),
    ("heap", 0, r"shmem_putmem in \S+: dest = 0x\w+, byte 90 of 100 of a shmem_malloc: 11 bytes of "
                r"PE 1, 1 past .*section 9.6.1"),
    ("atomic", 0, r"shmem_long_atomic_inc in \S+: dest = 0x\w+, byte 8 of 12 of a shmem_malloc: 8 bytes of PE 1, "
                  r"4 past .*section 9.7.1"),
    ("freed", 0, r"shmem_putmem in \S+: dest = 0x\w+, byte 2 of 100 of a shmem_malloc that has been freed "
                 r".*section 9.3.2"),
    ("free", None, r'shmem_free in \S+: ptr = 0x\w+ was not returned by an allocation: it is "table" .*section 9.3.2'),
    ("wait", None, r"shmem_long_wait_until in \S+: ivar = 0x\w+ is not the address of a symmetric object"),
    ("lock", 0, r"shmem_set_lock in \S+: lock = 0x\w+ is not the address of a symmetric object"),
    ("signal", 0, r"shmem_long_put_signal in \S+: sig_addr = 0x\w+ is not the address of a symmetric object"),
    ("pe", 0, r"shmem_long_p in \S+: pe = 2: the job has PEs 0 to 1 \(OpenSHMEM 1.6, section 9.6.1\)"),
    ("negative", 0, r"shmem_long_get in \S+: pe = -1: the job has PEs 0 to 1"),
    ("team-pe", 0, r"shmem_ctx_long_p in \S+: pe = 1: the context's team has PEs 0 to 0"),
    ("team-invalid", None, r"shmem_long_sum_reduce in \S+: team is SHMEM_TEAM_INVALID \(OpenSHMEM 1.6, section 9.10\)"),
    ("ctx-invalid", None, r"shmem_ctx_long_p in \S+: ctx is SHMEM_CTX_INVALID \(OpenSHMEM 1.6, section 9.5\)"),
    ("root", None, r"shmem_long_broadcast in \S+: PE_root = 7: the team of all PEs has PEs 0 to 1 .*section 9.10.7"),
    ("active-set", None, r"shmem_long_sum_to_all in \S+: PE_start = 0, logPE_stride = 0, PE_size = 9: the job has "
                      r"PEs 0 to 1 .*section 9.10.9"),
    ("call", None, r"shmem_\w+ in \S+: collective 1 of the team of all PEs is shmem_(barrier|sync)_all\(\) "
                   r"here, and shmem_(sync|barrier)_all\(\) at PE [01] .*section 9.10.[14]"),
    ("size", None, r"shmem_malloc in \S+: collective 1 of .* is shmem_malloc\(size [12]00\) here, and "
                   r"shmem_malloc\(size [12]00\) at PE [01] .*section 9.3.1"),
    ("count", None, r"shmem_long_sum_reduce in \S+: .*nelems [23]\) here, and .*nelems [23]\) at PE .*section 9.10.9"),
    ("other-root", None, r"shmem_long_broadcast in \S+: .*PE_root [01]\) here, and .*PE_root [01]\) at PE"),
    ("dest", None, r'shmem_long_fcollect in \S+: .*dest "(table|data)".* here, and .*dest "(table|data)".* at PE'),
    ("collective", None, r'shmem_long_fcollect in \S+: dest = 0x\w+, "data": 128 bytes, 96 past .*section 9.10.8'),
    ("work", None, r"shmem_barrier in \S+: pSync = 0x\w+ is not the address of a symmetric object"),
    ("flag", 0, r'shmem_long_p in \S+: PE 1 waits on "flag", which may be seen there before '
                r'shmem_long_put of "data", as no shmem_fence or shmem_quiet .*section 9.12.1'),
    ("late", 0, r"shmem_my_pe in \S+: called after the last shmem_finalize .*section 9.1.4"),
)


class Messages(shmem_lab.Case):
    def check(self, name, mode="1", pes=2):
        """The lines of the checks, by PE."""
        code, out, err = self.oshrun("-n", pes, "--timeout", 90, MISTAKE, name, env={"VIADUCT_SHMEM_CHECK": mode})
        self.assertNotIn("has run for", err, out)
        self.assert_nothing_left()
        return code, re.findall(r"(?m)^viaduct-shmem: PE (\d): check: (.*)$", err), err

    def test_each_mistake(self):
        for name, pe, pattern in MESSAGES:
            with self.subTest(name):
                # Without the checking mode a mistake of all PEs would have its effect.
                _, lines, err = self.check(name, "1" if pe is not None else "abort")
                found = [text for who, text in lines if (pe is None or int(who) == pe) and re.match(pattern, text)]
                self.assertEqual(len(found), 1 if pe is not None else max(1, len(found)), err)
                self.assertEqual([text for _, text in lines if "9.1.1" in text and name != "early"], [], err)

    def test_before_init(self):
        _, _, err = self.check("early")
        self.assertRegex(err, r"viaduct-shmem: check: shmem_n_pes in \S+: called before shmem_init "
                              r"\(OpenSHMEM 1.6, section 9.1.1\)")

    def test_the_same_mistake_is_reported_once(self):
        code, lines, err = self.check("twice")
        self.assertEqual((code, len(lines)), (0, 2), err)
        self.assertIn("4 more of the same were not printed", lines[1][1])

    def test_it_can_end_the_job(self):
        code, lines, err = self.check("static", "abort")
        self.assertEqual((code, len(lines)), (1, 1), err)
        self.assertRegex(err, r"oshrun: PE 0 on \S+ \(pid \d+\) exited with code 1")

    def test_an_invalid_value_is_reported(self):
        code, lines, err = self.check("", "loud")
        self.assertEqual(code, 0)
        self.assertIn('VIADUCT_SHMEM_CHECK="loud": expected 1, warn, abort or 0', err)

    def test_off(self):
        for mode in ("", "0"):
            self.assertEqual(self.check("static", mode)[1], [])


SOURCE = """
#include <shmem.h>
long table[8], other[8];
int main(void)
{
    void (*volatile put)(long *, const long *, size_t, int) = shmem_long_put;
    shmem_init();
    if (shmem_my_pe() == 0) {
        put(table + 7, other, 2, 1);
        shmem_long_get(other, table + 6, 3, 1);
    }
    shmem_finalize();
    return 0;
}
"""
TOOL = """
#define VIADUCT_SHMEM_NO_GENERIC
#include <shmem.h>
#include <stdio.h>
void shmem_long_get(long *dest, const long *source, size_t nelems, int pe)
{
    printf("seen\\n");
    pshmem_long_get(dest, source, nelems, pe);
}
"""


class Kinds(shmem_lab.Case):
    """However a program was linked, its calls are found."""

    def build(self, text, name, *flags):
        source = os.path.join(self.folder, name + ".c")
        with open(source, "w", encoding="utf-8") as out:
            out.write(text)
        subprocess.run([os.path.join(shmem_lab.BIN, "oshcc"), source, "-o", name, *flags], check=True, cwd=self.folder)

    def mistakes(self, *words, **env):
        code, out, err = self.oshrun("-n", 2, "--timeout", 90, *words, env={"VIADUCT_SHMEM_CHECK": "1", **env})
        self.assertEqual(code, 0, err)
        return out, re.findall(r"check: (\w+) in \S+ (?:dest|source) = \w+, (.*?) past", err)

    EXPECTED = [("shmem_long_put", '"table"+56: 16 bytes of PE 1, 8'),
                ("shmem_long_get", '"table"+48: 24 bytes of PE 1, 8')]

    def test_ways_of_linking(self):
        for number, flags in enumerate((["-O2", "-pie", "-fPIE"], ["-O0", "-no-pie", "-fno-pie"],
                                        ["-O2", "-fno-plt", "-pie", "-fPIE"], ["-Wl,-z,now"], ["-Wl,-z,lazy"],
                                        ["-Wl,-z,norelro"], ["-fcf-protection=full"])):
            with self.subTest(flags):
                self.build(SOURCE, "program%d" % number, *flags)
                self.assertEqual(self.mistakes("./program%d" % number)[1], self.EXPECTED)

    def test_a_library_of_the_program(self):
        self.build(SOURCE.replace("main", "mistakes").replace("long table[8], other[8];", "extern long table[], other[];"),
                   "libmistakes.so", "-shared", "-fPIC")
        self.build("long table[8], other[8]; int mistakes(void); int main(void) { return mistakes(); }", "program",
                   "-L.", "-Wl,-rpath,.", "-lmistakes", "-Wl,--no-as-needed")
        self.assertEqual(self.mistakes("./program")[1], self.EXPECTED)

    def test_a_profiling_tool(self):
        self.build(SOURCE, "program")
        self.build(TOOL, "tool.so", "-shared", "-fPIC")
        out, found = self.mistakes("./program", LD_PRELOAD=os.path.join(self.folder, "tool.so"),
                                   ASAN_OPTIONS="verify_asan_link_order=0")
        self.assertEqual((out, found), ("seen\n", self.EXPECTED))

    def test_a_program_without_names(self):
        """Its calls are seen, the ends of its variables are not known; those of the heap are."""
        self.build(SOURCE.replace("shmem_init();", "shmem_init(); char *block = shmem_malloc(10);").replace(
            "put(table", "shmem_putmem(block, other, 11, 1); put(table"), "program", "-s")
        _, _, err = self.oshrun("-n", 2, "./program", env={"VIADUCT_SHMEM_CHECK": "1"})
        self.assertEqual(err.count("check:"), 1, err)
        self.assertIn("byte 0 of 10 of a shmem_malloc: 11 bytes of PE 1, 1 past", err)


class Silence(shmem_lab.Case):
    """No message about correct programs."""

    def test_programs_and_examples(self):
        for name in ALL:
            for pes in (1, 3):
                with self.subTest(name, pes=pes):
                    self.passes(name, "-n", pes, "--timeout", 90, env={"VIADUCT_SHMEM_CHECK": "abort"})

    def test_again_after_finalize(self):
        self.good("-n", 3, program("end"), "again", env={"VIADUCT_SHMEM_CHECK": "abort"})

    def test_without_a_launcher(self):
        code, out, err = self.call(program("rma"), env={"VIADUCT_SHMEM_CHECK": "abort"})
        self.assertEqual((code, err), (0, ""), out)


if __name__ == "__main__":
    shmem_lab.main()

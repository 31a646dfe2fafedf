#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""oshcc, oshc++, the header in several languages, and the names that the library has."""
import glob
import os
import re
import subprocess

import shmem_lab
from shmem_lab import BIN, HERE, OSHRUN

OSHCC, OSHCXX = os.path.join(BIN, "oshcc"), os.path.join(BIN, "oshc++")
LIBRARY = os.path.join(BIN, "libviaduct-shmem.so")
HELLO = os.path.join(HERE, "..", "..", "examples", "hello.c")

# A tool: counts the calls of one function and makes them by its other name.
TOOL = r"""
#include <pshmem.h>
#include <stdio.h>
static int calls;
void shmem_long_p(long *dest, long value, int pe) { calls++; pshmem_long_p(dest, value, pe); }
void shmem_finalize(void) { printf("%d calls\n", calls); fflush(stdout); pshmem_finalize(); }
"""
PROFILED = r"""
#include <shmem.h>
static long word;
int main(void) {
    shmem_init();
    for (int i = 0; i < 3; i++) shmem_long_p(&word, i, 0);
    shmem_finalize();
    return word != 2;
}
"""


CHECKED = r"""
#include <shmem.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static char first[5000] = "first", second[3];
static long word;
int main(void) {
    int status = 1;
    shmem_init();
    shmem_char_put(second, first, 3, (shmem_my_pe() + 1) % shmem_n_pes());
    shmem_long_atomic_inc(&word, 0);
    shmem_barrier_all();
    if (second[1] != 'i' || shmem_long_g(&word, 0) != shmem_n_pes()) return 1;
    if (fork() == 0) _exit(first[0] == 'f' ? 0 : 1);
    wait(&status);
    if (shmem_my_pe() == 0 && status == 0) puts("PASS");
    shmem_finalize();
    return status != 0;
}
"""


# As programs were written before OpenSHMEM 1.2.
OLD = r"""
#include <mpp/shmem.h>
#include <mpp/shmemx.h>
#include <mpp/pshmem.h>
#include <stdio.h>
int main(void) {
    start_pes(0);
    long *word = (long *)shmalloc(sizeof(long));
    *word = 0;
    shmem_barrier_all();
    shmem_long_inc(word, (_my_pe() + 1) % _num_pes());
    shmem_barrier_all();
    if (*word == 1 && _my_pe() == 0) puts("PASS");
    shfree(word);
    return 0;
}
"""


class Wrappers(shmem_lab.Case):
    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def build(self, *words):
        code, out, err = self.call(*words)
        self.assertEqual((code, out, err), (0, "", ""), words)

    def test_c(self):
        for standard in ("c99", "c11", "c17", "gnu17"):
            flags = ["-std=" + standard, "-Wall", "-Wextra", "-Werror", "-pedantic"]
            self.build(OSHCC, *flags, HELLO, "-o", "hello")
            self.assertIn("PASS", self.good("-n", 2, "./hello"))

    def test_in_two_steps(self):
        self.build(OSHCC, "-c", HELLO, "-o", "a file.o")
        self.build(OSHCC, "a file.o", "-o", "a program")
        self.assertIn("PASS", self.good("-n", 2, "./a program"))

    def test_kinds_of_programs(self):
        """Where the variables lie differs."""
        source = os.path.join(HERE, "prog_shmem_memory.c")
        for flags in (["-pie", "-fPIE"], ["-no-pie", "-fno-pie"], ["-Wl,-z,norelro"],
                      ["-Wl,-z,relro,-z,now"], ["-O2", "-flto"], ["-fcommon"]):
            with self.subTest(flags):
                self.build(OSHCC, *flags, source, "-o", "memory")
                self.assertIn("PASS", self.good("-n", 2, "./memory"))

    def test_static_programs(self):
        for flag, name in (("-static", "memory"), ("-static", "threads"), ("-static-pie", "memory")):
            with self.subTest(flag, name=name):
                self.build(OSHCC, flag, os.path.join(HERE, "prog_shmem_%s.c" % name), "-o", "static", "-lm")
                self.assertNotIn("INTERP", self.call("readelf", "-lW", "static")[1])
                self.assertIn("PASS", self.good("-n", 3, "--timeout", 90, "./static"))

    def test_a_static_program_with_children_and_a_tool(self):
        self.build(OSHCC, "-static", os.path.join(HERE, "prog_shmem_end.c"), "-o", "static")
        self.good("-n", 2, "./static", "fork")
        self.build(OSHCC, "-static", self.write("tool.c", TOOL), self.write("profiled.c", PROFILED), "-o", "static")
        self.assertEqual(self.good("-n", 1, "./static"), "3 calls\n")

    def test_a_static_program_says_that_it_can_not_be_checked(self):
        self.build(OSHCC, "-static", HELLO, "-o", "static")
        code, out, err = self.call(OSHRUN, "-n", 1, "./static", env={"VIADUCT_SHMEM_CHECK": "1"})
        self.assertEqual(code, 0)
        self.assertIn("PASS", out)
        self.assertIn("can not check a statically linked program: link it with the shared library", err)

    def test_a_program_with_a_sanitizer(self):
        # Its variables lie between red zones that no code may read, and it forks.
        source = self.write("checked.c", CHECKED)
        for flags in (["-fsanitize=address"], ["-fsanitize=undefined"]):
            with self.subTest(flags):
                self.build(OSHCC, "-g", *flags, source, "-o", "checked")
                self.assertEqual(self.good("-n", 2, "./checked"), "PASS\n")

    def test_cxx(self):
        for standard in ("c++11", "c++17", "c++20"):
            flags = ["-std=" + standard, "-Wall", "-Wextra", "-Werror", "-pedantic"]
            self.build(OSHCXX, *flags, os.path.join(HERE, "prog_cxx.cpp"), "-o", "cxx")
            self.assertIn("PASS", self.good("-n", 2, "./cxx"))

    def test_cxx_that_includes_it_as_c(self):
        source = self.write("as_c.cpp", 'extern "C" {\n#include <shmem.h>\n}\nlong word;\n'
                            "int main() { shmem_init(); shmem_put(&word, &word, 1, 0); shmem_finalize(); }\n")
        self.build(OSHCXX, "-Wall", "-Wextra", "-Werror", "-pedantic", source, "-o", "as_c")
        self.good("-n", 2, "./as_c")

    def test_old_programs(self):
        for compiler, name in ((OSHCC, "old.c"), (OSHCXX, "old.cpp")):
            with self.subTest(name):
                self.build(compiler, "-Wall", "-Wextra", "-Werror", self.write(name, OLD), "-o", "old")
                self.assertEqual(self.good("-n", 2, "./old"), "PASS\n")
                # Checking mode also knows memory that was allocated by the old names.
                self.assertEqual(self.good("-n", 2, "./old", env={"VIADUCT_SHMEM_CHECK": "abort"}), "PASS\n")

    def test_a_type_that_no_call_knows_is_refused(self):
        for call in ("shmem_put(p, p, 1, 0)", "shmem_put(SHMEM_CTX_DEFAULT, p, p, 1, 0)",
                     "shmem_atomic_inc(p, 0)", "shmem_sum_reduce(SHMEM_TEAM_WORLD, p, p, 1)"):
            source = self.write("bad.c", "#include <shmem.h>\nstruct s { int i; };\n"
                                         "void f(struct s *p);\nvoid f(struct s *p) { %s; }\n" % call)
            code, _, err = self.call(OSHCC, "-c", source)
            self.assertNotEqual(code, 0, call)
            self.assertIn("error", err)

    def test_help_and_shown_commands(self):
        self.assertEqual(self.call(OSHCC)[0], 2)
        self.assertIn("usage: oshcc", self.call(OSHCC, "--help")[1])
        self.assertIn("usage: oshc++", self.call(OSHCXX, "--help")[1])
        shown = self.call(OSHCC, "-O2", "x.c", "--showme")[1]
        self.assertRegex(shown, r"^cc -I\S+ -O2 x\.c -L\S+ -Wl,-rpath,\S+ -lviaduct-shmem\n$")
        # A word of its own: the folder's name may have "-l" in it.
        self.assertNotRegex(self.call(OSHCC, "-c", "x.c", "--showme")[1], r"(^|\s)-[lL]")
        self.assertRegex(self.call(OSHCC, "--showme:compile")[1], r"^-I\S+\n$")
        self.assertEqual(self.call(OSHCC, "x.c", "--showme", env={"OSHCC_CC": "my cc"})[1][:6], "my cc ")

    def test_the_compilers_exit_code(self):
        self.assertNotEqual(self.call(OSHCC, "nowhere.c")[0], 0)

    def test_profiling(self):
        self.build(OSHCC, self.write("program.c", PROFILED), self.write("tool.c", TOOL), "-o", "one")
        self.assertEqual(self.good("-n", 1, "./one"), "3 calls\n")
        self.build(OSHCC, "-shared", "-fPIC", "tool.c", "-o", "tool.so")
        self.build(OSHCC, "program.c", "-o", "two")
        out = self.good("-n", 1, "./two", env={
            "LD_PRELOAD": os.path.join(self.folder, "tool.so"),
            # oshrun itself may be built with ASan, which wants to be first.
            "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assertEqual(out, "3 calls\n")


def standard():
    """The names of the standard's calls."""
    with open(os.path.join(HERE, "openshmem-1.6.txt"), encoding="utf-8") as lines:
        return {line.split()[0] for line in lines if not line.startswith("#")}


def symbols(*words):
    """The names that nm prints."""
    table = subprocess.run(["nm", *words], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].partition("@")[0] for line in table.splitlines()}


class Names(shmem_lab.Case):
    def test_all_of_the_standard(self):
        defined = symbols("-D", "--defined-only", LIBRARY)
        self.assertGreater(len(standard()), 1850)
        self.assertEqual(standard() - defined, set())
        self.assertEqual({"p" + name for name in standard()} - defined, set())

    def test_each_call_of_the_standard_is_called_by_a_test(self):
        programs = glob.glob(os.path.join(BIN, "tests", "prog_shmem_*"))
        called = set().union(*(symbols("-u", path) for path in programs))
        self.assertEqual(standard() - called, set())

    def test_all_that_the_header_declares_and_nothing_else(self):
        source = os.path.join(self.folder, "header.c")
        with open(source, "w", encoding="utf-8") as out:
            out.write("#define VIADUCT_SHMEM_NO_GENERIC\n#include <shmem.h>\n")
        text = subprocess.run([OSHCC, "-E", "-P", source], check=True, capture_output=True,
                              text=True).stdout
        declared = set(re.findall(r"\b(p?(?:shmem_\w+|start_pes|_my_pe|_num_pes|shmalloc|shmemalign|shrealloc|shfree)) *\(", text))
        table = subprocess.run(["nm", "-D", "--defined-only", "--without-symbol-versions", LIBRARY], check=True,
                               capture_output=True, text=True).stdout
        lines = [line.split() for line in table.splitlines()]
        defined = {name for _, kind, name in lines if kind != "A"}  # A: the version itself
        self.assertGreater(len(declared), 3400)
        self.assertEqual(declared - defined, set())
        self.assertEqual(defined - declared, set())
        # Each has its twin, and can be replaced.
        kinds = {name: kind for _, kind, name in lines}
        for name in declared:
            if name.startswith("p"):
                self.assertEqual((kinds[name], kinds[name[1:]]), ("T", "W"), name)


if __name__ == "__main__":
    shmem_lab.main()

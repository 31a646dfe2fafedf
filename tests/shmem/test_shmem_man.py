#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Section 3: each call has a page, by each of its names; every page is valid; and a call without a page is found."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import shmem_entries
import shmem_lab

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = os.path.join(os.path.dirname(os.path.realpath(shmem_lab.BIN)), "man", "man3")
LIBRARY = os.path.join(shmem_lab.BIN, "libviaduct-shmem.so")


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, **more)


def read(name):
    with open(os.path.join(PAGES, name + ".3"), encoding="utf-8") as page:
        return page.read()


def text_of(name):
    """The page itself, where the name leads."""
    text = read(name)
    found = re.fullmatch(r"\.so man3/(\w+)\.3\n", text)
    return read(found.group(1)) if found else text


def own_pages():
    return sorted(name for name in os.listdir(PAGES) if not read(name[:-2]).startswith(".so "))


class Pages(unittest.TestCase):
    def test_each_call_has_one(self):
        out = run("nm", "-D", "--defined-only", "--without-symbol-versions", LIBRARY).stdout
        exported = {line.split()[2] for line in out.splitlines() if line.split()[1] in "TW"}
        calls = {name for name in exported if "p" + name in exported}
        self.assertGreater(len(calls), 1800)
        self.assertEqual(set(shmem_entries.standard()) - calls, set())
        for name in sorted(calls):
            # Itself in the synopsis, or the line of the table that it is made from.
            types = re.sub("shmem_(ctx_)?[a-z0-9]+_", lambda found: "shmem_%sTYPENAME_" % (found.group(1) or ""), name, count=1)
            sizes = re.sub("(?<=[a-z])(8|16|32|64|128)(?=_|$)", "SIZE", name)
            wanted = ["%s(" % one for one in (name, types, sizes)]
            self.assertTrue(any(one in text_of(name) for one in wanted), "%s: none of %s" % (name, wanted))

    def test_all_that_is_deprecated_says_so(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openshmem-1.6.txt"), encoding="utf-8") as lines:
            listed = [line.split() for line in lines if not line.startswith("#")]
        # Functions that have the name of a generic call, which is not deprecated: its page comes first.
        for name, *deprecated in listed:
            if name not in ("shmem_wait_until", "shmem_sync"):
                self.assertEqual("\nDeprecated. " in text_of(name), bool(deprecated), name)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_no_warnings(self):
        done = run("groff", "-man", "-ww", "-z", "-Tutf8", *own_pages(), cwd=PAGES)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_no_warnings(self):
        done = run("mandoc", "-T", "lint", *own_pages(), cwd=PAGES)
        self.assertEqual(done.stdout, "")

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_man_shows_a_call_by_its_name(self):
        for name, line in (("shmem_put", "void shmem_TYPENAME_put(TYPE *dest, const TYPE *source, size_t nelems, int pe);"),
                           ("shmem_ctx_uint64_atomic_fetch_xor_nbi", "TYPE shmem_TYPENAME_atomic_fetch_xor(TYPE *dest, TYPE value, int pe);"),
                           ("start_pes", "void start_pes(int npes);")):
            done = run("man", "-M", os.path.dirname(PAGES), name, env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(line, re.sub(".\b", "", done.stdout))


class Tool(unittest.TestCase):
    """Mistakes that the tool has to refuse, in a copy of its input."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for part in ("tools/man3", "tools/shmem_tables.py", "docs/man/shmem.3.in", "include"):
            to = os.path.join(self.folder, part)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            (shutil.copytree if part == "include" else shutil.copy)(os.path.join(ROOT, part), to)

    def error_after(self, part, before, after):
        path = os.path.join(self.folder, part)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(before, text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(before, after, 1))
        done = run("python3", os.path.join(self.folder, "tools", "man3"), os.path.join(self.folder, "out"))
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_a_call_without_a_page(self):
        self.assertIn("no page for shmem_new", self.error_after("include/viaduct/shmem_entries.h", "E(void, shmem_barrier_all, (void))",
                                                         "E(void, shmem_barrier_all, (void)) E(void, shmem_new, (void))"))

    def test_a_generic_call_without_a_page(self):
        self.assertIn("no page for shmem_fcollect", self.error_after("docs/man/shmem.3.in", "@generic shmem_collect shmem_fcollect", "@generic shmem_collect"))

    def test_a_page_of_no_call(self):
        self.assertIn("there is no call shmem_barrier_none",
                      self.error_after("docs/man/shmem.3.in", "@calls shmem_barrier_all", "@calls shmem_barrier_all shmem_barrier_none"))

    def test_a_parameter_without_a_word(self):
        self.assertIn("no word on the parameter lock", self.error_after("docs/man/shmem.3.in", "@param lock", "@param look"))


if __name__ == "__main__":
    shmem_lab.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Every entry point of the standard is called by the test programs with two PEs, and its result checked: if it does
nothing, a program that calls it fails. Every type-generic call of C11 and C++ selects what it should.

By default a few entry points are skipped in turn, the same ones unless SEED=N asks for others; with --all every one (make
mutants-shmem)."""
import collections
import os
import random
import re
import subprocess
import sys

import shmem_entries
import shmem_lab
from shmem_lab import BIN, program

LIBRARY = os.path.join(BIN, "libviaduct-shmem.so")
# A program and its arguments, the quick ones first; "again" sees whether shmem_finalize does anything.
PROGRAMS = [["end", "again"], ["query"], ["memory"], ["order"], ["wait"], ["end", "start_pes"],
            ["end", "thread-level"], ["end", "global-exit"], ["collect"], ["amo"], ["rma"]]
SAMPLE = 12
HANGS_S = 4

# Two PEs of one host could not tell the difference.
UNSEEN = {
    "shmem_fence": "x86 keeps the order of stores by itself",
    "shmem_ctx_fence": "as shmem_fence",
    "shmem_quiet": "stores of one host arrive by themselves",
    "shmem_ctx_quiet": "as shmem_quiet",
    "shmem_pe_quiet": "as shmem_quiet",
    "shmem_ctx_pe_quiet": "as shmem_quiet",
    "shmem_ctx_session_start": "a hint",
    "shmem_ctx_session_stop": "a hint",
    "shmem_pcontrol": "for tools; does nothing",
    "shmem_ctx_destroy": "gives memory of the process back",
}


def run(case, between, name, **more):
    return case.oshrun("-n", 2, "--timeout", 60 if "skip" not in more else HANGS_S,
                       *between.words([program(name[0]), *name[1:]], **more), env=shmem_lab.SMALL_HEAP, timeout=100)


def is_good(name, code, out):
    if name[0] != "end":
        return code == 0 and "PASS" in out
    if name[1] == "start_pes":
        return code == 0 and sorted(out.splitlines()) == ["PE 0", "PE 1"]
    return code == (7 if name[1] == "global-exit" else 0)


class Calls(shmem_lab.Case):
    every = False

    def callers(self, between):
        """{entry point: the programs that call it, the quick ones first}"""
        found = {}
        for name in PROGRAMS:
            file = os.path.join(self.folder, "called-%s" % "-".join(name))
            code, out, err = run(self, between, name, file=file)
            self.assertTrue(is_good(name, code, out), "%s: %d: %s%s" % (name, code, out, err))
            for entry in between.called(file):
                found.setdefault(entry, []).append(name)
        return found

    def test_each_call_is_made_and_its_effect_is_checked(self):
        between = shmem_entries.Between(self.folder, BIN)
        callers = self.callers(between)
        self.assertEqual(set(between.names) - set(callers), set(), "not called")
        seed = int(os.environ.get("SEED", 1))
        entries = [name for name in between.names if name not in UNSEEN]
        if not self.every:
            entries = random.Random(seed).sample(entries, SAMPLE)
        missed = []
        for entry in entries:
            # A program may call it without checking its effect.
            for name in callers[entry]:
                code, out, _ = run(self, between, name, skip=entry)
                if not is_good(name, code, out):
                    break
            else:
                missed.append(entry)
                print("%s does nothing, and %s pass" % (entry, callers[entry]), flush=True)
        self.assertEqual(missed, [], "SEED=%d" % seed)

    def test_pshmem_is_the_same_function(self):
        table = subprocess.run(["nm", "-D", "--defined-only", "--without-symbol-versions", LIBRARY], check=True, capture_output=True,
                               text=True).stdout
        address = {line.split()[2].partition("@")[0]: line.split()[0] for line in table.splitlines()}
        for name in shmem_entries.standard():
            self.assertEqual(address[name], address["p" + name], name)


# --- the type-generic calls ------------------------------------------------------------------------------------------

SAME = {"int8_t": "signed char", "int16_t": "short", "int32_t": "int", "int64_t": "long", "uint8_t": "unsigned char",
        "uint16_t": "unsigned short", "uint32_t": "unsigned int", "uint64_t": "unsigned long", "size_t": "unsigned long",
        "ptrdiff_t": "long"}
TYPES = {"float": "float", "double": "double", "longdouble": "long double", "char": "char", "schar": "signed char",
         "short": "short", "int": "int", "long": "long", "longlong": "long long", "uchar": "unsigned char",
         "ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long",
         "ulonglong": "unsigned long long", "complexf": "float _Complex", "complexd": "double _Complex",
         **{word[:-2]: word for word in SAME}}
Prototype = collections.namedtuple("Prototype", "result name parameters arguments")


def canonical(type_name):
    return SAME.get(TYPES[type_name], TYPES[type_name])


def split(name):
    """(generic name, TYPENAME, with a context); no TYPENAME: it is not of a type."""
    words = name.split("_")[1:]
    ctx = words[0] == "ctx"
    words = words[1:] if ctx else words
    if words[0] not in TYPES:
        return None
    return "shmem_" + "_".join(words[1:]), words[0], ctx


class Generic(shmem_lab.Case):
    def prototypes(self):
        source = os.path.join(self.folder, "header.c")
        with open(source, "w", encoding="utf-8") as out:
            out.write("#define VIADUCT_SHMEM_NO_GENERIC\n#include <shmem.h>\n")
        text = subprocess.run([os.path.join(BIN, "oshcc"), "-E", "-P", source], check=True, capture_output=True,
                              text=True).stdout
        for result, name, parameters in re.findall(r"(\w[\w ]*?) \**(shmem_\w+) ?\(([^()]*)\);", " ".join(text.split())):
            arguments = [re.findall(r"\w+", one)[-1] for one in parameters.split(",") if "..." not in one]
            yield Prototype(result, name, parameters, arguments)

    def wanted(self):
        """The calls of one type that have a generic name."""
        with open(os.path.join(shmem_lab.HERE, "..", "..", "include", "viaduct", "shmem_generic.h"),
                  encoding="utf-8") as header:
            generic = set(re.findall(r"(?m)^#define (shmem_\w+)\(\.\.\.\)", header.read()))
        found = [one for one in self.prototypes() if split(one.name) and split(one.name)[0] in generic]
        self.assertEqual({split(one.name)[0] for one in found},
                         generic - {"shmem_sync", "shmem_signal_set", "shmem_signal_add"})
        self.assertGreater(len(found), 1300)
        return found

    def selected(self, compiler, level, source):
        """{function: what it calls}, from the relocations of its section."""
        self.assertEqual(self.call(os.path.join(BIN, compiler), level, "-finline-functions", "-fPIC", "-ffunction-sections",
                                   "-w", "-c", source, "-o", "selected.o"), (0, "", ""))
        text = subprocess.run(["readelf", "-rW", os.path.join(self.folder, "selected.o")], check=True,
                              capture_output=True, text=True).stdout
        found, section = {}, None
        for line in text.splitlines():
            title = re.match(r"Relocation section '\.rela\.text\.t_(\w+)'", line)
            if title or line.startswith("Relocation section"):
                section = title and title[1]
            call = re.search(r" (shmem_\w+) [-+] ", line)
            if section and call:
                found.setdefault(section, set()).add(call[1])
        return found

    def check(self, compiler, level, head, foot, name):
        wanted = self.wanted()
        # Once for each C type, as more would be the same text.
        tried = {(split(one.name)[0], canonical(split(one.name)[1]), split(one.name)[2]): one for one in wanted}.values()
        self.assertGreater(len(tried), 800)
        source = os.path.join(self.folder, name)
        with open(source, "w", encoding="utf-8") as out:
            out.write("#include <shmem.h>\n" + head)
            for one in tried:
                out.write("%s t_%s(%s) { %s%s(%s); }\n" % (
                    one.result, one.name, one.parameters, "" if one.result == "void" else "return ",
                    split(one.name)[0], ", ".join(one.arguments)))
            out.write(foot)
        selected = self.selected(compiler, level, source)
        for one in tried:
            generic, kind, ctx = split(one.name)
            same = {other.name for other in wanted if split(other.name)[0] == generic and split(other.name)[2] == ctx and
                    canonical(split(other.name)[1]) == canonical(kind)}
            # C++ may overload the function of that name, which is for long.
            same |= {generic} & set(shmem_entries.standard()) if canonical(kind) == "long" else set()
            with self.subTest(one.name):
                self.assertEqual(len(selected.get(one.name, ())), 1, selected.get(one.name))
                self.assertLessEqual(selected[one.name], same)
        return selected

    OTHERS = """
        void t_sync(shmem_team_t team) { shmem_sync(team); }
        void t_signal_set(uint64_t *word, int pe) { shmem_signal_set(word, 1, pe); }
        void t_signal_add(uint64_t *word, int pe) { shmem_signal_add(word, 1, pe); }
        void t_ctx_signal_set(shmem_ctx_t ctx, uint64_t *word, int pe) { shmem_signal_set(ctx, word, 1, pe); }
        void t_ctx_signal_add(shmem_ctx_t ctx, uint64_t *word, int pe) { shmem_signal_add(ctx, word, 1, pe); }
    """

    def check_others(self, selected):
        self.assertEqual(selected["sync"], {"shmem_team_sync"})
        for name in ("signal_set", "signal_add", "ctx_signal_set", "ctx_signal_add"):
            self.assertEqual(selected[name], {"shmem_" + name})

    def test_c11(self):
        self.check_others(self.check("oshcc", "-O0", "", self.OTHERS, "selected.c"))

    def test_cxx(self):
        self.check_others(self.check("oshc++", "-O1", 'extern "C" {\n', self.OTHERS + "}\n", "selected.cpp"))


if __name__ == "__main__":
    if "--all" in sys.argv:
        sys.argv.remove("--all")
        Calls.every = True
    shmem_lab.main()

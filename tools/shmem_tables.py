# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Reads the calls of OpenSHMEM from the tables that shmem.h is made of, for tools that generate something for each call."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = os.path.join(ROOT, "include")


class Failure(Exception):
    pass


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def expand(compiler, lines):
    """The preprocessor's output for each of the lines, which follow the tables."""
    source = "#include <viaduct/shmem_entries.h>\n#include <viaduct/shmem_types.h>\n" \
             "#define CALL(R, NAME, P) @< R @| NAME @| P @>\n#define ONE(N, T, A) @< N @| T @>\n" + \
             "".join("@LINE %s\n" % line for line in lines)
    done = subprocess.run([compiler, "-E", "-P", "-I", INCLUDE, "-"], input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure("%s -E: %s" % (compiler, done.stderr.strip()))
    return [re.findall(r"@<\s*(.*?)\s*@>", text, re.DOTALL) for text in done.stdout.split("@LINE")[1:]]


def parts(text):
    return [" ".join(part.split()) for part in text.split("@|")]


class Call:
    """A line of a table: for all types, for all sizes, or one call."""

    def __init__(self, pattern, result, parameters):
        self.pattern, self.result = pattern, result
        self.parameters = parameters
        self.types = []  # (TYPENAME, TYPE) or (SIZE, "")

    def parameter_names(self):
        names = [re.search(r"(\w+)$", parameter.strip()) for parameter in self.parameters[1:-1].split(",")]
        return [name.group(1) for name in names if name and name.group(1) != "void"]

    def names(self):
        return [re.sub("TYPENAME|SIZE", name, self.pattern) for name, _ in self.types] or [self.pattern]

    def functions(self):
        """(name, result, parameters) of each, in C."""
        for name, kind in self.types or [("", "")]:
            yield tuple(re.sub(r"\bTYPE\b", kind, re.sub("TYPENAME|SIZE", name, text))
                        for text in (self.pattern, self.result, self.parameters))


def read_tables(compiler):
    """{pattern: Call}, from the same lines that declare the calls in shmem.h."""
    header = read(os.path.join(INCLUDE, "shmem.h"))
    lines = re.findall(r"^VIADUCT_SHMEM_(\w+)\((.*)VIADUCT_SHMEM_DECLARE\)$", header, re.MULTILINE)
    lists, expansions = [], []
    for macro, arguments in lines:
        argument = arguments.strip(" ,")
        if macro.endswith(("_TYPES", "_REAL", "_INTEGERS", "_REALS")):  # TYPES(ENTRIES, declare)
            lists.append("VIADUCT_SHMEM_%s(ONE, 0)" % macro)
            expansions.append("%s(TYPENAME, TYPE, CALL)" % argument)
        elif macro.endswith("_SIZES"):
            lists.append("VIADUCT_SHMEM_%s(ONE, 0)" % macro)
            expansions.append("%s(SIZE, BYTES, CALL)" % argument)
        elif argument.isdigit():
            lists.append("@< %s @| 0 @>" % argument)
            expansions.append("VIADUCT_SHMEM_%s(SIZE, CALL)" % macro)
        else:
            lists.append("")
            expansions.append("VIADUCT_SHMEM_%s(%s CALL)" % (macro, arguments))
    expansions.append("CALL(void, shmem_global_exit, (int status)) CALL(void, start_pes, (int npes))")
    lists.append("")
    calls = {}
    for found, types in zip(expand(compiler, expansions), expand(compiler, lists)):
        for line in found:
            result, pattern, parameters = parts(line)
            call = calls.setdefault(pattern, Call(pattern, result, parameters))
            call.types += [tuple(parts(one)) for one in types]
    if len(calls) < 100:
        raise Failure("shmem.h: only %d lines of calls were understood" % len(calls))
    return calls


def generic_names():
    return set(re.findall(r"^#define (shmem_\w+)\(\.\.\.\)", read(os.path.join(INCLUDE, "viaduct", "shmem_generic.h")), re.MULTILINE))

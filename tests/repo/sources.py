#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Rules of every source: a licence line, at most 800 lines, names that begin with via_, no paths of the
machine it was written on."""

import re

import repo

LINES_MAX = 800
LICENCE = f"/* {repo.SPDX} */"

# [k]: so that the pattern does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(home/\w|root/|wor[k]/|Users/\w)")

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)")
# The name before the first parenthesis; macros (capitals only) and pointers are not functions.
FUNCTION = re.compile(r"\b(?![A-Z0-9_]+\b)(\w+)\s*\((?!\s*\*)")
NOT_NAMES = {"static_assert", "_Static_assert", "_Alignas", "sizeof", "typeof", "__typeof__"}


def blank(match):
    """Nothing, over as many lines."""
    return "\n" * match.group().count("\n")


def functions(text):
    """(line number, name) of each function that is declared or defined outside of braces."""
    text = COMMENT.sub(blank, text)
    text = DIRECTIVE.sub(blank, text)
    text = LITERAL.sub("0", text)
    text = ATTRIBUTE.sub(blank, text)
    depth = 0
    outside = ""
    for char in text:
        if char == "{":
            depth += 1
            if depth == 1:
                outside += ";"
        elif char == "}":
            depth -= 1
        elif depth == 0 or char == "\n":
            outside += char
    line = 1
    for statement in outside.split(";"):
        match = None if statement.lstrip().startswith(("typedef", "extern 0")) else FUNCTION.search(statement)
        if match and match.group(1) not in NOT_NAMES and "=" not in statement[: match.start()]:
            yield line + statement.count("\n", 0, match.start()), match.group(1)
        line += statement.count("\n")


def check(tree, _args):
    complaints = []
    for name in tree.files(".c", ".h"):
        if (tree.text(name) or "").split("\n", 1)[0] != LICENCE:
            complaints.append(f"{name}:1: the first line is not '{LICENCE}'")
    for name in tree.files(".c", ".h", ".py", ".sh"):
        count = len(list(tree.lines(name)))
        if count > LINES_MAX:
            complaints.append(f"{name}:{count}: more than {LINES_MAX} lines; it probably holds two ideas")
    for name in tree.files():
        for number, line in tree.lines(name):
            match = MACHINE_PATH.search(line)
            if match:
                complaints.append(f"{name}:{number}: path of one machine: {match.group()}")
    for name in tree.files(".h"):
        if name.startswith("src/"):
            complaints += [f"{name}:{line}: {function}() does not begin with via_"
                           for line, function in functions(tree.text(name)) if not function.startswith("via_")]
    return complaints


HEADER = LICENCE + """
#define HELPER(x) \\
    helper(x)
struct via_ops {
    int (*put)(void *ctx);
};
typedef void via_sink(void *ctx);
static_assert(sizeof(int) == 4, "int(4)");
/* see other() */
VIA_DEFINE(uint, int)
int via_ring(int bit) __attribute__((format(printf, 1, 2)));
extern int (*via_hook)(int);
static inline int via_twice(int x)
{
    return helper(x) + helper(x);
}
"""
CLEAN = {"src/core/a.h": HEADER, "src/core/a.c": LICENCE + "\nstatic int helper(int x)\n{\n    return x;\n}\n"}
HOME = "/ho" + "me/somebody/viaduct"
PLANTS = [
    ("no licence", {"src/core/b.c": "\n"}, "src/core/b.c:1: the first line"),
    ("other licence", {"sim/b.h": "/* SPDX-License-Identifier: MIT */\n"}, "sim/b.h:1: the first line"),
    ("long", {"src/core/b.c": LICENCE + "\n" * (LINES_MAX + 1)}, "more than 800 lines"),
    ("path", {"docs/b.md": f"text\ncd {HOME}\n"}, "docs/b.md:2: path of one machine"),
    ("declared", {"src/core/b.h": LICENCE + "\n\nint\nring(int bit);\n"}, "src/core/b.h:4: ring() does not"),
    ("after a struct", {"src/core/b.h": HEADER + "void *ring(void) VIA_MUST_CHECK;\n"}, "ring() does not"),
    ("inline", {"src/core/b.h": HEADER + "static inline int ring(int b)\n{\n    return b;\n}\n"}, "ring() does not"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)

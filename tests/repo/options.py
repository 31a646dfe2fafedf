#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Each option that a command accepts is in its --help, of which completions are made, and each that --help shows is accepted."""

import re

import repo

TABLE = re.compile(r"struct option \w+\[\] = \{(.*?)\n?\s*\};", re.S)
NAME = re.compile(r'\{\s*"([a-z][a-z0-9-]*)"\s*,\s*(?:no|required|optional)_argument')
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
HELP_LINE = re.compile(r"^  (?:-\w, )?--([a-z][a-z0-9-]*)(?=[ ,=\[\n])", re.M)
# Between parts of ours, not for users: the agent of `run` and of oshrun on another machine.
INTERNAL = {("src/cli/run.c", "remote"), ("src/shmem/oshrun.c", "serve")}
# A macro of cli.h, which stands for its line.
MACRO = ("VIA_CLI_RUNDIR_HELP", "  --rundir DIR\\n")


def check(tree, _args):
    complaints = []
    # Options that commands share are in macros of headers.
    shared = {option for name in tree.files(".h") if name.startswith("src/") for option in NAME.findall(tree.text(name).replace("\\\n", ""))}
    for name in tree.files(".c"):
        text = tree.text(name)
        if not name.startswith(("src/cli/", "src/daemon/", "src/ip/", "src/shmem/")) or "getopt_long" not in text:
            continue
        accepted = {option for table in TABLE.findall(text) for option in NAME.findall(table)}
        outside = TABLE.sub("", text).replace(MACRO[0], '"%s"' % MACRO[1])
        texts = "".join(LITERAL.findall(outside)).replace("\\n", "\n")
        for option in sorted(accepted):
            if (name, option) not in INTERNAL and not re.search(r"--%s(?![\w-])" % option, texts):
                complaints.append(f"{name}: --{option} is accepted, and --help does not say it")
        for option in sorted(set(HELP_LINE.findall(texts)) - accepted - shared - {"help", "version"}):
            complaints.append(f"{name}: --help shows --{option}, which is not accepted")
    return complaints


GOOD = '''/* getopt_long */
static const char help[] = "usage: x\\n"
                           "  --one N    a thing\\n" VIA_CLI_RUNDIR_HELP "  -h, --help this\\n";
static const struct option long_options[] = {
    {"one", required_argument, NULL, 'o'}, {"rundir", required_argument, NULL, 1},
    {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
};
'''
CLEAN = {"src/cli/a.c": GOOD}
PLANTS = [
    ("not in help", {"src/cli/a.c": GOOD.replace('{NULL, 0', '{"two", no_argument, NULL, 2}, {NULL, 0')}, "--two is accepted"),
    ("not accepted", {"src/cli/a.c": GOOD.replace("  -h,", "  --three   it\\n  -h,")}, "shows --three"),
    ("longer name", {"src/cli/a.c": GOOD.replace("--one N", "--one-more N")}, "--one is accepted"),
]

if __name__ == "__main__":
    repo.main(check, CLEAN, PLANTS)
